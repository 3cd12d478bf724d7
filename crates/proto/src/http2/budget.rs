//! What a peer may have us do without doing anything itself (RFC 9113 §10.5). One budget for each connection.

use super::error::Error;
use super::options::Options;

/// What was done so far.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Streams that the peer began, or we did.
    streams: u64,
    data_frames: u64,
    priority_frames: u64,
    window_updates: u64,
    /// Frames without content, one after the other.
    empty_frames: u32,
    /// Streams that ended early, less those that ended well.
    early_resets: u32,
    waiting: Waiting,
}

/// Frames that were written and perhaps not sent: those before `mark` and those behind it. All of the former are sent
/// when so many bytes are.
#[derive(Debug, Default)]
struct Waiting {
    written: u64,
    mark: u64,
    before: Frames,
    behind: Frames,
}

#[derive(Clone, Copy, Debug, Default)]
struct Frames {
    all: u32,
    /// Those that answer something.
    control: u32,
}

impl Budget {
    pub(super) fn stream_began(&mut self) {
        self.streams += 1;
    }

    /// A stream ended as it should.
    pub(super) fn stream_ended(&mut self) {
        self.early_resets = self.early_resets.saturating_sub(1);
    }

    /// A stream ended before its answer began, or by an error of the peer's.
    pub(super) fn early_reset(&mut self, options: &Options) -> Result<(), Error> {
        self.early_resets += 1;
        if self.early_resets > options.max_early_resets { Err(Error::Resets) } else { Ok(()) }
    }

    /// HEADERS, CONTINUATION or DATA came, with content or an end, or without.
    pub(super) fn content(&mut self, is_empty: bool, options: &Options) -> Result<(), Error> {
        self.empty_frames = if is_empty { self.empty_frames + 1 } else { 0 };
        if self.empty_frames > options.max_empty_frames {
            return Err(Error::EmptyFrames);
        }
        Ok(())
    }

    pub(super) fn priority_frame(&mut self, options: &Options) -> Result<(), Error> {
        self.priority_frames += 1;
        let allowed = u64::from(options.max_priority_frames) * (1 + self.streams);
        if self.priority_frames > allowed { Err(Error::PriorityFrames) } else { Ok(()) }
    }

    /// As Envoy counts them: some for each stream, so many for each DATA frame.
    pub(super) fn window_update(&mut self, options: &Options) -> Result<(), Error> {
        self.window_updates += 1;
        let of_data = u64::from(options.max_window_updates) * self.data_frames;
        let allowed = 5 + 2 * (self.streams + of_data);
        if self.window_updates > allowed { Err(Error::WindowUpdates) } else { Ok(()) }
    }

    pub(super) fn data_frame_sent(&mut self) {
        self.data_frames += 1;
        self.waiting.behind.all = self.waiting.behind.all.saturating_add(1);
    }

    pub(super) fn frame_sent(&mut self) {
        self.waiting.behind.all = self.waiting.behind.all.saturating_add(1);
    }

    /// A frame that answers something waits to be sent.
    pub(super) fn answer(&mut self) {
        self.frame_sent();
        self.waiting.behind.control = self.waiting.behind.control.saturating_add(1);
    }

    /// So many bytes were written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.waiting.written += bytes as u64;
    }

    /// All that was written but `outstanding` bytes is sent.
    pub(super) fn sent(&mut self, outstanding: usize) {
        let waiting = &mut self.waiting;
        if waiting.written.saturating_sub(outstanding as u64) >= waiting.mark {
            waiting.before = std::mem::take(&mut waiting.behind);
            waiting.mark = waiting.written;
            if outstanding == 0 {
                waiting.before = Frames::default();
            }
        }
    }

    /// Whether the peer reads what it has asked for.
    pub(super) fn check_waiting(&self, options: &Options) -> Result<(), Error> {
        let Waiting { before, behind, .. } = self.waiting;
        if before.control.saturating_add(behind.control) > options.max_outbound_control_frames {
            return Err(Error::OutboundControlFrames);
        }
        if before.all.saturating_add(behind.all) > options.max_outbound_frames {
            return Err(Error::OutboundFrames);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_wait_until_the_bytes_before_them_are_sent() {
        let options = Options { max_outbound_control_frames: 10, ..Options::default() };
        let mut budget = Budget::default();
        let answer = |budget: &mut Budget| {
            budget.answer();
            budget.wrote(17);
        };
        (0..10).for_each(|_| answer(&mut budget));
        assert_eq!(budget.check_waiting(&options), Ok(()));
        budget.sent(170);
        answer(&mut budget);
        assert_eq!(budget.check_waiting(&options), Err(Error::OutboundControlFrames));
        budget.sent(17);
        assert_eq!(budget.check_waiting(&options), Ok(()));
        for _ in 0..1000 {
            answer(&mut budget);
            // One is always under way.
            budget.sent(17);
            assert_eq!(budget.check_waiting(&options), Ok(()));
        }
    }

    #[test]
    fn frames_of_all_kinds_have_a_limit_of_their_own() {
        let options = Options { max_outbound_frames: 3, ..Options::default() };
        let mut budget = Budget::default();
        for _ in 0..3 {
            assert_eq!(budget.check_waiting(&options), Ok(()));
            budget.frame_sent();
            budget.wrote(9);
        }
        assert_eq!(budget.check_waiting(&options), Ok(()));
        budget.frame_sent();
        assert_eq!(budget.check_waiting(&options), Err(Error::OutboundFrames));
    }

    #[test]
    fn streams_that_end_well_pay_for_those_that_do_not() {
        let options = Options { max_early_resets: 5, ..Options::default() };
        let mut budget = Budget::default();
        for _ in 0..100 {
            budget.stream_ended();
            assert_eq!(budget.early_reset(&options), Ok(()));
            budget.stream_ended();
        }
        (0..5).for_each(|_| assert_eq!(budget.early_reset(&options), Ok(())));
        assert_eq!(budget.early_reset(&options), Err(Error::Resets));
    }

    #[test]
    fn updates_and_priorities_are_allowed_by_what_there_is() {
        let options = Options::default();
        let mut budget = Budget::default();
        (0..5).for_each(|_| assert_eq!(budget.window_update(&options), Ok(())));
        assert_eq!(budget.window_update(&options), Err(Error::WindowUpdates));
        budget.data_frame_sent();
        (0..19).for_each(|_| assert_eq!(budget.window_update(&options), Ok(())));
        assert_eq!(budget.window_update(&options), Err(Error::WindowUpdates));
        (0..100).for_each(|_| assert_eq!(budget.priority_frame(&options), Ok(())));
        assert_eq!(budget.priority_frame(&options), Err(Error::PriorityFrames));
        assert_eq!(budget.content(true, &options), Ok(()));
        assert_eq!(budget.content(false, &options), Ok(()));
        assert_eq!(budget.content(true, &options), Ok(()));
        assert_eq!(budget.content(true, &options), Err(Error::EmptyFrames));
    }
}
