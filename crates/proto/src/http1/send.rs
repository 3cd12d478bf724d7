//! The sending half of a body that both sides share.

use bytes::{Bytes, BytesMut};

use super::encode;
use super::options::NameCase;
use crate::chars;
use crate::head::Head;
use crate::name::Name;
use crate::out::Out;

/// How the body of the message being written is framed, and how far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sending {
    /// No head was written yet.
    #[default]
    AwaitingHead,
    /// So many bytes are still promised by Content-Length.
    Length(u64),
    Chunked,
    /// The end of the connection is the end of the body.
    UntilClose,
    /// The message has no body whatever is written.
    Bodiless,
    /// Everything is written.
    Complete,
    /// The message ended before what its head promised: only closing tells the peer.
    Broken,
    /// Not HTTP any more.
    Raw,
}

impl Sending {
    /// Writes a piece of the body. More than Content-Length promised never leaves.
    pub(super) fn data(&mut self, mut data: Bytes, out: &mut Out) {
        if data.is_empty() {
            return;
        }
        match self {
            Self::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                out.push(data);
            }
            Self::Chunked => {
                chunk_size(out.buffer(), data.len());
                out.push(data);
                out.buffer().extend_from_slice(b"\r\n");
            }
            Self::UntilClose | Self::Raw => out.push(data),
            Self::AwaitingHead | Self::Bodiless | Self::Complete | Self::Broken => {}
        }
    }

    /// Ends the message with trailers. They are left out where the framing has no place for them.
    pub(super) fn trailers(&mut self, trailers: &Head, case: NameCase, out: &mut Out) {
        if *self != Self::Chunked {
            return self.end(out);
        }
        out.head(|lines| {
            lines.put_array(b"0\r\n");
            encode::fields(lines, trailers, case, encode::Framing::default());
            lines.put_array(b"\r\n");
        });
        *self = Self::Complete;
    }

    /// Ends the message.
    pub(super) fn end(&mut self, out: &mut Out) {
        *self = match self {
            Self::Chunked => {
                out.buffer().extend_from_slice(b"0\r\n\r\n");
                Self::Complete
            }
            Self::Length(0) | Self::UntilClose | Self::Bodiless | Self::Complete => Self::Complete,
            Self::Length(_) | Self::AwaitingHead | Self::Broken => Self::Broken,
            Self::Raw => Self::Raw,
        };
    }

    pub(super) const fn is_complete(self) -> bool {
        matches!(self, Self::Complete | Self::Broken)
    }
}

/// The length that a head to be written promises: one valid Content-Length, or nothing.
#[inline]
pub(super) fn promised_length(head: &Head) -> Option<u64> {
    chars::decimal(head.only(Name::ContentLength)?)
}

fn chunk_size(buffer: &mut BytesMut, size: usize) {
    let digits = (size.max(1).ilog2() / 4 + 1) as usize;
    let mut line = [0; 18];
    for (index, byte) in line[..digits].iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[size >> (4 * (digits - 1 - index)) & 15];
    }
    line[digits..digits + 2].copy_from_slice(b"\r\n");
    buffer.extend_from_slice(&line[..digits + 2]);
}
