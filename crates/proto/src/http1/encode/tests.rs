use super::super::{Options, Server};
use super::*;
use crate::{Event, HeadPool};

/// What a head's lines are when each is written on its own.
fn line_by_line(head: &Head, kept: &[Name]) -> Vec<u8> {
    let mut text = Vec::new();
    let stays = |field: &FieldRef<'_>| {
        field.name.is_framing()
            && (!kept.contains(&field.name)
                || (field.name == Name::Te && !field.value.eq_ignore_ascii_case(b"trailers")))
    };
    for field in head.iter().filter(|field| !stays(field)) {
        text.extend_from_slice(&field.name_bytes.to_ascii_lowercase());
        text.extend_from_slice(b": ");
        text.extend_from_slice(field.value);
        text.extend_from_slice(b"\r\n");
    }
    text
}

fn written(head: &Head, case: NameCase, kept: &[Name]) -> Vec<u8> {
    let mut lines = Lines::default();
    let kept = kept.iter().fold(Framing::default(), |kept, name| kept.with(*name, true));
    fields(&mut lines, head, case, kept);
    lines.as_bytes().to_vec()
}

fn parsed(head: &str) -> Option<Head> {
    let mut server = Server::new(Options::default().into());
    server.receive(head.as_bytes().to_vec().into());
    match server.poll(&mut HeadPool::default()) {
        Ok(Some(Event::Head { head, .. })) => Some(head),
        _ => None,
    }
}

#[test]
fn runs_are_what_lines_are_whatever_was_received_and_done_to_it() {
    let mut random = Random(1);
    let (mut heads, mut copied) = (0, 0);
    for seed in 0..40_000 {
        random.0 = seed;
        let mut text = String::from("GET / HTTP/1.1\r\n");
        for _ in 0..random.below(8) {
            text += random.pick(&NAMES);
            text += random.pick(&[":", ": ", ": ", ": ", ": ", ":  ", ":\t", ": \t"]);
            text += random.pick(&VALUES);
            text += random.pick(&["\r\n", "\r\n", "\r\n", "\r\n", " \r\n", "\t\r\n"]);
        }
        let Some(mut head) = parsed(&(text.clone() + "host: a\r\n\r\n")) else { continue };
        for _ in 0..random.below(6) {
            random.change(&mut head);
        }
        heads += 1;
        copied += head.fields().iter().filter(|field| field.written_line().is_some()).count();
        for kept in [&Name::ALL[1..12], &[], &[Name::Te], &[Name::Upgrade, Name::Trailer]] {
            let found = written(&head, NameCase::Lower, kept);
            let expected = line_by_line(&head, kept);
            assert_eq!(
                found.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{seed}: {text}"
            );
            let proper = written(&head, NameCase::Proper, kept);
            assert!(proper.eq_ignore_ascii_case(&expected), "{seed}: {text}");
        }
    }
    assert!(heads > 20_000 && copied > heads, "{heads} heads, {copied} marked lines");
}

#[test]
fn only_a_line_that_is_as_it_is_written_is_marked() {
    let marked = |line: &str| {
        let head = parsed(&format!("GET / HTTP/1.1\r\nhost: a\r\n{line}\r\n\r\n")).unwrap();
        head.fields()[0].written_line().is_some()
    };
    for line in ["x: a", "X-Y: a b\tc", "accept: */*", "ACCEPT: a", "x: ", "x: \u{e9}"] {
        assert!(marked(line), "{line:?}");
    }
    for line in ["x:a", "x:", "x:  a", "x:\ta", "x: \ta", "x: a ", "x: a\t", "x:   "] {
        assert!(!marked(line), "{line:?}");
    }
}

#[test]
fn lines_leave_as_one_piece_only_where_they_lie_side_by_side() {
    let mut head = parsed("GET / HTTP/1.1\r\nA: 1\r\nHost: h\r\nB: 2\r\nC: 3\r\n\r\n").unwrap();
    assert_eq!(written(&head, NameCase::Lower, &[]), b"a: 1\r\nb: 2\r\nc: 3\r\n");
    head.remove_bytes(b"b");
    head.set_bytes(b"A", b"9");
    head.append(Name::Via, b"v");
    head.append_bytes(b"D", b"4");
    head.append_bytes(b"e", b"5");
    head.set(Name::Via, b"w");
    let expected = b"a: 9\r\nc: 3\r\nvia: w\r\nd: 4\r\ne: 5\r\n";
    assert_eq!(
        written(&head, NameCase::Lower, &[]).escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
    assert_eq!(
        written(&head, NameCase::Proper, &[]),
        b"A: 9\r\nC: 3\r\nVia: w\r\nD: 4\r\nE: 5\r\n"
    );
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn change(&mut self, head: &mut Head) {
        let (name, value) = (self.pick(&NAMES).as_bytes(), self.pick(&VALUES).as_bytes());
        let known = Name::ALL[1 + self.below(Name::ALL.len() - 1)];
        match self.below(9) {
            0 => _ = head.append_bytes(name, value),
            1 => _ = head.set_bytes(name, value),
            2 => _ = head.remove_bytes(name),
            3 => _ = head.append(known, value),
            4 => _ = head.set(known, value),
            5 => _ = head.append(known, b"\r\nevil: \0x"),
            6 => _ = head.set_bytes(name, b" \nx\r"),
            7 => head.set_path(value),
            _ => head.retain(|field| field.value.len() != 3),
        }
    }
}

const NAMES: [&str; 14] = [
    "X-A",
    "x-a",
    "Accept",
    "user-agent",
    "Via",
    "VIA",
    "Upgrade",
    "trailer",
    "TE",
    "Expect",
    "x",
    "cookie",
    "X-Envoy-Upstream-Rq-Timeout-Alt-Response",
    "A-name-that-is-longer-than-any-block-of-thirty-two-bytes_",
];
const VALUES: [&str; 9] = [
    "",
    "a",
    "b c",
    "trailers",
    "1234567",
    "12345678",
    "*/*",
    "x: y",
    "a value that goes beyond the thirty-second byte of its line",
];
