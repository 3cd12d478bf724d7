//! What balancers see of a cluster: its hosts, or a part of them, as they weigh at a time.

use std::collections::HashMap;

use towpath_proto::Instant;

use super::{Host, slow_start};
use crate::snapshot::cluster::{Health, SlowStart};

/// The hosts of a cluster at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hosts<'a> {
    pub(super) all: &'a [Host],
    /// While some of them may have a part of their weight.
    slow_start: Option<&'a SlowStart>,
    /// Where they are not all of them.
    part: Option<&'a Part>,
    now: Instant,
}

/// A part of a cluster's hosts, as if there were no others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// Which: their places, in order.
    pub(crate) members: Box<[u32]>,
    /// What each one's locality weighs here, where that is not what is written.
    pub(crate) weights: Option<HashMap<u32, u32>>,
}

impl<'a> Hosts<'a> {
    /// `until`: when the last of them has all of its weight, where they begin slowly.
    #[inline]
    pub(super) fn new(
        all: &'a [Host],
        slow_start: Option<&'a SlowStart>,
        until: Option<Instant>,
        now: Instant,
    ) -> Self {
        let slow_start = until.filter(|until| now <= *until).and(slow_start);
        Self { all, slow_start, part: None, now }
    }

    /// The same of a part of them.
    pub(super) fn of_part(mut self, part: Option<&'a Part>) -> Self {
        self.part = part;
        self
    }

    /// The places of those that are wanted.
    pub(super) fn places(&self, wanted: impl Fn(&Host) -> bool) -> Box<[u32]> {
        let is_wanted = |place: &u32| self.get(*place).is_some_and(&wanted);
        match self.part {
            Some(part) => part.members.iter().copied().filter(is_wanted).collect(),
            None => (0_u32..).take(self.all.len()).filter(is_wanted).collect(),
        }
    }

    /// What the locality of a host weighs.
    pub(super) fn locality_weight(&self, host: u32) -> u32 {
        let scaled = self.part.and_then(|part| part.weights.as_ref()?.get(&host));
        let written = || self.get(host).map_or(0, |host| host.endpoint.locality_weight);
        scaled.copied().unwrap_or_else(written)
    }

    #[inline]
    pub(super) fn get(&self, host: u32) -> Option<&'a Host> {
        self.all.get(host as usize)
    }

    /// What is written of a host, which is at least 1.
    pub(super) fn written_weight(&self, host: u32) -> u64 {
        self.get(host).map_or(1, |host| host.endpoint.weight.max(1).into())
    }

    /// What a host is weighed as. A weight of 0 would never come again and counts as 1.
    pub(super) fn weight(&self, host: u32) -> f64 {
        let Some(host) = self.get(host) else { return 1.0 };
        let weight = f64::from(host.endpoint.weight.max(1));
        match (self.slow_start, host.healthy_since) {
            (Some(slow_start), Some(since)) if host.health() == Health::Healthy => {
                // One whose turn is never to be made out would not come again in any order.
                (weight * slow_start::part(slow_start, self.now.millis_since(since)))
                    .max(f64::MIN_POSITIVE)
            }
            _ => weight,
        }
    }

    /// Whether all of some hosts are weighed alike as long as none of them comes or goes.
    pub(super) fn are_even(&self, members: &[u32]) -> bool {
        let written = |host: &u32| self.get(*host).map_or(1, |host| host.endpoint.weight.max(1));
        let mut weights = members.iter().map(written);
        self.slow_start.is_none()
            && weights.next().is_none_or(|first| weights.all(|other| other == first))
    }
}
