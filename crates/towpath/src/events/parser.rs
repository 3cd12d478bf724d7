//! The event stream format (WHATWG HTML, §9.2.5 and §9.2.6).
//!
//! Arrives: bytes, however they were cut. Leaves: events, what the server says of reconnecting, and the id to go on
//! from. A line, and an event with all its lines, is no longer than a limit.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use super::Event;

/// One stream's state. What a broken connection left of an event is dropped by [`Parser::begin`].
#[derive(Debug)]
pub(super) struct Parser {
    pub(super) most_bytes: usize,
    line: Vec<u8>,
    /// The byte before was a carriage return: a line feed belongs to it.
    after_return: bool,
    /// A byte order mark may come.
    at_start: bool,
    name: String,
    /// With a line feed behind each line.
    data: String,
    /// The id that the next event will have.
    id: String,
    /// That of the last blank line.
    pub(super) last_id: String,
    /// What the server wants between two connections.
    pub(super) retry: Option<Duration>,
}

/// A line or an event is longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Parser {
    pub(super) const fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            line: Vec::new(),
            after_return: false,
            at_start: true,
            name: String::new(),
            data: String::new(),
            id: String::new(),
            last_id: String::new(),
            retry: None,
        }
    }

    /// A new connection: what had not come to its blank line never was.
    pub(super) fn begin(&mut self) {
        self.line.clear();
        self.name.clear();
        self.data.clear();
        self.id.clone_from(&self.last_id);
        (self.after_return, self.at_start) = (false, true);
    }

    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        events: &mut VecDeque<Event>,
    ) -> Result<(), TooLong> {
        let mut left = bytes;
        while !left.is_empty() {
            if mem::take(&mut self.after_return) && left[0] == b'\n' {
                left = &left[1..];
                continue;
            }
            let end = left.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let piece = &left[..end.unwrap_or(left.len())];
            if self.line.len() + self.data.len() + piece.len() > self.most_bytes {
                return Err(TooLong);
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { return Ok(()) };
            self.after_return = left[end] == b'\r';
            left = &left[end + 1..];
            let line = mem::take(&mut self.line);
            events.extend(self.on_line(&line));
        }
        Ok(())
    }

    fn on_line(&mut self, line: &[u8]) -> Option<Event> {
        let mark = b"\xef\xbb\xbf";
        let line = match line.strip_prefix(mark) {
            Some(line) if self.at_start => line,
            Some(_) | None => line,
        };
        self.at_start = false;
        if line.is_empty() {
            return self.dispatch();
        }
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = Some(value.parse().map_or(Duration::MAX, Duration::from_millis));
            }
            // A comment has no name.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Event> {
        self.last_id.clone_from(&self.id);
        let (mut data, name) = (mem::take(&mut self.data), mem::take(&mut self.name));
        data.pop()?;
        let name = if name.is_empty() { "message".to_owned() } else { name };
        Some(Event { name, data, id: self.last_id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str, id: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned(), id: id.to_owned() }
    }

    fn parse(pieces: &[&[u8]]) -> (Vec<Event>, Parser) {
        let (mut parser, mut events) = (Parser::new(1000), VecDeque::new());
        for piece in pieces {
            parser.feed(piece, &mut events).unwrap();
        }
        (events.into(), parser)
    }

    #[test]
    fn the_standard_s_examples_are_read_as_it_says() {
        for (text, events) in [
            ("data: YHOO\ndata: +2\ndata: 10\n\n", vec![event("message", "YHOO\n+2\n10", "")]),
            (
                ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
                vec![
                    event("message", "first event", "1"),
                    event("message", "second event", ""),
                    event("message", " third event", ""),
                ],
            ),
            (
                "data\n\ndata\ndata\n\ndata:",
                vec![event("message", "", ""), event("message", "\n", "")],
            ),
            ("data:test\n\ndata: test\n\n", vec![event("message", "test", ""); 2]),
            (
                "event: add\ndata: 73857293\n\nevent: none\n\ndata: x\n\n",
                vec![event("add", "73857293", ""), event("message", "x", "")],
            ),
        ] {
            assert_eq!(parse(&[text.as_bytes()]).0, events, "{text:?}");
        }
    }

    #[test]
    fn every_cut_and_every_end_of_a_line_gives_the_same() {
        let text = "\u{feff}id: 7\r\ndata: \u{e4}\rdata: b\n\r\nretry: 1500\nevent: x\ndata: c\r\r";
        let bytes = text.as_bytes();
        let all = vec![event("message", "\u{e4}\nb", "7"), event("x", "c", "7")];
        for at in 0..=bytes.len() {
            let (events, parser) = parse(&[&bytes[..at], &bytes[at..]]);
            assert_eq!(events, all, "{at}");
            assert_eq!(parser.retry, Some(Duration::from_millis(1500)));
        }
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(parse(&bytewise).0, all);
    }

    #[test]
    fn ids_and_times_that_are_none_are_ignored() {
        let text = "id: 1\n\nid: 2\0\nretry: -1\nretry: 1s\nretry:\n\nid: 3\ndata: cut";
        let (events, mut parser) = parse(&[text.as_bytes()]);
        assert!(events.is_empty() && parser.retry.is_none());
        assert_eq!(parser.last_id, "1", "an event that did not end has no id");
        parser.begin();
        let mut events = VecDeque::new();
        parser.feed(b"data: x\n\nid\n\n", &mut events).unwrap();
        assert_eq!(events, [event("message", "x", "1")]);
        assert_eq!(parser.last_id, "");
        parser.feed(b"retry: 99999999999999999999\n", &mut events).unwrap();
        assert_eq!(parser.retry, Some(Duration::MAX));
    }

    #[test]
    fn lines_and_events_are_no_longer_than_the_limit() {
        let mut events = VecDeque::new();
        let line = |bytes: usize| format!("data:{}\n", "x".repeat(bytes - 5));
        assert_eq!(Parser::new(100).feed(line(100).as_bytes(), &mut events), Ok(()));
        assert_eq!(Parser::new(100).feed(line(101).as_bytes(), &mut events), Err(TooLong));
        let mut parser = Parser::new(100);
        assert_eq!(parser.feed(line(60).as_bytes(), &mut events), Ok(()));
        assert_eq!(parser.feed(line(60).as_bytes(), &mut events), Err(TooLong));
        let mut parser = Parser::new(100);
        for _ in 0..100 {
            parser.feed(b": a comment takes no room\n", &mut events).unwrap();
        }
    }
}
