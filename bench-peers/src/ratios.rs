//! Ratios: one span of ours and one of another library, in turns.
//!
//! A program has one global subscriber, so each side is a process of its own. Both are pinned to one processor and
//! measure a window each time they are told to; a ratio is the median of those of the rounds, with its quartiles.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use towpath_trace::{Category, Options, Recording, TraceLayer, TraceSubscriber};
use tracing_subscriber::prelude::*;

use crate::atrace_like::AtraceLike;
use crate::cases::{fastrace_with_texts, report_nowhere};
use crate::clock::Clock;
use crate::windows::Figure;

/// Ours, the other side, and what the ratio may be.
struct Pair {
    name: &'static str,
    ours: [&'static str; 2],
    other: [&'static str; 2],
    allowed: f64,
}

const PAIRS: [Pair; 5] = [
    Pair {
        name: "layer off over libatrace-like layer off, two integers",
        ours: ["layer-off", "integers"],
        other: ["atrace-off", "integers"],
        allowed: 1.0,
    },
    Pair {
        name: "layer off over libatrace-like layer off, texts",
        ours: ["layer-off", "texts"],
        other: ["atrace-off", "texts"],
        allowed: 1.0,
    },
    Pair {
        name: "subscriber on over one that reads the clock, no field",
        ours: ["subscriber", "bare"],
        other: ["clock", "bare"],
        allowed: 1.6,
    },
    Pair {
        name: "subscriber on over one that reads the clock, two integers",
        ours: ["subscriber", "integers"],
        other: ["clock", "integers"],
        allowed: 1.6,
    },
    Pair {
        name: "subscriber on over fastrace, texts",
        ours: ["subscriber", "texts"],
        other: ["fastrace", "texts"],
        allowed: 1.0,
    },
];

/// All pairs, printed.
pub(crate) fn print(rounds: usize) {
    println!(
        "\n{:<58} {:>8} {:>8} {:>7} {:>7} {:>7} {:>8}",
        "one span, ns", "ours", "other", "ratio", "p25", "p75", "allowed"
    );
    for pair in &PAIRS {
        let [ours, other, ratio] = measure(pair, rounds);
        let verdict = match pair.allowed {
            allowed if ratio.median <= allowed => "kept",
            allowed if ratio.low <= allowed => "at the limit",
            _ => "MISSED",
        };
        println!(
            "{:<58} {:>8.2} {:>8.2} {:>7.3} {:>7.3} {:>7.3} {:>8.1} {verdict}",
            pair.name, ours.median, other.median, ratio.median, ratio.low, ratio.high, pair.allowed
        );
    }
}

fn measure(pair: &Pair, rounds: usize) -> [Figure; 3] {
    let (mut ours, mut other) = (Side::start(pair.ours), Side::start(pair.other));
    let samples: Vec<(f64, f64)> = (0..rounds)
        .map(|round| {
            if round % 2 == 0 {
                let first = ours.window();
                (first, other.window())
            } else {
                let first = other.window();
                (ours.window(), first)
            }
        })
        .collect();
    let figure =
        |value: fn(&(f64, f64)) -> f64| Figure::of(pair.name, samples.iter().map(value).collect());
    [figure(|it| it.0), figure(|it| it.1), figure(|it| it.0 / it.1)]
}

/// A process that measures a window for each line it is given.
struct Side {
    process: Child,
    tell: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Side {
    fn start(what: [&str; 2]) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut process = Command::new(program)
            .arg("--side")
            .args(what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be run");
        let tell = process.stdin.take().expect("it is piped");
        let told = BufReader::new(process.stdout.take().expect("it is piped"));
        Self { process, tell, told }
    }

    /// Nanoseconds of a span.
    fn window(&mut self) -> f64 {
        self.tell.write_all(b"\n").expect("the side reads");
        let mut line = String::new();
        self.told.read_line(&mut line).expect("the side answers");
        line.trim().parse().expect("the side answers with a number")
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other end of [`Side`].
pub(crate) fn serve(subscriber: &str, span: &str) {
    let (_recording, work) = install(subscriber, span);
    let mut count = 64;
    while timed(work, count) < WINDOW {
        count *= 2;
    }
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        timed(work, count / 20 + 1);
        println!("{:.3}", timed(work, count).as_nanos() as f64 / count as f64);
    }
}

/// Makes `count` spans and nothing else: the difference of two runs under a tool that counts instructions is what they
/// took.
pub(crate) fn count(subscriber: &str, span: &str, count: u64) {
    let (_recording, work) = install(subscriber, span);
    work(count);
}

const WINDOW: Duration = Duration::from_millis(1);

fn timed(work: fn(u64), count: u64) -> Duration {
    let begun = Instant::now();
    work(black_box(count));
    begun.elapsed()
}

/// The subscriber is the program's, and the recording is on unless its name says that it is off.
fn install(subscriber: &str, span: &str) -> (Option<Recording>, fn(u64)) {
    let record = || {
        let options = Options::new().flight_recorder(Duration::from_secs(60));
        Some(options.start().expect("nothing else records"))
    };
    let recording = match subscriber {
        "layer-off" => {
            tracing_subscriber::registry().with(TraceLayer::new(Category::APP)).init();
            None
        }
        "atrace-off" => {
            tracing_subscriber::registry().with(AtraceLike { filter: false }).init();
            None
        }
        "subscriber" => {
            let ours = TraceSubscriber::new(Category::APP);
            tracing::subscriber::set_global_default(ours).expect("there is none yet");
            record()
        }
        "clock" => {
            let recording = record();
            tracing::subscriber::set_global_default(Clock).expect("there is none yet");
            recording
        }
        "fastrace" => {
            report_nowhere();
            return (None, fastrace_with_texts);
        }
        unknown => panic!("no subscriber is called {unknown}"),
    };
    (recording, span_of(span))
}

fn span_of(name: &str) -> fn(u64) {
    match name {
        "bare" => |n| {
            for each in 0..n {
                let _span = tracing::info_span!("span").entered();
                black_box(each);
            }
        },
        "integers" => |n| {
            for each in 0..n {
                let _span = tracing::info_span!("span", bytes = each, many = 7).entered();
                black_box(each);
            }
        },
        "texts" => |n| {
            let list = vec![1, 2, 3, 4];
            for _ in 0..n {
                let _span = tracing::info_span!(
                    "bench info span",
                    debug_arg1 = 123,
                    debug_arg2 = "argument",
                    debug_arg3 = ?list,
                    debug_arg4 = "last"
                )
                .entered();
            }
        },
        unknown => panic!("no span is called {unknown}"),
    }
}
