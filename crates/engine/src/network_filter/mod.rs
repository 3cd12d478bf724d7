//! Network filters: what a client's connection passes before the filter that ends its chain.
//!
//! Arrives: that a connection begins, that its handshake is over, what its client sends. Leaves: objects of its filter
//! state and dynamic metadata, or its end.
//!
//! A filter is a folder in here with its configuration ([`NetworkFilterConfig`]), its counters and what it does
//! ([`NetworkFilter`]), and a file of the same name in `crates/config/src/convert/network_filter`, which reads it from
//! a file. Nothing else knows of it.

pub mod connection_limit;
pub mod local_ratelimit;
pub mod rbac;
pub mod set_filter_state;
pub mod sni_dynamic_forward_proxy;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Instant;

use self::sni_dynamic_forward_proxy::SniForward;
use crate::filter::set_filter_state::Setting;
use crate::matcher::Subject;
use crate::stats::Registry;
use crate::stream_info::{StreamInfo, Struct};

/// A filter as the configuration has it, for all workers.
pub trait NetworkFilterConfig: Any + fmt::Debug + Send + Sync {
    /// Makes one worker's, with its own counters.
    fn start(self: Arc<Self>, registry: &Registry, worker: u32) -> Box<dyn NetworkFilter>;

    /// Whether it counts where this one does: then connections go on with it, where it takes the other's place in their
    /// chain. By default where both are of one type.
    fn counts_with(&self, other: &dyn NetworkFilterConfig) -> bool {
        let other: &dyn Any = other;
        self.type_id() == other.type_id()
    }
}

/// A filter of one worker's chain. What it need not do is left out.
pub trait NetworkFilter: fmt::Debug {
    /// A connection begins, or goes on with this configuration of its chain. Answers how long it is held before it is
    /// closed, where there is no room for it; that is counted where it `counts`.
    fn enter(&self, _counts: bool) -> Option<Duration> {
        None
    }

    /// A connection that has entered is over.
    fn leave(&self) {}

    /// Whether one more connection may begin now; one that may not is closed.
    fn admits(&self, _now: Instant) -> bool {
        true
    }

    /// Objects of the connection's filter state, which are set then.
    fn settings(&self, _moment: Moment) -> &[Setting] {
        &[]
    }

    /// What it judges of what a client sends.
    fn judges(&self) -> Judges {
        Judges::default()
    }

    /// Judges a client by what is known when it sends something: whether its connection goes on.
    fn judge(&self, _subject: &Subject<'_>, _verdict: &mut Verdict) -> bool {
        true
    }

    /// Connections wait until the addresses of the server that they ask for are known.
    fn forward(&self) -> Option<&SniForward> {
        None
    }
}

/// When objects of a connection's filter state are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It begins.
    Accepted,
    /// Its handshake is over; without TLS when it begins.
    Secured,
    /// With its first bytes, before those are judged by filters behind.
    Received,
}

/// What filters judge of what a client sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judges {
    /// Its first bytes.
    pub first: bool,
    /// All that comes later as well.
    pub all: bool,
    /// By conditions, which look at more than matchers do.
    pub by_conditions: bool,
}

/// What filters say of a client.
#[derive(Debug, Default)]
pub struct Verdict {
    /// What refuses it: the details, and how long the connection is held then.
    pub refused: Option<(&'static str, Duration)>,
    /// Something was left in its dynamic metadata.
    pub leaves: bool,
}

impl Verdict {
    /// Leaves something for filters behind, and logs.
    fn leave(&mut self, info: Option<&StreamInfo>, namespace: &str, entries: Struct) {
        // What is too much for one connection is left out.
        self.leaves |= info.is_some_and(|info| info.add_metadata(namespace, entries).is_ok());
    }
}

/// Whether connections of a chain with some filters can go on with others in their place.
pub(crate) fn count_alike(
    these: &[Arc<dyn NetworkFilterConfig>],
    those: &[Arc<dyn NetworkFilterConfig>],
) -> bool {
    let counts = |(this, that): (&Arc<dyn NetworkFilterConfig>, &Arc<dyn NetworkFilterConfig>)| {
        this.counts_with(&**that)
    };
    these.len() == those.len() && these.iter().zip(those).all(counts)
}

/// The filters of one worker's chain, in order.
#[derive(Debug, Default)]
pub(crate) struct RunningFilters {
    list: Box<[Box<dyn NetworkFilter>]>,
    /// What they judge together.
    pub(crate) judges: Judges,
    /// One of them sets objects of the filter state.
    pub(crate) sets: bool,
    /// One does with the first bytes.
    pub(crate) sets_received: bool,
}

impl RunningFilters {
    pub(crate) fn start(
        configs: &[Arc<dyn NetworkFilterConfig>],
        registry: &Registry,
        worker: u32,
    ) -> Self {
        let list: Box<[_]> =
            configs.iter().map(|config| Arc::clone(config).start(registry, worker)).collect();
        let mut judges = Judges::default();
        for its in list.iter().map(|filter| filter.judges()) {
            judges.first |= its.first;
            judges.all |= its.all;
            judges.by_conditions |= its.by_conditions;
        }
        let set_at = |moment| list.iter().any(|filter| !filter.settings(moment).is_empty());
        let sets_received = set_at(Moment::Received);
        let sets = sets_received || set_at(Moment::Accepted) || set_at(Moment::Secured);
        Self { list, judges, sets, sets_received }
    }

    /// A connection begins, or has been moved from the chain's configuration before. Answers how long the first filter
    /// that has no room for it has it held; that counts it where the connection `is_new`.
    pub(crate) fn enter(&self, is_new: bool) -> Option<Duration> {
        let mut refused = None;
        for filter in &self.list {
            let delay = filter.enter(is_new && refused.is_none());
            refused = refused.or(delay);
        }
        refused
    }

    /// One is over for them.
    pub(crate) fn leave(&self) {
        self.list.iter().for_each(|filter| filter.leave());
    }

    /// Whether they let one more connection in.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        self.list.iter().all(|filter| filter.admits(now))
    }

    /// What they set then, in order.
    pub(crate) fn settings(&self, moment: Moment) -> impl Iterator<Item = &Setting> {
        self.list.iter().flat_map(move |filter| filter.settings(moment))
    }

    /// Whether they look at a client's first bytes.
    pub(crate) const fn looks_at_first_bytes(&self) -> bool {
        self.judges.first || self.sets_received
    }

    /// Shows what a client sends to those that look at it, in their order: the first bytes to all of them, later ones
    /// to those that judge all.
    pub(crate) fn judge(&self, subject: &Subject<'_>, is_first: bool) -> Verdict {
        let mut verdict = Verdict::default();
        for filter in &self.list {
            if is_first && let Some(facts) = subject.facts {
                let settings = filter.settings(Moment::Received);
                settings.iter().for_each(|setting| setting.write(facts));
            }
            let judges = filter.judges();
            let is_asked = if is_first { judges.first } else { judges.all };
            if is_asked && !filter.judge(subject, &mut verdict) {
                break;
            }
        }
        verdict
    }

    /// The one that has connections wait for their server's addresses.
    pub(crate) fn forward(&self) -> Option<&SniForward> {
        self.list.iter().find_map(|filter| filter.forward())
    }
}
