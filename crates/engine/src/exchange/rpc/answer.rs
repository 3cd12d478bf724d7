//! Answers to clients that speak Bolt: the upstream's, under the client's number, and our own.

use towpath_proto::bolt::{Frame, Message, Status, Version};
use towpath_proto::{Close, Instant};

use crate::conn::spans::Phase;
use crate::env::Env;
use crate::exchange::Exchange;
use crate::exchange::rpc::Bridging;
use crate::exchange::rpc::downstream::is_head_read;
use crate::exchange::stream::{Progress, Streams};
use crate::ids::{Leg, StreamIndex};
use crate::record::Flags;

impl Exchange {
    /// The answer to a call came, whole.
    pub(crate) fn on_answer(&mut self, index: StreamIndex, answer: Frame, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        // What reads more of it than its status fills it from the frame.
        stream.response.clear(&mut self.env.heads);
        stream.answer_status = answer.status().unwrap_or(Status::UNKNOWN).to_http();
        self.streams.answer = Some(answer);
        self.begin_response(index, true, now);
        self.streams.answer = None;
    }

    /// Passes the upstream's answer on.
    pub(crate) fn send_answer(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.bridging == Bridging::ToHttp {
            return self.hold_answer(index, now);
        }
        stream.status = stream.response_status();
        stream.recorder.note(|record| record.response_start = Some(now));
        let Leg { connection: downstream, number } = stream.downstream;
        self.conns.encode_for(downstream, &mut self.env);
        let before = self.conns.out.len();
        let answer = self.streams.answer.take();
        let (Some(stream), Some(connection)) =
            (self.streams.get_mut(index), self.conns.table.get_mut(downstream))
        else {
            return;
        };
        if let Some(answer) = answer {
            connection.mux.send_whole(number, &answer, &mut self.conns.out);
            stream.recorder.note(|record| {
                record.bytes_sent = answer.content().len() as u64;
                record.upstream_bytes_received = record.bytes_sent;
                record.upstream_wire_received = answer.bytes().len() as u64;
            });
        }
        stream.recorder.note(|record| record.wire_sent = (self.conns.out.len() - before) as u64);
        self.check_reader(downstream, now);
    }

    /// Answers a call ourselves, unless none is waited for.
    pub(crate) fn answer_call(
        &mut self,
        index: StreamIndex,
        status: u16,
        details: &'static str,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.recorder.note(|record| record.details = details);
        stream.local_reply = true;
        stream.response.clear(&mut self.env.heads);
        stream.answer_status = status;
        self.detach(index, Close::Abort, now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.trace_phase(Phase::Reply);
        stream.response_end = Progress::Ended;
        stream.recorder.note(|record| record.upstream_last_received = None);
        stream.recorder.note(|record| record.response_start = Some(now));
        stream.status = status;
        let status_sent = local_status(stream.flags, status);
        let is_oneway = stream.is_oneway;
        let Leg { connection: downstream, number } = stream.downstream;
        self.conns.encode_for(downstream, &mut self.env);
        if let Some(connection) = self.conns.table.get_mut(downstream).filter(|_| !is_oneway) {
            let before = self.conns.out.len();
            let answer = Message::response(Version::V1, 0, status_sent);
            // Without parts it is never too long.
            let _ = connection.mux.send_answer(number, answer, &mut self.conns.out);
            let wire_sent = (self.conns.out.len() - before) as u64;
            if let Some(stream) = self.streams.get_mut(index) {
                stream.recorder.note(|record| record.wire_sent = wire_sent);
            }
        }
        self.on_response_ended(index, now);
        self.check_reader(downstream, now);
    }
}

impl Streams {
    /// Fills the head of an answer that is passed on as it is, where a filter, route or log reads it.
    pub(crate) fn fill_answer_head(&mut self, index: StreamIndex, env: &mut Env) {
        let Some(answer) = self.answer.take() else { return };
        if let Some(stream) = self.get_mut(index)
            && is_head_read(stream, env.slow_after)
            && let Ok(head) = answer.head(&mut env.heads)
        {
            stream.response.put(head, &mut env.heads);
        }
        self.answer = Some(answer);
    }
}

/// What we say when there is no answer of an upstream; the HTTP status is for counters and logs.
pub(crate) fn local_status(flags: Flags, status: u16) -> Status {
    const UNREAD: Flags =
        Flags::NO_ROUTE_FOUND.with(Flags::NO_HEALTHY_UPSTREAM).with(Flags::NO_CLUSTER_FOUND);
    if flags.has(UNREAD) {
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
