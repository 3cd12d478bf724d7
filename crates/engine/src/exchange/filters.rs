//! HTTP filters at work: heads, pieces and ends of a stream on their way through its chain.
//!
//! Arrives: a request that has its route, what the forwarding loop has for a stream, and responses. Leaves: the same as
//! the filters leave it, on its way to the router, to the host or to the client; or an answer of theirs.

use bytes::Bytes;
use towpath_proto::Instant;
use towpath_proto::head::Version;

use crate::conn::context::HttpContext;
use crate::exchange::Exchange;
use crate::exchange::callout::FilterOf;
use crate::exchange::edge::Origin;
use crate::exchange::forward::Item;
use crate::exchange::log::{Setting, facts};
use crate::exchange::names::Waits;
use crate::exchange::passing::{
    Levels, length, pass_request, pass_response, taken_apart, without_empty_trailers,
};
use crate::exchange::stream::{Kept, Progress, Stream, UpstreamState};
use crate::exchange::talk::{Talks, room};
use crate::filter::{
    Ended, OnAnswer, OnRequest, Release, Reply, RequestView, ResponseView, StreamFilter,
};
use crate::format::Facts;
use crate::grpc;
use crate::ids::{Side, StreamIndex};
use crate::record::details;

/// The filters that go with a stream beyond the request's head.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    /// By their places in the chain.
    pub(super) watching: Vec<(usize, Box<dyn StreamFilter>)>,
    pub(super) waiting: Option<Waiting>,
    /// The place of the one that holds the response's head back.
    pub(super) held: Option<usize>,
    /// One has answered in the place of a response: none sees that.
    pub(crate) is_past: bool,
    /// The content of an answer of our own, which those of its head may ask for.
    pub(super) reply: Bytes,
    /// Some of them talk.
    pub(super) talks: Option<Box<Talks>>,
    /// The request was gRPC's when it came.
    pub(super) was_grpc: bool,
    /// The name that it waits for.
    pub(super) name: Option<Box<Waits>>,
    /// Copies of the request that are told the rest of it as it comes.
    pub(crate) copies: Vec<u64>,
}

/// A request that goes on later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// The filter that wants it so.
    pub(super) place: usize,
    pub(super) until: Until,
    pub(super) resume: Resume,
}

/// What it waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// All of it, of at most so many bytes.
    Whole(usize),
    /// So many bytes of it, or all.
    Some(usize),
    /// What comes of a callout.
    Answer(u64),
    /// A time.
    Time,
    /// What a filter hears.
    Told,
    /// The address of a name.
    Name,
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
pub(crate) enum FilterStatus {
    Through,
    /// It is answered, or waits to be complete.
    Stopped,
}

/// How a walk through the filters ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Walk {
    Ended(FilterStatus),
    /// The request is routed anew, and goes on at this place.
    Reroutes(usize),
    /// It goes on at this place.
    GoesOn(usize),
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
            Until::Whole(_) | Until::Some(_) | Until::Time | Until::Told | Until::Name => None,
        }
    }

    /// Whether the head waits for a filter that talks.
    fn waits_for_talk(&self) -> bool {
        matches!(self.waiting(), Some(Waiting { until: Until::Told, .. }))
    }

    pub(super) fn waiting(&self) -> Option<Waiting> {
        self.filters.as_deref()?.waiting
    }

    /// Whether it came as a call by gRPC, which a filter may have made of it.
    pub(crate) fn came_as_grpc(&self) -> bool {
        match self.filters.as_deref() {
            Some(filters) => filters.was_grpc,
            None => self.was_grpc || grpc::is_grpc(&self.request),
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
    ) -> FilterStatus {
        let Some(stream) = self.streams.get(index) else { return FilterStatus::Stopped };
        let context = stream.context.clone();
        let Some(http) = context.http() else { return FilterStatus::Through };
        if from >= http.chain(stream.chain).filters.len() {
            return FilterStatus::Through;
        }
        let mut place = from;
        loop {
            match self.filter_request_until_rerouted(index, place, http, *resume, now) {
                Walk::Ended(progress) => return progress,
                Walk::GoesOn(next) => place = next,
                Walk::Reroutes(next) => {
                    let Some(stream) = self.streams.get_mut(index) else {
                        return FilterStatus::Stopped;
                    };
                    resume.wants_tls = stream.choose_route(http, &self.snapshot, resume.random);
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
            return Walk::Ended(FilterStatus::Stopped);
        };
        let mut head = stream.request.take();
        let mut filters = stream.filters.take();
        let was_grpc = filters.as_ref().map_or_else(|| grpc::is_grpc(&head), |it| it.was_grpc);
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let levels = Levels::of(stream, http);
        let (mut answer, mut reroutes, mut callout, mut delay) = (None, None, None, None);
        let (mut talks, mut is_held, mut name, mut checks_health) = (false, false, None, false);
        let mut nothing = Vec::new();
        let chain = http.chain(stream.chain);
        for (place, filter) in chain.filters.iter().enumerate().skip(from) {
            let route = levels.of_filter(filter);
            if route.disables(filter.disabled) {
                continue;
            }
            let mut view = RequestView {
                head: &mut head,
                ends: stream.request_end == Progress::Ended,
                is_empty: stream.request_end == Progress::Ended && stream.body.len() == 0,
                content: &mut nothing,
                facts: &facts,
                route,
                is_routed: levels.routed.is_some(),
                forwards: levels.forwards,
                random: self.env.random.next(),
                scratch: &mut self.env.scratch,
                heads: &mut self.env.heads,
                node_cluster: &self.snapshot.node.cluster,
                drains: self.env.draining.is_on() || self.env.draining.health_fails(),
                before: filters.as_deref().map_or(&[], |filters| &filters.watching),
                reroutes: false,
                checks_health: false,
            };
            let on_request = filter.filter.on_request(&mut view);
            checks_health |= view.checks_health;
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
                OnRequest::Resolve(wish) => {
                    name = Some((place, wish));
                    break;
                }
                OnRequest::Wait(mut watcher, wait) => {
                    if watcher.talks() {
                        watcher.begin(room(stream, &self.conns));
                        talks = true;
                    }
                    delay = Some((place, wait));
                    (watcher, None)
                }
                OnRequest::Talk { mut watcher, waits } => {
                    watcher.begin(room(stream, &self.conns));
                    (talks, is_held) = (true, waits);
                    (watcher, waits.then_some(Until::Told))
                }
                OnRequest::Answer(reply) => {
                    if !was_grpc && grpc::is_grpc(&head) {
                        // It is one by now, but did not come as one.
                        filters.get_or_insert_with(Box::default);
                    }
                    answer = Some(reply);
                    break;
                }
            };
            let fresh = || Box::new(Filters { was_grpc, ..Filters::default() });
            let filters = filters.get_or_insert_with(fresh);
            filters.watching.push((place, watcher));
            if talks {
                filters.talks.get_or_insert_default();
            }
            filters.waiting = until.map(|until| Waiting { place, until, resume });
            let waits = until.is_some() || callout.is_some() || delay.is_some();
            if waits || reroutes.is_some() {
                break;
            }
        }
        let Some(stream) = self.streams.get_mut(index) else {
            return Walk::Ended(FilterStatus::Stopped);
        };
        stream.request.put(head, &mut self.env.heads);
        stream.filters = filters;
        stream.is_health_check |= checks_health;
        if talks && !self.run_talks(index, now) {
            return Walk::Ended(FilterStatus::Stopped);
        }
        if is_held {
            // If it waits no more, it has gone on already.
            return Walk::Ended(FilterStatus::Stopped);
        }
        if let Some((place, wish)) = name {
            return self.resolve(index, place, resume, *wish, now);
        }
        if let Some(reply) = answer {
            self.answer_by_filter(index, reply, now);
            return Walk::Ended(FilterStatus::Stopped);
        }
        if let Some((place, callout)) = callout {
            self.ask(index, place, resume, *callout, now);
            return Walk::Ended(FilterStatus::Stopped);
        }
        if let Some((place, wait)) = delay {
            self.wait(index, place, resume, wait, now);
            return Walk::Ended(FilterStatus::Stopped);
        }
        let Some(stream) = self.streams.get(index) else {
            return Walk::Ended(FilterStatus::Stopped);
        };
        match reroutes {
            _ if stream.is_collected() || stream.waits_for_talk() => {
                Walk::Ended(FilterStatus::Stopped)
            }
            Some(next) => Walk::Reroutes(next),
            None => Walk::Ended(FilterStatus::Through),
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
        for (place, filter) in http.chain(stream.chain).filters.iter().enumerate() {
            if filter.sees_ends && !levels.of_filter(filter).disables(filter.disabled) {
                let watcher = watching.iter().find(|(at, _)| *at == place);
                let watcher = watcher.map(|(_, watcher)| &**watcher);
                filter.filter.on_end(&Ended { facts: &facts, watcher });
            }
        }
    }

    /// Sends an answer of a filter's.
    pub(super) fn answer_by_filter(&mut self, index: StreamIndex, reply: Reply, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.flags.set(reply.flags);
        // As in Envoy, a filter that says so may mean that it could not read the request.
        if reply.head.status() == 400 && stream.request.version() != Version::Http2 {
            self.conns.close_after_response(stream.downstream.connection);
        }
        if reply.charges_cluster
            && let Some(cluster) = self.upstreams.clusters.get(stream.cluster)
        {
            cluster.stats.count_response(reply.head.status(), true);
        }
        if !reply.is_final {
            return self.answer(index, reply.head, reply.body, reply.details, now);
        }
        stream.recorder.note(|record| record.details = reply.details);
        stream.local_reply = true;
        stream.status = reply.head.status();
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
        let counted = length(&item);
        self.filter_request_from(index, 0, item, counted, now);
    }

    /// Passes a piece of a request through the filters from a place on, of which so many bytes are in the record.
    pub(super) fn filter_request_from(
        &mut self,
        index: StreamIndex,
        from: usize,
        item: Item,
        before: u64,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(mut filters) = stream.filters.take() else { return };
        let (mut data, mut end) = taken_apart(item);
        let waiting = filters.waiting;
        let last = waiting.map_or(usize::MAX, |waiting| waiting.place);
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let ended = end.is_some();
        let passed = pass_request(&mut filters, (from, last), (&mut data, &mut end), &facts);
        if let Some(talks) = filters.talks.as_mut().filter(|_| ended) {
            let is_over = stream.request_end == Progress::Ended;
            talks.keeps_end = end.is_none() && passed.is_ok() && !is_over;
        }
        let talks = filters.talks.is_some();
        let is_copied = !filters.copies.is_empty();
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.filters = Some(filters);
        if let Err(reply) = passed {
            if ended {
                stream.request_end = Progress::Ended;
            }
            if stream.request.version() != Version::Http2 {
                self.conns.close_after_response(stream.downstream.connection);
            }
            return self.refuse_response(index, reply, now);
        }
        let after = data.len() as u64;
        if is_copied {
            self.pass_to_copies(index, &data, end.as_ref(), now);
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
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
        if talks && !self.run_talks(index, now) {
            return;
        }
        if !data.is_empty() {
            self.pass(index, Side::Request, Item::Data(data), now);
        }
        let ends = end.is_some();
        if let Some(end) = end {
            self.pass(index, Side::Request, end, now);
        }
        let Some(waiting) = waiting else { return };
        let goes_on = match waiting.until {
            Until::Whole(_) => ends,
            Until::Some(limit) => ends || held >= limit as u64,
            Until::Answer(_) | Until::Time | Until::Told | Until::Name => false,
        };
        if goes_on {
            self.go_on_collected(index, waiting, now);
        }
    }

    /// A filter has what it waited for.
    pub(super) fn go_on_with(
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
        let is_empty = stream.request_end == Progress::Ended && stream.body.len() == 0;
        let mut kept = stream.body.take_kept();
        let mut made = Kept::default();
        let Kept { chunks, trailers, .. } = kept.as_deref_mut().unwrap_or(&mut made);
        let mut head = stream.request.take();
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let levels = Levels::of(stream, http);
        let placed = http.chain(stream.chain).filters.get(place);
        let mut view = RequestView {
            head: &mut head,
            ends: stream.request_end == Progress::Ended,
            is_empty,
            content: chunks,
            facts: &facts,
            route: placed.map(|it| levels.of_filter(it)).unwrap_or_default(),
            is_routed: levels.routed.is_some(),
            forwards: levels.forwards,
            random: self.env.random.next(),
            scratch: &mut self.env.scratch,
            heads: &mut self.env.heads,
            node_cluster: &self.snapshot.node.cluster,
            drains: self.env.draining.is_on() || self.env.draining.health_fails(),
            before: &[],
            reroutes: false,
            checks_health: false,
        };
        let watcher = filters.watching.iter_mut().find(|(at, _)| *at == place);
        let outcome = watcher.map_or(OnAnswer::GoOn, |(_, watcher)| {
            if let Some(trailers) = trailers {
                watcher.lend_trailers(trailers);
            }
            let outcome = decide(&mut **watcher, &mut view);
            if let Some(trailers) = trailers {
                watcher.return_trailers(trailers);
            }
            outcome
        });
        let reroutes = view.reroutes;
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.request.put(head, &mut self.env.heads);
        if let Some(kept) = kept {
            stream.body.restore(kept);
        } else if !made.chunks.is_empty() {
            stream.body.restore(Box::new(made));
        }
        if matches!(outcome, OnAnswer::Done) {
            filters.watching.retain(|(at, _)| *at != place);
        }
        stream.filters = Some(filters);
        match outcome {
            OnAnswer::Reply(reply) => self.answer_by_filter(index, reply, now),
            OnAnswer::Ask(callout) => self.ask(index, place, resume, *callout, now),
            OnAnswer::Collect(limit) => self.collect(index, place, resume, limit, now),
            OnAnswer::GoOn | OnAnswer::Done => {
                if reroutes {
                    resume.wants_tls = stream.choose_route(http, &self.snapshot, resume.random);
                    self.retrace(index, http);
                }
                self.go_on_behind(index, place, resume, now);
            }
        }
    }

    /// Shows what is kept of the content to the filters from a place on, as far as the one that waits.
    pub(super) fn filter_kept(
        &mut self,
        index: StreamIndex,
        from: usize,
        now: Instant,
    ) -> Result<(), ()> {
        let stream = self.streams.get_mut(index).ok_or(())?;
        let Some(mut filters) = stream.filters.take() else { return Ok(()) };
        let ended = stream.request_end == Progress::Ended;
        let Some(kept) = stream.body.take_kept() else {
            stream.filters = Some(filters);
            return Ok(());
        };
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let last = filters.waiting.map_or(usize::MAX, |waiting| waiting.place);
        let mut kept_end = false;
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
            kept_end = end.is_none() && result.is_ok();
            if let Some(Item::Trailers(head)) = end {
                trailers = Some(head);
            }
        }
        let stream = self.streams.get_mut(index).ok_or(())?;
        if let Some(talks) = filters.talks.as_mut().filter(|_| kept_end) {
            // For the filters behind them, it is not here yet.
            talks.keeps_end = true;
            stream.request_end = Progress::Streaming;
        }
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
        let chain = http.chain(stream.chain);
        if stream.filters.is_none() && !chain.filters_responses {
            return true;
        }
        let mut head = stream.response.take();
        let mut filters = stream.filters.take();
        if let Some(filters) = &mut filters {
            filters.held = None;
        }
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let content = filters.as_mut().map(|it| std::mem::take(&mut it.reply)).unwrap_or_default();
        let facts = Facts { local_reply_body: &content, ..facts(stream, None, setting, now) };
        let levels = Levels::of(stream, http);
        let (mut held, mut reply) = (false, None);
        for (place, filter) in chain.filters.iter().enumerate().take(before).rev() {
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
                node_cluster: &self.snapshot.node.cluster,
                checks_health: stream.is_health_check,
                health_fails: self.env.draining.health_fails(),
                reply: None,
            };
            let watching = filters.as_mut().map(|filters| &mut filters.watching);
            let watcher = watching.and_then(|all| all.iter_mut().find(|(at, _)| *at == place));
            let release = match (watcher, filter.filter.response_filter()) {
                (Some((_, watcher)), _) => watcher.on_response_head(&mut view),
                (None, None) => Release::Now,
                (None, Some(filter)) => match filter.join(&mut view) {
                    Some(mut watcher) => {
                        watcher.begin(room(stream, &self.conns));
                        let release = watcher.on_response_head(&mut view);
                        filters.get_or_insert_default().add_talking(place, watcher);
                        release
                    }
                    None => {
                        filter.on_response(&mut view);
                        Release::Now
                    }
                },
            };
            reply = view.reply.take();
            if reply.is_some() {
                break;
            }
            if release == Release::Later || (release == Release::AtEnd && !ends) {
                held = true;
                if let Some(filters) = &mut filters {
                    filters.held = Some(place);
                    if release == Release::Later {
                        filters.talks.get_or_insert_default();
                    }
                }
                break;
            }
        }
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let talks = filters.as_deref().is_some_and(|filters| filters.talks.is_some());
        stream.response.put(head, &mut self.env.heads);
        stream.filters = filters;
        if let Some(reply) = reply {
            stream.filters_or_none().is_past = true;
            if ends {
                self.settle_upstream(index, now);
            }
            self.answer_by_filter(index, *reply, now);
            return false;
        }
        if talks {
            self.run_talks(index, now);
        }
        !held
    }

    /// Whether the response of a stream was answered in its place, and the stream may be over.
    pub(crate) fn is_past_filters(&self, index: StreamIndex, serial: u64) -> bool {
        self.streams.get(index).is_none_or(|stream| {
            stream.serial != serial || stream.filters.as_deref().is_some_and(|it| it.is_past)
        })
    }

    /// Passes one piece of a response through the filters. Where one holds the head back, it goes on with the end.
    pub(crate) fn filter_response_item(&mut self, index: StreamIndex, item: Item, now: Instant) {
        let counted = length(&item);
        self.filter_response_from(index, usize::MAX, item, counted, now);
    }

    /// The same from a place on, of a piece of which so many bytes are in the record.
    pub(super) fn filter_response_from(
        &mut self,
        index: StreamIndex,
        mut upper: usize,
        item: Item,
        before: u64,
        now: Instant,
    ) {
        let (mut data, mut end) = taken_apart(item);
        let ended = end.is_some();
        let mut talked = false;
        loop {
            let Some(stream) = self.streams.get_mut(index) else { return };
            let Some(mut filters) = stream.filters.take() else { return };
            let mut head = stream.response.take();
            let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
            let facts = facts(stream, None, setting, now);
            let (held, talks) = (filters.held, filters.talks.is_some());
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
                stream.recorder.note(|record| {
                    record.bytes_sent = record.bytes_sent.saturating_sub(before);
                });
                return self.refuse_response(index, reply, now);
            }
            if talks {
                if ended && end.is_none() {
                    self.settle_upstream(index, now);
                }
                talked = true;
            }
            let Some(place) = held else { break };
            if end.is_none() {
                let Some(stream) = self.streams.get_mut(index) else { return };
                stream.recorder.note(|record| {
                    record.bytes_sent = record.bytes_sent.saturating_sub(before);
                });
                if talked {
                    self.run_talks(index, now);
                }
                return;
            }
            let ends = data.is_empty() && matches!(end, Some(Item::End));
            let Some(serial) = self.streams.get(index).map(|stream| stream.serial) else { return };
            let goes_on = self.filter_response_head(index, place, ends, now);
            if self.is_past_filters(index, serial) {
                return;
            }
            if goes_on {
                let Some(stream) = self.streams.get_mut(index) else { return };
                stream.response_end = Progress::Streaming;
                let context = stream.context.clone();
                self.write_response_head(index, &context, ends, now);
                if ends {
                    return self.pass_end(index, now);
                }
            }
            upper = place;
        }
        // What is said of a piece is said before it may be the last.
        if talked && !self.run_talks(index, now) {
            return;
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
    pub(super) fn refuse_response(&mut self, index: StreamIndex, reply: Reply, now: Instant) {
        if let Some(http) = self.streams.get(index).and_then(|stream| stream.context.http()) {
            match reply.details {
                details::RESPONSE_PAYLOAD_TOO_LARGE => http.stats.rs_too_large.inc(),
                details::REQUEST_PAYLOAD_TOO_LARGE => http.stats.downstream_rq_too_large.inc(),
                _ => {}
            }
        }
        if self.streams.get(index).is_some_and(Stream::is_unanswered) {
            return self.answer_by_filter(index, reply, now);
        }
        self.streams.count_tx_reset(index);
        self.abandon(index, reply.details, now);
    }

    /// The head of a response was all of it.
    pub(super) fn pass_end(&mut self, index: StreamIndex, now: Instant) {
        if let Some(stream) = self.streams.get_mut(index) {
            stream.response_end = Progress::Ended;
        }
        self.on_response_ended(index, now);
    }
}
