//! The local interface: requests that come from this process, not from a listener.
//!
//! Arrives: an app's `Command`s. Leaves: a stream as any other, whose downstream side is not a socket but the app; and
//! [`Event`]s, of which exactly one ends each request.
//!
//! The app's side of a stream is a `Connection` without a socket: it has the same watermark, congestion and
//! reading as one that has, so that the forwarding loop treats it alike. What it is "sent" leaves as events, and
//! counts as outstanding until the app has used it.

pub(crate) mod avalanche;
pub(crate) mod back_off;
pub(crate) mod finder;
pub(crate) mod origin;

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use towpath_proto::tls::ClientTemplate;
use towpath_proto::{ConnectionId, Instant, QueryId};

use crate::client::answers::Answers;
use crate::client::avalanche::{Flow, Identical};
use crate::client::budget::{Budget, Rate};
use crate::client::memory::Memory;
use crate::client::resume::Resumable;
use crate::client::timeouts::Network;
use crate::env::Env;
use crate::local::message::{CallId, Error, Event, HttpVersions, Options, Outcome, Settings};
use crate::local::origin::OriginState;
use crate::local::report::Report;
use crate::message::FromWorker;
pub use crate::message::{app as message, report};
use crate::snapshot::ClusterId;

/// What a worker keeps for its app.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) settings: Settings,
    pub(crate) tls: Option<ClientTemplate>,
    /// Whether an app has ever made a request.
    pub(crate) is_used: bool,
    pub(crate) calls: FxHashMap<CallId, ConnectionId>,
    pub(crate) names: HashMap<OriginKey, ClusterId>,
    pub(crate) origins: FxHashMap<ClusterId, OriginState>,
    pub(crate) queries: FxHashMap<QueryId, ClusterId>,
    pub(crate) finds: FxHashMap<QueryId, message::Find>,
    pub(crate) next_query: u64,
    pub(crate) memory: Memory,
    pub(crate) answers: Answers,
    pub(crate) probes: Rate,
    pub(crate) budget: Budget,
    pub(crate) identical: Identical,
    pub(crate) flow: Flow,
    pub(crate) kind: Network,
    /// When an attempt was last answered, by whatever origin.
    pub(crate) answered: Instant,
    pub(crate) online: bool,
    pub(crate) spares_loopback: bool,
}

/// By what an origin's connections are shared.
pub(crate) type OriginKey = (message::Origin, HttpVersions, Option<Arc<message::Proxy>>);

impl Default for Local {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            tls: None,
            is_used: false,
            calls: FxHashMap::default(),
            names: HashMap::new(),
            origins: FxHashMap::default(),
            queries: FxHashMap::default(),
            finds: FxHashMap::default(),
            next_query: 0,
            memory: Memory::new(),
            answers: Answers::default(),
            probes: Rate::new(settings.probes_per_second, settings.probes_per_second * 2),
            budget: Budget::new(20, settings.max_repetitions),
            identical: Identical::new(settings.max_identical, settings.identical_window),
            flow: Flow::new(settings.max_flow_bytes, settings.flow_window),
            kind: Network::Fixed,
            answered: Instant::ZERO,
            online: true,
            spares_loopback: false,
            settings,
        }
    }
}

impl Local {
    /// Whether there is a path to an origin, as far as the platform says.
    pub(crate) fn reaches(&self, origin: &message::Origin) -> bool {
        self.online || self.is_exempt(origin)
    }

    /// Whether what the platform says of the network does not concern an origin.
    pub(crate) fn is_exempt(&self, origin: &message::Origin) -> bool {
        self.spares_loopback && origin.is_loopback()
    }
}

/// The app's side of a stream: its mux's place in the `Connection`.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) options: Options,
    pub(crate) report: Box<Report>,
    /// Why it failed, once it has.
    pub(crate) error: Option<Error>,
    /// When it began, and until when it last waited for a connection.
    pub(crate) began: Instant,
    pub(crate) waited_until: Option<Instant>,
    /// It waits for a standby connection while it is on another.
    pub(crate) standby: Option<Standby>,
    /// How often a server had done nothing for it, and said so.
    pub(crate) refused: u32,
    /// It has asked for one to see whether the network is there.
    pub(crate) silent_asked: bool,
    /// The one beside it, with the same number.
    pub(crate) duplicate: Option<ConnectionId>,
    /// The app hears nothing of it: its duplicate is the request, or was.
    pub(crate) secondary: bool,
    /// Fresh to it are connections that were opened later.
    pub(crate) fresh_after: Instant,
    /// Its response can go on on another connection.
    pub(crate) resume: Option<Box<Resume>>,
    /// How much the kernel had sent for good when its connection was last looked at.
    pub(crate) gone: Option<u64>,
    /// Bytes of its body that count to the limit already.
    pub(crate) counted: u64,
    /// Bytes that were taken from the app while the stream was held back.
    pub(crate) untaken: usize,
}

impl Call {
    pub(crate) fn new(id: CallId, options: Options, report: Box<Report>, began: Instant) -> Self {
        Self {
            id,
            counted: options.body_bytes,
            options,
            report,
            error: None,
            began,
            gone: None,
            waited_until: None,
            standby: None,
            refused: 0,
            silent_asked: false,
            duplicate: None,
            secondary: false,
            fresh_after: Instant::ZERO,
            resume: None,
            untaken: 0,
        }
    }
}

/// A wish for a connection beside the one that a request is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standby {
    pub(crate) pool_key: crate::ids::PoolKey,
    pub(crate) since: Instant,
    pub(crate) reason: StandbyReason,
}

/// What is held against the connection that a request is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandbyReason {
    /// What was sent is not acknowledged.
    Stuck,
    /// A PING was not answered in time.
    Unanswered,
    /// Nothing comes; whether the network or the server is to blame shows when the standby connects.
    Silent,
}

impl Local {
    pub(crate) fn take_settings(&mut self, settings: Settings) {
        self.probes =
            Rate::new(settings.probes_per_second, settings.probes_per_second.saturating_mul(2));
        self.budget = Budget::new(20, settings.max_repetitions);
        self.identical = Identical::new(settings.max_identical, settings.identical_window);
        self.flow = Flow::new(settings.max_flow_bytes, settings.flow_window);
        self.settings = settings;
    }
    /// Requests of the app that are under way.
    pub(crate) fn calls_in_flight(&self) -> u32 {
        u32::try_from(self.calls.len()).unwrap_or(u32::MAX)
    }
}

impl Env {
    /// Ends a request that does not begin.
    pub(crate) fn refuse_call(&mut self, call: CallId, error: Error, now: Instant) {
        let mut report = Box::new(Report::default());
        (report.record.start, report.record.end) = (now, Some(now));
        self.tell_app(Event::Ended { call, outcome: Outcome::Failed(error), report });
    }

    pub(crate) fn tell_app(&mut self, event: Event) {
        self.tell(FromWorker::Local(event));
    }
}

/// What a kernel sends on a new connection before anything is acknowledged: ten segments (RFC 6928).
pub(crate) const INITIAL_WINDOW_BYTES: u64 = 14_600;

/// What a request knows of its response, where that can go on.
#[derive(Debug)]
pub(crate) struct Resume {
    pub(crate) what: Resumable,
    /// Why the rest is asked for, while it is: the request's error if it does not come.
    pub(crate) asked: Option<Error>,
    /// How much had come when it was last looked at and something had, and when that was.
    pub(crate) moved: (u64, Instant),
}
