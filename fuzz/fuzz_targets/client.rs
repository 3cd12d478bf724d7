//! What a client reads beside messages: the first byte chooses `Retry-After`, the head of a response that goes on, an
//! outbox's file, what is remembered, or what a link's server does.
#![no_main]

use std::time::Duration;

use towpath_engine::client::resume::Resumable;
use towpath_engine::client::retry_after;
use towpath_proto::{Head, Name};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    match choice % 5 {
        0 => check_wait(bytes),
        1 => check_resumption(bytes),
        2 => towpath::fuzzing::check_outbox(bytes),
        3 => towpath::fuzzing::check_memory(bytes),
        _ => towpath::fuzzing::check_link(bytes),
    }
});

/// Eight bytes of our time, the value, and the server's own date behind a line's end.
fn check_wait(bytes: &[u8]) {
    let Some((unix_s, text)) = bytes.split_first_chunk() else { return };
    let unix_s = u64::from_le_bytes(*unix_s) % (FAR / 2);
    let mut lines = text.splitn(2, |byte| *byte == b'\n');
    let (value, date) = (lines.next().unwrap_or_default(), lines.next());
    let wait = retry_after::parse(value, date, unix_s);
    let digits = value.trim_ascii();
    let is_number = digits.iter().all(u8::is_ascii_digit) && !digits.is_empty();
    if is_number {
        assert!(wait.is_some(), "a number is always a wait");
    } else {
        assert!(wait <= Some(Duration::from_secs(FAR)), "no date is that far");
    }
    let spaced = [&b" "[..], value, &b"\t"[..]].concat();
    assert_eq!(retry_after::parse(&spaced, date, unix_s), wait, "spaces around it mean nothing");
}

/// How much has come, in eight bytes; and the fields of both responses, one a line, divided by an empty one.
fn check_resumption(bytes: &[u8]) {
    let Some((received, text)) = bytes.split_first_chunk() else { return };
    let received = u64::from_le_bytes(*received);
    let mut heads = [Head::response(200), Head::response(206)];
    let mut second = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        match (parts.next().unwrap_or_default(), parts.next()) {
            (b"", None) => second = 1,
            (name, value) => {
                let _ = heads[second].append_bytes(name, value.unwrap_or_default());
            }
        }
    }
    let [first, rest] = heads;
    let mut request = Head::request(b"GET", b"http", b"a", b"/");
    let Some(resumable) = Resumable::of(&request, &first) else { return };
    assert!(resumable.total() > 0, "there is nothing to go on with");
    resumable.ask(&mut request, received);
    assert!(request.get(Name::Range).is_some());
    assert_eq!(Resumable::of(&request, &first), None, "a part has no rest");
    if resumable.continues(&rest, received) {
        assert!(received < resumable.total(), "there is nothing behind the end");
        assert_eq!(rest.get(Name::Etag), first.get(Name::Etag), "it is another's rest");
    }
    assert!(!resumable.continues(&first, received), "a whole response is no rest");
}

/// Seconds of ten thousand years.
const FAR: u64 = 10_000 * 366 * 24 * 3600;
