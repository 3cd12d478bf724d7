//! A file holds what was emitted: counts, nesting, durations, values, counters and flows, as Perfetto reads them.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the run")]

mod support;

use std::fs::File;
use std::time::Duration;

use support::{Judge, judged, scratch, text, turn};
use towpath_trace::{Capture, Category, Flow, Level, Options, Stamp, Track};
use towpath_trace::{async_mark, async_span, complete, counter, function, intern, mark, span};

const FLOW: u64 = 0x8234_5678_9abc_def0;

/// A bit of everything.
fn everything() -> Capture {
    let recording = Options::new().level(Level::Trace).start().unwrap();
    let request = Track::new(77);
    {
        let _outer = span!(Category::REQUEST, "outer", bytes = 512u64, flow = Flow::through(FLOW));
        std::thread::sleep(Duration::from_millis(2));
        let _inner = span!(
            level = Level::Trace,
            Category::NETWORK,
            "inner",
            peer = intern("10.0.0.1:80"),
            ok = true
        );
        mark!(
            Category::NETWORK,
            "note",
            text = "free text",
            many = -5,
            third = 2.5,
            fourth = "more"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    for value in [3, -4] {
        counter!(Category::NETWORK, "open", value);
    }
    counter!(Category::NETWORK, "load", 0.25);
    counter!(Category::NETWORK, "large", 1u64 << 40);
    let moved = async_span!(Category::REQUEST, "request", request, id = 9);
    async_mark!(Category::REQUEST, "routed", request, cluster = "blue");
    let from = Stamp::now();
    let other = std::thread::Builder::new().name("other".to_owned());
    let work = move || {
        let _here = function!(Category::APP);
        mark!(Category::APP, "arrived", flow = Flow::last(FLOW));
        std::thread::sleep(Duration::from_millis(1));
        complete!(Category::UPSTREAM, "connect", request, from, Stamp::now(), attempt = 1);
        complete!(
            Category::UPSTREAM,
            "attempt",
            Track::new(78).under(request),
            from,
            Stamp::now(),
            peer = "10.0.0.2"
        );
        moved.end();
    };
    other.spawn(work).unwrap().join().unwrap();
    recording.stop()
}

#[test]
fn everything_that_was_emitted_is_in_the_file() {
    let _turn = turn();
    let capture = everything();
    assert_eq!(capture.account().missing(), 0);
    let spans = capture.spans();
    let duration = |name: &str| {
        let span = spans.iter().find(|span| span.name == name).unwrap();
        (span.end_ns - span.begin_ns).to_string()
    };
    let Some(judge) = judged(&capture, "everything.pftrace") else { return };
    let answers = judge.clean(&[
        "select s.name, s.category, s.dur, s.depth, p.name from slice s left join slice p on s.parent_id = p.id
         where s.category is not 'towpath.trace' order by s.ts",
        "select s.name, a.key, a.display_value from slice s join args a using (arg_set_id)
         where a.key like 'debug.%' and s.category is not 'towpath.trace' order by s.ts, a.key",
        "select t.name, cast(c.value as text) from counter c join counter_track t on c.track_id = t.id order by c.ts",
        "select o.name, i.name from flow f join slice o on f.slice_out = o.id join slice i on f.slice_in = i.id",
        "select t.name, p.name from track t join track p on t.parent_id = p.id",
        "select thread.name, pid from thread join process using (upid) where thread.name = 'other'",
        "select distinct thread.tid = process.pid from thread_track join thread using (utid) join process using (upid)
         where thread.name != 'other'",
    ]);
    let function = "perfetto_file::everything::{{closure}}";
    let expected = [
        ["outer", "request", &duration("outer"), "0", "null"],
        ["inner", "network", &duration("inner"), "1", "outer"],
        ["note", "network", "0", "2", "inner"],
        ["request", "request", &duration("request"), "0", "null"],
        ["routed", "request", "0", "1", "request"],
        ["connect", "upstream", &duration("connect"), "1", "request"],
        ["attempt", "upstream", &duration("attempt"), "0", "null"],
        [
            spans.iter().find(|span| function.starts_with(span.name)).unwrap().name,
            "app",
            "",
            "0",
            "null",
        ],
        ["arrived", "app", "0", "1", "perfetto_file::everything"],
    ];
    let found = text(&answers[0]);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(
            (found[0], found[1], found[3], found[4]),
            (expected[0], expected[1], expected[3], expected[4])
        );
        assert!(expected[2].is_empty() || found[2] == expected[2], "{found:?} {expected:?}");
    }
    assert_eq!(
        text(&answers[1]),
        [
            ["outer", "debug.bytes", "512"],
            ["inner", "debug.ok", "true"],
            ["inner", "debug.peer", "10.0.0.1:80"],
            ["note", "debug.fourth", "more"],
            ["note", "debug.many", "-5"],
            ["note", "debug.text", "free text"],
            ["note", "debug.third", "2.5"],
            ["request", "debug.id", "9"],
            ["routed", "debug.cluster", "blue"],
            ["connect", "debug.attempt", "1"],
            ["attempt", "debug.peer", "10.0.0.2"],
        ]
    );
    assert_eq!(
        text(&answers[2]),
        [["open", "3.0"], ["open", "-4.0"], ["load", "0.25"], ["large", "1099511627776.0"]]
    );
    assert_eq!(text(&answers[3]), [["outer", "arrived"]]);
    assert_eq!(text(&answers[4]), [["attempt", "request"]]);
    assert_eq!(text(&answers[5]), [["other", &std::process::id().to_string()]]);
    assert_eq!(answers[6].len(), 1, "the test's own thread");
}

#[test]
fn times_are_those_of_the_boot_clock() {
    let _turn = turn();
    let boot = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let recording = Options::new().start().unwrap();
    let before = boot();
    mark!(Category::APP, "now");
    let after = boot();
    std::thread::sleep(Duration::from_millis(30));
    let capture = recording.stop();
    let at = capture.marks()[0].ns;
    // The line between two readings is good to well under a microsecond; the machine may be busy.
    assert!(at + 20_000 >= before && at <= after + 20_000, "{before} {at} {after}");
    let Some(judge) = judged(&capture, "boot.pftrace") else { return };
    let answers = judge.clean(&["select ts from slice where name = 'now'"]);
    assert_eq!(text(&answers[0]), [[at.to_string()]], "Perfetto's time is the boot clock's");
}

#[test]
fn chrome_json_holds_the_same() {
    let _turn = turn();
    let capture = everything();
    let path = scratch("everything.json");
    capture.write_chrome(File::create(&path).unwrap()).unwrap();
    let Some(judge) = Judge::of(&path) else { return };
    let answers = judge.clean(&[
        "select name, category from slice order by ts, id",
        "select s.name, a.key, a.display_value from slice s join args a using (arg_set_id)
         where a.key = 'args.peer' order by s.ts",
        "select count(*) from flow",
        "select max(value) from counter",
    ]);
    assert_eq!(answers[0].len(), 9, "{:?}", answers[0]);
    assert_eq!(
        text(&answers[1]),
        [["inner", "args.peer", "10.0.0.1:80"], ["attempt", "args.peer", "10.0.0.2"]]
    );
    assert_eq!(text(&answers[2]), [["1"]]);
    assert_eq!(text(&answers[3]), [["1099511627776"]]);
}

#[test]
fn the_file_gives_its_own_account() {
    let _turn = turn();
    let capture = everything();
    let Some(judge) = judged(&capture, "account.pftrace") else { return };
    let answers = judge
        .clean(&["select a.key, a.display_value from slice s join args a using (arg_set_id)
                                 where s.name = 'trace account' and a.key like 'debug.%'"]);
    let found = text(&answers[0]);
    let value = |key: &str| found.iter().find(|row| row[0] == format!("debug.{key}")).unwrap()[1];
    assert_eq!(value("events").parse(), Ok(capture.account().events));
    assert_eq!((value("lost"), value("threads")), ("0", "2"));
    assert!(value("ns_per_event").parse::<f64>().unwrap() > 0.0);
}
