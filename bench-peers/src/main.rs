//! The cases of libatrace_rust's benchmarks through other libraries, and through ours.

mod atrace_like;
mod cases;
#[allow(dead_code, reason = "shared with the benchmark of the crate")]
#[path = "../../crates/trace/benches/cost/published.rs"]
mod published;
#[allow(dead_code, reason = "shared with the benchmark of the crate")]
#[path = "../../crates/trace/benches/cost/windows.rs"]
mod windows;

use windows::Run;

fn main() {
    let windows = if std::env::args().any(|word| word == "--quick") { 31 } else { 151 };
    windows::pin(0);
    println!("{}", windows::machine());
    println!("libatrace-like layer writes to {}", atrace_like::open().display());
    let figures = Run { windows }.of(cases::all());
    atrace_like::close();
    let find = |name: String| {
        figures.iter().find(|figure| figure.name == name).map(|figure| figure.median)
    };
    for ruler in ["empty loop", "rdtsc", "getppid"] {
        println!("{ruler:<12} {:>8.2} ns", find(ruler.to_owned()).unwrap_or(f64::NAN));
    }
    print!("\n{:<26} {:>11}", "ns, median of windows", "its Rust");
    cases::PEERS.iter().for_each(|peer| print!(" {peer:>17}"));
    println!();
    for case in published::CASES {
        print!("{:<26} {:>11.2}", case.name, case.rust);
        for peer in cases::PEERS {
            let figure = find(format!("{} · {peer}", case.name))
                .map_or("-".to_owned(), |ns| format!("{ns:.2}"));
            print!(" {figure:>17}");
        }
        println!();
    }
}
