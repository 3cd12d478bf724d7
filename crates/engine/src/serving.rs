//! What a worker needs only for connections that come in, or for HTTP/2. A library inside an app has none of the first
//! and perhaps none of the second, and this is how it is rid of the code: without the feature `serving` a [`Serving`]
//! cannot be made, without `http2` no [`OfHttp2`], so whatever would happen to one is not compiled.

#[cfg(not(all(feature = "serving", feature = "http2")))]
use std::convert::Infallible;
use std::ops::{Deref, DerefMut};

/// Whether this engine takes connections and snapshots.
pub(crate) const SERVES: bool = cfg!(feature = "serving");

/// Whether it speaks HTTP/2.
pub(crate) const HTTP2: bool = cfg!(feature = "http2");

/// A type of what exists only with a feature.
macro_rules! only_with {
    ($(#[$doc:meta])* $name:ident, $feature:literal, $why:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name<T> {
            of: T,
            #[cfg(not(feature = $feature))]
            _never: Infallible,
        }

        impl<T> $name<T> {
            #[cfg(feature = $feature)]
            pub(crate) const fn new(of: T) -> Self {
                Self { of }
            }

            #[cfg(not(feature = $feature))]
            pub(crate) fn new(_of: T) -> Self {
                unreachable!($why)
            }
        }

        impl<T> Deref for $name<T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.of
            }
        }

        impl<T> DerefMut for $name<T> {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.of
            }
        }
    };
}

only_with!(
    /// Something that exists only where connections come in.
    Serving,
    "serving",
    "a worker that does not serve takes no snapshot, and nothing comes in without one"
);

only_with!(
    /// Something that exists only where HTTP/2 is spoken.
    OfHttp2,
    "http2",
    "without the feature no cluster speaks it"
);
