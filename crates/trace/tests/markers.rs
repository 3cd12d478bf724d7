//! The nine forms in a real `trace_marker`, read back through Perfetto's importer. Takes root and tracefs.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the run")]
#![cfg(target_os = "linux")]

#[path = "support/ftrace.rs"]
mod ftrace;
mod support;

use std::time::Duration;

use ftrace::Instance;
use support::{Judge, scratch, text};
use towpath_trace::atrace::{self, AtraceTag};
use towpath_trace::{Category, Options, counter, mark, span};

// One test: the marker stays open for the life of the process.
#[test]
fn the_nine_forms_through_the_kernel() {
    let instance = match Instance::new("forms") {
        Ok(instance) => instance,
        Err(why) => return eprintln!("SKIPPED: no ftrace instance: {why}"),
    };
    instance.set("trace_clock", "boot");
    atrace::open_marker(&instance.folder().join("trace_marker")).unwrap();
    assert!(!atrace::atrace_is_tag_enabled(AtraceTag::App));
    atrace::atrace_begin(AtraceTag::App, "begun off");
    atrace::enable_tags(AtraceTag::App | AtraceTag::Network).unwrap();
    assert_eq!(atrace::atrace_get_enabled_tags(), AtraceTag::App | AtraceTag::Network);
    assert!(
        atrace::atrace_is_tag_enabled(AtraceTag::App)
            && !atrace::atrace_is_tag_enabled(AtraceTag::Adb)
    );

    atrace::atrace_begin(AtraceTag::App, "outer|with bar");
    atrace::atrace_begin(AtraceTag::Adb, "another tag");
    atrace::atrace_end(AtraceTag::Adb);
    {
        let _inner = atrace::begin_scoped_event(AtraceTag::Network, "inner");
        std::thread::sleep(Duration::from_millis(2));
        traced();
    }
    atrace::atrace_end(AtraceTag::App);
    atrace::atrace_end(AtraceTag::App); // "begun off": no half of it was or is written.
    atrace::atrace_end(AtraceTag::App); // One too many.
    atrace::atrace_async_begin(AtraceTag::App, "async|bar", 12);
    atrace::atrace_async_for_track_begin(AtraceTag::App, "track", "on track", 13);
    atrace::atrace_instant(AtraceTag::App, "instant");
    atrace::atrace_instant_for_track(AtraceTag::App, "track two", "track instant");
    atrace::atrace_int(AtraceTag::App, "small", -5);
    atrace::atrace_int64(AtraceTag::App, "large", 1 << 40);
    std::thread::spawn(|| {
        atrace::atrace_async_end(AtraceTag::App, "async|bar", 12);
        atrace::atrace_async_for_track_end(AtraceTag::App, "track", 13);
    })
    .join()
    .unwrap();
    let long = "l".repeat(5000);
    atrace::atrace_instant(AtraceTag::App, &long);
    // Own macros go the same way when their category is on.
    {
        let _span = span!(Category::APP, "own span");
        mark!(Category::APP, "own mark");
        counter!(Category::APP, "own counter", 6);
        drop(span!(Category::REQUEST, "own, not wanted"));
    }
    atrace::atrace_begin(AtraceTag::App, "ended later");
    atrace::enable_tags(AtraceTag::Never).unwrap();
    atrace::atrace_end(AtraceTag::App);
    atrace::atrace_instant(AtraceTag::App, "off");

    let trace = instance.trace();
    let pid = std::process::id();
    for line in [
        format!("B|{pid}|outer|with bar\n"),
        format!("B|{pid}|inner\n"),
        format!("B|{pid}|markers::traced\n"),
        format!("E|{pid}\n"),
        format!("S|{pid}|async/bar|12\n"),
        format!("F|{pid}|async/bar|12\n"),
        format!("G|{pid}|track|on track|13\n"),
        format!("H|{pid}|track|13\n"),
        format!("I|{pid}|instant\n"),
        format!("N|{pid}|track two|track instant\n"),
        format!("C|{pid}|small|-5\n"),
        format!("C|{pid}|large|1099511627776\n"),
        format!("B|{pid}|own span\n"),
        format!("I|{pid}|own mark\n"),
        format!("C|{pid}|own counter|6\n"),
    ] {
        assert!(trace.contains(&line), "{line} is missing in\n{trace}");
    }
    let cut = trace.lines().find(|line| line.contains("lllll")).unwrap();
    let marker = &cut[cut.find("I|").unwrap()..];
    assert_eq!(marker.len(), 1023);
    assert!(
        !trace.contains("another tag") && !trace.contains("not wanted") && !trace.contains("off\n"),
        "{trace}"
    );
    assert_eq!(
        trace.matches(&format!("B|{pid}|")).count(),
        trace.matches(&format!("E|{pid}\n")).count()
    );
    assert!(trace.contains("ended later"), "its end was written after the tag was off");
    assert_eq!(atrace::refused_markers(), 0);

    let path = scratch("markers.txt");
    std::fs::write(&path, &trace).unwrap();
    if let Some(judge) = Judge::of(&path) {
        let answers = judge.clean(&[
            "select s.name, s.depth, s.dur > 0 from slice s join thread_track t on s.track_id = t.id
             where s.name not like 'lll%' order by s.ts, s.id",
            "select s.name, t.name from slice s join process_track t on s.track_id = t.id order by s.ts",
            "select t.name, c.value from counter c join counter_track t on c.track_id = t.id order by c.ts",
        ]);
        let threads = text(&answers[0]);
        assert_eq!(
            threads[..3],
            [["outer|with bar", "0", "1"], ["inner", "1", "1"], ["markers::traced", "2", "1"]]
        );
        assert!(
            threads.contains(&vec!["instant", "0", "0"])
                && threads.contains(&vec!["own mark", "1", "0"])
        );
        let tracks = text(&answers[1]);
        assert!(
            tracks.iter().any(|row| row[0] == "async/bar")
                && tracks.contains(&vec!["on track", "track"])
        );
        assert!(tracks.contains(&vec!["track instant", "track two"]));
        let counters = [["small", "-5"], ["large", "1099511627776"], ["own counter", "6"]];
        assert_eq!(text(&answers[2]), counters);
    }
    the_kernel_may_refuse(&instance);
}

fn traced() {
    towpath_trace::trace_method!(AtraceTag::App);
    std::thread::sleep(Duration::from_millis(1));
}

/// What the kernel does not take is counted, and leaves no end behind.
fn the_kernel_may_refuse(instance: &Instance) {
    atrace::enable_tags(AtraceTag::App).unwrap();
    instance.set("tracing_on", "0");
    instance.set("trace", "");
    atrace::atrace_begin(AtraceTag::App, "refused");
    instance.set("tracing_on", "1");
    atrace::atrace_end(AtraceTag::App);
    assert_eq!(atrace::refused_markers(), 1);
    assert!(!instance.trace().contains("E|"), "{}", instance.trace());
    atrace::enable_tags(AtraceTag::Never).unwrap();
    // Tags are categories of a recording, too.
    let recording = Options::new().categories(AtraceTag::App.into()).start().unwrap();
    atrace::atrace_async_for_track_begin(AtraceTag::App, "track", "recorded", 5);
    atrace::atrace_async_for_track_end(AtraceTag::App, "track", 5);
    atrace::atrace_begin(AtraceTag::App, "span");
    atrace::atrace_end(AtraceTag::App);
    atrace::atrace_int(AtraceTag::App, "counter", 3);
    atrace::atrace_set_tracing_enabled(false);
    atrace::atrace_instant(AtraceTag::App, "forbidden");
    atrace::atrace_set_tracing_enabled(true);
    let capture = recording.stop();
    let mut names: Vec<&str> = capture.spans().iter().map(|span| span.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["recorded", "span"]);
    assert_eq!((capture.counters().len(), capture.marks().len()), (1, 0));
}
