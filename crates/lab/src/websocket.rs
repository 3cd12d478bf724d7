//! WebSocket (RFC 6455) as far as a generator of load and a test origin need it beside the frames, which are
//! `towpath_proto`'s: the opening handshake in text. No extensions.

use towpath_proto::websocket;

/// What the server answers to a client's `Sec-WebSocket-Key` (§4.2.2).
pub(crate) fn accept(key: &str) -> String {
    text(&websocket::accept(key.as_bytes()))
}

/// A key for a handshake.
pub(crate) fn key(nonce: [u8; 16]) -> String {
    text(&websocket::key(nonce))
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

/// The value of a field of a head; of the last one, where it is there more than once.
pub(crate) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let of = |line: &'h str| line.split_once(':').filter(|(it, _)| it.eq_ignore_ascii_case(name));
    head.lines().skip(1).filter_map(of).last().map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_is_that_of_the_specification() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(key(*b"the sample nonce"), "dGhlIHNhbXBsZSBub25jZQ==");
        let head = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nX: a:b\r\n\r\n";
        assert_eq!((field(head, "Upgrade"), field(head, "x")), (Some("websocket"), Some("a:b")));
        assert_eq!(field(head, "Y"), None);
    }
}
