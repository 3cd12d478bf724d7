//! The test server in Bolt: frames in, one item each out, and the answers.

use bytes::{Bytes, BytesMut};
use towpath_proto::Out;
use towpath_proto::bolt::{Command, Decoder, Error, Frame, Kind, Message, Options, Status};

use super::Origin;

/// Reads the frames of one connection.
#[derive(Debug)]
pub(super) struct Frames(Decoder);

/// What a frame asks for.
#[derive(Debug)]
pub(super) enum Item {
    /// To be answered with this.
    Heartbeat(Bytes),
    /// Nothing.
    Oneway,
    /// An answer.
    Call(Frame),
}

/// How calls are answered.
#[derive(Debug)]
pub(super) struct Answers {
    status: Status,
    size: usize,
    filler: Vec<u8>,
}

impl Default for Frames {
    fn default() -> Self {
        Self(Decoder::new(Options::default()))
    }
}

impl Frames {
    /// Takes received bytes. Responses are passed over: this server asks nothing.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Item),
    ) -> Result<(), Error> {
        self.0.receive(Bytes::copy_from_slice(bytes));
        while let Some(frame) = self.0.poll()? {
            match (frame.kind(), frame.command()) {
                (Kind::Request, Command::Heartbeat) => {
                    let answer = Message::heartbeat_answer(frame.version(), frame.id());
                    each(Item::Heartbeat(encoded(&answer)));
                }
                (Kind::Request, Command::Rpc) => each(Item::Call(frame)),
                (Kind::Oneway, Command::Rpc) => each(Item::Oneway),
                (Kind::Response, _)
                | (Kind::Oneway, Command::Heartbeat)
                | (Kind::Request | Kind::Oneway, Command::GoAway) => {}
            }
        }
        Ok(())
    }
}

impl Answers {
    pub(super) fn new(origin: &Origin) -> Self {
        Self {
            status: Status::from_http(origin.status),
            size: origin.size,
            filler: super::filler(origin.size),
        }
    }

    /// Answers a call with its own content, class, codec and version.
    pub(super) fn write(&self, call: &Frame, out: &mut Vec<u8>) {
        let asked = call.content();
        let content = if self.size == 0 || asked.len() == self.size {
            asked
        } else {
            let mut content = BytesMut::from(&self.filler[..]);
            let known = asked.len().min(self.size);
            content[..known].copy_from_slice(&asked[..known]);
            content.freeze()
        };
        let answer = Message {
            codec: call.codec(),
            class: Bytes::copy_from_slice(call.class()),
            content,
            checksum: call.has_checksum(),
            ..Message::response(call.version(), call.id(), self.status)
        };
        out.extend_from_slice(&encoded(&answer));
    }
}

fn encoded(message: &Message) -> Bytes {
    let mut out = Out::new();
    // Nothing in it is longer than in the call, or than the size that the command line allows.
    let _ = message.write(&mut out);
    let mut parts = out.drain();
    match (parts.next(), parts.next()) {
        (Some(only), None) => only,
        (first, second) => {
            let whole: Vec<Bytes> = first.into_iter().chain(second).chain(parts).collect();
            whole.concat().into()
        }
    }
}
