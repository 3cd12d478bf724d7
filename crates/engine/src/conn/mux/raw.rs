//! Opaque bytes, perhaps behind what their peer says first of itself.

use bytes::Bytes;
use towpath_proto::Event;

use crate::conn::mux::greeting::{Greeting, Heard};
use crate::serving::Serving;

/// The mux of opaque bytes.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    received: Option<Bytes>,
    end: End,
    /// Where the peer says first who it is.
    greeting: Option<Serving<Box<Greeting>>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    Seen,
    Told,
}

impl Raw {
    /// One that begins with what came behind a message.
    pub(super) fn after(leftover: Bytes) -> Self {
        let received = (!leftover.is_empty()).then_some(leftover);
        Self { received, ..Self::default() }
    }

    /// What the peer has said of itself, once.
    pub(super) fn take_heard(&mut self) -> Option<Heard> {
        self.greeting.as_mut()?.take_heard()
    }

    /// One whose peer says first who it is.
    pub(crate) fn greeted() -> Self {
        Self { greeting: Some(Serving::new(Box::default())), ..Self::default() }
    }

    pub(super) fn receive(&mut self, chunk: Bytes) {
        let chunk = match &mut self.greeting {
            Some(greeting) => greeting.receive(chunk),
            None => chunk,
        };
        self.received = (!chunk.is_empty()).then_some(chunk);
    }

    /// The peer will send nothing more.
    pub(super) fn ended(&mut self) {
        if self.end != End::Open {
            return;
        }
        self.end = End::Seen;
        if let Some(greeting) = &mut self.greeting
            && greeting.buffered() > 0
        {
            self.received = Some(greeting.end());
        }
    }

    pub(super) fn buffered(&self) -> usize {
        let greeting = self.greeting.as_ref().map_or(0, |greeting| greeting.buffered());
        greeting + self.received.as_ref().map_or(0, Bytes::len)
    }

    pub(super) fn poll(&mut self) -> Option<Event> {
        if let Some(chunk) = self.received.take() {
            return Some(Event::Data(chunk));
        }
        if self.end == End::Seen {
            self.end = End::Told;
            return Some(Event::End);
        }
        None
    }
}
