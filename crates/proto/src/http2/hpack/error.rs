//! Why a header block could not be taken.

use thiserror::Error;

/// What is wrong with a header block.
///
/// After [`Error::TooLarge`] and [`Error::TooManyFields`] the connection can go on, after all others it cannot: the
/// tables of its ends may differ (RFC 9113 §4.3, `COMPRESSION_ERROR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Fields that are larger together than [`Limits`](super::Limits) allow. The block was read to its end: fatal for
    /// the stream alone.
    #[error("larger fields than allowed")]
    TooLarge,
    /// The same of more fields than are allowed.
    #[error("more fields than allowed")]
    TooManyFields,
    /// So far beyond the limits that the block was not read to its end.
    #[error("fields far beyond what is allowed")]
    FarTooLarge,
    /// The block ends within a field.
    #[error("the block ends within a field")]
    Truncated,
    /// An integer that 32 bits do not hold, or with more octets than such a one needs (RFC 7541 §5.1).
    #[error("integer too large")]
    IntegerTooLarge,
    /// An index that neither table has, or zero (RFC 7541 §2.3.3).
    #[error("no field has index {0}")]
    UnknownIndex(u32),
    /// The code for the end of a string, or a padding that is too long or no part of that code (RFC 7541 §5.2).
    #[error("not Huffman-coded as it should be")]
    InvalidHuffman,
    /// A change of the table's size behind a field, or a third one (RFC 7541 §4.2).
    #[error("change of the table's size out of place")]
    MisplacedSizeUpdate,
    /// A size above what was announced (RFC 7541 §6.3).
    #[error("table size of {0} bytes was not offered")]
    SizeNotOffered(u32),
    /// The table was to become smaller, and the block does not begin with that (RFC 7541 §4.2).
    #[error("the table was not made smaller")]
    MissingSizeUpdate,
}

impl Error {
    /// Whether the connection cannot go on.
    #[must_use]
    pub const fn is_fatal(self) -> bool {
        !matches!(self, Self::TooLarge | Self::TooManyFields)
    }
}
