//! What a filter that talks with a server while a stream goes on wants done, and what it is told.

use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{Head, Name};

use super::{Answer, Callout, Reply};
use crate::format::Facts;

/// A direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the host.
    Request,
    /// From the host to the client.
    Response,
}

/// What a filter wants done with its stream and its call, in this order.
#[derive(Debug)]
pub enum Step {
    /// The call begins. It has no content yet, and no end.
    Begin(Box<Callout>),
    /// A request to another server, of which the filter hears the [answer](Said::Answer).
    Ask(Box<Callout>),
    /// A message of the call, framed.
    Say(Bytes),
    /// It is given up.
    HangUp,
    /// It is given up so long after the stream's end, and not with it.
    Linger(Duration),
    /// After this time the filter is told that it is [late](Said::Late); `None` takes that back.
    Time(Direction, Option<Duration>),
    /// The request is routed anew, if it is not on its way.
    Reroute,
    /// The head that is held goes on.
    GoOn {
        /// Which one.
        way: Direction,
        /// Nothing follows it.
        ends: bool,
    },
    /// A field of the response's head, which is held, is set.
    Field(Name, Bytes),
    /// Content goes on.
    Pass(Direction, Bytes),
    /// The message is over, with these trailers.
    End(Direction, Option<Head>),
    /// The request is answered here; a response that has begun is cut off.
    Answer(Box<Reply>),
}

/// What a filter hears of its call.
#[derive(Debug)]
pub enum Said {
    /// A message.
    Message(Bytes),
    /// It is over, with this status of gRPC and what it says.
    Over(u32, Vec<u8>),
    /// What came of a request.
    Answer(Answer),
    /// The time that it asked for has passed.
    Late(Direction),
}

/// The stream of a filter that hears something.
#[derive(Debug)]
pub struct TalkView<'a> {
    /// The request's head.
    pub request: &'a mut Head,
    /// The response's head; an empty one if there is none yet.
    pub response: &'a mut Head,
    /// What else is known of the stream.
    pub facts: &'a Facts<'a>,
}
