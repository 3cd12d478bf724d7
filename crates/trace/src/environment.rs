//! `TOWPATH_TRACE`: a recording that the environment asks for.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::control::{FileRecording, Options, StartError};

/// Begins a recording if the environment asks for one with `TOWPATH_TRACE=what:file`, as in
/// `TOWPATH_TRACE=network,request:app.pftrace`; keep the answer until the program ends.
///
/// *What* is as in [`Options::directives`]: categories, levels, and targets of `tracing`'s events with theirs
/// (`info,hyper=debug:app.pftrace`). In the file's name `%p` is the number of the process and `%%` is `%`. A file that
/// is there already is left alone: another process with the same environment may be writing it. Then the number of this
/// process stands before the extension, and standard error says so, as it does of a file that cannot be written.
///
/// # Errors
/// When the variable is set and makes no sense, or the recording cannot begin.
pub fn from_env() -> Result<Option<FileRecording>, StartError> {
    let Some(value) = std::env::var_os("TOWPATH_TRACE").filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let value = value.to_string_lossy();
    let bad = || StartError::Environment(value.chars().take(256).collect());
    let (what, path) = split(&value).filter(|parts| is_whole(*parts)).ok_or_else(bad)?;
    let mut options = Options::new().directives(what)?;
    options.is_told = true;
    let asked = PathBuf::from(expanded(path, std::process::id()));
    let claimed = options.claim()?;
    let (path, file) = create(&asked).map_err(StartError::Io)?;
    if path != asked {
        eprintln!(
            "towpath-trace: {} is there already, recording to {}",
            asked.display(),
            path.display()
        );
    }
    options.write_file(claimed, path, file).map(Some)
}

/// Before and after the first colon that is not half of a target's `::`.
fn split(value: &str) -> Option<(&str, &str)> {
    let bytes = value.as_bytes();
    let colon = |at: usize| bytes.get(at) == Some(&b':');
    let mut at = 0;
    while at < bytes.len() {
        match (colon(at), colon(at + 1)) {
            (true, true) => at += 2,
            (true, false) => return Some((&value[..at], &value[at + 1..])),
            (false, _) => at += 1,
        }
    }
    None
}

/// Whether something is to be recorded, and to somewhere.
fn is_whole((what, path): (&str, &str)) -> bool {
    let words = what.split('@').next().unwrap_or_default();
    words.contains(|c| !matches!(c, ',' | ' ')) && !path.is_empty()
}

fn expanded(path: &str, pid: u32) -> String {
    let mut pieces = path.split("%%").map(|piece| piece.replace("%p", &pid.to_string()));
    let first = pieces.next().unwrap_or_default();
    pieces.fold(first, |path, piece| path + "%" + &piece)
}

/// A file that no other process has made: `path`, or the first of `stem.PID.extension`, `stem.PID.1.extension`, …
fn create(path: &Path) -> io::Result<(PathBuf, File)> {
    let pid = std::process::id();
    let candidates = (0..MOST_FILES).map(|number| match number {
        0 => path.to_owned(),
        1 => with(path, &pid.to_string()),
        number => with(path, &format!("{pid}.{}", number - 1)),
    });
    for candidate in candidates {
        match File::create_new(&candidate) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // A device or a pipe is not a file that could be overwritten.
                if candidate.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
                    return File::options()
                        .write(true)
                        .open(&candidate)
                        .map(|file| (candidate, file));
                }
            }
            Err(error) => return Err(error),
            Ok(file) => return Ok((candidate, file)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Names that are tried for one process.
const MOST_FILES: u32 = 1000;

/// `app.pftrace` with `7` is `app.7.pftrace`.
pub(crate) fn with(path: &Path, word: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(".");
    name.push(word);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_begins_after_the_first_single_colon() {
        for (value, parts) in [
            ("all:app.pftrace", Some(("all", "app.pftrace"))),
            ("my::own=debug:a:b", Some(("my::own=debug", "a:b"))),
            ("info,a::b:C:\\x", Some(("info,a::b", "C:\\x"))),
            (":x", Some(("", "x"))),
            ("all:", Some(("all", ""))),
            ("all", None),
            ("a::b", None),
        ] {
            assert_eq!(split(value), parts, "{value}");
        }
    }

    #[test]
    fn what_and_where_are_both_said() {
        for parts in [("", "x"), (", ,", "x"), ("@debug", "x"), ("all", "")] {
            assert!(!is_whole(parts), "{parts:?}");
        }
        for parts in [("all", "x"), ("off", "x"), ("all@debug", "x"), ("a::b=debug", "x")] {
            assert!(is_whole(parts), "{parts:?}");
        }
    }

    #[test]
    fn names_hold_the_process() {
        assert_eq!(expanded("app-%p.pftrace", 42), "app-42.pftrace");
        assert_eq!(expanded("100%%p %p%", 42), "100%p 42%");
        assert_eq!(with(Path::new("/tmp/app.pftrace"), "7"), Path::new("/tmp/app.7.pftrace"));
        assert_eq!(with(Path::new("app"), "7"), Path::new("app.7"));
    }
}
