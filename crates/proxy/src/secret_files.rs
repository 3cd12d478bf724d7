//! Files with certificates, keys and what goes with them, and directories with layers of the runtime: they are looked
//! at while they serve, and read again when they change.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use towpath_config::{Disks, Prints, Runtime, Stamp};

use crate::control::{Control, Phase};
use crate::reload::Wish;

/// How often files are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// The files, as they were when they were read or looked at last.
#[derive(Debug, Default)]
pub(crate) struct SecretFiles {
    files: BTreeMap<Box<str>, Option<Stamp>>,
    /// Where layers of the runtime are.
    roots: BTreeMap<Box<str>, Option<Stamp>>,
}

impl SecretFiles {
    /// Those of what serves.
    pub(crate) fn of(prints: &Prints, runtime: &Runtime) -> Self {
        let files = prints.secrets().map(|(path, stamp)| (path.into(), Some(stamp)));
        let roots = runtime.disks().roots().map(|(path, stamp)| (path.into(), stamp));
        Self { files: files.collect(), roots: roots.collect() }
    }

    /// Whether one has changed. Says so once: what is wrong with it is not told again before it is another.
    pub(crate) fn have_changed(&mut self) -> bool {
        let files = self.files.iter_mut().map(|(path, seen)| (seen, Stamp::of(Path::new(&**path))));
        let roots = self.roots.iter_mut().map(|(root, seen)| (seen, Disks::look(root)));
        let mut changed = false;
        for (seen, stamp) in files.chain(roots) {
            changed |= *seen != stamp;
            *seen = stamp;
        }
        changed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.roots.is_empty()
    }
}

/// Wishes that the files of what serves are read again whenever they have changed.
pub(crate) async fn watch(control: Rc<Control>) {
    loop {
        tokio::time::sleep(LOOK).await;
        if control.phase() == Phase::Live && control.secrets.borrow_mut().have_changed() {
            // The receiver lives as long as the process.
            let _ = control.reload.send(Wish::Files);
        }
    }
}
