//! Streams of Bolt, on connections that carry many of them at once.
//!
//! Each request frame becomes a stream like any other and goes through the one forwarding loop. What differs is in here:
//!
//! - `downstream.rs`, `upstream.rs`: calls of clients, and calls on the connections that they share.
//! - `answer.rs`: answers, the upstream's and our own.
//! - `bridge.rs`: between Bolt and HTTP.
//!
//! What is spoken on the connections is in `conn/mux`, which of them has room in `upstream/shared.rs`.
//!
//! A frame is judged whole and written whole: nobody sees half an answer. Of what a client sent, the fixed part is written
//! afresh; class, block of headers and content go on as they came, each behind its length.

pub(crate) mod answer;
pub(crate) mod bridge;
pub(crate) mod downstream;
pub(crate) mod upstream;

use std::time::Duration;

use towpath_proto::bolt::{Frame, Kind, Version};

/// What a stream knows of its frames.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// What a client asked, as far as its answer needs it.
    pub(crate) asked: Option<Asked>,
    /// The request, as long as another try may have to send it again.
    pub(crate) frame: Option<Frame>,
    /// The upstream's answer, until it is written.
    pub(crate) answer: Option<Frame>,
    /// Where it is in its client's list.
    pub(crate) position: u32,
    /// Its number on the upstream connection.
    pub(crate) number: Option<u32>,
    /// Bytes that its client's list counts as collected for it.
    pub(crate) collected: usize,
    /// It stands in a pool's queue, and its client's list counts it.
    pub(crate) waits: bool,
    pub(crate) crossing: Crossing,
}

/// What is left of a call when its frame is let go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) version: Version,
    pub(crate) kind: Kind,
    pub(crate) codec: u8,
    pub(crate) checksum: bool,
    /// Under which its client knows it.
    pub(crate) number: u32,
    /// Length of its frame.
    pub(crate) len: usize,
}

impl Asked {
    pub(crate) fn of(frame: &Frame) -> Self {
        Self {
            version: frame.version(),
            kind: frame.kind(),
            codec: frame.codec(),
            checksum: frame.has_checksum(),
            number: frame.id(),
            len: frame.bytes().len(),
        }
    }
}

/// Whether a stream changes its protocol on the way, and how far it is with that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Crossing {
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

impl Call {
    /// How long its client waits: it counts before the route's timeout.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.frame.as_ref().and_then(Frame::timeout)
    }

    /// Whether nobody waits for an answer.
    pub(crate) fn is_oneway(&self) -> bool {
        self.asked.is_some_and(|asked| asked.kind == Kind::Oneway)
    }
}
