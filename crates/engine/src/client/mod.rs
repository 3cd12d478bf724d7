//! What a client decides: which address to connect to and when, how long to wait, whom to trust, what to repeat.
//!
//! | Module | What it decides |
//! |---|---|
//! | [`race`] | when the next connection attempt begins, and where to (RFC 8305, and a prober after it) |
//! | [`answers`] | where to begin while a name is asked for: what it was answered with before |
//! | [`memory`] | which addresses come first, by what became of earlier attempts on this network |
//! | [`timeouts`] | how long a connect, the first byte, a gap, an attempt and the whole may take |
//! | [`avalanche`] | whether the app may send that at all: identical requests, and bytes |
//! | [`budget`] | whether there is a token left for one more retry, hedge or probe |
//! | [`heartbeat`] | how long a connection may be silent before the network forgets it |
//! | [`priority`] | which request gets the next connection |
//! | [`progress`] | whether a connection has stopped to move anything |
//! | [`back_off`] | how long an origin that has too much to do is left alone |
//! | [`resume`] | whether a response that broke off can go on where it stopped |
//! | [`retry_after`] | how long it asked for |
//! | [`slow_start`] | how much a slow path is given at first |
//! | [`window`] | how much of a response over HTTP/2 may be under way |
//!
//! Everything here is arithmetic on events and `now`: no clock, no socket, no thread.

pub mod answers;
pub mod avalanche;
pub mod back_off;
pub mod budget;
pub mod heartbeat;
pub mod memory;
pub mod priority;
pub mod progress;
pub mod race;
pub mod resume;
pub mod retry_after;
pub mod slow_start;
pub mod timeouts;
pub mod window;
