//! One round of attempts to connect: addresses come, as they are found; a usable connection leaves.
//!
//! The addresses have their turns in the order of the engine's memory. An attempt that fails gives the next its turn at
//! once. Under TLS a connection is usable when its handshake is over.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use towpath_engine::local::message::{Error as Failed, Found};
use towpath_proto::tls::Layer;
use towpath_proto::{AttemptId, Close, ConnectionId, Failure, Instant, Output};

use super::wire::LinkMessage;

#[derive(Debug)]
pub(super) struct Dial {
    /// The question that is not answered in full.
    pub(super) asking: Option<u64>,
    rest: VecDeque<SocketAddr>,
    tried: Vec<SocketAddr>,
    running: Vec<Attempt>,
    /// When the next address has its turn.
    next: Instant,
    stagger: Duration,
    failure: Failed,
}

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) id: AttemptId,
    pub(super) address: SocketAddr,
    pub(super) began: Instant,
    handshake: Option<(ConnectionId, Box<Layer>)>,
}

impl Dial {
    /// To an address that is known.
    pub(super) fn to(address: SocketAddr, now: Instant) -> Self {
        let mut dial = Self::asking(0, now);
        (dial.asking, dial.rest) = (None, [address].into());
        dial.failure = Failed::Connect(Failure::TimedOut);
        dial
    }

    /// To addresses that are asked for.
    pub(super) const fn asking(question: u64, now: Instant) -> Self {
        Self {
            asking: Some(question),
            rest: VecDeque::new(),
            tried: Vec::new(),
            running: Vec::new(),
            next: now,
            stagger: STAGGER,
            failure: Failed::Resolve(Failure::TimedOut),
        }
    }

    /// Addresses were found. Those that had their turn do not have another.
    pub(super) fn found(&mut self, found: Found, now: Instant) {
        if found.is_last {
            self.asking = None;
        }
        self.failure = found.failure.map_or(Failed::Connect(Failure::TimedOut), Failed::Resolve);
        self.stagger = found.stagger.map_or(STAGGER, |usual| usual.clamp(SHORTEST, LONGEST));
        for address in found.addresses {
            if self.tried.len() < MOST_ADDRESSES && !self.tried.contains(&address) {
                self.tried.push(address);
                self.rest.push_back(address);
            }
        }
        if self.running.is_empty() {
            self.next = now;
        }
    }

    /// The address whose turn it is.
    pub(super) fn due(&mut self, now: Instant) -> Option<SocketAddr> {
        if self.next > now {
            return None;
        }
        let address = self.rest.pop_front()?;
        self.next = now + self.stagger;
        Some(address)
    }

    pub(super) fn started(&mut self, id: AttemptId, address: SocketAddr, now: Instant) {
        self.running.push(Attempt { id, address, began: now, handshake: None });
    }

    /// An attempt has a connection, on which a handshake begins.
    pub(super) fn secures(&mut self, id: AttemptId, connection: ConnectionId, layer: Layer) {
        if let Some(attempt) = self.running.iter_mut().find(|attempt| attempt.id == id) {
            attempt.handshake = Some((connection, Box::new(layer)));
        }
    }

    /// The attempt whose handshake is on this connection.
    pub(super) fn handshake(
        &mut self,
        connection: ConnectionId,
    ) -> Option<(AttemptId, &mut Layer)> {
        self.running.iter_mut().find_map(|attempt| match &mut attempt.handshake {
            Some((on, layer)) if *on == connection => Some((attempt.id, &mut **layer)),
            Some(_) | None => None,
        })
    }

    /// An attempt came to nothing: the next has its turn.
    pub(super) fn failed(&mut self, id: AttemptId, why: Failed, now: Instant) -> Option<Attempt> {
        let attempt = self.take(id)?;
        self.failure = why;
        self.next = now;
        Some(attempt)
    }

    pub(super) fn take(&mut self, id: AttemptId) -> Option<Attempt> {
        let at = self.running.iter().position(|attempt| attempt.id == id)?;
        Some(self.running.remove(at))
    }

    /// Ends what is under way, and whose addresses that were.
    pub(super) fn give_up(&mut self, out: &mut VecDeque<Output<LinkMessage>>) -> Vec<Attempt> {
        for attempt in &self.running {
            out.push_back(match attempt.handshake {
                Some((connection, _)) => Output::Close { connection, how: Close::Abort },
                None => Output::CancelConnect { attempt: attempt.id },
            });
        }
        std::mem::take(&mut self.running)
    }

    /// Why it has come to nothing, once it has.
    pub(super) fn is_over(&self) -> Option<Failed> {
        let over = self.running.is_empty() && self.rest.is_empty() && self.asking.is_none();
        over.then_some(self.failure)
    }

    /// Why it has come to nothing, when its time is over.
    pub(super) const fn failure(&self) -> Failed {
        self.failure
    }

    pub(super) fn deadline(&self) -> Instant {
        if self.rest.is_empty() { Instant::FAR_FUTURE } else { self.next }
    }
}

impl Attempt {
    pub(super) fn into_layer(self) -> Option<Box<Layer>> {
        self.handshake.map(|(_, layer)| layer)
    }
}

/// From one attempt of a round to the next, where nothing is known (RFC 8305 §5).
const STAGGER: Duration = Duration::from_millis(250);
/// RFC 8305 §8.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// Of one round.
const MOST_ADDRESSES: usize = 32;
