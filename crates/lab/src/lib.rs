//! The lab: load, bad networks, and receipts.
//!
//! It measures *any* program by its address and process id, so it shares no code with the engine it
//! is most often pointed at. What each part does:
//!
//! | Module | What it is |
//! |---|---|
//! | [`load`] | load generator: closed and open loops, on one machine or several, latency from the intended start |
//! | [`origin`] | test server: HTTP/1.1 answers, Bolt answers, WebSocket or TCP echo |
//! | [`meter`] | what a process and the machine spent between two instants |
//! | [`about`] | where, when and by which version something was measured |
//! | [`histogram`] | percentiles of nanoseconds |
//! | [`link`] | emulated links between network namespaces |
//! | [`stats`] | paired effects with intervals, tests, the scalability law |
//! | [`results`] | what other load generators print, read into one shape |
//! | [`lint`] | consistency checks on a published benchmark table |
//! | [`energy`] | what a radio would have spent, by model |
//! | [`report`] | HTML pages and Markdown |
//! | [`compare`] | A against B in interleaved pairs, with a verdict |
//! | [`agree`] | another generator beside this one |
//! | [`knee`] | the highest rate that meets a latency objective |
//! | [`experiment`] | programs under test, launched afresh for each run |
//! | [`replay`] | public performance reports, run again |
//! | [`cli`] | the `towpath lab` commands |
//!
//! ```no_run
//! use std::time::Duration;
//! use towpath_lab::load::{Arrivals, Plan, run};
//!
//! let mut plan = Plan::new("http://127.0.0.1:8080/".parse()?);
//! plan.arrivals = Arrivals::Poisson { rate: 2_000.0 };
//! plan.duration = Duration::from_secs(5);
//! let outcome = run(&plan)?;
//! assert_eq!(outcome.errors.total(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod about;
pub mod address;
pub mod agree;
pub mod cli;
pub mod compare;
pub mod energy;
pub mod experiment;
pub mod histogram;
pub mod knee;
pub mod link;
pub mod lint;
pub mod load;
pub mod meter;
pub mod origin;
pub mod replay;
pub mod report;
pub mod results;
pub mod stats;

mod chunked;
mod head;
mod number;
mod poller;
mod random;
mod websocket;
