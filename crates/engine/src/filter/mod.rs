//! HTTP filters: what stands between a connection manager and its router.
//!
//! Arrives: the heads, pieces and ends of a stream, on the way in in the order of the chain, on the way out against it.
//! Leaves: the same, changed; or an answer of the filter's own.
//!
//! A filter is a folder in here with its configuration ([`FilterConfig`]), its counters and what it does
//! ([`HttpFilter`], and [`StreamFilter`] for a stream that it goes on with), and a folder of the same name in
//! `crates/config/src/convert/filter`, which reads it from a file. Nothing else knows of it.

pub mod ahead;
pub mod api_key_auth;
#[cfg(feature = "serving")]
pub mod bandwidth_limit;
#[cfg(feature = "serving")]
pub mod basic_auth;
pub mod buffer;
mod callout;
mod calls;
#[cfg(feature = "serving")]
mod coding;
#[cfg(feature = "serving")]
pub mod compressor;
pub mod cors;
pub mod credential_injector;
pub mod csrf;
pub mod custom_response;
#[cfg(feature = "serving")]
pub mod decompressor;
pub mod dynamic_forward_proxy;
#[cfg(feature = "serving")]
pub mod ext_authz;
#[cfg(feature = "serving")]
pub mod ext_proc;
pub mod fault;
pub mod grpc_http1_bridge;
#[cfg(feature = "serving")]
pub mod grpc_json_transcoder;
#[cfg(feature = "serving")]
pub mod grpc_service;
#[cfg(feature = "serving")]
pub mod grpc_stats;
pub mod grpc_web;
pub mod head_limits;
pub mod header_mutation;
pub mod header_to_metadata;
pub mod health_check;
pub mod istio_alpn;
pub mod istio_stats;
#[cfg(feature = "serving")]
pub mod jwt_authn;
pub mod local_ratelimit;
#[cfg(feature = "lua")]
pub mod lua;
pub mod matching;
pub mod missing;
#[cfg(feature = "serving")]
pub mod mutation_rules;
pub mod notes;
#[cfg(feature = "serving")]
pub mod oauth2;
pub mod pace;
#[cfg(feature = "serving")]
pub mod peer_metadata;
pub mod rate_limits;
#[cfg(feature = "serving")]
pub mod ratelimit;
pub mod rbac;
#[cfg(feature = "serving")]
mod realm;
pub mod set_filter_state;
pub mod set_metadata;
#[cfg(feature = "serving")]
pub mod stateful_session;
mod talk;
#[cfg(test)]
mod testing;
pub mod unrouted;
mod wanted;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towpath_proto::Head;
use towpath_proto::head::HeadPool;

use self::ahead::Ahead;
pub(crate) use self::callout::SpanName;
pub use self::callout::{Answer, Callout, CalloutSpan, Failed, Joint, OnAnswer};
use self::head_limits::HeadLimits;
use self::notes::Notes;
pub use self::talk::{Direction, Said, Step, TalkView};
pub use self::wanted::WantedHost;
use crate::format::Facts;
use crate::header_ops::Scratch;
use crate::matcher::Subject;
use crate::record::Flags;
use crate::stats::{FilterNames, Registry, Scope, StatSet};

/// A filter as the configuration has it, for all workers.
pub trait FilterConfig: Any + fmt::Debug + Send + Sync {
    /// Makes one worker's, with its own counters.
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter>;

    /// Whether it reads the record of a stream, which is kept only where something does.
    fn reads_record(&self) -> bool {
        false
    }

    /// Whether it is told of the end of every stream, as a log is.
    fn sees_ends(&self) -> bool {
        false
    }

    /// What it asks servers before requests need it.
    fn asked_ahead(&self) -> &[Arc<dyn Ahead>] {
        &[]
    }
}

/// A filter of one worker's chain.
pub trait HttpFilter: fmt::Debug {
    /// A request begins. Does nothing with it unless said otherwise.
    fn on_request(&self, _request: &mut RequestView<'_>) -> OnRequest {
        OnRequest::Pass
    }

    /// What it does with responses of streams that no [`StreamFilter`] of it goes with, if it does anything.
    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        None
    }

    /// Trailers come, of a stream that it sees between the router and a host.
    fn on_trailers(&self, _trailers: &mut TrailersView<'_>) {}

    /// A stream is over, whether it came as far as this filter or not. Of filters that [see ends].
    ///
    /// [see ends]: FilterConfig::sees_ends
    fn on_end(&self, _ended: &Ended<'_>) {}
}

/// What a filter does with responses that begin.
pub trait ResponseFilter: fmt::Debug {
    /// A response begins.
    fn on_response(&self, _response: &mut ResponseView<'_>) {}

    /// The same of a stream whose request it has not seen, for it was answered before: what talks goes with the stream
    /// from here on, and sees the response.
    fn join(&self, _response: &mut ResponseView<'_>) -> Option<Box<dyn StreamFilter>> {
        None
    }
}

/// A stream that is over.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// What became of it.
    pub facts: &'a Facts<'a>,
    /// What the filter had to do with it, if it came that far.
    pub watcher: Option<&'a dyn StreamFilter>,
}

/// What a filter does for one stream beyond the request's head.
pub trait StreamFilter: fmt::Debug {
    /// A piece of the request, which may become another, or nothing.
    ///
    /// # Errors
    /// The answer to a request that cannot go on.
    fn on_request_data(&mut self, _data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        Ok(())
    }

    /// The request is all here. What is answered goes before its end.
    ///
    /// # Errors
    /// The answer to a request that cannot go on.
    fn on_request_end(&mut self, _facts: &Facts<'_>) -> Result<Bytes, Reply> {
        Ok(Bytes::new())
    }

    /// Fields that are added behind the content of a request whose end it has seen.
    fn request_trailers(&mut self) -> Option<Head> {
        None
    }

    /// The same of a response.
    fn response_trailers(&mut self) -> Option<Head> {
        None
    }

    /// Keeps the end of the request, of one that talks, and its trailers, which it takes; it goes on with
    /// [`Step::End`]. Who does not keep it may have changed them.
    fn keeps_request_end(&mut self, _trailers: Option<&mut Head>, _facts: &Facts<'_>) -> bool {
        false
    }

    /// The same of a response.
    fn keeps_response_end(&mut self, _trailers: Option<&mut Head>, _facts: &Facts<'_>) -> bool {
        false
    }

    /// It talks, or holds content up, though it lets the request [wait](OnRequest::Wait).
    fn talks(&self) -> bool {
        false
    }

    /// What may be held in each direction, of one that talks.
    fn begin(&mut self, _room: Room) {}

    /// It hears something of its call.
    fn on_said(&mut self, _said: Said, _stream: &mut TalkView<'_>) {}

    /// What it wants done next.
    fn next_step(&mut self) -> Option<Step> {
        None
    }

    /// It holds as much of a direction as it may: nothing more is read for it.
    fn is_full(&self, _way: Direction) -> bool {
        false
    }

    /// Bytes of content that it holds.
    fn held(&self) -> usize {
        0
    }

    /// The host that the request is to go to, whatever the balancer would say (Envoy `setUpstreamOverrideHost`).
    fn wanted_host(&self) -> Option<&WantedHost> {
        None
    }

    /// What filters of its kind have in common for this stream.
    fn shared(&self) -> Option<&dyn Any> {
        None
    }

    /// The trailers of a request that has waited, for as long as it is looked at.
    fn lend_trailers(&mut self, _trailers: &mut Head) {}

    /// They are given back.
    fn return_trailers(&mut self, _trailers: &mut Head) {}

    /// What the server said that it asked with [`OnRequest::Ask`].
    fn on_answer(&mut self, _answer: &Answer, _request: &mut RequestView<'_>) -> OnAnswer {
        OnAnswer::GoOn
    }

    /// The time has passed that the request waited with [`OnRequest::Wait`].
    fn on_waited(&mut self, _request: &mut RequestView<'_>) -> OnAnswer {
        OnAnswer::GoOn
    }

    /// A request was collected. It goes on, is answered, or another server is asked first.
    fn on_collected(&mut self, _request: &mut RequestView<'_>) -> OnAnswer {
        OnAnswer::GoOn
    }

    /// A response begins; one of our own may take the place of another. Only a filter that talks can hold back a head
    /// without content.
    fn on_response_head(&mut self, _response: &mut ResponseView<'_>) -> Release {
        Release::Now
    }

    /// A piece of the response, which may become another, or nothing.
    ///
    /// # Errors
    /// What is answered instead, where nothing of the response has gone.
    fn on_response_data(&mut self, _data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        Ok(())
    }

    /// The response is all here. What is answered goes before its end; trailers that are left empty are none.
    fn on_response_end(&mut self, _trailers: Option<&mut Head>, _facts: &Facts<'_>) -> Bytes {
        Bytes::new()
    }

    /// The same where the head was held back; what is answered is all of the content.
    fn release(
        &mut self,
        _head: &mut Head,
        _trailers: Option<&mut Head>,
        _facts: &Facts<'_>,
    ) -> Bytes {
        Bytes::new()
    }
}

/// What becomes of a request whose head a filter has seen.
#[derive(Debug)]
pub enum OnRequest {
    /// The filter has nothing more to do with it.
    Pass,
    /// It goes on with the stream.
    Watch(Box<dyn StreamFilter>),
    /// The same, once the whole request is here, of at most so many bytes.
    Collect(Box<dyn StreamFilter>, usize),
    /// The same, once so many bytes of it are here, or the whole.
    CollectSome(Box<dyn StreamFilter>, usize),
    /// The same, once another server has been asked. Content that comes meanwhile waits, as far as the connection's
    /// buffer limit allows.
    Ask(Box<dyn StreamFilter>, Box<Callout>),
    /// The same, after a time. Content that comes meanwhile waits in the same way.
    Wait(Box<dyn StreamFilter>, Wait),
    /// It goes on with the stream and talks with a server meanwhile; the head waits for [`Step::GoOn`] if `waits`.
    Talk {
        /// What talks.
        watcher: Box<dyn StreamFilter>,
        /// Whether the head waits.
        waits: bool,
    },
    /// It waits until the name is known that it wants to go to, if its cluster goes by names.
    Resolve(Box<Resolve>),
    /// It is answered here.
    Answer(Reply),
}

/// A name that is to be known before a request goes on.
#[derive(Debug)]
pub struct Resolve {
    /// The DNS cache.
    pub cache: Arc<str>,
    /// The request's host from here on, if it gets another.
    pub host: Option<Box<[u8]>>,
    /// What filters say of host and port comes first.
    pub by_state: bool,
    /// How long it waits for a cluster that is made for it, where its own has such.
    pub within: Duration,
}

/// How a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How long.
    pub time: Duration,
    /// Response flags.
    pub flags: Flags,
}

/// When a response's head goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// At once.
    Now,
    /// With the end of the response, which the filter collects, and limits.
    AtEnd,
    /// With [`Step::GoOn`], of a filter that talks; the head may be all there is.
    Later,
}

/// An answer of a filter's own.
#[derive(Debug)]
pub struct Reply {
    /// Its head.
    pub head: Head,
    /// Its content.
    pub body: Vec<u8>,
    /// `%RESPONSE_CODE_DETAILS%`.
    pub details: &'static str,
    /// Response flags.
    pub flags: Flags,
    /// It counts among the responses of the route's cluster.
    pub charges_cluster: bool,
    /// It leaves as it is: neither its route, `local_reply_config` nor what gRPC's clients can read changes it.
    pub is_final: bool,
}

impl Reply {
    /// A status and a text.
    #[must_use]
    pub fn new(status: u16, body: &[u8], details: &'static str) -> Self {
        Self {
            head: Head::response(status),
            body: body.to_vec(),
            details,
            flags: Flags::default(),
            charges_cluster: false,
            is_final: false,
        }
    }
}

/// How many bytes a filter that talks may hold in each direction.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Above it, who sends is not read on.
    pub flow: usize,
    /// Of a message that is wanted as a whole: `per_connection_buffer_limit_bytes`, 1 MiB without it.
    pub whole: usize,
}

/// A request at a filter.
#[derive(Debug)]
pub struct RequestView<'a> {
    /// Its head.
    pub head: &'a mut Head,
    /// It has no content, or all of it is here.
    pub ends: bool,
    /// It has no content.
    pub is_empty: bool,
    /// What has come of its content, where the filter has waited.
    pub content: &'a mut Vec<Bytes>,
    /// What else is known of the stream.
    pub facts: &'a Facts<'a>,
    /// What its route says to the filter.
    pub route: RouteConfigs<'a>,
    /// There is a route.
    pub is_routed: bool,
    /// The route sends requests on.
    pub forwards: bool,
    /// Decides shares.
    pub random: u64,
    /// Memory for headers that are made.
    pub scratch: &'a mut Scratch,
    /// Heads for requests of the filter's own.
    pub heads: &'a mut HeadPool,
    /// The name of the node's own cluster.
    pub node_cluster: &'a str,
    /// This proxy wants no more traffic.
    pub drains: bool,
    /// Filters before it that go on with the stream, by their places.
    pub before: &'a [(usize, Box<dyn StreamFilter>)],
    /// Set by the filter: the request is to be routed anew before the next filter sees it (Envoy `clear_route_cache`).
    pub reroutes: bool,
    /// Set by the filter: the request checks this proxy's health.
    pub checks_health: bool,
}

impl RequestView<'_> {
    /// What matchers look at. Of the connection they see what the record has, which a filter has to ask for.
    #[must_use]
    pub fn subject(&self) -> Subject<'_> {
        let record = self.facts.record;
        Subject {
            local: record.downstream_local.as_ref(),
            direct: record.downstream_direct_remote.as_ref(),
            remote: record.downstream_remote.as_ref(),
            server_name: record.server_name.as_deref().unwrap_or_default(),
            tls: record.downstream_tls.as_deref(),
            request: Some(self.head),
            info: self.facts.info,
            facts: Some(self.facts),
            ..Subject::default()
        }
    }
}

/// A response at a filter.
#[derive(Debug)]
pub struct ResponseView<'a> {
    /// Its head.
    pub head: &'a mut Head,
    /// It has no content.
    pub ends: bool,
    /// What else is known of the stream.
    pub facts: &'a Facts<'a>,
    /// What its route says to the filter.
    pub route: RouteConfigs<'a>,
    /// Memory for headers that are made.
    pub scratch: &'a mut Scratch,
    /// The name of the node's own cluster.
    pub node_cluster: &'a str,
    /// The request checks this proxy's health.
    pub checks_health: bool,
    /// Health checks are told to fail.
    pub health_fails: bool,
    /// Set by the filter: what is answered in its place, which no other filter sees (Envoy `sendLocalReply`).
    pub reply: Option<Box<Reply>>,
}

/// Trailers at a filter.
#[derive(Debug)]
pub struct TrailersView<'a> {
    /// What they are.
    pub trailers: &'a mut Head,
    /// Whose.
    pub way: Direction,
    /// What else is known of the stream.
    pub facts: &'a Facts<'a>,
    /// What its route says to the filter.
    pub route: RouteConfigs<'a>,
    /// Memory for headers that are made.
    pub scratch: &'a mut Scratch,
}

/// What a filter's counters are made of.
#[derive(Clone, Debug)]
pub struct FilterScope {
    /// The connection manager's `stat_prefix`.
    pub prefix: Arc<str>,
    /// What scripts have to say.
    pub notes: Rc<Notes>,
    /// The filter stands between the router and hosts; the prefix is the statistics' name of its cluster.
    pub is_of_cluster: bool,
    /// How large requests may become.
    pub limits: HeadLimits,
    registry: Arc<Registry>,
    worker: u32,
}

impl FilterScope {
    /// The scope of a worker's chain.
    #[must_use]
    pub fn new(prefix: Arc<str>, notes: Rc<Notes>, registry: Arc<Registry>, worker: u32) -> Self {
        let limits = HeadLimits::default();
        Self { prefix, notes, is_of_cluster: false, limits, registry, worker }
    }

    /// The counters of `http.<stat prefix>.<filter>`; `family` is `http_<filter>`.
    #[must_use]
    pub fn stats<S: StatSet + Default>(&self, family: &'static str) -> Arc<S> {
        self.named(self.names(family))
    }

    /// What these counters are called: `http` and `cluster` say whose they are, which the family begins with.
    #[must_use]
    pub fn names(&self, family: &'static str) -> FilterNames {
        let (whose, filter) = family.split_once('_').unwrap_or(("http", family));
        let label = if whose == "cluster" { CLUSTER } else { MANAGER };
        let prefix = format!("{whose}.{}.{filter}", self.prefix);
        FilterNames::new(family, prefix).label(label, &self.prefix)
    }

    /// The counters that are called so.
    #[must_use]
    pub fn named<S: StatSet + Default>(&self, names: FilterNames) -> Arc<S> {
        self.registry.filter_set(self.worker, names)
    }

    /// The counters of any scope.
    #[must_use]
    pub fn set<S: StatSet + Default>(&self, scope: Scope) -> Arc<S> {
        self.registry.set(self.worker, scope)
    }
}

/// The labels that say whose counters are.
pub(crate) const MANAGER: &str = "envoy_http_conn_manager_prefix";
pub(crate) const CLUSTER: &str = "envoy_cluster_name";

/// Counters under prefixes that routes name too, each made when it is first asked for.
#[derive(Debug)]
pub(crate) struct ByPrefix<S> {
    scope: FilterScope,
    of_prefix: fn(&Arc<str>) -> FilterNames,
    known: RefCell<Vec<(Arc<str>, Arc<S>)>>,
}

impl<S: StatSet + Default> ByPrefix<S> {
    pub(crate) fn new(scope: FilterScope, of_prefix: fn(&Arc<str>) -> FilterNames) -> Self {
        Self { scope, of_prefix, known: RefCell::default() }
    }

    pub(crate) fn of(&self, prefix: &Arc<str>) -> Arc<S> {
        let mut known = self.known.borrow_mut();
        if let Some((_, stats)) = known.iter().find(|(one, _)| one == prefix) {
            return Arc::clone(stats);
        }
        let stats = self.scope.named((self.of_prefix)(prefix));
        known.push((Arc::clone(prefix), Arc::clone(&stats)));
        stats
    }
}

/// A filter's place in the configuration of a chain.
#[derive(Clone, Debug)]
pub struct ChainFilter {
    /// Its name there, by which routes speak to it.
    pub name: Arc<str>,
    /// Only routes that say so have it.
    pub disabled: bool,
    /// What it is.
    pub config: Arc<dyn FilterConfig>,
}

/// What a route, a virtual host or a table says to a filter.
pub trait RouteConfig: Any + fmt::Debug + Send + Sync {
    /// Whether the filter reads the record of a stream for it, though it does not [by itself].
    ///
    /// [by itself]: FilterConfig::reads_record
    fn reads_record(&self) -> bool {
        false
    }
}

/// One entry of `typed_per_filter_config`.
#[derive(Clone, Debug)]
pub struct FilterOverride {
    /// The filter's name in the chain; empty for the fields of a route that name none.
    pub filter: Arc<str>,
    /// Without this filter.
    pub disabled: bool,
    /// Its configuration there.
    pub config: Option<Arc<dyn RouteConfig>>,
}

/// What the levels of a stream's route say, the most specific first.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteConfigs<'a> {
    /// The filter's name in the chain.
    pub filter: &'a str,
    /// Weighted cluster, route, virtual host, table.
    pub levels: [&'a [FilterOverride]; 4],
}

impl<'a> RouteConfigs<'a> {
    /// All configurations, the most specific first.
    pub fn all<T: RouteConfig>(self) -> impl Iterator<Item = &'a T> {
        self.entries().filter_map(|entry| {
            let config: &dyn Any = entry.config.as_deref()?;
            config.downcast_ref()
        })
    }

    /// The most specific configuration.
    #[must_use]
    pub fn first<T: RouteConfig>(self) -> Option<&'a T> {
        self.all().next()
    }

    /// Whether a stream goes without the filter.
    #[must_use]
    pub fn disables(self, default: bool) -> bool {
        self.entries().next().map_or(default, |entry| entry.disabled)
    }

    /// What the older fields of routes say, which name no filter.
    #[must_use]
    pub const fn unnamed(self) -> Self {
        Self { filter: "", ..self }
    }

    fn entries(self) -> impl Iterator<Item = &'a FilterOverride> {
        let filter = self.filter;
        self.levels.into_iter().flatten().filter(move |entry| &*entry.filter == filter)
    }
}

/// Two pieces as one.
#[must_use]
pub(crate) fn joined(one: Bytes, other: Bytes) -> Bytes {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other,
        (false, true) => one,
        (false, false) => {
            let mut both = BytesMut::with_capacity(one.len() + other.len());
            both.extend_from_slice(&one);
            both.extend_from_slice(&other);
            both.freeze()
        }
    }
}
