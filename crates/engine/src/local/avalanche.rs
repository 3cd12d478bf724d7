//! Limits on what the app sends: identical requests, and bytes.
//!
//! Arrives: requests that begin, pieces of their bodies, repetitions. Leaves: a request refused with the limit's name, before
//! anything of it was sent or in the middle of a body whose length nobody knew.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use towpath_proto::Instant;

use super::message::{Error, Limit, Open};
use crate::exchange::Exchange;
use crate::ids::StreamIndex;
use crate::local::Local;

impl Exchange {
    /// Counts a piece of a body, as far as it was not counted with its request; false if the request has ended for it.
    pub(super) fn count_piece(&mut self, index: StreamIndex, bytes: usize, now: Instant) -> bool {
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
    pub(super) fn count_repetition(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get(index) else { return };
        let bytes = (stream.request.byte_size() + stream.body.len) as u64;
        let again =
            self.call(index).is_some_and(|call| call.twin.is_some() || call.report.tries.len() > 1);
        if again {
            self.upstreams.app.flow.count(bytes, now);
        }
    }
}

impl Local {
    /// Which limit a request would break; if none, it counts from here on.
    pub(super) fn limit_on(&mut self, open: &Open, now: Instant) -> Option<Limit> {
        let bytes = (open.request.byte_size() as u64).saturating_add(open.options.body_bytes);
        if !open.options.limited {
            self.flow.count(bytes, now);
            return None;
        }
        // What one of them refuses counts for neither.
        if !self.flow.has_room(bytes, now) {
            return Some(Limit::Flow);
        }
        if self.identical.is_on()
            && let Some(identity) = identity(open)
            && !self.identical.take(identity, now)
        {
            return Some(Limit::Identical);
        }
        self.flow.count(bytes, now);
        None
    }
}

/// A number that stands for method, address and body; none where nobody knows the body.
fn identity(open: &Open) -> Option<u64> {
    let body = match open.options.body_hash {
        Some(hash) => hash,
        None if open.end => 0,
        None => return None,
    };
    let mut hasher = DefaultHasher::new();
    open.request.method_bytes().hash(&mut hasher);
    open.origin.hash(&mut hasher);
    open.request.path().hash(&mut hasher);
    body.hash(&mut hasher);
    Some(hasher.finish())
}
