//! Signs of life of a peer, where its protocol has a question for one.

use towpath_proto::Out;

use super::{Liveness, Mux, bolt_client};

impl Mux {
    /// Asks a server of HTTP/2 for a sign of life, unless an answer is due; whether it did.
    pub(crate) fn ask_ahead(&mut self, received: u64, out: &mut Out) -> bool {
        if let Self::Http2(http2) = self { http2.ask_ahead(received, out) } else { false }
    }

    /// Looks for a sign of life; none where the protocol has no question for one.
    pub(crate) fn check_liveness(&mut self, received: u64, misses: u32) -> Option<Liveness> {
        match self {
            Self::BoltClient(client) => Some(client.check_liveness(received, misses)),
            Self::Http2(http2) => Some(http2.check_liveness(received)),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => None,
            Self::BoltServer(_) | Self::Undecided(_) => None,
            #[cfg(test)]
            Self::Toy(_) => None,
        }
    }

    /// Asks for a sign of life.
    pub(crate) fn ask(&mut self, out: &mut Out) {
        match self {
            Self::BoltClient(_) => bolt_client::Client::ping(out),
            Self::Http2(http2) => http2.ask(out),
            Self::Http1Server(_) | Self::Http1Client(_) | Self::Raw(_) | Self::App(_) => {}
            Self::BoltServer(_) | Self::Undecided(_) => {}
            #[cfg(test)]
            Self::Toy(_) => {}
        }
    }
}
