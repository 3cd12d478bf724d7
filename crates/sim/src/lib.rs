//! Machines in virtual time: a simulated clock, a seeded and lossy network, and the world that runs both.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`world`] | [`World`]: nodes, listeners, connections, names, and time |
//! | [`faults`] | [`Faults`]: what may go wrong on a path, and how often |
//! | [`script`] | [`Script`]: a peer written as one closure |
//! | [`seeds`] | [`for_each_seed`]: runs a property over many seeds and names the one that fails |
//! | [`link`] | the stages of an emulated link: loss, rate, delay, outages; profiles |
//! | [`random`] | [`Random`]: the one source of chance |
//!
//! Nothing here reads a clock, opens a socket or starts a thread. A world made from the same seed and
//! fed the same calls does the same thing, to the last byte and nanosecond:
//!
//! ```
//! use std::time::Duration;
//! use towpath_proto::{Address, Close, Input};
//! use towpath_sim::{Faults, Script, World, for_each_seed};
//!
//! for_each_seed(20, |seed| {
//!     let mut world: World<()> = World::new(seed);
//!     world.set_faults(Faults::lively());
//!     let echo = Address::Ip(([10, 9, 9, 9], 7).into());
//!     world.add(Script::new(
//!         |orders| orders.listen(Address::Ip(([10, 9, 9, 9], 7).into())),
//!         |input, orders, _now| match input {
//!             Input::Received { connection, chunk } => orders.send(connection, chunk),
//!             Input::Ended { connection } => orders.close(connection, Close::Flush),
//!             _ => {}
//!         },
//!     ));
//!     world.add(Script::new(
//!         move |orders| orders.connect(echo),
//!         |input, orders, _now| {
//!             if let Input::Connected { connection, .. } = input {
//!                 orders.send(connection, "hello");
//!                 orders.close(connection, Close::Half);
//!             }
//!         },
//!     ));
//!     assert!(world.run_until_quiet(Duration::from_secs(300)));
//! });
//! ```
#![forbid(unsafe_code)]

pub mod faults;
pub mod link;
pub mod random;
pub mod script;
pub mod seeds;
mod trace;
pub mod world;

pub use faults::Faults;
pub use random::Random;
pub use script::{Orders, Script};
pub use seeds::for_each_seed;
pub use world::{NodeId, World};
