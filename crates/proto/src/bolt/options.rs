//! What a peer may send.

/// Limits on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest frame that is taken, in bytes, checksum included. The protocol has no limit of its own and its
    /// lengths reach 4 GiB; the default is 16 MiB.
    pub max_frame: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_frame: 16 * 1024 * 1024 }
    }
}

/// Names of classes and blocks of headers are no longer: Java reads their lengths as signed 16-bit numbers.
pub(super) const MAX_SHORT: usize = i16::MAX as usize;
