//! What is spoken to a cluster, and how many streams a connection carries by that.

use std::sync::Arc;

use towpath_proto::head::Version;
use towpath_proto::http1;

use crate::conn::mux::http2::Http2;
use crate::conn::mux::{Mux, Raw, bolt_client};
use crate::ids::{PoolClass, PoolKey, Priority, Protocol};
use crate::serving::{HTTP2, OfHttp2, SERVES, Serving};
use crate::snapshot::http2::Choice;
use crate::upstream::cluster::ClusterState;
use crate::upstream::pool::Pool;

impl ClusterState {
    /// What is spoken on a connection of a pool: opaque bytes for a stream that has it to itself, else what the
    /// configuration says, and where it leaves that open, what the handshake came to (RFC 7301 §3.2).
    pub(crate) fn protocol(
        &self,
        pool_key: PoolKey,
        is_tunnel: bool,
        alpn: Option<&[u8]>,
    ) -> Protocol {
        if is_tunnel {
            return Protocol::Raw;
        }
        if self.config.bolt.is_some() {
            return Protocol::Bolt;
        }
        #[cfg(test)]
        // Without TLS, by name.
        if alpn == Some(b"toy") || alpn.is_none() && &*self.config.name == "toys" {
            return Protocol::Toy;
        }
        let Some(http2) = &self.config.http2 else { return Protocol::Http1 };
        let is_http2 = match http2.choice {
            Choice::Always => true,
            Choice::Negotiated => alpn == Some(b"h2"),
            Choice::AsDownstream => self.pool(pool_key).is_some_and(|pool| pool.class.http2),
        };
        if is_http2 { Protocol::Http2 } else { Protocol::Http1 }
    }

    /// Which pools are for requests of a priority that came in so.
    pub(crate) fn class(&self, priority: Priority, version: Version) -> PoolClass {
        let follows =
            self.config.http2.as_ref().is_some_and(|it| it.choice == Choice::AsDownstream);
        PoolClass { priority, http2: follows && version == Version::Http2 }
    }

    /// What a pool's connections offer in their handshakes where the configuration does not say it.
    pub(crate) fn fallback_alpn(&self, pool: &Pool) -> &'static [&'static [u8]] {
        match self.config.http2.as_ref().map(|http2| http2.choice) {
            Some(Choice::AsDownstream) if pool.class.http2 => &[b"h2"],
            Some(Choice::AsDownstream) => &[b"http/1.1"],
            Some(Choice::Negotiated) if self.races => &[b"h2", b"http/1.1"],
            Some(Choice::Always) if self.races => &[b"h2"],
            None if self.races => &[b"http/1.1"],
            Some(Choice::Negotiated | Choice::Always) | None => &[],
        }
    }

    /// Whether a handshake came to what its pool speaks: an app that wants HTTP/2 alone has no use for another
    /// protocol, and does not guess at one that the server has not chosen (RFC 9113 §3.2).
    pub(crate) fn takes_alpn(&self, chosen: Option<&[u8]>) -> bool {
        let wants_http2 =
            self.config.http2.as_ref().is_some_and(|http2| http2.choice == Choice::Always);
        !(self.races && wants_http2) || chosen == Some(b"h2")
    }

    /// The mux of a fresh connection.
    pub(crate) fn mux_of(&self, protocol: Protocol) -> Mux {
        match (protocol, &self.config.bolt, &self.bolt_stats) {
            (Protocol::Http1, _, _) => {
                Mux::Http1Client(http1::Client::new(Arc::clone(&self.config.http1)))
            }
            (Protocol::Bolt, Some(config), Some(stats)) if SERVES => {
                let client = bolt_client::Client::new(Arc::clone(config), Arc::clone(stats));
                Mux::BoltClient(Serving::new(Box::new(client)))
            }
            (Protocol::Http2, _, _) if HTTP2 => match (&self.config.http2, &self.http2_stats) {
                (Some(config), Some(stats)) => {
                    let client = Http2::client(config, Arc::clone(stats));
                    Mux::Http2(OfHttp2::new(Box::new(client)))
                }
                (Some(_) | None, _) => Mux::Raw(Raw::default()),
            },
            (Protocol::Raw | Protocol::Bolt | Protocol::Http2, _, _) => Mux::Raw(Raw::default()),
            #[cfg(test)]
            (Protocol::Toy, _, _) => Mux::Toy(Box::new(crate::conn::mux::toy::Toy::client())),
        }
    }

    /// How many of the streams that wait for a host a connection under way is for.
    pub(crate) fn carries(&self, pool_key: PoolKey) -> usize {
        // Where the configuration says how many connections there are, each is opened as soon as it has a use.
        if self.config.connections_per_host().is_some() {
            return 1;
        }
        let known = self.pool(pool_key).and_then(|pool| pool.carries);
        // Until a connection is made, what the configuration says: most servers take at least as many.
        let is_http2 = self.protocol(pool_key, false, None) == Protocol::Http2;
        // Most servers of an app take it where they may choose: one connection tells, before others are opened.
        let http2 = self.config.http2.as_ref();
        let http2 = http2.filter(|it| is_http2 || (self.races && it.choice == Choice::Negotiated));
        let guessed = http2.map(|http2| http2.options.max_concurrent_streams);
        known.or(guessed).map_or(1, |carries| carries.max(1) as usize)
    }
}
