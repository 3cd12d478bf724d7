//! The sidecar and gateway that runs Envoy's own configuration: the program around the engine.
//!
//! | Module | What it is |
//! |---|---|
//! | [`program`] | from the command line to an exit code |
//! | [`flags`] | the command line, by Envoy's names |
//! | [`check`] | `towpath check`: what of a configuration is not honoured |
//! | [`admin`] | the admin endpoint |
//! | `discovery` | a control plane in charge (xDS) |
//! | `health_discovery` | what a server has checked, and is told of it (HDS) |
//! | `load_report` | what a server is told of the load of clusters (LRS) |
//! | [`dns`] | name resolution for clusters |
//! | [`access_log`] | the files of access logs |
//! | [`logger`] | the application log |
//! | `tracing` | recordings of requests |
//! | [`xds`] | `towpath xds`: recordings of what control planes send |
//!
//! Two kinds of threads: workers, each an engine worker on a driver, which forward traffic and wait for no other
//! thread; and one control thread, on which all of the above lives. A third writes access logs, so that a slow disk
//! stops neither. What is long (statistics that are read, resources and configurations) is done on threads that let all
//! of these go first (`bulk`).
//!
//! ```no_run
//! towpath_proxy::program::main(std::env::args_os());
//! ```
#![forbid(unsafe_code)]

use std::hash::{BuildHasher, RandomState};

pub mod access_log;
pub mod admin;
mod bulk;
pub mod check;
mod control;
mod discovery;
pub mod dns;
mod driver_thread;
pub mod flags;
mod health_discovery;
mod listen_failure;
mod load_report;
mod loading;
pub mod logger;
mod memory;
mod monitor;
mod overload;
pub mod program;
mod reload;
mod secret_files;
mod serve;
mod server_stats;
mod stats_sinks;
mod sub_clusters;
mod tracing;
mod workers;
pub mod xds;

/// A random number: the standard library seeds its hash maps from the operating system.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}
