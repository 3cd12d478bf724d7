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
//! [`Event`]: crate::Event
//! [`Out`]: crate::Out

mod body;
mod client;
mod encode;
mod error;
mod facts;
mod options;
mod parse;
mod receive;
mod request;
mod response;
mod scan;
mod send;
mod server;
mod spelling;

pub use self::client::Client;
pub use self::encode::{reason, status_line_bytes};
pub use self::error::Error;
pub use self::options::{Kept, NameCase, Options, Underscores};
pub use self::server::Server;
