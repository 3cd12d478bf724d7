//! One stream's conversation with the server.
//!
//! ```text
//!            head sent          answered             content sent        answered
//!   Idle ──────────────▶ Headers ────────▶ Idle ───────────────▶ Buffered ────────▶ Idle ──▶ Trailers ──▶ Idle
//!                                                                 Streamed
//!                                                                 Partial
//! ```

mod answers;
mod ends;

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use prost::Message as _;
use towpath_proto::Head;

use super::flow::{Flow, Modes, Waits};
use super::wire::{
    HeaderMap, HttpBody, HttpHeaders, HttpTrailers, Part, ProcessingRequest, ProcessingResponse,
    ProtocolConfiguration,
};
use super::{BodyMode, Merged, ProcessingMode, Shared, attributes, mutation};
use crate::filter::{
    Callout, Direction, Release, Reply, RequestView, ResponseView, Room, Said, Step, StreamFilter,
    TalkView,
};
use crate::format::Facts;
use crate::protobuf::{self, HeaderValue, framed};
use crate::record::details;

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// No message waited for it.
    Spurious(&'static str),
    /// It cannot be done.
    Invalid(&'static str),
}

#[derive(Debug)]
pub(super) struct Conversation {
    shared: Rc<Shared>,
    failure_mode_allow: bool,
    forwarded: Vec<Box<str>>,
    received: Vec<Box<str>>,
    /// The call, until it begins.
    callout: Option<Box<Callout>>,
    is_open: bool,
    /// Nothing more is sent or heard.
    is_done: bool,
    has_told_protocol: bool,
    request: Flow,
    response: Flow,
    steps: VecDeque<Step>,
    room: Room,
}

impl Conversation {
    pub(super) fn new(shared: Rc<Shared>, merged: &Merged<'_>, callout: Callout) -> Self {
        Self {
            shared,
            failure_mode_allow: merged.failure_mode_allow,
            forwarded: merged.forwarded.to_vec(),
            received: merged.received.to_vec(),
            callout: Some(Box::new(callout)),
            is_open: false,
            is_done: false,
            has_told_protocol: false,
            request: Flow::new(Direction::Request, merged.mode.of_request()),
            response: Flow::new(Direction::Response, merged.mode.of_response()),
            steps: VecDeque::new(),
            room: Room { flow: 0, whole: 0 },
        }
    }

    /// A request begins; whether its head waits.
    pub(super) fn begin_request(&mut self, request: &mut RequestView<'_>) -> bool {
        self.request.has_no_body = request.is_empty;
        self.request.is_whole = request.is_empty;
        let waits = self.show_head(Direction::Request, request.head, None, request.facts);
        if self.request.modes.forgets_length() && !self.watches() {
            mutation::forget_length(request.head);
        }
        waits
    }

    /// A response begins, to a request that is not shown.
    pub(super) const fn begin_with_response(&mut self) {
        (self.request.is_over, self.request.is_last) = (true, true);
    }

    const fn flow(&mut self, way: Direction) -> &mut Flow {
        match way {
            Direction::Request => &mut self.request,
            Direction::Response => &mut self.response,
        }
    }

    /// Whether nothing is waited for.
    fn watches(&self) -> bool {
        self.shared.config.watches.is_some()
    }

    /// Shows a head to the server; whether it waits.
    fn show_head(
        &mut self,
        way: Direction,
        head: &Head,
        request: Option<&Head>,
        facts: &Facts<'_>,
    ) -> bool {
        if !self.flow(way).modes.headers {
            return false;
        }
        let ends = self.flow(way).has_no_body;
        let headers = HttpHeaders { headers: Some(self.visible(head)), end_of_stream: ends };
        let part = match way {
            Direction::Request => Part::RequestHeaders(headers),
            Direction::Response => Part::ResponseHeaders(headers),
        };
        let request = request.or(facts.request);
        let facts = match way {
            Direction::Request => Facts { request: Some(head), ..*facts },
            Direction::Response => Facts { request, response: Some(head), ..*facts },
        };
        self.tell(way, part, &facts);
        if self.watches() {
            return false;
        }
        self.await_answer(way, Waits::Headers);
        self.flow(way).holds_head = true;
        true
    }

    /// The fields that the server sees.
    fn visible(&self, head: &Head) -> HeaderMap {
        let config = &self.shared.config;
        let status = head.status().to_string();
        let pseudo: [(&[u8], &[u8]); 5] = match head.status() {
            0 => [
                (b":authority", head.authority()),
                (b":path", head.path()),
                (b":method", head.method_bytes()),
                (b":scheme", head.scheme()),
                (b":status", b""),
            ],
            _ => [
                (b":authority", b""),
                (b":path", b""),
                (b":method", b""),
                (b":scheme", b""),
                (b":status", status.as_bytes()),
            ],
        };
        let pseudo = pseudo.into_iter().filter(|(_, value)| !value.is_empty());
        let fields = head.iter().map(|field| (field.name_bytes, field.value));
        let fields = pseudo.chain(fields).filter_map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            let any = |matchers: &[crate::matcher::StringMatcher]| {
                matchers.iter().any(|matcher| matcher.matches(&name))
            };
            let is_seen =
                !any(&config.disallowed) && (config.allowed.is_empty() || any(&config.allowed));
            is_seen.then(|| HeaderValue {
                key: String::from_utf8_lossy(&name).into_owned(),
                value: String::new(),
                raw_value: value.to_vec(),
            })
        });
        HeaderMap { headers: fields.collect() }
    }

    /// The fields of trailers.
    fn visible_trailers(&self, trailers: &Head) -> HeaderMap {
        let mut seen = self.visible(trailers);
        seen.headers.retain(|field| !field.key.starts_with(':'));
        seen
    }

    /// Says something to the server, which is called first if need be.
    fn tell(&mut self, way: Direction, part: Part, facts: &Facts<'_>) {
        let shared = Rc::clone(&self.shared);
        let config = &shared.config;
        if let Some(callout) = self.callout.take() {
            shared.stats.streams_started.inc();
            self.is_open = true;
            self.steps.push_back(Step::Begin(callout));
            self.steps.extend(config.watches.map(Step::Linger));
        }
        let mut message = ProcessingRequest {
            part: Some(part),
            metadata_context: Some(protobuf::metadata(facts.info, facts.record, &self.forwarded)),
            observability_mode: self.watches(),
            ..ProcessingRequest::default()
        };
        let wanted = match way {
            Direction::Request => &config.request_attributes,
            Direction::Response => &config.response_attributes,
        };
        if !wanted.is_empty() && !std::mem::replace(&mut self.flow(way).told_attributes, true) {
            let told = attributes::told(wanted, facts);
            message.attributes.insert(NAME.to_owned(), told);
        }
        if !self.watches() && !std::mem::replace(&mut self.has_told_protocol, true) {
            message.protocol_config = Some(ProtocolConfiguration {
                request_body_mode: self.request.modes.body.number(),
                response_body_mode: self.response.modes.body.number(),
                send_body_without_waiting_for_header_response: config.sends_body_early,
            });
        }
        self.steps.push_back(Step::Say(framed(&message)));
        shared.stats.stream_msgs_sent.inc();
    }

    /// The server's answer is waited for.
    fn await_answer(&mut self, way: Direction, waits: Waits) {
        let timeout = self.shared.config.message_timeout;
        let flow = self.flow(way);
        (flow.waits, flow.is_extended) = (waits, false);
        if flow.modes.body != BodyMode::FullDuplex {
            self.steps.push_back(Step::Time(way, Some(timeout)));
        }
    }

    /// It has come; another may be waited for.
    fn end_waiting(&mut self, way: Direction, waits: Waits) {
        let flow = self.flow(way);
        (flow.waits, flow.is_extended) = (waits, false);
        if self.is_open {
            self.steps.push_back(Step::Time(way, None));
        }
    }

    fn show_body(
        &mut self,
        way: Direction,
        body: Bytes,
        ends: bool,
        waits: Waits,
        facts: &Facts<'_>,
    ) {
        let body = HttpBody { body, end_of_stream: ends };
        let part = match way {
            Direction::Request => Part::RequestBody(body),
            Direction::Response => Part::ResponseBody(body),
        };
        self.tell(way, part, facts);
        if !self.watches() {
            self.await_answer(way, waits);
        }
    }

    /// Shows the trailers that are here, once.
    fn show_trailers(&mut self, way: Direction, facts: &Facts<'_>) {
        let flow = self.flow(way);
        let Some(Some(trailers)) = &flow.end else { return };
        let trailers = trailers.clone();
        self.show_these(way, &trailers, facts);
    }

    fn show_these(&mut self, way: Direction, trailers: &Head, facts: &Facts<'_>) {
        if std::mem::replace(&mut self.flow(way).has_sent_trailers, true) {
            return;
        }
        let trailers = HttpTrailers { trailers: Some(self.visible_trailers(trailers)) };
        let part = match way {
            Direction::Request => Part::RequestTrailers(trailers),
            Direction::Response => Part::ResponseTrailers(trailers),
        };
        self.tell(way, part, facts);
        if !self.watches() {
            let before = self.flow(way).waits;
            let waits = if before == Waits::Idle { Waits::Trailers } else { before };
            self.await_answer(way, waits);
        }
    }

    /// A direction waits for nothing: what is held of it goes on.
    fn release(&mut self, way: Direction) {
        match way {
            Direction::Request => self.request.release(&mut self.steps),
            Direction::Response => self.response.release(&mut self.steps),
        }
    }

    fn pass(&mut self, way: Direction, pieces: Vec<Bytes>, ends: bool) {
        match way {
            Direction::Request => self.request.pass(pieces, ends, &mut self.steps),
            Direction::Response => self.response.pass(pieces, ends, &mut self.steps),
        }
    }

    /// Our end of the call is over.
    fn hang_up(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.shared.stats.streams_closed.inc();
            self.steps.push_back(Step::HangUp);
        }
        self.callout = None;
    }

    /// Whether a fault of the server lets the stream go on as it is.
    fn may_fail_open(&self) -> bool {
        let can = |flow: &Flow| flow.modes.body != BodyMode::FullDuplex || !flow.has_body;
        self.failure_mode_allow && can(&self.request) && can(&self.response)
    }

    /// The stream goes on without the server.
    fn fail_open(&mut self, stream: &mut TalkView<'_>) {
        self.shared.stats.failure_mode_allowed.inc();
        self.go_on_alone(stream);
    }

    fn go_on_alone(&mut self, stream: &mut TalkView<'_>) {
        self.is_done = true;
        for way in [Direction::Request, Direction::Response] {
            self.end_waiting(way, Waits::Idle);
            self.restore_length(way, stream);
            self.release(way);
        }
    }

    /// The stream is answered here.
    fn fail(&mut self, status: u16, why: &str) {
        self.is_done = true;
        self.hang_up();
        let details = details::told(why, "ext_proc_error");
        self.answer(Reply::new(status, b"", details));
    }

    fn answer(&mut self, reply: Reply) {
        self.is_done = true;
        self.shared.stats.immediate_responses_sent.inc();
        self.request.drop_all();
        self.response.drop_all();
        self.request.waits = Waits::Idle;
        self.response.waits = Waits::Idle;
        self.steps.push_back(Step::Answer(Box::new(reply)));
    }

    /// More of a direction is here than may be held of it. As in Envoy, the answer to a request is shown like others.
    fn too_much(&mut self, way: Direction) -> Reply {
        match way {
            Direction::Request => {
                self.request.drop_all();
                self.request.is_over = true;
                Reply::new(413, b"Payload Too Large", details::REQUEST_PAYLOAD_TOO_LARGE)
            }
            Direction::Response => {
                self.is_done = true;
                self.hang_up();
                self.request.drop_all();
                self.response.drop_all();
                Reply::new(500, b"Internal Server Error", details::RESPONSE_PAYLOAD_TOO_LARGE)
            }
        }
    }

    fn on_data(
        &mut self,
        way: Direction,
        data: &mut Bytes,
        facts: &Facts<'_>,
    ) -> Result<(), Reply> {
        let limit = self.room.whole;
        let (is_done, watches) = (self.is_done, self.watches());
        let early = self.shared.config.sends_body_early;
        let flow = self.flow(way);
        flow.has_body = true;
        if watches {
            if flow.modes.body == BodyMode::Streamed && !is_done {
                self.show_body(way, data.clone(), false, Waits::Idle, facts);
            }
            return Ok(());
        }
        if flow.is_replaced || flow.is_over {
            data.clear();
            return Ok(());
        }
        if is_done {
            return Ok(());
        }
        let body = flow.modes.body;
        let waits_for_head = flow.waits == Waits::Headers
            && !(body == BodyMode::FullDuplex || (body == BodyMode::Streamed && early));
        if waits_for_head || body == BodyMode::Buffered {
            flow.hold(std::mem::take(data));
            if body == BodyMode::Buffered && flow.bytes() > limit {
                return Err(self.too_much(way));
            }
            return Ok(());
        }
        match body {
            BodyMode::None | BodyMode::Buffered => {}
            BodyMode::BufferedPartial if flow.is_partly_done => {}
            BodyMode::BufferedPartial => {
                flow.show(std::mem::take(data), false);
                if flow.waits != Waits::Partial && flow.shown_bytes() > limit {
                    let (all, _) = flow.join_shown();
                    self.show_body(way, all, false, Waits::Partial, facts);
                }
            }
            BodyMode::Streamed => {
                let data = std::mem::take(data);
                flow.show(data.clone(), false);
                let waits = flow.streams();
                self.show_body(way, data, false, waits, facts);
            }
            BodyMode::FullDuplex => {
                let data = std::mem::take(data);
                let waits = flow.streams();
                self.show_body(way, data, false, waits, facts);
            }
        }
        Ok(())
    }
}

impl Flow {
    /// What it waits for with a piece more.
    const fn streams(&self) -> Waits {
        if matches!(self.waits, Waits::Headers) { Waits::Headers } else { Waits::Streamed }
    }
}

impl BodyMode {
    const fn number(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Streamed => 1,
            Self::Buffered => 2,
            Self::BufferedPartial => 3,
            Self::FullDuplex => 4,
        }
    }
}

impl StreamFilter for Conversation {
    fn begin(&mut self, room: Room) {
        self.room = room;
    }

    fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    fn held(&self) -> usize {
        self.request.bytes() + self.response.bytes()
    }

    fn is_full(&self, way: Direction) -> bool {
        let flow = match way {
            Direction::Request => &self.request,
            Direction::Response => &self.response,
        };
        match flow.modes.body {
            // What is too much as a whole is answered, and not waited for.
            BodyMode::Buffered => false,
            // As much of it is shown as there is room for.
            BodyMode::BufferedPartial => flow.bytes() > self.room.whole,
            BodyMode::None | BodyMode::Streamed | BodyMode::FullDuplex => {
                flow.bytes() > self.room.flow
            }
        }
    }

    fn on_request_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        self.on_data(Direction::Request, data, facts)
    }

    fn keeps_request_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> bool {
        self.on_end(Direction::Request, trailers, facts)
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        if self.is_done || self.response.has_no_body || self.response.holds_head {
            return Release::Now;
        }
        if TIMEOUTS.contains(&response.facts.record.details) {
            // It has lasted too long already: it does not wait for a server once more.
            self.is_done = true;
            self.hang_up();
            self.request.drop_all();
            return Release::Now;
        }
        (self.response.has_no_body, self.response.is_whole) = (response.ends, response.ends);
        let waits = self.show_head(
            Direction::Response,
            response.head,
            response.facts.request,
            response.facts,
        );
        if self.response.modes.forgets_length() && !self.watches() {
            mutation::forget_length(response.head);
        }
        if self.response.modes.is_nothing() && self.request.is_through() {
            self.is_done = true;
            self.hang_up();
        }
        if waits { Release::Later } else { Release::Now }
    }

    fn on_response_data(&mut self, data: &mut Bytes, facts: &Facts<'_>) -> Result<(), Reply> {
        self.on_data(Direction::Response, data, facts)
    }

    fn keeps_response_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> bool {
        self.on_end(Direction::Response, trailers, facts)
    }

    fn on_said(&mut self, said: Said, stream: &mut TalkView<'_>) {
        match said {
            Said::Message(bytes) if self.is_open && !self.is_done && !self.watches() => {
                match ProcessingResponse::decode(bytes) {
                    Ok(response) => self.on_answer(response, stream),
                    Err(_) => {
                        self.is_open = false;
                        self.steps.push_back(Step::HangUp);
                        self.on_over(INTERNAL, details::VIA_UPSTREAM.as_bytes(), stream);
                    }
                }
            }
            Said::Message(_) | Said::Answer(_) => {}
            Said::Over(status, message) => {
                if std::mem::take(&mut self.is_open) {
                    self.on_over(status, &message, stream);
                }
            }
            Said::Late(way) => {
                let waits = match way {
                    Direction::Request => self.request.waits,
                    Direction::Response => self.response.waits,
                };
                if !self.is_done && waits != Waits::Idle {
                    self.on_late(stream);
                }
            }
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if self.is_open {
            self.shared.stats.streams_closed.inc();
        }
    }
}

/// The key of its attributes.
const NAME: &str = "envoy.filters.http.ext_proc";
const INTERNAL: u32 = 13;
/// The ends of streams that last too long.
const TIMEOUTS: [&str; 3] =
    [details::STREAM_IDLE_TIMEOUT, details::MAX_DURATION_TIMEOUT, details::REQUEST_OVERALL_TIMEOUT];

#[cfg(test)]
mod tests;
