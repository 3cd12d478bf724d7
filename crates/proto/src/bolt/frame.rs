//! One whole frame, as it arrived.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::headers::{Headers, Malformed};
use super::layout::{CHECKSUM_LENGTH, Layout, Version};
use super::status::Status;
use crate::Out;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Wants an answer.
    Request,
    /// Wants none, not even of an error.
    Oneway,
    /// Is one.
    Response,
}

impl Kind {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Response => 0,
            Self::Request => 1,
            Self::Oneway => 2,
        }
    }

    pub(super) const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Response),
            1 => Some(Self::Request),
            2 => Some(Self::Oneway),
            _ => None,
        }
    }
}

/// What a frame is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Is the peer there? Has no class, headers or content.
    Heartbeat,
    /// A call, or its answer.
    Rpc,
    /// MOSN's extension: send no more on this connection.
    GoAway,
}

impl Command {
    pub(super) const fn number(self, kind: Kind) -> u16 {
        match (self, kind) {
            (Self::Heartbeat, _) => 0,
            (Self::Rpc, Kind::Request | Kind::Oneway) => 1,
            (Self::Rpc, Kind::Response) => 2,
            (Self::GoAway, _) => 100,
        }
    }

    pub(super) const fn from_number(number: u16, kind: Kind) -> Option<Self> {
        match (number, kind) {
            (0, Kind::Request | Kind::Response) => Some(Self::Heartbeat),
            (1, Kind::Request | Kind::Oneway) | (2, Kind::Response) => Some(Self::Rpc),
            (100, Kind::Request | Kind::Oneway) => Some(Self::GoAway),
            _ => None,
        }
    }
}

/// One frame. Its fields are read where they stand.
#[derive(Clone, Debug)]
pub struct Frame {
    pub(super) bytes: Bytes,
    pub(super) version: Version,
    pub(super) kind: Kind,
    pub(super) command: Command,
    pub(super) class: u16,
    pub(super) headers: u16,
    pub(super) has_checksum: bool,
}

impl Frame {
    /// The version in which it came.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Which way it goes.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What it is about.
    #[must_use]
    pub fn command(&self) -> Command {
        self.command
    }

    /// The number that ties a response to its request.
    #[must_use]
    pub fn id(&self) -> u32 {
        u32::from_be_bytes(self.field(self.layout().id))
    }

    /// How the content is serialised: 1 is Hessian 2, others are the users' own.
    #[must_use]
    pub fn codec(&self) -> u8 {
        self.bytes[self.layout().codec]
    }

    /// How long a request may take; none for a response, and where the client set no limit (zero or less).
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        if self.kind == Kind::Response {
            return None;
        }
        let ms = i32::from_be_bytes(self.field(self.layout().timeout_or_status));
        u64::try_from(ms).ok().filter(|&ms| ms > 0).map(Duration::from_millis)
    }

    /// What a response says; none for a request.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let response = self.kind == Kind::Response;
        response.then(|| Status(u16::from_be_bytes(self.field(self.layout().timeout_or_status))))
    }

    /// The name of the content's class.
    #[must_use]
    pub fn class(&self) -> &[u8] {
        &self.bytes[self.class_range()]
    }

    /// The headers, in their order.
    ///
    /// # Errors
    /// [`Malformed`] when the block is not made of whole pairs. The frame as a whole is sound all the same: a reader
    /// that need not look into the block can pass it on.
    pub fn headers(&self) -> Result<Headers<'_>, Malformed> {
        Headers::parse(&self.bytes[self.headers_range()])
    }

    /// The block of headers, as it came.
    #[must_use]
    pub fn header_block(&self) -> Bytes {
        self.bytes.slice(self.headers_range())
    }

    /// The content.
    #[must_use]
    pub fn content(&self) -> Bytes {
        self.bytes.slice(self.content_range())
    }

    /// Whether it carries a checksum, which was right.
    #[must_use]
    pub fn has_checksum(&self) -> bool {
        self.has_checksum
    }

    /// All of it, as it arrived.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Writes it again under another number, with a fresh checksum if it has one.
    pub fn write_as(&self, id: u32, out: &mut Out) {
        let place = self.layout().id;
        let end = self.content_range().end;
        let (before, behind) = (&self.bytes[..place], self.bytes.slice(place + 4..end));
        let id = id.to_be_bytes();
        let checksum = self.has_checksum.then(|| {
            let mut checksum = crc32fast::Hasher::new();
            [before, &id, &behind].into_iter().for_each(|part| checksum.update(part));
            checksum.finalize()
        });
        let buffer = out.buffer();
        buffer.extend_from_slice(before);
        buffer.extend_from_slice(&id);
        out.push(behind);
        if let Some(checksum) = checksum {
            out.buffer().extend_from_slice(&checksum.to_be_bytes());
        }
    }

    fn layout(&self) -> Layout {
        Layout::of(self.version, self.kind)
    }

    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[at..at + N]);
        field
    }

    fn class_range(&self) -> Range<usize> {
        let start = self.layout().fixed;
        start..start + usize::from(self.class)
    }

    fn headers_range(&self) -> Range<usize> {
        let start = self.class_range().end;
        start..start + usize::from(self.headers)
    }

    fn content_range(&self) -> Range<usize> {
        let trailer = if self.has_checksum { CHECKSUM_LENGTH } else { 0 };
        self.headers_range().end..self.bytes.len() - trailer
    }
}
