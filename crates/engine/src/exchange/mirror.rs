//! Copies of requests for other clusters (Envoy `request_mirror_policies`).
//!
//! Arrives: a request as it goes to its cluster, and its content. Leaves: a callout for each policy that takes the
//! request, with the content as it comes; its answer is dropped. A copy that is slower than its request holds it up, as
//! in Envoy, and is given up with it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::name::Name;
use towpath_proto::{Head, Instant};

use crate::exchange::Exchange;
use crate::exchange::callout::FilterOf;
use crate::exchange::criteria::of_route;
use crate::exchange::edge::append_forwarded_for;
use crate::exchange::forward::Item;
use crate::exchange::log::{Setting, facts};
use crate::exchange::router::expected_time;
use crate::exchange::stream::{Progress, Upgrade, UpstreamState};
use crate::filter::{Callout, CalloutSpan, SpanName};
use crate::header_ops::Subject;
use crate::ids::StreamIndex;
use crate::snapshot::route::{Mirror, MirrorCluster};

/// A copy before it leaves.
struct Copied {
    cluster: Arc<str>,
    head: Head,
    /// Whether its span is sampled, whatever its request is.
    sampled: Option<bool>,
}

impl Exchange {
    /// Sends the copies of a request that leaves for its cluster, which has `timeout`.
    pub(crate) fn begin_mirrors(
        &mut self,
        index: StreamIndex,
        mirrors: &[Mirror],
        timeout: Option<Duration>,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get(index).filter(|it| it.upgrade == Upgrade::No) else {
            return;
        };
        let is_whole = stream.request_end == Progress::Ended && stream.body.trailers().is_none();
        if is_whole {
            let criteria = stream.routed().and_then(of_route);
            let body = stream.body.joined();
            for copied in self.copied(index, mirrors, now) {
                let callout = callout(copied, body.clone(), timeout);
                self.call_out_to(Some(index), callout, criteria.clone(), now);
            }
            return;
        }
        let trailers = stream.body.trailers().cloned();
        let of = FilterOf { stream: index, serial: stream.serial, place: 0 };
        let body = stream.body.joined();
        let copies = self.stream_mirrors((of, index), mirrors, &body, timeout, now);
        if trailers.is_some() {
            return self.end_copies(copies, trailers.as_ref(), now);
        }
        if let Some(stream) = self.streams.get_mut(index).filter(|_| !copies.is_empty()) {
            stream.filters_or_none().copies = copies;
        }
    }

    /// Begins copies of the request of a stream, to which more is added as it comes; also those of their clusters.
    fn stream_mirrors(
        &mut self,
        (of, index): (FilterOf, StreamIndex),
        mirrors: &[Mirror],
        body: &Bytes,
        timeout: Option<Duration>,
        now: Instant,
    ) -> Vec<u64> {
        let Some(stream) = self.streams.get(index) else { return Vec::new() };
        let criteria = stream.routed().and_then(of_route);
        let mut copies = Vec::new();
        for copied in self.copied(index, mirrors, now) {
            let own = self.mirrors_of(&copied.cluster);
            let callout = callout(copied, body.clone(), timeout);
            let serial = self.begin_copy(of, index, callout, criteria.clone(), now);
            copies.push(serial);
            let copy = self.callouts.stream_of(serial);
            if let (Some(own), Some(copy)) = (own, copy)
                && self.may_be_copied(copy)
            {
                copies.extend(self.stream_mirrors((of, copy), &own, body, timeout, now));
            }
        }
        copies
    }

    /// The copies that policies make of a request.
    fn copied(&mut self, index: StreamIndex, mirrors: &[Mirror], now: Instant) -> Vec<Copied> {
        let own = self.snapshot.node.address;
        let Some(stream) = self.streams.get_mut(index) else { return Vec::new() };
        let is_told = stream.router().is_some_and(|router| !router.suppress_envoy_headers);
        let expected = expected_time(stream, now).filter(|_| is_told);
        let mut copied = Vec::new();
        for mirror in mirrors {
            let random = self.env.random.next();
            if mirror.share.is_some_and(|share| !share.takes(random)) {
                continue;
            }
            let named = match &mirror.cluster {
                MirrorCluster::Named(name) => Some(&**name),
                MirrorCluster::Header(header) => stream.request.get_named(header).and_then(text),
            };
            let known = named.and_then(|name| self.snapshot.cluster_ids.get_key_value(name));
            let Some((cluster, _)) = known else { continue };
            stream.complete_record();
            let mut head = stream.request.clone();
            head.forget_spelling();
            let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
            let facts = facts(stream, None, setting, now);
            mirror.ops.apply(&mut head, Subject::Request, &facts, &mut self.env.scratch);
            mark(&mut head, mirror, own);
            if let Some(expected) = expected {
                let ms = u64::try_from(expected.as_millis()).unwrap_or(u64::MAX);
                head.set_number(Name::XEnvoyExpectedRqTimeoutMs, ms);
            }
            let cluster = Arc::clone(cluster);
            copied.push(Copied { cluster, head, sampled: mirror.is_sampled });
        }
        copied
    }

    /// Passes a piece of a request, and its end, to its copies.
    #[cold]
    pub(super) fn pass_to_copies(
        &mut self,
        index: StreamIndex,
        data: &Bytes,
        end: Option<&Item>,
        now: Instant,
    ) {
        let filters = self.streams.get_mut(index).and_then(|stream| stream.filters.as_mut());
        let Some(filters) = filters else { return };
        let copies = std::mem::take(&mut filters.copies);
        for copy in copies.iter().filter(|_| !data.is_empty()) {
            self.say(*copy, data.clone(), now);
        }
        match end {
            Some(Item::Trailers(trailers)) => self.end_copies(copies, Some(trailers), now),
            Some(Item::End | Item::Data(_)) => self.end_copies(copies, None, now),
            None => {
                let filters = self.streams.get_mut(index).and_then(|it| it.filters.as_mut());
                if let Some(filters) = filters {
                    filters.copies = copies;
                }
            }
        }
    }

    /// A request is complete: nothing more ties its copies to it.
    fn end_copies(&mut self, copies: Vec<u64>, trailers: Option<&Head>, now: Instant) {
        for copy in copies {
            self.end_request_of_copy(copy, trailers, now);
        }
    }

    /// Whether copies take more of a request: what waits for their hosts is bounded as what waits for its own.
    #[cold]
    pub(crate) fn copies_have_room(&self, copies: &[u64], limit: usize) -> bool {
        let streams = copies.iter().filter_map(|copy| self.callouts.stream_of(*copy));
        streams.filter_map(|index| self.streams.get(index)).all(|copy| match copy.upstream {
            UpstreamState::Active(leg) => self.conns.has_room(leg),
            UpstreamState::None | UpstreamState::Pending(_) | UpstreamState::BackingOff => {
                copy.body.len() < limit
            }
        })
    }
}

/// The request that a copy is.
fn callout(copied: Copied, body: Bytes, timeout: Option<Duration>) -> Callout {
    let Copied { cluster, head, sampled } = copied;
    Callout {
        cluster,
        head,
        body,
        timeout: timeout.unwrap_or(LONGEST),
        max_bytes: 0,
        joint: None,
        retry: None,
        span: Some(CalloutSpan { sampled, ..CalloutSpan::new(SpanName::Fixed("mirror")) }),
    }
}

/// What says that a request is a copy, made on the machine with the address `own`.
fn mark(head: &mut Head, mirror: &Mirror, own: Option<IpAddr>) {
    head.set(Name::XEnvoyInternal, b"true");
    if let Some(own) = own {
        append_forwarded_for(head, own);
    }
    if let Some(host) = &mirror.host {
        head.set_authority(host);
    } else if mirror.marks_host {
        let shadow = shadow_of(head.authority());
        head.set_authority(&shadow);
    }
}

/// `host-shadow`, before the port.
fn shadow_of(host: &[u8]) -> Vec<u8> {
    let colon = host.iter().rposition(|&byte| byte == b':');
    let (name, port) = host.split_at(colon.unwrap_or(host.len()));
    [name, b"-shadow", port].concat()
}

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok()
}

/// For a request whose own time has no limit.
const LONGEST: Duration = Duration::from_secs(3600);
