//! Copies of requests for other clusters (Envoy `request_mirror_policies`).
//!
//! Arrives: a request as it goes to its cluster, and its content. Leaves: a callout for each policy that takes the
//! request, once all of it is here; its answer is dropped.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_proto::name::Name;
use towpath_proto::{Head, Instant};

use crate::exchange::Exchange;
use crate::exchange::criteria::of_route;
use crate::exchange::edge::append_forwarded_for;
use crate::exchange::log::{Setting, facts};
use crate::exchange::router::expected_time;
use crate::exchange::stream::{Progress, Upgrade};
use crate::filter::{Callout, CalloutSpan, SpanName};
use crate::header_ops::Subject;
use crate::ids::{Kind, StreamIndex};
use crate::snapshot::route::{Mirror, MirrorCluster};
use crate::snapshot::subset::Criteria;

/// The copies of a request that is not complete yet.
#[derive(Debug)]
pub(crate) struct Copies {
    /// For each its cluster and its head, and whether its span is sampled, whatever its request is.
    heads: Vec<(Arc<str>, Head, Option<bool>)>,
    body: BytesMut,
    /// A body that is longer is not sent at all.
    limit: usize,
    timeout: Option<Duration>,
    /// Which subset of their clusters' hosts they are for.
    criteria: Option<Arc<Criteria>>,
}

impl Copies {
    /// Another piece of the request. Says whether it can still be copied.
    pub(crate) fn push(&mut self, data: &Bytes) -> bool {
        self.body.extend_from_slice(data);
        self.body.len() <= self.limit
    }
}

impl Exchange {
    /// Makes the copies of a request that leaves for its cluster, which has `timeout`. Those without content leave at
    /// once.
    pub(crate) fn begin_mirrors(
        &mut self,
        index: StreamIndex,
        mirrors: &[Mirror],
        timeout: Option<Duration>,
        now: Instant,
    ) {
        let own = self.own_address(index);
        let Some(stream) = self.streams.get_mut(index).filter(|it| it.upgrade == Upgrade::No)
        else {
            return;
        };
        let is_told = stream.router().is_some_and(|router| !router.suppress_envoy_headers);
        let expected = expected_time(stream, now).filter(|_| is_told);
        let mut heads = Vec::new();
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
            heads.push((Arc::clone(cluster), head, mirror.is_sampled));
        }
        if heads.is_empty() {
            return;
        }
        let mut copies = Copies {
            heads,
            body: BytesMut::new(),
            // What the proxy itself asks is all here.
            limit: match stream.kind {
                Kind::Callout(_) => usize::MAX,
                Kind::Http(_) | Kind::Rpc(_) | Kind::Tcp(_) | Kind::App => {
                    stream.context.listener.buffer_limit.bytes
                }
            },
            timeout,
            criteria: stream.routed().and_then(of_route),
        };
        if !stream.body.chunks().iter().all(|chunk| copies.push(chunk)) {
            return;
        }
        if stream.request_end == Progress::Ended {
            return self.send_copies(index, copies, now);
        }
        stream.filters_or_none().copies = Some(Box::new(copies));
    }

    /// The request is complete.
    pub(crate) fn send_copies(&mut self, of: StreamIndex, copies: Copies, now: Instant) {
        let Copies { heads, body, timeout, criteria, .. } = copies;
        let body = body.freeze();
        for (cluster, head, sampled) in heads {
            let callout = Callout {
                cluster,
                head,
                body: body.clone(),
                timeout: timeout.unwrap_or(LONGEST),
                max_bytes: 0,
                joint: None,
                retry: None,
                span: Some(CalloutSpan { sampled, ..CalloutSpan::new(SpanName::Fixed("mirror")) }),
            };
            self.call_out_to(Some(of), callout, criteria.clone(), now);
        }
    }
}

/// What says that a request is a copy, which the proxy at its `own` address has made.
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
