//! Between HTTP and Bolt, by route: path and fields against service, method and block of headers, body against content.
//!
//! Arrives: a stream whose route leads to a cluster of the other protocol, and what the forwarding loop has for it.
//! Leaves: the same stream with a head, a frame or a body of the other protocol, which goes on like any other.
//!
//! A frame is written whole. What HTTP sends in pieces is therefore kept here until its end, up to the route's limit; a
//! frame that came needs no such thing. The request is not placed on a host before all of it is here, and the client
//! has seen nothing of an answer before that is whole: until then it can still be told of an error.

use bytes::{Bytes, BytesMut};
use towpath_proto::Instant;
use towpath_proto::bolt::{Frame, Message, Status, Version, write_header};
use towpath_proto::head::{FieldRef, Head};
use towpath_proto::name::Name;

use crate::env::Env;
use crate::exchange::forward::Item;
use crate::exchange::retry::parse_number;
use crate::exchange::rpc::Bridging;
use crate::exchange::stream::{Progress, Stream, Streams};
use crate::exchange::{Exchange, edge};
use crate::ids::{Leg, Side, StreamIndex};
use crate::number::Decimal;
use crate::record::{Flags, details};
use crate::snapshot::bolt::{Bridge, ToBolt, ToHttp};
use crate::snapshot::route::Forward;

impl Exchange {
    /// Prepares a stream for the other protocol; false if it was answered.
    pub(crate) fn begin_crossing(
        &mut self,
        index: StreamIndex,
        forward: &Forward,
        now: Instant,
    ) -> bool {
        match &forward.bridge {
            None => true,
            Some(Bridge::ToBolt(bridge)) => self.begin_collecting(index, bridge, now),
            Some(Bridge::ToHttp(bridge)) => self.become_request(index, bridge, now),
        }
    }

    /// Places a stream on a host, if all of it is here that must be.
    pub(crate) fn place_crossing(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let collecting = stream.bridging == Bridging::Collecting;
        if collecting && (stream.request_end != Progress::Ended || !self.become_call(index, now)) {
            return;
        }
        self.place_stream(index, now);
    }

    /// The request of a stream is complete: one that was collected can go.
    pub(crate) fn end_collecting(&mut self, index: StreamIndex, now: Instant) {
        let collecting = |stream: &Stream| stream.bridging == Bridging::Collecting;
        if self.streams.get(index).is_some_and(collecting) {
            self.place_crossing(index, now);
        }
    }

    /// One piece of a stream that changes its protocol.
    pub(crate) fn cross(&mut self, index: StreamIndex, side: Side, item: Item, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        match (stream.bridging, side) {
            (Bridging::Collecting, Side::Request) => {
                let added = if let Item::Data(chunk) = &item { chunk.len() } else { 0 };
                let limit = to_bolt(stream).map_or(0, |bridge| bridge.max_request);
                if stream.body.len() + added > limit {
                    self.refuse_body(index, now);
                } else {
                    self.pass(index, side, item, now);
                }
            }
            (Bridging::ToHttp, Side::Response) => self.collect_answer(index, item, now),
            (Bridging::None | Bridging::ToBolt, _)
            | (Bridging::Collecting, Side::Response)
            | (Bridging::ToHttp, Side::Request) => self.pass(index, side, item, now),
        }
    }

    /// Sends the content of the answer whose head is out.
    pub(crate) fn send_content(&mut self, index: StreamIndex, now: Instant) {
        if let Some(answer) = self.streams.answer.take() {
            self.forward(index, Side::Response, Item::Data(answer.content()), now);
            self.forward(index, Side::Response, Item::End, now);
        }
    }

    /// The head of an HTTP response to a call is here; its client hears of it when the rest is, too.
    pub(crate) fn hold_answer(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.response_end == Progress::Ended {
            self.send_collected(index, now);
        } else {
            // As far as the client can tell, there is no answer.
            stream.response_end = Progress::AwaitingHead;
        }
    }

    /// An HTTP request that becomes a call when it is complete; false if it never can.
    pub(crate) fn begin_collecting(
        &mut self,
        index: StreamIndex,
        bridge: &ToBolt,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        stream.bridging = Bridging::Collecting;
        if edge::wanted_upgrade(&stream.request).is_some() {
            self.local_reply(index, 403, b"", details::UPGRADE_FAILED, now);
            return false;
        }
        let promised = stream.request.get(Name::ContentLength).and_then(parse_number::<u64>);
        if promised.is_some_and(|promised| promised > bridge.max_request as u64) {
            self.refuse_body(index, now);
            return false;
        }
        true
    }

    pub(crate) fn refuse_body(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        if let Some(http) = stream.context.http() {
            http.stats.downstream_rq_too_large.inc();
        }
        self.conns.close_after_response(stream.downstream.connection);
        self.local_reply(index, 413, b"Payload Too Large", details::REQUEST_PAYLOAD_TOO_LARGE, now);
    }

    /// Makes the frame of a request that is all here; false if that cannot be.
    pub(crate) fn become_call(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        stream.bridging = Bridging::ToBolt;
        let content = take_body(stream);
        stream.body.whole = true;
        let Some(bridge) = to_bolt(stream) else { return false };
        let Some((service, method)) = target(bridge, stream.request.path()) else {
            stream.flags.set(Flags::NO_ROUTE_FOUND);
            self.local_reply(index, 404, b"", details::NO_SERVICE, now);
            return false;
        };
        let message = Message {
            codec: bridge.codec,
            timeout: stream.response_timeout.get(),
            class: bridge.class.clone(),
            headers: block_of_request(&stream.request, &service, &method),
            content,
            checksum: true,
            ..Message::request(bridge.version, 0)
        };
        // The limits on class and content are the configuration's: it can only be the block.
        let Ok(frame) = message.frame() else {
            let text = b"Request Header Fields Too Large";
            self.local_reply(index, 431, text, details::BLOCK_TOO_LONG, now);
            return false;
        };
        stream.frame = Some(frame);
        true
    }

    /// Makes the request that a call becomes; false if no path can say where it goes.
    pub(crate) fn become_request(
        &mut self,
        index: StreamIndex,
        bridge: &ToHttp,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let Some(frame) = &stream.frame else { return false };
        let Some(path) = path_of(bridge, frame) else {
            stream.flags.set(Flags::NO_ROUTE_FOUND);
            self.local_reply(index, 404, b"", details::NO_SERVICE, now);
            return false;
        };
        stream.bridging = Bridging::ToHttp;
        let mut head = self.env.heads.take();
        let name =
            self.upstreams.clusters.get(stream.cluster).map(|cluster| cluster.config.name.clone());
        let host = bridge.host.clone().or(name).unwrap_or_default();
        head.set_method(bridge.method.as_bytes());
        head.set_authority(host.as_bytes());
        head.set_path(&path);
        let content = frame.content();
        append_block(frame, &mut head);
        head.set_bytes(CLASS, frame.class());
        head.set_bytes(CODEC, Decimal::new().write(frame.codec().into()));
        if head.get(Name::ContentType).is_none() {
            head.set(Name::ContentType, bridge.content_type.as_bytes());
        }
        head.set_number(Name::ContentLength, content.len() as u64);
        stream.request.put(head, &mut self.env.heads);
        stream.body.reset();
        if !content.is_empty() {
            stream.body.push(content);
        }
        true
    }

    /// A piece of the response to a call.
    pub(crate) fn collect_answer(&mut self, index: StreamIndex, item: Item, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        match item {
            // It is not waited for.
            Item::Data(_) if stream.is_oneway => {}
            Item::Data(chunk) => {
                let limit = to_http(stream).map_or(0, |bridge| bridge.max_response);
                if stream.body.len() + chunk.len() > limit {
                    if let Some(http) = stream.context.http() {
                        http.stats.rs_too_large.inc();
                    }
                    self.local_reply(index, 500, b"", details::RESPONSE_PAYLOAD_TOO_LARGE, now);
                } else {
                    self.collect_chunk(index, chunk, now);
                }
            }
            Item::Trailers(head) => {
                self.env.heads.give(head);
                self.end_answer(index, now);
            }
            Item::End => self.end_answer(index, now),
        }
    }

    /// Keeps a piece, if that is not more than may be held for the client. Whether the server did what it was asked
    /// is not known then: it is an error, not "busy".
    pub(crate) fn collect_chunk(&mut self, index: StreamIndex, chunk: Bytes, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Leg { connection, number } = stream.downstream;
        let Some(connection) = self.conns.table.get_mut(connection) else { return };
        if connection.mux.collect(number, chunk.len()) {
            stream.body.push(chunk);
            return;
        }
        if let Some(bolt) = stream.context.bolt() {
            bolt.stats.downstream_rq_held_overflow.inc();
        }
        self.local_reply(index, 500, b"", details::TOO_MUCH_HELD, now);
    }

    pub(crate) fn end_answer(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.response_end = Progress::Ended;
        if self.send_collected(index, now) {
            self.on_response_ended(index, now);
        }
    }

    /// Writes the answer to a call, if it wants one; false if it was answered otherwise.
    pub(crate) fn send_collected(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let content = take_body(stream);
        stream.status = stream.response_status();
        stream.recorder.note(|record| record.response_start = Some(now));
        let Leg { connection: downstream, number } = stream.downstream;
        if stream.is_oneway {
            return true;
        }
        let Some(message) = answer_of_response(stream, content) else { return false };
        self.conns.encode_for(downstream, &mut self.env);
        let before = self.conns.out.len();
        let Some(connection) = self.conns.table.get_mut(downstream) else { return false };
        if connection.mux.send_answer(number, message, &mut self.conns.out).is_err() {
            if let Some(stream) = self.streams.get_mut(index) {
                stream.response_end = Progress::AwaitingHead;
                stream.flags.set(Flags::UPSTREAM_PROTOCOL_ERROR);
            }
            self.local_reply(index, 502, b"", details::BLOCK_TOO_LONG, now);
            return false;
        }
        let written = (self.conns.out.len() - before) as u64;
        if let Some(stream) = self.streams.get_mut(index) {
            stream.recorder.note(|record| record.wire_sent = written);
        }
        self.check_reader(downstream, now);
        true
    }
}

impl Streams {
    /// The answer to a call that began as an HTTP request becomes a response; whether it has a body.
    pub(crate) fn become_response(&mut self, index: StreamIndex, env: &mut Env) -> bool {
        let answer = self.answer.take();
        let Some(stream) = self.get_mut(index) else { return false };
        if stream.bridging != Bridging::ToBolt {
            self.answer = answer;
            self.fill_answer_head(index, env);
            return false;
        }
        let mut head = env.heads.take();
        let mut has_body = false;
        if let (Some(answer), Some(bridge)) = (&answer, to_bolt(stream)) {
            write_response(answer, bridge, &mut head);
            has_body = !answer.content().is_empty();
            stream
                .recorder
                .note(|record| record.upstream_wire_received = answer.bytes().len() as u64);
        }
        stream.response.put(head, &mut env.heads);
        self.answer = answer;
        has_body
    }
}

/// What a body came to.
pub(crate) fn take_body(stream: &mut Stream) -> Bytes {
    let body = &mut stream.body;
    let content = match body.chunks_mut() {
        [only] => std::mem::take(only),
        chunks => chunks.concat().into(),
    };
    body.reset();
    content
}

pub(crate) fn to_bolt(stream: &Stream) -> Option<&ToBolt> {
    match stream.routed()?.forward()?.bridge.as_ref()? {
        Bridge::ToBolt(bridge) => Some(bridge),
        Bridge::ToHttp(_) => None,
    }
}

pub(crate) fn to_http(stream: &Stream) -> Option<&ToHttp> {
    match stream.routed()?.forward()?.bridge.as_ref()? {
        Bridge::ToHttp(bridge) => Some(bridge),
        Bridge::ToBolt(_) => None,
    }
}

/// Service and method of a request, where its path is no longer and no shorter than it must be to say them.
pub(crate) fn target(bridge: &ToBolt, path: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let path = path.split(|&byte| byte == b'?').next()?.strip_prefix(b"/")?;
    let mut segments = path.split(|&byte| byte == b'/');
    let mut part = |given: &Option<std::sync::Arc<str>>| match given {
        Some(given) => Some(given.as_bytes().to_vec()),
        None => segments.next().filter(|segment| !segment.is_empty()).and_then(percent_decoded),
    };
    let (service, method) = (part(&bridge.service)?, part(&bridge.method)?);
    let is_read = bridge.service.is_none() || bridge.method.is_none();
    (!is_read || segments.next().is_none()).then_some((service, method))
}

/// Service and method of a call as a path. Each is one segment, whatever is in it (RFC 3986 §3.3); one that would lead
/// elsewhere is no name.
pub(crate) fn path_of(bridge: &ToHttp, frame: &Frame) -> Option<Vec<u8>> {
    let mut path = bridge.path_prefix.as_bytes().to_vec();
    let (service, method) = (frame.service().unwrap_or_default(), frame.method());
    for name in [Some(service), method.filter(|name| !name.is_empty())].into_iter().flatten() {
        if matches!(name, b"." | b"..") {
            return None;
        }
        path.push(b'/');
        for &byte in name {
            if byte.is_ascii_alphanumeric() || IN_SEGMENT.contains(&byte) {
                path.push(byte);
            } else {
                path.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
        }
    }
    Some(path)
}

pub(crate) fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.iter());
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    while let Some(&byte) = rest.next() {
        let byte = match byte {
            b'%' => (digit(rest.next()?)? << 4 | digit(rest.next()?)?) as u8,
            byte => byte,
        };
        out.push(byte);
    }
    Some(out)
}

/// What a request's fields come to, behind what says where it goes.
pub(crate) fn block_of_request(head: &Head, service: &[u8], method: &[u8]) -> Bytes {
    let mut block = BytesMut::new();
    for (key, value) in [
        (SERVICE, service),
        (TARGET_SERVICE, service),
        (METHOD_NAME, method),
        (HTTP_METHOD, head.method_bytes()),
        (HTTP_PATH, head.path()),
    ] {
        write_header(&mut block, key, value);
    }
    append_fields(&mut block, head, &OURS);
    block.freeze()
}

/// Adds the fields of a head that mean something beyond one connection.
pub(crate) fn append_fields(block: &mut BytesMut, head: &Head, reserved: &[&[u8]]) {
    let passes = |field: &FieldRef<'_>| {
        !is_of_connection(field.name)
            && !reserved.iter().any(|key| key.eq_ignore_ascii_case(field.name_bytes))
    };
    for field in head.iter().filter(passes) {
        // Field names know no case; keys do.
        write_header(block, &field.name_bytes.to_ascii_lowercase(), field.value);
    }
}

/// Adds the pairs of a frame that can be fields and say nothing that is ours to say.
pub(crate) fn append_block(frame: &Frame, head: &mut Head) {
    let Ok(pairs) = frame.headers() else { return };
    for (key, value) in pairs {
        let of_proxies = key.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-envoy-"));
        let reserved =
            [CLASS, CODEC, STATUS].iter().any(|reserved| reserved.eq_ignore_ascii_case(key));
        if !of_proxies && !reserved && !is_of_connection(Name::resolve(key)) {
            head.append_bytes(key, value);
        }
    }
}

/// Fields that end with their connection (RFC 9110 §7.6.1), or that frame a message.
pub(crate) fn is_of_connection(name: Name) -> bool {
    const FIELDS: [Name; 11] = [
        Name::Host,
        Name::Connection,
        Name::ContentLength,
        Name::TransferEncoding,
        Name::Te,
        Name::Trailer,
        Name::Upgrade,
        Name::Expect,
        Name::KeepAlive,
        Name::ProxyConnection,
        Name::Http2Settings,
    ];
    FIELDS.contains(&name)
}

/// The head that an answer becomes.
pub(crate) fn write_response(answer: &Frame, bridge: &ToBolt, head: &mut Head) {
    let status = answer.status().unwrap_or(Status::UNKNOWN);
    head.set_status(http_status(status));
    append_block(answer, head);
    head.set_bytes(STATUS, Decimal::new().write(status.0.into()));
    head.set_bytes(CODEC, Decimal::new().write(answer.codec().into()));
    if !answer.class().is_empty() {
        head.set_bytes(CLASS, answer.class());
    }
    let length = answer.content().len();
    if length > 0 && head.get(Name::ContentType).is_none() {
        head.set(Name::ContentType, bridge.content_type.as_bytes());
    }
    head.set_number(Name::ContentLength, length as u64);
}

/// What an HTTP client is told: what the call did wrong is told apart from what its server did.
pub(crate) const fn http_status(status: Status) -> u16 {
    match status {
        Status::NO_PROCESSOR => 404,
        Status::CODEC_EXCEPTION | Status::SERVER_DESERIALIZE => 400,
        Status::COMMUNICATION_ERROR => 503,
        other => other.to_http(),
    }
}

/// The answer that a response becomes, with its body; the mux knows the call's number and version.
pub(crate) fn answer_of_response(stream: &Stream, content: Bytes) -> Option<Message> {
    let bridge = to_http(stream)?;
    let head = &stream.response;
    let status = Status::from_http(head.status());
    let named = |name: &[u8]| head.get_bytes(name);
    let class = match named(CLASS) {
        Some(class) => Bytes::copy_from_slice(class),
        // What an error page is has no definition.
        None if status != Status::SUCCESS || content.is_empty() => Bytes::new(),
        None => bridge.class.clone(),
    };
    let mut block = BytesMut::new();
    let mut digits = Decimal::new();
    write_header(&mut block, STATUS_OF_HTTP, digits.write(head.status().into()));
    append_fields(&mut block, head, &[STATUS_OF_HTTP, CLASS, CODEC]);
    Some(Message {
        codec: named(CODEC).and_then(parse_number).unwrap_or(stream.codec),
        class,
        headers: block.freeze(),
        content,
        ..Message::response(Version::V1, 0, status)
    })
}

/// What may stand in a segment beside letters and digits. Not `;`: what is behind it some servers take off a segment.
pub(crate) const IN_SEGMENT: &[u8] = b"-._~:@!$&'()*+,=";

/// Keys by which SOFARPC and its routers know service and method.
pub(crate) const SERVICE: &[u8] = b"service";

pub(crate) const TARGET_SERVICE: &[u8] = b"sofa_head_target_service";

pub(crate) const METHOD_NAME: &[u8] = b"sofa_head_method_name";

pub(crate) const HTTP_METHOD: &[u8] = b"http-method";

pub(crate) const HTTP_PATH: &[u8] = b"http-path";

pub(crate) const STATUS_OF_HTTP: &[u8] = b"http-status";

pub(crate) const CLASS: &[u8] = b"bolt-class";

pub(crate) const CODEC: &[u8] = b"bolt-codec";

pub(crate) const STATUS: &[u8] = b"bolt-status";

/// What no client of HTTP says itself: where its call goes, and what its content is taken for.
pub(crate) const OURS: [&[u8]; 8] =
    [SERVICE, TARGET_SERVICE, METHOD_NAME, HTTP_METHOD, HTTP_PATH, CLASS, CODEC, STATUS];
