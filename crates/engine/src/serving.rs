//! What a worker needs only for connections that come in. A library inside an app has none, and this is how it is rid
//! of the code: without the feature `serving` a [`Serving`] cannot be made, so whatever would happen to one is not
//! compiled.

#[cfg(not(feature = "serving"))]
use std::convert::Infallible;
use std::ops::{Deref, DerefMut};

/// Whether this engine takes connections and snapshots.
pub(crate) const SERVES: bool = cfg!(feature = "serving");

/// Something that exists only where connections come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Serving<T> {
    of: T,
    #[cfg(not(feature = "serving"))]
    _never: Infallible,
}

#[cfg(feature = "serving")]
impl<T> Serving<T> {
    pub(crate) const fn new(of: T) -> Self {
        Self { of }
    }
}

#[cfg(not(feature = "serving"))]
impl<T> Serving<T> {
    pub(crate) fn new(_of: T) -> Self {
        unreachable!(
            "a worker that does not serve takes no snapshot, and nothing comes in without one"
        )
    }
}

impl<T> Deref for Serving<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.of
    }
}

impl<T> DerefMut for Serving<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.of
    }
}
