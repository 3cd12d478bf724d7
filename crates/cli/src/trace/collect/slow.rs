//! What begins a collection by itself: a new file in the folder of slow requests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use towpath_trace::file::{FileValue, Span, Spans};

/// Calls `collect` for each trace file that appears in `folder`, for ever.
pub(super) fn watch(
    folder: &Path,
    collect: impl Fn(&Path) -> Result<String, String>,
) -> Result<String, String> {
    let failed = |error: rustix::io::Errno| format!("cannot watch {}: {error}", folder.display());
    let watcher = inotify::init(CreateFlags::CLOEXEC).map_err(failed)?;
    // A file is whole when it has its name, or when its writer has closed it.
    inotify::add_watch(&watcher, folder, WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE)
        .map_err(failed)?;
    say(&format!("watching {}\n", folder.display()));
    let mut buffer = [std::mem::MaybeUninit::uninit(); EVENTS];
    let mut reader = Reader::new(watcher, &mut buffer);
    loop {
        let event = reader.next().map_err(failed)?;
        if event.events().contains(inotify::ReadFlags::IGNORED) {
            return Err(format!("{} is gone", folder.display()));
        }
        let Some(name) = event.file_name().and_then(|name| name.to_str().ok()) else { continue };
        if !name.ends_with(".pftrace") {
            continue;
        }
        let path = folder.join(name);
        match collect(&path) {
            Ok(said) => say(&said),
            Err(why) => say(&format!("{}: {why}\n", path.display())),
        }
    }
}

/// The trace of the longest request in a file; of the longest span, where no span has that name.
pub(super) fn trace_of(spans: &Spans) -> io::Result<Option<String>> {
    let mut longest = None;
    for span in spans.iter()? {
        let span = span?;
        let length = (span.name == "request", span.end_ns.saturating_sub(span.begin_ns));
        if longest.as_ref().is_none_or(|(known, _)| length >= *known)
            && let Some(id) = id_of(&span)
        {
            longest = Some((length, id.clone()));
        }
    }
    Ok(longest.map(|(_, id)| id))
}

fn id_of(span: &Span) -> Option<&String> {
    span.values.iter().find_map(|(name, value)| {
        let FileValue::Text(id) = value else { return None };
        (name == "trace_id" && super::trace_id(id).is_ok()).then_some(id)
    })
}

/// Makes the folder where it is missing, and removes its oldest trace files until one more may come. Their names sort
/// by time.
pub(super) fn make_room(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|it| it.path()));
    let mut files: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|it| it == "pftrace"));
    files.sort();
    let surplus = (files.len() + 1).saturating_sub(FILES);
    files.iter().take(surplus).try_for_each(fs::remove_file)
}

fn say(text: &str) {
    use std::io::Write;
    // Without a reader it goes on collecting.
    let _ = io::stdout().write_all(text.as_bytes());
}

const FILES: usize = 64;
/// Room for some tens of events of the longest name.
const EVENTS: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_make_room() {
        let folder = std::env::temp_dir().join(format!("towpath-room-{}", std::process::id()));
        make_room(&folder).unwrap();
        for number in 0..FILES + 5 {
            fs::write(folder.join(format!("slow-{number:03}.pftrace")), "").unwrap();
        }
        fs::write(folder.join("notes.txt"), "").unwrap();
        make_room(&folder).unwrap();
        let left = fs::read_dir(&folder).unwrap().count();
        let has = |name: &str| folder.join(name).exists();
        assert_eq!(left, FILES, "63 traces, so that one may come, and the notes");
        assert!(has("notes.txt") && has("slow-068.pftrace") && !has("slow-005.pftrace"));
        fs::remove_dir_all(folder).unwrap();
    }
}
