//! Server-sent events: from the client library's listener to events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath::events::{Event, Listener, Listening};

use crate::abi::{Bytes, Code, OnStreamEvent, StreamEvent, stream_event};
use crate::engine::{Engine, call_app};
use crate::failure::{Failure, Result, c_text, chain, code};
use crate::foreign::User;
use crate::request;

/// `towpath_stream`.
#[derive(Debug)]
pub struct Stream {
    listening: Listening,
    ended: Arc<AtomicBool>,
    /// Its engine is not freed before it.
    _open: Arc<()>,
}

/// What the options say, out of C's hands.
pub(crate) struct Wishes<'a> {
    pub(crate) on_event: (OnStreamEvent, User),
    pub(crate) last_event_id: &'a str,
    pub(crate) max_event_bytes: u64,
}

impl Wishes<'_> {
    pub(crate) fn open(self, engine: &Engine, wishes: request::Wishes<'_>) -> Result<Stream> {
        let mut events = wishes.request(&engine.client)?.events().after(self.last_event_id);
        if self.max_event_bytes != 0 {
            let bytes = usize::try_from(self.max_event_bytes).unwrap_or(usize::MAX);
            events = events.max_event_bytes(bytes);
        }
        let (on_event, user) = self.on_event;
        let ended = Arc::new(AtomicBool::new(false));
        let last_id = self.last_event_id.to_owned();
        let relay = Relay { on_event, user, last_id, ended: Arc::clone(&ended) };
        let _open = engine.link_token();
        Ok(Stream { listening: events.listen(relay)?, ended, _open })
    }
}

impl Stream {
    pub(crate) fn close(&self) {
        self.listening.close();
    }

    /// Refused before its END was told: the app may be called.
    pub(crate) fn may_be_freed(&self) -> Result<()> {
        if self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Failure::new(Code::State, "its END was not told yet: close it, and wait for that"))
    }
}

struct Relay {
    on_event: OnStreamEvent,
    user: User,
    last_id: String,
    ended: Arc<AtomicBool>,
}

impl Relay {
    fn tell(&self, event: StreamEvent) {
        let event = StreamEvent { user: self.user.0, id: lend(&self.last_id), ..event };
        call_app(|| (self.on_event)(&raw const event));
    }
}

impl Listener for Relay {
    fn on_open(&mut self) {
        self.tell(StreamEvent { kind: stream_event::OPEN, ..NOTHING });
    }

    fn on_event(&mut self, event: Event) {
        event.id().clone_into(&mut self.last_id);
        let (name, data) = (lend(event.name()), lend(event.data()));
        self.tell(StreamEvent { kind: stream_event::EVENT, name, data, ..NOTHING });
    }

    fn on_break(&mut self, why: &str) {
        let text = c_text(why);
        self.tell(StreamEvent { kind: stream_event::BREAK, text: text.as_ptr(), ..NOTHING });
    }

    fn on_end(&mut self, outcome: std::result::Result<(), towpath::Error>) {
        // Another thread may free it as soon as it hears of that.
        self.ended.store(true, Ordering::Release);
        let (error, status) = match &outcome {
            Ok(()) => (Code::Ok, 0),
            Err(towpath::Error::Status(status)) => (Code::Events, (*status).into()),
            Err(error) => (code(error), 0),
        };
        let text = c_text(&outcome.err().map(|error| chain(&error)).unwrap_or_default());
        let (error, text) = (error as i32, text.as_ptr());
        self.tell(StreamEvent { kind: stream_event::END, error, status, text, ..NOTHING });
    }
}

const fn lend(text: &str) -> Bytes {
    Bytes { data: text.as_ptr().cast(), length: text.len() }
}

/// An event that did not come.
const NOTHING: StreamEvent = StreamEvent {
    size: size_of::<StreamEvent>(),
    user: std::ptr::null_mut(),
    name: lend(""),
    data: lend(""),
    id: lend(""),
    text: c"".as_ptr(),
    kind: 0,
    error: 0,
    status: 0,
    reserved: 0,
};
