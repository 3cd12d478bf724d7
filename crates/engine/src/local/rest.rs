//! An origin that answers 429 or 503 is left alone for a while.
//!
//! Arrives: such an answer, and requests to an origin that rests. Leaves: requests parked until its rest is over, the answer
//! passed on, or a request that fails at once, as it asked for.
//!
//! 429 is RFC 6585 §4, 503 RFC 9110 §15.6.4; both may name a time (`Retry-After`, §10.2.3).

use towpath_proto::Instant;

use crate::env::Env;
use crate::local::Local;
use crate::snapshot::ClusterId;

impl Local {
    pub(crate) fn is_resting(&self, cluster: ClusterId, now: Instant) -> bool {
        let origin = self.origins.get(&cluster);
        origin.is_some_and(|origin| origin.rest.wait(0, now).is_some())
    }

    /// When a request to an origin that rests may begin, drawn for each, and whether the origin named the time.
    pub(crate) fn end_of_rest(
        &mut self,
        cluster: ClusterId,
        env: &mut Env,
        now: Instant,
    ) -> Option<(Instant, bool)> {
        let rest = &self.origins.get(&cluster)?.rest;
        // Nothing is drawn for an origin that is well, which most are.
        rest.wait(0, now)?;
        Some((rest.wait(env.random.next(), now)?, rest.is_asked()))
    }
}
