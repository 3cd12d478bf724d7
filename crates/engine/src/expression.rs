//! Regular expressions, which configurations and the admin endpoint bring. An app's engine has neither: without the
//! feature `serving` none can be made, and the crate that reads them is no dependency.

#[cfg(not(feature = "serving"))]
pub use absent::Regex;
#[cfg(feature = "serving")]
pub use regex::bytes::Regex;

#[cfg(not(feature = "serving"))]
mod absent {
    use std::borrow::Cow;

    /// One that cannot be made.
    #[derive(Clone, Debug)]
    pub enum Regex {}

    impl Regex {
        /// Whether it matches somewhere in the text.
        #[must_use]
        pub fn is_match(&self, _text: &[u8]) -> bool {
            match *self {}
        }

        /// The text with all matches replaced.
        #[must_use]
        pub fn replace_all<'a, R>(&self, _text: &'a [u8], _replacement: R) -> Cow<'a, [u8]> {
            match *self {}
        }
    }
}
