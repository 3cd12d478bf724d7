//! What scripts have to say, on its way to the program's own log.

use std::cell::{Cell, RefCell};

/// What scripts of a worker have said since it was last looked at. What is too much is dropped, and counted.
#[derive(Debug, Default)]
pub struct Notes {
    waiting: RefCell<Vec<Note>>,
    any: Cell<bool>,
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

    /// Whether there are lines.
    #[must_use]
    #[inline]
    pub fn are_waiting(&self) -> bool {
        self.any.get()
    }

    /// Takes all lines.
    pub fn take(&self) -> Vec<Note> {
        self.any.set(false);
        self.waiting.take()
    }
}

/// How many lines wait within one turn of a worker.
const MOST_NOTES: usize = 1000;
/// Of a line.
const LONGEST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_limited() {
        let notes = Notes::default();
        assert!(!notes.are_waiting());
        for _ in 0..2 * MOST_NOTES {
            notes.add(NoteLevel::Info, &"é".repeat(LONGEST));
        }
        assert!(notes.are_waiting());
        let taken = notes.take();
        assert_eq!((taken.len(), taken[0].text.len()), (MOST_NOTES, LONGEST));
        assert!(!notes.are_waiting() && notes.take().is_empty());
    }
}
