//! Where the fields of the fixed part stand.

use super::frame::Kind;

/// The version of the protocol. Both may share one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Protocol 1: no checksum.
    V1,
    /// Protocol 2, which has room for a checksum.
    V2 {
        /// The byte behind the protocol is 2, so that a frame may carry one.
        checksums: bool,
    },
}

impl Version {
    /// The first byte of each frame.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 { .. } => 2,
        }
    }

    /// How far everything behind the protocol's byte is moved by the version's own.
    pub(super) const fn shift(self) -> usize {
        match self {
            Self::V1 => 0,
            Self::V2 { .. } => 1,
        }
    }
}

/// The offsets of one sort of frame. The command's version stands between command and id and is always 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) command: usize,
    pub(super) command_version: usize,
    pub(super) id: usize,
    pub(super) codec: usize,
    /// Version 2 only.
    pub(super) switch: usize,
    /// Timeout or status.
    pub(super) timeout_or_status: usize,
    pub(super) class_length: usize,
    pub(super) header_length: usize,
    pub(super) content_length: usize,
    /// The length of the fixed part.
    pub(super) fixed: usize,
}

impl Layout {
    pub(super) const fn of(version: Version, kind: Kind) -> Self {
        let shift = version.shift();
        let codec = 9 + shift;
        let timeout_or_status = codec + 1 + shift;
        let class_length = match kind {
            Kind::Response => timeout_or_status + 2,
            Kind::Request | Kind::Oneway => timeout_or_status + 4,
        };
        Self {
            command: 2 + shift,
            command_version: 4 + shift,
            id: 5 + shift,
            codec,
            switch: codec + shift,
            timeout_or_status,
            class_length,
            header_length: class_length + 2,
            content_length: class_length + 4,
            fixed: class_length + 8,
        }
    }
}

/// The switch that says that a checksum follows the content.
pub(super) const CHECKSUM: u8 = 1;
/// How long the checksum is.
pub(super) const CHECKSUM_LENGTH: usize = 4;
/// The only version of commands.
pub(super) const COMMAND_VERSION: u8 = 1;
