//! What the server says of the parts that it was shown.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::Head;

use super::{
    BodyMode, Conversation, Direction, Fault, Modes, ProcessingMode, Reply, Step, TalkView, Waits,
};
use crate::filter::ext_proc::mutation::{self, Bounds};
use crate::filter::ext_proc::wire::{
    self, Answer, BodyMutation, CommonResponse, ImmediateResponse, Mutation, ProcessingResponse,
    TrailersResponse,
};
use crate::filter::ext_proc::{HeaderMode, RouteCache};
use crate::filter::head_limits::HeadLimits;
use crate::grpc;
use crate::record::details;
use crate::stream_info::Value;

const SPURIOUS: Fault = Fault::Spurious("spurious message");

impl Conversation {
    /// A message of the server.
    pub(super) fn on_answer(&mut self, response: ProcessingResponse, stream: &mut TalkView<'_>) {
        let shared = Rc::clone(&self.shared);
        let (config, stats) = (&shared.config, &shared.stats);
        if let Some(timeout) = response.override_message_timeout {
            return self.extend(timeout);
        }
        if let Some(mode) = response.mode_override {
            self.take_mode(mode);
        }
        let metadata = response.dynamic_metadata;
        let mut ended = None;
        let result = match response.answer {
            Some(Answer::Immediate(_)) if config.disable_immediate_response => {
                Err(Fault::Spurious("unhandled immediate response due to config disabled it"))
            }
            Some(Answer::Immediate(immediate)) => {
                self.take_metadata(metadata, stream);
                self.is_done = true;
                self.hang_up();
                self.answer_at_once(&immediate, stream);
                Ok(())
            }
            Some(answer) => {
                self.take_metadata(metadata, stream);
                let (way, result) = match answer {
                    Answer::RequestHeaders(it) => (
                        Direction::Request,
                        self.on_headers(Direction::Request, it.response, stream),
                    ),
                    Answer::ResponseHeaders(it) => (
                        Direction::Response,
                        self.on_headers(Direction::Response, it.response, stream),
                    ),
                    Answer::RequestBody(it) => {
                        (Direction::Request, self.on_body(Direction::Request, it.response, stream))
                    }
                    Answer::ResponseBody(it) => (
                        Direction::Response,
                        self.on_body(Direction::Response, it.response, stream),
                    ),
                    Answer::RequestTrailers(it) => (
                        Direction::Request,
                        self.on_trailers(Direction::Request, &it).map(|()| true),
                    ),
                    Answer::ResponseTrailers(it) => (
                        Direction::Response,
                        self.on_trailers(Direction::Response, &it).map(|()| true),
                    ),
                    Answer::Immediate(_) => (Direction::Request, Ok(false)),
                };
                ended = result.as_ref().ok().map(|is_last| (way, *is_last));
                result.map(|_| ())
            }
            None => Err(Fault::Spurious("unhandled message")),
        };
        match result {
            Ok(()) => stats.stream_msgs_received.inc(),
            Err(Fault::Spurious(_)) if self.may_fail_open() => {
                stats.spurious_msgs_received.inc();
                self.hang_up();
                self.fail_open(stream);
            }
            Err(Fault::Spurious(why)) => {
                stats.spurious_msgs_received.inc();
                self.fail(config.status_on_error, why);
            }
            Err(Fault::Invalid(why)) => {
                stats.stream_msgs_received.inc();
                self.fail(config.status_on_error, why);
            }
        }
        if let Some((way, is_last)) = ended {
            self.flow(way).is_last |= is_last;
            if is_last && self.request.is_through() && self.response.is_through() && self.is_open {
                self.is_done = true;
                self.hang_up();
            }
        }
    }

    /// The server asks for more time.
    fn extend(&mut self, timeout: wire::Duration) {
        let stats = Rc::clone(&self.shared);
        let seconds = u64::try_from(timeout.seconds).ok().map(Duration::from_secs);
        let nanos = u64::try_from(timeout.nanos).ok().map(Duration::from_nanos);
        let asked = seconds.zip(nanos).map(|(seconds, nanos)| seconds.saturating_add(nanos));
        let fits = |asked: &Duration| {
            asked.as_millis() >= 1 && *asked <= self.shared.config.max_message_timeout
        };
        let mut extended = false;
        if let Some(asked) = asked.filter(fits) {
            for way in [Direction::Request, Direction::Response] {
                let flow = self.flow(way);
                let waits = flow.waits != Waits::Idle && flow.modes.body != BodyMode::FullDuplex;
                if waits && !std::mem::replace(&mut flow.is_extended, true) {
                    self.steps.push_back(Step::Time(way, Some(asked)));
                    extended = true;
                }
            }
        }
        let stats = &stats.stats;
        let counter = match extended {
            true => &stats.override_message_timeout_received,
            false => &stats.override_message_timeout_ignored,
        };
        counter.inc();
    }

    /// The server says what it wants to see.
    fn take_mode(&mut self, asked: wire::ProcessingMode) {
        let config = &self.shared.config;
        let is_duplex =
            [config.mode.request_body, config.mode.response_body].contains(&BodyMode::FullDuplex);
        let is_awaited = [self.request.waits, self.response.waits].contains(&Waits::Headers);
        if !config.allow_mode_override || config.sends_body_early || is_duplex || !is_awaited {
            return;
        }
        let Some(mode) = over(asked, &config.mode) else { return };
        let is_allowed = config.allowed_modes.is_empty()
            || config.allowed_modes.iter().any(|allowed| {
                ProcessingMode { request_headers: mode.request_headers, ..*allowed } == mode
            });
        if is_allowed {
            // A request whose head is on its way has said how long it is, or that it does not know.
            let request = mode.of_request();
            let fits = self.request.holds_head || self.request.modes.forgets_length();
            let body = if fits { request.body } else { self.request.modes.body };
            self.request.modes = Modes { body, ..request };
            self.response.modes = mode.of_response();
        }
    }

    fn take_metadata(&self, metadata: Option<crate::protobuf::Struct>, stream: &TalkView<'_>) {
        let (Some(metadata), Some(info)) = (metadata, stream.facts.info) else { return };
        for (namespace, value) in metadata.into_values() {
            if let Value::Struct(entries) = value
                && self.received.contains(&namespace)
            {
                // What is too much for one stream is left out, as a whole.
                let _ = info.add_metadata(&namespace, entries);
            }
        }
    }

    /// What the server says of a head. Whether it is the last that it says of this direction.
    fn on_headers(
        &mut self,
        way: Direction,
        response: Option<CommonResponse>,
        stream: &mut TalkView<'_>,
    ) -> Result<bool, Fault> {
        if self.flow(way).waits != Waits::Headers {
            return Err(SPURIOUS);
        }
        let mut response = response.unwrap_or_default();
        self.change_head(way, &response, stream)?;
        self.clear_route(way, &response);
        if response.replaces() {
            self.end_waiting(way, Waits::Idle);
            self.replace(way, response.body_mutation.take(), stream);
            return Ok(self.is_last_after_head(way));
        }
        let early = self.shared.config.sends_body_early;
        let flow = self.flow(way);
        let body = flow.modes.body;
        let next = match body {
            BodyMode::Streamed if early && !flow.shown.is_empty() => Waits::Streamed,
            BodyMode::FullDuplex if flow.has_body => Waits::Streamed,
            BodyMode::FullDuplex if flow.has_trailers() => Waits::Trailers,
            BodyMode::None
            | BodyMode::Streamed
            | BodyMode::Buffered
            | BodyMode::BufferedPartial
            | BodyMode::FullDuplex => Waits::Idle,
        };
        self.end_waiting(way, next);
        let flow = self.flow(way);
        if body != BodyMode::Buffered || flow.has_no_body {
            self.restore_length(way, stream);
        }
        self.go_on_from_head(way, stream);
        Ok(self.is_last_after_head(way))
    }

    fn go_on_from_head(&mut self, way: Direction, stream: &mut TalkView<'_>) {
        let limit = self.room.whole;
        let flow = self.flow(way);
        let body = flow.modes.body;
        if flow.is_over {
            return;
        }
        if flow.has_no_body {
            return self.end_part(way, stream);
        }
        if flow.is_whole && body != BodyMode::None {
            if flow.waits != Waits::Idle {
                let ends = !flow.has_trailers();
                return self.stream_held(way, ends, stream);
            }
            if !flow.has_body {
                return self.end_part(way, stream);
            }
            let (all, ends) = (flow.held(), !flow.has_trailers());
            return self.show_body(way, all, ends, Waits::Buffered, stream.facts);
        }
        match body {
            BodyMode::None => self.end_part(way, stream),
            BodyMode::Buffered => {}
            BodyMode::Streamed | BodyMode::FullDuplex => self.stream_held(way, false, stream),
            BodyMode::BufferedPartial => {
                let held = flow.take_held();
                if !held.is_empty() {
                    flow.show(held, false);
                }
                if flow.shown_bytes() > limit {
                    let (all, _) = flow.join_shown();
                    self.show_body(way, all, false, Waits::Partial, stream.facts);
                }
            }
        }
    }

    /// Shows what was held while the head was waited for.
    fn stream_held(&mut self, way: Direction, ends: bool, stream: &TalkView<'_>) {
        let flow = self.flow(way);
        if flow.held_bytes() == 0 {
            return;
        }
        let held = flow.take_held();
        if flow.modes.body != BodyMode::FullDuplex {
            flow.show(held.clone(), ends);
        }
        self.show_body(way, held, ends, Waits::Streamed, stream.facts);
    }

    /// The server wants no content: trailers are next, or nothing.
    fn end_part(&mut self, way: Direction, stream: &TalkView<'_>) {
        let flow = self.flow(way);
        if flow.modes.trailers && flow.has_trailers() && !flow.has_sent_trailers {
            return self.show_trailers(way, stream.facts);
        }
        self.release(way);
    }

    /// Other content takes the place of what there is; nothing more of the message is shown.
    fn replace(&mut self, way: Direction, body: Option<BodyMutation>, stream: &mut TalkView<'_>) {
        if let Some(body) = body {
            let head = head_of(way, stream);
            mutation::forget_length(head);
            let flow = self.flow(way);
            flow.is_replaced = true;
            flow.clear_shown();
            if let Some(new) = content_of(&body) {
                flow.replace_held(new);
            }
            if flow.end.is_none() && !flow.has_no_body {
                // What still comes is dropped, and its end is this one's.
                flow.modes = Modes { body: BodyMode::None, trailers: false, ..flow.modes };
                let held = flow.take_held();
                return self.pass(way, vec![held], false);
            }
        } else {
            self.restore_length(way, stream);
            self.flow(way).clear_shown();
        }
        let flow = self.flow(way);
        flow.modes = Modes { body: BodyMode::None, trailers: false, ..flow.modes };
        self.release(way);
    }

    /// What the server says of content. Whether it is the last that it says of this direction.
    fn on_body(
        &mut self,
        way: Direction,
        response: Option<CommonResponse>,
        stream: &mut TalkView<'_>,
    ) -> Result<bool, Fault> {
        let response = response.unwrap_or_default();
        let mut is_last = false;
        let goes_on = match self.flow(way).waits {
            Waits::Buffered => {
                self.on_whole(way, &response, stream)?;
                true
            }
            Waits::Partial => {
                self.on_part(way, &response, stream)?;
                true
            }
            Waits::Streamed => {
                is_last = self.on_piece(way, &response, stream)?;
                is_last
            }
            Waits::Idle | Waits::Headers | Waits::Trailers => return Err(SPURIOUS),
        };
        self.clear_route(way, &response);
        let flow = self.flow(way);
        if flow.modes.trailers && flow.has_trailers() && flow.shown.is_empty() {
            self.show_trailers(way, stream.facts);
        } else if goes_on || (flow.has_trailers() && flow.shown.is_empty()) {
            self.release(way);
        }
        let flow = self.flow(way);
        let ends = is_last || (!flow.modes.trailers && flow.came_with_trailers);
        Ok(flow.waits == Waits::Idle && ends)
    }

    fn on_whole(
        &mut self,
        way: Direction,
        response: &CommonResponse,
        stream: &mut TalkView<'_>,
    ) -> Result<(), Fault> {
        self.change_head(way, response, stream)?;
        if let Some(body) = &response.body_mutation {
            if self.flow(way).holds_head {
                check_length(head_of(way, stream), body)?;
            }
            if let Some(new) = content_of(body) {
                self.flow(way).replace_held(new);
            }
        }
        let flow = self.flow(way);
        if flow.holds_head {
            flow.correct_length(head_of(way, stream));
        }
        self.end_waiting(way, Waits::Idle);
        Ok(())
    }

    fn on_part(
        &mut self,
        way: Direction,
        response: &CommonResponse,
        stream: &mut TalkView<'_>,
    ) -> Result<(), Fault> {
        let Some(first) = self.flow(way).take_shown() else { return Err(SPURIOUS) };
        self.change_head(way, response, stream)?;
        self.restore_length(way, stream);
        let new = response.body_mutation.as_ref().and_then(content_of);
        self.end_waiting(way, Waits::Idle);
        self.pass(way, vec![new.unwrap_or(first.data)], false);
        let mut rest = Vec::new();
        while let Some(piece) = self.flow(way).take_shown() {
            rest.push(piece.data);
        }
        self.pass(way, rest, false);
        self.flow(way).is_partly_done = true;
        Ok(())
    }

    /// Whether it was the last piece.
    fn on_piece(
        &mut self,
        way: Direction,
        response: &CommonResponse,
        stream: &mut TalkView<'_>,
    ) -> Result<bool, Fault> {
        let duplex = self.flow(way).modes.body == BodyMode::FullDuplex;
        let mutation = response.body_mutation.as_ref();
        let streamed = match mutation.and_then(|it| it.mutation.as_ref()) {
            Some(Mutation::Streamed(streamed)) => Some(streamed),
            Some(Mutation::Body(_) | Mutation::ClearBody(_)) | None => None,
        };
        self.restore_length(way, stream);
        match (duplex, streamed) {
            (true, Some(streamed)) => {
                let ends = streamed.end_of_stream;
                let waits = if ends { Waits::Idle } else { Waits::Streamed };
                self.end_waiting(way, waits);
                self.pass(way, vec![streamed.body.clone()], false);
                let flow = self.flow(way);
                if ends && flow.end.is_none() {
                    (flow.is_over, flow.end) = (true, Some(None));
                }
                return Ok(ends);
            }
            (false, None) => {}
            (true, None) => {
                return Err(Fault::Spurious(
                    "spurious message: Normal body mutation response is received while body_mode_ \
                     is FULL_DUPLEX_STREAMED",
                ));
            }
            (false, Some(_)) => {
                return Err(Fault::Spurious(
                    "spurious message: streamed_response is received while body_mode_ is not \
                     FULL_DUPLEX_STREAMED",
                ));
            }
        }
        let Some(piece) = self.flow(way).take_shown() else { return Err(SPURIOUS) };
        let new = mutation.and_then(content_of);
        self.pass(way, vec![new.unwrap_or(piece.data)], false);
        if self.flow(way).shown.is_empty() {
            self.end_waiting(way, Waits::Idle);
        } else {
            // Each piece has its time.
            self.await_answer(way, Waits::Streamed);
        }
        Ok(piece.ends)
    }

    fn on_trailers(&mut self, way: Direction, response: &TrailersResponse) -> Result<(), Fault> {
        let shared = Rc::clone(&self.shared);
        let flow = self.flow(way);
        if flow.waits != Waits::Trailers && flow.modes.body != BodyMode::FullDuplex {
            return Err(SPURIOUS);
        }
        if let (Some(mutation), Some(Some(trailers))) = (&response.header_mutation, &mut flow.end) {
            let bounds = Bounds { without_length: true, ..Bounds::default() };
            let (rules, rejected) = (&shared.config.rules, &shared.stats.rejected_header_mutations);
            mutation::apply(mutation, trailers, bounds, rules, rejected).map_err(Fault::Invalid)?;
        }
        self.end_waiting(way, Waits::Idle);
        self.release(way);
        Ok(())
    }

    /// Changes a head that is still here.
    fn change_head(
        &mut self,
        way: Direction,
        response: &CommonResponse,
        stream: &mut TalkView<'_>,
    ) -> Result<(), Fault> {
        let shared = Rc::clone(&self.shared);
        let Some(mutation) = &response.header_mutation else { return Ok(()) };
        let flow = self.flow(way);
        if !flow.holds_head {
            return Ok(());
        }
        let head = head_of(way, stream);
        flow.remember_length(head);
        let bounds = Bounds {
            replaces: response.replaces(),
            without_length: flow.modes.forgets_length(),
            limits: match way {
                Direction::Request => shared.limits,
                Direction::Response => HeadLimits::default(),
            },
        };
        let (rules, rejected) = (&shared.config.rules, &shared.stats.rejected_header_mutations);
        mutation::apply(mutation, head, bounds, rules, rejected).map_err(Fault::Invalid)
    }

    pub(super) fn restore_length(&mut self, way: Direction, stream: &mut TalkView<'_>) {
        let flow = self.flow(way);
        if flow.holds_head {
            let head = head_of(way, stream);
            flow.restore_length(head);
            if flow.modes.forgets_length() && !flow.has_no_body {
                mutation::forget_length(head);
            }
        }
    }

    /// A changed request may be routed anew.
    fn clear_route(&mut self, way: Direction, response: &CommonResponse) {
        if way == Direction::Response {
            return;
        }
        let shared = Rc::clone(&self.shared);
        let asks = response.clear_route_cache;
        if response.header_mutation.is_none() {
            if asks {
                shared.stats.clear_route_cache_ignored.inc();
            }
            return;
        }
        match shared.config.route_cache {
            RouteCache::Default if asks => self.steps.push_back(Step::Reroute),
            RouteCache::Default => {}
            RouteCache::Clear => self.steps.push_back(Step::Reroute),
            RouteCache::Retain if asks => shared.stats.clear_route_cache_disabled.inc(),
            RouteCache::Retain => {}
        }
    }

    fn answer_at_once(&mut self, immediate: &ImmediateResponse, stream: &mut TalkView<'_>) {
        let shared = Rc::clone(&self.shared);
        let code = immediate.status.map_or(200, |status| status.code);
        let status = u16::try_from(code).ok().filter(|code| (200..600).contains(code));
        let details = details::told(&immediate.details, "ext_proc_immediate_response");
        let mut reply = Reply::new(status.unwrap_or(200), &immediate.body, details);
        if let Some(mutation) = &immediate.headers {
            let bounds = Bounds { without_length: true, ..Bounds::default() };
            let (rules, rejected) = (&shared.config.rules, &shared.stats.rejected_header_mutations);
            // What is wrong with it is left out, with what comes behind it.
            let _ = mutation::apply(mutation, &mut reply.head, bounds, rules, rejected);
        }
        if let Some(said) = immediate.grpc_status
            && grpc::is_grpc(stream.request)
        {
            reply.head.set_number(towpath_proto::Name::GrpcStatus, said.status.into());
        }
        self.answer(reply);
    }

    /// Whether nothing more is said of a direction after its head.
    fn is_last_after_head(&mut self, way: Direction) -> bool {
        let flow = self.flow(way);
        if flow.waits != Waits::Idle {
            return false;
        }
        match (flow.modes.body, flow.modes.trailers) {
            _ if flow.has_no_body => true,
            (BodyMode::None, false) => true,
            (BodyMode::None, true) => flow.is_whole && !flow.came_with_trailers,
            (_, false) => flow.came_with_trailers,
            (_, true) => false,
        }
    }
}

fn head_of<'a>(way: Direction, stream: &'a mut TalkView<'_>) -> &'a mut Head {
    match way {
        Direction::Request => stream.request,
        Direction::Response => stream.response,
    }
}

/// What content becomes; `None` if it stays.
fn content_of(body: &BodyMutation) -> Option<Bytes> {
    match body.mutation.as_ref()? {
        Mutation::Body(body) => Some(body.clone()),
        Mutation::ClearBody(true) => Some(Bytes::new()),
        Mutation::ClearBody(false) | Mutation::Streamed(_) => None,
    }
}

/// Whether changed content is as long as its head says.
fn check_length(head: &Head, body: &BodyMutation) -> Result<(), Fault> {
    let new = match &body.mutation {
        Some(Mutation::Body(body)) => body.len(),
        Some(Mutation::ClearBody(_) | Mutation::Streamed(_)) | None => 0,
    };
    let said = head.get(towpath_proto::Name::ContentLength);
    let said = said.and_then(|said| std::str::from_utf8(said).ok()?.parse::<usize>().ok());
    if said.is_some_and(|said| said != new) {
        return Err(Fault::Invalid(
            "mismatch between content length and the length of the mutated body",
        ));
    }
    Ok(())
}

/// The filter's mode as far as another says nothing; `None` where that means nothing.
fn over(asked: wire::ProcessingMode, of_filter: &ProcessingMode) -> Option<ProcessingMode> {
    let header = |asked: i32, own: HeaderMode| match asked {
        0 => Some(own),
        1 => Some(HeaderMode::Send),
        2 => Some(HeaderMode::Skip),
        _ => None,
    };
    let body = |asked: i32| match asked {
        0 => Some(BodyMode::None),
        1 => Some(BodyMode::Streamed),
        2 => Some(BodyMode::Buffered),
        3 => Some(BodyMode::BufferedPartial),
        4 => Some(BodyMode::FullDuplex),
        _ => None,
    };
    Some(ProcessingMode {
        request_headers: header(asked.request_header_mode, of_filter.request_headers)?,
        response_headers: header(asked.response_header_mode, of_filter.response_headers)?,
        request_body: body(asked.request_body_mode)?,
        response_body: body(asked.response_body_mode)?,
        request_trailers: header(asked.request_trailer_mode, of_filter.request_trailers)?,
        response_trailers: header(asked.response_trailer_mode, of_filter.response_trailers)?,
    })
}
