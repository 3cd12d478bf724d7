//! Server-sent events (WHATWG HTML, §9.2), over connections that break.
//!
//! ```no_run
//! let engine = towpath::Engine::new()?;
//! for event in engine.client().get("https://example.org/news").events() {
//!     let event = event?;
//!     println!("{} {}", event.name(), event.data());
//! }
//! # Ok::<(), towpath::Error>(())
//! ```
//!
//! A stream that ends or breaks is asked for again, with `last-event-id` where the server gave one, until the server
//! answers 204 or something that is no event stream. One that broke is asked for at once, one that the server ended
//! after a second, or after what it said (`retry`), which holds for both; each attempt that fails doubles the pause, up
//! to 30 s, drawn from the upper half. 429 and 500, 502, 503 and 504 count as failed attempts, as does everything else
//! that may go well the next time; where the platform says that there is no network an attempt waits for one. A
//! connection on which nothing came for
//! 90 s ([`Request::gap_timeout`] is another time) is taken for broken: servers send comments in between.
//!
//! They are waited for by an iterator, which blocks, by futures ([`Events::next_async`]), or by callbacks
//! ([`Events::listen`]).

mod listener;
mod parser;

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

pub use listener::{Listener, Listening};

use crate::reconnects::{Reconnects, is_final, sleep_until};
use crate::timeline::Entry;
use crate::{Body, Error, Request, Response};
use parser::Parser;

/// What a server told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    name: String,
    data: String,
    id: String,
}

/// A stream of events, that goes on when its connection breaks. An [`Iterator`] for those that block; after an error
/// nothing comes. Dropping it ends it.
#[must_use = "nothing is sent until an event is asked for"]
pub struct Events {
    request: Request,
    parser: Parser,
    /// Not yet taken.
    events: VecDeque<Event>,
    phase: Phase,
    reconnects: Reconnects,
}

/// What happened beside events.
enum Change {
    Opened,
    /// The connection, or the attempt; and why.
    Broken(String),
}

enum Phase {
    /// It is asked for then.
    Closed {
        due: Option<Instant>,
    },
    Open(Box<Body>),
    /// What came before goes first.
    Failing(Error),
    Over,
}

impl Event {
    /// Its name; `message` where the server gave none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its lines, with line feeds between them.
    #[must_use]
    pub fn data(&self) -> &str {
        &self.data
    }

    /// The id that was last given when it came; empty without one.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Request {
    /// What the server tells, event by event, over as many connections as it takes: see [`crate::events`]. Limits on
    /// time are each connection's; that for the gap between two pieces is 90 s here, unless it was set.
    pub fn events(mut self) -> Events {
        self.options.gap.get_or_insert(GAP);
        let request = self
            .without("accept")
            .header("accept", "text/event-stream")
            .without("cache-control")
            .header("cache-control", "no-store")
            .wait_for_network()
            .no_resume();
        Events {
            request,
            parser: Parser::new(MOST_BYTES),
            events: VecDeque::new(),
            phase: Phase::Closed { due: None },
            reconnects: Reconnects::new("events"),
        }
    }
}

impl Events {
    /// Takes events of so many bytes at most, with all their lines; default 1 MiB. A longer one ends it with
    /// [`Error::Events`].
    pub const fn max_event_bytes(mut self, bytes: usize) -> Self {
        self.parser.most_bytes = bytes;
        self
    }

    /// Goes on behind this event, as the last life's [`Events::last_event_id`] said.
    pub fn after(mut self, id: &str) -> Self {
        id.clone_into(&mut self.parser.last_id);
        self
    }

    /// The id to go on from; empty without one.
    #[must_use]
    pub fn last_event_id(&self) -> &str {
        &self.parser.last_id
    }

    /// When it was opened, broke and was asked for again: the last 64 of such, with times since it was made.
    #[must_use]
    pub fn history(&self) -> &[Entry] {
        self.reconnects.history()
    }

    /// The next event, awaited; nothing after the last. Any executor will do.
    ///
    /// # Errors
    /// When the server answers with something that is no event stream, an event is too long, or the request cannot be
    /// sent as it is. Failures of the network are none.
    pub async fn next_async(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.is_over() {
                return Ok(None);
            }
            self.step_async().await?;
        }
    }

    /// The next event; nothing after the last. Blocks.
    fn next_blocking(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            match &mut self.phase {
                Phase::Over => return Ok(None),
                Phase::Failing(_) => return Err(self.fail()),
                Phase::Closed { due } => {
                    due.iter().copied().for_each(sleep_until);
                    let answered = self.attempt().send();
                    self.opened(answered)?;
                }
                Phase::Open(body) => {
                    let piece = body.chunk();
                    self.came(piece)?;
                }
            }
        }
    }

    const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// An attempt, or the next piece of what came.
    async fn step_async(&mut self) -> Result<Option<Change>, Error> {
        match &mut self.phase {
            Phase::Over => Ok(None),
            Phase::Failing(_) => Err(self.fail()),
            Phase::Closed { due } => {
                if let Some(due) = *due {
                    self.reconnects.until(due).await;
                }
                let answered = self.attempt().send_async().await;
                self.opened(answered)
            }
            Phase::Open(body) => {
                let piece = body.next().await;
                self.came(piece)
            }
        }
    }

    /// The request, from where it goes on.
    fn attempt(&self) -> Request {
        let request = self.request.clone();
        match self.parser.last_id.as_str() {
            "" => request,
            id => request.without("last-event-id").header("last-event-id", id),
        }
    }

    fn opened(&mut self, answered: Result<Response, Error>) -> Result<Option<Change>, Error> {
        let outcome = match answered {
            Err(error) if is_final(&error) => Err(error),
            Err(error) => return Ok(Some(self.break_off(true, error.to_string()))),
            Ok(response) => match response.status() {
                200 if is_event_stream(&response) => {
                    self.reconnects.note("the stream is open");
                    self.parser.begin();
                    self.phase = Phase::Open(Box::new(response.into_body()));
                    return Ok(Some(Change::Opened));
                }
                200 => Err(Error::Events("the answer is no event stream")),
                204 => Ok(None),
                status @ (429 | 500 | 502 | 503 | 504) => {
                    let why = format!("the server answered {status}");
                    return Ok(Some(self.break_off(false, why)));
                }
                status => Err(Error::Status(status)),
            },
        };
        self.phase = Phase::Over;
        outcome
    }

    fn came(
        &mut self,
        piece: Result<Option<bytes::Bytes>, Error>,
    ) -> Result<Option<Change>, Error> {
        let (broke, why) = match piece {
            Ok(Some(piece)) => {
                if self.parser.feed(&piece, &mut self.events).is_err() {
                    self.phase = Phase::Failing(Error::Events("an event is too long"));
                }
                if !self.events.is_empty() {
                    self.reconnects.succeeded();
                }
                return Ok(None);
            }
            Ok(None) => (false, "the server ended it".to_owned()),
            Err(error) if is_final(&error) => {
                self.phase = Phase::Over;
                return Err(error);
            }
            Err(error) => (true, error.to_string()),
        };
        Ok(Some(self.break_off(broke, why)))
    }

    fn fail(&mut self) -> Error {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Failing(error) => error,
            Phase::Closed { .. } | Phase::Open(_) | Phase::Over => Error::Stopped,
        }
    }

    fn break_off(&mut self, broke: bool, why: String) -> Change {
        let due = self.reconnects.pause(self.parser.retry, broke, &why);
        self.phase = Phase::Closed { due };
        Change::Broken(why)
    }
}

impl Iterator for Events {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_blocking().transpose()
    }
}

fn is_event_stream(response: &Response) -> bool {
    let media_type = response.header("content-type").and_then(|it| it.split(';').next());
    media_type.is_some_and(|it| it.trim().eq_ignore_ascii_case("text/event-stream"))
}

const MOST_BYTES: usize = 1 << 20;
const GAP: Duration = Duration::from_secs(90);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("request", &self.request).finish_non_exhaustive()
    }
}
