//! What filters of a configuration ask servers before requests need it.
//!
//! Arrives: a snapshot, and the time to ask again. Leaves: callouts, and [`FromWorker::Heard`] once listeners wait for
//! an answer no longer. The first worker does so for all.

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustc_hash::FxHashSet;
use towpath_proto::Instant;

use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::exchange::callout::Asker;
use crate::filter::ahead::Ahead;
use crate::filter::{Answer, FilterScope};
use crate::free_slot;
use crate::message::FromWorker;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct AskedAhead(Vec<Option<Asked>>);

#[derive(Debug)]
struct Asked {
    /// It ends with the last configuration that has it.
    what: Weak<dyn Ahead>,
    /// `stat_prefix` of the connection manager.
    prefix: Arc<str>,
    /// When to ask again; none while an answer is waited for.
    due: Option<Instant>,
}

impl Exchange {
    /// Asks what the snapshot's listeners have to ask, and have not asked yet.
    pub(crate) fn ask_ahead(&mut self, now: Instant) {
        if self.env.index != 0 {
            return;
        }
        let snapshot = Arc::clone(&self.snapshot);
        let wanted = snapshot.listeners.iter().flat_map(|listener| listener.asked_ahead());
        let all = self.asked_ahead.0.iter().flatten();
        // What is gone keeps its address for as long as it is in the list.
        let known: FxHashSet<_> = all.map(|asked| asked.what.as_ptr().cast::<()>()).collect();
        let is_new = |what: &Arc<dyn Ahead>| !known.contains(&Arc::as_ptr(what).cast::<()>());
        for (prefix, what) in wanted.filter(|(_, what)| is_new(what)) {
            let asked = Asked { what: Arc::downgrade(what), prefix: Arc::clone(prefix), due: None };
            let at = free_slot::put(&mut self.asked_ahead.0, asked);
            self.ask_again(at, now);
        }
    }

    fn ask_again(&mut self, at: usize, now: Instant) {
        let Some(slot) = self.asked_ahead.0.get_mut(at) else { return };
        let Some(asked) = slot else { return };
        asked.due = None;
        let is_wanted = !self.env.draining.has_closed_listeners();
        match asked.what.upgrade().filter(|_| is_wanted) {
            Some(what) => {
                self.call_out(Asker::Ahead(at), what.question(), now);
            }
            None => *slot = None,
        }
    }

    /// A server has answered, or has not.
    pub(crate) fn hear_ahead(&mut self, at: usize, answer: &Answer, now: Instant) {
        let Some(Some(asked)) = self.asked_ahead.0.get_mut(at) else { return };
        let Some(what) = asked.what.upgrade() else { return self.ask_again(at, now) };
        let (prefix, registry) = (Arc::clone(&asked.prefix), Arc::clone(&self.env.registry));
        let scope = FilterScope::new(prefix, Rc::clone(&self.env.notes), registry, self.env.index);
        let was_ready = what.is_ready();
        let again = what.hear(answer, &scope);
        asked.due = Some(now + again.max(SHORTEST));
        self.set_ahead_timer();
        if !was_ready && what.is_ready() {
            self.env.tell(FromWorker::Heard);
            self.open_waiting(now);
        }
    }

    /// The time to ask something again has come.
    pub(crate) fn on_ahead_timer(&mut self, now: Instant) {
        for at in 0..self.asked_ahead.0.len() {
            let asked = self.asked_ahead.0.get(at).and_then(Option::as_ref);
            if asked.and_then(|asked| asked.due).is_some_and(|due| due <= now) {
                self.ask_again(at, now);
            }
        }
        self.set_ahead_timer();
    }

    fn set_ahead_timer(&mut self) {
        let all = self.asked_ahead.0.iter().flatten();
        if let Some(due) = all.filter_map(|asked| asked.due).min() {
            self.env.timers.set(TimerSlot::Ahead.number(), due);
        }
    }
}

/// Between an answer and the next question, whatever is configured.
const SHORTEST: Duration = Duration::from_millis(10);
