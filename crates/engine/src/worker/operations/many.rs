//! Peers of the toy protocol of many streams: what they say next, and what they may be told.

use bytes::Bytes;
use towpath_sim::Random;

use super::Peer;
use crate::conn::mux::toy::{self, STREAMS, WINDOW};

/// A stream of the toy protocol, as the worker's peer sees it.
pub(super) struct Stream {
    id: u16,
    /// What the worker may send.
    granted: usize,
    /// What the peer may.
    window: usize,
    has_ended: bool,
    is_ended: bool,
    answered: bool,
}

impl Stream {
    fn new(id: u16) -> Self {
        Self {
            id,
            granted: WINDOW,
            window: WINDOW,
            has_ended: false,
            is_ended: false,
            answered: false,
        }
    }

    /// Lets the worker send more.
    fn grant(&mut self, random: &mut Random) -> Bytes {
        let more = 1 + random.below(WINDOW as u64) as u16;
        self.granted += usize::from(more);
        toy::frame(toy::Kind::Window, self.id, &more.to_be_bytes())
    }

    /// As much as its window takes.
    fn data(&mut self, random: &mut Random) -> Bytes {
        let len = random.below(self.window as u64 + 1) as usize;
        self.window -= len;
        if len == 0 { Bytes::new() } else { toy::frame(toy::Kind::Data, self.id, &vec![b'x'; len]) }
    }
}

impl Peer {
    /// What a client of the toy protocol sends next.
    pub(super) fn begin_or_go_on(&mut self, what: u64, random: &mut Random) -> Bytes {
        let at = random.below(self.streams.len().max(1) as u64) as usize;
        let Some(stream) = self.streams.get_mut(at).filter(|_| what < 7) else {
            if self.streams.len() == STREAMS {
                return Bytes::new();
            }
            self.last_id += 1;
            let mut stream = Stream::new(self.last_id);
            stream.has_ended = random.chance(600);
            let mut chunk = toy::frame(toy::Kind::Head, stream.id, b"PUT /toy").to_vec();
            if stream.has_ended {
                chunk.extend_from_slice(&toy::frame(toy::Kind::End, stream.id, b""));
            }
            self.streams.push(stream);
            return chunk.into();
        };
        match what {
            0 => toy::frame(toy::Kind::Reset, self.streams.swap_remove(at).id, b""),
            1 if random.chance(100) => Bytes::from_static(b"\x63 nonsense"),
            1 | 2 if !stream.has_ended => {
                stream.has_ended = true;
                let end = toy::frame(toy::Kind::End, stream.id, b"");
                self.forget_ended();
                end
            }
            3 | 4 if !stream.has_ended => stream.data(random),
            _ => stream.grant(random),
        }
    }

    /// What a server of the toy protocol sends next.
    pub(super) fn answer_or_go_away(&mut self, what: u64, random: &mut Random) -> Bytes {
        match what {
            0 if random.chance(200) => return Bytes::from_static(b"\x63 nonsense"),
            0 => return toy::frame(toy::Kind::Capacity, 0, &[random.below(9) as u8]),
            1 if random.chance(300) => return toy::frame(toy::Kind::GoAway, self.last_id, b""),
            _ => {}
        }
        let at = random.below(self.streams.len().max(1) as u64) as usize;
        let Some(stream) = self.streams.get_mut(at) else { return Bytes::new() };
        match what {
            2 => toy::frame(toy::Kind::Reset, self.streams.swap_remove(at).id, b""),
            3 | 4 => stream.grant(random),
            _ if stream.has_ended => Bytes::new(),
            _ if !stream.answered => {
                stream.answered = true;
                let status: &[u8] = if random.chance(200) { b"503" } else { b"200" };
                let head = toy::frame(toy::Kind::Head, stream.id, status);
                [head, stream.data(random)].concat().into()
            }
            5..9 => stream.data(random),
            _ => {
                stream.has_ended = true;
                let end = toy::frame(toy::Kind::End, stream.id, b"");
                self.forget_ended();
                end
            }
        }
    }

    /// What the worker says in the toy protocol; how many responses a client has whole with that.
    pub(super) fn hear(&mut self, chunk: &Bytes) -> u32 {
        let mut answers = 0;
        self.received.extend_from_slice(chunk);
        while let Some((kind, id, payload)) = toy::take_frame(&mut self.received).unwrap() {
            if kind == toy::Kind::Head && !self.is_client {
                assert!(id > self.last_id, "each stream has a number of its own");
                self.last_id = id;
                self.streams.push(Stream::new(id));
                continue;
            }
            // It may have been given up here and not yet there.
            let Some(at) = self.streams.iter().position(|stream| stream.id == id) else { continue };
            let stream = &mut self.streams[at];
            match kind {
                toy::Kind::Head => assert!(!std::mem::replace(&mut stream.answered, true)),
                toy::Kind::Data => {
                    assert!(!stream.is_ended, "nothing comes behind an end");
                    stream.granted = stream.granted.checked_sub(payload.len()).expect("a window");
                }
                toy::Kind::End => {
                    assert!(!std::mem::replace(&mut stream.is_ended, true), "one end");
                    answers += u32::from(stream.answered && self.is_client);
                    self.forget_ended();
                }
                toy::Kind::Reset => drop(self.streams.swap_remove(at)),
                toy::Kind::Window => {
                    stream.window +=
                        usize::from(u16::from_be_bytes(payload[..].try_into().unwrap()));
                    assert!(stream.window <= WINDOW, "no more than there is room for");
                }
                toy::Kind::Capacity | toy::Kind::GoAway => {}
            }
        }
        answers
    }

    fn forget_ended(&mut self) {
        self.streams.retain(|stream| !(stream.has_ended && stream.is_ended));
    }
}
