//! Heads that leave as they came: the case of their names, and a response's reason phrase.
//!
//! A head is written as any other, and then each name that stood in the received one gets the case that it had there
//! first: nothing else of the line changes, so there is no other way for a received byte to leave.

use super::encode;
use super::options::NameCase;
use crate::head::{Head, Version};
use crate::lines::Lines;

/// How the names of a head are written at first, on a side that has them so.
#[inline]
pub(super) fn case_of(head: &Head, side: NameCase) -> NameCase {
    head.kept().map_or(side, |kept| kept.others)
}

/// Gives the names in what was written from `start` on, which is `head`, the case in which they came.
#[inline]
pub(super) fn spell_as_received(lines: &mut Lines, start: usize, head: &Head) {
    if head.kept().is_some() {
        spell(lines.from(start), head.raw());
    }
}

#[cold]
fn spell(written: &mut [u8], received: &[u8]) {
    let mut names: Vec<&[u8]> =
        received.split(|byte| *byte == b'\n').skip(1).filter_map(name).collect();
    // The first of each comes first: sorting keeps the order of what is alike.
    names.sort_by(|a, b| compare(a, b));
    for line in written.split_mut(|byte| *byte == b'\n').skip(1) {
        let Some(length) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = &mut line[..length];
        let first = names.partition_point(|known| compare(known, name).is_lt());
        if let Some(known) = names.get(first).filter(|known| known.eq_ignore_ascii_case(name)) {
            name.copy_from_slice(known);
        }
    }
}

/// The name in a line.
fn name(line: &[u8]) -> Option<&[u8]> {
    line.iter().position(|byte| *byte == b':').map(|end| &line[..end])
}

fn compare(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
}

/// The first line of a response, with the phrase that it came with where that is kept.
#[inline(always)]
pub(super) fn status_line(lines: &mut Lines, version: Version, head: &Head) {
    let start = lines.len();
    encode::status_line(lines, version, head.status());
    if head.kept().is_some_and(|kept| kept.reason) {
        keep_reason(lines, start, head.raw());
    }
    if !head.reason().is_empty() {
        say_reason(lines, start, head.reason());
    }
}

#[cold]
fn keep_reason(lines: &mut Lines, start: usize, received: &[u8]) {
    let line = received.split(|byte| *byte == b'\r' || *byte == b'\n').find(|it| !it.is_empty());
    let phrase = line.and_then(|line| line.get(BEFORE..)).unwrap_or_default().trim_ascii();
    if !phrase.is_empty() {
        say_reason(lines, start, phrase);
    }
}

/// Puts this phrase in the place of the one that a first line ends with.
#[cold]
fn say_reason(lines: &mut Lines, start: usize, phrase: &[u8]) {
    lines.truncate(start + BEFORE);
    lines.put(phrase);
    lines.put_array(b"\r\n");
}

/// Of a first line, before the phrase.
const BEFORE: usize = "HTTP/1.1 200 ".len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_the_case_in_which_they_first_came() {
        let mut written = b"GET / HTTP/1.1\r\nhost: a\r\nx-own: b\r\nx-twice: c\r\n\r\n".to_vec();
        let received = b"GET / HTTP/1.1\r\nHOST: z\r\nX-Twice: 1\r\nx-TWICE: 2\r\nx-ow: 3\r\n\r\n";
        spell(&mut written, received);
        let expected = b"GET / HTTP/1.1\r\nHOST: a\r\nx-own: b\r\nX-Twice: c\r\n\r\n";
        assert_eq!(written, expected);
    }

    #[test]
    fn a_phrase_is_kept_where_there_is_one() {
        for (received, expected) in [
            (&b"HTTP/1.1 200 Very Fine\r\n\r\n"[..], &b"HTTP/1.1 200 Very Fine\r\n"[..]),
            (b"HTTP/1.1 200 \r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
            (b"HTTP/1.1 200\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        ] {
            let mut lines = Lines::default();
            encode::status_line(&mut lines, Version::Http11, 200);
            keep_reason(&mut lines, 0, received);
            assert_eq!(lines.as_bytes(), expected);
        }
    }
}
