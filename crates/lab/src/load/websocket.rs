//! WebSocket on the generator's connections: the opening handshake, then a message for each request, whose answer is
//! the next message that comes. Messages that come while none is awaited are passed over.

use bytes::Bytes;
use towpath_proto::websocket::{Frames, Item, Opcode, Sender, frame};

use super::Plan;
use crate::chunked::Malformed;
use crate::random::Random;
use crate::websocket::{self, field};

/// What every connection begins with.
pub(super) struct Handshake {
    head: String,
    random: Random,
}

impl Handshake {
    pub(super) fn new(plan: &Plan) -> Self {
        let headers = &plan.request.headers;
        let mut head = format!("GET {} HTTP/1.1\r\n", plan.target.path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head += &format!("Host: {}\r\n", plan.target.authority);
        }
        head += "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n";
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        Self { head, random: Random::fresh() }
    }

    /// Of one connection.
    pub(super) fn begin(&mut self) -> Web {
        let nonce = u128::from(self.random.next()) << 64 | u128::from(self.random.next());
        let key = websocket::key(nonce.to_be_bytes());
        let request = format!("{}Sec-WebSocket-Key: {key}\r\n\r\n", self.head);
        Web {
            request: request.into(),
            accept: websocket::accept(&key),
            head: Vec::new(),
            is_open: false,
            waiting: Bytes::new(),
            frames: Frames::of(Sender::Server),
        }
    }
}

/// The bytes of a plan's message. One mask serves all: it is there so that pages cannot choose the bytes that
/// intermediaries see (RFC 6455 §10.3), and here the user of the generator chose them.
pub(super) fn message(plan: &Plan) -> Vec<u8> {
    let body = &plan.request.body;
    let mask = (Random::new(plan.seed).next() as u32).to_be_bytes();
    frame(Opcode::of(body), body, Some(mask))
}

/// One connection's state.
#[derive(Debug)]
pub(crate) struct Web {
    /// Asks for the upgrade.
    pub(super) request: Bytes,
    accept: String,
    head: Vec<u8>,
    pub(super) is_open: bool,
    /// The message that is sent once it is open.
    pub(super) waiting: Bytes,
    frames: Frames,
}

/// What received bytes brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Brought {
    /// A whole message.
    pub(super) is_answered: bool,
    /// The server closes.
    pub(super) is_closed: bool,
    /// To be sent: answers to pings.
    pub(super) pongs: Vec<u8>,
}

/// The server did not switch; the status it gave, 0 where it gave none or broke the handshake.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) u16);

impl Web {
    /// Takes bytes of the server's answer to the handshake: those after it, once it is whole.
    pub(super) fn open<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, Refused> {
        let before = self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_LIMIT - before)]);
        let from = before.saturating_sub(3);
        let Some(end) = memchr::memmem::find(&self.head[from..], b"\r\n\r\n") else {
            return if self.head.len() < HEAD_LIMIT { Ok(None) } else { Err(Refused(0)) };
        };
        let end = from + end + 4;
        let head = String::from_utf8_lossy(&self.head[..end]);
        let status = head.get(9..12).and_then(|it| it.parse().ok()).unwrap_or(0);
        // §4.1: what the client must see before it takes the connection for open.
        let is = |name, value| field(&head, name).is_some_and(|it| it.eq_ignore_ascii_case(value));
        let is_accepted = field(&head, "sec-websocket-accept") == Some(self.accept.as_str());
        if status != 101 || !head.starts_with("HTTP/1.1 ") {
            return Err(Refused(status));
        }
        if !is("upgrade", "websocket") || !is("connection", "upgrade") || !is_accepted {
            return Err(Refused(0));
        }
        self.is_open = true;
        Ok(Some(&bytes[end - before..]))
    }

    /// Takes bytes of frames.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> Result<Brought, Malformed> {
        let mut brought = Brought::default();
        while let Some(item) = self.frames.next(&mut bytes).map_err(|_| Malformed)? {
            match item {
                Item::End(_) => brought.is_answered = true,
                Item::Control(Opcode::Close, _) => brought.is_closed = true,
                Item::Control(Opcode::Ping, payload) => {
                    brought.pongs.extend(frame(Opcode::Pong, payload, Some([0; 4])));
                }
                Item::Begin(..) | Item::Piece(_) | Item::Control(..) => {}
            }
        }
        Ok(brought)
    }
}

const HEAD_LIMIT: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Web {
        let plan = Plan::new("ws://127.0.0.1:1/chat".parse().unwrap());
        Handshake::new(&plan).begin()
    }

    fn answer(web: &Web) -> String {
        let accept = &web.accept;
        format!(
            "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: \
             {accept}\r\n\r\n"
        )
    }

    #[test]
    fn the_handshake_is_asked_for_and_its_answer_checked_at_every_split() {
        let mut plan = Plan::new("ws://127.0.0.1:1/chat".parse().unwrap());
        plan.request.headers.push(("Origin".to_owned(), "http://a".to_owned()));
        let mut handshake = Handshake::new(&plan);
        let (one, other) = (handshake.begin(), handshake.begin());
        let text = String::from_utf8(one.request.to_vec()).unwrap();
        assert!(text.starts_with("GET /chat HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"), "{text}");
        assert!(
            text.contains("\r\nOrigin: http://a\r\n") && text.ends_with("==\r\n\r\n"),
            "{text}"
        );
        assert_ne!(one.request, other.request, "each connection has its own key");
        let mut web = web();
        let head = answer(&web);
        for split in 1..head.len() {
            (web.is_open, web.head) = (false, Vec::new());
            assert_eq!(web.open(&head.as_bytes()[..split]), Ok(None));
            let rest = [&head.as_bytes()[split..], b"\x81\x00"].concat();
            assert_eq!(web.open(&rest), Ok(Some(&b"\x81\x00"[..])));
            assert!(web.is_open);
        }
    }

    #[test]
    fn a_server_that_does_not_switch_is_told_from_one_that_does() {
        let refused = |change: fn(String) -> String| {
            let mut web = web();
            let head = change(answer(&web));
            let result = web.open(head.as_bytes()).map(|_| ());
            assert!(!web.is_open);
            result
        };
        assert_eq!(refused(|head| head.replace("101", "404")), Err(Refused(404)));
        assert_eq!(refused(|head| head.replace("HTTP/1.1", "HTTP/1.0")), Err(Refused(101)));
        assert_eq!(refused(|head| head.replace("Accept: ", "Accept: x")), Err(Refused(0)));
        assert_eq!(refused(|head| head.replace("Upgrade: websocket\r\n", "")), Err(Refused(0)));
        assert_eq!(refused(|_| "x".repeat(HEAD_LIMIT + 1)), Err(Refused(0)));
        assert_eq!(refused(|_| "é\r\n\r\n".to_owned()), Err(Refused(0)));
    }

    #[test]
    fn pings_are_answered_and_a_close_is_seen() {
        let mut web = web();
        let ping = frame(Opcode::Ping, b"!", None);
        let close = frame(Opcode::Close, b"", None);
        let message = frame(Opcode::Text, b"Hello", None);
        let brought = web.receive(&[ping, message, close].concat()).unwrap();
        assert!(brought.is_answered && brought.is_closed);
        assert_eq!(brought.pongs, frame(Opcode::Pong, b"!", Some([0; 4])));
        assert_eq!(web.receive(&[0x81, 0x80, 0, 0, 0, 0]), Err(Malformed));
    }
}
