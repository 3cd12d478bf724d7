//! Programs written for `libatrace_rust`, with one line changed, give the lines that the original gives. Takes root
//! and tracefs.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the run")]
#![cfg(all(target_os = "linux", feature = "layer"))]

#[path = "support/ftrace.rs"]
mod ftrace;

use std::process::{Command, Output};
use std::time::Duration;

use ftrace::Instance;
use towpath_trace::atrace::tags::AtraceTag;
use towpath_trace::atrace::{self, AtraceSubscriber};
use tracing::{Level, debug, error, event, info, span, trace, warn};
use tracing_subscriber::prelude::*;

#[test]
fn the_subscriber_writes_what_the_original_does() {
    let Some((_, lines)) = ran("child_with_the_subscriber", "app") else { return };
    assert_eq!(
        lines,
        [
            "I|pid|a text of two words, colour = \"blue\", power = 8999",
            "B|pid|outer, kind = \"a \"quoted\" one\", size = 2.0",
            "B|pid|without fields",
            "B|pid|times_100, number = 42",
            "I|pid|number = 42, result = 4200",
            "E|pid",
            "I|pid|TRACE 4200",
            "I|pid|DEBUG",
            "I|pid|INFO, some = Some(3)",
            "I|pid|WARN",
            "I|pid|ERROR",
            "E|pid",
            "E|pid",
            "B|pid|learns, early = 1, late = \"told\"",
            "E|pid",
        ]
    );
}

#[test]
fn a_level_behind_the_tags_is_the_last_one_written() {
    let Some((_, lines)) = ran("child_with_the_subscriber", "app@info") else { return };
    assert_eq!(
        lines,
        [
            "I|pid|a text of two words, colour = \"blue\", power = 8999",
            "I|pid|INFO, some = Some(3)",
            "I|pid|WARN",
            "I|pid|ERROR",
        ]
    );
}

#[test]
fn without_fields_there_are_names_and_messages() {
    let Some((_, lines)) = ran("child_without_fields", "all") else { return };
    assert_eq!(
        lines,
        ["B|pid|span", "I|pid|message", "I|pid|INFO event", "I|pid|DEBUG event", "E|pid"]
    );
}

#[test]
fn the_functions_write_what_the_original_does() {
    let Some((_, lines)) = ran("child_with_the_functions", "app") else { return };
    assert_eq!(
        lines,
        [
            "B|pid|drop_in::child_with_the_functions",
            "B|pid|main",
            "S|pid|asynchronous|12345",
            "C|pid|count|3",
            "I|pid|instant",
            "G|pid|track|on a track|7",
            "E|pid",
            "N|pid|track|instant of a track",
            "H|pid|track|7",
            "F|pid|asynchronous|12345",
            "E|pid",
        ]
    );
}

#[test]
fn an_environment_that_cannot_be_followed_is_said() {
    let Some((output, lines)) = ran("child_with_the_functions", "app,nosuch") else { return };
    assert_eq!(lines, [""; 0]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ATRACE_TAGS=app,nosuch") && said.contains("\"nosuch\""), "{said}");
}

#[test]
fn a_future_may_hold_a_scoped_event() {
    fn spawned<T: Send + 'static>(_: T) {}
    spawned(async {
        let _event = atrace::begin_scoped_event(AtraceTag::App, "across an await");
        std::future::ready(()).await;
    });
}

#[test]
#[ignore = "run by another test, with an environment"]
fn child_with_the_subscriber() {
    if std::env::var_os("TOWPATH_CHILD").is_none() {
        return;
    }
    tracing_subscriber::registry().with(AtraceSubscriber::default().with_filter()).init();
    let power = 8999;
    event!(Level::INFO, colour = "blue", power, "a text of {} words", "two");
    {
        let outer = span!(Level::TRACE, "outer", kind = "a \"quoted\" one", size = 2.0);
        let _entered = outer.enter();
        let _inner = span!(Level::TRACE, "without fields").entered();
        trace!("TRACE {}", times_100(42));
        debug!("DEBUG");
        info!(some = ?Some(3), "INFO");
        warn!("WARN");
        error!("ERROR");
    }
    let learns = span!(Level::DEBUG, "learns", early = 1, late = tracing::field::Empty);
    learns.record("late", "told");
    learns.in_scope(|| ());
}

#[tracing::instrument]
fn times_100(number: i32) -> i32 {
    let result = number * 100;
    event!(Level::INFO, number, result);
    result
}

#[test]
#[ignore = "run by another test, with an environment"]
fn child_without_fields() {
    if std::env::var_os("TOWPATH_CHILD").is_none() {
        return;
    }
    tracing_subscriber::registry()
        .with(AtraceSubscriber::new(AtraceTag::Hal).without_fields())
        .init();
    let _span = span!(Level::INFO, "span", field = 1).entered();
    info!(field = 1, "message");
    event!(Level::INFO, field = 1);
    event!(Level::DEBUG, field = 1);
}

#[test]
#[ignore = "run by another test, with an environment"]
fn child_with_the_functions() {
    if std::env::var_os("TOWPATH_CHILD").is_none() {
        return;
    }
    towpath_trace::trace_method!(AtraceTag::App);
    atrace::atrace_begin(AtraceTag::App, "main");
    atrace::atrace_begin(AtraceTag::Camera, "another tag");
    atrace::atrace_end(AtraceTag::Camera);
    atrace::atrace_async_begin(AtraceTag::App, "asynchronous", 12345);
    atrace::atrace_int(AtraceTag::App, "count", 3);
    atrace::atrace_instant(AtraceTag::App, "instant");
    atrace::atrace_async_for_track_begin(AtraceTag::App, "track", "on a track", 7);
    std::thread::sleep(Duration::from_millis(1));
    atrace::atrace_end(AtraceTag::App);
    atrace::atrace_instant_for_track(AtraceTag::App, "track", "instant of a track");
    atrace::atrace_async_for_track_end(AtraceTag::App, "track", 7);
    atrace::atrace_async_end(AtraceTag::App, "asynchronous", 12345);
}

/// What a child said, and the markers it wrote, with `pid` for its number; `None` where markers cannot be had.
fn ran(child: &str, tags: &str) -> Option<(Output, Vec<String>)> {
    let instance = match Instance::new(child) {
        Ok(instance) => instance,
        Err(why) => {
            eprintln!("SKIPPED: no ftrace instance: {why}");
            return None;
        }
    };
    // For the child the instance is all there is of tracefs.
    let script = "mount --bind \"$0\" /sys/kernel/tracing && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(instance.folder())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", child, "--ignored", "--nocapture"])
        .envs([("TOWPATH_CHILD", "1"), ("ATRACE_TAGS", tags)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace = instance.trace();
    let lines = trace.lines().filter(|line| !line.starts_with('#'));
    let markers = lines.filter_map(|line| line.split_once("tracing_mark_write: "));
    let without_pid = |line: &str| {
        let mut fields: Vec<&str> = line.splitn(3, '|').collect();
        fields[1] = "pid";
        fields.join("|")
    };
    Some((output, markers.map(|(_, line)| without_pid(line)).collect()))
}
