//! The place of a stream's head: a stream of Bolt has none unless something reads it.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use towpath_proto::head::{Head, HeadPool};
use towpath_proto::name::Name;

/// A head, or none: read as one of which nothing is known, whose method is none that may be repeated. To change it
/// makes it.
#[derive(Debug, Default)]
pub(crate) struct LazyHead(Option<Head>);

impl LazyHead {
    /// Puts a head in its place, and gives back the one before.
    #[inline]
    pub(crate) fn put(&mut self, head: Head, heads: &mut HeadPool) {
        if let Some(before) = self.0.replace(head) {
            heads.give(before);
        }
    }

    /// Takes it out.
    #[inline]
    pub(crate) fn take(&mut self) -> Head {
        self.0.take().unwrap_or_default()
    }

    /// Gives it back, if there is one.
    #[inline]
    pub(crate) fn clear(&mut self, heads: &mut HeadPool) {
        if let Some(head) = self.0.take() {
            heads.give(head);
        }
    }

    pub(crate) fn present(&self) -> Option<&Head> {
        self.0.as_ref()
    }

    /// Whether it is there and has such a field.
    pub(crate) fn names(&self, name: Name) -> bool {
        self.0.as_ref().is_some_and(|head| head.get(name).is_some())
    }

    pub(crate) fn present_mut(&mut self) -> Option<&mut Head> {
        self.0.as_mut()
    }
}

impl From<Head> for LazyHead {
    fn from(head: Head) -> Self {
        Self(Some(head))
    }
}

impl Deref for LazyHead {
    type Target = Head;

    #[inline]
    fn deref(&self) -> &Head {
        match &self.0 {
            Some(head) => head,
            None => nothing(),
        }
    }
}

impl DerefMut for LazyHead {
    #[inline]
    fn deref_mut(&mut self) -> &mut Head {
        self.0.get_or_insert_default()
    }
}

#[cold]
fn nothing() -> &'static Head {
    static NOTHING: LazyLock<Head> = LazyLock::new(Head::unread);
    &NOTHING
}
