//! A response that broke off goes on where it stopped, on another connection.
//!
//! Arrives: the heads of responses, and resets of those that have begun. Leaves: the request changed into one for the
//! rest, the rest joined to what the app has already, or the request ended as if it had not been tried.
//!
//! A connection on which a response stands still tells nothing: the server sends, and we acknowledge what comes. As
//! with a silent server a standby connection tells whether the network is there.

use towpath_proto::Instant;

use crate::client::resume::Resumable;
use crate::exchange::Exchange;
use crate::exchange::app::liveness::QUIET;
use crate::exchange::app::retry::{AGAIN, SILENT_AFTER};
use crate::exchange::stream::Progress;
use crate::ids::StreamIndex;
use crate::local::message::Error;
use crate::local::report::Resumed;
use crate::local::{Resume, StandbyReason};

impl Exchange {
    /// The head of a response is the app's: whether it could go on elsewhere.
    pub(crate) fn note_resumable(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        if stream.response_end != Progress::Streaming || stream.request_end != Progress::Ended {
            return;
        }
        let wanted = self.call(index).is_some_and(|call| call.options.resumes);
        let Some(what) = wanted.then(|| Resumable::of(&stream.request, &stream.response)).flatten()
        else {
            return;
        };
        let moved = (stream.recorder.record().bytes_sent, now);
        let resume = Box::new(Resume { what, asked: None, moved });
        if let Some(call) = self.call_mut(index) {
            call.resume = Some(resume);
        }
        self.watch_at(index, now + AGAIN);
    }

    /// Whether the response under way could go on elsewhere.
    pub(crate) fn may_resume(&self, index: StreamIndex) -> bool {
        let (Some(stream), Some(call)) = (self.streams.get(index), self.call(index)) else {
            return false;
        };
        let Some(resume) = &call.resume else { return false };
        stream.response_end == Progress::Streaming
            && stream.retries.repeatable
            && stream.recorder.record().bytes_received == 0
            && stream.recorder.record().bytes_sent < resume.what.total()
            && stream.retries.done < call.options.retries
    }

    /// Changes the request into one for what is missing.
    pub(crate) fn ask_for_rest(&mut self, index: StreamIndex, error: Error, now: Instant) {
        let Some(call) = self.call_mut(index) else { return };
        call.silent_asked = false;
        let retries = call.options.retries;
        let Some(mut resume) = call.resume.take() else { return };
        resume.asked = Some(error);
        if let Some(stream) = self.streams.get_mut(index) {
            resume.what.ask(&mut stream.request, stream.recorder.record().bytes_sent);
            stream.response_end = Progress::AwaitingHead;
            stream.body.reset();
            stream.retries.remaining = retries.saturating_sub(stream.retries.done);
            stream.retries.wants_fresh = true;
            stream.times.upstream_first_received = None;
        }
        self.set_idle(index, None, now);
        self.limit_answer(index, now);
        if let Some(call) = self.call_mut(index) {
            call.resume = Some(resume);
        }
    }

    /// A response begins: true if it is the answer to a request for the rest, which is dealt with here.
    pub(crate) fn join_rest(&mut self, index: StreamIndex, now: Instant) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        let received = stream.recorder.record().bytes_sent;
        let Some(resume) = self.call(index).and_then(|call| call.resume.as_ref()) else {
            return false;
        };
        let Some(error) = resume.asked else { return false };
        if !resume.what.continues(&stream.response, received) {
            if let Some(last) = self.call_mut(index).and_then(|call| call.report.tries.last_mut()) {
                last.reset_reason = "the answer is not the rest";
            }
            self.fail_call(index, error, now);
            return true;
        }
        if let Some(call) = self.call_mut(index) {
            if call.report.resumed.len() < MOST_NOTES {
                call.report.resumed.push(Resumed { at: now, from: received });
            }
            if let Some(resume) = &mut call.resume {
                (resume.asked, resume.moved) = (None, (received, now));
            }
        }
        self.begin_response_timers(index, now);
        self.watch_at(index, now + AGAIN);
        true
    }

    /// Looks whether a response that could go on elsewhere still moves.
    pub(crate) fn watch_response(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let received = stream.recorder.record().bytes_sent;
        let app_is_slow = self.is_app_slow(index);
        let shared = self.upstream_of(index).filter(|(_, upstream)| upstream.contact().is_some());
        let shared = shared.map(|(id, _)| id);
        let Some(call) = self.call_mut(index) else { return };
        let Some(resume) = &mut call.resume else { return };
        if app_is_slow || received != resume.moved.0 {
            resume.moved = (received, now);
            call.silent_asked = false;
            if call.standby.is_some_and(|standby| standby.reason == StandbyReason::Silent) {
                self.withdraw_standby(index);
            }
        } else if now - resume.moved.1 >= SILENT_AFTER {
            match shared {
                Some(id) => self.check_contact(index, id, QUIET, now),
                None => self.want_standby(index, StandbyReason::Silent, now),
            }
        }
        self.watch_at(index, now + AGAIN);
    }

    /// Whether anything of the response came since it was last looked at.
    pub(crate) fn has_moved(&self, index: StreamIndex) -> bool {
        let Some(stream) = self.streams.get(index) else { return false };
        let resume = self.call(index).and_then(|call| call.resume.as_ref());
        stream.response_end == Progress::Streaming
            && resume.is_some_and(|resume| resume.moved.0 != stream.recorder.record().bytes_sent)
    }

    /// Whether a response does not come because the app does not take it.
    pub(crate) fn is_app_slow(&self, index: StreamIndex) -> bool {
        let app = self
            .streams
            .get(index)
            .and_then(|stream| self.conns.table.get(stream.downstream.connection));
        app.is_some_and(|app| app.congested)
    }
}

/// Times that are remembered for a report.
pub(crate) const MOST_NOTES: usize = 32;
