//! What a recording shows of a connection of HTTP/2, in a process of its own: there is one recording at a time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http2::{Arrival, Connection, Options};
use towpath_proto::{Event, Out};
use towpath_trace::{Options as Recording, Track, Value};

#[test]
fn frames_are_marks_and_windows_are_counters_where_that_is_wanted() {
    for (keep, wanted) in [("info", false), ("info,protocol=debug", true)] {
        let recording = Recording::new().directives(keep).unwrap().start().unwrap();
        exchange();
        let capture = recording.stop();
        let (marks, counters) = (capture.marks(), capture.counters());
        assert_eq!((marks.is_empty(), counters.is_empty()), (!wanted, !wanted));
        if !wanted {
            continue;
        }
        let first = &marks[0];
        assert_eq!(first.name, "connection to a server", "its track is called so");
        assert_eq!(first.values, [("number", Value::Unsigned(7))]);
        let kinds = |name: &str| -> Vec<&str> {
            let kind = |values: &[(&str, Value<'_>)]| match values.first() {
                Some(("kind", Value::Text("SETTINGS"))) => "SETTINGS",
                Some(("kind", Value::Text("WINDOW_UPDATE"))) => "WINDOW_UPDATE",
                Some(("kind", Value::Text("HEADERS"))) => "HEADERS",
                Some(("kind", Value::Text("DATA"))) => "DATA",
                other => panic!("{other:?}"),
            };
            marks.iter().filter(|mark| mark.name == name).map(|mark| kind(&mark.values)).collect()
        };
        let opening = ["SETTINGS", "WINDOW_UPDATE"];
        assert_eq!(kinds("frame sent"), [&opening[..], &["HEADERS", "SETTINGS"]].concat());
        let answered = ["SETTINGS", "HEADERS", "DATA"];
        assert_eq!(kinds("frame received"), [&opening[..], &answered].concat());
        let named = |name| counters.iter().filter(|counter| counter.name == name).count();
        assert!(named("connection 7 may send") > 0 && named("connection 7 may receive") > 0);
        let streams: Vec<_> = marks[1..].iter().filter_map(|mark| mark.values.get(1)).collect();
        assert!(streams.contains(&&("stream", Value::Unsigned(1))), "{streams:?}");
    }
}

/// A request and its answer, of which the client is shown.
fn exchange() {
    let options = Arc::new(Options::default());
    let mut client = Connection::client(Arc::clone(&options));
    let mut server = Connection::server(options);
    client.show_on(Track::new(7), 7);
    let (mut heads, mut out) = (HeadPool::default(), Out::new());
    let number = client.open().unwrap();
    client.send_head(number, &Head::request(b"GET", b"http", b"a", b"/"), true, &mut out);
    client.flush(&mut out);
    server.receive(all_of(&mut out));
    while let Some((number, arrival)) = server.poll(&mut heads).unwrap() {
        assert!(matches!(arrival, Arrival::Part(Event::Head { end: true, .. })));
        server.send_head(number, &Head::response(200), false, &mut out);
        server.send_data(number, Bytes::from_static(b"hello"));
        server.send_end(number);
        server.release(number);
    }
    server.flush(&mut out);
    client.receive(all_of(&mut out));
    while client.poll(&mut heads).unwrap().is_some() {}
    client.flush(&mut out);
}

fn all_of(out: &mut Out) -> Bytes {
    let chunks: Vec<Bytes> = out.drain().collect();
    chunks.concat().into()
}
