//! What became of one stream: the facts that counters, access-log lines and spans are made of.
//!
//! A stream fills its record while it lives; nothing in here decides anything.

pub mod close;
pub mod details;
mod flags;
mod peer;

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::tls;
use towpath_proto::{Address, Instant, Version};

use crate::proxied::Proxied;
use crate::stream_info::{FilterMetadata, Struct};
pub use flags::Flags;
pub use peer::{DownstreamTls, ShownCertificate};

/// The facts of one stream.
#[derive(Clone, Debug)]
pub struct Record {
    /// When the first byte of the request was parsed (TCP: when the connection was accepted).
    pub start: Instant,
    /// The last byte of the request came in.
    pub request_end: Option<Instant>,
    /// The first byte went upstream.
    pub upstream_first_sent: Option<Instant>,
    /// The last byte went upstream.
    pub upstream_last_sent: Option<Instant>,
    /// The first byte came from upstream.
    pub upstream_first_received: Option<Instant>,
    /// The first byte of the response's content came from upstream.
    pub upstream_content_start: Option<Instant>,
    /// The last byte came from upstream.
    pub upstream_last_received: Option<Instant>,
    /// The first byte of the response went out.
    pub response_start: Option<Instant>,
    /// The last byte of the response went out.
    pub response_end: Option<Instant>,
    /// The stream ended.
    pub end: Option<Instant>,
    /// The connect of the upstream connection began and ended, where this stream waited for it.
    pub connect: Option<(Instant, Instant)>,
    /// The TLS handshake of the upstream connection ended, where this stream waited for it.
    pub secured: Option<Instant>,
    /// What became of the client's connection.
    pub client: ClientConnection,
    /// How often a route was looked for.
    pub route_lookups: u32,
    /// How long that took altogether, where a format asks for it.
    pub route_lookup_time: Option<Duration>,
    /// Body bytes of the request (TCP: bytes from downstream).
    pub bytes_received: u64,
    /// Body bytes of the response (TCP: bytes to downstream).
    pub bytes_sent: u64,
    /// Body bytes to upstream.
    pub upstream_bytes_sent: u64,
    /// Body bytes from upstream.
    pub upstream_bytes_received: u64,
    /// Bytes of the whole request on the wire.
    pub wire_received: u64,
    /// Bytes of the whole response on the wire.
    pub wire_sent: u64,
    /// Bytes on the wire to upstream, all attempts.
    pub upstream_wire_sent: u64,
    /// Bytes on the wire from upstream, all attempts.
    pub upstream_wire_received: u64,
    /// Bytes of heads, by [`Heads`]; of those that are there to be looked at, not yet.
    pub headers: [HeaderBytes; 4],
    /// Why this proxy has ended the client's connection, if it has and that was why the stream is over. Envoy's
    /// `%DOWNSTREAM_LOCAL_CLOSE_REASON%`.
    pub local_close: &'static str,
    /// The same of the upstream connection.
    pub upstream_local_close: &'static str,
    /// How the client's connection ended, as far as it has.
    pub close_type: CloseType,
    /// The same of the upstream connection.
    pub upstream_close_type: CloseType,
    /// The status that went downstream; 0 when none did.
    pub status: u16,
    /// The version in which the request came; none for TCP.
    pub protocol: Option<Version>,
    /// The version in which the request last went upstream, where HTTP came.
    pub upstream_protocol: Option<Version>,
    /// Envoy's response flags.
    pub flags: Flags,
    /// Envoy's `%RESPONSE_CODE_DETAILS%`: see [`details`].
    pub details: &'static str,
    /// Envoy's `%CONNECTION_TERMINATION_DETAILS%`.
    pub termination: &'static str,
    /// Envoy's `%UPSTREAM_TRANSPORT_FAILURE_REASON%`.
    pub transport_failure: &'static str,
    /// The status with which an HTTP proxy has refused a tunnel last; 0 where none has.
    pub tunnel_status: u16,
    /// How often the request was sent upstream.
    pub attempts: u32,
    /// The hosts that were tried before that, in their order; none where there was one attempt.
    pub attempted: Option<Box<Vec<Attempted>>>,
    /// When its last attempt asked for a connection, where there was none at hand.
    pub pool_asked: Option<Instant>,
    /// The host that answered, or was tried last.
    pub upstream_host: Option<Address>,
    /// Which of its addresses the connection goes to, if not to the first.
    pub upstream_remote: Option<Box<Address>>,
    /// Our own address towards it.
    pub upstream_local: Option<Address>,
    /// What is spoken below HTTP towards it, if that is TLS.
    pub upstream_tls: Option<UpstreamTls>,
    /// The cluster's name.
    pub cluster: Option<Arc<str>>,
    /// Where the downstream connection was accepted.
    pub downstream_local: Option<Address>,
    /// The client's address, as `x-forwarded-for` and the trusted hops make it.
    pub downstream_remote: Option<Address>,
    /// The peer of the downstream socket.
    pub downstream_direct_remote: Option<Address>,
    /// The TLS of the downstream connection.
    pub downstream_tls: Option<Arc<DownstreamTls>>,
    /// The name by which the client asked for this server, as far as a listener filter has read it.
    pub server_name: Option<Arc<str>>,
    /// By what the client's TLS can be told from others'.
    pub fingerprints: Option<Arc<Fingerprints>>,
    /// What a proxy has said of the client's connection beside addresses.
    pub proxied: Option<Arc<Proxied>>,
    /// The dynamic metadata of the client's connection, by namespace, where network filters have left some: that of
    /// [`Self::proxied`] is a part of it then.
    pub connection_metadata: FilterMetadata,
    /// Counts connections of this worker; unique with the worker's number.
    pub connection: u64,
    /// The same for the upstream connection; 0 when there was none.
    pub upstream_connection: u64,
    /// Counts streams of this worker.
    pub stream: u64,
    /// The stream is a health check of this proxy.
    pub health_check: bool,
    /// The stream is traced.
    pub traceable: bool,
}

/// The life of a client's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientConnection {
    /// It was accepted.
    pub opened: Option<Instant>,
    /// The first byte of its handshake came, where TLS is spoken.
    pub handshake_start: Option<Instant>,
    /// Its handshake was over.
    pub handshake_end: Option<Instant>,
    /// It ended, and the stream with it.
    pub closed: Option<Instant>,
    /// Why its TLS failed. Envoy's `%DOWNSTREAM_TRANSPORT_FAILURE_REASON%`.
    pub failure: &'static str,
}

impl ClientConnection {
    const NOTHING: Self = Self {
        opened: None,
        handshake_start: None,
        handshake_end: None,
        closed: None,
        failure: "",
    };
}

/// Whose heads are counted, and which way they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Heads {
    /// From the client.
    DownstreamReceived,
    /// To the client.
    DownstreamSent,
    /// From the server, all attempts.
    UpstreamReceived,
    /// To the server, all attempts.
    UpstreamSent,
}

/// How long heads are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderBytes {
    /// On the wire: over HTTP/1 the lines of fields, over HTTP/2 whole frames.
    pub wire: u64,
    /// Before they are compressed.
    pub plain: u64,
}

/// How a connection ended. Envoy's `%DOWNSTREAM_DETECTED_CLOSE_TYPE%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloseType {
    /// It has not ended, or without a reset.
    #[default]
    Normal,
    /// This proxy reset it.
    LocalReset,
    /// Its peer reset it.
    RemoteReset,
}

impl CloseType {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::LocalReset => "LocalReset",
            Self::RemoteReset => "RemoteReset",
        }
    }
}

/// A host to which a stream was to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempted {
    /// Its address.
    pub host: Address,
    /// Its name; it may be empty.
    pub hostname: Arc<str>,
    /// The connection to it; 0 where there was none.
    pub connection: u64,
}

/// The TLS of an upstream connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// `%UPSTREAM_TLS_VERSION%`.
    pub version: tls::Version,
    /// `%UPSTREAM_TLS_CIPHER%`.
    pub cipher: tls::CipherSuite,
    /// Who both ends are, to clusters of a mesh and where formats ask for it.
    pub names: Option<Arc<TlsNames>>,
}

/// Who both ends of a connection under TLS are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsNames {
    /// The first URI in the host's certificate, where it is one of a mesh.
    pub peer: Box<str>,
    /// In ours.
    pub own: Box<str>,
    /// What both have shown, where formats ask for it.
    pub shown: Option<Box<DownstreamTls>>,
    /// Where the host is, if not at its first address.
    pub(crate) remote: Option<Box<Address>>,
}

impl TlsNames {
    /// What both ends have shown on an established connection to a server that may have asked for this certificate.
    pub(crate) fn shown(layer: &tls::Layer, own: Option<&[u8]>) -> Box<DownstreamTls> {
        let own = own.and_then(ShownCertificate::read);
        Box::new(DownstreamTls { own, ..DownstreamTls::of(layer) })
    }

    /// Their names.
    pub(crate) fn of(layer: &tls::Layer, own: Option<&[u8]>) -> Self {
        let first = |der: Option<&[u8]>| {
            let uris = der.and_then(ShownCertificate::read).map(|shown| shown.uris);
            let first = uris.and_then(|uris| uris.into_iter().next());
            first.map(|uri| String::from_utf8_lossy(&uri).into()).unwrap_or_default()
        };
        Self { peer: first(layer.peer_certificate()), own: first(own), ..Self::default() }
    }
}

impl UpstreamTls {
    /// What both ends have shown, if formats ask for it.
    pub(crate) fn shown(&self) -> Option<&DownstreamTls> {
        self.names.as_deref()?.shown.as_deref()
    }

    /// What is known of an established connection.
    pub(crate) fn of(layer: &tls::Layer) -> Option<Self> {
        let (version, cipher) = (layer.version()?, layer.cipher_suite()?);
        Some(Self { version, cipher, names: None })
    }
}

impl Record {
    /// That of a stream of which nothing is known.
    pub(crate) const fn new() -> Self {
        Self {
            start: Instant::ZERO,
            request_end: None,
            upstream_first_sent: None,
            upstream_last_sent: None,
            upstream_first_received: None,
            upstream_content_start: None,
            upstream_last_received: None,
            response_start: None,
            response_end: None,
            end: None,
            connect: None,
            secured: None,
            client: ClientConnection::NOTHING,
            route_lookups: 0,
            route_lookup_time: None,
            bytes_received: 0,
            bytes_sent: 0,
            upstream_bytes_sent: 0,
            upstream_bytes_received: 0,
            wire_received: 0,
            wire_sent: 0,
            upstream_wire_sent: 0,
            upstream_wire_received: 0,
            headers: [HeaderBytes { wire: 0, plain: 0 }; 4],
            local_close: "",
            upstream_local_close: "",
            close_type: CloseType::Normal,
            upstream_close_type: CloseType::Normal,
            status: 0,
            protocol: None,
            upstream_protocol: None,
            flags: Flags(0),
            details: "",
            termination: "",
            transport_failure: "",
            tunnel_status: 0,
            attempts: 0,
            attempted: None,
            pool_asked: None,
            upstream_host: None,
            upstream_remote: None,
            upstream_local: None,
            upstream_tls: None,
            cluster: None,
            downstream_local: None,
            downstream_remote: None,
            downstream_direct_remote: None,
            downstream_tls: None,
            server_name: None,
            fingerprints: None,
            proxied: None,
            connection_metadata: None,
            connection: 0,
            upstream_connection: 0,
            stream: 0,
            health_check: false,
            traceable: false,
        }
    }

    /// How long its last attempt waited for its connection, once it has one.
    pub(crate) fn pool_wait(&self) -> Option<Duration> {
        let ready = self.upstream_first_sent?;
        let asked = self.pool_asked.unwrap_or(ready);
        (asked <= ready).then(|| ready.since(asked))
    }

    /// From the start to the end, once there is one.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        self.end.map(|end| end.since(self.start))
    }
}

/// The dynamic metadata of a client's connection, by namespace: all that network filters have left, or else what a
/// proxy has said of it.
pub(crate) fn metadata_of_connection(left: &FilterMetadata, proxied: Option<&Proxied>) -> Struct {
    match (left, proxied) {
        (Some(left), _) => Struct::clone(left),
        (None, Some(proxied)) => proxied.metadata(),
        (None, None) => Struct::new(),
    }
}

/// By what the TLS of a client can be told from others'.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprints {
    /// JA3: 32 hexadecimal digits.
    pub ja3: Option<Box<str>>,
    /// JA4: 36 characters.
    pub ja4: Option<Box<str>>,
}

impl Default for Record {
    fn default() -> Self {
        Self::new()
    }
}
