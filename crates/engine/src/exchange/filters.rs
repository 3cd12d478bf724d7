//! HTTP filters at work: heads, pieces and ends of a stream on their way through its chain.
//!
//! Arrives: a request that has its route, what the forwarding loop has for a stream, and responses. Leaves: the same as
//! the filters leave it, on its way to the router, to the host or to the client; or an answer of theirs.

use bytes::Bytes;
use towpath_proto::Instant;
use towpath_proto::head::{Head, Version};

use crate::conn::context::{HttpContext, PlacedFilter};
use crate::exchange::Exchange;
use crate::exchange::callout::{Asker, FilterOf};
use crate::exchange::edge::Origin;
use crate::exchange::forward::Item;
use crate::exchange::log::{Setting, facts};
use crate::exchange::mirror::Copies;
use crate::exchange::stream::{Direction, Routed, Stream, UpstreamState};
use crate::exchange::timers::HttpTimer;
use crate::filter::{
    Answer, Callout, Ended, OnAnswer, OnRequest, Release, Reply, RequestView, ResponseView,
    RouteConfigs, StreamFilter, Wait, joined,
};
use crate::format::Facts;
use crate::grpc;
use crate::ids::{Side, StreamIndex};
use crate::record::details;
use crate::snapshot::route::Action;

/// The filters that go with a stream beyond the request's head.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    /// By their places in the chain.
    watching: Vec<(usize, Box<dyn StreamFilter>)>,
    waiting: Option<Waiting>,
    /// The place of the one that holds the response's head back.
    held: Option<usize>,
    /// The request was gRPC's when it came.
    was_grpc: bool,
    /// Copies of the request that wait for the rest of it.
    pub(crate) copies: Option<Box<Copies>>,
}

/// A request that goes on later.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// The filter that wants it so.
    place: usize,
    until: Until,
    resume: Resume,
}

/// What it waits for.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// All of it, of at most so many bytes.
    Whole(usize),
    /// So many bytes of it, or all.
    Some(usize),
    /// What comes of a callout.
    Answer(u64),
    /// A time.
    Time,
}

/// What the router goes on with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    pub(crate) origin: Origin,
    pub(crate) random: u64,
    /// It is to be sent to https.
    pub(crate) wants_tls: bool,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Through,
    /// It is answered, or waits to be complete.
    Stopped,
}

/// How a walk through the filters ends.
#[derive(Clone, Copy, Debug)]
enum Walk {
    Ended(Progress),
    /// The request is routed anew, and goes on at this place.
    Reroutes(usize),
}

impl Stream {
    /// Its filters; where it has none, what stands for them.
    pub(crate) fn filters_or_none(&mut self) -> &mut Filters {
        let was_grpc = self.came_as_grpc();
        let fresh = || Box::new(Filters { was_grpc, ..Filters::default() });
        self.filters.get_or_insert_with(fresh)
    }

    /// Whether all of the request is waited for.
    pub(crate) fn is_collected(&self) -> bool {
        let until = self.waiting().map(|waiting| waiting.until);
        matches!(until, Some(Until::Whole(_) | Until::Some(_)))
    }

    /// The callout that is waited for.
    pub(crate) fn asks(&self) -> Option<u64> {
        match self.waiting()?.until {
            Until::Answer(callout) => Some(callout),
            Until::Whole(_) | Until::Some(_) | Until::Time => None,
        }
    }

    fn waiting(&self) -> Option<Waiting> {
        self.filters.as_deref()?.waiting
    }

    /// Whether it came as a call by gRPC, which a filter may have made of it.
    pub(crate) fn came_as_grpc(&self) -> bool {
        match self.filters.as_deref() {
            Some(filters) => filters.was_grpc,
            None => grpc::is_grpc(&self.request),
        }
    }
}

impl Exchange {
    /// Shows a request to the filters from a place on.
    pub(crate) fn filter_request(
        &mut self,
        index: StreamIndex,
        from: usize,
        resume: &mut Resume,
        now: Instant,
    ) -> Progress {
        let Some(stream) = self.streams.get(index) else { return Progress::Stopped };
        let context = stream.context.clone();
        let Some(http) = context.http() else { return Progress::Through };
        let mut place = from;
        loop {
            match self.filter_request_until_rerouted(index, place, http, *resume, now) {
                Walk::Ended(progress) => return progress,
                Walk::Reroutes(next) => {
                    let Some(stream) = self.streams.get_mut(index) else {
                        return Progress::Stopped;
                    };
                    resume.wants_tls = stream.choose_route(http, resume.random);
                    self.retrace(index, http);
                    place = next;
                }
            }
        }
    }

    /// The same as far as a filter that wants the request to be routed anew.
    fn filter_request_until_rerouted(
        &mut self,
        index: StreamIndex,
        from: usize,
        http: &HttpContext,
        resume: Resume,
        now: Instant,
    ) -> Walk {
        let Some(stream) = self.streams.get_mut(index) else {
            return Walk::Ended(Progress::Stopped);
        };
        let mut head = stream.request.take();
        let mut filters = stream.filters.take();
        let was_grpc = filters.as_ref().map_or_else(|| grpc::is_grpc(&head), |it| it.was_grpc);
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let levels = Levels::of(stream, http);
        let (mut answer, mut reroutes, mut callout, mut delay) = (None, None, None, None);
        let mut nothing = Vec::new();
        for (place, filter) in http.filters.iter().enumerate().skip(from) {
            let route = levels.of_filter(filter);
            if route.disables(filter.disabled) {
                continue;
            }
            let mut view = RequestView {
                head: &mut head,
                ends: stream.request_end == Direction::Ended,
                is_empty: stream.request_end == Direction::Ended && stream.body.len() == 0,
                content: &mut nothing,
                facts: &facts,
                route,
                forwards: levels.forwards,
                random: self.env.random.next(),
                scratch: &mut self.env.scratch,
                node_cluster: &self.snapshot.node.cluster,
                drains: self.env.draining.is_on() || self.env.draining.health_fails(),
                before: filters.as_deref().map_or(&[], |filters| &filters.watching),
                reroutes: false,
            };
            let on_request = filter.filter.on_request(&mut view);
            if view.reroutes {
                reroutes = Some(place + 1);
            }
            let (watcher, until) = match on_request {
                OnRequest::Pass if reroutes.is_some() => break,
                OnRequest::Pass => continue,
                OnRequest::Watch(watcher) => (watcher, None),
                OnRequest::Collect(watcher, limit) => (watcher, Some(Until::Whole(limit))),
                OnRequest::CollectSome(watcher, limit) => (watcher, Some(Until::Some(limit))),
                OnRequest::Ask(watcher, question) => {
                    callout = Some((place, question));
                    (watcher, None)
                }
                OnRequest::Wait(watcher, wait) => {
                    delay = Some((place, wait));
                    (watcher, None)
                }
                OnRequest::Answer(reply) => {
                    answer = Some(reply);
                    break;
                }
            };
            let fresh = || Box::new(Filters { was_grpc, ..Filters::default() });
            let filters = filters.get_or_insert_with(fresh);
            filters.watching.push((place, watcher));
            filters.waiting = until.map(|until| Waiting { place, until, resume });
            let waits = until.is_some() || callout.is_some() || delay.is_some();
            if waits || reroutes.is_some() {
                break;
            }
        }
        let Some(stream) = self.streams.get_mut(index) else {
            return Walk::Ended(Progress::Stopped);
        };
        stream.request.put(head, &mut self.env.heads);
        stream.filters = filters;
        if let Some(reply) = answer {
            self.log_new_request(index, now);
            self.answer_by_filter(index, reply, now);
            return Walk::Ended(Progress::Stopped);
        }
        if let Some((place, callout)) = callout {
            self.ask(index, place, resume, *callout, now);
            return Walk::Ended(Progress::Stopped);
        }
        if let Some((place, wait)) = delay {
            self.wait(index, place, resume, wait, now);
            return Walk::Ended(Progress::Stopped);
        }
        let Some(stream) = self.streams.get(index) else { return Walk::Ended(Progress::Stopped) };
        match reroutes {
            _ if stream.is_collected() => Walk::Ended(Progress::Stopped),
            Some(next) => Walk::Reroutes(next),
            None => Walk::Ended(Progress::Through),
        }
    }

    /// Tells filters of the end of a stream, as logs are told.
    #[cold]
    pub(crate) fn tell_end(&self, stream: &Stream, http: &HttpContext, now: Instant) {
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let mut facts = facts(stream, None, setting, now);
        facts.response = (stream.status != 0).then_some(&*stream.response);
        let levels = Levels::of(stream, http);
        let watching = stream.filters.as_deref().map_or(&[][..], |filters| &filters.watching);
        for (place, filter) in http.filters.iter().enumerate() {
            if filter.sees_ends && !levels.of_filter(filter).disables(filter.disabled) {
                let watcher = watching.iter().find(|(at, _)| *at == place);
                let watcher = watcher.map(|(_, watcher)| &**watcher);
                filter.filter.on_end(&Ended { facts: &facts, watcher });
            }
        }
    }

    /// Sends an answer of a filter's.
    fn answer_by_filter(&mut self, index: StreamIndex, reply: Reply, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.flags.set(reply.flags);
        stream.is_health_check |= reply.health_check;
        if reply.charges_cluster
            && let Some(cluster) = self.upstreams.clusters.get(stream.cluster)
        {
            cluster.stats.count_response(reply.head.status(), true);
        }
        if !reply.is_final {
            return self.answer(index, reply.head, reply.body, reply.details, now);
        }
        stream.recorder.note(|record| record.details = reply.details);
        stream.local = true;
        stream.response.put(reply.head, &mut self.env.heads);
        self.reply(index, Bytes::from(reply.body), now);
    }

    /// Passes one piece of a stream through its filters, and on.
    pub(crate) fn filter_item(&mut self, index: StreamIndex, side: Side, item: Item, now: Instant) {
        match side {
            Side::Request => self.filter_request_item(index, item, now),
            Side::Response => self.filter_response_item(index, item, now),
        }
    }

    fn filter_request_item(&mut self, index: StreamIndex, item: Item, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(mut filters) = stream.filters.take() else { return };
        let before = length(&item);
        let (mut data, mut end) = taken_apart(item);
        let waiting = filters.waiting;
        let last = waiting.map_or(usize::MAX, |waiting| waiting.place);
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let passed = pass_request(&mut filters, (0, last), (&mut data, &mut end), &facts);
        if !data.is_empty() {
            filters.copies.take_if(|copies| !copies.push(&data));
        }
        let copies = end.as_ref().and_then(|_| filters.copies.take());
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.filters = Some(filters);
        if let Err(reply) = passed {
            if end.is_some() {
                stream.request_end = Direction::Ended;
            }
            if stream.request.version() != Version::Http2 {
                self.conns.close_after_response(stream.downstream.connection);
            }
            return self.refuse_response(index, reply, now);
        }
        let after = data.len() as u64;
        if matches!(stream.upstream, UpstreamState::Active(_)) {
            stream.recorder.note(|record| {
                let sent = &mut record.upstream_bytes_sent;
                *sent = (*sent + after).saturating_sub(before);
            });
        }
        let held = stream.body.len() as u64 + after;
        if let Some(Waiting { until: Until::Whole(limit), .. }) = waiting
            && held > limit as u64
        {
            return self.refuse_body(index, now);
        }
        if !data.is_empty() {
            self.pass(index, Side::Request, Item::Data(data), now);
        }
        let ends = end.is_some();
        if let Some(end) = end {
            self.pass(index, Side::Request, end, now);
        }
        if let Some(copies) = copies {
            self.send_copies(*copies, now);
        }
        let Some(waiting) = waiting else { return };
        let goes_on = match waiting.until {
            Until::Whole(_) => ends,
            Until::Some(limit) => ends || held >= limit as u64,
            Until::Answer(_) | Until::Time => false,
        };
        if goes_on {
            self.go_on_collected(index, waiting, now);
        }
    }

    /// Asks another server on behalf of a filter. Its answer comes as [`Exchange::go_on_answered`].
    fn ask(
        &mut self,
        index: StreamIndex,
        place: usize,
        resume: Resume,
        callout: Callout,
        now: Instant,
    ) {
        let Some(serial) = self.streams.get(index).map(|stream| stream.serial) else { return };
        let filter = FilterOf { stream: index, serial, place };
        let callout = self.call_out(Asker::Filter(filter), callout, now);
        let stream = self.streams.get_mut(index);
        if let Some(filters) = stream.and_then(|stream| stream.filters.as_mut()) {
            filters.waiting = Some(Waiting { place, until: Until::Answer(callout), resume });
        }
    }

    /// Lets a request wait on behalf of a filter. It goes on with [`Exchange::go_on_waited`].
    fn wait(&mut self, index: StreamIndex, place: usize, resume: Resume, wait: Wait, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.flags.set(wait.flags);
        if let Some(filters) = stream.filters.as_mut() {
            filters.waiting = Some(Waiting { place, until: Until::Time, resume });
        }
        self.set_timer(index, HttpTimer::BackOff, now + wait.time);
    }

    /// The time has passed that a filter lets a request wait, if one does.
    pub(crate) fn go_on_waited(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        let Some(Waiting { place, until: Until::Time, .. }) = stream.waiting() else {
            return false;
        };
        let filter = FilterOf { stream: index, serial: stream.serial, place };
        self.go_on_with(filter, |watcher, request| watcher.on_waited(request), now);
        true
    }

    /// A filter has the answer that it waited for.
    pub(crate) fn go_on_answered(&mut self, filter: FilterOf, answer: Answer, now: Instant) {
        self.go_on_with(filter, |watcher, request| watcher.on_answer(answer, request), now);
    }

    /// A filter has what it waited for.
    fn go_on_with(
        &mut self,
        filter: FilterOf,
        decide: impl FnOnce(&mut dyn StreamFilter, &mut RequestView<'_>) -> OnAnswer,
        now: Instant,
    ) {
        let FilterOf { stream: index, serial, place } = filter;
        let Some(stream) = self.streams.get_mut(index).filter(|it| it.serial == serial) else {
            return;
        };
        let context = stream.context.clone();
        let (Some(http), Some(mut filters)) = (context.http(), stream.filters.take()) else {
            return;
        };
        let Some(Waiting { mut resume, .. }) = filters.waiting.take() else { return };
        let is_empty = stream.request_end == Direction::Ended && stream.body.len() == 0;
        let mut kept = stream.body.take_kept().unwrap_or_default();
        let mut head = stream.request.take();
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let levels = Levels::of(stream, http);
        let mut view = RequestView {
            head: &mut head,
            ends: stream.request_end == Direction::Ended,
            is_empty,
            content: &mut kept.chunks,
            facts: &facts,
            route: http.filters.get(place).map(|it| levels.of_filter(it)).unwrap_or_default(),
            forwards: levels.forwards,
            random: self.env.random.next(),
            scratch: &mut self.env.scratch,
            node_cluster: &self.snapshot.node.cluster,
            drains: self.env.draining.is_on() || self.env.draining.health_fails(),
            before: &[],
            reroutes: false,
        };
        let watcher = filters.watching.iter_mut().find(|(at, _)| *at == place);
        let verdict =
            watcher.map_or(OnAnswer::GoOn, |(_, watcher)| decide(&mut **watcher, &mut view));
        let reroutes = view.reroutes;
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.request.put(head, &mut self.env.heads);
        stream.body.restore(kept);
        stream.filters = Some(filters);
        match verdict {
            OnAnswer::Reply(reply) => {
                self.log_new_request(index, now);
                self.answer_by_filter(index, reply, now);
            }
            OnAnswer::Ask(callout) => self.ask(index, place, resume, *callout, now),
            OnAnswer::Collect(limit) => self.collect(index, place, resume, limit, now),
            OnAnswer::GoOn => {
                if reroutes {
                    resume.wants_tls = stream.choose_route(http, resume.random);
                    self.retrace(index, http);
                }
                self.go_on_behind(index, place, resume, now);
            }
        }
    }

    /// A request that waited at a place goes on: the filters behind see it and what has come of its content, then the
    /// router.
    fn go_on_behind(&mut self, index: StreamIndex, place: usize, mut resume: Resume, now: Instant) {
        let Some(context) = self.streams.get(index).map(|stream| stream.context.clone()) else {
            return;
        };
        let progress = self.filter_request(index, place + 1, &mut resume, now);
        if self.filter_kept(index, place + 1, now).is_ok() && progress == Progress::Through {
            self.route_filtered(index, &context, resume, now);
        }
    }

    /// A request that was collected is complete: the filters behind see it, and the router.
    fn go_on_collected(&mut self, index: StreamIndex, waiting: Waiting, now: Instant) {
        let Some(serial) = self.streams.get(index).map(|stream| stream.serial) else { return };
        let filter = FilterOf { stream: index, serial, place: waiting.place };
        self.go_on_with(filter, |watcher, request| watcher.on_collected(request), now);
    }

    /// Lets a request that has waited already wait until all of it is here.
    fn collect(
        &mut self,
        index: StreamIndex,
        place: usize,
        resume: Resume,
        limit: usize,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let waiting = Waiting { place, until: Until::Whole(limit), resume };
        if let Some(filters) = stream.filters.as_mut() {
            filters.waiting = Some(waiting);
        }
        if stream.body.len() > limit {
            self.refuse_body(index, now);
        } else if stream.request_end == Direction::Ended {
            self.go_on_collected(index, waiting, now);
        }
    }

    /// Shows what is kept of the content to the filters from a place on, as far as the one that waits.
    fn filter_kept(&mut self, index: StreamIndex, from: usize, now: Instant) -> Result<(), ()> {
        let stream = self.streams.get_mut(index).ok_or(())?;
        let Some(mut filters) = stream.filters.take() else { return Ok(()) };
        let ended = stream.request_end == Direction::Ended;
        let Some(kept) = stream.body.take_kept() else {
            stream.filters = Some(filters);
            return Ok(());
        };
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let last = filters.waiting.map_or(usize::MAX, |waiting| waiting.place);
        let mut passed = Vec::with_capacity(kept.chunks.len());
        let mut trailers = kept.trailers;
        let mut pass = |mut data, end: &mut Option<Item>| {
            let result = pass_request(&mut filters, (from, last), (&mut data, end), &facts);
            passed.push(data);
            result
        };
        let mut result = kept.chunks.into_iter().try_for_each(|chunk| pass(chunk, &mut None));
        if ended && result.is_ok() {
            let mut end = Some(trailers.take().map_or(Item::End, Item::Trailers));
            result = pass(Bytes::new(), &mut end);
            if let Some(Item::Trailers(head)) = end {
                trailers = Some(head);
            }
        }
        let stream = self.streams.get_mut(index).ok_or(())?;
        stream.filters = Some(filters);
        let passed = passed.into_iter().filter(|chunk| !chunk.is_empty());
        passed.for_each(|chunk| stream.body.push(chunk));
        if let Some(trailers) = trailers {
            stream.body.set_trailers(trailers);
        }
        result.map_err(|reply| self.answer_by_filter(index, reply, now))
    }

    /// Shows `stream.response` to the filters before a place, the last one first; false if one holds it back.
    pub(crate) fn filter_response_head(
        &mut self,
        index: StreamIndex,
        before: usize,
        ends: bool,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let context = stream.context.clone();
        let Some(http) = context.http() else { return true };
        let mut head = stream.response.take();
        let mut filters = stream.filters.take();
        if let Some(filters) = &mut filters {
            filters.held = None;
        }
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let levels = Levels::of(stream, http);
        let mut held = false;
        for (place, filter) in http.filters.iter().enumerate().take(before).rev() {
            let route = levels.of_filter(filter);
            if route.disables(filter.disabled) {
                continue;
            }
            let mut view = ResponseView {
                head: &mut head,
                ends,
                facts: &facts,
                route,
                scratch: &mut self.env.scratch,
                health_fails: self.env.draining.health_fails(),
            };
            let watching = filters.as_mut().map(|filters| &mut filters.watching);
            let watcher = watching.and_then(|all| all.iter_mut().find(|(at, _)| *at == place));
            let release = match watcher {
                Some((_, watcher)) => watcher.on_response_head(&mut view),
                None => {
                    filter.filter.on_response(&mut view);
                    Release::Now
                }
            };
            if release == Release::AtEnd && !ends {
                held = true;
                if let Some(filters) = &mut filters {
                    filters.held = Some(place);
                }
                break;
            }
        }
        let Some(stream) = self.streams.get_mut(index) else { return false };
        stream.response.put(head, &mut self.env.heads);
        stream.filters = filters;
        !held
    }

    /// Passes one piece of a response through the filters. Where one holds the head back, it goes on with the end.
    pub(crate) fn filter_response_item(&mut self, index: StreamIndex, item: Item, now: Instant) {
        let before = length(&item);
        let (mut data, mut end) = taken_apart(item);
        let mut upper = usize::MAX;
        loop {
            let Some(stream) = self.streams.get_mut(index) else { return };
            let Some(mut filters) = stream.filters.take() else { return };
            let mut head = stream.response.take();
            let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
            let facts = facts(stream, None, setting, now);
            let held = filters.held;
            let passed = pass_response(&mut filters, upper, (&mut data, &mut end), &facts);
            if let (Some(place), Some(item)) = (held, &mut end) {
                let trailers =
                    if let Item::Trailers(trailers) = item { Some(trailers) } else { None };
                let holder = filters.watching.iter_mut().find(|(at, _)| *at == place);
                if let Some((_, holder)) = holder {
                    data = holder.release(&mut head, trailers, &facts);
                }
                without_empty_trailers(&mut end);
            }
            let Some(stream) = self.streams.get_mut(index) else { return };
            stream.response.put(head, &mut self.env.heads);
            stream.filters = Some(filters);
            if let Err(reply) = passed {
                return self.refuse_response(index, reply, now);
            }
            let Some(place) = held else { break };
            if end.is_none() {
                let Some(stream) = self.streams.get_mut(index) else { return };
                stream.recorder.note(|record| {
                    record.bytes_sent = record.bytes_sent.saturating_sub(before);
                });
                return;
            }
            let ends = data.is_empty() && matches!(end, Some(Item::End));
            if self.filter_response_head(index, place, ends, now) {
                let Some(stream) = self.streams.get_mut(index) else { return };
                stream.response_end = Direction::Streaming;
                let context = stream.context.clone();
                self.write_response_head(index, &context, ends, now);
                if ends {
                    return self.pass_end(index, now);
                }
            }
            upper = place;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        let after = data.len() as u64;
        stream.recorder.note(|record| {
            record.bytes_sent = (record.bytes_sent + after).saturating_sub(before);
        });
        let silent = stream.head_only;
        if !data.is_empty() && !silent {
            self.pass(index, Side::Response, Item::Data(data), now);
        }
        match end {
            Some(_) if silent => self.pass_end(index, now),
            Some(end) => self.pass(index, Side::Response, end, now),
            None => {}
        }
    }

    /// A filter cannot pass a response on.
    fn refuse_response(&mut self, index: StreamIndex, reply: Reply, now: Instant) {
        if reply.details == details::RESPONSE_PAYLOAD_TOO_LARGE
            && let Some(http) = self.streams.get(index).and_then(|stream| stream.context.http())
        {
            http.stats.rs_too_large.inc();
        }
        if self.streams.get(index).is_some_and(Stream::is_unanswered) {
            return self.answer_by_filter(index, reply, now);
        }
        self.streams.count_tx_reset(index);
        self.abandon(index, reply.details, now);
    }

    /// The head of a response was all of it.
    fn pass_end(&mut self, index: StreamIndex, now: Instant) {
        if let Some(stream) = self.streams.get_mut(index) {
            stream.response_end = Direction::Ended;
        }
        self.on_response_ended(index, now);
    }
}

/// What the route of a stream says to filters.
struct Levels<'a> {
    routed: Option<Routed<'a>>,
    /// The route sends requests on.
    forwards: bool,
}

impl<'a> Levels<'a> {
    fn of(stream: &Stream, http: &'a HttpContext) -> Self {
        let routed = stream.route.and_then(|route| Routed::in_table(&http.config.routes, route));
        let forwards = routed.is_some_and(|it| matches!(it.route.action, Action::Forward(_)));
        Self { routed, forwards }
    }

    fn of_filter(&self, filter: &'a PlacedFilter) -> RouteConfigs<'a> {
        let levels = self.routed.map_or([&[][..]; 3], |Routed { route, host, table, .. }| {
            [&route.filters[..], &host.filters, &table.filters]
        });
        RouteConfigs { filter: &filter.name, levels }
    }
}

/// Passes a piece of the request through the filters at these places.
fn pass_request(
    filters: &mut Filters,
    (from, last): (usize, usize),
    (data, end): (&mut Bytes, &mut Option<Item>),
    facts: &Facts<'_>,
) -> Result<(), Reply> {
    let here = filters.watching.iter_mut().filter(|(place, _)| (from..=last).contains(place));
    for (_, watcher) in here {
        if !data.is_empty() {
            watcher.on_request_data(data, facts)?;
        }
        if end.is_some() {
            let more = watcher.on_request_end(facts)?;
            *data = joined(std::mem::take(data), more);
            add_trailers(end, watcher.request_trailers());
        }
    }
    Ok(())
}

/// Passes a piece of the response through the filters below a place, down to the one that holds the head.
fn pass_response(
    filters: &mut Filters,
    upper: usize,
    (data, end): (&mut Bytes, &mut Option<Item>),
    facts: &Facts<'_>,
) -> Result<(), Reply> {
    let held = filters.held;
    let floor = held.unwrap_or(0);
    let here = filters.watching.iter_mut().rev().filter(|(at, _)| (floor..upper).contains(at));
    for (place, watcher) in here {
        if !data.is_empty() {
            watcher.on_response_data(data, facts)?;
        }
        if held == Some(*place) {
            continue;
        }
        if let Some(item) = end {
            let trailers = if let Item::Trailers(trailers) = item { Some(trailers) } else { None };
            let more = watcher.on_response_end(trailers, facts);
            *data = joined(std::mem::take(data), more);
            without_empty_trailers(end);
            add_trailers(end, watcher.response_trailers());
        }
    }
    Ok(())
}

/// The data of an item, and the end.
fn taken_apart(item: Item) -> (Bytes, Option<Item>) {
    match item {
        Item::Data(data) => (data, None),
        Item::Trailers(_) | Item::End => (Bytes::new(), Some(item)),
    }
}

fn add_trailers(end: &mut Option<Item>, added: Option<Head>) {
    let Some(added) = added else { return };
    if let Some(Item::Trailers(trailers)) = end {
        for field in added.iter() {
            trailers.append_bytes(field.name_bytes, field.value);
        }
    } else {
        *end = Some(Item::Trailers(added));
    }
}

fn without_empty_trailers(end: &mut Option<Item>) {
    if matches!(end, Some(Item::Trailers(trailers)) if is_empty(trailers)) {
        *end = Some(Item::End);
    }
}

fn is_empty(trailers: &Head) -> bool {
    trailers.iter().len() == 0
}

fn length(item: &Item) -> u64 {
    match item {
        Item::Data(chunk) => chunk.len() as u64,
        Item::Trailers(_) | Item::End => 0,
    }
}
