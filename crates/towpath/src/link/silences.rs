//! How long networks bear silence, as the links of an engine have learned it: for links to come, and for the next life.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towpath_engine::client::heartbeat::{MOST_NETWORKS, Saved};

#[derive(Default)]
pub(crate) struct Silences {
    known: Mutex<HashMap<Arc<str>, Known>>,
}

struct Known {
    saved: Saved,
    since: Instant,
}

impl Silences {
    /// The newest word on a network. The one that nothing was heard of for longest gives way to one more than are
    /// remembered.
    pub(crate) fn learn(&self, saved: Saved) {
        let mut known = self.known();
        if !known.contains_key(&saved.network) && known.len() >= MOST_NETWORKS {
            let oldest = known.iter().min_by_key(|(network, one)| (one.since, *network));
            if let Some(oldest) = oldest.map(|(network, _)| Arc::clone(network)) {
                known.remove(&oldest);
            }
        }
        known.insert(Arc::clone(&saved.network), Known { saved, since: Instant::now() });
    }

    /// Everything, as of now.
    pub(crate) fn all(&self) -> Vec<Saved> {
        let known = self.known();
        let aged = |one: &Known| {
            let older = |settled: Duration| settled + one.since.elapsed();
            Saved { settled: one.saved.settled.map(older), ..one.saved.clone() }
        };
        let mut all: Vec<Saved> = known.values().map(aged).collect();
        all.sort_by(|a, b| a.network.cmp(&b.network));
        all
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_word_holds_and_the_oldest_network_is_forgotten() {
        let silences = Silences::default();
        let one = |number: usize, seconds| Saved {
            network: number.to_string().into(),
            survived: Duration::from_secs(seconds),
            failed: None,
            settled: Some(Duration::from_secs(9)),
        };
        (0..=MOST_NETWORKS).for_each(|number| silences.learn(one(number, 60)));
        silences.learn(one(1, 90));
        let all = silences.all();
        assert_eq!(all.len(), MOST_NETWORKS);
        assert!(all.iter().all(|saved| &*saved.network != "0"));
        let first = all.iter().find(|saved| &*saved.network == "1").unwrap();
        assert_eq!(first.survived, Duration::from_secs(90));
        assert!(first.settled >= Some(Duration::from_secs(9)));
    }
}
