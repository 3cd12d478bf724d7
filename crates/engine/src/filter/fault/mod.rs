//! `envoy.filters.http.fault`: requests wait, or are answered with an error, to see what comes of it.

mod stats;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Head, Name};

use self::stats::{FaultClusterStats, FaultStats};
use super::pace::{Allowance, Pace};
use super::{
    Direction, FilterConfig, FilterScope, HttpFilter, OnAnswer, OnRequest, Reply, RequestView,
    Room, RouteConfig, Said, Step, StreamFilter, TalkView, Wait,
};
use crate::format::Facts;
use crate::fraction::Fraction;
use crate::grpc;
use crate::matcher::HeaderMatcher;
use crate::record::Flags;
use crate::stream_info::Struct;
use crate::total::Total;

/// Envoy `HTTPFault`, of a chain or of a route.
#[derive(Debug)]
pub struct Fault {
    /// `delay`.
    pub delay: Option<Delay>,
    /// `abort`.
    pub abort: Option<Abort>,
    /// `response_rate_limit`.
    pub rate: Option<Rate>,
    /// `upstream_cluster`: only requests to this one; empty means all.
    pub cluster: Box<str>,
    /// `headers`: only requests with all of these.
    pub headers: Vec<HeaderMatcher>,
    /// `downstream_nodes`: only requests of these; none means all.
    pub nodes: Vec<Box<str>>,
    /// `max_active_faults`.
    pub most_active: Option<u64>,
    /// Not `disable_downstream_cluster_stats`: faults are counted for each cluster that requests say they are from.
    pub counts_clusters: bool,
    /// `filter_metadata`, in the namespace that has the filter's name in its chain.
    pub metadata: Struct,
}

/// Envoy `FaultDelay`.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    /// `fixed_delay`; none means `header_delay`: the request says how long.
    pub time: Option<Duration>,
    /// `percentage`.
    pub share: Fraction,
}

/// Envoy `FaultRateLimit`.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// `fixed_limit`, in KiB for each second; none means `header_limit`: the request says how many.
    pub kib: Option<u64>,
    /// `percentage`.
    pub share: Fraction,
}

/// Envoy `FaultAbort`.
#[derive(Debug)]
pub struct Abort {
    /// How.
    pub how: AbortWith,
    /// `percentage`.
    pub share: Fraction,
    /// `response_body`.
    pub body: Option<Box<str>>,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortWith {
    /// `http_status`.
    Http(u16),
    /// `grpc_status`.
    Grpc(u32),
    /// `header_abort`: the request says it.
    Header,
}

/// A configuration for all workers, or for all requests of a route.
#[derive(Clone, Debug)]
pub struct SharedFault {
    config: Arc<Fault>,
    active: Arc<Total>,
}

impl SharedFault {
    /// Without a fault under way.
    #[must_use]
    pub fn new(config: Fault) -> Self {
        Self { config: Arc::new(config), active: Arc::default() }
    }
}

impl RouteConfig for SharedFault {}

impl FilterConfig for SharedFault {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance(Rc::new(Shared {
            config: Arc::clone(&self.config),
            active: Arc::clone(&self.active),
            stats: scope.stats("http_fault"),
            scope: scope.clone(),
            clusters: RefCell::default(),
        })))
    }

    /// Routes may say what is left as metadata.
    fn reads_record(&self) -> bool {
        true
    }
}

/// One worker's.
#[derive(Debug)]
struct Shared {
    config: Arc<Fault>,
    active: Arc<Total>,
    stats: Arc<FaultStats>,
    scope: FilterScope,
    clusters: RefCell<HashMap<Box<str>, Arc<FaultClusterStats>>>,
}

#[derive(Debug)]
struct Instance(Rc<Shared>);

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let shared = &self.0;
        let by_route = request.route.first::<SharedFault>();
        let config = by_route.map_or(&shared.config, |route| &route.config);
        if !config.concerns(request) {
            return OnRequest::Pass;
        }
        let rate = config.rate.as_ref().and_then(|rate| rate.kib(request));
        let slowed = rate.and_then(|kib| {
            let active = shared.begin(config, None)?;
            shared.stats.response_rl_injected.inc();
            Some((Slowed::new(kib, request.facts), active))
        });
        let (slowed, active) = slowed.map_or((None, None), |(it, active)| (Some(it), Some(active)));
        let delay = config.delay.as_ref().and_then(|delay| delay.time(request));
        if let Some(time) = delay
            && let Some(active) = shared.begin(config, active.as_ref())
        {
            shared.stats.delays_injected.inc();
            shared.count_cluster(config, request.head, |stats| stats.delays_injected.inc());
            config.leave_metadata(request);
            let config = Arc::clone(config);
            let delayed = Delayed { shared: Rc::clone(shared), config, slowed, _active: active };
            return OnRequest::Wait(Box::new(delayed), Wait { time, flags: Flags::DELAY_INJECTED });
        }
        if let Some(reply) = shared.abort(config, request, active.as_ref()) {
            return OnRequest::Answer(reply);
        }
        match active {
            None => OnRequest::Pass,
            Some(active) => {
                let config = Arc::clone(config);
                let delayed =
                    Delayed { shared: Rc::clone(shared), config, slowed, _active: active };
                OnRequest::Talk { watcher: Box::new(delayed), waits: false }
            }
        }
    }
}

impl Shared {
    /// The answer to a request that is to be aborted, unless too many faults are under way.
    fn abort(
        &self,
        config: &Fault,
        request: &mut RequestView<'_>,
        active: Option<&Rc<Active>>,
    ) -> Option<Reply> {
        let abort = config.abort.as_ref()?;
        let status = abort.status(request)?;
        let _active = self.begin(config, active)?;
        Some(self.answer(config, abort, status, request))
    }

    fn answer(
        &self,
        config: &Fault,
        abort: &Abort,
        status: Status,
        request: &mut RequestView<'_>,
    ) -> Reply {
        self.stats.aborts_injected.inc();
        self.count_cluster(config, request.head, |stats| stats.aborts_injected.inc());
        config.leave_metadata(request);
        let body = abort.body.as_deref().unwrap_or("fault filter abort").as_bytes();
        let mut reply = Reply::new(status.http, body, "fault_filter_abort");
        reply.flags.set(Flags::FAULT_INJECTED);
        if let Some(code) = status.grpc.filter(|_| grpc::is_grpc(request.head)) {
            reply.head.set_number(Name::GrpcStatus, code.into());
        }
        reply
    }

    /// Begins a fault, unless too many are under way. A stream that has one already counts once.
    fn begin(&self, config: &Fault, own: Option<&Rc<Active>>) -> Option<Rc<Active>> {
        if let Some(own) = own {
            return Some(Rc::clone(own));
        }
        // It counts from here on, so that of many at once none is too much.
        let before = self.active.add(1);
        self.stats.active_faults.inc();
        let active = Active { total: Arc::clone(&self.active), stats: Arc::clone(&self.stats) };
        if config.most_active.is_some_and(|most| before >= most) {
            self.stats.faults_overflow.inc();
            return None;
        }
        Some(Rc::new(active))
    }

    /// Counts for the cluster that a request says it is from. Clients choose the names: some at most are counted.
    fn count_cluster(&self, config: &Fault, head: &Head, count: impl Fn(&FaultClusterStats)) {
        let name = head.get(Name::XEnvoyDownstreamServiceCluster).unwrap_or_default();
        let Ok(name) = std::str::from_utf8(name) else { return };
        if name.is_empty() || !config.counts_clusters {
            return;
        }
        let mut clusters = self.clusters.borrow_mut();
        if let Some(stats) = clusters.get(name) {
            return count(stats);
        }
        if clusters.len() < MOST_CLUSTERS {
            let names = self.scope.names("http_fault");
            let names = names.part("envoy_fault_downstream_cluster", &Arc::from(name));
            let stats = self.scope.named(names);
            count(&stats);
            clusters.insert(name.into(), stats);
        }
    }
}

/// A fault that is under way.
#[derive(Debug)]
struct Active {
    total: Arc<Total>,
    stats: Arc<FaultStats>,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.total.sub(1);
        self.stats.active_faults.dec();
    }
}

/// A request that waits; its fault is under way until it ends.
#[derive(Debug)]
struct Delayed {
    shared: Rc<Shared>,
    config: Arc<Fault>,
    slowed: Option<Slowed>,
    _active: Rc<Active>,
}

/// A response that goes on no faster than a rate.
#[derive(Debug)]
struct Slowed {
    allowance: Allowance,
    pace: Pace,
    limit: usize,
    steps: VecDeque<Step>,
}

impl Slowed {
    fn new(kib: u64, facts: &Facts<'_>) -> Self {
        Self {
            allowance: Allowance::with(kib, INTERVAL, facts.now),
            pace: Pace::new(Direction::Response, INTERVAL),
            limit: 0,
            steps: VecDeque::new(),
        }
    }

    fn flow(&mut self, facts: &Facts<'_>) {
        if self.pace.flow(&self.allowance, &mut self.steps, facts.now).ends {
            self.pace.pass_end(&mut self.steps);
        }
    }
}

impl StreamFilter for Delayed {
    fn talks(&self) -> bool {
        self.slowed.is_some()
    }

    fn begin(&mut self, room: Room) {
        if let Some(slowed) = &mut self.slowed {
            slowed.limit = room.flow;
        }
    }

    fn next_step(&mut self) -> Option<Step> {
        self.slowed.as_mut()?.steps.pop_front()
    }

    fn is_full(&self, way: Direction) -> bool {
        let slowed = self.slowed.as_ref().filter(|_| way == Direction::Response);
        slowed.is_some_and(|slowed| slowed.pace.held() > slowed.limit)
    }

    fn held(&self) -> usize {
        self.slowed.as_ref().map_or(0, |slowed| slowed.pace.held())
    }

    fn on_said(&mut self, _said: Said, stream: &mut TalkView<'_>) {
        if let Some(slowed) = &mut self.slowed {
            slowed.pace.wake();
            slowed.flow(stream.facts);
        }
    }

    fn on_response_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        if let Some(slowed) = &mut self.slowed {
            slowed.pace.push(data);
            if !slowed.pace.waits() {
                slowed.flow(facts);
            }
        }
        Ok(())
    }

    fn keeps_response_end(&mut self, trailers: Option<&mut Head>, _facts: &Facts<'_>) -> bool {
        self.slowed.as_mut().is_some_and(|slowed| slowed.pace.keep_end(trailers))
    }

    fn on_waited(&mut self, request: &mut RequestView<'_>) -> OnAnswer {
        let config = Arc::clone(&self.config);
        let Some(abort) = &config.abort else { return OnAnswer::GoOn };
        match abort.status(request) {
            Some(status) => OnAnswer::Reply(self.shared.answer(&config, abort, status, request)),
            None => OnAnswer::GoOn,
        }
    }
}

impl Fault {
    /// Whether a request may meet a fault.
    fn concerns(&self, request: &RequestView<'_>) -> bool {
        let head = &*request.head;
        let is_of = |node: &[u8]| self.nodes.iter().any(|one| one.as_bytes() == node);
        (self.cluster.is_empty() || *self.cluster == *request.facts.cluster)
            && (self.nodes.is_empty() || head.get_bytes(NODE).is_some_and(is_of))
            && self.headers.iter().all(|header| header.matches(head))
    }

    fn leave_metadata(&self, request: &RequestView<'_>) {
        if let Some(info) = request.facts.info {
            // Also where it says nothing, as in Envoy. What is too much for one stream is left out, as a whole.
            let _ = info.add_metadata(request.route.filter, self.metadata.clone());
        }
    }
}

impl Rate {
    /// How fast a response may be, if it is slowed down.
    fn kib(&self, request: &RequestView<'_>) -> Option<u64> {
        let head = &*request.head;
        let share = match self.kib {
            Some(_) => self.share,
            None => told_share(head, b"x-envoy-fault-throughput-response-percentage", self.share),
        };
        let told = || number(head.get_bytes(b"x-envoy-fault-throughput-response"));
        let kib = self.kib.or_else(told).filter(|kib| *kib > 0);
        kib.filter(|_| share.takes(request.random.rotate_left(16)))
    }
}

impl Delay {
    /// How long a request waits, if it does.
    fn time(&self, request: &RequestView<'_>) -> Option<Duration> {
        let share = match self.time {
            Some(_) => self.share,
            None => told_share(request.head, b"x-envoy-fault-delay-request-percentage", self.share),
        };
        let told = || number(request.head.get_bytes(b"x-envoy-fault-delay-request"));
        let time = match self.time {
            Some(time) => time,
            None => Duration::from_millis(told()?),
        };
        (share.takes(request.random) && !time.is_zero()).then_some(time)
    }
}

/// With what a request is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    http: u16,
    grpc: Option<u32>,
}

impl Abort {
    /// With what a request is aborted, if it is.
    fn status(&self, request: &RequestView<'_>) -> Option<Status> {
        let head = &*request.head;
        let share = match self.how {
            AbortWith::Http(_) | AbortWith::Grpc(_) => self.share,
            AbortWith::Header => {
                told_share(head, b"x-envoy-fault-abort-request-percentage", self.share)
            }
        };
        let status = match self.how {
            AbortWith::Http(http) => Status { http, grpc: None },
            AbortWith::Grpc(code) => Status { http: 200, grpc: Some(code) },
            AbortWith::Header => told_status(head)?,
        };
        share.takes(request.random.rotate_left(32)).then_some(status)
    }
}

/// What a request itself wants to be answered with.
fn told_status(head: &Head) -> Option<Status> {
    let http = number(head.get_bytes(b"x-envoy-fault-abort-request"));
    let http = http.and_then(|code| u16::try_from(code).ok());
    if let Some(http) = http.filter(|code| (200..600).contains(code)) {
        return Some(Status { http, grpc: None });
    }
    let code = number(head.get_bytes(b"x-envoy-fault-abort-grpc-request"))?;
    Some(Status { http: 200, grpc: Some(u32::try_from(code).ok()?) })
}

/// A share that a request may make smaller.
fn told_share(head: &Head, name: &[u8], most: Fraction) -> Fraction {
    let told = number(head.get_bytes(name)).and_then(|told| u32::try_from(told).ok());
    match told {
        Some(told) => Fraction { numerator: told.min(most.numerator), ..most },
        None => most,
    }
}

fn number(text: Option<&[u8]>) -> Option<u64> {
    std::str::from_utf8(text?).ok()?.trim().parse().ok()
}

/// How often content of a response that is slowed down goes on.
const INTERVAL: Duration = Duration::from_millis(50);
const NODE: &[u8] = b"x-envoy-downstream-service-node";
/// Of which a worker counts faults by name.
const MOST_CLUSTERS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> Head {
        let mut head = Head::request(b"GET", b"http", b"h", b"/");
        for (name, value) in fields {
            head.append_bytes(name.as_bytes(), value.as_bytes());
        }
        head
    }

    #[test]
    fn a_request_says_what_it_wants_to_be_answered_with() {
        let told = |http: &str, grpc: &str| {
            let fields =
                [("x-envoy-fault-abort-request", http), ("x-envoy-fault-abort-grpc-request", grpc)];
            told_status(&head(&fields)).map(|status| (status.http, status.grpc))
        };
        assert_eq!(told("503", "5"), Some((503, None)));
        assert_eq!(told("200", ""), Some((200, None)));
        assert_eq!(told("599", ""), Some((599, None)));
        assert_eq!(told("199", ""), None);
        assert_eq!(told("600", "5"), Some((200, Some(5))));
        assert_eq!(told("x", "99"), Some((200, Some(99))));
        assert_eq!(told("", "4294967296"), None);
        assert_eq!(told("-1", "-1"), None);
    }

    #[test]
    fn a_request_can_make_a_share_smaller_alone() {
        let most = Fraction { numerator: 50, denominator: 100 };
        let told = |text: &str| told_share(&head(&[("share", text)]), b"share", most).numerator;
        assert_eq!([told("0"), told("20"), told("50")], [0, 20, 50]);
        assert_eq!([told("51"), told("18446744073709551616"), told("x"), told("-1")], [50; 4]);
        assert_eq!(told_share(&head(&[]), b"share", most), most);
    }
}
