//! Time zones: how far local time is from UTC, and since when.

/// A time zone, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Before the first change.
    first: Shift,
    /// In the order of their times.
    changes: Box<[(i64, Shift)]>,
}

/// How local time differs from UTC for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Seconds east of Greenwich.
    pub offset: i32,
    /// `CET`; `%Z` of a format.
    pub name: Box<str>,
}

impl Zone {
    /// A zone that begins with a shift and has others from times on, in seconds since 1970.
    #[must_use]
    pub fn new(first: Shift, mut changes: Vec<(i64, Shift)>) -> Self {
        changes.sort_by_key(|(from, _)| *from);
        Self { first, changes: changes.into() }
    }

    /// Adds changes.
    pub fn extend(&mut self, changes: impl IntoIterator<Item = (i64, Shift)>) {
        let mut all = std::mem::take(&mut self.changes).into_vec();
        all.extend(changes);
        all.sort_by_key(|(from, _)| *from);
        self.changes = all.into();
    }

    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Self {
        Self::new(Shift { offset: 0, name: "UTC".into() }, Vec::new())
    }

    /// What holds at a second since 1970.
    #[must_use]
    pub fn at(&self, second: i64) -> &Shift {
        let after = self.changes.partition_point(|(from, _)| *from <= second);
        after.checked_sub(1).map_or(&self.first, |at| &self.changes[at].1)
    }
}
