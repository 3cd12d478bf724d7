//! One request and its response, in the form in which languages with a garbage collector use it: one object, any of
//! whose calls does what can be done and never waits, a sleep for those that do, and errors as words.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`exchange`] | [`Exchange`]: a request, its body in pieces, its response |
//! | [`sleep`] | [`Sleep`]: a thread that waits for one |
//! | [`kind`] | errors as words that stay |
#![forbid(unsafe_code)]

pub mod exchange;
pub mod kind;
pub mod sleep;

pub use exchange::Exchange;
pub use sleep::{Sleep, Woken};
