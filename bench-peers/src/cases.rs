//! The cases.

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastrace::prelude::{LocalSpan, Span, SpanContext};
use towpath_trace::{Category, Level, Options, Recording, Stamp, TraceSubscriber};
use tracing_subscriber::prelude::*;

use crate::atrace_like::{AtraceLike, ON};
use crate::windows::Case;

pub(crate) const PEERS: [&str; 6] = [
    "towpath macros",
    "towpath tracing",
    "libatrace-like",
    "fastrace",
    "Tracy",
    "perfetto-recorder",
];

static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

fn off() {
    ON.store(false, Ordering::Release);
    choose(Category::NONE, Level::Error);
}

fn on() {
    ON.store(true, Ordering::Release);
    choose(Category::ALL, Level::Info);
}

fn choose(categories: Category, level: Level) {
    let mut recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    recording.get_or_insert_with(begin).set_categories(categories, level);
}

fn begin() -> Recording {
    Options::new().flight_recorder(Duration::from_secs(60)).start().expect("nothing else records")
}

fn case(name: String, prepare: fn(), work: impl FnMut(u64) + 'static) -> Case {
    Case { name: String::leak(name), prepare, work: Box::new(work), before: |_| (), after: |_| () }
}

pub(crate) fn all() -> Vec<Case> {
    let _ = tracy_client::Client::start();
    perfetto_recorder::start().expect("it is built in");
    report_nowhere();
    let mut cases = vec![
        case("empty loop".to_owned(), off, |n| (0..n).for_each(|each| _ = black_box(each))),
        case("rdtsc".to_owned(), off, |n| (0..n).for_each(|_| _ = black_box(Stamp::now()))),
        case("getppid".to_owned(), off, |n| {
            (0..n).for_each(|_| _ = black_box(rustix::process::getppid()))
        }),
    ];
    for (state, prepare) in [("off", off as fn()), ("on", on as fn())] {
        cases.extend(ours(state, prepare));
        cases.extend(facade("towpath tracing", &format!("tracing_{state}"), prepare, |work| {
            tracing::subscriber::with_default(TraceSubscriber::new(Category::APP), work);
        }));
        cases.extend(facade("libatrace-like", &format!("tracing_{state}"), prepare, |work| {
            let subscriber = tracing_subscriber::registry().with(AtraceLike { filter: false });
            tracing::subscriber::with_default(subscriber, work);
        }));
    }
    cases.extend(facade("libatrace-like", "filtered", off, |work| {
        let subscriber = tracing_subscriber::registry().with(AtraceLike { filter: true });
        tracing::subscriber::with_default(subscriber, work);
    }));
    cases.extend(facade("towpath tracing", "filtered", off, |work| {
        tracing::subscriber::with_default(TraceSubscriber::new(Category::APP), work);
    }));
    cases.extend(fastrace_cases());
    cases.extend(tracy());
    cases.extend(perfetto_recorder_cases());
    cases
}

fn halves(peer: &str, state: &str, prepare: fn(), span: fn(u64)) -> Vec<Case> {
    let cases = ["begin/10", "begin/1000", "end"];
    cases
        .map(|name| {
            case(format!("tracing_{state}_{name} · {peer}"), prepare, move |n| span(n / 2))
        })
        .into()
}

fn ours(state: &str, prepare: fn()) -> Vec<Case> {
    let peer = "towpath macros";
    let name = |what: &str| format!("tracing_{state}_{what} · {peer}");
    let span: fn(u64) = |n| {
        for each in 0..n {
            let _span = towpath_trace::span!(Category::APP, "bench info span");
            black_box(each);
        }
    };
    let list = vec![1, 2, 3, 4];
    let again = list.clone();
    let mut cases = halves(peer, state, prepare, span);
    cases.push(case(name("span"), prepare, span));
    cases.push(case(name("event"), prepare, |n| {
        for each in 0..n {
            black_box(each);
            towpath_trace::mark!(Category::APP, "bench info event");
        }
    }));
    cases.push(case(name("event_args"), prepare, move |n| {
        for _ in 0..n {
            if towpath_trace::enabled(Category::APP, Level::Info) {
                let debug = format!("{list:?}");
                towpath_trace::mark!(
                    Category::APP,
                    "bench info event",
                    a = 123,
                    b = "argument",
                    c = debug.as_str(),
                    d = "last"
                );
            }
        }
    }));
    cases.push(case(name("span_args"), prepare, move |n| {
        for _ in 0..n {
            let debug =
                towpath_trace::enabled(Category::APP, Level::Info).then(|| format!("{again:?}"));
            let _span = towpath_trace::span!(
                Category::APP,
                "bench info span",
                a = 123,
                b = "argument",
                c = debug.as_deref(),
                d = "last"
            );
        }
    }));
    cases
}

fn facade(peer: &str, state: &str, prepare: fn(), install: fn(&mut dyn FnMut())) -> Vec<Case> {
    let name = |what: &str| format!("{state}_{what} · {peer}");
    let list = vec![1, 2, 3, 4];
    let again = list.clone();
    vec![
        case(name("event"), prepare, move |n| {
            install(&mut || (0..n).for_each(|_| tracing::info!("bench info event")))
        }),
        case(name("event_args"), prepare, move |n| {
            install(&mut || {
                for _ in 0..n {
                    tracing::info!(debug_arg1 = 123, debug_arg2 = "argument", debug_arg3 = ?list,
                        debug_arg4 = "last", "bench info event");
                }
            });
        }),
        case(name("span"), prepare, move |n| {
            install(&mut || {
                (0..n).for_each(|_| drop(tracing::info_span!("bench info span").entered()))
            });
        }),
        case(name("span_args"), prepare, move |n| {
            install(&mut || {
                for _ in 0..n {
                    drop(tracing::info_span!("bench info span", debug_arg1 = 123, debug_arg2 = "argument",
                        debug_arg3 = ?again, debug_arg4 = "last").entered());
                }
            });
        }),
    ]
}

/// Spans are thrown away where they would be reported.
struct Nowhere;

impl fastrace::collector::Reporter for Nowhere {
    fn report(&mut self, _: Vec<fastrace::collector::SpanRecord>) {}
}

pub(crate) fn report_nowhere() {
    fastrace::set_reporter(Nowhere, fastrace::collector::Config::default());
}

/// A hundred spans under each root, as its own benchmark has it; without a root it is off.
fn rooted(n: u64, work: &dyn Fn()) {
    for _ in 0..n.div_ceil(100) {
        let root = Span::root("root", SpanContext::random());
        let _parent = root.set_local_parent();
        (0..100).for_each(|_| work());
    }
}

/// `n` spans with the four arguments.
pub(crate) fn fastrace_with_texts(n: u64) {
    let list = vec![1, 2, 3, 4];
    let properties = || {
        [
            ("debug_arg1", "123".to_owned()),
            ("debug_arg2", "argument".to_owned()),
            ("debug_arg3", format!("{list:?}")),
            ("debug_arg4", "last".to_owned()),
        ]
    };
    rooted(n, &|| {
        drop(black_box(
            LocalSpan::enter_with_local_parent("bench info span").with_properties(properties),
        ));
    });
}

fn fastrace_cases() -> Vec<Case> {
    let peer = "fastrace";
    let again = vec![1, 2, 3, 4];
    let span = || drop(black_box(LocalSpan::enter_with_local_parent("bench info span")));
    let args_off = move || {
        let properties = || [("debug_arg3", format!("{again:?}"))];
        drop(black_box(
            LocalSpan::enter_with_local_parent("bench info span").with_properties(properties),
        ));
    };
    let event = || LocalSpan::add_event(fastrace::Event::new("bench info event"));
    let mut cases = vec![
        case(format!("tracing_off_span · {peer}"), off, move |n| (0..n).for_each(|_| span())),
        case(format!("tracing_off_span_args · {peer}"), off, move |n| {
            (0..n).for_each(|_| args_off())
        }),
        case(format!("tracing_off_event · {peer}"), off, move |n| (0..n).for_each(|_| event())),
        case(format!("tracing_on_span · {peer}"), off, move |n| rooted(n, &span)),
        case(format!("tracing_on_span_args · {peer}"), off, fastrace_with_texts),
        case(format!("tracing_on_event · {peer}"), off, move |n| {
            rooted(n, &|| {
                let _span = LocalSpan::enter_with_local_parent("s");
                event();
            })
        }),
    ];
    for what in ["begin/10", "begin/1000", "end"] {
        cases.push(case(format!("tracing_off_{what} · {peer}"), off, move |n| {
            (0..n / 2).for_each(|_| span())
        }));
        cases
            .push(case(format!("tracing_on_{what} · {peer}"), off, move |n| rooted(n / 2, &span)));
    }
    cases
}

/// With no viewer connected; its queue grows, as its authors say, so the windows are short.
fn tracy() -> Vec<Case> {
    let peer = "Tracy";
    let span: fn(u64) =
        |n| (0..n).for_each(|_| drop(black_box(tracy_client::span!("bench info span"))));
    let mut cases = halves(peer, "on", off, span);
    cases.push(case(format!("tracing_on_span · {peer}"), off, span));
    cases.push(case(format!("tracing_on_event · {peer}"), off, |n| {
        let client = tracy_client::Client::running().expect("it was started");
        (0..n).for_each(|_| client.message("bench info event", 0));
    }));
    cases
}

fn perfetto_recorder_cases() -> Vec<Case> {
    let peer = "perfetto-recorder";
    // What it has recorded grows until it is taken.
    fn emptied(_: u64) {
        drop(perfetto_recorder::ThreadTraceData::take_current_thread());
    }
    let span: fn(u64) = |n| {
        for each in 0..n {
            perfetto_recorder::scope!("bench info span");
            black_box(each);
        }
    };
    let mut cases = halves(peer, "on", off, span);
    cases.push(case(format!("tracing_on_span · {peer}"), off, span));
    cases.push(case(format!("tracing_on_span_args · {peer}"), off, |n| {
        let list = vec![1, 2, 3, 4];
        for _ in 0..n {
            let debug = format!("{list:?}");
            perfetto_recorder::scope!(
                "bench info span",
                a = 123_u64,
                b = "argument",
                c = debug.as_str(),
                d = "last"
            );
        }
    }));
    cases.into_iter().map(|case| Case { after: emptied, ..case }).collect()
}
