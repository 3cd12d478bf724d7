//! Drivers that run any [`Machine`](towpath_proto::Machine) on real sockets.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`readiness`] | [`readiness::Driver`]: one machine, one thread, edge-triggered readiness (epoll through mio) |
//! | [`listeners`] | [`Listeners`]: the listening sockets that several shards share |
//! | [`handle`] | [`Handle`]: how other threads send messages to a machine and stop its driver |
//! | [`memory`] | giving back what a start-up left behind |
//! | [`resolver`] | [`Names`]: whom to ask for the addresses of names |
//! | [`network`] | what network there is, and when that changes (rtnetlink) |
//! | [`thread`] | running before ordinary threads, or after them |
//! | [`counters`] | [`Counters`]: what a driver did, readable from any thread |
//!
//! A driver knows nothing about protocols, routes or pools. What arrives are events of the kernel,
//! what leaves are the machine's wishes, turned into system calls.
//!
//! ```no_run
//! use towpath_io::readiness::{Driver, Options};
//! # fn example<M: towpath_proto::Machine<Message = ()>>(machine: M) -> std::io::Result<()> {
//! let mut driver = Driver::new(machine, Options::default(), |()| {})?;
//! let handle = driver.handle();
//! std::thread::spawn(move || {
//!     std::thread::sleep(std::time::Duration::from_secs(1));
//!     handle.stop();
//! });
//! driver.run()
//! # }
//! ```
//!
//! What Linux alone has is behind `cfg(linux)`, what Android has as well behind `cfg(linux_kernel)`, each with
//! something in its place; the feature `portable` switches both off. There is no driver for Windows.
#![deny(unsafe_code)]

#[cfg(not(unix))]
compile_error!("towpath-io has drivers for Unix: there is none for Windows");

mod balance;
mod buffers;
mod clock;
pub mod counters;
mod failure;
pub mod handle;
pub mod listeners;
pub mod memory;
pub mod network;
pub mod readiness;
pub mod resolver;
mod socket;
mod sys;
pub mod thread;

pub use clock::Clock;
pub use counters::Counters;
pub use handle::{Handle, SendError};
pub use listeners::Listeners;
pub use resolver::Names;
