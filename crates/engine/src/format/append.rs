//! Short pieces, appended without a call of `memcpy`: it costs more than what it copies.

use crate::number::Decimal;

/// Appends `bytes`.
#[inline(always)]
pub(super) fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        0..=3 => bytes.iter().for_each(|byte| out.push(*byte)),
        4..=8 => append_blocks::<4>(out, bytes),
        9..=16 => append_blocks::<8>(out, bytes),
        17..=32 => append_blocks::<16>(out, bytes),
        _ => out.extend_from_slice(bytes),
    }
}

/// Appends a number in decimal.
#[inline]
pub(super) fn append_number(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=9 => out.push(b'0' + value as u8),
        _ => append(out, Decimal::new().write(value)),
    }
}

/// Appends `N` to `2 * N` bytes as two blocks, of which the second covers a part of the first.
#[inline(always)]
fn append_blocks<const N: usize>(out: &mut Vec<u8>, bytes: &[u8]) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) {
        let end = out.len() + bytes.len();
        out.extend_from_slice(first);
        out.truncate(end - N);
        out.extend_from_slice(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_every_length_are_appended_behind_what_is_there() {
        let bytes: Vec<u8> = (0..100).collect();
        for before in 0..3 {
            for length in 0..bytes.len() {
                let mut out = vec![b'x'; before];
                append(&mut out, &bytes[..length]);
                assert_eq!(out, [&vec![b'x'; before], &bytes[..length]].concat());
            }
        }
    }

    #[test]
    fn numbers_are_what_display_writes() {
        for value in (0..20).map(|power| 10u64.pow(power)).chain([0, u64::MAX]) {
            for value in [value.saturating_sub(1), value, value.saturating_add(1)] {
                let mut out = b"x".to_vec();
                append_number(&mut out, value);
                assert_eq!(out, format!("x{value}").as_bytes());
            }
        }
    }
}
