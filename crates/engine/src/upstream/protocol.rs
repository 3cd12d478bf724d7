//! What is spoken to a cluster, and how many streams a connection carries by that.

use std::sync::Arc;

use towpath_proto::head::{Head, Version};
use towpath_proto::http1;
use towpath_proto::tls::Offer;

use crate::conn::mux::http2::Http2;
use crate::conn::mux::{Mux, Raw, bolt_client};
use crate::field::Field;
use crate::ids::{PoolClass, PoolKey, Priority, Protocol};
use crate::matcher::HostSubject;
use crate::mesh::AlpnOverride;
use crate::proxied::Client;
use crate::serving::{HTTP2, OfHttp2, SERVES, Serving};
use crate::snapshot::Cluster;
use crate::snapshot::cluster::Endpoint;
use crate::snapshot::http2::Choice;
use crate::snapshot::original_src::Source;
use crate::stream_info::{SharedObject, StateObject};
use crate::upstream::cluster::ClusterState;
use crate::upstream::pool::Pool;
use crate::upstream::wishes::TlsWish;

/// What a request may ask of the connection to its host.
#[derive(Clone, Debug)]
pub(crate) struct Asks<'a> {
    /// What a filter says that its connection offers.
    pub(crate) alpn: Option<&'a AlpnOverride>,
    pub(crate) request: Option<&'a Head>,
    /// For whom it is.
    pub(crate) of: OfWhom,
}

/// For whom a connection is.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfWhom {
    /// Whom the host is told of.
    pub(crate) client: Option<Arc<Client>>,
    /// Where it comes from, if not from us.
    pub(crate) source: Option<Source>,
    /// The number of the client's connection.
    pub(crate) connection: Option<u64>,
    /// The objects of the filter state that go along with it.
    pub(crate) state: Vec<(Box<str>, StateObject)>,
}

impl<'a> Asks<'a> {
    /// Nothing but that it is for a client.
    pub(crate) const fn of_client(of: OfWhom) -> Self {
        Self { alpn: None, request: None, of }
    }

    #[inline]
    fn anything(&self, config: &Cluster) -> bool {
        let OfWhom { client, source, connection, state } = &self.of;
        let is_of_client = client.is_some()
            || source.is_some()
            || !state.is_empty()
            || (config.pool_per_client && connection.is_some());
        self.alpn.is_some() || is_of_client || config.asked_names.is_some()
    }

    /// The host that a request names, without its port.
    fn host(&self, config: &Cluster) -> Option<&'a str> {
        let request = self.request?;
        let name = match config.asked_names.as_ref().and_then(|names| names.field.as_ref()) {
            Some(Field::Header(name)) => request.get_named(name),
            Some(_) | None => None,
        };
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| request.authority());
        let text = std::str::from_utf8(name).ok()?;
        let host = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?.0,
            None => text.split(':').next()?,
        };
        Some(host).filter(|host| !host.is_empty() && host.len() <= LONGEST_NAME)
    }
}

/// What is longer is no name (RFC 1035 §2.3.4).
const LONGEST_NAME: usize = 253;

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
        PoolClass { priority, http2: follows && version == Version::Http2, wish: 0 }
    }

    /// The same for a request that may ask something of TLS. `None` where there are too many such already.
    #[inline(always)]
    pub(crate) fn class_for(&mut self, class: PoolClass, asks: &Asks<'_>) -> Option<PoolClass> {
        if !asks.anything(&self.config) {
            return Some(class);
        }
        self.class_of_wish(class, asks)
    }

    #[cold]
    fn class_of_wish(&mut self, class: PoolClass, asks: &Asks<'_>) -> Option<PoolClass> {
        let wish = self.wish(class, asks);
        if let Some(wish) = self.wishes.number(&wish) {
            return Some(PoolClass { wish, ..class });
        }
        if self.wishes.are_many() {
            self.forget_wishes();
        }
        let number = self.wishes.add(wish.clone()).or_else(|| {
            self.forget_wishes();
            self.wishes.add(wish)
        });
        Some(PoolClass { wish: number?, ..class })
    }

    fn wish(&self, class: PoolClass, asks: &Asks<'_>) -> TlsWish {
        let is_http2 = match self.config.http2.as_ref().map(|http2| http2.choice) {
            None => false,
            Some(Choice::AsDownstream) => class.http2,
            Some(Choice::Always | Choice::Negotiated) => true,
        };
        let list = asks.alpn.map(|alpn| if is_http2 { &alpn.http2 } else { &alpn.http1 });
        let told = self.config.proxy_headers.is_some();
        let client = asks.of.client.as_ref().filter(|_| told).cloned();
        let source = asks.of.source;
        let connection = asks.of.connection.filter(|_| self.config.pool_per_client);
        let state = self.state_that_counts(&asks.of.state);
        let mut wish = TlsWish { client, source, connection, state, ..TlsWish::default() };
        if !self.config.is_under_tls() {
            return wish;
        }
        wish.alpn = list.filter(|list| !list.is_empty()).cloned();
        if let (Some(names), Some(host)) = (&self.config.asked_names, asks.host(&self.config)) {
            // An address is not sent as a name (RFC 6066 §3).
            if names.sni && host.parse::<std::net::IpAddr>().is_err() {
                wish.server = Some(Arc::from(host));
            }
            if names.certified {
                wish.certified = Some(Arc::from(host));
            }
        }
        wish
    }

    /// Of the objects that go along with a connection, those by which connections are told apart: what can be hashed,
    /// as in Envoy, and what their socket is chosen by.
    fn state_that_counts(&self, state: &[(Box<str>, StateObject)]) -> Option<Arc<[SharedObject]>> {
        let choice = self.config.chooses_by_state();
        let counts = |name: &str, object: &StateObject| {
            object.is_hashable || choice.is_some_and(|choice| choice.reads(name))
        };
        let counting = state.iter().filter(|(name, object)| counts(name, object));
        let counting: Arc<[_]> =
            counting.map(|(name, object)| (name.clone(), object.value.clone())).collect();
        // Where a socket is chosen by such objects, it is chosen for each connection that any go along with.
        let is_chosen = choice.is_some() && !state.is_empty();
        (is_chosen || !counting.is_empty()).then_some(counting)
    }

    /// Which socket the connections of a class are made by to a host.
    pub(crate) fn socket_of(&self, endpoint: &Endpoint, class: PoolClass) -> Option<u16> {
        match self.config.chooses_by_state().zip(self.state_of(class)) {
            Some((choice, shared)) => choice.find(HostSubject {
                endpoint: endpoint.filter_metadata.as_deref(),
                locality: endpoint.locality_metadata.as_deref(),
                shared,
            }),
            None => endpoint.socket,
        }
    }

    /// What goes along with the connections of a class.
    fn state_of(&self, class: PoolClass) -> Option<&[SharedObject]> {
        self.wishes.get(class.wish)?.state.as_deref()
    }

    /// Counts by which socket a connection is made, where that is chosen for each.
    pub(crate) fn count_socket(&self, pool_key: PoolKey) {
        if self.config.chooses_by_state().is_some()
            && let Some(pool) = self.pool(pool_key)
            && self.state_of(pool.class).is_some()
            && let Some(matches) = &self.matches
        {
            matches.count(pool.socket);
        }
    }

    /// What a pool's connections offer in their handshakes.
    pub(crate) fn offer(&self, pool: &Pool) -> Offer<'_> {
        match self.wishes.get(pool.class.wish).and_then(|wish| wish.alpn.as_ref()) {
            Some(protocols) => Offer::Instead(protocols),
            None => Offer::Otherwise(self.fallback_alpn(pool)),
        }
    }

    /// The same where the configuration does not say it.
    fn fallback_alpn(&self, pool: &Pool) -> &'static [&'static [u8]] {
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
