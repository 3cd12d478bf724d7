//! What `tracing`'s macros emit, through the subscriber and through the layer, is what the file holds.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the run")]
#![cfg(feature = "layer")]

mod support;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use support::{judged, scratch, text, turn};
use towpath_trace::file::{FileValue, spans};
use towpath_trace::{
    Capture, Category, Level, Options, PlaceView, TraceLayer, TraceSubscriber, Value,
};
use tracing::{Instrument, info, info_span};
use tracing_subscriber::prelude::*;

/// Does `work` under the subscriber and under the layer, recording all the while.
fn each_way(work: fn()) -> [Capture; 2] {
    each_way_with(&Options::new(), work)
}

fn each_way_with(options: &Options, work: fn()) -> [Capture; 2] {
    let start = || options.clone().level(Level::Trace).start().unwrap();
    let recording = start();
    tracing::subscriber::with_default(TraceSubscriber::new(Category::APP), work);
    let direct = recording.stop();
    let recording = start();
    tracing::subscriber::with_default(
        tracing_subscriber::registry().with(TraceLayer::new(Category::APP)),
        work,
    );
    [direct, recording.stop()]
}

fn names(capture: &Capture) -> Vec<&str> {
    capture.spans().iter().map(|span| span.name).collect()
}

#[test]
fn spans_events_and_fields() {
    let _turn = turn();
    for (index, capture) in each_way(|| {
        let outer =
            info_span!("outer", bytes = 7, host = "example.org", learned = tracing::field::Empty);
        let _entered = outer.enter();
        info_span!("inner", many = 3u64, flag = true).in_scope(|| {
            for round in 0..3 {
                info!(round, "the same each time");
                info!("number {round}");
            }
            tracing::trace!(debug = ?vec![1, 2], "with a list");
        });
        outer.record("learned", 5);
    })
    .iter()
    .enumerate()
    {
        let spans = capture.spans();
        assert_eq!(names(capture), ["outer", "inner"]);
        let (seven, host) = (("bytes", Value::Signed(7)), ("host", Value::Text("example.org")));
        assert_eq!(spans[0].values[..2], [seven, host]);
        assert!(spans[0].values.contains(&("learned", Value::Signed(5))));
        assert_eq!(spans[1].values, [("many", Value::Unsigned(3)), ("flag", Value::Bool(true))]);
        assert_eq!((spans[0].depth, spans[1].depth), (0, 1));
        let marks = capture.marks();
        let list = marks.iter().find(|mark| mark.name == "with a list").unwrap();
        assert_eq!((list.level, list.target), (Some(Level::Trace), "facade"));
        assert!(list.location.unwrap().0.ends_with("facade.rs"));
        let Some(judge) = judged(capture, &format!("facade-{index}.pftrace")) else { return };
        let answers = judge.clean(&[
            "select name, count(*) from slice where dur = 0 and category glob 'app,*' group by name order by name",
            "select s.name, key, display_value from slice s join args using (arg_set_id)
             where s.name in ('with a list', 'outer') and key like 'debug.%' order by ts, key",
            "select distinct s.name, category, key from slice s left join args on s.arg_set_id = args.arg_set_id
             and key glob 'source*file*' and display_value glob '*facade.rs'
             where s.name in ('with a list', 'outer', 'number 1') order by s.name",
        ]);
        // Told by their own name or by another, places keep level, target and source.
        let file = text(&answers[2])[0][2];
        assert_eq!(
            text(&answers[2]),
            [
                ["number 1", "app,facade,info", file],
                ["outer", "app,facade,info", file],
                ["with a list", "app,facade,trace", file],
            ]
        );
        assert_ne!(file, "null");
        let marks = [
            ["number 0", "1"],
            ["number 1", "1"],
            ["number 2", "1"],
            ["the same each time", "3"],
            ["with a list", "1"],
        ];
        assert_eq!(text(&answers[0]), marks);
        let values = [
            ["outer", "debug.bytes", "7"],
            ["outer", "debug.host", "example.org"],
            ["outer", "debug.learned", "5"],
            ["with a list", "debug.debug", "[1, 2]"],
        ];
        assert_eq!(text(&answers[1]), values);
    }
}

/// Pending so many times.
struct Rounds(u32);

impl Future for Rounds {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        self.0 = match self.0.checked_sub(1) {
            Some(left) => left,
            None => return Poll::Ready(()),
        };
        Poll::Pending
    }
}

fn poll_on_a_thread<F: Future<Output = ()> + Send + Unpin + 'static>(mut task: F) -> (F, bool) {
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let poll = move || {
        let done = tracing::dispatcher::with_default(&dispatch, || {
            Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        });
        (task, done)
    };
    std::thread::spawn(poll).join().unwrap()
}

#[test]
fn an_asynchronous_span_lives_once_and_is_polled_often() {
    let _turn = turn();
    for (index, capture) in each_way(|| {
        for _ in 0..2 {
            let mut task = Box::pin(Rounds(4).instrument(info_span!("task", id = 9)));
            loop {
                let (back, done) = poll_on_a_thread(task);
                if done {
                    break;
                }
                task = back;
            }
        }
    })
    .iter()
    .enumerate()
    {
        let spans = capture.spans();
        let lifetimes: Vec<_> =
            spans.iter().filter(|span| matches!(span.place, PlaceView::Track(_))).collect();
        let polls: Vec<_> =
            spans.iter().filter(|span| matches!(span.place, PlaceView::Thread(_))).collect();
        assert_eq!(lifetimes.len(), 2, "{spans:?}");
        // Each poll is one slice; dropping the future enters the span once more.
        assert!(polls.len() >= 10, "{}", polls.len());
        assert_ne!(lifetimes[0].place, lifetimes[1].place);
        assert!(spans.iter().all(|span| span.name == "task" && !span.unfinished));
        assert!(lifetimes.iter().all(|span| span.values.contains(&("id", Value::Signed(9)))));
        let last = lifetimes.iter().map(|span| span.end_ns).max().unwrap();
        assert!(polls.iter().all(|poll| poll.end_ns <= last));
        let Some(judge) = judged(capture, &format!("polls-{index}.pftrace")) else { return };
        let answers = judge.clean(&["select count(*) > 0 from flow"]);
        assert_eq!(text(&answers[0]), [["1"]], "polls are joined to the lifetime");
    }
}

#[test]
fn switching_never_panics_and_leaves_no_halves() {
    let _turn = turn();
    let work = || {
        let made_off = info_span!("made off", bytes = 1, host = "a");
        let recording = Options::new().start().unwrap();
        let made_on = info_span!("made on", bytes = 2, host = "b");
        let in_off = made_off.enter();
        made_off.record("bytes", 3);
        let in_on = made_on.enter();
        recording.set_categories(Category::NONE, Level::Error);
        drop(in_on);
        drop(in_off);
        let left_open = made_on.enter();
        recording.set_categories(Category::ALL, Level::Trace);
        drop(left_open);
        info_span!("again").in_scope(|| info!("event"));
        let capture = recording.stop();
        info_span!("after").in_scope(|| info!("event"));
        assert_eq!(capture.account().unfinished, 0);
        assert!(names(&capture).contains(&"made on") && names(&capture).contains(&"again"));
        judged(&capture, "switched.pftrace").map(|judge| judge.clean(&[]));
    };
    tracing::subscriber::with_default(TraceSubscriber::new(Category::APP), work);
    tracing::subscriber::with_default(
        tracing_subscriber::registry().with(TraceLayer::new(Category::APP)),
        work,
    );
    let filtered =
        tracing_subscriber::registry().with(TraceLayer::new(Category::APP).with_filter_for_all());
    tracing::subscriber::with_default(filtered, work);
}

#[test]
fn a_filter_hides_what_is_off_from_all_layers_and_its_absence_does_not() {
    struct Counting(&'static std::sync::atomic::AtomicUsize);
    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Counting {
        fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    static SEEN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let seen = || SEEN.swap(0, std::sync::atomic::Ordering::Relaxed);
    let _turn = turn();
    let open = tracing_subscriber::registry().with(TraceLayer::default()).with(Counting(&SEEN));
    tracing::subscriber::with_default(open, || info!("off"));
    assert_eq!(seen(), 1);
    let filtered = tracing_subscriber::registry()
        .with(TraceLayer::default().with_filter_for_all())
        .with(Counting(&SEEN));
    tracing::subscriber::with_default(filtered, || {
        // One place, asked again when the gate changes.
        let emit = || info!("filtered");
        emit();
        assert_eq!(seen(), 0);
        let recording = Options::new().start().unwrap();
        emit();
        assert_eq!(seen(), 1);
        drop(recording);
        emit();
        assert_eq!(seen(), 0);
    });
}

#[test]
fn names_alone_without_fields() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    tracing::subscriber::with_default(TraceSubscriber::default().without_fields(), || {
        let span = info_span!("span", bytes = 7, text = "t");
        span.record("bytes", 8);
        span.in_scope(|| info!(key = 3, "message"));
    });
    let capture = recording.stop();
    assert_eq!(capture.spans()[0].values, []);
    assert_eq!(capture.marks()[0].name, "message");
    assert_eq!(capture.marks()[0].values, []);
}

#[test]
fn categories_by_target_and_levels() {
    let _turn = turn();
    let recording =
        Options::new().categories(Category::NETWORK).level(Level::Info).start().unwrap();
    let subscriber = TraceSubscriber::new(Category::APP).with_categories(|metadata| {
        if metadata.target().starts_with("h2") { Category::NETWORK } else { Category::NONE }
    });
    tracing::subscriber::with_default(subscriber, || {
        info!(target: "h2::frame", "wanted");
        info!("of the app");
        tracing::debug!(target: "h2::frame", "too fine");
    });
    let capture = recording.stop();
    assert_eq!(capture.marks().iter().map(|mark| mark.name).collect::<Vec<_>>(), ["wanted"]);
}

#[test]
fn the_current_span_is_known() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    tracing::subscriber::with_default(TraceSubscriber::default(), || {
        let outer = info_span!("outer");
        let _entered = outer.enter();
        assert_eq!(tracing::Span::current().id(), outer.id());
        assert_eq!(tracing::Span::current().metadata().unwrap().name(), "outer");
        let clones: Vec<_> = (0..100).map(|_| outer.clone()).collect();
        drop(clones);
        let inner = info_span!("inner");
        inner.follows_from(&outer);
        drop(inner);
    });
    assert!(tracing::Span::current().is_none());
    let capture = recording.stop();
    let Some(judge) = judged(&capture, "follows.pftrace") else { return };
    let answers = judge
        .clean(&["select o.name, i.name from flow f join slice o on f.slice_out = o.id
                                 join slice i on f.slice_in = i.id"]);
    assert_eq!(text(&answers[0]), [["led to", "follows from"]]);
}

#[test]
fn many_spans_on_many_threads() {
    let _turn = turn();
    let recording = Options::new().ring_bytes(8 << 20).start().unwrap();
    let dispatch = tracing::Dispatch::new(TraceSubscriber::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || {
                    for index in 0..20_000u64 {
                        let span = info_span!("span", index);
                        let other = span.clone();
                        span.in_scope(|| ());
                        drop(span);
                        drop(other);
                    }
                });
            });
        }
    });
    let capture = recording.stop();
    assert_eq!(capture.account().missing(), 0);
    assert_eq!(capture.spans().len(), 80_000);
}

#[test]
fn deeper_than_is_kept_is_left_out_whole() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    tracing::subscriber::with_default(TraceSubscriber::default(), || {
        let spans: Vec<_> =
            (0..300).map(|index: u64| info_span!("deep", index).entered()).collect();
        spans.into_iter().rev().for_each(drop);
        info_span!("after").in_scope(|| ());
    });
    let capture = recording.stop();
    assert!(capture.spans().iter().all(|span| !span.unfinished));
    assert!(names(&capture).contains(&"after"));
    judged(&capture, "deep.pftrace").map(|judge| judge.clean(&[]));
}

#[test]
fn what_is_recorded_later_stands_on_the_lifetime() {
    let _turn = turn();
    for capture in each_way(|| {
        for status in [200u64, 404] {
            let span = info_span!("request", path = "/", status = tracing::field::Empty);
            let mut task = Box::pin(Rounds(2).instrument(span.clone()));
            loop {
                let (back, done) = poll_on_a_thread(task);
                if done {
                    break;
                }
                task = back;
            }
            span.record("status", status);
        }
        // One that is entered once has no lifetime, unless something is learned behind its end.
        let once = info_span!("once", late = tracing::field::Empty);
        once.in_scope(|| ());
        once.record("late", "text");
        info_span!("never learns", late = tracing::field::Empty).in_scope(|| ());
    }) {
        let spans = capture.spans();
        let lifetimes = |name: &str| -> Vec<Vec<(&str, Value<'_>)>> {
            let on_tracks = spans.iter().filter(|span| matches!(span.place, PlaceView::Track(_)));
            on_tracks.filter(|span| span.name == name).map(|span| span.values.clone()).collect()
        };
        let requests = lifetimes("request");
        assert_eq!(requests.len(), 2, "{spans:?}");
        for (values, status) in requests.iter().zip([200, 404]) {
            assert!(values.contains(&("status", Value::Unsigned(status))), "{values:?}");
            assert!(values.contains(&("path", Value::Text("/"))), "{values:?}");
        }
        assert!(lifetimes("once")[0].contains(&("late", Value::Text("text"))));
        assert_eq!(lifetimes("never learns").len(), 0);
    }
}

#[test]
fn spans_nest_as_deep_as_they_like() {
    let _turn = turn();
    for capture in each_way(|| {
        let mut nested: Vec<_> =
            (0..300u64).map(|depth| info_span!("deep", depth).entered()).collect();
        info!("at the bottom");
        while let Some(innermost) = nested.pop() {
            drop(innermost);
        }
        let mut crossed: Vec<_> = (0..300).map(|_| info_span!("crossed").entered()).collect();
        // The one that lies lowest in the list of those further in, and one of those before it.
        drop(crossed.remove(256));
        drop(crossed.remove(3));
        drop(crossed);
        info_span!("after").in_scope(|| ());
    }) {
        let spans = capture.spans();
        let depths: Vec<usize> =
            spans.iter().filter(|span| span.name == "deep").map(|span| span.depth).collect();
        assert_eq!(depths, (0..300).collect::<Vec<_>>());
        assert_eq!(spans.iter().filter(|span| span.name == "crossed").count(), 300);
        let account = capture.account();
        assert_eq!((account.missing(), account.beginless, account.unfinished), (0, 0, 0));
        assert!(spans.iter().any(|span| span.name == "after" && span.depth == 0));
    }
}

#[test]
fn more_spans_live_at_once_than_the_program_has_slots() {
    let _turn = turn();
    let held = 150_000;
    let options = Options::new().ring_bytes(64 << 20);
    for capture in each_way_with(&options, || {
        let spans: Vec<_> = (0..150_000u64).map(|id| info_span!("connection", id)).collect();
        for id in 0..1_000u64 {
            info_span!("request", id).in_scope(|| ());
        }
        spans[149_999].in_scope(|| ());
        drop(spans);
    }) {
        let spans = capture.spans();
        let count = |name: &str, is_poll: bool| {
            let is_such = |place| matches!(place, PlaceView::Thread(_)) == is_poll;
            spans.iter().filter(|span| span.name == name && is_such(span.place)).count() as u64
        };
        let account = capture.account();
        let polled = (count("request", true), count("connection", true));
        assert_eq!((polled, account.missing()), ((1_000, 1), 0), "{held} held");
        assert!(count("connection", false) >= held - 1, "the others were never entered");
        assert_eq!((account.beginless, account.unfinished), (0, 0));
    }
}

mod library {
    pub(super) fn work() {
        tracing::debug_span!("of a library").in_scope(|| tracing::trace!("detail"));
    }
}

#[test]
fn targets_have_levels_of_their_own() {
    let _turn = turn();
    for (directives, wanted, marks) in [
        ("info,facade::library=debug", &["own", "of a library"][..], 0),
        ("facade::library=trace", &["of a library"], 1),
        ("debug,facade::library=off", &["own", "debug"], 0),
        ("off", &[], 0),
    ] {
        let work = || {
            info_span!("own").in_scope(library::work);
            tracing::debug_span!("debug").in_scope(|| ());
        };
        let layer = tracing_subscriber::registry().with(TraceLayer::new(Category::APP));
        let direct = tracing::Dispatch::new(TraceSubscriber::new(Category::APP));
        for dispatch in [direct, tracing::Dispatch::new(layer)] {
            let recording = Options::new().directives(directives).unwrap().start().unwrap();
            tracing::dispatcher::with_default(&dispatch, work);
            let capture = recording.stop();
            assert_eq!(names(&capture), wanted, "{directives}");
            assert_eq!(capture.marks().len(), marks, "{directives}");
            // A new recording has its own answers.
            let recording = Options::new().start().unwrap();
            tracing::dispatcher::with_default(&dispatch, work);
            assert_eq!(names(&recording.stop()), ["own"]);
        }
    }
}

#[test]
fn a_filter_for_the_layer_alone_is_that_of_tracing_subscriber() {
    let _turn = turn();
    let filter = tracing_subscriber::filter::Targets::new()
        .with_default(tracing::Level::TRACE)
        .with_target("facade::library", tracing::Level::ERROR);
    let registry =
        tracing_subscriber::registry().with(TraceLayer::new(Category::APP).with_filter(filter));
    let recording = Options::new().level(Level::Trace).start().unwrap();
    tracing::subscriber::with_default(registry, || info_span!("own").in_scope(library::work));
    assert_eq!(names(&recording.stop()), ["own"]);
}

/// Says how often it was formatted.
struct Counted<'a>(&'a std::cell::Cell<u32>);

impl std::fmt::Debug for Counted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.set(self.0.get() + 1);
        f.write_str("counted")
    }
}

#[test]
fn nothing_is_formatted_while_nothing_is_recorded() {
    let _turn = turn();
    let formatted = std::cell::Cell::new(0);
    let work = || {
        let span = info_span!("span", value = ?Counted(&formatted), late = tracing::field::Empty);
        span.in_scope(|| info!(value = ?Counted(&formatted), "event"));
        span.record("late", tracing::field::debug(Counted(&formatted)));
    };
    let layer = || tracing_subscriber::registry().with(TraceLayer::new(Category::APP));
    tracing::subscriber::with_default(layer(), work);
    assert_eq!(formatted.take(), 0);
    let recording = Options::new().categories(Category::NETWORK).start().unwrap();
    tracing::subscriber::with_default(layer(), work);
    assert_eq!((formatted.take(), recording.stop().spans().len()), (0, 0));
    let recording = Options::new().start().unwrap();
    tracing::subscriber::with_default(layer(), work);
    assert_eq!(formatted.take(), 3);
    drop(recording);
}

#[test]
fn the_attribute_of_tracing_makes_spans() {
    #[tracing::instrument(fields(answer = tracing::field::Empty), ret)]
    fn multiplied(by: u64) -> u64 {
        tracing::Span::current().record("answer", by * 6);
        by * 6
    }
    let _turn = turn();
    for capture in each_way(|| {
        multiplied(7);
    }) {
        let spans = capture.spans();
        assert_eq!(spans[0].name, "multiplied");
        assert!(spans[0].values.contains(&("by", Value::Unsigned(7))), "{spans:?}");
        assert!(spans[0].values.contains(&("answer", Value::Unsigned(42))), "{spans:?}");
    }
}

#[test]
fn what_is_recorded_after_the_only_poll_is_of_the_span_that_a_file_holds() {
    let _turn = turn();
    for (index, capture) in each_way(|| {
        let _request = towpath_trace::span!(Category::REQUEST, "request");
        let answer = info_span!("answer", status = tracing::field::Empty);
        answer.in_scope(|| info_span!("inside").in_scope(|| ()));
        answer.record("status", 503);
        drop(answer);
        let twice = info_span!("twice");
        twice.in_scope(|| ());
        twice.in_scope(|| info_span!("inside").in_scope(|| ()));
    })
    .iter()
    .enumerate()
    {
        let path = scratch(&format!("only-poll-{index}.pftrace"));
        capture.write_perfetto(&mut std::fs::File::create(&path).unwrap()).unwrap();
        let spans: Vec<_> = spans(&path).unwrap().iter().unwrap().map(Result::unwrap).collect();
        let tree: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.parent)).collect();
        let expected = [
            ("request", None),
            ("answer", Some(0)),
            ("inside", Some(1)),
            ("twice", Some(0)),
            ("inside", Some(3)),
        ];
        assert_eq!(tree, expected);
        assert_eq!(spans[1].value("status"), Some(&FileValue::Integer(503)));
        assert!(spans.iter().all(|span| !span.unfinished));
    }
}

#[test]
fn what_is_never_entered_is_a_lifetime() {
    let _turn = turn();
    for (index, capture) in each_way(|| {
        let held = info_span!("held", id = 7, late = tracing::field::Empty);
        held.record("late", "text");
        let connection = info_span!("connection", peer = "10.0.0.1");
        info_span!(parent: &connection, "request").in_scope(|| ());
        std::thread::spawn(move || drop(connection)).join().unwrap();
        drop(info_span!("idle"));
        // Alive when the recording ends, and dropped when it is over.
        LEFT.with(|left| left.replace(Some(held)));
    })
    .iter()
    .enumerate()
    {
        let spans = capture.spans();
        let find = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
        let (held, connection) = (find("held"), find("connection"));
        assert_eq!(held.values, [("id", Value::Signed(7)), ("late", Value::Text("text"))]);
        assert!(held.unfinished && !connection.unfinished && !find("idle").unfinished);
        assert!(connection.values.contains(&("peer", Value::Text("10.0.0.1"))));
        assert!(matches!(connection.place, PlaceView::Track(_)));
        let request = find("request");
        assert!(connection.begin_ns <= request.begin_ns && request.end_ns <= connection.end_ns);
        assert!(held.begin_ns <= connection.begin_ns && connection.end_ns <= held.end_ns);
        let account = capture.account();
        assert_eq!((spans.len(), account.missing(), account.unfinished), (4, 0, 1), "{spans:?}");
        let Some(judge) = judged(capture, &format!("idle-{index}.pftrace")) else { return };
        let answers = judge
            .clean(&["select name, dur >= 0 from slice where category glob 'app,*' order by name"]);
        let names = ["connection", "held", "idle", "request"];
        assert_eq!(text(&answers[0]), names.map(|name| [name, "1"]));
    }
    // Nor is one of them of the recording after.
    let recording = Options::new().start().unwrap();
    LEFT.with(|left| left.replace(None));
    let capture = recording.stop();
    assert_eq!((capture.spans(), capture.account().missing()), (Vec::new(), 0));
}

thread_local! {
    static LEFT: std::cell::RefCell<Option<tracing::Span>> = const { std::cell::RefCell::new(None) };
}

#[test]
fn what_is_never_entered_where_others_are_is_counted_once_and_kept_from_then_on() {
    let _turn = turn();
    let make = || info_span!("sometimes entered", number = 1);
    for (capture, counted) in each_way(|| {
        let make = || info_span!("sometimes entered", number = 1);
        for _ in 0..3 {
            make().in_scope(|| ());
        }
        drop(make());
        drop(make());
        make().in_scope(|| ());
    })
    .iter()
    .zip([1, 0])
    {
        let lifetimes = capture.spans();
        let lifetimes = lifetimes.iter().filter(|span| matches!(span.place, PlaceView::Track(_)));
        assert!(lifetimes.count() >= 2);
        assert_eq!((capture.account().unentered, capture.account().missing()), (counted, counted));
    }
    // One that is still alive when the recording ends is counted as well.
    let recording = Options::new().start().unwrap();
    let left = tracing::subscriber::with_default(TraceSubscriber::default(), || {
        let make = || info_span!("entered at first");
        make().in_scope(|| ());
        (make(), make())
    });
    assert_eq!(recording.stop().account().unentered, 2);
    drop((left, make()));
}

#[test]
fn what_is_never_entered_and_finds_no_room_is_lost_once() {
    let _turn = turn();
    let recording = Options::new().ring_bytes(64 << 10).start().unwrap();
    tracing::subscriber::with_default(TraceSubscriber::default(), || {
        let spans: Vec<_> = (0..5_000u64).map(|id| info_span!("never", id)).collect();
        drop(spans);
    });
    let capture = recording.stop();
    let account = capture.account();
    assert!(account.lost > 1_000);
    // Of the last that is there the end may have found no room.
    let unfinished = account.unfinished;
    assert!(unfinished <= 1 && account.beginless == 0, "{account:?}");
    assert_eq!(capture.spans().len() as u64 + account.lost, 5_000 + unfinished);
}

#[test]
fn a_file_holds_what_is_never_entered_and_says_what_it_does_not() {
    let _turn = turn();
    let path = scratch("unentered.pftrace");
    let recording = Options::new().start_file(&path).unwrap();
    let left = tracing::subscriber::with_default(TraceSubscriber::default(), || {
        let make = || info_span!("entered but once");
        make().in_scope(|| ());
        (info_span!("left", id = 1), make())
    });
    let account = recording.finish().unwrap();
    assert_eq!((account.unentered, account.unfinished), (1, 1));
    let stat = towpath_trace::file::stat(&[&path]).unwrap();
    assert_eq!(stat.lost, 1);
    let names: Vec<_> = stat.spans.iter().map(|span| span.name.as_str()).collect();
    assert!(names.contains(&"left"), "{names:?}");
    drop(left);
}
