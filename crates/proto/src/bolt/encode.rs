//! Frames of our own.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use super::error::Error;
use super::frame::{Command, Frame, Kind};
use super::layout::{CHECKSUM, CHECKSUM_LENGTH, COMMAND_VERSION, Version};
use super::options::MAX_SHORT;
use super::status::Status;
use crate::Out;

/// What a frame says, before it is one.
#[derive(Clone, Debug)]
pub struct Message {
    /// The version to write.
    pub version: Version,
    /// Which way it goes.
    pub kind: Kind,
    /// What it is about.
    pub command: Command,
    /// The number that ties a response to its request.
    pub id: u32,
    /// How the content is serialised: 1 is Hessian 2.
    pub codec: u8,
    /// How long a request may take, to the millisecond; none writes −1.
    pub timeout: Option<Duration>,
    /// What a response says.
    pub status: Status,
    /// The name of the content's class; at most 32,767 bytes.
    pub class: Bytes,
    /// The block of headers, as [`write_header`](super::write_header) makes it; at most 32,767 bytes.
    pub headers: Bytes,
    /// The content.
    pub content: Bytes,
    /// Whether a checksum follows, where the version has room for one.
    pub checksum: bool,
}

impl Message {
    /// A call with Hessian 2, without class, headers or content.
    #[must_use]
    pub fn request(version: Version, id: u32) -> Self {
        Self {
            version,
            kind: Kind::Request,
            command: Command::Rpc,
            id,
            codec: HESSIAN_2,
            timeout: None,
            status: Status::SUCCESS,
            class: Bytes::new(),
            headers: Bytes::new(),
            content: Bytes::new(),
            checksum: false,
        }
    }

    /// An answer with a status and nothing else.
    #[must_use]
    pub fn response(version: Version, id: u32, status: Status) -> Self {
        Self { kind: Kind::Response, status, ..Self::request(version, id) }
    }

    /// Asks whether the peer is there.
    #[must_use]
    pub fn heartbeat(version: Version, id: u32) -> Self {
        Self { command: Command::Heartbeat, ..Self::request(version, id) }
    }

    /// Says that we are.
    #[must_use]
    pub fn heartbeat_answer(version: Version, id: u32) -> Self {
        Self { command: Command::Heartbeat, ..Self::response(version, id, Status::SUCCESS) }
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// [`Error::ClassTooLong`], [`Error::HeadersTooLong`] or [`Error::FrameTooLarge`] for what no length can say;
    /// nothing is written then.
    pub fn write(&self, out: &mut Out) -> Result<(), Error> {
        let (fixed, checksum) = self.fixed()?;
        out.buffer().extend_from_slice(&fixed);
        for part in [&self.class, &self.headers, &self.content] {
            out.push(part.clone());
        }
        if let Some(checksum) = checksum {
            out.buffer().extend_from_slice(&checksum);
        }
        Ok(())
    }

    /// The frame as its receiver has it.
    ///
    /// # Errors
    /// Those of [`Message::write`].
    pub fn frame(&self) -> Result<Frame, Error> {
        let (fixed, checksum) = self.fixed()?;
        let parts = [&fixed[..], &self.class, &self.headers, &self.content];
        let length = parts.iter().map(|part| part.len()).sum::<usize>() + CHECKSUM_LENGTH;
        let mut bytes = BytesMut::with_capacity(length);
        parts.into_iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.extend_from_slice(checksum.as_ref().map_or(&[], |checksum| &checksum[..]));
        Ok(Frame {
            bytes: bytes.freeze(),
            version: self.version,
            kind: self.kind,
            command: self.command,
            class: self.class.len() as u16,
            headers: self.headers.len() as u16,
            has_checksum: checksum.is_some(),
        })
    }

    /// What stands before the parts, and what stands behind them.
    fn fixed(&self) -> Result<(Vec<u8>, Option<[u8; CHECKSUM_LENGTH]>), Error> {
        if self.class.len() > MAX_SHORT {
            return Err(Error::ClassTooLong(self.class.len()));
        }
        if self.headers.len() > MAX_SHORT {
            return Err(Error::HeadersTooLong(self.headers.len()));
        }
        // Java reads this length as a signed number too.
        let content = i32::try_from(self.content.len())
            .map_err(|_| Error::FrameTooLarge(self.content.len()))?;
        let checksummed = self.checksum && self.version == Version::V2 { checksums: true };
        let mut fixed = Vec::with_capacity(FIXED_AT_MOST);
        fixed.put_u8(self.version.protocol());
        if let Version::V2 { checksums } = self.version {
            fixed.put_u8(if checksums { 2 } else { 1 });
        }
        fixed.put_u8(self.kind.number());
        fixed.put_u16(self.command.number(self.kind));
        fixed.put_u8(COMMAND_VERSION);
        fixed.put_u32(self.id);
        fixed.put_u8(self.codec);
        if let Version::V2 { .. } = self.version {
            fixed.put_u8(if checksummed { CHECKSUM } else { 0 });
        }
        match self.kind {
            Kind::Response => fixed.put_u16(self.status.0),
            Kind::Request | Kind::Oneway => fixed.put_i32(milliseconds(self.timeout)),
        }
        fixed.put_u16(self.class.len() as u16);
        fixed.put_u16(self.headers.len() as u16);
        fixed.put_i32(content);
        let checksum = checksummed.then(|| {
            let mut checksum = crc32fast::Hasher::new();
            let parts = [&fixed[..], &self.class, &self.headers, &self.content];
            parts.into_iter().for_each(|part| checksum.update(part));
            checksum.finalize().to_be_bytes()
        });
        Ok((fixed, checksum))
    }
}

/// A timeout that is shorter than a millisecond is still one.
fn milliseconds(timeout: Option<Duration>) -> i32 {
    timeout.map_or(-1, |timeout| i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1))
}

const HESSIAN_2: u8 = 1;
const FIXED_AT_MOST: usize = 24;
