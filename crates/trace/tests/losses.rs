//! What does not fit, is cut off or is switched off in the middle leaves a file that is whole and says so.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the run")]

mod support;

use std::time::Duration;

use support::{judged, text, turn};
use towpath_trace::{AsyncSpan, Capture, Category, Level, Options, PlaceView, Span, Track, Value};
use towpath_trace::{async_span, counter, mark, span};

/// Every span has a begin and an end that were emitted, and spans nest.
fn whole(capture: &Capture, name: &str) -> usize {
    let spans = capture.spans();
    assert!(spans.iter().all(|span| span.begin_ns <= span.end_ns));
    if let Some(judge) = judged(capture, name) {
        let answers = judge.clean(&[
            "select count(*), coalesce(sum(dur = -1), 0) from slice
             where category is not 'towpath.trace' and name not like 'mark%'",
            "select count(*) from slice c join slice p on c.parent_id = p.id
             where c.ts < p.ts or c.ts + c.dur > p.ts + p.dur",
        ]);
        assert_eq!(text(&answers[0]), [[spans.len().to_string(), "0".to_owned()]], "{name}");
        assert_eq!(text(&answers[1]), [["0"]], "{name}: a child outside its parent");
    }
    spans.len()
}

#[test]
fn a_full_ring_stops_and_counts() {
    let _turn = turn();
    let recording = Options::new().ring_bytes(64 << 10).start().unwrap();
    let records = (64 << 10) / 32;
    let kept: Vec<Span> = (0..10).map(|_| span!(Category::APP, "outer")).collect();
    for _ in 0..records {
        mark!(Category::APP, "mark");
    }
    drop(kept.into_iter().rev().collect::<Vec<_>>());
    let capture = recording.stop();
    let account = capture.account();
    // Room for the ends of the ten open spans was set aside.
    assert_eq!(account.events, records);
    assert_eq!(account.lost, 20);
    assert_eq!(whole(&capture, "full.pftrace"), 10);
    assert!(capture.spans().iter().all(|span| !span.unfinished));
    let Some(judge) = judged(&capture, "full.pftrace") else { return };
    let answers = judge
        .clean(&["select a.display_value from slice s join args a using (arg_set_id)
                                 where s.name = 'events lost' and a.key = 'debug.count'"]);
    assert_eq!(text(&answers[0]), [["20"]]);
}

#[test]
fn a_flight_recorder_keeps_the_last_records() {
    let _turn = turn();
    let recording = Options::new()
        .ring_bytes(64 << 10)
        .flight_recorder(Duration::from_secs(60))
        .start()
        .unwrap();
    let whole_time = span!(Category::APP, "whole time");
    for index in 0..10_000u64 {
        let _outer = span!(Category::APP, "outer", index);
        let _inner = span!(Category::APP, "inner");
    }
    let capture = recording.capture();
    drop(whole_time);
    assert_eq!(
        capture.account().overwritten,
        40_001 - 2048 + 1,
        "one record is left to the writer"
    );
    // The oldest record kept may be an end, or a begin in the middle of a pair: only whole pairs remain.
    let spans = capture.spans();
    assert!((1021..=1024).contains(&spans.len()), "{}", spans.len());
    assert!(spans.iter().all(|span| span.name != "whole time" && !span.unfinished));
    let last = spans.iter().rev().find(|span| span.name == "outer").unwrap();
    assert_eq!(last.values, [("index", Value::Unsigned(9_999))]);
    whole(&capture, "wrapped.pftrace");
    assert!(recording.stop().account().beginless >= 1, "the end of the span whose begin is gone");
}

#[test]
fn a_flight_recorder_forgets_what_is_older_than_it_keeps() {
    let _turn = turn();
    let recording = Options::new().flight_recorder(Duration::from_millis(100)).start().unwrap();
    drop(span!(Category::APP, "old"));
    let long = span!(Category::APP, "long");
    std::thread::sleep(Duration::from_millis(150));
    drop(span!(Category::APP, "young"));
    drop(long);
    let capture = recording.capture();
    let names: Vec<&str> = capture.spans().iter().map(|span| span.name).collect();
    assert_eq!(names, ["long", "young"], "a span that reaches into the time kept is kept whole");
}

#[test]
fn a_capture_can_be_cut_to_the_time_around_a_request() {
    let _turn = turn();
    let recording = Options::new().flight_recorder(Duration::from_secs(60)).start().unwrap();
    drop(span!(Category::APP, "before"));
    std::thread::sleep(Duration::from_millis(5));
    let from = towpath_trace::Stamp::now();
    drop(span!(Category::REQUEST, "slow"));
    let until = towpath_trace::Stamp::now();
    std::thread::sleep(Duration::from_millis(5));
    drop(span!(Category::APP, "after"));
    let capture = recording.capture_between(from, until, Duration::ZERO);
    let names: Vec<&str> = capture.spans().iter().map(|span| span.name).collect();
    assert_eq!(names, ["slow"]);
}

#[test]
fn a_ring_that_begins_in_the_middle_of_a_long_event_is_read() {
    let _turn = turn();
    let recording = Options::new().ring_bytes(64 << 10).flight_recorder(Duration::from_secs(60));
    let recording = recording.start().unwrap();
    let text = "a text that takes several records, none of which has a stamp of its own";
    for extra in 0..6 {
        for _ in 0..2_000 {
            drop(span!(Category::APP, "long", text));
        }
        // Moves the oldest record that is left by one at a time.
        (0..extra).for_each(|_| mark!(Category::APP, "short"));
        let capture = recording.capture();
        let spans = capture.spans();
        assert!(spans.len() > 300, "{extra}: {} spans", spans.len());
        assert!(spans.iter().all(|span| span.values == [("text", Value::Text(text))]), "{extra}");
    }
}

#[test]
fn switching_in_the_middle_of_spans_leaves_no_halves() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    let on = span!(Category::APP, "begun on");
    recording.set_categories(Category::NONE, Level::Error);
    let off = span!(Category::APP, "begun off");
    mark!(Category::APP, "mark off");
    recording.set_categories(Category::ALL, Level::Trace);
    drop(span!(Category::APP, "within"));
    drop(off);
    recording.set_categories(Category::NETWORK, Level::Info);
    drop(on);
    drop(span!(Category::APP, "other category"));
    drop(span!(level = Level::Debug, Category::NETWORK, "other level"));
    drop(span!(Category::NETWORK, "wanted"));
    let capture = recording.stop();
    let names: Vec<&str> = capture.spans().iter().map(|span| span.name).collect();
    assert_eq!(names, ["begun on", "within", "wanted"]);
    assert_eq!((capture.account().beginless, capture.account().unfinished), (0, 0));
    whole(&capture, "toggled.pftrace");
}

#[test]
fn a_span_that_outlives_the_recording_ends_with_it() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    let outer = span!(Category::APP, "outer");
    let tracked = async_span!(Category::APP, "tracked", Track::new(5));
    let capture = recording.stop();
    let spans = capture.spans();
    assert_eq!((spans.len(), capture.account().unfinished), (2, 2));
    assert!(spans.iter().all(|span| span.unfinished));
    whole(&capture, "outlived.pftrace");
    // Their ends belong to no later recording.
    let recording = Options::new().start().unwrap();
    let inner = span!(Category::APP, "of the next");
    drop(outer);
    drop(tracked);
    drop(inner);
    let capture = recording.stop();
    assert_eq!(capture.spans().len(), 1);
    assert_eq!(capture.account().beginless, 2);
    whole(&capture, "next.pftrace");
}

#[test]
fn threads_may_end_and_their_events_stay() {
    let _turn = turn();
    for keep in [None, Some(Duration::from_secs(60))] {
        let options = Options::new().ring_bytes(64 << 10);
        let recording = keep
            .map_or_else(|| options.clone(), |keep| options.clone().flight_recorder(keep))
            .start()
            .unwrap();
        for index in 0..50u64 {
            std::thread::spawn(move || {
                let _span = span!(Category::APP, "of a thread", index);
            })
            .join()
            .unwrap();
        }
        let capture = recording.stop();
        assert_eq!(whole(&capture, "threads.pftrace"), 50);
        assert_eq!((capture.account().threads, capture.account().missing()), (50, 0));
    }
}

#[test]
fn more_threads_than_rings_are_counted() {
    let _turn = turn();
    let spawn = || std::thread::spawn(|| mark!(Category::APP, "mark")).join().unwrap();
    let recording = Options::new().most_threads(3).start().unwrap();
    (0..5).for_each(|_| spawn());
    let capture = recording.stop();
    assert_eq!((capture.marks().len(), capture.account().homeless), (3, 2));
    // A flight recorder gives up the ring of the thread that died first.
    let recording =
        Options::new().most_threads(3).flight_recorder(Duration::from_secs(60)).start().unwrap();
    (0..5).for_each(|_| spawn());
    let capture = recording.stop();
    assert_eq!((capture.marks().len(), capture.account().overwritten), (3, 2));
    let recording = Options::new().most_threads(0).start().unwrap();
    mark!(Category::APP, "mark");
    assert_eq!(recording.stop().account().homeless, 1);
}

#[test]
fn events_of_a_thread_that_is_ending_do_no_harm() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            let _span = span!(Category::APP, "late");
        }
    }
    thread_local!(static LATE: Late = const { Late });
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    std::thread::spawn(|| {
        LATE.with(|_| ());
        drop(span!(Category::APP, "in time"));
    })
    .join()
    .unwrap();
    let capture = recording.stop();
    let late = capture.spans().iter().filter(|span| span.name == "late").count() as u64;
    assert_eq!(late + capture.account().homeless, 1, "kept, or counted");
    whole(&capture, "late.pftrace");
}

#[test]
fn hostile_names_arrive() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    let long = "n".repeat(4096);
    let too_long = "é".repeat(5000);
    let names = ["", "a|b", "tab\tline\nbell\u{7}", "\u{202e}אבג🦀", "quote\"back\\slash", &long];
    for name in names {
        mark!(Category::APP, "value", name);
        towpath_trace::atrace::atrace_instant(towpath_trace::atrace::AtraceTag::App, name);
    }
    mark!(Category::APP, "value", name = "nul\0inside");
    mark!(Category::APP, "value", name = too_long.as_str());
    mark!(Category::APP, "name with nul\0and | bar");
    let capture = recording.stop();
    assert_eq!(capture.account().texts_cut, 1);
    let Some(judge) = judged(&capture, "hostile.pftrace") else { return };
    let answers = judge.clean(&[
        "select hex(display_value) from slice s join args a using (arg_set_id)
         where s.name = 'value' and key = 'debug.name' order by ts",
        "select hex(name) from slice where category = 'app' and name is not 'value' order by ts",
    ]);
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02X}")).collect::<String>();
    let mut expected: Vec<String> = names.iter().map(|name| hex(name)).collect();
    let marks: Vec<String> =
        expected.iter().cloned().chain([hex("name with nul\u{2400}and | bar")]).collect();
    expected.push(hex("nul\u{2400}inside"));
    expected.push(hex(&too_long[..8192]));
    let found = |rows: &[support::Row]| {
        rows.iter().map(|row| row[0].clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!(found(&answers[0]), expected);
    assert_eq!(found(&answers[1]), marks);
}

#[test]
fn crossing_spans_are_moved_aside_and_not_bent() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    let a = span!(Category::APP, "a");
    let b = span!(Category::APP, "b");
    let c = span!(Category::APP, "c");
    drop(a);
    let d = span!(Category::APP, "d");
    drop(b);
    drop(c);
    drop(d);
    let track = Track::new(3);
    let x: AsyncSpan = async_span!(Category::APP, "x", track);
    let y = async_span!(Category::APP, "y", track);
    drop(x);
    drop(y);
    let capture = recording.stop();
    assert_eq!(capture.account().aside, 3);
    assert_eq!(whole(&capture, "crossing.pftrace"), 6);
    let spans = capture.spans();
    let duration = |name: &str| {
        spans.iter().find(|span| span.name == name).map(|span| span.end_ns - span.begin_ns).unwrap()
    };
    let Some(judge) = judged(&capture, "crossing.pftrace") else { return };
    let answers =
        judge.clean(&["select name, dur from slice where category = 'app' order by name"]);
    let expected =
        ["a", "b", "c", "d", "x", "y"].map(|name| [name.to_owned(), duration(name).to_string()]);
    assert_eq!(text(&answers[0]), expected);
}

#[test]
fn spans_deeper_than_perfetto_shows_on_a_track_are_on_tracks_below() {
    fn nest(depth: u64) {
        let _span = span!(Category::APP, "deep", depth);
        if depth > 1 {
            nest(depth - 1);
        }
    }
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    let deep = || {
        for depth in [1100, 512, 513, 1100] {
            nest(depth);
        }
    };
    std::thread::Builder::new().stack_size(64 << 20).spawn(deep).unwrap().join().unwrap();
    let capture = recording.stop();
    assert_eq!((capture.account().aside, capture.account().unfinished), (0, 0));
    assert_eq!(whole(&capture, "deep.pftrace"), 2 * 1100 + 512 + 513);
    let Some(judge) = judged(&capture, "deep.pftrace") else { return };
    let answers = judge.clean(&[
        "select max(depth) from slice where name = 'deep' group by track_id order by min(ts)",
        "select count(*) from slice join args using (arg_set_id) where name = 'deep' and key = 'debug.depth'",
    ]);
    assert_eq!(text(&answers[0]), [["511"], ["511"], ["75"]]);
    assert_eq!(text(&answers[1]), [["3225"]]);
}

#[test]
fn a_million_events_are_all_there() {
    let _turn = turn();
    let recording = Options::new().ring_bytes(32 << 20).start().unwrap();
    for index in 0..200_000u64 {
        let _outer = span!(Category::APP, "outer", index);
        let _inner = span!(Category::APP, "inner");
        counter!(Category::APP, "counter", index);
    }
    let capture = recording.stop();
    assert_eq!((capture.account().events, capture.account().missing()), (1_000_000, 0));
    let Some(judge) = judged(&capture, "million.pftrace") else { return };
    let answers = judge.clean(&[
        "select name, count(*), min(depth), max(depth), min(dur) >= 0 from slice where category = 'app' group by name",
        "select count(*), cast(sum(value) as int), count(distinct value) from counter",
        "select count(distinct int_value) from args where key = 'debug.index'",
    ]);
    assert_eq!(
        text(&answers[0]),
        [["inner", "200000", "1", "1", "1"], ["outer", "200000", "0", "0", "1"]]
    );
    assert_eq!(text(&answers[1]), [["200000", "19999900000", "200000"]]);
    assert_eq!(text(&answers[2]), [["200000"]]);
}

#[test]
fn every_category_has_its_switch_at_every_level() {
    let _turn = turn();
    for bit in 0..64 {
        let category = Category::bit(bit);
        let recording = Options::new().categories(category).level(Level::Info).start().unwrap();
        for level in Level::ALL {
            assert_eq!(
                towpath_trace::enabled(category, level),
                level <= Level::Info,
                "{bit} {level:?}"
            );
            let others = Category::from_bits(!category.bits());
            assert!(!towpath_trace::enabled(others, level), "{bit} {level:?}");
        }
        drop(recording);
        assert!(!towpath_trace::enabled(Category::ALL, Level::Error), "{bit}");
    }
}

#[test]
fn only_one_recording_is_on() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    assert!(matches!(Options::new().start(), Err(towpath_trace::StartError::Busy)));
    drop(recording);
    drop(Options::new().start().unwrap());
}

#[test]
fn a_track_shows_where_spans_lie() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    drop(async_span!(Category::APP, "tracked", Track::new(42)));
    let capture = recording.stop();
    assert_eq!(capture.spans()[0].place, PlaceView::Track(42));
}
