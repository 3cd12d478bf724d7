//! Requests that wait on behalf of a filter: for a time, for the rest of their content, or for the address of a name.
//!
//! Arrives: what a filter wants. Leaves: the request at the filters behind it, once it has what it waited for.

use towpath_proto::Instant;

use crate::exchange::Exchange;
use crate::exchange::callout::{Asker, FilterOf};
use crate::exchange::filters::{FilterStatus, Filters, Resume, Until, Waiting, Walk};
use crate::exchange::names::{AtFilter, Waits};
use crate::exchange::stream::{Progress, Stream};
use crate::exchange::subs;
use crate::exchange::timers::HttpTimer;
use crate::filter::{Answer, Callout, Resolve, Wait};
use crate::grpc;
use crate::ids::StreamIndex;

impl Filters {
    /// Whether none of them has anything more to do with a stream, of which this says whether it came by gRPC.
    fn are_done(&self, came_as_grpc: bool) -> bool {
        let Self { watching, waiting, held, is_past, reply, talks, was_grpc, name, copies } = self;
        watching.is_empty()
            && waiting.is_none()
            && held.is_none()
            && !is_past
            && reply.is_empty()
            && talks.is_none()
            && *was_grpc == came_as_grpc
            && name.is_none()
            && copies.is_empty()
    }
}

impl Stream {
    /// Lets go of filters that are done, so that the stream goes on as one without any.
    fn leave_filters(&mut self) {
        let came_as_grpc = self.was_grpc || grpc::is_grpc(&self.request);
        self.filters.take_if(|filters| filters.are_done(came_as_grpc));
    }
}

impl Exchange {
    /// Lets a request wait for the name that it wants to go to, if it has to.
    pub(super) fn resolve(
        &mut self,
        index: StreamIndex,
        place: usize,
        resume: Resume,
        wish: Resolve,
        now: Instant,
    ) -> Walk {
        match self.resolve_for_filter(index, place, wish, now) {
            AtFilter::GoesOn => return Walk::GoesOn(place + 1),
            AtFilter::Answer(reply) => self.answer_by_filter(index, reply, now),
            AtFilter::Waits(name) => {
                if let Waits::Sub { within, .. } = &*name {
                    self.set_timer(index, HttpTimer::BackOff, now + *within);
                }
                if let Some(stream) = self.streams.get_mut(index) {
                    let filters = stream.filters_or_none();
                    filters.waiting = Some(Waiting { place, until: Until::Name, resume });
                    filters.name = Some(name);
                }
            }
        }
        Walk::Ended(FilterStatus::Stopped)
    }

    /// The name is known for which a request has waited, or its cluster is made, or there are too many.
    pub(super) fn go_on_resolved(
        &mut self,
        index: StreamIndex,
        place: usize,
        is_full: bool,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let filters = stream.filters.as_mut();
        let waited = filters.and_then(|filters| filters.name.take().zip(filters.waiting.take()));
        let Some((name, waiting)) = waited else { return };
        if matches!(*name, Waits::Sub { .. }) {
            stream.clear_timer(HttpTimer::BackOff);
        }
        let reply = self.resolved(&name, is_full);
        // Its place is free, also for itself on its way to its cluster.
        drop(name);
        match reply {
            Some(reply) => self.answer_by_filter(index, reply, now),
            None => self.go_on_behind(index, place, waiting.resume, now),
        }
    }

    /// Asks another server on behalf of a filter. Its answer comes as [`Exchange::go_on_answered`].
    pub(super) fn ask(
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

    /// A filter has the answer that it waited for.
    pub(crate) fn go_on_answered(&mut self, filter: FilterOf, answer: &Answer, now: Instant) {
        self.go_on_with(filter, |watcher, request| watcher.on_answer(answer, request), now);
    }

    /// Lets a request wait on behalf of a filter. It goes on with [`Exchange::go_on_waited`].
    pub(super) fn wait(
        &mut self,
        index: StreamIndex,
        place: usize,
        resume: Resume,
        wait: Wait,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.flags.set(wait.flags);
        if let Some(filters) = stream.filters.as_mut() {
            filters.waiting = Some(Waiting { place, until: Until::Time, resume });
        }
        self.set_timer(index, HttpTimer::BackOff, now + wait.time);
    }

    /// The time has passed that a filter lets a request wait, if one does.
    pub(crate) fn go_on_waited(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let Some(Waiting { place, until, .. }) = stream.waiting() else { return false };
        match until {
            Until::Time => {}
            Until::Name => {
                // A name has its own time.
                let filters = stream.filters.as_mut();
                let gave_up = filters.and_then(|filters| {
                    filters.name.take_if(|name| matches!(**name, Waits::Sub { .. }))?;
                    filters.waiting.take()
                });
                if gave_up.is_some() {
                    self.answer_by_filter(index, subs::late(), now);
                }
                return gave_up.is_some();
            }
            Until::Whole(_) | Until::Some(_) | Until::Answer(_) | Until::Told => return false,
        }
        let filter = FilterOf { stream: index, serial: stream.serial, place };
        self.go_on_with(filter, |watcher, request| watcher.on_waited(request), now);
        true
    }

    /// Lets a request that has waited already wait until all of it is here.
    pub(super) fn collect(
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
        } else if stream.request_end == Progress::Ended {
            self.go_on_collected(index, waiting, now);
        }
    }

    /// A request that waited at a place goes on: the filters behind see it and what has come of its content, then the
    /// router.
    pub(super) fn go_on_behind(
        &mut self,
        index: StreamIndex,
        place: usize,
        mut resume: Resume,
        now: Instant,
    ) {
        let Some(context) = self.streams.get(index).map(|stream| stream.context.clone()) else {
            return;
        };
        let progress = self.filter_request(index, place + 1, &mut resume, now);
        if self.filter_kept(index, place + 1, now).is_ok() && progress == FilterStatus::Through {
            if let Some(stream) = self.streams.get_mut(index) {
                stream.leave_filters();
            }
            self.route_filtered(index, &context, resume, now);
        }
        self.run_talks(index, now);
    }

    /// A request that was collected is complete: the filters behind see it, and the router.
    pub(super) fn go_on_collected(&mut self, index: StreamIndex, waiting: Waiting, now: Instant) {
        let Some(serial) = self.streams.get(index).map(|stream| stream.serial) else { return };
        let filter = FilterOf { stream: index, serial, place: waiting.place };
        self.go_on_with(filter, |watcher, request| watcher.on_collected(request), now);
    }
}
