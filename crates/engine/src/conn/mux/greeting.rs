//! What sidecars of a mesh tell each other on a connection before the bytes of their apps.

use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};

use crate::mesh::{GREETING_MAGIC, Workload};

/// What a peer says of itself, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Greeting {
    received: BytesMut,
    is_over: bool,
    /// Until it is taken.
    heard: Option<Heard>,
}

/// How a greeting came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It says who the peer is, or that it does not know.
    Peer(Option<Arc<Workload>>),
    /// It does not begin as one does, or is longer than one is.
    NoGreeting,
    /// It begins as one, and is none.
    Malformed,
}

impl Greeting {
    /// Takes what has come; gives back what belongs to the app.
    pub(super) fn receive(&mut self, chunk: Bytes) -> Bytes {
        if self.is_over {
            return chunk;
        }
        self.received.extend_from_slice(&chunk);
        let heard = match read(&self.received) {
            Read::Incomplete => return Bytes::new(),
            Read::None => Heard::NoGreeting,
            Read::Whole(length) => {
                let body = self.received.get(HEADER..HEADER + length).unwrap_or_default();
                match Workload::from_greeting(body) {
                    Ok(peer) => {
                        self.received.advance(HEADER + length);
                        Heard::Peer(peer.map(Arc::new))
                    }
                    Err(_) => {
                        self.received.advance(HEADER);
                        Heard::Malformed
                    }
                }
            }
        };
        (self.heard, self.is_over) = (Some(heard), true);
        std::mem::take(&mut self.received).freeze()
    }

    /// The peer sends nothing more: what there is belongs to the app.
    pub(super) fn end(&mut self) -> Bytes {
        std::mem::take(&mut self.received).freeze()
    }

    pub(super) fn take_heard(&mut self) -> Option<Heard> {
        self.heard.take()
    }

    pub(super) fn buffered(&self) -> usize {
        self.received.len()
    }
}

enum Read {
    Incomplete,
    None,
    /// Of so many bytes behind its header.
    Whole(usize),
}

fn read(received: &[u8]) -> Read {
    let Some((magic, rest)) = received.split_first_chunk::<4>() else { return Read::Incomplete };
    if u32::from_be_bytes(*magic) != GREETING_MAGIC {
        return Read::None;
    }
    let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Read::Incomplete };
    let length = u32::from_be_bytes(*length) as usize;
    if length > LONGEST {
        return Read::None;
    }
    if rest.len() < length { Read::Incomplete } else { Read::Whole(length) }
}

/// What a greeting begins with: a number that tells it, and its length.
const HEADER: usize = 8;
/// Envoy has no such limit. What sidecars say has some hundred bytes.
const LONGEST: usize = 64 * 1024;

#[cfg(all(test, feature = "serving"))]
mod tests {
    use super::*;

    fn greeting() -> Vec<u8> {
        Workload { name: "client".into(), ..Workload::default() }.greeting("id")
    }

    #[test]
    fn what_follows_is_the_apps() {
        let mut all = greeting();
        all.extend_from_slice(b"hello");
        for cut in 1..all.len() {
            let mut greeting = Greeting::default();
            let mut app = greeting.receive(Bytes::copy_from_slice(&all[..cut])).to_vec();
            app.extend(greeting.receive(Bytes::copy_from_slice(&all[cut..])));
            assert_eq!(app, b"hello", "cut at {cut}");
            let heard = greeting.take_heard();
            let Some(Heard::Peer(Some(peer))) = heard else { panic!("{heard:?}") };
            assert_eq!(&*peer.name, "client");
            assert_eq!(greeting.buffered(), 0);
        }
    }

    #[test]
    fn what_is_no_greeting_goes_on_as_it_came() {
        let mut none = Greeting::default();
        assert_eq!(none.receive(Bytes::from_static(b"GET / HTTP/1.1")), b"GET / HTTP/1.1"[..]);
        assert_eq!(none.take_heard(), Some(Heard::NoGreeting));
        let mut endless = GREETING_MAGIC.to_be_bytes().to_vec();
        endless.extend(u32::MAX.to_be_bytes());
        let mut huge = Greeting::default();
        assert_eq!(huge.receive(endless.clone().into()), endless);
        assert_eq!(huge.take_heard(), Some(Heard::NoGreeting));
        let mut bad = GREETING_MAGIC.to_be_bytes().to_vec();
        bad.extend([0, 0, 0, 1, 0xff]);
        let mut malformed = Greeting::default();
        assert_eq!(malformed.receive(bad.into()), b"\xff"[..]);
        assert_eq!(malformed.take_heard(), Some(Heard::Malformed));
        let mut cut = Greeting::default();
        assert_eq!(cut.receive(Bytes::copy_from_slice(&greeting()[..9])), b""[..]);
        assert_eq!(cut.end().len(), 9);
    }
}
