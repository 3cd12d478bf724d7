//! Integers with a prefix (RFC 7541 §5.1), and a block that is read from its start.

use super::error::Error;

/// What is left of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next octet, which stays.
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// An integer in the low `PREFIX` bits of the next octet, and behind it.
    #[inline]
    pub(super) fn integer<const PREFIX: u32>(&mut self) -> Result<u32, Error> {
        let (first, behind) = self.0.split_first().ok_or(Error::Truncated)?;
        self.0 = behind;
        let most = (1_u32 << PREFIX) - 1;
        let value = u32::from(*first) & most;
        if value < most { Ok(value) } else { self.continued(most) }
    }

    #[cold]
    fn continued(&mut self, prefix: u32) -> Result<u32, Error> {
        let mut value = u64::from(prefix);
        for shift in (0..MOST_OCTETS).map(|octet| octet * 7) {
            let (octet, behind) = self.0.split_first().ok_or(Error::Truncated)?;
            self.0 = behind;
            value += u64::from(octet & 0x7f) << shift;
            if octet & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| Error::IntegerTooLarge);
            }
        }
        Err(Error::IntegerTooLarge)
    }

    /// The next `length` octets.
    #[inline]
    pub(super) fn take(&mut self, length: u32) -> Result<&'a [u8], Error> {
        let length = usize::try_from(length).map_err(|_| Error::Truncated)?;
        let (taken, behind) = self.0.split_at_checked(length).ok_or(Error::Truncated)?;
        self.0 = behind;
        Ok(taken)
    }
}

/// Writes an integer into the low `PREFIX` bits of an octet that has `pattern` above them, and behind it; answers how
/// many octets it took.
#[inline]
pub(super) fn write<const PREFIX: u32>(
    value: u32,
    pattern: u8,
    room: &mut [u8; MOST_WRITTEN],
) -> usize {
    let most = (1_u32 << PREFIX) - 1;
    if value < most {
        room[0] = pattern | value as u8;
        return 1;
    }
    room[0] = pattern | most as u8;
    let (mut left, mut at) = (value - most, 1);
    while left >= 0x80 {
        room[at] = left as u8 | 0x80;
        left >>= 7;
        at += 1;
    }
    room[at] = left as u8;
    at + 1
}

/// Octets behind the first that any integer of 32 bits needs.
const MOST_OCTETS: u32 = 5;
/// Octets of the longest integer.
pub(super) const MOST_WRITTEN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn read<const PREFIX: u32>(bytes: &[u8]) -> Result<(u32, usize), Error> {
        let mut reader = Reader(bytes);
        let value = reader.integer::<PREFIX>()?;
        Ok((value, bytes.len() - reader.0.len()))
    }

    fn written<const PREFIX: u32>(value: u32, pattern: u8) -> Vec<u8> {
        let mut room = [0xaa; MOST_WRITTEN];
        let length = write::<PREFIX>(value, pattern, &mut room);
        room[..length].to_vec()
    }

    /// RFC 7541 §C.1.
    #[test]
    fn the_examples_of_the_rfc() {
        assert_eq!(read::<5>(&[0b1110_1010]), Ok((10, 1)));
        assert_eq!(read::<5>(&[0b0001_1111, 0b1001_1010, 0b0000_1010]), Ok((1337, 3)));
        assert_eq!(read::<8>(&[42]), Ok((42, 1)));
        assert_eq!(written::<5>(10, 0xe0), [0b1110_1010]);
        assert_eq!(written::<5>(1337, 0), [0b0001_1111, 0b1001_1010, 0b0000_1010]);
        assert_eq!(written::<8>(42, 0), [42]);
    }

    #[test]
    fn every_edge_of_a_prefix_and_of_an_octet_comes_back() {
        fn check<const PREFIX: u32>() {
            let edges = (0..32).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
            let most = (1_u64 << PREFIX) - 1;
            let behind = (1..5).flat_map(|octets| {
                let first = most + (1 << (7 * octets));
                [first - 1, first, first + 1]
            });
            for value in edges.chain(behind).chain([most - 1, u32::MAX.into()]) {
                let Ok(value) = u32::try_from(value) else { continue };
                let bytes = written::<PREFIX>(value, 0);
                assert_eq!(read::<PREFIX>(&bytes), Ok((value, bytes.len())), "{value}");
                for cut in 0..bytes.len() {
                    assert_eq!(read::<PREFIX>(&bytes[..cut]), Err(Error::Truncated));
                }
            }
        }
        check::<4>();
        check::<5>();
        check::<6>();
        check::<7>();
    }

    #[test]
    fn what_32_bits_do_not_hold_is_refused() {
        // 127 + (2³² - 128), then one more.
        assert_eq!(read::<7>(&[0x7f, 0x80, 0xff, 0xff, 0xff, 0x0f]), Ok((u32::MAX, 6)));
        assert_eq!(read::<7>(&[0x7f, 0x81, 0xff, 0xff, 0xff, 0x0f]), Err(Error::IntegerTooLarge));
        assert_eq!(read::<7>(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x7f]), Err(Error::IntegerTooLarge));
    }

    #[test]
    fn zeros_behind_an_integer_end_somewhere() {
        assert_eq!(read::<7>(&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x00]), Ok((127, 6)));
        let more = [0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert_eq!(read::<7>(&more), Err(Error::IntegerTooLarge));
        assert_eq!(read::<7>(&more[..6]), Err(Error::IntegerTooLarge));
    }
}
