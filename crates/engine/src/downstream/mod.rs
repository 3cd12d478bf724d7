//! Towards clients: listeners with their sockets and filter chains, drain, and the end of connections.
//!
//! Nothing here knows of streams or clusters.

pub(crate) mod close;
pub(crate) mod drain;
pub(crate) mod listener;
