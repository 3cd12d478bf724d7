//! The cases.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Barrier, Mutex, OnceLock};
use std::time::{Duration, Instant};

use towpath_trace::atrace::{self, AtraceTag};
use towpath_trace::{
    Category, Level, Options, Recording, Stamp, TraceLayer, TraceSubscriber, Track,
};
use towpath_trace::{async_span, complete, counter, mark, span};
use tracing_subscriber::prelude::*;

use super::clock::Clock;
use super::windows::{self, Case, Figure};

/// What is switched on while a case runs.
#[derive(Clone, Copy)]
pub(crate) enum State {
    Off,
    Ring,
    Markers,
}

impl State {
    pub(crate) fn function(self) -> fn() {
        match self {
            Self::Off => || set(Category::NONE, AtraceTag::Never),
            Self::Ring => || set(Category::ALL, AtraceTag::Never),
            Self::Markers => || set(Category::NONE, AtraceTag::ValidMask),
        }
    }
}

/// One recording for the whole run, a flight recorder, so that no ring is ever full.
static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

fn set(categories: Category, tags: AtraceTag) {
    let recording = RECORDING.lock().unwrap();
    recording.as_ref().unwrap().set_categories(categories, Level::Info);
    let _ = atrace::enable_tags(tags);
}

pub(crate) fn install() {
    let options = Options::new().ring_bytes(1 << 20).flight_recorder(Duration::from_secs(60));
    *RECORDING.lock().unwrap() = Some(options.start().expect("nothing else records"));
    tracing::subscriber::set_global_default(TraceSubscriber::new(AtraceTag::App))
        .expect("no other subscriber");
}

/// An ftrace instance of our own, so that no other trace is disturbed.
pub(crate) struct Marker(PathBuf);

impl Marker {
    pub(crate) fn of_our_own() -> Result<Self, String> {
        let instances = Path::new("/sys/kernel/tracing/instances");
        let folder = instances.join(format!("towpath-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let marker = folder.join("trace_marker");
        atrace::open_marker(&marker).map_err(|error| error.to_string())?;
        Ok(Self(folder))
    }

    fn file(&self) -> PathBuf {
        self.0.join("trace_marker")
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

pub(crate) fn rulers(marker: Option<&Marker>) -> Vec<Case> {
    let mut cases = vec![
        empty(),
        rdtsc(),
        case("getppid", State::Off, |n| {
            for _ in 0..n {
                black_box(rustix::process::getppid());
            }
        }),
    ];
    if let Some(marker) = marker {
        cases.extend(raw_writes(
            marker,
            ["raw write B, 10 characters", "raw write B, 1000 characters", "raw write E"],
        ));
    }
    cases
}

/// A case under its name, in the state it needs.
fn case(name: &'static str, state: State, work: impl FnMut(u64) + 'static) -> Case {
    Case { name, prepare: state.function(), work: Box::new(work), before: |_| (), after: |_| () }
}

fn empty() -> Case {
    case("empty loop", State::Off, |n| {
        for each in 0..n {
            black_box(each);
        }
    })
}

fn rdtsc() -> Case {
    case("rdtsc", State::Off, |n| {
        for _ in 0..n {
            black_box(Stamp::now());
        }
    })
}

fn raw_writes(marker: &Marker, names: [&'static str; 3]) -> Vec<Case> {
    let pid = std::process::id();
    let lines =
        [format!("B|{pid}|{}", name(10)), format!("B|{pid}|{}", name(1000)), format!("E|{pid}")];
    let write = |(name, line): (&'static str, String)| {
        let mut file =
            OpenOptions::new().write(true).open(marker.file()).expect("it was opened before");
        case(name, State::Off, move |n| {
            for _ in 0..n {
                let _ = black_box(file.write(black_box(line.as_bytes())));
            }
        })
    };
    names.into_iter().zip(lines).map(write).collect()
}

pub(crate) fn own() -> Vec<Case> {
    let track = Track::new(7);
    vec![
        empty(),
        rdtsc(),
        case("macro off, event", State::Off, |n| {
            for each in 0..n {
                black_box(each);
                mark!(Category::NETWORK, "event");
            }
        }),
        case("macro off, span", State::Off, |n| {
            for each in 0..n {
                let _span = span!(Category::NETWORK, "span");
                black_box(each);
            }
        }),
        case("macro on, event", State::Ring, |n| {
            for each in 0..n {
                black_box(each);
                mark!(Category::NETWORK, "event");
            }
        }),
        case("macro on, event with two integers", State::Ring, |n| {
            for each in 0..n {
                mark!(Category::NETWORK, "event", bytes = each, many = 7u64);
            }
        }),
        case("macro on, event with a text", State::Ring, |n| {
            for each in 0..n {
                black_box(each);
                mark!(Category::NETWORK, "event", peer = "10.0.0.1:8080");
            }
        }),
        case("macro on, span", State::Ring, |n| {
            for each in 0..n {
                let _span = span!(Category::NETWORK, "span");
                black_box(each);
            }
        }),
        case("macro on, span with two integers", State::Ring, |n| {
            for each in 0..n {
                let _span = span!(Category::NETWORK, "span", bytes = each, many = 7u64);
                black_box(each);
            }
        }),
        case("macro on, counter", State::Ring, |n| {
            for each in 0..n {
                counter!(Category::NETWORK, "counter", each);
            }
        }),
        case("macro on, async span", State::Ring, move |n| {
            for each in 0..n {
                let _span = async_span!(Category::NETWORK, "span", track);
                black_box(each);
            }
        }),
        case("macro on, complete span (stamps known)", State::Ring, move |n| {
            let (from, until) = (Stamp::now(), Stamp::now());
            for each in 0..n {
                black_box(each);
                complete!(Category::NETWORK, "span", track, from, until);
            }
        }),
        case("tracing off, event", State::Off, |n| {
            for each in 0..n {
                black_box(each);
                tracing::info!("event");
            }
        }),
        case("tracing off, span", State::Off, |n| {
            for each in 0..n {
                let _span = tracing::info_span!("span").entered();
                black_box(each);
            }
        }),
        case("tracing on, event", State::Ring, |n| {
            for each in 0..n {
                black_box(each);
                tracing::info!("event");
            }
        }),
        case("tracing on, event with two integers", State::Ring, |n| {
            for each in 0..n {
                tracing::info!(bytes = each, many = 7, "event");
            }
        }),
        case("tracing on, span", State::Ring, |n| {
            for each in 0..n {
                let _span = tracing::info_span!("span").entered();
                black_box(each);
            }
        }),
        case("tracing on, span with two integers", State::Ring, |n| {
            for each in 0..n {
                let _span = tracing::info_span!("span", bytes = each, many = 7).entered();
                black_box(each);
            }
        }),
    ]
}

/// What no subscriber can go below: one that does nothing but read the clock when a span is entered and left. There is
/// one global subscriber in a process, so this runs in one of its own.
pub(crate) fn facade_floor() -> Vec<Case> {
    let options = Options::new().flight_recorder(Duration::from_secs(60));
    *RECORDING.lock().unwrap() = Some(options.start().expect("nothing else records"));
    tracing::subscriber::set_global_default(Clock).expect("no other subscriber");
    vec![
        rdtsc(),
        case("tracing's own part of a span, and two clock reads", State::Off, |n| {
            for each in 0..n {
                let _span = tracing::info_span!("span").entered();
                black_box(each);
            }
        }),
        case("the same with two integers, looked at", State::Off, |n| {
            for each in 0..n {
                let _span = tracing::info_span!("span", bytes = each, many = 7).entered();
                black_box(each);
            }
        }),
        case("tracing's own part of a span that is off", State::Off, |n| {
            for each in 0..n {
                let _span = tracing::debug_span!("span").entered();
                black_box(each);
            }
        }),
    ]
}

fn name(length: usize) -> String {
    "a".repeat(length)
}

fn kept(text: &str) -> &'static str {
    static KEPT: OnceLock<Mutex<Vec<&'static str>>> = OnceLock::new();
    let mut kept = KEPT.get_or_init(Default::default).lock().unwrap();
    if let Some(known) = kept.iter().find(|known| **known == text) {
        return known;
    }
    let leaked: &'static str = String::leak(text.to_owned());
    kept.push(leaked);
    leaked
}

/// The original's cases on each of our paths: `NAME · ATrace` writes markers, `NAME · ring` records through a global
/// subscriber (or an own macro, for the wrapper's cases), `NAME · layer` has a `Registry` with our layer installed for
/// the thread alone, as the original's benchmark does.
pub(crate) fn original(marker: Option<&Marker>) -> Vec<Case> {
    let mut cases = wrapper("ATrace", "off", State::Off);
    cases.extend(ring_wrapper("off", State::Off));
    cases.extend(facade("ring", "tracing_off", State::Off, global));
    cases.extend(facade("ring", "filtered", State::Off, global));
    cases.extend(facade("layer", "tracing_off", State::Off, scoped_layer));
    cases.extend(facade("layer", "filtered", State::Off, filtered_layer));
    cases.extend(facade("ATrace", "tracing_off", State::Off, global));
    cases.extend(facade("ATrace", "filtered", State::Off, global));
    cases.extend(ring_wrapper("on", State::Ring));
    cases.extend(facade("ring", "tracing_on", State::Ring, global));
    cases.extend(facade("layer", "tracing_on", State::Ring, scoped_layer));
    if let Some(marker) = marker {
        cases.extend(wrapper("ATrace", "on", State::Markers));
        cases.extend(facade("ATrace", "tracing_on", State::Markers, global));
        cases.push(
            raw_writes(marker, [kept("raw write B, 10 characters · ruler"), "", ""]).swap_remove(0),
        );
    }
    cases
}

/// `atrace_begin` and `atrace_end`, each alone as in the original; the other half is not timed.
fn wrapper(path: &str, state: &str, on: State) -> Vec<Case> {
    let begin = |length: usize| {
        let text = name(length);
        let work = move |n| {
            for _ in 0..n {
                atrace::atrace_begin(AtraceTag::App, black_box(&text));
            }
        };
        Case {
            after: end_all,
            ..case(kept(&format!("tracing_{state}_begin/{length} · {path}")), on, work)
        }
    };
    let end = Case {
        before: |n| (0..n).for_each(|_| atrace::atrace_begin(AtraceTag::App, "a")),
        ..case(kept(&format!("tracing_{state}_end · {path}")), on, end_all)
    };
    vec![begin(10), begin(1000), end]
}

fn end_all(n: u64) {
    for _ in 0..n {
        atrace::atrace_end(black_box(AtraceTag::App));
    }
}

/// The same through own macros. A begin and an end cannot be had apart there, as a span ends when it is dropped: half a
/// span each.
fn ring_wrapper(state: &str, on: State) -> Vec<Case> {
    macro_rules! halves {
        ($case:literal, $name:expr) => {
            case(kept(&format!("tracing_{state}_{} · ring", $case)), on, |n| {
                for each in 0..n / 2 {
                    let _span = span!(Category::APP, $name);
                    black_box(each);
                }
            })
        };
    }
    const THOUSAND: &str = match std::str::from_utf8(&[b'a'; 1000]) {
        Ok(name) => name,
        Err(_) => "",
    };
    vec![halves!("begin/10", "aaaaaaaaaa"), halves!("begin/1000", THOUSAND), halves!("end", "a")]
}

type Install = fn(&mut dyn FnMut());

fn global(work: &mut dyn FnMut()) {
    work();
}

fn scoped_layer(work: &mut dyn FnMut()) {
    let subscriber = tracing_subscriber::registry().with(TraceLayer::new(AtraceTag::App));
    tracing::subscriber::with_default(subscriber, work);
}

fn filtered_layer(work: &mut dyn FnMut()) {
    let subscriber =
        tracing_subscriber::registry().with(TraceLayer::new(AtraceTag::App).with_filter_for_all());
    tracing::subscriber::with_default(subscriber, work);
}

fn facade(path: &str, state: &str, on: State, install: Install) -> Vec<Case> {
    let list = || vec![1, 2, 3, 4];
    let named = |what: &str| kept(&format!("{state}_{what} · {path}"));
    let event = case(named("event"), on, move |n| {
        install(&mut || {
            for _ in 0..n {
                tracing::info!("bench info event");
            }
        });
    });
    let v = list();
    let event_args = case(named("event_args"), on, move |n| {
        install(&mut || {
            for _ in 0..n {
                tracing::info!(debug_arg1 = 123, debug_arg2 = "argument", debug_arg3 = ?v, debug_arg4 = "last", "bench \
                    info event");
            }
        });
    });
    let span = case(named("span"), on, move |n| {
        install(&mut || {
            for _ in 0..n {
                let _entered = tracing::info_span!("bench info span").entered();
            }
        });
    });
    let v = list();
    let span_args = case(named("span_args"), on, move |n| {
        install(&mut || {
            for _ in 0..n {
                let _entered = tracing::info_span!(
                    "bench info span", debug_arg1 = 123, debug_arg2 = "argument", debug_arg3 = ?v, debug_arg4 = "last"
                )
                .entered();
            }
        });
    });
    vec![event, event_args, span, span_args]
}

/// A span on one thread, and on two at once.
pub(crate) fn two_threads(windows: usize) -> Vec<Figure> {
    const SPANS: u64 = 20_000;
    State::Ring.function()();
    let work = || {
        let begun = Instant::now();
        for each in 0..SPANS {
            let _span = span!(Category::NETWORK, "span");
            black_box(each);
        }
        begun.elapsed().as_nanos() as f64 / SPANS as f64
    };
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            windows::pin(1);
            let mut samples = Vec::new();
            for _ in 0..windows {
                barrier.wait();
                barrier.wait();
                samples.push(work());
            }
            samples
        });
        for _ in 0..windows {
            barrier.wait();
            alone.push(work());
            barrier.wait();
            together.push(work());
        }
        together.extend(other.join().unwrap());
    });
    vec![Figure::of("span, one thread", alone), Figure::of("span, two threads", together)]
}

/// Reading rings and writing files.
pub(crate) fn encoding() -> Vec<Figure> {
    *RECORDING.lock().unwrap() = None;
    let (mut drain, mut perfetto, mut chrome, mut size) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..9 {
        let recording = Options::new().ring_bytes(16 << 20).start().unwrap();
        for each in 0..60_000u64 {
            let _outer = span!(Category::NETWORK, "outer", bytes = each);
            let _inner = span!(Category::NETWORK, "inner");
            mark!(Category::NETWORK, "mark", bytes = each, many = 7u64);
            counter!(Category::NETWORK, "counter", each);
        }
        let begun = Instant::now();
        let capture = recording.stop();
        let drained = begun.elapsed();
        let events = capture.account().events as f64;
        drain.push(drained.as_nanos() as f64 / events);
        let mut file = Vec::with_capacity(64 << 20);
        let begun = Instant::now();
        capture.write_perfetto(&mut file).unwrap();
        perfetto.push(begun.elapsed().as_nanos() as f64 / events);
        size.push(file.len() as f64 / events);
        file.clear();
        let begun = Instant::now();
        capture.write_chrome(&mut file).unwrap();
        chrome.push(begun.elapsed().as_nanos() as f64 / events);
    }
    vec![
        Figure::of("reading the rings", drain),
        Figure::of("Perfetto encoding", perfetto),
        Figure::of("Chrome JSON", chrome),
        Figure::of("bytes of a Perfetto file", size),
    ]
}
