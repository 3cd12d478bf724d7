//! Answers to clients that speak Bolt: the upstream's, under the client's number, and our own.

use bytes::Bytes;
use towpath_proto::bolt::{Frame, Message, Status};
use towpath_proto::{Close, Instant};

use crate::conn::mux::Codec;
use crate::conn::spans::Part;
use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::rpc::downstream::is_head_read;
use crate::exchange::rpc::{Asked, Crossing};
use crate::exchange::stream::{Direction, Streams, UpstreamState};
use crate::ids::StreamIndex;
use crate::record::Flags;

impl Exchange {
    /// The answer whose head was just reported becomes the stream's.
    pub(crate) fn take_answer(&mut self, index: StreamIndex) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let UpstreamState::Active(id) = stream.upstream else { return };
        if let Some(connection) = self.conns.table.get_mut(id)
            && let Codec::BoltClient(client) = &mut connection.codec
        {
            stream.call.answer = client.take_answer();
        }
    }

    /// Passes the upstream's answer on.
    pub(crate) fn send_answer(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.call.crossing == Crossing::ToHttp {
            return self.hold_answer(index, now);
        }
        stream.record.status = stream.response.status();
        stream.record.response_start = Some(now);
        let downstream = stream.downstream;
        self.conns.encode_for(downstream, &mut self.env);
        let before = self.conns.out.len();
        let Some(stream) = self.streams.get_mut(index) else { return };
        if let (Some(asked), Some(answer)) = (stream.call.asked, stream.call.answer.take()) {
            write_answer(asked, &answer, &mut self.conns.out);
            stream.record.bytes_sent = answer.content().len() as u64;
            stream.record.upstream_bytes_received = stream.record.bytes_sent;
            stream.record.upstream_wire_received = answer.bytes().len() as u64;
        }
        stream.record.wire_sent = (self.conns.out.len() - before) as u64;
        self.check_reader(downstream, now);
    }

    /// Answers a call ourselves, unless nobody waits for that.
    pub(crate) fn answer_call(
        &mut self,
        index: StreamIndex,
        status: u16,
        details: &'static str,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.record.details = details;
        stream.local = true;
        stream.response.set_status(status);
        self.detach(index, Close::Abort, now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.trace_part(Part::Reply);
        stream.response_end = Direction::Ended;
        stream.record.upstream_last_received = None;
        stream.record.response_start = Some(now);
        stream.record.status = status;
        let verdict = local_status(stream.record.flags, status);
        let asked = stream.call.asked.filter(|_| !stream.call.is_oneway());
        let downstream = stream.downstream;
        if let Some(Asked { version, number, checksum, .. }) = asked {
            self.conns.encode_for(downstream, &mut self.env);
            let before = self.conns.out.len();
            // Without parts it is never too long.
            let answer = Message { checksum, ..Message::response(version, number, verdict) };
            let _ = answer.write(&mut self.conns.out);
            let wire_sent = (self.conns.out.len() - before) as u64;
            if let Some(stream) = self.streams.get_mut(index) {
                stream.record.wire_sent = wire_sent;
            }
        }
        self.on_response_ended(index, now);
        self.check_reader(downstream, now);
    }
}

impl Streams {
    /// Fills the head of an answer that is passed on as it is, where somebody reads it.
    pub(crate) fn fill_answer_head(&mut self, index: StreamIndex, env: &mut Env) {
        let Some(stream) = self.get_mut(index) else { return };
        if let Some(answer) = &stream.call.answer
            && is_head_read(stream, env.slow_after)
            && let Ok(head) = answer.head(&mut env.heads)
        {
            env.heads.give(std::mem::replace(&mut stream.response, head));
        }
    }
}

/// The answer under the number of the call, and in its version.
pub(crate) fn write_answer(asked: Asked, answer: &Frame, out: &mut towpath_proto::Out) {
    if answer.version() == asked.version {
        answer.write_as(asked.number, out);
        return;
    }
    let message = Message {
        version: asked.version,
        kind: answer.kind(),
        command: answer.command(),
        id: asked.number,
        codec: answer.codec(),
        timeout: None,
        status: answer.status().unwrap_or(Status::UNKNOWN),
        class: Bytes::copy_from_slice(answer.class()),
        headers: answer.header_block(),
        content: answer.content(),
        checksum: asked.checksum,
    };
    // All lengths are those of a frame that came.
    let _ = message.write(out);
}

/// What we say when there is no answer of an upstream; the HTTP status is for counters and logs.
pub(crate) fn local_status(flags: Flags, status: u16) -> Status {
    const NOBODY: Flags =
        Flags::NO_ROUTE_FOUND.with(Flags::NO_HEALTHY_UPSTREAM).with(Flags::NO_CLUSTER_FOUND);
    if flags.has(NOBODY) {
        Status::NO_PROCESSOR
    } else if flags.has(Flags::UPSTREAM_OVERFLOW) {
        Status::SERVER_BUSY
    } else if flags.has(Flags::UPSTREAM_REQUEST_TIMEOUT) {
        Status::TIMEOUT
    } else if flags.has(Flags::UPSTREAM_CONNECTION_FAILURE) {
        Status::COMMUNICATION_ERROR
    } else if flags.has(Flags::UPSTREAM_CONNECTION_TERMINATION) {
        Status::CONNECTION_CLOSED
    } else if flags.has(Flags::UPSTREAM_PROTOCOL_ERROR) {
        Status::CODEC_EXCEPTION
    } else {
        Status::from_http(status)
    }
}
