//! A layer of the runtime in a directory: each file is a key, its path with dots is the key's name.

use std::collections::BTreeMap;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use super::{RuntimeLayer, parsed};
use crate::stamp::Stamp;

/// What directories of layers came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disks {
    roots: BTreeMap<Box<str>, Option<Stamp>>,
    read: usize,
    failures: Vec<String>,
}

impl Disks {
    /// Where the layers are, with what was there when they were read.
    pub fn roots(&self) -> impl Iterator<Item = (&str, Option<Stamp>)> {
        self.roots.iter().map(|(path, stamp)| (&**path, *stamp))
    }

    /// How many directories were read.
    #[must_use]
    pub fn read(&self) -> usize {
        self.read
    }

    /// Why others are left out.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// What stands at a root. To be asked for before the layer is read, so that what is put there meanwhile is seen.
    #[must_use]
    pub fn look(root: &str) -> Option<Stamp> {
        // With a slash at the end it is a directory into which something is moved.
        if root.ends_with('/') {
            Stamp::of(Path::new(root))
        } else {
            Stamp::of_name(Path::new(root))
        }
    }

    /// Fills a layer; says whether it is there. One that cannot be read as a whole is not.
    pub(super) fn fill(&mut self, layer: &mut RuntimeLayer, root: &str, path: &str) -> bool {
        self.roots.entry(root.into()).or_insert_with(|| Self::look(root));
        if !Path::new(path).is_dir() {
            return false;
        }
        let mut files = Files::default();
        match files.walk(Path::new(path), "", 1) {
            Ok(()) => {
                for (key, text) in files.values {
                    match parsed(&text) {
                        Ok(value) => drop(layer.values.insert(key.clone(), value)),
                        Err(why) => return self.fail(&layer.name, format!("{path}: {key}: {why}")),
                    }
                    layer.texts.insert(key, text);
                }
                self.read += 1;
                true
            }
            Err(why) => self.fail(&layer.name, why),
        }
    }

    fn fail(&mut self, layer: &str, why: String) -> bool {
        self.failures.push(format!("runtime layer `{layer}` is left out: {why}"));
        false
    }
}

/// The files of a layer, as they are found.
#[derive(Debug, Default)]
struct Files {
    values: BTreeMap<String, String>,
    entries: usize,
    bytes: u64,
}

impl Files {
    /// Reads all files below a directory.
    fn walk(&mut self, path: &Path, prefix: &str, depth: u32) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("{}: more than {MAX_DEPTH} directories deep", path.display()));
        }
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        if is_of_the_system(&fs::canonicalize(path).map_err(failed)?) {
            return Err(format!("{}: is a path of the system", path.display()));
        }
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(format!("more than {MAX_ENTRIES} files and directories"));
            }
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let key =
                if prefix.is_empty() { name.into_owned() } else { format!("{prefix}.{name}") };
            let path = entry.path();
            match kind(&path) {
                Some(kind) if kind.is_dir() => self.walk(&path, &key, depth + 1)?,
                Some(kind) if kind.is_file() || kind.is_symlink() => {
                    let text = self.read(&path);
                    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
                    self.values.insert(key, value(&text));
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    fn read(&mut self, path: &Path) -> io::Result<String> {
        if is_of_the_system(&fs::canonicalize(path)?) {
            return Err(io::Error::other("is a path of the system"));
        }
        let (mut bytes, left) = (Vec::new(), MAX_BYTES - self.bytes);
        File::open(path)?.take(left + 1).read_to_end(&mut bytes)?;
        let read = bytes.len() as u64;
        if read > left {
            return Err(io::Error::other(format!("with others more than {MAX_BYTES} bytes")));
        }
        self.bytes += read;
        String::from_utf8(bytes).map_err(|_| io::Error::other("is not in UTF-8"))
    }
}

/// What a path leads to: a link where it leads nowhere, nothing where that cannot be told.
fn kind(path: &Path) -> Option<FileType> {
    match fs::metadata(path) {
        Ok(data) => Some(data.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::symlink_metadata(path).ok().map(|data| data.file_type())
        }
        Err(_) => None,
    }
}

/// Envoy reads none of these.
fn is_of_the_system(path: &Path) -> bool {
    let mut parts = path.components();
    parts.next() == Some(Component::RootDir)
        && matches!(
            parts.next().map(|part| PathBuf::from(part.as_os_str())),
            Some(first) if ["dev", "sys", "proc"].iter().any(|of| first == Path::new(of))
        )
}

/// The value in a file: without empty lines, and lines of comment. As in Envoy a line that reads like the last one
/// ends like it, without blanks and a line break.
fn value(text: &str) -> String {
    let lines = || text.split('\n').filter(|line| !line.is_empty());
    let last = lines().next_back();
    let mut value = String::new();
    for line in lines().filter(|line| !line.starts_with('#')) {
        if Some(line) == last {
            value.push_str(line.trim_end_matches([' ', '\t', '\x0b', '\x0c', '\r']));
        } else {
            value.push_str(line);
            value.push('\n');
        }
    }
    value
}

/// As in Envoy.
const MAX_DEPTH: u32 = 16;
/// Files and directories of one layer.
const MAX_ENTRIES: usize = 20_000;
/// Bytes in the files of one layer.
const MAX_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_without_comments_and_what_ends_its_last_line() {
        for (text, wanted) in [
            ("", ""),
            ("# nothing", ""),
            ("7", "7"),
            ("7 \t\r\n", "7"),
            ("# why\n7\n", "7"),
            ("7\n# why\n", "7\n"),
            ("a\n\nb\n", "a\nb"),
            (" #7\n", " #7"),
            ("a\nb\na\n", "ab\na"),
        ] {
            assert_eq!(value(text), wanted, "{text:?}");
        }
    }
}
