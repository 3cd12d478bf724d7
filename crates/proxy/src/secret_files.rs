//! Files with certificates, keys and what goes with them: they are looked at while they serve, and read again when they
//! change.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use towpath_config::{Prints, Stamp};

use crate::control::{Control, Phase};
use crate::reload::Wish;

/// How often files are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// The files, as they were when they were read or looked at last.
#[derive(Debug, Default)]
pub(crate) struct SecretFiles(BTreeMap<Box<str>, Option<Stamp>>);

impl SecretFiles {
    /// Those of what serves.
    pub(crate) fn of(prints: &Prints) -> Self {
        Self(prints.secrets().map(|(path, stamp)| (path.into(), Some(stamp))).collect())
    }

    /// Whether one has changed. Says so once: what is wrong with it is not told again before it is another.
    pub(crate) fn have_changed(&mut self) -> bool {
        let mut changed = false;
        for (path, seen) in &mut self.0 {
            let stamp = Stamp::of(Path::new(&**path));
            changed |= *seen != stamp;
            *seen = stamp;
        }
        changed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Wishes that the files of what serves are read again whenever they have changed.
pub(crate) async fn watch(control: Rc<Control>) {
    loop {
        tokio::time::sleep(LOOK).await;
        if control.phase() == Phase::Live && control.secrets.borrow_mut().have_changed() {
            // The receiver lives as long as the process.
            let _ = control.reload.send(Wish::Secrets);
        }
    }
}
