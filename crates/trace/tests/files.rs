//! Files written as they go, what `stat` says of them, and several as one.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the run")]

mod support;

use std::time::Duration;

use support::{Judge, scratch, text, turn};
use towpath_trace::file::{FileError, merge, spans, stat};
use towpath_trace::{Category, Flow, Options, Track, Value, async_span, counter, mark, span};

#[test]
fn a_file_is_written_as_it_goes() {
    let _turn = turn();
    let path = scratch("stream.pftrace");
    let recording = Options::new().drain_every(Duration::from_millis(5)).start_file(&path).unwrap();
    let long = span!(Category::APP, "long");
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            scope.spawn(move || {
                for index in 0..2_000u64 {
                    let _outer = span!(Category::APP, "outer", index, thread);
                    let _tracked =
                        async_span!(Category::REQUEST, "tracked", Track::new(thread << 32 | index));
                    counter!(Category::APP, "counter", index);
                    if index % 100 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
    });
    assert!(
        std::fs::metadata(&path).unwrap().len() > 1000,
        "the file grows while the recording is on"
    );
    let so_far = stat(&[&path]).unwrap();
    assert!(so_far.spans.iter().any(|span| span.name == "outer"), "and is whole at any time");
    drop(long);
    let account = recording.finish().unwrap();
    assert_eq!(
        (account.missing(), account.unfinished, account.beginless, account.threads),
        (0, 0, 0, 4)
    );
    assert_eq!(account.events, 6_000 * 5 + 2);

    let stat = stat(&[&path]).unwrap();
    let count =
        |name: &str| stat.spans.iter().find(|span| span.name == name).map(|span| span.count);
    assert_eq!(
        (count("long"), count("outer"), count("tracked")),
        (Some(1), Some(6_000), Some(6_000))
    );
    assert_eq!(
        (stat.counters, stat.lost, stat.gaps, stat.beginless, stat.unfinished),
        (6_000, 0, 0, 0, 0)
    );
    assert_eq!((stat.begun, stat.accounted, stat.accounts.len()), (1, 1, 1));
    let text_of = stat.to_string();
    assert!(text_of.contains("outer") && text_of.contains("account: events 30002"), "{text_of}");
    let Some(judge) = Judge::of(&path) else { return };
    let answers = judge.clean(&[
        "select name, count(*), sum(dur < 0) from slice where category is not 'towpath.trace' group by name",
        "select name, max(dur) from slice where category is not 'towpath.trace' group by name",
        "select count(*) from slice c join slice p on c.parent_id = p.id where c.ts + c.dur > p.ts + p.dur",
    ]);
    assert_eq!(
        text(&answers[0]),
        [["long", "1", "0"], ["outer", "6000", "0"], ["tracked", "6000", "0"]]
    );
    for row in text(&answers[1]) {
        let ours = stat.spans.iter().find(|span| span.name == row[0]).unwrap();
        assert_eq!(ours.max_ns.to_string(), row[1], "our reader and Perfetto's agree");
    }
    assert_eq!(text(&answers[2]), [["0"]]);
}

#[test]
fn the_file_says_what_it_lost() {
    let _turn = turn();
    let path = scratch("lossy.pftrace");
    let options = Options::new().ring_bytes(64 << 10).drain_every(Duration::from_millis(50));
    let recording = options.start_file(&path).unwrap();
    for round in 0..3 {
        for index in 0..10_000u64 {
            let _span = span!(Category::APP, "span", index, round);
        }
        std::thread::sleep(Duration::from_millis(120));
    }
    let account = recording.finish().unwrap();
    assert!(account.lost > 10_000, "{account:?}");
    assert_eq!((account.lost * 2 + account.events) / 2, 30_000, "a span is lost whole");
    let stat = stat(&[&path]).unwrap();
    assert_eq!((stat.lost, stat.beginless, stat.unfinished), (account.lost, 0, 0));
    assert!(stat.gaps >= 3);
    let Some(judge) = Judge::of(&path) else { return };
    let answers = judge.clean(&[
        "select count(*) from slice where name = 'span' and dur >= 0",
        "select count(*), sum(a.int_value) from slice s join args a using (arg_set_id) where s.name = 'events lost'",
    ]);
    assert_eq!(text(&answers[0]), [[(account.events / 2).to_string()]]);
    assert_eq!(answers[1][0][1].as_deref(), Some(account.lost.to_string().as_str()));
}

#[test]
fn app_and_sidecar_in_one_file() {
    let _turn = turn();
    let flow = 0x0af7_6519_16cd_43dd;
    let (app, sidecar, both) =
        (scratch("app.pftrace"), scratch("sidecar.pftrace"), scratch("both.pftrace"));
    let write = |path: &std::path::Path, name: &'static str, last: bool| {
        let recording = Options::new().start().unwrap();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let flow = if last { Flow::last(flow) } else { Flow::through(flow) };
                let _span = span!(Category::REQUEST, "request", flow);
                std::thread::sleep(Duration::from_millis(1));
            })
            .unwrap()
            .join()
            .unwrap();
        recording.stop().write_perfetto(std::fs::File::create(path).unwrap()).unwrap();
    };
    write(&app, "app", false);
    write(&sidecar, "sidecar", true);
    let merged = merge(&[&app, &sidecar], &both).unwrap();
    assert_eq!(merged.moved_ns, [0, 0], "one boot, one clock");
    // A file may be merged with itself, and over an input: sequences are renumbered.
    let twice = scratch("twice.pftrace");
    std::fs::copy(&both, &twice).unwrap();
    merge(&[&twice, &app], &twice).unwrap();
    let stat = stat(&[&both]).unwrap();
    assert_eq!((stat.spans[0].count, stat.accounts.len()), (2, 2));
    let Some(judge) = Judge::of(&both) else { return };
    let answers = judge.clean(&[
        "select thread.name from slice join thread_track t on slice.track_id = t.id join thread using (utid)
         where slice.name = 'request' order by ts",
        "select count(*) from flow",
    ]);
    assert_eq!(text(&answers[0]), [["app"], ["sidecar"]]);
    assert_eq!(text(&answers[1]), [["1"]]);
}

#[test]
fn clocks_of_another_machine_are_aligned_by_the_time_of_day() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    mark!(Category::APP, "here");
    let (here, there, both) =
        (scratch("here.pftrace"), scratch("there.pftrace"), scratch("aligned.pftrace"));
    recording.stop().write_perfetto(std::fs::File::create(&here).unwrap()).unwrap();
    // The same file, as from a machine that booted a second later and carries another boot id.
    std::fs::write(&there, elsewhere(&std::fs::read(&here).unwrap(), 1_000_000_000)).unwrap();
    let merged = merge(&[&here, &there], &both).unwrap();
    assert_eq!(merged.moved_ns[0], 0);
    assert_eq!(merged.moved_ns[1], 1_000_000_000);
    let Some(judge) = Judge::of(&both) else { return };
    let answers =
        judge.clean(&["select count(*), count(distinct ts) from slice where name = 'here'"]);
    assert_eq!(
        text(&answers[0]),
        [["2", "1"]],
        "one moment on both machines is one moment in the file"
    );
}

/// A file with its boot clock set back, made with a small writer of the test's own.
fn elsewhere(file: &[u8], back_ns: u64) -> Vec<u8> {
    fn varint(bytes: &[u8], at: &mut usize) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[*at];
            *at += 1;
            value |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    }
    fn put(out: &mut Vec<u8>, mut value: u64) {
        while value > 127 {
            out.push(value as u8 | 128);
            value >>= 7;
        }
        out.push(value as u8);
    }
    /// Walks to clock snapshots (packet 1, snapshot 6, clock 1) and changes the times of clocks 3 and 6.
    fn walk(bytes: &[u8], path: &[u32], back_ns: u64) -> Vec<u8> {
        let (mut at, mut out, mut clock) = (0, Vec::new(), 0);
        while at < bytes.len() {
            let key = varint(bytes, &mut at);
            put(&mut out, key);
            match key & 7 {
                0 => {
                    let mut value = varint(bytes, &mut at);
                    if path.is_empty() && key >> 3 == 1 {
                        clock = value;
                    }
                    if path.is_empty() && key >> 3 == 2 && matches!(clock, 3 | 6) {
                        value -= back_ns.min(value);
                    }
                    put(&mut out, value);
                }
                1 => {
                    out.extend_from_slice(&bytes[at..at + 8]);
                    at += 8;
                }
                2 => {
                    let length = varint(bytes, &mut at) as usize;
                    let inner = &bytes[at..at + length];
                    at += length;
                    let inner = match path.split_first() {
                        Some((&wanted, rest)) if u64::from(wanted) == key >> 3 => {
                            walk(inner, rest, back_ns)
                        }
                        _ => inner.to_vec(),
                    };
                    put(&mut out, inner.len() as u64);
                    out.extend(inner);
                }
                other => panic!("wire type {other}"),
            }
        }
        out
    }
    let boot_id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap();
    let boot_id = boot_id.trim_ascii();
    let mut file = walk(file, &[1, 6, 1], back_ns);
    let at = file.windows(boot_id.len()).position(|window| window == boot_id).unwrap();
    file[at..at + 8].copy_from_slice(b"deadbeef");
    file
}

#[test]
fn what_is_no_trace_is_refused() {
    let path = scratch("text.pftrace");
    std::fs::write(&path, "this is not a trace").unwrap();
    assert!(matches!(stat(&[&path]), Err(FileError::NotATrace(_, 0))));
    assert!(matches!(merge(&[&path], scratch("out.pftrace")), Err(FileError::NotATrace(..))));
    assert!(!scratch("out.pftrace").exists(), "nothing is written when something cannot be read");
    assert!(matches!(stat(&[scratch("missing")]), Err(FileError::Io(..))));
    assert!(matches!(stat::<&str>(&[]), Err(FileError::NoInput)));
    assert!(matches!(merge::<&str>(&[], scratch("out.pftrace")), Err(FileError::NoInput)));
    std::fs::write(&path, []).unwrap();
    assert_eq!(stat(&[&path]).unwrap().packets, 0, "an empty file is an empty trace");
}

/// A process may be killed while it writes the first packet.
#[test]
fn a_file_that_ends_in_its_first_packet_is_read() {
    let _turn = turn();
    let (path, cut) = (scratch("first.pftrace"), scratch("first-cut.pftrace"));
    let recording = Options::new().start_file(&path).unwrap();
    drop(span!(Category::APP, "span"));
    recording.finish().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let end = (1..whole.len()).find(|&length| {
        std::fs::write(&cut, &whole[..length]).unwrap();
        let read = stat(&[&cut]).unwrap();
        let cut_bytes = if read.packets == 0 { length as u64 } else { 0 };
        assert_eq!((read.bytes, read.cut), (length as u64, cut_bytes), "{length}");
        assert!(spans(&cut).unwrap().iter().unwrap().next().is_none(), "{length}");
        for files in [[&path, &cut], [&cut, &path]] {
            let merged = merge(&files, scratch("first-merged.pftrace")).unwrap();
            assert_eq!(merged.cut.iter().sum::<u64>(), cut_bytes, "{length}");
        }
        read.packets == 1
    });
    assert!(end.is_some_and(|end| end > 20), "{end:?}");
    // Text that happens to hold the byte of a packet's beginning is none.
    std::fs::write(&cut, "he\nxxx").unwrap();
    assert!(matches!(stat(&[&cut]), Err(FileError::NotATrace(..))));
}

#[test]
fn names_of_run_time_and_units_arrive() {
    let _turn = turn();
    let recording = Options::new().start().unwrap();
    for route in ["/a", "/b"] {
        let name = format!("GET {route}");
        let _span = span!(Category::APP, dyn name, bytes = 7);
        mark!(Category::APP, dyn route, flag = true);
    }
    counter!(Category::APP, "received", 3, unit = "bytes");
    counter!(Category::APP, "waiting", 4, unit = "requests");
    let capture = recording.stop();
    let path = scratch("named.pftrace");
    capture.write_perfetto(std::fs::File::create(&path).unwrap()).unwrap();
    let spans = capture.spans();
    assert_eq!(spans.iter().map(|span| span.name).collect::<Vec<_>>(), ["GET /a", "GET /b"]);
    assert_eq!(spans[1].values, [("bytes", Value::Signed(7))]);
    let Some(judge) = Judge::of(&path) else { return };
    let answers = judge.clean(&[
        "select s.name, category, key, display_value from slice s join args using (arg_set_id)
         where key like 'debug.%' and category = 'app' order by ts",
        "select name, unit from counter_track order by name",
    ]);
    assert_eq!(
        text(&answers[0]),
        [
            ["GET /a", "app", "debug.bytes", "7"],
            ["/a", "app", "debug.flag", "true"],
            ["GET /b", "app", "debug.bytes", "7"],
            ["/b", "app", "debug.flag", "true"],
        ]
    );
    assert_eq!(text(&answers[1]), [["received", "bytes"], ["waiting", "requests"]]);
}
