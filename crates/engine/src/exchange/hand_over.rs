//! Before the program ends: what waits for servers leaves, entries of logs, spans and statistics.
//!
//! Arrives: [`ToWorker::HandOver`](crate::message::ToWorker::HandOver). Leaves:
//! [`FromWorker::HandedOver`], when servers have it or the time is over.

use std::time::Duration;

use towpath_proto::Instant;

use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::exchange::stream::UpstreamState;
use crate::ids::StreamIndex;
use crate::message::FromWorker;

impl Exchange {
    /// Sends all that waits for servers, which may take so long.
    pub(crate) fn hand_over_reports(&mut self, within: Duration, now: Instant) {
        self.env.hand_over_logs();
        self.env.hand_over_entries();
        self.send_all_reports(now);
        self.env.draining.hands_over = Some(now + within);
        self.env.timers.set(TimerSlot::Drain.number(), now);
    }

    /// Looks whether all of it is there.
    pub(crate) fn on_hand_over_timer(&mut self, until: Instant, now: Instant) {
        let is_under_way = self.callouts.reports().any(|(index, goes_on)| {
            // A call that goes on has no answer; what is sent by it is.
            !goes_on || self.is_being_sent(index)
        });
        if is_under_way && now < until {
            self.env.timers.set(TimerSlot::Drain.number(), until.min(now + LOOK));
            return;
        }
        self.env.draining.hands_over = None;
        self.env.tell(FromWorker::HandedOver);
    }

    /// Whether a part of what a stream has for its server is still here.
    fn is_being_sent(&self, index: StreamIndex) -> bool {
        match self.streams.get(index).map(|stream| stream.upstream) {
            Some(UpstreamState::Active(leg)) => {
                let connection = self.conns.table.get(leg.connection);
                self.conns.waiting_for(leg.connection) > 0
                    || connection.is_some_and(|it| it.outstanding > 0 || !it.mux.is_quiet())
            }
            Some(UpstreamState::None | UpstreamState::Pending(_) | UpstreamState::BackingOff) => {
                true
            }
            None => false,
        }
    }
}

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);
