//! The outbox's own thread: sends what is due, hears what became of it, tells the ends.
//!
//! Arrives: orders, of the app's threads and of requests on the engine's. Leaves: requests, records of ends, and calls
//! of the app. Requests never wait for the file: what they have to say goes through the inbox.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use bytes::BytesMut;
use towpath_proto::Instant;

use super::log::Sync;
use super::record::{Limits, Message};
use super::schedule::Blame;
use super::{Ended, EntryId, Inner, OnEnd, Outcome};
use crate::call::Shared;
use crate::defaults::Defaults;
use crate::engine::random_seed;
use crate::request::{Canceller, Handler};
use crate::{Chunk, Client, Error, Failed, Repeat, Report, Request, Response};

pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    client: Client,
    inner: Arc<Inner>,
    inbox: Receiver<Order>,
    on_end: Option<OnEnd>,
    under_way: HashMap<u64, Canceller>,
    /// Ends that are not told yet.
    ended: VecDeque<u64>,
}

/// What the thread has to do.
pub(super) enum Order {
    /// Something was put.
    Look,
    /// The network is another.
    NetworkChanged,
    /// A request ended.
    Came(Came),
    /// An entry was taken out.
    GiveUp(u64),
    /// The outbox is closed.
    Close,
}

/// What became of a request.
pub(super) struct Came {
    id: u64,
    answer: Answer,
    outcome: Result<(), Error>,
    /// The changes of the network that had been there when it began.
    changes: u64,
}

#[derive(Default)]
struct Answer {
    /// Zero when there was none.
    status: u16,
    retry_after: Option<Duration>,
    body: BytesMut,
    cut: bool,
}

impl Dispatcher {
    pub(super) fn new(
        shared: Arc<Shared>,
        defaults: Arc<Defaults>,
        inner: Arc<Inner>,
        inbox: Receiver<Order>,
        on_end: Option<OnEnd>,
    ) -> Self {
        let state = inner.state();
        let ended = state.entries.iter().filter(|(_, held)| held.outcome.is_some());
        let ended = ended.map(|(id, _)| *id).collect();
        drop(state);
        let client = Client::new(Arc::clone(&shared), None).with_defaults(defaults);
        Self { shared, client, inner, inbox, on_end, under_way: HashMap::new(), ended }
    }

    pub(super) fn run(&mut self) {
        loop {
            self.tell_ends();
            self.send_what_is_due();
            let order = match self.wait() {
                None => self.inbox.recv().ok(),
                Some(limit) => match self.inbox.recv_timeout(limit) {
                    Ok(order) => Some(order),
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => None,
                },
            };
            match order {
                None | Some(Order::Close) => break,
                Some(Order::Look) => {}
                Some(Order::NetworkChanged) => self.inner.state().schedule.network_changed(),
                Some(Order::Came(came)) => self.take(came),
                Some(Order::GiveUp(id)) => {
                    if let Some(canceller) = self.under_way.remove(&id) {
                        canceller.cancel();
                    }
                }
            }
        }
        self.under_way.drain().for_each(|(_, canceller)| canceller.cancel());
    }

    /// Tells the app what has ended, with nothing locked.
    fn tell_ends(&mut self) {
        while let Some(id) = self.ended.pop_front() {
            let ended = {
                let state = self.inner.state();
                let held = state.entries.get(&id);
                held.and_then(|held| {
                    let (key, outcome) = (held.message.key.clone(), held.outcome.clone()?);
                    Some(Ended { id: EntryId(id), key, outcome })
                })
            };
            if let (Some(ended), Some(on_end)) = (&ended, &mut self.on_end) {
                on_end(ended);
            }
            let mut state = self.inner.state();
            if state.finish(id, Sync::Later).is_err() {
                // It is told again in the next life.
                state.forget(id);
            }
            drop(state);
            self.inner.changed.notify_all();
        }
    }

    /// How long nothing is due; `None` when only an order can change that.
    fn wait(&self) -> Option<Duration> {
        if !self.ended.is_empty() {
            return Some(Duration::ZERO);
        }
        let state = self.inner.state();
        let next = state.schedule.deadline().into_iter().chain(state.schedule.next_expiry()).min();
        next.map(|at| at - self.now())
    }

    fn send_what_is_due(&mut self) {
        let inner = Arc::clone(&self.inner);
        let now = self.now();
        let mut state = inner.state();
        while let Some(id) = state.schedule.expired(now) {
            state.schedule.remove(id);
            state.end(id, Outcome::Expired);
            self.ended.push_back(id);
        }
        while let Some(id) = state.schedule.next(now) {
            let Some(held) = state.entries.get_mut(&id) else { continue };
            held.tries = held.tries.saturating_add(1);
            let put = held.places.put;
            let message = state.log.read(put);
            let started = message.map(|message| self.send(id, &message));
            let blame = match started {
                Ok(Ok(canceller)) => {
                    self.under_way.insert(id, canceller);
                    continue;
                }
                // Nothing is left to send it.
                Ok(Err(Error::Stopped)) => Blame::Network,
                Ok(Err(_)) => Blame::Origin,
                Err(_) => Blame::Entry,
            };
            state.schedule.failed(id, blame, None, random_seed(), now);
        }
    }

    fn send(&self, id: u64, message: &Message) -> Result<Canceller, Error> {
        let post = Post {
            orders: self.inner.orders.clone(),
            id,
            answer: Answer::default(),
            most: self.inner.settings.response_bytes,
            changes: self.shared.network.changes(),
        };
        request(&self.client, message).send_with(post)
    }

    /// A request ended: its entry has, too, or waits for another time.
    fn take(&mut self, came: Came) {
        let Came { id, answer, outcome, changes } = came;
        if self.under_way.remove(&id).is_none() {
            return;
        }
        let changed = changes != self.shared.network.changes();
        let is_final = answer.status != 0 && (self.inner.settings.is_final)(answer.status);
        let now = self.now();
        let mut state = self.inner.state();
        if is_final {
            let whole = outcome.is_ok() && !answer.cut;
            let (status, body) = (answer.status, answer.body.freeze());
            state.schedule.answered(id);
            state.end(id, Outcome::Answered { status, body, whole });
            self.ended.push_back(id);
            return;
        }
        let blame = blame(answer.status, &outcome);
        if blame == Blame::Network && changed {
            state.schedule.again(id);
        } else {
            let at_least = answer.retry_after.or_else(|| back_off(&outcome));
            state.schedule.failed(id, blame, at_least, random_seed(), now);
        }
    }

    fn now(&self) -> Instant {
        self.inner.clock.now()
    }
}

/// What an answer that is not final, or none, is held against.
fn blame(status: u16, outcome: &Result<(), Error>) -> Blame {
    match (status, outcome) {
        (0, Err(Error::Stopped)) => Blame::Network,
        (0, Err(Error::Failed(failed))) if failed.why() == Failed::Offline => Blame::Network,
        (0 | 429 | 502..=504, _) => Blame::Origin,
        _ => Blame::Entry,
    }
}

/// How long the engine leaves an origin alone that had asked for it.
fn back_off(outcome: &Result<(), Error>) -> Option<Duration> {
    let Err(Error::Failed(failed)) = outcome else { return None };
    let Failed::Resting(left) = failed.why() else { return None };
    Some(left)
}

fn request(client: &Client, message: &Message) -> Request {
    let mut request = client.request(&message.method, &message.url).body(message.body.clone());
    for (name, value) in &message.fields {
        request = request.header(name, value);
    }
    let Limits { total, first_byte, gap } = message.limits;
    if let Some(limit) = total {
        request = request.timeout(Duration::from_millis(limit));
    }
    if let Some(limit) = first_byte {
        request = request.first_byte_timeout(Duration::from_millis(limit));
    }
    if let Some(limit) = gap {
        request = request.gap_timeout(Duration::from_millis(limit));
    }
    // The pauses are the outbox's own.
    request.repeat(Repeat::Always).fail_at_rest().redirects(0)
}

/// What hears of one request, on the engine's thread.
struct Post {
    orders: Sender<Order>,
    id: u64,
    answer: Answer,
    most: usize,
    changes: u64,
}

impl Handler for Post {
    fn on_head(&mut self, response: Response) {
        self.answer.status = response.status();
        // RFC 9110 §10.2.3: seconds; a date would need the server's clock.
        let seconds = response.header("retry-after").and_then(|value| value.trim().parse().ok());
        self.answer.retry_after = seconds.map(|s: u64| Duration::from_secs(s.min(LONGEST_ASKED_S)));
    }

    fn on_data(&mut self, chunk: Chunk) {
        let room = self.most - self.answer.body.len();
        self.answer.body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        self.answer.cut |= chunk.len() > room;
    }

    fn on_end(&mut self, outcome: Result<(), Error>, _report: Option<&Report>) {
        let (id, changes, answer) = (self.id, self.changes, std::mem::take(&mut self.answer));
        let _ = self.orders.send(Order::Came(Came { id, answer, outcome, changes }));
    }
}

/// A server may ask for no longer pause.
const LONGEST_ASKED_S: u64 = 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_held_against_whom_it_was_of() {
        let failed = |why: Failed| Err(Error::from(why));
        assert_eq!(blame(0, &failed(Failed::Offline)), Blame::Network);
        assert_eq!(blame(0, &Err(Error::Stopped)), Blame::Network);
        assert_eq!(blame(0, &failed(Failed::Disconnected)), Blame::Origin);
        assert_eq!(blame(503, &Ok(())), Blame::Origin);
        assert_eq!(blame(503, &failed(Failed::Disconnected)), Blame::Origin);
        assert_eq!(blame(500, &Ok(())), Blame::Entry);
        assert_eq!(blame(409, &Ok(())), Blame::Entry);
    }
}
