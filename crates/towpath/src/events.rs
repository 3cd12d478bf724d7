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

mod parser;

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::background::Background;
use crate::engine::random_seed;
use crate::timeline::Entry;
use crate::{Body, Error, Failed, Request, Response};
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
    /// Attempts in a row after which no event came.
    failures: u32,
    began: Instant,
    history: Vec<Entry>,
    /// Ends the pauses of futures, for which there is no timer.
    timer: Background,
}

enum Phase {
    /// It is asked for then.
    Closed {
        due: Option<Instant>,
    },
    Open(Box<Body>),
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
            failures: 0,
            began: Instant::now(),
            history: Vec::new(),
            timer: Background::default(),
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
        &self.history
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
            match &mut self.phase {
                Phase::Over => return Ok(None),
                Phase::Closed { due } => {
                    if let Some(due) = *due {
                        self.until(due).await;
                    }
                    let answered = self.attempt().send_async().await;
                    self.opened(answered)?;
                }
                Phase::Open(body) => {
                    let piece = body.next().await;
                    self.came(piece)?;
                }
            }
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
                Phase::Closed { due } => {
                    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
                    left.into_iter().for_each(thread::sleep);
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

    /// The request, from where it goes on.
    fn attempt(&self) -> Request {
        let request = self.request.clone();
        match self.parser.last_id.as_str() {
            "" => request,
            id => request.without("last-event-id").header("last-event-id", id),
        }
    }

    fn opened(&mut self, answered: Result<Response, Error>) -> Result<(), Error> {
        let outcome = match answered {
            Err(error) if is_final(&error) => Err(error),
            Err(error) => {
                self.break_off(true, &error.to_string());
                return Ok(());
            }
            Ok(response) => match response.status() {
                200 if is_event_stream(&response) => {
                    self.tell("events: the stream is open".to_owned());
                    self.parser.begin();
                    self.phase = Phase::Open(Box::new(response.into_body()));
                    return Ok(());
                }
                200 => Err(Error::Events("the answer is no event stream")),
                204 => Ok(()),
                status @ (429 | 500 | 502 | 503 | 504) => {
                    self.break_off(false, &format!("the server answered {status}"));
                    return Ok(());
                }
                status => Err(Error::Status(status)),
            },
        };
        self.phase = Phase::Over;
        outcome
    }

    fn came(&mut self, piece: Result<Option<bytes::Bytes>, Error>) -> Result<(), Error> {
        let (broke, why) = match piece {
            Ok(Some(piece)) => {
                if self.parser.feed(&piece, &mut self.events).is_err() {
                    self.phase = Phase::Over;
                    return Err(Error::Events("an event is too long"));
                }
                if !self.events.is_empty() {
                    self.failures = 0;
                }
                return Ok(());
            }
            Ok(None) => (false, "the server ended it".to_owned()),
            Err(error) if is_final(&error) => {
                self.phase = Phase::Over;
                return Err(error);
            }
            Err(error) => (true, error.to_string()),
        };
        self.break_off(broke, &why);
        Ok(())
    }

    fn break_off(&mut self, broke: bool, why: &str) {
        let pause = pause(self.parser.retry, self.failures, broke, random_seed());
        self.failures = self.failures.saturating_add(1);
        self.tell(format!("events: again in {:.1} s: {why}", pause.as_secs_f64()));
        self.phase = Phase::Closed { due: Instant::now().checked_add(pause) };
    }

    fn tell(&mut self, what: String) {
        if self.history.len() == MOST_HISTORY {
            self.history.remove(0);
        }
        self.history.push(Entry { at: self.began.elapsed(), what });
    }

    /// Without a runtime's timer.
    async fn until(&self, due: Instant) {
        poll_fn(|context| {
            if Instant::now() >= due {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            self.timer.run_at(due, move || waker.wake());
            Poll::Pending
        })
        .await;
    }
}

impl Iterator for Events {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_blocking().transpose()
    }
}

/// How long to wait after so many failures before this one.
pub(crate) fn pause(retry: Option<Duration>, failures: u32, broke: bool, chance: u64) -> Duration {
    if broke && failures == 0 {
        return retry.unwrap_or_default().min(LONGEST_RETRY);
    }
    let usual = retry.unwrap_or(PAUSE).min(LONGEST_RETRY);
    let most = usual.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE.max(usual));
    if failures == 0 {
        return usual;
    }
    // What the server said is the least.
    let half = most / 2;
    let drawn = half + half.mul_f64((chance % 1024) as f64 / 1024.0);
    drawn.max(retry.unwrap_or_default().min(LONGEST_RETRY))
}

/// Whether it fails the next time as well.
pub(crate) fn is_final(error: &Error) -> bool {
    match error {
        Error::Failed(failed) => failed.why() == Failed::Cancelled,
        Error::Decoding(_) => false,
        Error::Url(_)
        | Error::NotAToken(_)
        | Error::Upload(_)
        | Error::Proxy(_)
        | Error::Redirect(_)
        | Error::Events(_)
        | Error::WebSocket(_)
        | Error::Status(_)
        | Error::Json(_)
        | Error::TooLarge(_)
        | Error::Tls(_)
        | Error::Engine(_)
        | Error::EngineThread
        | Error::Handler
        | Error::Stopped => true,
    }
}

fn is_event_stream(response: &Response) -> bool {
    let media_type = response.header("content-type").and_then(|it| it.split(';').next());
    media_type.is_some_and(|it| it.trim().eq_ignore_ascii_case("text/event-stream"))
}

const MOST_BYTES: usize = 1 << 20;
const GAP: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What a server may ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(86_400);
const MOST_HISTORY: usize = 64;

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("request", &self.request).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_no_shorter_than_the_server_said() {
        let s = Duration::from_secs;
        assert_eq!(pause(None, 0, true, 7), s(0));
        assert_eq!(pause(None, 0, false, 7), s(1));
        assert_eq!(pause(Some(s(5)), 0, true, 7), s(5));
        for chance in [0, 512, 1023] {
            for failures in 1..40 {
                let most = s(1 << failures.min(10)).min(s(30));
                let drawn = pause(None, failures, failures % 2 == 0, chance);
                assert!(most / 2 <= drawn && drawn <= most, "{failures} {drawn:?}");
                assert!(pause(Some(s(5)), failures, true, chance) >= s(5));
            }
        }
        assert_eq!(pause(Some(Duration::MAX), 30, false, 0), LONGEST_RETRY);
    }
}
