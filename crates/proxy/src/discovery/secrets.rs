//! Files that secrets name: they are looked at as files with resources are, and what they hold is replaced while it
//! serves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use towpath_config::{Kind, Rejected, Stamp, Use};

use super::Server;
use crate::log;

/// Who makes use of which secret, and the files that secrets name.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    pub(super) uses: Vec<Use>,
    files: BTreeMap<Arc<str>, File>,
}

#[derive(Debug)]
struct File {
    seen: Option<Stamp>,
    secrets: BTreeSet<String>,
}

impl Secrets {
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Takes what a build says of secrets.
    pub(super) fn take(&mut self, uses: Vec<Use>, files: BTreeMap<Arc<str>, BTreeSet<String>>) {
        self.uses = uses;
        let mut before = std::mem::take(&mut self.files);
        let known = |(path, secrets): (Arc<str>, BTreeSet<String>)| {
            let seen =
                before.remove(&path).map_or_else(|| Stamp::of(Path::new(&*path)), |file| file.seen);
            (path, File { seen, secrets })
        };
        self.files = files.into_iter().map(known).collect();
    }

    /// The secrets of which a file is another one, or was written.
    fn changed(&mut self) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        for (path, file) in &mut self.files {
            let stamp = Stamp::of(Path::new(&**path));
            if stamp != file.seen {
                file.seen = stamp;
                changed.extend(file.secrets.iter().cloned());
            }
        }
        changed
    }
}

impl Server {
    /// Takes what files of secrets hold, where they have changed.
    pub(super) async fn rotate(&mut self) {
        let changed = self.secrets.changed();
        if changed.is_empty() {
            return;
        }
        let base = self.base().await;
        let build = self.resources.rebuild(&base);
        let spoiled = build.spoiled.clone();
        self.take_and_serve(build, Kind::Secret, Vec::new()).await;
        for Rejected { name, reason } in spoiled.iter().filter(|it| changed.contains(&it.name)) {
            log!(Config, Warning, "secret '{name}': its files are not taken: {reason}");
            self.stats.rotation_failed(name);
        }
        let good = changed.iter().filter(|name| spoiled.iter().all(|it| it.name != **name));
        for name in good {
            log!(Config, Debug, "secret '{name}': its files have changed");
            self.stats.secret_changed(name, &self.secrets.uses);
        }
        self.advance().await;
    }
}
