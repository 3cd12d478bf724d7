//! Why bytes are no Bolt. The connection cannot go on: where the next frame begins is not known.

use thiserror::Error;

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The first byte names neither version 1 nor version 2.
    #[error("unknown protocol {0}")]
    UnknownProtocol(u8),
    /// The second byte of version 2 is neither 1 (no checksum) nor 2. sofa-bolt waits for ever on such a frame.
    #[error("unknown version {0} of protocol 2")]
    UnknownVersion(u8),
    /// Neither a request, a oneway request nor a response.
    #[error("unknown type {0}")]
    UnknownKind(u8),
    /// A command that does not exist, or not for this type of frame.
    #[error("unknown command {0}")]
    UnknownCommand(u16),
    /// A switch other than the one for the checksum.
    #[error("unknown switch {0:#x}")]
    UnknownSwitch(u8),
    /// The name of the class is longer than 32,767 bytes.
    #[error("class of {0} bytes")]
    ClassTooLong(usize),
    /// The block of headers is longer than 32,767 bytes.
    #[error("headers of {0} bytes")]
    HeadersTooLong(usize),
    /// The frame is longer than [`Options::max_frame`](super::Options::max_frame).
    #[error("frame of {0} bytes")]
    FrameTooLarge(usize),
    /// The checksum is not that of the frame.
    #[error("wrong checksum")]
    WrongChecksum,
}
