//! The client's side of Envoy's discovery protocol (xDS), without sockets, threads or clocks.
//!
//! A [`Stream`] is one gRPC stream to a control plane, or what takes its place from connect to connect: it says what
//! to send, takes what was received, and hands over resources. It knows names, versions, nonces and times; what a
//! resource says it does not know. Both forms are spoken: the state of the world and delta
//! ([xDS protocol](https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol)).
//!
//! What it deliberately does not do: decide whether a resource is good. It asks, and the answer
//! ([`Stream::answer`]) becomes an ACK or a NACK.
#![forbid(unsafe_code)]

mod backoff;
mod limit;
mod names;
mod stream;
mod types;
pub mod wire;

pub use backoff::Backoff;
pub use limit::Limit;
pub use names::Name;
pub use stream::{Form, Malformed, Output, Rejected, Resource, Settings, Stream, Update, Wanted};
pub use types::{AGGREGATED, Type};
