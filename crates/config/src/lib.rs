//! Envoy's bootstrap in, a checked immutable [`Snapshot`](towpath_engine::snapshot::Snapshot) out.
//!
//! # The way of a configuration
//! text → `tree` (values with positions) → `message` (typed by Envoy's own descriptors, merged, old forms rewritten)
//! → `rules` (what the protos demand) and `support` (what is honoured) → `convert` → [`Loaded`]
//!
//! Everything that is wrong is said at once, each with file, line, column and the field's path. A field that is set and
//! not honoured is a [`Finding`]; one that changes behaviour makes [`load()`] refuse the file. [`check`] lists them
//! all.
//!
//! ```
//! use towpath_config::{Options, Source, Sources, load};
//!
//! let text = "
//! static_resources:
//!   clusters:
//!   - name: app
//!     type: STATIC
//!     upstream_config: { name: a, typed_config: { \"@type\": type.googleapis.com/google.protobuf.StringValue } }
//! ";
//! let error = load(&Sources::file(Source::yaml("proxy.yaml", text)), &Options::default()).unwrap_err();
//! let why = "proxy.yaml:6:5: static_resources.clusters[0].upstream_config: not supported";
//! assert!(error.to_string().starts_with(why));
//! ```
//!
//! What it deliberately does not do: open sockets, resolve names, watch files, or know of threads.
#![forbid(unsafe_code)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a value is matched for the one kind that its field can have; every other kind means the same"
)]

mod base;
mod convert;
mod dump;
mod dynamic;
mod error;
mod health_discovery;
mod load;
mod message;
mod report;
mod rules;
mod schema;
mod source;
mod stamp;
mod suggest;
mod support;
mod tree;
mod wire;
mod zone;

pub use base::{Base, Prints};
pub use convert::{
    Admin, Bootstrap, ConfigSource, Discovery, Disks, From, Grpc, LayerKind, Locality, Need, Node,
    Push, PushTarget, RequestLimit, Runtime, RuntimeLayer, Stats, StatsTag,
};
pub use dynamic::{Build, Conflict, Given, Kind, Patch, Printer, Rejected, Resources, Use};
pub use error::{Error, Finding, Location, Note, Problem, Rank};
pub use health_discovery::{CheckPlan, CheckedCluster, CheckedLocality, check_plan};
pub use load::{
    Checked, Encoder, Loaded, Options, Response, check, encoded, load, reload, response,
};
pub use source::{Format, MAX_SOURCE_BYTES, Source, Sources};
pub use stamp::Stamp;

#[cfg(test)]
mod tests {
    mod conformance;
    mod pages;
}
