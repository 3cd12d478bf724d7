//! The file that secrets of TLS connections are written to (`key_log`).

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use towpath_proto::tls::KeyLines;

use super::Converter;
use crate::message::Message;

/// Opened with the first line, so that a configuration that is only checked makes no file. A line that cannot be
/// written is lost, as in Envoy.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    file: OnceLock<Option<File>>,
}

impl KeyLines for KeyFile {
    fn write(&self, line: &str) {
        let open =
            || OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path).ok();
        if let Some(mut file) = self.file.get_or_init(open).as_ref() {
            // One call for each line: those of other workers stay whole.
            let _ = file.write_all(line.as_bytes());
        }
    }
}

impl Converter<'_> {
    /// Where a TLS context has its secrets written.
    pub(super) fn key_log(&mut self, common: Option<&Message>) -> Option<Arc<dyn KeyLines>> {
        let path = common?.message("key_log")?.text("path").into();
        Some(Arc::new(KeyFile { path, file: OnceLock::new() }))
    }
}
