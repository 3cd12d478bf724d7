//! Redirects of servers that are followed here.
//!
//! Arrives: a stream whose server has answered with one that its route wants followed. Leaves: that stream, ended and
//! logged, and another one on the same place of the client's connection, which brings the request anew, to where the
//! redirect says, through the filters again; or nothing, and the client is given the redirect. Follows Envoy's
//! `Router::Filter::setupRedirect` and `recreateStream`: what is brought anew is the request as the route and the
//! filters left it, with the content that is kept for another attempt, without trailers.

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::head::{Head, Method};
use towpath_proto::name::Name;
use towpath_proto::{Close, Instant};

use crate::conn::context::HttpContext;
use crate::exchange::Exchange;
use crate::exchange::forward::Item;
use crate::exchange::router::choose_cluster;
use crate::exchange::stream::{Progress, RouteRef, Routed, Stream, Upgrade};
use crate::exchange::tracing::TryEnd;
use crate::ids::{Kind, Leg, NO_CLUSTER, Side, StreamIndex};
use crate::record::details;
use crate::route::Picked;
use crate::snapshot::route::{InternalRedirects, RedirectPredicate};
use crate::stats::{Counter, HttpStats};
use crate::uri;

/// What a request knows of redirects that were followed for it.
#[derive(Debug, Default)]
pub(crate) struct Redirected {
    /// The stream's route has them followed.
    pub(crate) follows: bool,
    /// How many were followed.
    followed: u32,
    /// From which routes to which others they led, where that counts.
    seen: Vec<(Arc<str>, Arc<str>)>,
    /// What logs say of the route that the stream took, as Envoy's do: the one to which the last redirect leads, if any
    /// takes it, also where the client is given the redirect.
    shown: Option<Option<RouteRef>>,
    /// The stream ends with one.
    leaves: bool,
    /// The stream is being told of content that is here already.
    comes_again: bool,
}

/// Why a redirect goes to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The request is not here in whole any more, or not yet, or no location is named.
    Impossible,
    BadLocation,
    UnsafeScheme,
    TooMany,
    NoRoute,
    Predicate,
}

impl Refusal {
    fn counter(self, stats: &HttpStats) -> Option<&Counter> {
        Some(match self {
            Self::Impossible => return None,
            Self::BadLocation => &stats.passthrough_internal_redirect_bad_location,
            Self::UnsafeScheme => &stats.passthrough_internal_redirect_unsafe_scheme,
            Self::TooMany => &stats.passthrough_internal_redirect_too_many_redirects,
            Self::NoRoute => &stats.passthrough_internal_redirect_no_route,
            Self::Predicate => &stats.passthrough_internal_redirect_predicate,
        })
    }
}

impl Exchange {
    /// Follows the redirect with which a stream was answered; false, and nothing done, if it is none that is followed.
    #[cold]
    pub(crate) fn follow_redirect(
        &mut self,
        index: StreamIndex,
        leg: Leg,
        end: bool,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let context = stream.context.clone();
        let routed = stream.route.and_then(|route| Routed::of(&context, route));
        let policy = routed.and_then(|routed| routed.forward()?.internal_redirects.as_deref());
        let (Some(http), Some(routed), Some(policy)) = (context.http(), routed, policy) else {
            return false;
        };
        let may_follow = matches!(stream.kind, Kind::Http(_)) && stream.upgrade == Upgrade::No;
        if !may_follow || !policy.statuses.contains(&stream.response_status()) {
            return false;
        }
        let id = stream.downstream.connection;
        let is_tls = self.conns.table.get(id).is_some_and(|client| client.tls.is_some());
        let random = self.env.random.next();
        let target = stream.redirect_target(http, (policy, &routed.route.name), is_tls, random);
        let is_cut = !stream.body.whole;
        let stats = self.upstreams.clusters.get(stream.cluster).map(|cluster| &cluster.stats);
        match target {
            Ok(head) => {
                stats.inspect(|it| it.upstream_internal_redirect_succeeded_total.inc());
                self.begin_again(index, (leg, end), head, now);
                true
            }
            Err(refusal) => {
                stats.inspect(|it| {
                    it.upstream_internal_redirect_failed_total.inc();
                    if is_cut {
                        it.retry_or_shadow_abandoned.inc();
                    }
                });
                refusal.counter(&http.stats).inspect(|counter| counter.inc());
                false
            }
        }
    }

    /// Ends a stream and opens another one in its place.
    fn begin_again(
        &mut self,
        index: StreamIndex,
        (leg, end): (Leg, bool),
        head: Head,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.recorder.note(|record| record.details = details::INTERNAL_REDIRECT);
        stream.status = stream.response_status();
        let known = stream.redirected_mut();
        known.leaves = true;
        let mut known = Redirected {
            followed: known.followed.saturating_add(1),
            seen: std::mem::take(&mut known.seen),
            ..Redirected::default()
        };
        let keeps_content = head.method() == stream.request.method();
        let kept = stream.body.take_kept().filter(|_| keeps_content);
        let chunks: Vec<Bytes> = kept.map(|kept| kept.chunks).unwrap_or_default();
        stream.end_measuring_redirected(&head, now);
        if end {
            self.end_try_span(index, TryEnd::Answered, now);
            self.leave_upstream(index, leg, true, Close::Flush, now);
        } else {
            self.leave_answer(index, leg, now);
        }
        self.weigh(index);
        let Some(stream) = self.streams.get_mut(index) else { return };
        // Its logs tell of the request as it goes on.
        stream.request.put(head.clone(), &mut self.env.heads);
        let (Leg { connection: id, number }, times) = (stream.downstream, stream.times);
        let carried = stream.recorder.carried();
        let waiting = self.conns.waiting_for(id);
        let Some(connection) = self.conns.table.get_mut(id) else { return };
        connection.streams.unbind(number);
        let opened = self.streams.open_on(connection, number, waiting, &mut self.env, now);
        let Some((again, stream)) = opened else { return };
        stream.times.start = times.start;
        stream.recorder.carry(carried);
        known.comes_again = !chunks.is_empty();
        stream.request_end = if known.comes_again { Progress::Streaming } else { Progress::Ended };
        *stream.redirected_mut() = known;
        let serial = stream.serial;
        self.close_record(index, now);
        self.request_again(again, head, now);
        for chunk in chunks {
            if self.is_still(again, serial) {
                self.forward(again, Side::Request, Item::Data(chunk), now);
            }
        }
        if let Some(stream) = self.streams.get_mut(again)
            && stream.serial == serial
            && stream.comes_again()
        {
            stream.redirected_mut().comes_again = false;
            self.forward(again, Side::Request, Item::End, now);
        }
    }

    /// Has logs say where the last redirect of a stream leads.
    #[cold]
    pub(crate) fn show_redirect(&self, stream: &mut Stream) {
        let Some(route) = stream.redirected().and_then(|known| known.shown) else { return };
        let context = stream.context.clone();
        let routed = route.and_then(|route| Routed::of(&context, route));
        let forward = routed.and_then(|routed| routed.forward());
        let cluster = forward.and_then(|it| choose_cluster(&self.snapshot, stream, it, 0).0);
        let name = cluster.and_then(|id| self.upstreams.clusters.get(id));
        let name = name.map(|cluster| Arc::clone(&cluster.config.name));
        (stream.route, stream.cluster) = (route, cluster.unwrap_or(NO_CLUSTER));
        stream.recorder.note(|record| record.cluster = name);
    }

    /// Whether a stream is the one that it was.
    fn is_still(&self, index: StreamIndex, serial: u64) -> bool {
        self.streams.get(index).is_some_and(|stream| stream.serial == serial)
    }
}

impl Stream {
    /// Whether it ends because a redirect is followed.
    #[inline]
    pub(crate) fn is_redirected(&self) -> bool {
        self.redirected().is_some_and(|known| known.leaves)
    }

    /// Whether redirects are followed for it, or one was.
    #[inline]
    pub(crate) fn knows_redirects(&self) -> bool {
        self.redirected().is_some()
    }

    /// Whether it is being told of content that is here already.
    pub(crate) fn comes_again(&self) -> bool {
        self.redirected().is_some_and(|known| known.comes_again)
    }

    fn redirected(&self) -> Option<&Redirected> {
        self.retries.tried.as_deref()?.redirected.as_deref()
    }

    pub(crate) fn redirected_mut(&mut self) -> &mut Redirected {
        self.retries.tried.get_or_insert_default().redirected.get_or_insert_default()
    }

    /// The head of the request that follows a redirect from the route with this name.
    fn redirect_target(
        &mut self,
        http: &HttpContext,
        (policy, from): (&InternalRedirects, &Arc<str>),
        is_tls: bool,
        random: u64,
    ) -> Result<Head, Refusal> {
        let is_whole = self.request_end == Progress::Ended
            && self.upgrade == Upgrade::No
            && self.body.whole
            && !self.keeps_request_end();
        let location = self.response.present().and_then(|head| head.get(Name::Location));
        let location = location.filter(|_| is_whole).ok_or(Refusal::Impossible)?;
        let url = Url::parse(location).ok_or(Refusal::BadLocation)?;
        let was_http = self.request.scheme().eq_ignore_ascii_case(b"http") || !is_tls;
        let is_http = url.scheme.eq_ignore_ascii_case(b"http");
        if was_http != is_http && !policy.crosses_schemes {
            return Err(Refusal::UnsafeScheme);
        }
        if self.redirected().map_or(0, |known| known.followed) >= policy.most {
            return Err(Refusal::TooMany);
        }
        let mut head = Head::clone(&self.request);
        for name in &policy.copied {
            head.remove_named(name);
            for value in self.response.get_all(name) {
                head.append_named(name, value);
            }
        }
        let before = [if was_http { "http://" } else { "https://" }.as_bytes(), head.authority()];
        let before = [&before.concat(), head.path()].concat();
        head.set_scheme(url.scheme);
        head.set_authority(url.authority);
        head.set_path(url.target);
        let picked = http.config.routes.pick(&head, self.recorder.known(), random);
        self.recorder.note_lookup(None);
        let to = match &picked {
            Picked::NoHost | Picked::NoRoute { .. } => None,
            Picked::TlsRequired { .. } => Some("".into()),
            Picked::Route { route, .. } => Some(Arc::clone(&route.name)),
        };
        self.redirected_mut().shown = Some(RouteRef::picked(&picked));
        let to = to.ok_or(Refusal::NoRoute)?;
        for predicate in &policy.predicates {
            let is_true = match predicate {
                RedirectPredicate::Routes(names) => names.iter().any(|name| **name == *to),
                RedirectPredicate::NewRoute => self.is_new_route(from, &to),
                RedirectPredicate::Safe => was_http <= is_http,
            };
            if !is_true {
                return Err(Refusal::Predicate);
            }
        }
        // RFC 9110 §15.4.4: what it leads to is retrieved.
        let is_other = self.response_status() == 303;
        if is_other && !matches!(head.method(), Method::Get | Method::Head) {
            head.set_method(b"GET");
            head.remove(Name::ContentLength);
        }
        head.set(Name::XEnvoyOriginalUrl, &before);
        Ok(head)
    }

    /// Whether no redirect has led from one of these routes to the other; it has from here on.
    fn is_new_route(&mut self, from: &Arc<str>, to: &Arc<str>) -> bool {
        let seen = &mut self.redirected_mut().seen;
        let is_new = !seen.iter().any(|(old, other)| (old, other) == (from, to));
        if is_new {
            seen.push((Arc::clone(from), Arc::clone(to)));
        }
        is_new
    }
}

/// A `location` in its parts, as far as a request can go there.
#[derive(Debug, PartialEq, Eq)]
struct Url<'a> {
    scheme: &'a [u8],
    /// Host and port.
    authority: &'a [u8],
    /// Path and query; `/` where there is neither.
    target: &'a [u8],
}

impl<'a> Url<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        let (scheme, authority, rest) = uri::absolute(text)?;
        let authority = authority.rsplit(|byte| *byte == b'@').next()?;
        // A fragment needs a path or a query before it.
        if !is_host(authority) || rest.starts_with(b"#") {
            return None;
        }
        let target = if rest.is_empty() { b"/" } else { uri::without_fragment(rest) };
        Some(Self { scheme, authority, target })
    }
}

/// `host[:port]`.
fn is_host(authority: &[u8]) -> bool {
    let (host, port) = match authority.iter().position(|byte| *byte == b']') {
        Some(end) => authority.split_at(end + 1),
        None => authority
            .split_at(authority.iter().position(|byte| *byte == b':').unwrap_or(authority.len())),
    };
    let is_address = |inside: &[u8]| {
        let text = std::str::from_utf8(inside).ok();
        text.is_some_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
    };
    let inside = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]"));
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
    let has_host = match inside {
        Some(inside) => is_address(inside),
        None => !host.is_empty() && host.iter().all(is_name),
    };
    let digits = port.strip_prefix(b":").unwrap_or_default();
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u16>().ok());
    has_host && (port.is_empty() || (digits.iter().all(u8::is_ascii_digit) && number.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_name_a_host() {
        let parts = |text: &'static str| {
            let url = Url::parse(text.as_bytes())?;
            let text = |bytes| std::str::from_utf8(bytes).unwrap();
            Some((text(url.scheme), text(url.authority), text(url.target)))
        };
        assert_eq!(parts("http://a.test"), Some(("http", "a.test", "/")));
        assert_eq!(parts("HTTPS://u:p@a:80/b?c#d"), Some(("HTTPS", "a:80", "/b?c")));
        assert_eq!(parts("http://[::1]:80?c"), Some(("http", "[::1]:80", "?c")));
        for text in [
            "",
            "/a",
            "//a/b",
            "a.test/b",
            "http:///a",
            "http://a b/",
            "h2://a/",
            "http://a#b",
            "http://a:/",
            "http://a:x/",
            "http://a:70000/",
            "http://[::x]/",
            "http://a\"/",
            "http://@/",
        ] {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
