//! Filters that talk with a server while a stream goes on.
//!
//! Arrives: what a filter wants done ([`Step`]), and what its call brings. Leaves: heads, content and ends that were
//! held, and messages of the call. A call is a callout that goes on: what it brings is told as `Work`, so that no
//! filter is called by what its server sends.
//!
//! What a filter holds of a direction is bounded by not reading the connection that it comes from.

use std::time::Duration;

use towpath_proto::{Close, Instant};

use crate::conn::{Connection, Connections};
use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::exchange::callout::{Asker, FilterOf};
use crate::exchange::filters::Filters;
use crate::exchange::forward::Item;
use crate::exchange::log::{Setting, facts};
use crate::exchange::stream::{Progress, Stream, UpstreamState};
use crate::exchange::timers::HttpTimer;
use crate::filter::{Answer, Direction, Failed, Reply, Room, Said, Step, StreamFilter, TalkView};
use crate::grpc;
use crate::ids::{Kind, Side, StreamIndex};

/// What goes on for a stream's filters that talk.
#[derive(Debug, Default)]
pub(crate) struct Talks {
    /// Their places, with the serial numbers of their calls.
    calls: Vec<(usize, u64)>,
    /// Calls that go on after the stream, so long.
    lingering: Option<Duration>,
    /// One of them keeps the end of the request.
    pub(super) keeps_end: bool,
    /// When filters without a call are told that they are late, by their places.
    wakes: Vec<(usize, Direction, Instant)>,
    /// Steps are being taken.
    is_driven: bool,
}

impl Filters {
    /// Bytes of content that they hold.
    pub(super) fn held(&self) -> usize {
        self.watching.iter().map(|(_, filter)| filter.held()).sum()
    }

    /// One goes with the stream from here on.
    #[cold]
    pub(super) fn add_talking(&mut self, place: usize, watcher: Box<dyn StreamFilter>) {
        let at = self.watching.partition_point(|(other, _)| *other < place);
        self.watching.insert(at, (place, watcher));
        self.talks.get_or_insert_default();
    }

    fn next_step(&mut self) -> Option<(usize, Step)> {
        let talks = self.talks.as_ref()?;
        if talks.is_driven {
            return None;
        }
        self.watching.iter_mut().find_map(|(at, watcher)| Some((*at, watcher.next_step()?)))
    }

    fn set_driven(&mut self, is_driven: bool) {
        if let Some(talks) = &mut self.talks {
            talks.is_driven = is_driven;
        }
    }

    fn call_of(&self, place: usize) -> Option<u64> {
        let talks = self.talks.as_ref()?;
        talks.calls.iter().find(|(at, _)| *at == place).map(|(_, call)| *call)
    }
}

impl Stream {
    /// Whether the end of the request is here, though not yet told: a filter keeps it, or it comes a second time.
    pub(crate) fn keeps_request_end(&self) -> bool {
        let filters = self.filters.as_deref();
        filters.and_then(|it| it.talks.as_ref()).is_some_and(|it| it.keeps_end)
            || self.comes_again()
    }

    /// Whether a filter that talks holds as much of a direction as it may.
    #[cold]
    fn is_full(&self, way: Direction) -> bool {
        let filters = self.filters.as_deref();
        filters.is_some_and(|filters| filters.watching.iter().any(|(_, it)| it.is_full(way)))
    }

    fn calls(&self) -> &[(usize, u64)] {
        let talks = self.filters.as_deref().and_then(|filters| filters.talks.as_ref());
        talks.map_or(&[], |talks| &talks.calls)
    }
}

impl Exchange {
    /// Does what filters of a stream want done. False if the stream is over with it.
    pub(super) fn run_talks(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(serial) = self.streams.get(index).map(|stream| stream.serial) else {
            return false;
        };
        let mut moved = false;
        loop {
            let Some(stream) = self.streams.get_mut(index).filter(|it| it.serial == serial) else {
                return false;
            };
            let Some(filters) = stream.filters.as_mut() else { return true };
            let Some((place, step)) = filters.next_step() else { break };
            filters.set_driven(true);
            moved |= matches!(step, Step::Pass(..) | Step::GoOn { .. } | Step::End(..));
            self.take_step(index, place, step, now);
            let stream = self.streams.get_mut(index).filter(|it| it.serial == serial);
            if let Some(filters) = stream.and_then(|stream| stream.filters.as_mut()) {
                filters.set_driven(false);
            }
        }
        if moved {
            self.update_source(index, true);
            self.update_source(index, false);
        }
        true
    }

    fn take_step(&mut self, index: StreamIndex, place: usize, step: Step, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(filters) = stream.filters.as_mut() else { return };
        match step {
            Step::Begin(callout) => {
                let filter = FilterOf { stream: index, serial: stream.serial, place };
                let call = self.begin_talk(filter, *callout, now);
                let filters = self.streams.get_mut(index).and_then(|it| it.filters.as_mut());
                if let Some(talks) = filters.and_then(|filters| filters.talks.as_mut()) {
                    talks.calls.push((place, call));
                }
            }
            Step::Ask(callout) => {
                let filter = FilterOf { stream: index, serial: stream.serial, place };
                let call = self.call_out(Asker::Waiter(filter), *callout, now);
                let filters = self.streams.get_mut(index).and_then(|it| it.filters.as_mut());
                if let Some(talks) = filters.and_then(|filters| filters.talks.as_mut()) {
                    talks.calls.push((place, call));
                }
            }
            Step::Say(message) => {
                if let Some(call) = filters.call_of(place) {
                    self.say(call, message, now);
                }
            }
            Step::HangUp => {
                let serial = stream.serial;
                if let Some(call) = filters.call_of(place) {
                    if let Some(talks) = &mut filters.talks {
                        talks.calls.retain(|(at, _)| *at != place);
                    }
                    self.cancel_callout(call, serial, now);
                }
            }
            Step::Linger(time) => {
                if let Some(talks) = &mut filters.talks {
                    talks.lingering = Some(time);
                }
            }
            Step::Time(way, after) if filters.call_of(place).is_none() => {
                self.set_pace(index, (place, way), after, now);
            }
            Step::Time(way, after) => {
                let call = filters.call_of(place).and_then(|call| self.callouts.stream_of(call));
                if let Some(stream) =
                    call.and_then(|call| Some((call, self.streams.get_mut(call)?)))
                {
                    let (call, stream) = stream;
                    match after {
                        Some(after) => {
                            stream.set_timer(call, timer(way), now + after, &mut self.env.timers);
                        }
                        None => stream.clear_timer(timer(way)),
                    }
                }
            }
            Step::Reroute => self.reroute_held(index, place),
            Step::GoOn { way: Direction::Request, .. } => {
                if let Some(waiting) = filters.waiting.take_if(|waiting| waiting.place == place) {
                    self.go_on_behind(index, place, waiting.resume, now);
                }
            }
            Step::GoOn { way: Direction::Response, ends } => {
                if filters.held == Some(place) {
                    self.go_on_responding(index, place, ends, now);
                }
            }
            Step::Field(name, value) => {
                stream.response.set(name, &value);
            }
            Step::Pass(way, data) => self.pass_on(index, (way, place), Item::Data(data), now),
            Step::End(way, trailers) => {
                let item = trailers.map_or(Item::End, Item::Trailers);
                self.pass_on(index, (way, place), item, now);
            }
            Step::Answer(reply) => self.answer_talking(index, *reply, now),
        }
    }

    /// A filter without a call is told when so much time has passed.
    fn set_pace(
        &mut self,
        index: StreamIndex,
        (place, way): (usize, Direction),
        after: Option<Duration>,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let talks = stream.filters.as_mut().and_then(|filters| filters.talks.as_mut());
        let Some(talks) = talks else { return };
        talks.wakes.retain(|(at, other, _)| (*at, *other) != (place, way));
        talks.wakes.extend(after.map(|after| (place, way, now + after)));
        let next = talks.wakes.iter().map(|(_, _, at)| *at).min();
        let slot = TimerSlot::Pace(index.0).number();
        match next {
            Some(next) => self.env.timers.set(slot, next),
            None => self.env.timers.clear(slot),
        }
    }

    /// Time has passed that filters wait for.
    pub(crate) fn on_pace(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let serial = stream.serial;
        let talks = stream.filters.as_mut().and_then(|filters| filters.talks.as_mut());
        let Some(talks) = talks else { return };
        let (due, later) = talks.wakes.drain(..).partition(|(_, _, at)| *at <= now);
        talks.wakes = later;
        if let Some(next) = talks.wakes.iter().map(|(_, _, at)| *at).min() {
            self.env.timers.set(TimerSlot::Pace(index.0).number(), next);
        }
        let due: Vec<(usize, Direction, Instant)> = due;
        for (place, way, _) in due {
            self.tell_talk(FilterOf { stream: index, serial, place }, Said::Late(way), now);
        }
    }

    /// Passes on what a filter held.
    fn pass_on(
        &mut self,
        index: StreamIndex,
        (way, place): (Direction, usize),
        item: Item,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(filters) = stream.filters.as_mut() else { return };
        match way {
            Direction::Response => self.filter_response_from(index, place, item, 0, now),
            // Its head waits here: content waits with it.
            Direction::Request if filters.waiting.is_some_and(|waiting| waiting.place == place) => {
                if let (Item::End | Item::Trailers(_), Some(talks)) = (&item, &mut filters.talks) {
                    talks.keeps_end = false;
                }
                self.pass(index, Side::Request, item, now);
            }
            Direction::Request => self.filter_request_from(index, place + 1, item, 0, now),
        }
    }

    /// The head of a response goes on from a place.
    fn go_on_responding(&mut self, index: StreamIndex, place: usize, ends: bool, now: Instant) {
        if !self.filter_response_head(index, place, ends, now) {
            // What has answered in its place has done all else.
            return;
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.response_end = Progress::Streaming;
        let context = stream.context.clone();
        self.write_response_head(index, &context, ends, now);
        if ends {
            self.pass_end(index, now);
        }
    }

    /// Finds the route anew of a request that waits at a place.
    fn reroute_held(&mut self, index: StreamIndex, place: usize) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        let waiting = stream.filters.as_ref().and_then(|filters| filters.waiting);
        let (Some(http), Some(waiting)) = (context.http(), waiting) else { return };
        if waiting.place != place {
            return;
        }
        let wants_tls = stream.choose_route(http, &self.snapshot, waiting.resume.random);
        if let Some(waiting) = stream.filters.as_mut().and_then(|filters| filters.waiting.as_mut())
        {
            waiting.resume.wants_tls = wants_tls;
        }
        self.retrace(index, http);
    }

    /// Sends a filter's answer to a request that may be on its way already.
    fn answer_talking(&mut self, index: StreamIndex, reply: Reply, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if let Some(filters) = &mut stream.filters {
            filters.waiting = None;
        }
        if stream.keeps_request_end() {
            stream.request_end = Progress::Ended;
        }
        self.refuse_response(index, reply, now);
    }

    /// The whole of a response is with its filters: its host is through with it.
    pub(super) fn settle_upstream(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.clear_timer(HttpTimer::Response);
        stream.clear_attempt_timers();
        let UpstreamState::Active(leg) = stream.upstream else { return };
        stream.upstream = UpstreamState::None;
        let (is_whole, before) = (stream.request_end == Progress::Ended, stream.response_end);
        stream.response_end = Progress::Ended;
        let how = if is_whole { Close::Flush } else { Close::Abort };
        self.leave_upstream(index, leg, is_whole, how, now);
        if let Some(stream) = self.streams.get_mut(index) {
            stream.response_end = before;
        }
    }

    /// A call has a message, or is over.
    pub(crate) fn tell_talk(&mut self, filter: FilterOf, said: Said, now: Instant) {
        let FilterOf { stream: index, serial, place } = filter;
        let Some(stream) = self.streams.get_mut(index).filter(|it| it.serial == serial) else {
            return;
        };
        let Some(mut filters) = stream.filters.take() else { return };
        if let (Said::Over(..) | Said::Answer(_), Some(talks)) = (&said, &mut filters.talks) {
            talks.calls.retain(|(at, _)| *at != place);
        }
        let mut request = stream.request.take();
        let has_response = stream.response.present().is_some();
        let mut response = stream.response.take();
        stream.complete_record();
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let mut view = TalkView { request: &mut request, response: &mut response, facts: &facts };
        let watcher = filters.watching.iter_mut().find(|(at, _)| *at == place);
        if let Some((_, watcher)) = watcher {
            watcher.on_said(said, &mut view);
        }
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.request.put(request, &mut self.env.heads);
        if has_response {
            stream.response.put(response, &mut self.env.heads);
        }
        stream.filters = Some(filters);
        self.run_talks(index, now);
    }

    /// A filter has waited for its server for so long as it wanted to.
    pub(crate) fn tell_late(&mut self, index: StreamIndex, timer: HttpTimer, now: Instant) {
        let way = if timer == REQUEST_TIMER { Direction::Request } else { Direction::Response };
        let serial = self.streams.get(index).map(|stream| stream.serial);
        match serial.and_then(|serial| self.callouts.talker(serial)) {
            Some(filter) => self.tell_talk(filter, Said::Late(way), now),
            // Its stream is over, and so is the time that it goes on.
            None => self.fail_callout(index, Failed::Reset, now),
        }
    }

    /// A stream is over: so are the calls of its filters.
    #[cold]
    pub(crate) fn end_asking(&mut self, stream: &Stream, now: Instant) {
        if let Some(callout) = stream.asks() {
            self.cancel_callout(callout, stream.serial, now);
        }
        let talks = stream.filters.as_deref().and_then(|filters| filters.talks.as_ref());
        for copy in stream.filters.as_deref().map_or(&[][..], |filters| &filters.copies) {
            self.cancel_callout(*copy, stream.serial, now);
        }
        for (_, call) in stream.calls() {
            match talks.and_then(|talks| talks.lingering) {
                Some(time) => self.linger(*call, time, now),
                None => self.cancel_callout(*call, stream.serial, now),
            }
        }
    }

    /// Whether what comes for a stream may be read, as far as its filters that talk and their servers are concerned; of
    /// a call of such a filter, whether its stream takes what the server says.
    pub(crate) fn talks_have_room(&self, stream: &Stream, way: Direction) -> bool {
        if let Kind::Callout(_) = stream.kind {
            let talker = self.callouts.talker(stream.serial);
            let Some(hearer) = talker.and_then(|it| self.streams.get(it.stream)) else {
                return true;
            };
            let has_room_up = match hearer.upstream {
                UpstreamState::Active(leg) => self.conns.has_room(leg),
                UpstreamState::None | UpstreamState::Pending(_) | UpstreamState::BackingOff => true,
            };
            return has_room_up && self.conns.has_room(hearer.downstream);
        }
        let Some(filters) = stream.filters.as_deref() else { return true };
        if way == Direction::Request && !filters.copies.is_empty() {
            let limit = stream.context.listener.buffer_limit.bytes;
            if !self.copies_have_room(&filters.copies, limit) {
                return false;
            }
        }
        if filters.talks.is_none() {
            return true;
        }
        !stream.is_full(way)
            && stream.calls().iter().all(|(_, call)| self.has_room_for_message(*call))
    }

    /// There is room for what a stream's filters pass on, or for what they say.
    #[cold]
    pub(crate) fn update_talks(&mut self, index: StreamIndex, is_upstream: bool) {
        let Some(stream) = self.streams.get(index) else { return };
        if let Kind::Callout(_) = stream.kind {
            if !is_upstream {
                return;
            }
            if let Some(filter) = self.callouts.teller(stream.serial)
                && self.streams.get(filter.stream).is_some_and(|it| it.serial == filter.serial)
            {
                self.update_own_source(filter.stream, true);
                self.update_own_source(filter.stream, false);
            }
            return;
        }
        let calls: Vec<u64> = stream.calls().iter().map(|(_, call)| *call).collect();
        for call in calls {
            if let Some(call) = self.callouts.stream_of(call) {
                self.update_own_source(call, false);
            }
        }
    }
}

/// How a call ended: its status, and what is said of it, with its response's details.
pub(super) fn end_of(answer: &Answer, details: &str) -> (u32, Vec<u8>) {
    let Answer::Response { head, trailers, .. } = answer else {
        let status = match answer {
            Answer::Failed(Failed::NoCluster) => UNAVAILABLE,
            Answer::Failed(Failed::TooLong) => EXHAUSTED,
            Answer::Failed(_) | Answer::Response { .. } => INTERNAL,
        };
        return (status, told(b"", details));
    };
    let said = trailers.as_ref().filter(|it| grpc::status_of(it).is_some()).unwrap_or(head);
    let status = grpc::status_of(said).map(u32::from);
    let status = match head.status() {
        200 => status.unwrap_or(grpc::UNKNOWN),
        other => status.unwrap_or_else(|| grpc::of_http(other)),
    };
    let message = said.get(towpath_proto::Name::GrpcMessage).unwrap_or_default();
    (status, told(&grpc::decode_message(message), details))
}

/// What is said of an end, as Envoy words it.
fn told(message: &[u8], details: &str) -> Vec<u8> {
    match (message, details) {
        (message, "") => message.to_vec(),
        (b"", details) => details.as_bytes().to_vec(),
        (message, details) => [message, b"{", details.as_bytes(), b"}"].concat(),
    }
}

/// The message that a call's content begins with, and how long its frame is; or that there can be none.
pub(super) fn first_message(body: &[u8]) -> Result<Option<usize>, Failed> {
    let Some(start) = body.first_chunk::<FRAME_START>() else { return Ok(None) };
    let [compressed, length @ ..] = *start;
    let length = u32::from_be_bytes(length) as usize;
    match (compressed, length) {
        (0, ..=MOST_MESSAGE) => Ok((body.len() >= FRAME_START + length).then_some(length)),
        (0, _) => Err(Failed::TooLong),
        _ => Err(Failed::Reset),
    }
}

/// What filters that talk may hold of a stream.
pub(super) fn room(stream: &Stream, conns: &Connections) -> Room {
    let client = conns.table.get(stream.downstream.connection);
    let flow = client.map_or(0, Connection::high_watermark);
    Room { flow, whole: stream.context.listener.retry_buffer_limit }
}

/// The deadline of a call by which its filter is late.
const fn timer(way: Direction) -> HttpTimer {
    match way {
        Direction::Request => REQUEST_TIMER,
        Direction::Response => RESPONSE_TIMER,
    }
}

/// A call has no use of its own for these.
pub(super) const REQUEST_TIMER: HttpTimer = HttpTimer::MaxDuration;
const RESPONSE_TIMER: HttpTimer = HttpTimer::LogFlush;
/// A byte of flags and four of length.
pub(super) const FRAME_START: usize = 5;
/// The longest message that a server may send. Envoy has no such limit.
const MOST_MESSAGE: usize = 16 << 20;
const EXHAUSTED: u32 = 8;
pub(super) const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_out_when_it_is_whole() {
        let whole = b"\0\0\0\0\x03abc\0";
        for cut in 0..8 {
            assert_eq!(first_message(&whole[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(first_message(whole), Ok(Some(3)));
        assert_eq!(first_message(b"\x01\0\0\0\0"), Err(Failed::Reset), "nothing is compressed");
        assert_eq!(first_message(b"\0\x01\0\0\0"), Ok(None), "16 MiB");
        assert_eq!(first_message(b"\0\x01\0\0\x01"), Err(Failed::TooLong));
    }
}
