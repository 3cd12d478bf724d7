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

    /// That of what stands at a path: of a link itself, of a directory whatever is in it. Another one only after
    /// something was put there.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        let data = std::fs::symlink_metadata(path).ok()?;
        let stamp = Self::from(&data);
        Some(if data.is_dir() { Self { size: 0, modified: None, ..stamp } } else { stamp })
    }
}

impl From<&Metadata> for Stamp {
    fn from(data: &Metadata) -> Self {
        let (device, inode, size) = (data.dev(), data.ino(), data.size());
        Self { device, inode, size, modified: data.modified().ok() }
    }
}
