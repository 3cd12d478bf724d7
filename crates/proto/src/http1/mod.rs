//! HTTP/1.1 and HTTP/1.0 (RFC 9110, RFC 9112), both sides, without any I/O.
//!
//! Chunks arrive through [`Server::receive`] or [`Client::receive`]; [`Event`]s leave through `poll`;
//! what is to be written goes into an [`Out`]. A head that arrives whole in one chunk is parsed where it
//! lies: the chunk becomes the head's bytes. A body is never gathered: its pieces are slices of the chunks.
//!
//! What could be read in two ways is refused, not repaired, and what is written is written afresh from the
//! list of fields. Fields that belong to one connection (`connection`, `keep-alive`, `transfer-encoding`,
//! `te` but for `trailers`, …) never leave this module in either direction.
//!
//! Cost of a request with a head in one chunk: no copy of it, no allocation once the [`HeadPool`] is warm,
//! one atomic operation for each slice of a chunk that is handed on.
//!
//! [`HeadPool`]: crate::HeadPool

mod body;
pub(crate) mod chars;
mod client;
mod encode;
mod error;
mod facts;
mod options;
mod out;
mod parse;
mod receive;
mod request;
mod response;
mod scan;
mod send;
mod server;

use bytes::Bytes;

pub use self::client::Client;
pub use self::error::Error;
pub use self::options::{NameCase, Options, Underscores};
pub use self::out::{COPY_LIMIT, Out};
pub use self::server::Server;
use crate::head::Head;

/// What arrived.
///
/// A message is one `Head`; unless that says `end`, then any number of `Data` and at last exactly one of
/// `Trailers` and `End`.
#[derive(Debug)]
pub enum Event {
    /// The head of a message.
    Head {
        /// The head.
        head: Head,
        /// Whether the message has no body. Always so for CONNECT and for answers that switch protocols:
        /// what follows is not HTTP, see [`Server::upgraded`] and [`Client::upgraded`].
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
