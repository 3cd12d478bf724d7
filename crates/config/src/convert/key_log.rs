//! The file that secrets of TLS connections are written to (`key_log`).

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use towpath_engine::snapshot::listener::Prefix;
use towpath_proto::Address;
use towpath_proto::tls::KeyLines;

use super::Converter;
use crate::message::Message;

/// Opened with the first line, so that a configuration that is only checked makes no file. A line that cannot be
/// written is lost, as in Envoy.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    file: OnceLock<Option<File>>,
    /// Those of connections from and to these are written; all where there is none.
    local: Vec<Prefix>,
    remote: Vec<Prefix>,
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

    fn is_partial(&self) -> bool {
        !self.local.is_empty() || !self.remote.is_empty()
    }

    fn wants(&self, local: &Address, remote: &Address) -> bool {
        is_among(&self.local, local) && is_among(&self.remote, remote)
    }
}

fn is_among(ranges: &[Prefix], address: &Address) -> bool {
    let contains = |ip| ranges.iter().any(|range| range.contains(ip));
    ranges.is_empty() || address.ip().is_some_and(|address| contains(address.ip()))
}

impl Converter<'_> {
    /// Where a TLS context has its secrets written.
    pub(super) fn key_log(&mut self, common: Option<&Message>) -> Option<Arc<dyn KeyLines>> {
        let log = common?.message("key_log")?;
        let local = self.prefixes(log, "local_address_range");
        let remote = self.prefixes(log, "remote_address_range");
        let path = log.text("path").into();
        Some(Arc::new(KeyFile { path, file: OnceLock::new(), local, remote }))
    }
}
