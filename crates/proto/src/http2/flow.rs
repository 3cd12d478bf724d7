//! Windows (RFC 9113 §5.2, §6.9).

/// What may still be sent on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendWindow(i32);

impl SendWindow {
    /// `size` is at most 2³¹ - 1.
    pub(super) fn new(size: u32) -> Self {
        Self(i32::try_from(size).unwrap_or(i32::MAX))
    }

    pub(super) fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// So many bytes leave, no more than are [`available`](Self::available).
    pub(super) fn take(&mut self, bytes: usize) {
        self.0 -= i32::try_from(bytes).unwrap_or(i32::MAX).min(self.0.max(0));
    }

    /// The peer takes more; false if that is beyond 2³¹ - 1.
    pub(super) fn grow(&mut self, more: u32) -> bool {
        let grown = i32::try_from(more).ok().and_then(|more| self.0.checked_add(more));
        grown.map(|grown| self.0 = grown).is_some()
    }
}

/// What may still be sent on a stream, less the initial window of all: that changes by one number, and is negative
/// where the peer has made it smaller (RFC 9113 §6.9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamWindow(i32);

impl StreamWindow {
    pub(super) fn available(self, initial: u32) -> usize {
        usize::try_from(i64::from(self.0) + i64::from(initial)).unwrap_or(0)
    }

    /// So many bytes leave, no more than are [`available`](Self::available).
    pub(super) fn take(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(i32::try_from(bytes).unwrap_or(i32::MAX));
    }

    /// The peer takes more; false if that is beyond 2³¹ - 1.
    pub(super) fn grow(&mut self, more: u32, initial: u32) -> bool {
        let grown = i64::from(self.0) + i64::from(more);
        let fits = grown + i64::from(initial) <= i64::from(i32::MAX);
        fits && i32::try_from(grown).map(|grown| self.0 = grown).is_ok()
    }

    /// Whether another initial window takes it beyond 2³¹ - 1.
    pub(super) fn exceeds(self, initial: u32) -> bool {
        i64::from(self.0) + i64::from(initial) > i64::from(i32::MAX)
    }
}

/// What the peer may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveWindow {
    left: u32,
    /// What came and has no place yet.
    held: u32,
    /// What has, and was not granted again.
    owed: u32,
}

impl ReceiveWindow {
    pub(super) const fn new(size: u32) -> Self {
        Self { left: size, held: 0, owed: 0 }
    }

    /// So many bytes come; false if that is more than was allowed.
    pub(super) fn receive(&mut self, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Some(left) = self.left.checked_sub(bytes) else { return false };
        self.left = left;
        self.held += bytes;
        true
    }

    /// So many of those that came have a place, or are dropped. At most as many as came.
    pub(super) fn release(&mut self, bytes: u32) {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        self.owed += bytes;
    }

    /// What may still come.
    pub(super) const fn left(self) -> u32 {
        self.left
    }

    /// What came and has no place.
    pub(super) const fn held(self) -> u32 {
        self.held
    }

    /// By how much the window is opened again, once that is worth a frame: half of its size, which may have grown.
    pub(super) fn grant(&mut self, size: u32) -> Option<u32> {
        let wider = size.saturating_sub(self.left + self.held + self.owed);
        let more = self.owed + wider;
        if more == 0 || more < size / 2 {
            return None;
        }
        self.left += more;
        self.owed = 0;
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_ends_where_31_bits_do() {
        let mut window = SendWindow::new(65_535);
        assert!(window.grow((1 << 31) - 1 - 65_535));
        assert_eq!(window.available(), (1 << 31) - 1);
        assert!(!window.grow(1));
        window.take(1);
        assert!(window.grow(1));
    }

    #[test]
    fn a_receive_window_says_what_may_still_come() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(98) && !window.receive(3));
        assert_eq!((window.left(), window.held()), (2, 98));
        window.release(30);
        assert_eq!((window.grant(100), window.left()), (None, 2));
        window.release(30);
        assert_eq!((window.grant(100), window.left(), window.held()), (Some(60), 62, 38));
    }

    #[test]
    fn a_smaller_initial_window_makes_it_negative() {
        let mut window = StreamWindow::default();
        window.take(65_535);
        assert_eq!((window.available(65_535), window.available(0)), (0, 0));
        assert!(window.grow(65_535, 0));
        assert_eq!(window.available(0), 0);
        assert!(window.grow(1, 0));
        assert_eq!((window.available(0), window.available(5)), (1, 6));
        assert!(window.exceeds((1 << 31) - 1) && !window.exceeds((1 << 31) - 2));
        assert!(!window.grow(1, (1 << 31) - 2));
        let mut largest = StreamWindow::default();
        largest.take((1 << 31) - 1);
        assert!(largest.grow((1 << 31) - 1, (1 << 31) - 1));
    }

    #[test]
    fn what_has_a_place_is_granted_again_once_it_is_half_of_the_window() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(60));
        assert!(!window.receive(41));
        window.release(49);
        assert_eq!((window.grant(100), window.held()), (None, 11));
        window.release(1);
        assert_eq!(window.grant(100), Some(50));
        assert!(window.receive(90));
        assert!(!window.receive(1));
        window.release(1000);
        assert_eq!(window.grant(100), Some(100), "no more than came");
    }

    #[test]
    fn a_window_that_grows_is_opened_by_that_as_well() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(10));
        window.release(10);
        assert_eq!(window.grant(100), None);
        assert_eq!(window.grant(200), Some(110), "what came, and what it grew by");
        assert_eq!(window.grant(200), None);
        assert!(window.receive(200) && !window.receive(1));
        window.release(100);
        assert_eq!(window.grant(200), Some(100));
    }
}
