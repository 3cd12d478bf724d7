//! Runs one operation of the codec a number of times, to be counted from outside:
//!
//! ```text
//! valgrind --tool=callgrind target/release/examples/instructions request-head 1000
//! ```
//!
//! The difference of two counts, divided by the difference of their iterations, is what one operation costs.

#[path = "../benches/cases/mod.rs"]
mod cases;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let count = arguments.next().and_then(|count| count.parse::<u64>().ok());
    let operation = cases::CASES.iter().find(|(case, _)| *case == name);
    let (Some((_, operation)), Some(count)) = (operation, count) else {
        let names: Vec<&str> = cases::CASES.iter().map(|(case, _)| *case).collect();
        eprintln!("usage: instructions CASE COUNT\ncases: {}", names.join(" "));
        return ExitCode::FAILURE;
    };
    let mut bench = cases::Bench::new();
    for _ in 0..count {
        operation(&mut bench);
    }
    ExitCode::SUCCESS
}
