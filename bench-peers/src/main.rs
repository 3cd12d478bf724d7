//! The cases of libatrace_rust's benchmarks through other libraries, and through ours.

mod atrace_like;
mod cases;
#[path = "../../crates/trace/benches/cost/clock.rs"]
mod clock;
#[expect(dead_code, reason = "shared with the benchmark of the crate")]
#[path = "../../crates/trace/benches/cost/published.rs"]
mod published;
mod ratios;
#[path = "../../crates/trace/benches/cost/windows.rs"]
mod windows;

use windows::{Figure, Run};

fn main() {
    let has = |wanted: &str| std::env::args().any(|word| word == wanted);
    let windows = if has("--quick") { 31 } else { 151 };
    let machine = windows::machine();
    windows::pin(0);
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--side", subscriber, span] => return ratios::serve(subscriber, span),
        ["--count", subscriber, span, count] => {
            return ratios::count(subscriber, span, count.parse().expect("a number of spans"));
        }
        _ => {}
    }
    if has("--ratios") {
        println!("{machine}");
        return ratios::print(windows);
    }
    let marker = atrace_like::open();
    let figures = Run { windows }.of(cases::all());
    atrace_like::close();
    if has("--json") {
        return println!("{}", json(&figures));
    }
    println!("{machine}");
    println!("libatrace-like layer writes to {}", marker.display());
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

/// The figures of cases as `towpath lab replay atrace` reads them.
fn json(figures: &[Figure]) -> String {
    let rows = figures.iter().filter_map(|figure| {
        let (case, who) = figure.name.split_once(" · ")?;
        Some(format!(
            "{{\"case\":\"{case}\",\"who\":\"{who}\",\"ns\":{:.3},\"quartiles\":[{:.3},{:.3}]}}",
            figure.median, figure.low, figure.high
        ))
    });
    format!("{{\"rows\":[{}]}}", rows.collect::<Vec<_>>().join(","))
}
