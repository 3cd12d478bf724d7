//! HTTP/2 (RFC 9113): many streams on one connection, towards clients and towards servers.
//!
//! Bytes go in by [`Connection::receive`], what arrived for each stream comes out of [`Connection::poll`]; what is to
//! be sent goes in by `send_…`, and bytes come out of [`Connection::flush`] into an [`Out`](crate::Out). There is no
//! clock in it: how long anything may take is its user's to say.
//!
//! - Bodies are passed on as slices of what was received, and are not copied into frames unless they are small.
//! - A stream that is not read holds up no other, until the connection's window is full of it.
//! - What a peer can have us keep or do is bounded ([`Options`]): a connection that goes too far ends by GOAWAY with
//!   ENHANCE_YOUR_CALM.
//! - A message that HTTP/1 could read in two ways never gets through.
//!
//! Not done: server push (refused), priorities (checked, of no effect), upgrade from HTTP/1.1 (RFC 9113 §3.1 leaves it
//! out).

mod budget;
mod connection;
mod error;
mod flow;
mod frame;
mod head;
pub mod hpack;
mod input;
mod known;
mod options;
mod receive;
mod send;
mod settings;
mod stream;
mod traces;

pub use connection::{Connection, Counts, Unread};
pub use error::{Code, Error};
pub use options::Options;

use crate::event::Event;

/// What a client says first, on a connection that may speak anything.
pub const PREFACE: &[u8] = frame::PREFACE;

/// What arrived for a stream.
#[derive(Debug)]
pub enum Arrival {
    /// A part of a message.
    Part(Event),
    /// The stream is over in the middle, by its peer or by a mistake of its peer.
    Reset(Code),
    /// The server has done nothing for the stream: it may be tried again (RFC 9113 §8.7).
    Refused,
}

#[cfg(test)]
mod tests;
