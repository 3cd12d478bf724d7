//! What was used last, in two halves: to forget the older one takes no search.

use std::collections::HashMap;

/// Values by number.
#[derive(Debug)]
pub(super) struct Recent<V> {
    used: HashMap<u64, V>,
    before: HashMap<u64, V>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { used: HashMap::new(), before: HashMap::new() }
    }
}

impl<V: Default> Recent<V> {
    /// The value of this number, which counts as used; a new one where there is none.
    pub(super) fn of(&mut self, number: u64) -> &mut V {
        let Self { used, before } = self;
        used.entry(number).or_insert_with(|| before.remove(&number).unwrap_or_default())
    }

    /// The value of this number.
    pub(super) fn get(&self, number: u64) -> Option<&V> {
        self.used.get(&number).or_else(|| self.before.get(&number))
    }

    /// Values that were used since the last were forgotten.
    pub(super) fn used(&self) -> usize {
        self.used.len()
    }

    /// Forgets those that were not used since this was called last, and hands them over.
    pub(super) fn forget(&mut self) -> HashMap<u64, V> {
        let before = std::mem::take(&mut self.used);
        std::mem::replace(&mut self.before, before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays() {
        let mut recent = Recent::<u64>::default();
        (1..=3).for_each(|number| *recent.of(number) = number * 10);
        assert!(recent.forget().is_empty());
        assert_eq!((*recent.of(2), recent.used()), (20, 1));
        assert_eq!(recent.forget().into_keys().max(), Some(3), "1 and 3 were not used");
        assert_eq!((recent.get(1), recent.get(2), recent.get(3)), (None, Some(&20), None));
        assert_eq!(*recent.of(1), 0);
    }
}
