//! All hosts under check, by number.

use std::collections::HashMap;

use towpath_proto::{AttemptId, ConnectionId};

use super::session::{Session, Stage};

/// All sessions, by number.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    pub(super) slots: Vec<Option<Session>>,
    free: Vec<u32>,
    /// Whose connection it is.
    pub(super) lines: HashMap<ConnectionId, u32>,
    attempts: u32,
}

impl Sessions {
    pub(super) fn add(&mut self, session: Session) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.slots[number as usize] = Some(session);
        number
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.slots[number as usize] = None;
        self.free.push(number);
    }

    pub(super) fn get(&self, number: u32) -> Option<&Session> {
        self.slots.get(number as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Session> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    /// Its attempt has failed.
    pub(super) fn set_resting(&mut self, number: u32) {
        if let Some(session) = self.get_mut(number) {
            session.stage = Stage::Resting(None);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().flatten()
    }

    /// An id for the next attempt of a session: a serial number above the session's.
    pub(super) fn next_attempt(&mut self, number: u32) -> AttemptId {
        self.attempts = self.attempts.wrapping_add(1);
        AttemptId(u64::from(self.attempts) << 32 | u64::from(number))
    }

    /// The session that waits for this attempt.
    pub(super) fn of_attempt(&self, attempt: AttemptId) -> Option<u32> {
        let number = u32::try_from(attempt.0 & u64::from(u32::MAX)).ok()?;
        let waits =
            |session: &&Session| matches!(session.stage, Stage::Connecting(id) if id == attempt);
        self.get(number).filter(waits).map(|_| number)
    }
}
