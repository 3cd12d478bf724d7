//! `envoy.filters.http.stateful_session`: a client stays with the host that it had, as a cookie or a header of it says.
//!
//! Arrives: requests, maybe with the address of a host. Leaves: the wish for that host, which comes before any
//! balancer; and the address of another one that answered, in the response.

mod cookie;
mod stats;

use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use towpath_proto::{Head, HeaderName, Name};

pub use self::cookie::SessionCookie;
use self::stats::StatefulSessionStats;
use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, Release, RequestView, ResponseView,
    RouteConfig, StreamFilter, WantedHost,
};
use crate::format::Facts;
use crate::record::Flags;

/// Envoy `StatefulSession`.
#[derive(Debug)]
pub struct StatefulSession {
    /// `session_state`: where a client keeps the address; nothing does nothing but count.
    pub state: Option<SessionState>,
    /// `strict`: a client that names a host gets no other.
    pub strict: bool,
    /// `status_on_strict_destination_not_found`: of the answer where the cluster has no such host. 200 to 599, default
    /// 503.
    pub missing: u16,
    /// `stat_prefix`: its counters have it; empty means that there are none.
    pub stat_prefix: Arc<str>,
}

/// Where a client keeps the address.
#[derive(Debug)]
pub enum SessionState {
    /// `envoy.http.stateful_session.cookie`.
    Cookie(SessionCookie),
    /// `envoy.http.stateful_session.header`, of requests and responses.
    Header(HeaderName),
}

impl SessionState {
    /// Whether it has to do with a request.
    fn takes(&self, head: &Head) -> bool {
        match self {
            Self::Cookie(cookie) => cookie.takes(head.path()),
            Self::Header(_) => true,
        }
    }

    /// The address that a request names, at a time in seconds since 1970.
    fn read(&self, head: &Head, now: u64) -> Option<String> {
        match self {
            Self::Cookie(cookie) => cookie.read(head, now),
            Self::Header(name) => text(STANDARD.decode(head.get_named(name)?).ok()?),
        }
    }

    /// Tells a client of an address.
    fn write(&self, head: &mut Head, address: &str, now: u64) {
        match self {
            Self::Cookie(cookie) => {
                head.append(Name::SetCookie, &cookie.written(address, now));
            }
            Self::Header(name) => head.set_named(name, STANDARD.encode(address).as_bytes()),
        }
    }
}

/// Bytes as the text of an address; what is no text stands for a host that is not there.
fn text(bytes: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(bytes);
    let text = text.unwrap_or_else(|error| error.as_bytes().escape_ascii().to_string());
    Some(text).filter(|text| !text.is_empty())
}

/// The filter as all workers have it.
#[derive(Debug)]
pub struct SharedSession(pub Arc<StatefulSession>);

/// Envoy `StatefulSessionPerRoute`: another session, which is not counted; nothing means that there is none.
#[derive(Debug)]
pub struct RouteSession(pub Option<Arc<StatefulSession>>);

impl RouteConfig for RouteSession {}

impl FilterConfig for SharedSession {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let prefix = &self.0.stat_prefix;
        let stats = (!prefix.is_empty()).then(|| {
            let names = scope.names("http_stateful_session");
            scope.named(names.part("towpath_stateful_session_prefix", prefix))
        });
        Rc::new(Instance { config: Arc::clone(&self.0), stats })
    }

    fn reads_record(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance {
    config: Arc<StatefulSession>,
    stats: Option<Arc<StatefulSessionStats>>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let (config, stats) = match request.route.first::<RouteSession>() {
            Some(RouteSession(None)) => return OnRequest::Pass,
            Some(RouteSession(Some(config))) => (config, None),
            None => (&self.config, self.stats.clone()),
        };
        let state = config.state.as_ref().filter(|state| state.takes(request.head));
        let address = state.and_then(|state| state.read(request.head, unix_seconds(request.facts)));
        let wanted = address.as_deref().map(|address| WantedHost {
            address: WantedHost::address(address),
            strict: config.strict,
            missing: config.missing,
        });
        let takes = state.is_some();
        OnRequest::Watch(Box::new(Session {
            config: Arc::clone(config),
            stats,
            takes,
            address,
            wanted,
        }))
    }
}

/// One request of a client.
#[derive(Debug)]
struct Session {
    config: Arc<StatefulSession>,
    stats: Option<Arc<StatefulSessionStats>>,
    /// The state has to do with it.
    takes: bool,
    /// What it names.
    address: Option<String>,
    wanted: Option<WantedHost>,
}

impl StreamFilter for Session {
    fn wanted_host(&self) -> Option<&WantedHost> {
        self.wanted.as_ref()
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        let stats = self.stats.as_deref();
        let record = response.facts.record;
        let state = self.config.state.as_ref().filter(|_| self.takes);
        let counter = match (&record.upstream_host, state) {
            (Some(host), Some(state)) => {
                let host = host.to_string();
                if self.address.as_deref() == Some(&*host) {
                    stats.map(|stats| &stats.routed)
                } else {
                    state.write(response.head, &host, unix_seconds(response.facts));
                    stats.filter(|_| !self.config.strict).map(|stats| &stats.failed_open)
                }
            }
            (Some(_), None) => stats.map(|stats| &stats.no_session),
            (None, Some(_)) if self.config.strict => {
                let fails = record.flags.has(Flags::NO_HEALTHY_UPSTREAM);
                stats.filter(|_| fails).map(|stats| &stats.failed_closed)
            }
            (None, _) => None,
        };
        if let Some(counter) = counter {
            counter.inc();
        }
        Release::Now
    }
}

fn unix_seconds(facts: &Facts<'_>) -> u64 {
    facts.epoch_unix_ns.saturating_add(facts.now.as_nanos()) / 1_000_000_000
}
