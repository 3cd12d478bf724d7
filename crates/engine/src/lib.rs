//! Listeners, routes, clusters, pools and the one forwarding loop: a [`Worker`](worker::Worker) that is itself a
//! [`Machine`](towpath_proto::Machine).
//!
//! A driver feeds a worker with connections, bytes and time; a [`Snapshot`](snapshot::Snapshot) tells it what to do
//! with them. There is no socket, thread, clock or file in here. The walk of one request through these files is
//! `docs/life-of-a-request.md`.
#![forbid(unsafe_code)]

pub mod balancer;
mod bolt;
pub mod client;
mod cluster;
mod connect;
mod connection;
mod deadlines;
mod downstream;
mod drain;
mod edge;
mod env;
mod exchange;
pub mod field;
mod finish;
pub mod format;
mod forward;
pub mod grpc;
pub mod header_ops;
pub mod health;
mod ids;
mod listener;
pub mod local;
mod log;
pub mod matcher;
pub mod message;
mod number;
mod passive_health;
mod pool;
mod random;
pub mod record;
mod retry;
pub mod route;
mod router;
mod secure;
mod serving;
pub mod snapshot;
mod spans;
pub mod stats;
mod stream;
mod tcp;
mod upstream;
mod wall_clock;
pub mod worker;
