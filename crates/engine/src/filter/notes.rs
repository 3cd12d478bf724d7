//! What scripts have to say, on its way to the program's own log, and requests of theirs whose answers are not waited
//! for.

use std::cell::{Cell, RefCell};
use std::fmt;

use super::Callout;

/// What scripts of a worker have said since it was last looked at. What is too much is dropped.
#[derive(Debug, Default)]
pub struct Notes {
    waiting: RefCell<Vec<Note>>,
    /// With the number of the stream that each is for, if that is traced.
    calls: RefCell<Vec<(Callout, Option<u64>)>>,
    any: Cell<bool>,
    clusters: RefCell<Option<Clusters>>,
}

/// Whether there is a cluster of a name.
struct Clusters(Box<dyn Fn(&str) -> bool>);

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clusters").finish_non_exhaustive()
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// How much it matters.
    pub level: NoteLevel,
    /// What it says.
    pub text: Box<str>,
}

/// How much a line matters, as Envoy's logger has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteLevel {
    /// `logTrace`.
    Trace,
    /// `logDebug`.
    Debug,
    /// `logInfo`.
    Info,
    /// `logWarn`.
    Warn,
    /// `logErr`.
    Error,
    /// `logCritical`.
    Critical,
}

impl Notes {
    /// Adds a line, cut where it is long.
    pub fn add(&self, level: NoteLevel, text: &str) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < MOST_NOTES {
            let end = (0..=text.len().min(LONGEST)).rev().find(|end| text.is_char_boundary(*end));
            waiting.push(Note { level, text: text[..end.unwrap_or(0)].into() });
            self.any.set(true);
        }
    }

    /// Adds a request whose answer is dropped, for a stream that is named if it is traced. False if there are too many
    /// already.
    #[must_use]
    pub fn send(&self, callout: Callout, of: Option<u64>) -> bool {
        let mut calls = self.calls.borrow_mut();
        let has_room = calls.len() < MOST_CALLS;
        if has_room {
            calls.push((callout, of));
            self.any.set(true);
        }
        has_room
    }

    /// Whether there is a cluster of this name.
    #[must_use]
    pub fn knows_cluster(&self, name: &str) -> bool {
        self.clusters.borrow().as_ref().is_some_and(|clusters| (clusters.0)(name))
    }

    /// Who knows what clusters there are from here on.
    pub(crate) fn see_clusters(&self, know: impl Fn(&str) -> bool + 'static) {
        self.clusters.replace(Some(Clusters(Box::new(know))));
    }

    /// Whether there are lines or requests.
    #[must_use]
    #[inline]
    pub fn are_waiting(&self) -> bool {
        self.any.get()
    }

    /// Takes all lines and requests.
    pub(crate) fn take(&self) -> (Vec<Note>, Vec<(Callout, Option<u64>)>) {
        self.any.set(false);
        (self.waiting.take(), self.calls.take())
    }
}

/// How many lines wait within one turn of a worker.
const MOST_NOTES: usize = 1000;
/// How many requests wait within one turn.
const MOST_CALLS: usize = 1000;
/// Of a line.
const LONGEST: usize = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use towpath_proto::Head;

    use super::*;

    #[test]
    fn lines_are_limited() {
        let notes = Notes::default();
        assert!(!notes.are_waiting());
        for _ in 0..2 * MOST_NOTES {
            notes.add(NoteLevel::Info, &"é".repeat(LONGEST));
        }
        assert!(notes.are_waiting());
        let (taken, _) = notes.take();
        assert_eq!((taken.len(), taken[0].text.len()), (MOST_NOTES, LONGEST));
        assert!(!notes.are_waiting() && notes.take().0.is_empty());
    }

    #[test]
    fn requests_are_limited() {
        let notes = Notes::default();
        let callout = || Callout {
            cluster: "app".into(),
            head: Head::default(),
            body: Bytes::new(),
            timeout: Duration::ZERO,
            max_bytes: 0,
            joint: None,
            retry: None,
            span: None,
        };
        let sent = (0..2 * MOST_CALLS).filter(|_| notes.send(callout(), None)).count();
        assert!(notes.are_waiting());
        assert_eq!((sent, notes.take().1.len()), (MOST_CALLS, MOST_CALLS));
        assert!(!notes.are_waiting() && notes.send(callout(), None));
    }

    #[test]
    fn clusters_are_those_that_were_told_last() {
        let notes = Notes::default();
        assert!(!notes.knows_cluster("app"));
        notes.see_clusters(|name| name == "app");
        assert!(notes.knows_cluster("app") && !notes.knows_cluster("other"));
        notes.see_clusters(|_| false);
        assert!(!notes.knows_cluster("app"));
    }
}
