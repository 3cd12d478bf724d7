//! A place in the program that emits events: its name, category, level and field names, once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::category::{Category, Level};
use crate::gate;

/// What is constant about the events of one place. The macros keep one in a `static`.
#[derive(Debug)]
pub struct Callsite {
    name: Name,
    category: Category,
    level: Level,
    fields: &'static [&'static str],
    target: &'static str,
    unit: &'static str,
    file: &'static str,
    line: u32,
    /// Its number in the upper half, as heads of records have it: the position in the table of callsites plus one; 0
    /// until the first event.
    head: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
enum Name {
    Literal(&'static str),
    /// The path of a function inside the one to be named.
    Inside(fn() -> &'static str),
}

impl Callsite {
    /// A place whose events are called `name` and carry values for `fields`, in that order.
    #[must_use]
    pub const fn new(
        name: &'static str,
        category: Category,
        level: Level,
        fields: &'static [&'static str],
        file: &'static str,
        line: u32,
    ) -> Self {
        Self {
            name: Name::Literal(name),
            category,
            level,
            fields,
            target: "",
            unit: "",
            file,
            line,
            head: AtomicU64::new(0),
        }
    }

    /// A place named after the function around it; `inside` gives the type name of an item within that function.
    #[must_use]
    pub const fn of_function(
        inside: fn() -> &'static str,
        category: Category,
        file: &'static str,
        line: u32,
    ) -> Self {
        Self {
            name: Name::Inside(inside),
            category,
            level: Level::Info,
            fields: &[],
            target: "",
            unit: "",
            file,
            line,
            head: AtomicU64::new(0),
        }
    }

    /// The same place with a target, as `tracing` has them: the module, unless the program says otherwise.
    #[must_use]
    pub const fn with_target(self, target: &'static str) -> Self {
        Self { target, ..self }
    }

    /// The same place, a counter of this unit: `bytes`, `ns`, or a word of one's own.
    #[must_use]
    pub const fn with_unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Whether events of this place are wanted.
    #[inline(always)]
    #[must_use]
    pub fn enabled(&self) -> bool {
        gate::enabled(self.category, self.level)
    }

    /// The name of its events.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.name {
            Name::Literal(name) => name,
            Name::Inside(inside) => {
                let path = inside();
                let outer = path.rfind("::").map_or(path, |end| &path[..end]);
                outer.trim_end_matches("::{{closure}}")
            }
        }
    }

    /// Its category.
    #[must_use]
    pub const fn category(&self) -> Category {
        self.category
    }

    /// Its level.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// The names of its events' values.
    #[must_use]
    pub const fn fields(&self) -> &'static [&'static str] {
        self.fields
    }

    /// Its target; empty for places that have none.
    #[must_use]
    pub const fn target(&self) -> &'static str {
        self.target
    }

    /// The unit of a counter; empty for one without.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        self.unit
    }

    /// Source file and line.
    #[must_use]
    pub const fn location(&self) -> (&'static str, u32) {
        (self.file, self.line)
    }

    pub(crate) fn id(&'static self) -> u32 {
        crate::record::callsite(self.head())
    }

    /// Its part of the head of a record.
    #[inline(always)]
    pub(crate) fn head(&'static self) -> u64 {
        // The table's lock orders the entry before the number; a reader of records takes that lock too.
        let head = self.head.load(Ordering::Relaxed);
        if head == 0 { self.register() } else { head }
    }

    #[cold]
    fn register(&'static self) -> u64 {
        let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        let head = self.head.load(Ordering::Relaxed);
        if head != 0 {
            return head;
        }
        table.push(self);
        let head = u64::from(u32::try_from(table.len()).unwrap_or(u32::MAX)) << 32;
        self.head.store(head, Ordering::Relaxed);
        head
    }
}

/// A copy of the table's entries from `known` on: what a reader has not seen yet.
pub(crate) fn since(known: usize) -> Vec<&'static Callsite> {
    let table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    table.get(known..).unwrap_or_default().to_vec()
}

#[cfg(all(unix, not(miri)))]
pub(crate) fn lock() -> std::sync::MutexGuard<'static, Vec<&'static Callsite>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

static TABLE: Mutex<Vec<&'static Callsite>> = Mutex::new(Vec::new());
