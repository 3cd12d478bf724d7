//! One stream of discovery: what is wanted, what was accepted, and what to say about it.
//!
//! Arrives: wishes ([`Stream::want`]), messages, connects and their ends, answers about resources. Leaves: messages to
//! send, [`Update`]s to judge, fetches that took too long, resources whose time is over, and the next deadline.
//!
//! A request goes out only when the one before was answered or had nothing to answer; each kind of resource has its own
//! nonce and version. A refusal that says again what the last one said is held back for up to a second: some control
//! planes answer each with the same resources. What was accepted is kept by name with its version alone, so that a new
//! stream can begin where the last one ended (delta: `initial_resource_versions`; state of the world: `version_info`).

mod subscription;
#[cfg(test)]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test wants one output; every other one is wrong"
)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use towpath_proto::Instant;

use crate::backoff::Backoff;
use crate::limit::{Bucket, Limit};
use crate::types::Type;
use crate::wire::{self, DeltaRequest, DeltaResponse, DiscoveryRequest, DiscoveryResponse, Status};
use subscription::Subscription;

/// Which form of the protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `GRPC`: each response has all that there is, or all that was asked for.
    StateOfTheWorld,
    /// `DELTA_GRPC`: what changed.
    Delta,
}

/// How a stream is spoken.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The form.
    pub form: Form,
    /// A `Node`, encoded.
    pub node: Bytes,
    /// `set_node_on_first_message_only`.
    pub node_once: bool,
    /// Waits between connects.
    pub backoff: Backoff,
    /// How many resources a stream may have of a kind. A response beyond is not accepted.
    pub max_resources: usize,
    /// How many requests may be sent, if that is limited.
    pub limit: Option<Limit>,
}

/// What is wanted of a kind of resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All there is; and how long the first answer may take.
    All(Option<Duration>),
    /// All of a collection (the [`Name`](crate::Name) of one, as it is written); and how long the first answer may
    /// take.
    Collection(String, Option<Duration>),
    /// These names; and how long the first answer about each may take.
    Names(BTreeMap<String, Option<Duration>>),
}

/// A resource as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its message, encoded. Its type is that of the update.
    pub body: Bytes,
}

/// Resources to judge. The answer is owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Their kind.
    pub kind: Type,
    /// The response's version.
    pub version: String,
    /// What is new or may have changed.
    pub resources: Vec<Resource>,
    /// Names that are gone.
    pub removed: Vec<String>,
    /// What was wrong with the response itself; those resources are not in it.
    pub rejected: Vec<Rejected>,
}

/// A resource that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its name, empty for the whole response.
    pub name: String,
    /// Why: each line one thing.
    pub reason: String,
}

/// What a stream wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open a gRPC stream, and tell what came of it.
    Connect,
    /// Send this message.
    Send(Bytes),
    /// Judge this, and [`Stream::answer`].
    Update(Update),
    /// Nothing came in time; go on without.
    TimedOut {
        /// The kind.
        kind: Type,
        /// The names; empty for the wildcard.
        names: Vec<String>,
    },
    /// The time of these resources is over; they are gone as if they had been removed.
    Expired {
        /// The kind.
        kind: Type,
        /// The names.
        names: Vec<String>,
    },
    /// Nothing until then.
    Wait(Instant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// Connect then.
    Down(Instant),
    Connecting,
    Up,
}

/// See the module.
#[derive(Debug)]
pub struct Stream {
    settings: Settings,
    link: Link,
    /// The node was sent on this connection.
    introduced: bool,
    bucket: Option<Bucket>,
    /// Requests that had to wait for a token.
    held_up: u64,
    /// The next request is one of them.
    is_held_up: bool,
    /// In the order of the first wish.
    subscriptions: Vec<Subscription>,
    output: VecDeque<Output>,
}

impl Stream {
    /// A stream that wants nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            bucket: settings.limit.map(Bucket::new),
            held_up: 0,
            is_held_up: false,
            settings,
            link: Link::Down(Instant::ZERO),
            introduced: false,
            subscriptions: Vec::new(),
            output: VecDeque::new(),
        }
    }

    /// Says what is wanted of a kind from here on.
    pub fn want(&mut self, kind: Type, wanted: Wanted, now: Instant) {
        let index = self.subscriptions.iter().position(|it| it.kind == kind);
        let index = index.unwrap_or_else(|| {
            self.subscriptions.push(Subscription::new(kind));
            self.subscriptions.len() - 1
        });
        self.subscriptions[index].want(wanted, now);
    }

    /// The gRPC stream is open.
    pub fn connected(&mut self) {
        self.link = Link::Up;
        self.introduced = false;
        self.subscriptions.iter_mut().for_each(Subscription::connected);
    }

    /// It could not be opened, or ended.
    pub fn disconnected(&mut self, now: Instant) {
        self.link = Link::Down(now + self.settings.backoff.next_wait());
        self.subscriptions.iter_mut().for_each(Subscription::disconnected);
        // What was received on it and not judged yet is judged; its answer goes nowhere.
        self.output.retain(|output| !matches!(output, Output::Send(_)));
    }

    /// A message came.
    ///
    /// # Errors
    /// It cannot be read, so that no nonce is there to answer: the stream has to be closed.
    pub fn received(&mut self, message: Bytes, now: Instant) -> Result<(), Malformed> {
        match self.settings.form {
            Form::StateOfTheWorld => {
                let response = DiscoveryResponse::decode(message).map_err(|_| Malformed)?;
                self.received_world(response, now);
            }
            Form::Delta => {
                let response = DeltaResponse::decode(message).map_err(|_| Malformed)?;
                self.received_delta(response, now);
            }
        }
        // A control plane that answers is there.
        self.settings.backoff.reset();
        Ok(())
    }

    /// What became of the last update of a kind: it was taken but for these.
    pub fn answer(&mut self, kind: Type, rejected: &[Rejected]) {
        if let Some(subscription) = self.of(kind) {
            subscription.answer(rejected);
        }
    }

    /// What to do next.
    pub fn poll(&mut self, now: Instant) -> Output {
        if let Some(output) = self.output.pop_front() {
            return output;
        }
        for subscription in &mut self.subscriptions {
            if let Some(output) = subscription.overdue(now) {
                return output;
            }
        }
        match self.link {
            Link::Down(at) if at <= now && self.is_wanted() => {
                self.link = Link::Connecting;
                return Output::Connect;
            }
            Link::Up => {
                if let Some(output) = self.next_request(now) {
                    return output;
                }
            }
            Link::Down(_) | Link::Connecting => {}
        }
        Output::Wait(self.deadline().min(self.answers_due()))
    }

    /// Whether the stream is open.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link == Link::Up
    }

    /// How many requests had to wait because their number is limited.
    #[must_use]
    pub const fn held_up(&self) -> u64 {
        self.held_up
    }

    /// Whether anything is wanted of the control plane.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.subscriptions.iter().any(|subscription| subscription.is_wanted())
    }

    /// The version of a kind that was accepted last, as the control plane calls it.
    #[must_use]
    pub fn version(&self, kind: Type) -> Option<&str> {
        let subscription = self.subscriptions.iter().find(|it| it.kind == kind)?;
        Some(&subscription.version)
    }

    fn of(&mut self, kind: Type) -> Option<&mut Subscription> {
        self.subscriptions.iter_mut().find(|it| it.kind == kind)
    }

    fn deadline(&self) -> Instant {
        let link = match self.link {
            Link::Down(at) if self.is_wanted() => at,
            Link::Down(_) | Link::Connecting | Link::Up => Instant::FAR_FUTURE,
        };
        let timers = self.subscriptions.iter().map(Subscription::deadline);
        timers.fold(link, Instant::min)
    }

    /// When an answer is to go out that is held up.
    fn answers_due(&self) -> Instant {
        match self.link {
            Link::Up => {
                let due = self.subscriptions.iter().map(Subscription::answer_due);
                due.fold(Instant::FAR_FUTURE, Instant::min)
            }
            Link::Down(_) | Link::Connecting => Instant::FAR_FUTURE,
        }
    }

    fn received_world(&mut self, response: DiscoveryResponse, now: Instant) {
        let max = self.settings.max_resources;
        let subscription = Type::of_url(&response.type_url).and_then(|kind| self.of(kind));
        // Envoy leaves out what it did not ask for, too.
        let Some(subscription) = subscription else { return };
        let update = subscription.received_world(response, max, now);
        self.output.extend(update.map(Output::Update));
    }

    fn received_delta(&mut self, response: DeltaResponse, now: Instant) {
        let max = self.settings.max_resources;
        let subscription = Type::of_url(&response.type_url).and_then(|kind| self.of(kind));
        let Some(subscription) = subscription else { return };
        let update = subscription.received_delta(response, max, now);
        self.output.extend(update.map(Output::Update));
    }

    /// The next request, or the wait for a token that it takes.
    fn next_request(&mut self, now: Instant) -> Option<Output> {
        if let Some(bucket) = &mut self.bucket {
            let has_one = self.subscriptions.iter().any(|it| it.has_new_wish() || it.owes(now));
            if !has_one {
                return None;
            }
            let ready = bucket.ready_at();
            if ready > now {
                self.held_up += u64::from(!std::mem::replace(&mut self.is_held_up, true));
                return Some(Output::Wait(ready.min(self.deadline())));
            }
            self.is_held_up = false;
            bucket.take(now);
        }
        self.next_message(now).map(Output::Send)
    }

    /// The next request: new wishes in the order of the kinds' first, then answers. So a control plane hears what a
    /// new cluster needs before it hears that the cluster was taken, as from Envoy.
    fn next_message(&mut self, now: Instant) -> Option<Bytes> {
        let wishes = self.subscriptions.iter().position(Subscription::has_new_wish);
        let index = wishes.or_else(|| self.subscriptions.iter().position(|it| it.owes(now)))?;
        let node =
            (!self.introduced || !self.settings.node_once).then(|| self.settings.node.clone());
        self.introduced = true;
        let subscription = &mut self.subscriptions[index];
        Some(match self.settings.form {
            Form::StateOfTheWorld => encode(&subscription.world_request(node)),
            Form::Delta => encode(&subscription.delta_request(node)),
        })
    }
}

fn encode(message: &impl prost::Message) -> Bytes {
    Bytes::from(message.encode_to_vec())
}

/// A message that is not of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message that is no discovery response")]
pub struct Malformed;
