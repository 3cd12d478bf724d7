//! Requests that repeat themselves, and bodies that go on and on.

use towpath_proto::Instant;

use crate::exchange::Exchange;
use crate::ids::StreamIndex;
use crate::local::message::{Error, Limit};

impl Exchange {
    /// Counts a piece of a body, as far as it was not counted with its request; false if the request has ended for it.
    pub(crate) fn count_piece(&mut self, index: StreamIndex, bytes: usize, now: Instant) -> bool {
        let Some(call) = self.call_mut(index) else { return false };
        let limited = call.options.limited;
        let beyond = (bytes as u64).saturating_sub(call.counted);
        call.counted = call.counted.saturating_sub(bytes as u64);
        if !limited {
            self.upstreams.app.flow.count(beyond, now);
            return true;
        }
        let fits = beyond == 0 || self.upstreams.app.flow.take(beyond, now);
        if !fits {
            self.fail_call(index, Error::Limited(Limit::Flow), now);
        }
        fits
    }

    /// A request is given to a connection: what is sent once more counts once more.
    pub(crate) fn count_repetition(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let bytes = (stream.request.byte_size() + stream.body.len()) as u64;
        let again = self
            .call(index)
            .is_some_and(|call| call.duplicate.is_some() || call.report.tries.len() > 1);
        if again {
            self.upstreams.app.flow.count(bytes, now);
        }
    }
}
