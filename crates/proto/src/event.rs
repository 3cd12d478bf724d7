//! What arrives on a stream, in the words of no protocol in particular.

use bytes::Bytes;

use crate::head::Head;

/// What arrived.
///
/// A message is one `Head`; unless that says `end`, then any number of `Data` and at last exactly one of
/// `Trailers` and `End`. A caller that asks a codec after a piece of `Data` whether that was the last (`take_end`) gets
/// no `End`.
#[derive(Debug)]
pub enum Event {
    /// The head of a message.
    Head {
        /// The head.
        head: Head,
        /// Whether the message has no body. Always so for CONNECT and for answers that switch protocols:
        /// what follows is not HTTP, see [`Server::upgraded`](crate::http1::Server::upgraded) and
        /// [`Client::upgraded`](crate::http1::Client::upgraded).
        end: bool,
    },
    /// An interim response (1xx but 101).
    Informational(Head),
    /// A piece of the body; never empty.
    Data(Bytes),
    /// The trailer section, never empty; it ends the message.
    Trailers(Head),
    /// The end of the message.
    End,
}

/// What follows a finished exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The connection is ready for another.
    KeepAlive,
    /// The connection must be closed.
    Close,
}
