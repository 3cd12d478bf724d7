//! Targets of origins that are left alone.
//!
//! Arrives: a request. Leaves: the rest that holds it up, its own target's or that of its whole origin.
//!
//! 429 is RFC 6585 §4, 503 RFC 9110 §15.6.4; both may name a time (`Retry-After`, §10.2.3).

use std::hash::{DefaultHasher, Hash, Hasher};

use towpath_proto::Instant;
use towpath_proto::head::Head;

use crate::client::back_off::BackOff;
use crate::local::Local;
use crate::snapshot::ClusterId;

impl Local {
    /// The rest that holds up a request to an origin.
    pub(crate) fn back_off_of(
        &self,
        cluster: ClusterId,
        request: &Head,
        now: Instant,
    ) -> Option<BackOff> {
        let back_offs = &self.origins.get(&cluster)?.back_offs;
        if back_offs.is_empty() {
            return None;
        }
        back_offs.of(target(request), now).copied()
    }
}

/// A number that stands for the method and the path without its query.
pub(crate) fn target(request: &Head) -> u64 {
    let path = request.path().split(|byte| *byte == b'?').next().unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (request.method_bytes(), path).hash(&mut hasher);
    hasher.finish()
}
