//! An outage, and what a client is doing when it begins.

use std::time::Duration;

use towpath_sim::link::{Conditions, Rate, Timeline};

/// What is under way when the link goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing yet: the first attempt meets no link.
    Connect,
    /// A request that the server has, and has not answered.
    Established,
    /// Nothing: the connection of an answered request waits for the next one, which comes while there is no link.
    Idle,
    /// A response, of which a part is there.
    Response,
}

/// A time without a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    pub(super) state: State,
    pub(super) length: Duration,
}

impl State {
    pub(super) const ALL: [Self; 4] =
        [Self::Connect, Self::Established, Self::Idle, Self::Response];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connecting",
            Self::Established => "waiting for an answer",
            Self::Idle => "idle connection",
            Self::Response => "in a response",
        }
    }

    /// When the link goes, after the client has begun.
    const fn begins(self) -> Duration {
        Duration::from_millis(match self {
            Self::Connect => 0,
            Self::Established => 380,
            Self::Idle => 1000,
            Self::Response => 850,
        })
    }

    /// How long the server takes for an answer.
    pub(super) const fn delay(self) -> Duration {
        match self {
            // For a second request, too: it is in what an outage costs apps that ask again.
            Self::Established => Duration::from_millis(400),
            Self::Connect | Self::Idle | Self::Response => Duration::ZERO,
        }
    }

    /// Bytes of an answer.
    pub(super) const fn response(self) -> usize {
        match self {
            // A second of what the link carries, of which a quarter is left.
            Self::Response => 256 << 10,
            Self::Connect | Self::Established | Self::Idle => 100,
        }
    }

    /// From the start of a first request to that of the one that counts, on the same connection.
    pub(super) const fn spacing(self) -> Option<Duration> {
        match self {
            Self::Idle => Some(Duration::from_secs(2)),
            Self::Connect | Self::Established | Self::Response => None,
        }
    }

    /// The link, each way, while it is there.
    pub(super) fn conditions(self) -> Conditions {
        let near = Conditions { delay: Duration::from_millis(20), ..Conditions::default() };
        match self {
            Self::Response => {
                Conditions { rate: Rate::BitsPerSecond(2e6), queue_bytes: Some(64 << 10), ..near }
            }
            Self::Connect | Self::Established | Self::Idle => near,
        }
    }
}

impl Outage {
    pub(super) fn timeline(self) -> Timeline {
        Timeline::default().with_outage(self.state.begins(), self.length)
    }

    /// When the link is back, after the client has begun.
    pub(super) fn ends(self) -> Duration {
        self.state.begins() + self.length
    }
}
