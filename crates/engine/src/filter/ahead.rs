//! What filters ask servers before requests need it: the first worker asks, for all of them.

use std::fmt;
use std::time::Duration;

use super::{Answer, Callout, FilterScope};

/// Something that a server is asked for time and again.
pub trait Ahead: fmt::Debug + Send + Sync {
    /// The question.
    fn question(&self) -> Callout;

    /// Takes what was answered, and counts it. Answers after which time to ask again.
    fn hear(&self, answer: &Answer, scope: &FilterScope) -> Duration;

    /// Whether no listener waits for it: it was asked, or need not be.
    fn is_ready(&self) -> bool;
}
