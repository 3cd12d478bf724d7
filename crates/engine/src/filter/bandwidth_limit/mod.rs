//! `envoy.filters.http.bandwidth_limit`: content goes on no faster than a rate, which all streams share.

mod stats;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Head, Instant};

use self::stats::BandwidthLimitStats;
use super::pace::{Allowance, Pace};
use super::{
    Direction, FilterConfig, FilterScope, HttpFilter, OnRequest, Release, Reply, RequestView,
    ResponseFilter, ResponseView, Room, RouteConfig, RouteConfigs, Said, Step, StreamFilter,
    TalkView,
};
use crate::format::Facts;
use crate::stats::FilterNames;

/// Envoy `bandwidth_limit.v3.BandwidthLimit`, of a chain or of a route.
#[derive(Debug)]
pub struct BandwidthLimit {
    /// `stat_prefix`.
    pub stat_prefix: Arc<str>,
    /// `enable_mode`: requests are held up.
    pub requests: bool,
    /// Responses are.
    pub responses: bool,
    /// `limit_kbps`, of both directions of all streams.
    pub allowance: Allowance,
    /// `fill_interval`.
    pub interval: Duration,
    /// `enable_response_trailers`, with `response_trailer_prefix`.
    pub trailers: Option<Box<str>>,
}

/// A configuration for all workers, or for all requests of a route.
#[derive(Clone, Debug)]
pub struct SharedBandwidthLimit(pub Arc<BandwidthLimit>);

impl RouteConfig for SharedBandwidthLimit {}

impl FilterConfig for SharedBandwidthLimit {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance {
            config: Arc::clone(&self.0),
            stats: super::ByPrefix::new(scope.clone(), |prefix| {
                FilterNames::new("http_bandwidth_limit", format!("{prefix}.http_bandwidth_limit"))
                    .label("envoy_http_bandwidth_limit_prefix", prefix)
            }),
        })
    }
}

#[derive(Debug)]
struct Instance {
    config: Arc<BandwidthLimit>,
    stats: super::ByPrefix<BandwidthLimitStats>,
}

impl Instance {
    /// What holds up a stream; none where nothing is to be held up.
    fn limited(&self, route: RouteConfigs<'_>) -> Option<Box<Limited>> {
        let by_route = route.first::<SharedBandwidthLimit>();
        let config = by_route.map_or(&self.config, |route| &route.0);
        if !config.requests && !config.responses {
            return None;
        }
        let side = |way, held: bool| Side {
            pace: held.then(|| Pace::new(way, config.interval)),
            begun: None,
            delay: Duration::ZERO,
        };
        Some(Box::new(Limited {
            request: side(Direction::Request, config.requests),
            response: side(Direction::Response, config.responses),
            config: Arc::clone(config),
            stats: self.stats.of(&config.stat_prefix),
            request_time: Duration::ZERO,
            limit: 0,
            steps: VecDeque::new(),
        }))
    }
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let Some(watcher) = self.limited(request.route) else { return OnRequest::Pass };
        if watcher.config.requests {
            watcher.stats.request_enabled.inc();
        }
        OnRequest::Talk { watcher, waits: false }
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }
}

impl ResponseFilter for Instance {
    fn join(&self, response: &mut ResponseView<'_>) -> Option<Box<dyn StreamFilter>> {
        Some(self.limited(response.route)?)
    }
}

/// A stream that is held up.
#[derive(Debug)]
struct Limited {
    config: Arc<BandwidthLimit>,
    stats: Arc<BandwidthLimitStats>,
    request: Side,
    response: Side,
    /// How long the request took.
    request_time: Duration,
    limit: usize,
    steps: VecDeque<Step>,
}

#[derive(Debug)]
struct Side {
    pace: Option<Pace>,
    /// When its first piece came, until it is through.
    begun: Option<Instant>,
    /// How long it was held up.
    delay: Duration,
}

impl Limited {
    fn on_data(&mut self, way: Direction, data: &mut Bytes, now: Instant) {
        let side = if way == Direction::Request { &mut self.request } else { &mut self.response };
        let Some(pace) = &mut side.pace else { return };
        let stats = &*self.stats;
        let (pending, size, total) = match way {
            Direction::Request => (
                &stats.request_pending,
                &stats.request_incoming_size,
                &stats.request_incoming_total_size,
            ),
            Direction::Response => (
                &stats.response_pending,
                &stats.response_incoming_size,
                &stats.response_incoming_total_size,
            ),
        };
        if side.begun.is_none() {
            side.begun = Some(now);
            pending.inc();
        }
        size.set(data.len() as u64);
        total.add(data.len() as u64);
        pace.push(data);
        if !pace.waits() {
            self.flow(way, now);
        }
    }

    fn flow(&mut self, way: Direction, now: Instant) {
        let stats = &*self.stats;
        let (side, size, total, enforced) = match way {
            Direction::Request => (
                &mut self.request,
                &stats.request_allowed_size,
                &stats.request_allowed_total_size,
                &stats.request_enforced,
            ),
            Direction::Response => (
                &mut self.response,
                &stats.response_allowed_size,
                &stats.response_allowed_total_size,
                &stats.response_enforced,
            ),
        };
        let Some(pace) = &mut side.pace else { return };
        let gone = pace.flow(&self.config.allowance, &mut self.steps, now);
        size.set(gone.bytes);
        total.add(gone.bytes);
        if gone.waits {
            enforced.inc();
            side.delay += self.config.interval;
        }
        if gone.ends {
            self.finish(way, None, now);
        }
    }

    /// A direction is through. Its trailers may be where they are held.
    fn finish(&mut self, way: Direction, trailers: Option<&mut Head>, now: Instant) {
        let taken = self.settle(way, now);
        if let (Some(prefix), Some(time), Direction::Response) = (&self.config.trailers, taken, way)
        {
            let fields = [
                ("bandwidth-request-delay-ms", self.request_time),
                ("bandwidth-request-filter-delay-ms", std::mem::take(&mut self.request.delay)),
                ("bandwidth-response-delay-ms", time),
                ("bandwidth-response-filter-delay-ms", std::mem::take(&mut self.response.delay)),
            ];
            let held = self.response.pace.as_mut().and_then(Pace::trailers_mut);
            let add = |head: &mut Head| {
                for (name, time) in fields.iter().filter(|(_, time)| time.as_millis() > 0) {
                    let dash = if prefix.is_empty() { "" } else { "-" };
                    let name = format!("{prefix}{dash}{name}");
                    head.set_bytes(name.as_bytes(), time.as_millis().to_string().as_bytes());
                }
            };
            match (trailers, held) {
                (Some(head), _) => add(head),
                (None, Some(held)) => {
                    add(held.get_or_insert_default());
                    held.take_if(|head| head.is_empty());
                }
                (None, None) => {}
            }
        }
        let side = if way == Direction::Request { &mut self.request } else { &mut self.response };
        if let Some(pace) = &mut side.pace {
            pace.pass_end(&mut self.steps);
        }
    }

    /// Counts how long a direction took, which is told once.
    fn settle(&mut self, way: Direction, now: Instant) -> Option<Duration> {
        let (side, pending, times) = match way {
            Direction::Request => (
                &mut self.request,
                &self.stats.request_pending,
                &self.stats.request_transfer_duration,
            ),
            Direction::Response => (
                &mut self.response,
                &self.stats.response_pending,
                &self.stats.response_transfer_duration,
            ),
        };
        let time = now.since(side.begun.take()?);
        pending.dec();
        times.record(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        if way == Direction::Request {
            self.request_time = time;
        }
        Some(time)
    }

    fn keeps_end(&mut self, way: Direction, mut trailers: Option<&mut Head>, now: Instant) -> bool {
        let side = if way == Direction::Request { &mut self.request } else { &mut self.response };
        let Some(pace) = &mut side.pace else { return false };
        if pace.keep_end(trailers.as_deref_mut()) {
            return true;
        }
        self.finish(way, trailers, now);
        false
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        for (side, pending) in [
            (&self.request, &self.stats.request_pending),
            (&self.response, &self.stats.response_pending),
        ] {
            if side.begun.is_some() {
                pending.dec();
            }
        }
    }
}

impl StreamFilter for Limited {
    fn begin(&mut self, room: Room) {
        self.limit = room.flow;
    }

    fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    fn is_full(&self, way: Direction) -> bool {
        let side = if way == Direction::Request { &self.request } else { &self.response };
        side.pace.as_ref().is_some_and(|pace| pace.held() > self.limit)
    }

    fn held(&self) -> usize {
        let paces = [&self.request.pace, &self.response.pace];
        paces.into_iter().flatten().map(|pace| pace.held()).sum()
    }

    fn on_said(&mut self, said: Said, stream: &mut TalkView<'_>) {
        let Said::Late(way) = said else { return };
        let side = if way == Direction::Request { &mut self.request } else { &mut self.response };
        if let Some(pace) = &mut side.pace {
            pace.wake();
            self.flow(way, stream.facts.now);
        }
    }

    fn on_request_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        self.on_data(Direction::Request, data, facts.now);
        Ok(())
    }

    fn keeps_request_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> bool {
        self.keeps_end(Direction::Request, trailers, facts.now)
    }

    fn on_response_head(&mut self, _response: &mut ResponseView<'_>) -> Release {
        if self.response.pace.is_some() {
            self.stats.response_enabled.inc();
        }
        Release::Now
    }

    fn on_response_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        self.on_data(Direction::Response, data, facts.now);
        Ok(())
    }

    fn keeps_response_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> bool {
        self.keeps_end(Direction::Response, trailers, facts.now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Stream;
    use super::*;
    use crate::record::Record;
    use crate::stats::Registry;

    const COUNTED: &str = "b.http_bandwidth_limit.";

    fn limit(kib: u64, requests: bool, responses: bool) -> SharedBandwidthLimit {
        SharedBandwidthLimit(Arc::new(BandwidthLimit {
            stat_prefix: "b".into(),
            requests,
            responses,
            allowance: Allowance::new(kib),
            interval: Duration::from_millis(50),
            trailers: None,
        }))
    }

    /// What limits a stream, if something does.
    fn limited(
        config: &SharedBandwidthLimit,
        stream: &mut Stream,
        registry: &Arc<Registry>,
    ) -> Option<Box<dyn StreamFilter>> {
        let scope = FilterScope::new("main".into(), Rc::default(), Arc::clone(registry), 0);
        let filter = config.start(&scope);
        let outcome = stream.request(|view| filter.on_request(view));
        if let OnRequest::Talk { watcher, waits: false } = outcome { Some(watcher) } else { None }
    }

    fn passed(filter: &mut dyn StreamFilter) -> usize {
        let steps = std::iter::from_fn(|| filter.next_step());
        let length = |step| if let Step::Pass(_, data) = step { data.len() } else { 0 };
        steps.map(length).sum()
    }

    #[test]
    fn what_is_over_the_rate_is_held_and_the_sender_is_not_read_beyond_its_limit() {
        let registry: Arc<Registry> = Arc::default();
        let number = |name: &str| registry.read().number(&format!("{COUNTED}{name}")).unwrap_or(0);
        let config = limit(1, true, false);
        let mut filter = limited(&config, &mut Stream::new(b"POST", &[]), &registry).unwrap();
        filter.begin(Room { flow: 500, whole: 500 });
        let record = Record::default();
        let facts = Facts::new(&record, Instant::ZERO);
        let give = |filter: &mut dyn StreamFilter, length| {
            let mut data = Bytes::from(vec![b'x'; length]);
            filter.on_request_data(&mut data, &facts).unwrap();
            assert!(data.is_empty(), "it goes on by steps");
        };
        give(&mut *filter, 1024);
        assert_eq!((passed(&mut *filter), filter.held()), (1024, 0), "what there is for a second");
        give(&mut *filter, 500);
        assert_eq!((passed(&mut *filter), filter.held()), (0, 500));
        assert!(!filter.is_full(Direction::Request));
        give(&mut *filter, 1);
        assert!(filter.is_full(Direction::Request) && !filter.is_full(Direction::Response));
        assert!(filter.keeps_request_end(None, &facts), "the end comes behind what is held");
        assert_eq!((number("request_enforced"), number("request_pending")), (1, 1));
        drop(filter);
        assert_eq!(number("request_pending"), 0, "of a stream that was reset");
    }

    #[test]
    fn the_route_says_whether_a_stream_is_limited() {
        let registry = Arc::default();
        let is_limited = |config: &SharedBandwidthLimit, stream: &mut Stream| {
            limited(config, stream, &registry).is_some()
        };
        let (on, off) = (limit(1, true, true), limit(1, false, false));
        assert!(is_limited(&on, &mut Stream::new(b"GET", &[])));
        assert!(!is_limited(&off, &mut Stream::new(b"GET", &[])));
        assert!(!is_limited(&on, &mut Stream::new(b"GET", &[]).on_route(off.clone())));
        assert!(is_limited(&off, &mut Stream::new(b"GET", &[]).on_route(on)));
    }
}
