//! Collects what is to be said about a configuration, so that one run says all of it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{Error, Finding, Location, Note, Problem, Rank};
use crate::message::At;

/// Of each kind; a file that goes beyond is told so.
const MAX_ITEMS: usize = 5_000;

/// Everything that is to be said.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The names of the texts, by [`At::text`].
    names: Arc<Vec<Arc<str>>>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) notes: Vec<Note>,
    /// How many items found no place.
    pub(crate) left_out: usize,
}

impl Report {
    /// One about these texts.
    pub(crate) fn of(names: Arc<Vec<Arc<str>>>) -> Self {
        Self { names, ..Self::default() }
    }

    /// The texts that no snapshot may be made of.
    pub(crate) fn broken_texts(&self) -> HashSet<usize> {
        let changing = self.findings.iter().filter(|it| it.rank == Rank::ChangesBehaviour);
        let problems = self.problems.iter().map(|problem| problem.location.text);
        problems.chain(changing.map(|finding| finding.location.text)).collect()
    }

    /// Adds a text and returns its number.
    pub(crate) fn text(&mut self, name: &Arc<str>) -> usize {
        let names = Arc::make_mut(&mut self.names);
        names.push(Arc::clone(name));
        names.len() - 1
    }

    /// Envoy would refuse this too. Said only when nothing else is wrong at this place: what is wrong once is wrong
    /// in many ways, and the first says it best.
    pub(crate) fn problem(&mut self, at: &At, message: impl Into<String>) {
        let location = self.location(at);
        if self.problems.iter().all(|problem| problem.location != location) {
            self.broken(at, message);
        }
    }

    /// The same, whatever else is wrong there.
    pub(crate) fn broken(&mut self, at: &At, message: impl Into<String>) {
        let location = self.location(at);
        let problem = Problem { location, message: message.into() };
        self.left_out += push(&mut self.problems, problem);
    }

    /// This is set and not honoured.
    pub(crate) fn finding(&mut self, at: &At, rank: Rank, reason: impl Into<String>) {
        let location = self.location(at);
        let finding = Finding { location, rank, reason: reason.into() };
        if !self.findings.contains(&finding) {
            self.left_out += push(&mut self.findings, finding);
        }
    }

    /// This is set, not honoured, and would be missed.
    pub(crate) fn unsupported(&mut self, at: &At, reason: impl Into<String>) {
        self.finding(at, Rank::ChangesBehaviour, reason);
    }

    /// This should be written differently.
    pub(crate) fn note(&mut self, at: &At, message: impl Into<String>) {
        let location = self.location(at);
        let note = Note { location, message: message.into() };
        if !self.notes.contains(&note) {
            self.left_out += push(&mut self.notes, note);
        }
    }

    /// Whether a snapshot may be made of it.
    pub(crate) fn outcome(&mut self) -> Result<(), Error> {
        self.invalid()?;
        let changing: Vec<Finding> = self
            .findings
            .iter()
            .filter(|finding| finding.rank == Rank::ChangesBehaviour)
            .cloned()
            .collect();
        if changing.is_empty() { Ok(()) } else { Err(Error::Unsupported(changing)) }
    }

    /// Whether Envoy would take it.
    pub(crate) fn invalid(&mut self) -> Result<(), Error> {
        self.sort();
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(Error::Invalid(std::mem::take(&mut self.problems)))
        }
    }

    /// Puts everything into the order of the text.
    pub(crate) fn sort(&mut self) {
        let order = |location: &Location| (location.file.clone(), location.line, location.column);
        self.problems.sort_by_key(|problem| order(&problem.location));
        self.findings.sort_by_key(|finding| order(&finding.location));
        self.notes.sort_by_key(|note| order(&note.location));
    }

    fn location(&self, at: &At) -> Location {
        let file = self.names.get(at.text).cloned().unwrap_or_default();
        let path = at.path();
        Location { file, line: at.pos.line, column: at.pos.column, path, text: at.text }
    }
}

/// How many items found no place: none or one.
fn push<T>(items: &mut Vec<T>, item: T) -> usize {
    let full = items.len() >= MAX_ITEMS;
    if !full {
        items.push(item);
    }
    usize::from(full)
}
