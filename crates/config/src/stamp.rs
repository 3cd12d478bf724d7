//! What tells that a file has changed, without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// What tells a file from another of its name, and from itself before it was written to. Links are followed, so that it
/// is another where one of them leads elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// That of the file at a path, if there is one.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|data| Self::from(&data))
    }
}

impl From<&Metadata> for Stamp {
    fn from(data: &Metadata) -> Self {
        let (device, inode, size) = (data.dev(), data.ino(), data.size());
        Self { device, inode, size, modified: data.modified().ok() }
    }
}
