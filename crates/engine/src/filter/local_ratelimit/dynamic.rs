//! Descriptors that leave values open: a bucket for each combination of values that came.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::Tokens;
use super::bucket::Bucket;
use crate::filter::rate_limits::Descriptor;

/// A descriptor with an empty value, and the buckets of those that came last.
#[derive(Debug)]
pub(super) struct Dynamic {
    wanted: Descriptor,
    tokens: Tokens,
    most: usize,
    /// The one that was used last is the first.
    known: Mutex<VecDeque<(Descriptor, Arc<Bucket>)>>,
}

impl Dynamic {
    pub(super) fn new(wanted: Descriptor, tokens: Tokens, most: usize) -> Self {
        Self { wanted, tokens, most: most.max(1), known: Mutex::default() }
    }

    /// The bucket of a descriptor, where it is one of these. The one that was not used for longest makes room.
    pub(super) fn bucket(&self, entries: &Descriptor) -> Option<Arc<Bucket>> {
        if !self.matches(entries) {
            return None;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = known.iter().position(|(one, _)| one == entries) {
            let (one, bucket) = known.remove(at)?;
            known.push_front((one, Arc::clone(&bucket)));
            return Some(bucket);
        }
        let bucket = Arc::new(Bucket::new(self.tokens));
        known.push_front((entries.clone(), Arc::clone(&bucket)));
        known.truncate(self.most);
        Some(bucket)
    }

    fn matches(&self, entries: &Descriptor) -> bool {
        let pairs = self.wanted.iter().zip(entries);
        self.wanted.len() == entries.len()
            && pairs.into_iter().all(|(wanted, entry)| {
                wanted.0 == entry.0 && (wanted.1.is_empty() || wanted.1 == entry.1)
            })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: u64 = 1_700_000_000_000_000_000;

    fn entries(pairs: &[(&str, &str)]) -> Descriptor {
        let bytes = |text: &str| text.as_bytes().into();
        pairs.iter().map(|(key, value)| (bytes(key), bytes(value))).collect()
    }

    fn dynamic(most: usize) -> Dynamic {
        let tokens = Tokens { max: 1, per_fill: 1, interval: Duration::from_secs(3600) };
        Dynamic::new(entries(&[("user", ""), ("kind", "a")]), tokens, most)
    }

    fn takes(dynamic: &Dynamic, user: &str) -> bool {
        let bucket = dynamic.bucket(&entries(&[("user", user), ("kind", "a")]));
        bucket.unwrap().take(NOW, 1)
    }

    #[test]
    fn each_value_has_a_bucket() {
        let dynamic = dynamic(20);
        assert_eq!(
            ["x", "y", "x", "y"].map(|user| takes(&dynamic, user)),
            [true, true, false, false]
        );
        for other in
            [&[("user", "x")][..], &[("user", "x"), ("kind", "b")], &[("kind", "a"), ("user", "x")]]
        {
            assert!(dynamic.bucket(&entries(other)).is_none());
        }
    }

    #[test]
    fn the_one_that_was_not_used_for_longest_is_forgotten() {
        let dynamic = dynamic(2);
        assert_eq!(
            ["x", "y", "x", "z"].map(|user| takes(&dynamic, user)),
            [true, true, false, true]
        );
        // Of `y` nothing is known any more; of `x` it is.
        assert_eq!(["x", "y"].map(|user| takes(&dynamic, user)), [false, true]);
    }
}
