//! WebSocket (RFC 6455): the opening handshake, frames and what messages must be. Sans IO.
//!
//! The handshake differs between HTTP/1.1 (RFC 6455 §4) and HTTP/2 (RFC 8441 §5): what stands between the two makes up
//! the fields that only the former has. Frames are the same in both. Messages are put together by the callers that want
//! them, because only they know how much of one may lie in memory.

mod frame;
mod message;

use aws_lc_rs::digest;

pub use frame::{Frames, Header, Item, Opcode, Sender, Violation, frame, mask};
pub use message::{Close, Utf8, is_close_code};

/// A value of `Sec-WebSocket-Key`: 16 random bytes.
#[must_use]
pub fn key(random: [u8; 16]) -> [u8; 24] {
    base64(&random)
}

/// What `Sec-WebSocket-Accept` says to a key (RFC 6455 §4.2.2).
#[must_use]
pub fn accept(key: &[u8]) -> [u8; 28] {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64(context.finish().as_ref())
}

/// RFC 4648 §4, of as many bytes as fill `N` characters.
fn base64<const N: usize>(bytes: &[u8]) -> [u8; N] {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = [b'='; N];
    for (group, characters) in bytes.chunks(3).zip(text.chunks_mut(4)) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*group.get(at).unwrap_or(&0)));
        for (at, character) in characters.iter_mut().enumerate().take(group.len() + 1) {
            *character = ALPHABET[(bits >> (18 - 6 * at) & 63) as usize];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455 §1.3, §4.1.
    #[test]
    fn the_examples_of_the_rfc() {
        assert_eq!(&accept(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(&key(*b"the sample nonce"), b"dGhlIHNhbXBsZSBub25jZQ==");
    }

    #[test]
    fn every_length_of_a_last_group_is_padded() {
        assert_eq!(&base64::<8>(b"fooba"), b"Zm9vYmE=");
        assert_eq!(&base64::<8>(b"foob"), b"Zm9vYg==");
        assert_eq!(&base64::<8>(b"foobar"), b"Zm9vYmFy");
    }
}
