//! What a route changes in heads: header operations, host and path.
//!
//! Arrives: a stream that has its route, with the head of its request or response. Leaves: the head as the route has
//! it.

use std::borrow::Cow;

use towpath_proto::Instant;
use towpath_proto::head::Head;
use towpath_proto::name::Name;

use crate::exchange::Exchange;
use crate::exchange::log::Setting;
use crate::exchange::stream::{Routed, Stream};
use crate::format::{Facts, Format};
use crate::header_ops::{Scratch, Subject};
use crate::ids::StreamIndex;
use crate::route::rewrite::{is_printable, with_path};
use crate::snapshot::route::{
    Forward, HeaderOps, HostRewrite, PathMatch, PathRewrite, request_ops, response_ops,
};
use crate::uri::without_query;

impl Exchange {
    /// Header operations, host and path as the route has them.
    pub(crate) fn rewrite(&mut self, index: StreamIndex, forward: &Forward, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.request.present().is_none() {
            return;
        }
        let context = stream.context.clone();
        let Some(routed) = stream.route.and_then(|route| Routed::of(&context, route)) else {
            return;
        };
        if !is_rewritten(routed, forward) {
            return;
        }
        let mut head = stream.request.take();
        stream.complete_record();
        apply_header_ops(
            routed,
            Subject::Request,
            stream,
            &mut head,
            Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock },
            &mut self.env.scratch,
            now,
        );
        let quiet = stream.router().is_some_and(|router| router.suppress_envoy_headers);
        let host: Option<Vec<u8>> = match &forward.host {
            HostRewrite::Keep | HostRewrite::Auto => None,
            HostRewrite::Literal(host) => Some(host.to_vec()),
            HostRewrite::Header(name) => head.get_named(name).map(<[u8]>::to_vec),
            HostRewrite::PathRegex { pattern, substitution } => {
                let path = pattern.replace_all(without_query(head.path()), &substitution[..]);
                Some(path.into_owned())
            }
            HostRewrite::Format(format) => {
                let host = self.written(index, format, &head, now);
                Some(host).filter(|host| is_printable(host))
            }
        };
        if let Some(host) = host.filter(|host| !host.is_empty()) {
            set_host(&mut head, &host, forward, quiet);
        }
        if let Some(rewritten) = self.new_path(index, forward, &routed.route.path, &head, now) {
            if !quiet {
                let original = head.path().to_vec();
                head.set(Name::XEnvoyOriginalPath, &original);
            }
            head.set_path(&rewritten);
        }
        if let Some(stream) = self.streams.get_mut(index) {
            stream.request.put(head, &mut self.env.heads);
        }
    }

    /// The path as the route has it, if the route changes it.
    fn new_path(
        &self,
        index: StreamIndex,
        forward: &Forward,
        matched: &PathMatch,
        head: &Head,
        now: Instant,
    ) -> Option<Vec<u8>> {
        match &forward.path {
            PathRewrite::Keep => None,
            PathRewrite::Format(format) => {
                with_path(head.path(), &self.written(index, format, head, now))
            }
            // A filter may have changed the path since the template matched it.
            PathRewrite::Template { .. } => match forward.path.apply(matched, head.path()) {
                Cow::Owned(path) => Some(path),
                Cow::Borrowed(_) => None,
            },
            PathRewrite::Prefix(_) | PathRewrite::Regex { .. } => {
                Some(forward.path.apply(matched, head.path()).into_owned())
            }
        }
    }

    /// What a format says of a stream whose request's head has been taken out.
    fn written(&self, index: StreamIndex, format: &Format, head: &Head, now: Instant) -> Vec<u8> {
        let Some(stream) = self.streams.get(index) else { return Vec::new() };
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        written(format, stream, head, setting, now)
    }
}

/// What a format says of a stream with this head.
pub(crate) fn written(
    format: &Format,
    stream: &Stream,
    head: &Head,
    setting: Setting<'_>,
    now: Instant,
) -> Vec<u8> {
    let mut out = Vec::new();
    let facts = crate::exchange::log::facts(stream, None, setting, now);
    format.write(&mut out, &Facts { request: Some(head), ..facts });
    out
}

/// Applies the operations of all levels.
pub(crate) fn apply_header_ops(
    routed: Routed<'_>,
    subject: Subject,
    stream: &Stream,
    head: &mut Head,
    setting: Setting<'_>,
    scratch: &mut Scratch,
    now: Instant,
) {
    let weighted_host = match subject {
        Subject::Request | Subject::RequestTrailers | Subject::Call => {
            routed.weighted.and_then(|weighted| weighted.host_rewrite.as_deref())
        }
        Subject::Response | Subject::ResponseTrailers => None,
    };
    if weighted_host.is_none() && !changes(routed, subject) {
        return;
    }
    let facts = crate::exchange::log::facts(stream, None, setting, now);
    for (level, ops) in header_ops_of(routed, subject).into_iter().enumerate() {
        ops.apply(head, subject, &facts, scratch);
        // What follows the weighted cluster's own operations sees its host as if it had come so.
        if let Some(host) = weighted_host.filter(|_| level == 0) {
            head.set_authority(host);
        }
    }
}

/// Whether some level has operations.
pub(crate) fn changes(routed: Routed<'_>, subject: Subject) -> bool {
    header_ops_of(routed, subject).iter().any(|ops| !ops.is_empty())
}

fn header_ops_of(routed: Routed<'_>, subject: Subject) -> [&HeaderOps; 4] {
    let Routed { table, host, route, weighted, .. } = routed;
    match subject {
        Subject::Request | Subject::RequestTrailers | Subject::Call => {
            request_ops(table, host, route, weighted)
        }
        Subject::Response | Subject::ResponseTrailers => response_ops(table, host, route, weighted),
    }
}

/// Whether a route changes requests at all: most do not.
pub(crate) fn is_rewritten(routed: Routed<'_>, forward: &Forward) -> bool {
    !matches!(
        (&forward.path, &forward.host),
        (PathRewrite::Keep, HostRewrite::Keep | HostRewrite::Auto)
    ) || routed.weighted.is_some_and(|weighted| weighted.host_rewrite.is_some())
        || changes(routed, Subject::Request)
}

pub(crate) fn set_host(head: &mut Head, host: &[u8], forward: &Forward, quiet: bool) {
    let original = head.authority().to_vec();
    if !original.is_empty() {
        if !quiet {
            head.set(Name::XEnvoyOriginalHost, &original);
        }
        if forward.append_forwarded_host {
            append_forwarded_host(head, &original);
        }
    }
    head.set_authority(host);
}

/// As Envoy does: not a second time what was appended last.
fn append_forwarded_host(head: &mut Head, host: &[u8]) {
    let said = head.values(Name::XForwardedHost).collect::<Vec<_>>().join(&b","[..]);
    let mut hosts = said.split(|&byte| byte == b',').filter(|host| !host.is_empty());
    if hosts.next_back() != Some(host) {
        let all = if said.is_empty() { host.to_vec() } else { [&said, host].join(&b","[..]) };
        head.set(Name::XForwardedHost, &all);
    }
}
