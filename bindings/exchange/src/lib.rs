//! One request and its response, in the form in which languages with a garbage collector use it: one object, any of
//! whose calls does what can be done and never waits, a sleep for those that do, and errors as words.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`exchange`] | [`Exchange`]: a request, its body in pieces, its response |
//! | [`sleep`] | [`Sleep`]: a thread that waits for one |
//! | [`socket`] | [`Socket`]: a WebSocket, [`Sockets`]: one that is opened again whenever it breaks |
//! | [`bell`] | [`Bell`]: any number of threads that wait for one |
//! | [`kind`] | errors as words that stay |
#![forbid(unsafe_code)]

pub mod bell;
pub mod exchange;
pub mod kind;
pub mod sleep;
pub mod socket;

pub use bell::{Bell, Heard, Interrupted};
pub use exchange::Exchange;
pub use sleep::{Sleep, Woken};
pub use socket::{Ping, Socket, Sockets};
