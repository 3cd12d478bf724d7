//! HTTP filters between the router and a host: each attempt of a request passes them, and what answers it.
//!
//! Arrives: a stream whose attempt has its host, and the head of what that answers. Leaves: the same as the filters
//! leave them; or an answer of theirs. What they change of a request stays changed for the next attempt, as in Envoy.
//! An attempt that is repeated because its connection was closing is the same: it does not pass them again.

use std::rc::Rc;

use towpath_proto::Instant;

use crate::conn::context::PlacedFilter;
use crate::exchange::Exchange;
use crate::exchange::forward::Item;
use crate::exchange::log::{Setting, facts};
use crate::exchange::passing::Levels;
use crate::exchange::recorder::Recorder;
use crate::exchange::rpc::Bridging;
use crate::exchange::stream::{Progress, Stream, note_client};
use crate::filter::{Direction, OnRequest, Reply, RequestView, ResponseView, TrailersView};
use crate::ids::{Kind, StreamIndex};

impl Exchange {
    /// Shows the head of an attempt to the filters before its host; false if one of them has answered.
    #[inline]
    pub(super) fn filter_attempt(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        let filters = self.filters_of_attempts(stream);
        filters.is_none_or(|filters| self.show_attempt(index, &filters, now))
    }

    /// The filters that the attempts of a stream pass: its cluster's, else its router's.
    fn filters_of_attempts(&self, stream: &Stream) -> Option<Rc<[PlacedFilter]>> {
        let passes = match stream.kind {
            Kind::Http(_) | Kind::Callout(_) => true,
            Kind::Rpc(_) => stream.bridging != Bridging::None,
            Kind::Tcp(_) | Kind::App => false,
        };
        let cluster = self.upstreams.clusters.get(stream.cluster).map(|cluster| &cluster.filters);
        let router = stream.context.http().map(|http| &http.chain(stream.chain).upstream_filters);
        let found = [cluster, router].into_iter().flatten().find(|filters| !filters.is_empty());
        found.filter(|_| passes).cloned()
    }

    #[cold]
    fn show_attempt(&mut self, index: StreamIndex, filters: &[PlacedFilter], now: Instant) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let (number, attempts) = (stream.retries.done + 1, u64::from(stream.attempts));
        let known = stream.retries.tried.get_or_insert_default();
        if std::mem::replace(&mut known.filtered, number) == number {
            return true;
        }
        self.name_attempt(index, attempts, now);
        self.record_late(index);
        let Some(reply) = self.filter_head_of_attempt(index, filters, now) else { return true };
        self.answer_by_filter(index, reply, now);
        false
    }

    /// Begins the record of a stream that nothing else asks for.
    pub(super) fn record_late(&mut self, index: StreamIndex) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if !stream.recorder.is_off() {
            return;
        }
        stream.recorder = Recorder::recording();
        let client = self.conns.table.get_mut(stream.downstream.connection);
        let protocol = stream.request.present().map(|head| head.version());
        stream.recorder.note(|record| {
            record.protocol = protocol;
            if let Some(client) = client {
                note_client(record, client);
                record.downstream_tls = client.downstream_tls();
            }
        });
    }

    /// Answers what a filter answers.
    fn filter_head_of_attempt(
        &mut self,
        index: StreamIndex,
        filters: &[PlacedFilter],
        now: Instant,
    ) -> Option<Reply> {
        let stream = self.streams.get_mut(index)?;
        let context = stream.context.clone();
        let mut head = stream.request.take();
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let levels = Levels::in_table(stream, context.http());
        let ends = stream.request_end == Progress::Ended;
        let mut reply = None;
        for filter in filters {
            let route = levels.of_filter(filter);
            if route.disables(filter.disabled) {
                continue;
            }
            let mut view = RequestView {
                head: &mut head,
                ends,
                is_empty: ends && stream.body.len() == 0,
                content: &mut Vec::new(),
                facts: &facts,
                route,
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
            match filter.filter.on_request(&mut view) {
                OnRequest::Answer(answer) => {
                    reply = Some(answer);
                    break;
                }
                // Only filters of heads stand here, as the configuration sees to.
                OnRequest::Pass
                | OnRequest::Watch(_)
                | OnRequest::Collect(..)
                | OnRequest::CollectSome(..)
                | OnRequest::Ask(..)
                | OnRequest::Wait(..)
                | OnRequest::Talk { .. }
                | OnRequest::Resolve(_) => {}
            }
        }
        self.streams.get_mut(index)?.request.put(head, &mut self.env.heads);
        reply
    }

    /// Shows the head of an answer to the filters before its host, the last one first.
    #[cold]
    pub(super) fn filter_answer(&mut self, index: StreamIndex, ends: bool, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let Some(filters) = self.filters_of_attempts(stream) else { return };
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        let mut head = stream.response.take();
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let levels = Levels::in_table(stream, context.http());
        for filter in filters.iter().rev() {
            let route = levels.of_filter(filter);
            if route.disables(filter.disabled) {
                continue;
            }
            let Some(filter) = filter.filter.response_filter() else { continue };
            filter.on_response(&mut ResponseView {
                head: &mut head,
                ends,
                facts: &facts,
                route,
                scratch: &mut self.env.scratch,
                node_cluster: &self.snapshot.node.cluster,
                checks_health: stream.is_health_check,
                health_fails: self.env.draining.health_fails(),
                reply: None,
            });
        }
        if let Some(stream) = self.streams.get_mut(index) {
            stream.response.put(head, &mut self.env.heads);
        }
    }

    /// Shows trailers to the filters before a host.
    #[cold]
    pub(super) fn filter_trailers_of_attempt(
        &mut self,
        index: StreamIndex,
        way: Direction,
        item: &mut Item,
        now: Instant,
    ) {
        let Item::Trailers(trailers) = item else { return };
        let Some(stream) = self.streams.get(index) else { return };
        let Some(filters) = self.filters_of_attempts(stream) else { return };
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let levels = Levels::in_table(stream, context.http());
        let show = |filter: &PlacedFilter| {
            let route = levels.of_filter(filter);
            if !route.disables(filter.disabled) {
                let scratch = &mut self.env.scratch;
                let view = &mut TrailersView { trailers, way, facts: &facts, route, scratch };
                filter.filter.on_trailers(view);
            }
        };
        match way {
            Direction::Request => filters.iter().for_each(show),
            Direction::Response => filters.iter().rev().for_each(show),
        }
    }
}
