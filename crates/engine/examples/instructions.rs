//! Runs one operation of the codec or of the engine a number of times, to be counted from outside:
//!
//! ```text
//! valgrind --tool=callgrind target/release/examples/instructions exchange 1000
//! ```
//!
//! The difference of two counts, divided by the difference of their iterations, is what one operation costs;
//! `cargo xtask instructions` does that for every operation. Without arguments it lists them.

#![expect(clippy::print_stdout, reason = "it lists what it can count")]

#[path = "../../proto/benches/cases/mod.rs"]
mod codec;
#[path = "../benches/cases/mod.rs"]
mod engine;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, count) = match &arguments[..] {
        [] => {
            names().for_each(|name| println!("{name}"));
            return ExitCode::SUCCESS;
        }
        [name, count] => (name, count.parse::<u64>().ok()),
        _ => return usage(),
    };
    let Some(count) = count else { return usage() };
    if let Some((_, operation)) = codec::CASES.iter().find(|(case, _)| case == name) {
        let mut bench = codec::Bench::new();
        (0..count).for_each(|_| operation(&mut bench));
    } else if let Some((_, operation)) = engine::CASES.iter().find(|(case, _)| case == name) {
        let mut bench = engine::Bench::new();
        (0..count).for_each(|_| operation(&mut bench));
    } else {
        return usage();
    }
    ExitCode::SUCCESS
}

fn names() -> impl Iterator<Item = &'static str> {
    let codec = codec::CASES.iter().map(|(name, _)| *name);
    codec.chain(engine::CASES.iter().map(|(name, _)| *name))
}

fn usage() -> ExitCode {
    eprintln!("usage: instructions [CASE COUNT]\ncases: {}", names().collect::<Vec<_>>().join(" "));
    ExitCode::FAILURE
}
