//! Limits on what the app sends: identical requests, and bytes.
//!
//! Arrives: requests that begin, pieces of their bodies, repetitions. Leaves: a request refused with the limit's name,
//! before anything of it was sent or in the middle of a body of unknown length.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use towpath_proto::Instant;

use crate::local::Local;
use crate::local::message::{Limit, Open};

impl Local {
    /// Which limit a request would break; if none, it counts from here on.
    pub(crate) fn limit_on(&mut self, open: &Open, now: Instant) -> Option<Limit> {
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

/// A number that stands for method, address and body; none where the body is not known.
pub(crate) fn identity(open: &Open) -> Option<u64> {
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
