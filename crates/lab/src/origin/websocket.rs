//! The test server in WebSocket: what comes goes back, message by message.

use towpath_proto::websocket::{Frames, Item, Opcode, Sender, frame};

use crate::chunked::Malformed;
use crate::websocket::{self, field};

/// One client's handshake and messages.
#[derive(Debug, Default)]
pub(super) struct Session {
    head: Vec<u8>,
    frames: Option<Frames>,
    message: Vec<u8>,
}

/// What bytes ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// To be sent at once.
    Now(Vec<u8>),
    /// The answer to a message.
    Echo(Vec<u8>),
    /// To be sent before the connection is closed.
    Last(Vec<u8>),
}

impl Session {
    /// Takes received bytes.
    pub(super) fn receive(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Reply),
    ) -> Result<(), Malformed> {
        if self.frames.is_none() {
            let before = self.head.len();
            self.head.extend_from_slice(bytes);
            let Some(end) = memchr::memmem::find(&self.head, b"\r\n\r\n").map(|at| at + 4) else {
                return if self.head.len() < HEAD_LIMIT { Ok(()) } else { Err(Malformed) };
            };
            let head = String::from_utf8_lossy(&self.head[..end]);
            let Some(key) = field(&head, "sec-websocket-key") else {
                each(Reply::Last(UPGRADE_REQUIRED.to_vec()));
                return Ok(());
            };
            let accept = websocket::accept(key);
            each(Reply::Now(format!("{SWITCHING}Sec-WebSocket-Accept: {accept}\r\n\r\n").into()));
            self.frames = Some(Frames::of(Sender::Client));
            bytes = &bytes[end - before..];
        }
        let Self { frames: Some(frames), message, .. } = self else { return Ok(()) };
        while let Some(item) = frames.next(&mut bytes).map_err(|_| Malformed)? {
            match item {
                Item::Piece(piece) if message.len() + piece.len() > MESSAGE_LIMIT => {
                    return Err(Malformed);
                }
                Item::Piece(piece) => message.extend_from_slice(piece),
                Item::End(opcode) => {
                    each(Reply::Echo(frame(opcode, message, None)));
                    message.clear();
                }
                Item::Control(Opcode::Close, payload) => {
                    each(Reply::Last(frame(Opcode::Close, payload, None)));
                }
                Item::Control(Opcode::Ping, payload) => {
                    each(Reply::Now(frame(Opcode::Pong, payload, None)));
                }
                Item::Begin(..) | Item::Control(..) => {}
            }
        }
        Ok(())
    }
}

const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
const UPGRADE_REQUIRED: &[u8] =
    b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
const HEAD_LIMIT: usize = 16 << 10;
const MESSAGE_LIMIT: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_switched_and_its_messages_come_back_at_every_split() {
        let hello =
            b"GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let mask = Some([1, 2, 3, 4]);
        let bytes = [
            &hello[..],
            &frame(Opcode::Text, b"Hello", mask),
            &frame(Opcode::Ping, b"!", mask),
            &frame(Opcode::Close, b"", mask),
        ]
        .concat();
        for split in 0..bytes.len() {
            let mut session = Session::default();
            let mut replies = Vec::new();
            for part in [&bytes[..split], &bytes[split..]] {
                session.receive(part, |reply| replies.push(reply)).unwrap();
            }
            let Reply::Now(switched) = replies.remove(0) else { panic!("{replies:?}") };
            assert!(switched.ends_with(b"Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"));
            let expected = [
                Reply::Echo(frame(Opcode::Text, b"Hello", None)),
                Reply::Now(frame(Opcode::Pong, b"!", None)),
                Reply::Last(frame(Opcode::Close, b"", None)),
            ];
            assert_eq!(replies, expected);
        }
    }

    #[test]
    fn a_client_that_asks_for_no_upgrade_or_for_too_much_is_refused() {
        let mut replies = Vec::new();
        Session::default().receive(b"GET / HTTP/1.1\r\n\r\n", |it| replies.push(it)).unwrap();
        assert_eq!(replies, [Reply::Last(UPGRADE_REQUIRED.to_vec())]);
        let endless = vec![b'a'; HEAD_LIMIT];
        assert_eq!(Session::default().receive(&endless, |_| {}), Err(Malformed));
        let mut session =
            Session { frames: Some(Frames::of(Sender::Client)), ..Session::default() };
        let long = frame(Opcode::Binary, &vec![0xff; MESSAGE_LIMIT + 1], Some([0; 4]));
        assert_eq!(session.receive(&long, |_| {}), Err(Malformed));
    }
}
