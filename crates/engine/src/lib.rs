//! Listeners, routes, clusters, pools and the one forwarding loop: a [`Worker`](worker::Worker) that is itself a
//! [`Machine`](towpath_proto::Machine).
//!
//! A driver feeds a worker with connections, bytes and time; a [`Snapshot`](snapshot::Snapshot) tells it what to do
//! with them. There is no socket, thread, clock or file in here. The walk of one request through these files is
//! `docs/life-of-a-request.md`.
#![forbid(unsafe_code)]

// The scenes of the tests name the crate as its users do.
#[cfg(test)]
extern crate self as towpath_engine;

pub mod added_tlvs;
pub mod balancer;
pub mod cidr;
pub mod client;
mod conn;
mod cookie;
mod deadlines;
mod downstream;
mod env;
mod exchange;
pub mod expression;
pub mod field;
pub mod filter;
pub mod format;
pub mod fraction;
mod free_slot;
pub mod grpc;
pub mod header_ops;
pub mod health;
mod ids;
pub mod json;
pub mod load_report;
pub mod local;
mod logger;
pub mod matcher;
pub mod mesh;
pub mod message;
pub mod names;
pub mod network_filter;
mod number;
#[cfg(feature = "serving")]
mod protobuf;
pub mod proxied;
mod random;
pub mod rbac;
pub mod record;
pub mod retry_policy;
pub mod route;
mod serving;
pub mod snapshot;
pub mod stats;
pub mod stream_info;
pub mod tally;
pub mod total;
mod tracer;
mod upstream;
pub mod uri;
mod wall_clock;
mod wire;
pub mod worker;
