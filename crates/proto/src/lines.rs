//! Lines of a head as they are written: room that is there already, filled from its start.
//!
//! The room is zeroed when it grows and never shrinks, so that a short text can be written as a block of fixed length
//! whose end is overwritten by what follows: a few instructions, where an append to a vector is 45.

use crate::block;
use crate::name::Name;

/// Bytes of lines, appended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    room: Box<[u8]>,
    end: usize,
}

impl Lines {
    #[inline(always)]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Appends what are most often a few bytes.
    #[inline(always)]
    pub(crate) fn put_few(&mut self, bytes: &[u8]) {
        block::copy_few(self.room(bytes.len()), bytes);
        self.end += bytes.len();
    }

    /// Appends bytes whose number the compiler knows.
    #[inline(always)]
    pub(crate) fn put_array<const N: usize>(&mut self, bytes: &[u8; N]) {
        if let Some(room) = self.room(N).first_chunk_mut::<N>() {
            *room = *bytes;
        }
        self.end += N;
    }

    /// Appends `name: value CRLF` of a well-known name; answers where the value begins.
    #[inline(always)]
    pub(crate) fn put_line(&mut self, name: Name, value: &[u8]) -> usize {
        let (text, length) = name.line_start();
        let room = self.room(Name::LINE_START_ROOM + value.len() + 16);
        // Most names fit into one register.
        if length <= 16
            && let (Some(room), Some(text)) =
                (room.first_chunk_mut::<16>(), text.first_chunk::<16>())
        {
            *room = *text;
        } else if let Some(room) = room.first_chunk_mut::<{ Name::LINE_START_ROOM }>() {
            *room = *text;
        }
        let room = &mut room[length..];
        block::copy_few(room, value);
        room[value.len()..][..2].copy_from_slice(b"\r\n");
        let start = self.end + length;
        self.end = start + value.len() + 2;
        start
    }

    /// Appends `name: value CRLF` of a well-known name and a number; answers where the value begins.
    #[inline(always)]
    pub(crate) fn put_number_line(&mut self, name: Name, mut value: u64) -> usize {
        // The digits stand before the middle, zeros behind it.
        let (mut text, mut at) = ([0; 2 * MOST_DIGITS], MOST_DIGITS);
        for digit in text[..MOST_DIGITS].iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
            at -= 1;
            if value == 0 {
                break;
            }
        }
        let start = self.put_line_start(name);
        let room = self.room(MOST_DIGITS + 2);
        if let (Some(room), Some(digits)) =
            (room.first_chunk_mut::<MOST_DIGITS>(), text[at..].first_chunk())
        {
            *room = *digits;
        }
        room[MOST_DIGITS - at..][..2].copy_from_slice(b"\r\n");
        self.end = start + MOST_DIGITS - at + 2;
        start
    }

    /// Appends `name: ` of a well-known name; answers where the value begins.
    #[inline(always)]
    fn put_line_start(&mut self, name: Name) -> usize {
        let (text, length) = name.line_start();
        let room = self.room(Name::LINE_START_ROOM);
        // Most names fit into one register.
        if length <= 16
            && let (Some(room), Some(text)) =
                (room.first_chunk_mut::<16>(), text.first_chunk::<16>())
        {
            *room = *text;
        } else if let Some(room) = room.first_chunk_mut::<{ Name::LINE_START_ROOM }>() {
            *room = *text;
        }
        self.end += length;
        self.end
    }

    /// Appends the first `length` bytes of a block; answers where they begin.
    #[inline(always)]
    pub(crate) fn put_block<const N: usize>(&mut self, block: &[u8; N], length: usize) -> usize {
        if let Some(room) = self.room(N).first_chunk_mut::<N>() {
            *room = *block;
        }
        let start = self.end;
        self.end += length;
        start
    }

    /// Makes the letters of `length` bytes at `at` small, sixteen at a time.
    #[inline(always)]
    pub(crate) fn make_lowercase(&mut self, at: usize, length: usize) {
        let bytes = &mut self.room[at..];
        if length <= 16
            && let Some(name) = bytes.first_chunk_mut::<16>()
        {
            *name = block::lowercase(name, length);
        } else {
            bytes[..length].make_ascii_lowercase();
        }
    }

    /// Whether a byte stands there that could end a line for some reader (RFC 9110 §5.5): CR, LF or NUL. The line that
    /// it stands in was written by [`Lines::put_line`], so that there is room to look at the last block as a whole.
    #[inline(always)]
    pub(crate) fn breaks_line(&self, at: usize, length: usize) -> bool {
        let (blocks, _) = self.room[at..].as_chunks::<16>();
        let mut left = length;
        for block in blocks {
            let breaks = block::line_breaks(block);
            if left <= 16 {
                return breaks & !(u32::MAX << left) != 0;
            }
            if breaks != 0 {
                return true;
            }
            left -= 16;
        }
        false
    }

    /// Empties it; the room stays.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.end = 0;
    }

    /// Takes back what was written from there on.
    pub(crate) fn truncate(&mut self, at: usize) {
        self.end = self.end.min(at);
    }

    /// What was written from there on, to be changed.
    #[inline]
    pub(crate) fn from(&mut self, at: usize) -> &mut [u8] {
        &mut self.room[at..self.end]
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.room[..self.end]
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end
    }

    /// Bytes of memory.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.room.len()
    }

    /// Room for so many bytes behind what is there.
    #[inline(always)]
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.room.len() - self.end < bytes {
            self.grow(bytes);
        }
        &mut self.room[self.end..]
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        let mut room = vec![0; (self.end + bytes).next_power_of_two().max(LEAST_ROOM)];
        room[..self.end].copy_from_slice(self.as_bytes());
        self.room = room.into();
    }
}

/// A number of 64 bits has as many at most.
const MOST_DIGITS: usize = 20;

/// What a head's own fields most often fit into.
const LEAST_ROOM: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_become_small_and_nothing_else_changes() {
        for length in 0..40 {
            for byte in 0..=u8::MAX {
                for room in [length, length + 3, length + 8, 64] {
                    let mut bytes = vec![byte; room];
                    bytes[..length / 2].fill(b'Q');
                    let mut lines = Lines { room: bytes.clone().into(), end: room };
                    lines.make_lowercase(0, length);
                    bytes[..length].make_ascii_lowercase();
                    assert_eq!(lines.as_bytes(), bytes, "{byte:#x}, {length} of {room}");
                }
            }
        }
    }

    #[test]
    fn lines_of_every_name_and_many_lengths_are_what_they_say() {
        let (mut lines, mut expected) = (Lines::default(), Vec::new());
        for (length, name) in (0..).zip(&Name::ALL[1..]) {
            let value = vec![b'v'; length];
            let start = lines.put_line(*name, &value);
            expected.extend_from_slice(name.as_str().as_bytes());
            expected.extend_from_slice(b": ");
            assert_eq!(start, expected.len());
            expected.extend_from_slice(&value);
            expected.extend_from_slice(b"\r\n");
            lines.put_array(b"ab");
            lines.put(b"cde");
            expected.extend_from_slice(b"abcde");
            assert_eq!(lines.as_bytes(), expected);
        }
        lines.clear();
        assert_eq!((lines.as_bytes(), lines.len()), (&b""[..], 0));
    }
}
