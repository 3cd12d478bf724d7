//! Streams of Bolt, on connections that carry many of them at once.
//!
//! Each request frame becomes a stream like any other and goes through the one forwarding loop. What differs is in
//! here:
//!
//! - `downstream.rs`, `upstream.rs`: calls of clients, and calls on the connections that they share.
//! - `answer.rs`: answers, the upstream's and our own.
//! - `bridge.rs`: between Bolt and HTTP.
//!
//! What is spoken on the connections is in `conn/mux`, which of them has room in `upstream/pool.rs`.
//!
//! A frame is judged whole and written whole: no client sees half an answer. Of what a client sent, the fixed part is
//! written afresh; class, block of headers and content go on as they came, each behind its length.

pub(crate) mod answer;
pub(crate) mod bridge;
pub(crate) mod downstream;
pub(crate) mod upstream;

/// Whether a stream changes its protocol on the way, and how far it is with that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bridging {
    /// Both sides speak the same.
    #[default]
    None,
    /// An HTTP request that becomes a call when all of it is here.
    Collecting,
    /// HTTP comes in, Bolt goes out.
    ToBolt,
    /// Bolt comes in, HTTP goes out; its answer is collected.
    ToHttp,
}
