//! Bolt, the RPC protocol of SOFA, in both versions: frames in, frames out.
//!
//! A frame is a fixed part of 20 to 24 bytes, then the name of a class, a block of headers and the content,
//! each with its length in the fixed part, and in version 2 perhaps a checksum behind them. Many requests
//! share a connection; a number that the client chose ties each response to its request.
//!
//! [`Decoder`] cuts chunks into [`Frame`]s, which stay where they arrived: a proxy that only changes the
//! number writes the same bytes again with [`Frame::write_as`]. [`Message`] makes frames of its own.
//!
//! The layout is that of sofa-bolt's `RpcCommandEncoder` and `RpcCommandEncoderV2`; numbers are big-endian.

mod decode;
mod encode;
mod error;
mod frame;
mod head;
mod headers;
mod layout;
mod options;
mod status;

pub use decode::{Decoder, Detection, detect};
pub use encode::Message;
pub use error::Error;
pub use frame::{Command, Frame, Kind};
pub use headers::{Headers, Malformed, write_header};
pub use layout::Version;
pub use options::Options;
pub use status::Status;

#[cfg(test)]
mod tests;
