//! The side of those who ask: listeners, and the end of their connections.

pub(crate) mod close;
pub(crate) mod drain;
pub(crate) mod listener;
