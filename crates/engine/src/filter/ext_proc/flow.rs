//! One direction of a stream: what is held of it, and what is waited for.

use std::collections::VecDeque;

use bytes::Bytes;
use towpath_proto::{Head, Name};

use super::BodyMode;
use crate::filter::{Direction, Step};

/// What a direction waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waits {
    /// Nothing.
    #[default]
    Idle,
    /// What is said of the head.
    Headers,
    /// Of the whole content.
    Buffered,
    /// Of a piece of it.
    Streamed,
    /// Of the first so many bytes.
    Partial,
    /// Of the trailers.
    Trailers,
}

/// What of a direction is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) headers: bool,
    pub(super) body: BodyMode,
    pub(super) trailers: bool,
}

impl Modes {
    /// Whether nothing is sent.
    pub(super) fn is_nothing(self) -> bool {
        !self.headers && self.body == BodyMode::None && !self.trailers
    }

    /// Whether it is not known how long the message becomes.
    pub(super) const fn forgets_length(self) -> bool {
        match self.body {
            BodyMode::None => false,
            BodyMode::Buffered => !self.headers,
            BodyMode::Streamed | BodyMode::BufferedPartial | BodyMode::FullDuplex => true,
        }
    }
}

/// A piece that the processor was shown.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) data: Bytes,
    pub(super) ends: bool,
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) way: Direction,
    pub(super) modes: Modes,
    pub(super) waits: Waits,
    /// The head waits here.
    pub(super) holds_head: bool,
    /// There is nothing but a head.
    pub(super) has_no_body: bool,
    /// All of the content is here.
    pub(super) is_whole: bool,
    /// Content or its end has come.
    pub(super) has_body: bool,
    /// The processor has given other content.
    pub(super) is_replaced: bool,
    /// The first so many bytes are through.
    pub(super) is_partly_done: bool,
    /// Content that the processor has not been shown, or that waits as a whole.
    held: Vec<Bytes>,
    held_bytes: usize,
    /// Content that it was shown, in pieces.
    pub(super) shown: VecDeque<Shown>,
    shown_bytes: usize,
    /// The end, and the trailers, if there are some.
    pub(super) end: Option<Option<Head>>,
    pub(super) has_sent_trailers: bool,
    /// Trailers have come.
    pub(super) came_with_trailers: bool,
    /// The server has ended it: what still comes of it is dropped.
    pub(super) is_over: bool,
    /// The processor has asked for more time.
    pub(super) is_extended: bool,
    /// The last answer for this direction has come.
    pub(super) is_last: bool,
    /// Its attributes were told.
    pub(super) told_attributes: bool,
    /// What the head said of its length, if it was changed.
    length: Option<Option<Vec<u8>>>,
}

impl Flow {
    pub(super) fn new(way: Direction, modes: Modes) -> Self {
        Self {
            way,
            modes,
            waits: Waits::Idle,
            holds_head: false,
            has_no_body: false,
            is_whole: false,
            has_body: false,
            is_replaced: false,
            is_partly_done: false,
            held: Vec::new(),
            held_bytes: 0,
            shown: VecDeque::new(),
            shown_bytes: 0,
            end: None,
            has_sent_trailers: false,
            came_with_trailers: false,
            is_over: false,
            is_extended: false,
            is_last: false,
            told_attributes: false,
            length: None,
        }
    }

    /// Bytes that are held.
    pub(super) const fn bytes(&self) -> usize {
        self.held_bytes + self.shown_bytes
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(super) const fn shown_bytes(&self) -> usize {
        self.shown_bytes
    }

    pub(super) fn hold(&mut self, data: Bytes) {
        self.held_bytes += data.len();
        if !data.is_empty() {
            self.held.push(data);
        }
    }

    /// What is held and not shown, as one piece; it stays.
    pub(super) fn held(&mut self) -> Bytes {
        if self.held.len() > 1 {
            self.held = vec![Bytes::from(self.held.concat())];
        }
        self.held.first().cloned().unwrap_or_default()
    }

    /// The same; it goes.
    pub(super) fn take_held(&mut self) -> Bytes {
        let held = self.held();
        self.held.clear();
        self.held_bytes = 0;
        held
    }

    /// Puts other content in the place of what is held.
    pub(super) fn replace_held(&mut self, data: Bytes) {
        self.take_held();
        self.hold(data);
    }

    pub(super) fn show(&mut self, data: Bytes, ends: bool) {
        self.shown_bytes += data.len();
        self.shown.push_back(Shown { data, ends });
    }

    pub(super) fn take_shown(&mut self) -> Option<Shown> {
        let shown = self.shown.pop_front()?;
        self.shown_bytes -= shown.data.len();
        Some(shown)
    }

    /// Makes one piece of all that were shown; answers what it is.
    pub(super) fn join_shown(&mut self) -> (Bytes, bool) {
        let ends = self.shown.back().is_some_and(|last| last.ends);
        if self.shown.len() > 1 {
            let mut all = Vec::with_capacity(self.shown_bytes);
            self.shown.iter().for_each(|piece| all.extend_from_slice(&piece.data));
            self.shown.clear();
            self.shown.push_back(Shown { data: all.into(), ends });
        }
        (self.shown.front().map(|piece| piece.data.clone()).unwrap_or_default(), ends)
    }

    pub(super) fn clear_shown(&mut self) {
        self.shown.clear();
        self.shown_bytes = 0;
    }

    /// Nothing of it goes on: neither what is held nor the head.
    pub(super) fn drop_all(&mut self) {
        self.take_held();
        self.clear_shown();
        self.end = None;
        self.holds_head = false;
    }

    /// Whether trailers are here and were not shown.
    pub(super) fn has_trailers(&self) -> bool {
        matches!(self.end, Some(Some(_)))
    }

    /// Lets go of the head, with this content, and of the end, if that is to `end`.
    pub(super) fn pass(&mut self, pieces: Vec<Bytes>, ends: bool, steps: &mut VecDeque<Step>) {
        let way = self.way;
        let end = if ends { self.end.take() } else { None };
        let pieces: Vec<Bytes> = pieces.into_iter().filter(|it| !it.is_empty()).collect();
        let is_head = pieces.is_empty() && end.is_none() && self.has_no_body;
        let go_on = std::mem::take(&mut self.holds_head)
            .then_some(Step::GoOn { way, ends: is_head && way == Direction::Response });
        let pieces = pieces.into_iter().map(|piece| Step::Pass(way, piece));
        let end = end.map(|trailers| Step::End(way, trailers));
        match way {
            // What the head's filters see with it is there before it goes on.
            Direction::Request => {
                steps.extend(pieces);
                steps.extend(end);
                steps.extend(go_on);
            }
            Direction::Response => {
                // Content in the place of none has an end of its own.
                let made = (self.has_no_body && !is_head).then_some(Step::End(way, None));
                steps.extend(go_on);
                steps.extend(pieces);
                steps.extend(end.or(made));
            }
        }
    }

    /// Lets go of all.
    pub(super) fn release(&mut self, steps: &mut VecDeque<Step>) {
        let mut pieces: Vec<Bytes> = self.shown.drain(..).map(|piece| piece.data).collect();
        self.shown_bytes = 0;
        pieces.push(self.take_held());
        self.pass(pieces, true, steps);
    }

    /// Before a head is changed: remembers its length.
    pub(super) fn remember_length(&mut self, head: &Head) {
        if self.length.is_none() {
            self.length = Some(head.get(Name::ContentLength).map(<[u8]>::to_vec));
        }
    }

    /// Sees to it that a changed head does not lie of its length: it says what it said, or nothing.
    pub(super) fn restore_length(&mut self, head: &mut Head) {
        let Some(before) = self.length.take() else { return };
        let after = head.get(Name::ContentLength);
        if after.is_none() || after == before.as_deref() {
            return;
        }
        head.remove(Name::ContentLength);
        if let Some(before) = before {
            head.set(Name::ContentLength, &before);
        }
    }

    /// The same of a message that is here as a whole.
    pub(super) fn correct_length(&mut self, head: &mut Head) {
        if self.length.take().is_some() && head.get(Name::ContentLength).is_some() {
            head.set_number(Name::ContentLength, self.held_bytes as u64);
        }
    }
}
