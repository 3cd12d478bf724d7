//! Perfetto files, of any writer: what is in one ([`stat()`]), several as one ([`merge()`]), and the spans of one
//! ([`spans()`]), each in less than 64 MB of memory.

use std::fmt;
use std::io;
use std::path::PathBuf;

pub use merge::{Merged, merge};
pub use sorter::{Key, Records, Sorted, Sorter};
pub use spans::{FileValue, Iter, Mark, Span, Spans, spans};
#[doc(hidden)]
pub use stat::stat_bytes;
pub use stat::{SpanStat, Stat, stat};

mod clocks;
mod histogram;
mod merge;
mod packets;
mod recent;
mod sorter;
mod spans;
mod stat;

/// Why a file could not be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The file system said no.
    Io(PathBuf, io::Error),
    /// From this byte on the file is not a Perfetto trace, and before it there is nothing.
    NotATrace(PathBuf, u64),
    /// Two files of different boots, or machines, and one of them does not tell the time of day.
    NoCommonClock(PathBuf),
    /// More than there is memory for is open or in use at once: what, and how much.
    TooMuch(PathBuf, &'static str),
    /// Nothing to read.
    NoInput,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, _) => write!(f, "{}", path.display()),
            Self::NotATrace(path, at) => {
                write!(f, "{}: not a Perfetto trace (at byte {at})", path.display())
            }
            Self::NoCommonClock(path) => {
                write!(
                    f,
                    "{}: its clock cannot be compared with that of the first file",
                    path.display()
                )
            }
            Self::TooMuch(path, what) => write!(f, "{}: {what}", path.display()),
            Self::NoInput => f.write_str("no trace file was given"),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            Self::NotATrace(..) | Self::NoCommonClock(_) | Self::TooMuch(..) | Self::NoInput => {
                None
            }
        }
    }
}
