//! Files that a crash leaves whole, and that are for the app's own user.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Puts a whole file where an old one may be, and opens it: written beside it, brought to the disk and renamed over it.
/// Whatever happens, one of the two is there.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let new = beside(path, ".new");
    let mut file = private().read(true).create(true).truncate(true).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The new name is on the disk once its folder is; where folders cannot be opened, the system sees to it.
    let folder =
        path.parent().map(|it| if it.as_os_str().is_empty() { Path::new(".") } else { it });
    if let Some(Ok(folder)) = folder.map(File::open) {
        let _ = folder.sync_all();
    }
    Ok(file)
}

/// The name of a file that belongs to another.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// To write a file that others cannot read.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
