//! Ends: of messages, and of the call.

use towpath_proto::Head;

use super::{BodyMode, Conversation, Direction, Facts, Flow, TalkView, Waits};

impl Flow {
    /// Whether nothing more of it is sent.
    pub(super) fn is_through(&self) -> bool {
        self.modes.is_nothing() || self.is_last
    }
}

impl Conversation {
    /// A message is over; whether its end stays here.
    pub(super) fn on_end(
        &mut self,
        way: Direction,
        trailers: Option<&mut Head>,
        facts: &Facts<'_>,
    ) -> bool {
        let (is_done, watches) = (self.is_done, self.watches());
        let flow = self.flow(way);
        if watches {
            return !is_done && self.watch_end(way, trailers, facts);
        }
        let was_whole = std::mem::replace(&mut flow.is_whole, true);
        flow.came_with_trailers = trailers.is_some();
        if flow.is_over {
            return true;
        }
        if is_done {
            return false;
        }
        match trailers {
            None => {
                flow.has_body = true;
                !flow.is_replaced && self.keep_end(way, facts)
            }
            Some(trailers) => self.keep_trailers(way, trailers, was_whole, facts),
        }
    }

    /// Nothing is kept of what is only watched.
    fn watch_end(
        &mut self,
        way: Direction,
        trailers: Option<&mut Head>,
        facts: &Facts<'_>,
    ) -> bool {
        let modes = self.flow(way).modes;
        match trailers {
            None if modes.body == BodyMode::Streamed => {
                self.show_body(way, bytes::Bytes::new(), true, Waits::Idle, facts);
            }
            Some(trailers) if modes.trailers => {
                let trailers = trailers.clone();
                self.show_these(way, &trailers, facts);
            }
            None | Some(_) => {}
        }
        false
    }

    fn keep_end(&mut self, way: Direction, facts: &Facts<'_>) -> bool {
        let early = self.shared.config.sends_body_early;
        let flow = self.flow(way);
        let body = flow.modes.body;
        let streams = body == BodyMode::FullDuplex || (body == BodyMode::Streamed && early);
        if flow.waits == Waits::Headers && !streams {
            flow.end = Some(None);
            return true;
        }
        match body {
            BodyMode::None => return false,
            BodyMode::Buffered => {
                flow.end = Some(None);
                let all = flow.held();
                self.show_body(way, all, true, Waits::Buffered, facts);
            }
            BodyMode::Streamed => {
                flow.end = Some(None);
                flow.show(bytes::Bytes::new(), true);
                let waits = flow.streams();
                self.show_body(way, bytes::Bytes::new(), true, waits, facts);
            }
            BodyMode::FullDuplex => {
                flow.end = Some(None);
                let waits = flow.streams();
                self.show_body(way, bytes::Bytes::new(), true, waits, facts);
            }
            BodyMode::BufferedPartial if flow.is_partly_done => return false,
            BodyMode::BufferedPartial => {
                flow.end = Some(None);
                flow.show(bytes::Bytes::new(), true);
                if flow.waits != Waits::Partial {
                    let (all, _) = flow.join_shown();
                    self.show_body(way, all, true, Waits::Partial, facts);
                }
            }
        }
        true
    }

    fn keep_trailers(
        &mut self,
        way: Direction,
        trailers: &mut Head,
        was_whole: bool,
        facts: &Facts<'_>,
    ) -> bool {
        let flow = self.flow(way);
        let Flow { modes, waits, .. } = *flow;
        if flow.is_replaced {
            return false;
        }
        let has_part = match modes.body {
            BodyMode::Buffered => flow.has_body,
            BodyMode::BufferedPartial => !flow.shown.is_empty() && waits != Waits::Partial,
            BodyMode::None | BodyMode::Streamed | BodyMode::FullDuplex => false,
        };
        let busy = waits != Waits::Idle && modes.body != BodyMode::FullDuplex;
        let shows_part = has_part && !was_whole;
        if !(busy || shows_part || modes.trailers) {
            // Nothing is waited for: a head that is still here goes on.
            if flow.holds_head || flow.bytes() > 0 {
                flow.end = Some(Some(std::mem::take(trailers)));
                self.release(way);
                return true;
            }
            return false;
        }
        flow.end = Some(Some(std::mem::take(trailers)));
        if busy {
            return true;
        }
        if shows_part {
            if modes.body == BodyMode::Buffered {
                let all = self.flow(way).held();
                self.show_body(way, all, false, Waits::Buffered, facts);
            } else {
                let (all, _) = self.flow(way).join_shown();
                self.show_body(way, all, false, Waits::Partial, facts);
            }
            return true;
        }
        self.show_trailers(way, facts);
        true
    }

    /// The server has ended the call.
    pub(super) fn on_over(&mut self, status: u32, message: &[u8], stream: &mut TalkView<'_>) {
        let shared = std::rc::Rc::clone(&self.shared);
        let stats = &shared.stats;
        if status != 0 {
            stats.streams_failed.inc();
        }
        if self.is_done {
            return;
        }
        stats.server_half_closed.inc();
        if status == 0 {
            stats.streams_closed.inc();
            return self.go_on_alone(stream);
        }
        if self.may_fail_open() {
            stats.streams_closed.inc();
            stats.server_half_closed.inc();
            return self.fail_open(stream);
        }
        let message = String::from_utf8_lossy(message);
        let why = format!("ext_proc_error_gRPC_error_{status}{{{message}}}");
        self.fail(shared.config.status_on_error, &why);
    }

    /// An answer has not come in time.
    pub(super) fn on_late(&mut self, stream: &mut TalkView<'_>) {
        self.shared.stats.message_timeouts.inc();
        if self.may_fail_open() {
            self.hang_up();
            return self.fail_open(stream);
        }
        self.fail(504, "ext_proc_error_per-message_timeout_exceeded");
    }
}
