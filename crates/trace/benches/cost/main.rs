//! What an event costs: every case of libatrace_rust's benchmarks by its name, beside the rulers.
//!
//! All cases of a table run in turns, in windows of about a millisecond on one processor, so that a disturbance falls
//! on all of them; a figure is the median of the windows with its quartiles. `rdtsc`, an empty loop and `getppid` run
//! in the same turns. As root, with tracefs mounted, the marker cases write to an instance of their own.
//!
//! `cargo bench -p towpath-trace --features layer`, with `-- --json FILE` for the rows as JSON, `-- --quick` for few
//! windows, and `-- --own` for our own cases alone.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[expect(clippy::unwrap_used, reason = "what cannot be set up ends the run")]
mod cases;
mod clock;
mod published;
mod windows;

use windows::{Figure, Run};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json =
        arguments.iter().position(|word| word == "--json").and_then(|at| arguments.get(at + 1));
    let windows = if arguments.iter().any(|word| word == "--quick") { 31 } else { 151 };
    let mut report = Report::default();

    let machine = windows::machine();
    windows::pin(0);
    if arguments.iter().any(|word| word == "--floor") {
        let figures = Run { windows }.of(cases::facade_floor());
        for figure in &figures[1..] {
            println!(
                "{:<52} {:>8.2} {:>8.2} {:>8.2} {:>10.2}",
                figure.name,
                figure.median,
                figure.low,
                figure.high,
                figure.median / figures[0].median
            );
        }
        return;
    }
    println!("{machine}");
    let marker = cases::Marker::of_our_own();
    if let Err(why) = &marker {
        println!("marker cases are left out: {why}");
    }
    cases::install();
    let run = Run { windows };

    if arguments.iter().any(|word| word == "--own") {
        return report.own(&run.of(cases::own()), 1.0, 0.0);
    }
    let rulers = report.table("rulers", &run.of(cases::rulers(marker.as_ref().ok())));
    let rdtsc =
        rulers.iter().find(|figure| figure.name == "rdtsc").map_or(1.0, |figure| figure.median);
    let empty = rulers
        .iter()
        .find(|figure| figure.name == "empty loop")
        .map_or(0.0, |figure| figure.median);
    let write = rulers
        .iter()
        .find(|figure| figure.name == "raw write B, 10 characters")
        .map(|figure| figure.median);
    report.own(&run.of(cases::own()), rdtsc, empty);
    floor();
    report.original(&run.of(cases::original(marker.as_ref().ok())), write);
    report.two_threads(&cases::two_threads(windows));
    report.encoding(&cases::encoding());
    if let Some(path) = json {
        std::fs::write(path, report.json()).expect("the JSON file can be written");
    }
}

/// The part of a span that is `tracing`'s own, from a process of its own.
fn floor() {
    let program = std::env::current_exe()
        .and_then(|path| std::process::Command::new(path).arg("--floor").output());
    print!(
        "{}",
        program.map_or_else(
            |error| error.to_string(),
            |out| String::from_utf8_lossy(&out.stdout).into_owned()
        )
    );
}

/// What has been printed, for the JSON file.
#[derive(Default)]
struct Report {
    rows: Vec<String>,
}

impl Report {
    fn table(&mut self, title: &str, figures: &[Figure]) -> Vec<Figure> {
        println!("\n{title:<52} {:>10} {:>10} {:>10}", "ns", "p25", "p75");
        for figure in figures {
            println!(
                "{:<52} {:>10.2} {:>10.2} {:>10.2}",
                figure.name, figure.median, figure.low, figure.high
            );
            self.row(title, figure, "towpath", None);
        }
        figures.to_vec()
    }

    /// Our own cases, each beside what it may cost.
    fn own(&mut self, figures: &[Figure], rdtsc: f64, empty: f64) {
        let of = |name: &str, otherwise| {
            figures.iter().find(|figure| figure.name == name).map_or(otherwise, |f| f.median)
        };
        let (rdtsc, empty) = (of("rdtsc", rdtsc), of("empty loop", empty));
        println!(
            "\n{:<52} {:>8} {:>8} {:>8} {:>10} {:>10}",
            "our own cases", "ns", "p25", "p75", "x rdtsc", "allowed"
        );
        for figure in figures {
            let over = figure.median - empty;
            let allowed = published::allowed(figure.name);
            let verdict = match allowed {
                None => String::new(),
                Some(published::Allowed::Over(ns)) => {
                    verdict(over <= ns, &format!("+{ns} ns ({over:+.2})"))
                }
                Some(published::Allowed::Rdtsc(times)) => {
                    verdict(over <= times * (rdtsc - empty), &format!("{times} x"))
                }
            };
            let ratio = over / (rdtsc - empty);
            println!(
                "{:<52} {:>8.2} {:>8.2} {:>8.2} {:>10.2} {:>10}",
                figure.name, figure.median, figure.low, figure.high, ratio, verdict
            );
            self.row("own", figure, "towpath", None);
        }
    }

    /// The original's cases: its numbers, our ATrace path and our ring path.
    fn original(&mut self, figures: &[Figure], write: Option<f64>) {
        println!(
            "\n{:<28} {:>10} {:>10} {:>12} {:>12} {:>14}",
            "libatrace_rust's cases, ns",
            "its Rust",
            "its C++",
            "our ATrace",
            "our ring",
            "scoped, layer"
        );
        let find = |case: &str, path: &str| {
            figures.iter().find(|figure| figure.name == format!("{case} · {path}"))
        };
        for case in published::CASES {
            let cell = |path| {
                find(case.name, path)
                    .map_or_else(|| "-".to_owned(), |figure| format!("{:.2}", figure.median))
            };
            let cpp = case.cpp.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.2}"));
            let (atrace, ring, scoped) = (cell("ATrace"), cell("ring"), cell("layer"));
            println!(
                "{:<28} {:>10.2} {cpp:>10} {atrace:>12} {ring:>12} {scoped:>14}",
                case.name, case.rust
            );
            for path in ["ATrace", "ring", "layer"] {
                if let Some(figure) = find(case.name, path) {
                    self.row("atrace", figure, &format!("towpath {path}"), Some(case.rust));
                }
            }
        }
        let on = find("tracing_on_begin/10", "ATrace").map(|figure| figure.median);
        if let (Some(write), Some(on)) =
            (find("raw write B, 10 characters", "ruler").map(|f| f.median).or(write), on)
        {
            println!(
                "ATrace marker over raw write: {:.3} {}",
                on / write,
                verdict(on <= 1.1 * write, "1.1")
            );
        }
    }

    fn two_threads(&mut self, figures: &[Figure]) {
        let figures = self.table("two threads at once (each its own processor)", figures);
        if let [one, two] = &figures[..] {
            println!("two threads over one: {:.3}", two.low / one.low);
        }
    }

    fn encoding(&mut self, figures: &[Figure]) {
        let figures = self.table("off the hot path, ns per event", figures);
        for figure in figures.iter().filter(|figure| figure.name.starts_with("Perfetto encoding")) {
            println!("{}: {}", figure.name, verdict(figure.median <= 150.0, "150"));
        }
    }

    fn row(&mut self, table: &str, figure: &Figure, who: &str, published: Option<f64>) {
        let published = published.map_or_else(|| "null".to_owned(), |ns| ns.to_string());
        let case = figure.name.split(" · ").next().unwrap_or(figure.name);
        self.rows.push(format!(
            "{{\"table\":\"{table}\",\"case\":\"{case}\",\"who\":\"{who}\",\"metric\":\"time\",\"value\":{:.3},\
             \"unit\":\"ns\",\"low\":{:.3},\"high\":{:.3},\"published\":{published}}}",
            figure.median, figure.low, figure.high
        ));
    }

    fn json(&self) -> String {
        format!("{{\"schema\":1,\"rows\":[\n{}\n]}}\n", self.rows.join(",\n"))
    }
}

fn verdict(kept: bool, allowed: &str) -> String {
    format!("{allowed} {}", if kept { "kept" } else { "MISSED" })
}
