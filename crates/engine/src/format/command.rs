//! The commands: their names, what they take, and what they mean.

use super::Part;
use super::time::TimeFormat;
use crate::field::Field;
use crate::format::cel::Expression;
use crate::record::Heads;

/// How an object of the filter state is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StateForm {
    /// `PLAIN`: its text.
    Plain,
    /// `TYPED`: as JSON has it.
    Typed,
    /// `FIELD`: one of its fields.
    Field(Box<str>),
}

/// Something that a format string asks for; named as Envoy names it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// What this proxy never has, because nothing that it supports could set it.
    Absent,
    /// `METADATA`: whose, the namespace, and keys from there on. `DYNAMIC_METADATA` and its like are
    /// `METADATA(DYNAMIC:…)`.
    Metadata(MetadataOf, Box<str>, Box<[Box<str>]>),
    /// `FILTER_STATE`: the object's name, and how it is shown.
    FilterState {
        name: Box<str>,
        form: StateForm,
    },
    /// `CEL` and `TYPED_CEL`.
    Cel {
        expression: Expression,
        typed: bool,
    },
    /// `0`: what is never counted of TCP.
    Zero,
    /// `DOWNSTREAM_HANDSHAKE_DURATION`: from the stream's start.
    DownstreamHandshake,
    /// `DOWNSTREAM_TRANSPORT_FAILURE_REASON`.
    DownstreamTransportFailure,
    /// `ROUTE_RESOLUTION_COUNT`.
    RouteLookups,
    /// `ROUTE_RESOLUTION_TIME_US`.
    RouteLookupTime,
    /// What is always empty, for the same reason, and not missing as Envoy sees it.
    Empty,
    /// `REQ`: the first header, else the second.
    Request(Field, Option<Field>),
    /// `REQ_WITHOUT_QUERY`.
    RequestWithoutQuery(Field, Option<Field>),
    /// `RESP`.
    Response(Field, Option<Field>),
    /// `TRAILER`.
    Trailer(Field, Option<Field>),
    /// `START_TIME`.
    StartTime(TimeFormat),
    /// `EMIT_TIME`.
    EmitTime(TimeFormat),
    /// `COALESCE`: what the first of these says that says anything.
    Coalesce(Box<[Part]>),
    /// `ENVIRONMENT`, which becomes a literal.
    Environment(String),
    /// `RESPONSE_CODE_DETAILS`, with or without white space.
    ResponseCodeDetails {
        spaces: bool,
    },
    /// `COMMON_DURATION`: from, to, and how many nanoseconds a unit has.
    CommonDuration(TimePoint, TimePoint, u64),
    /// `GRPC_STATUS` and `GRPC_STATUS_NUMBER`.
    GrpcStatus(GrpcForm),
    /// `PATH`.
    Path {
        query: bool,
        source: Source,
    },
    /// `QUERY_PARAM`.
    QueryParam(Box<[u8]>),
    /// `QUERY_PARAMS`.
    QueryParams,
    /// `REQUESTED_SERVER_NAME`: the name of the server that was asked for; the request's host may stand in for it.
    RequestedServerName(Asked),
    /// `DOWNSTREAM_PEER_…` and `DOWNSTREAM_LOCAL_…`: what a certificate says.
    Certificate(Shown, Said),
    /// `DOWNSTREAM_PEER_CERT_V_START` and `…_END`.
    PeerValidity(Bound, TimeFormat),
    DownstreamTls(OfTls),
    /// `UPSTREAM_PEER_…` and `UPSTREAM_LOCAL_…`: the same of connections to clusters.
    UpstreamCertificate(Shown, Said),
    UpstreamPeerValidity(Bound, TimeFormat),
    UpstreamTls(OfTls),
    /// `TLS_JA3_FINGERPRINT` and `TLS_JA4_FINGERPRINT`.
    Fingerprint(Print),
    /// `UPSTREAM_HOSTS_ATTEMPTED` and its like: the hosts of all attempts.
    HostsAttempted(AddressForm),
    /// `UPSTREAM_HOST_NAMES_ATTEMPTED` and its like.
    HostNamesAttempted {
        ports: bool,
    },
    /// `UPSTREAM_CONNECTION_IDS_ATTEMPTED`.
    ConnectionIdsAttempted,
    /// `DOWNSTREAM_HEADER_BYTES_SENT` and its like.
    HeaderBytes {
        of: Heads,
        decompressed: bool,
    },
    AccessLogType,
    BytesReceived,
    BytesSent,
    ConnectionId,
    ConnectionTerminationDetails,
    DownstreamCloseType,
    DownstreamDirectRemote(AddressForm),
    DownstreamLocal(AddressForm),
    DownstreamLocalClose,
    DownstreamRemote(AddressForm),
    DownstreamWireBytesReceived,
    DownstreamWireBytesSent,
    Duration,
    FilterChainName,
    Hostname,
    ListenerName,
    LocalReplyBody,
    Protocol,
    RequestDuration,
    RequestHeadersBytes,
    RequestTxDuration,
    ResponseCode,
    ResponseDuration,
    ResponseFlags,
    ResponseFlagsLong,
    ResponseHeadersBytes,
    ResponseTrailersBytes,
    ResponseTxDuration,
    RouteName,
    VirtualClusterName,
    SpanId,
    StreamId,
    TraceId,
    UniqueId,
    UpstreamConnectionPoolReadyDuration,
    UpstreamCloseType,
    UpstreamCluster,
    UpstreamClusterRaw,
    UpstreamConnectionId,
    UpstreamHost,
    UpstreamRemote(AddressForm),
    UpstreamHostName,
    UpstreamHostNameWithoutPort,
    UpstreamLocal(AddressForm),
    UpstreamLocalClose,
    UpstreamProtocol,
    UpstreamRequestAttemptCount,
    UpstreamTlsCipher,
    UpstreamTlsVersion,
    UpstreamTransportFailureReason,
    UpstreamWireBytesReceived,
    UpstreamWireBytesSent,
}

/// Whose metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataOf {
    /// What filters have left of the stream.
    Dynamic,
    /// The listener's.
    Listener,
    /// The filter chain's.
    FilterChain,
    /// The virtual host's.
    VirtualHost,
    /// The route's.
    Route,
    /// The cluster's.
    Cluster,
    /// The upstream host's.
    Endpoint,
}

/// Which part of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressForm {
    /// `10.0.0.1:80`.
    Whole,
    /// `10.0.0.1`.
    WithoutPort,
    /// `10.0.0.0/8`: the network of so many bits that it is in.
    Network(u8),
    /// `80`.
    Port,
}

/// Which name of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// `SNI_ONLY`.
    Sni,
    /// `SNI_FIRST`.
    SniFirst(Source),
    /// `HOST_FIRST`.
    HostFirst(Source),
}

/// Which certificate of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The client's.
    Peer,
    /// What the client was shown.
    Local,
}

/// What is asked of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Subject,
    Issuer,
    Serial,
    Fingerprint,
    Uris,
    Domains,
    Emails,
    Addresses,
    Others,
}

/// An end of the time in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Start,
    End,
}

/// What is asked of a client's TLS beside its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfTls {
    /// `DOWNSTREAM_TLS_VERSION`.
    Version,
    /// `DOWNSTREAM_TLS_CIPHER`.
    Cipher,
    /// `DOWNSTREAM_TLS_GROUP`.
    Group,
    /// `DOWNSTREAM_PEER_CERT`.
    PeerPem,
    /// `DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256`.
    ChainFingerprints,
    /// `DOWNSTREAM_PEER_FINGERPRINT_1`.
    OldFingerprint,
    /// `DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1`.
    OldFingerprints,
    /// `DOWNSTREAM_PEER_CHAIN_SERIALS`.
    ChainSerials,
    /// `DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256`.
    IssuerFingerprint,
    /// `DOWNSTREAM_PEER_ISSUER_SERIAL`.
    IssuerSerial,
    /// `DOWNSTREAM_TLS_SESSION_ID`.
    SessionId,
    /// `UPSTREAM_SERVER_NAME`.
    AskedName,
}

/// How a client's TLS is told from others'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Print {
    Ja3,
    Ja4,
}

/// Which value of something that a route may rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `ORIG`: what the client sent, if that was rewritten.
    Original,
    /// `PATH` or `HOST`: what is sent upstream.
    Current,
    /// `ORIG_OR_PATH` or `ORIG_OR_HOST`: what the client sent.
    OriginalOrCurrent,
}

/// How a gRPC status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrpcForm {
    /// `DeadlineExceeded`.
    Camel,
    /// `DEADLINE_EXCEEDED`.
    Snake,
    /// `4`.
    Number,
}

/// A moment of `COMMON_DURATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimePoint {
    /// `DS_RX_BEG`: the first byte of the request came.
    RequestStart,
    /// `DS_RX_END`: the last byte of the request came.
    RequestEnd,
    /// `US_CX_BEG`: the upstream connect began.
    ConnectStart,
    /// `US_CX_END`: the upstream connect ended.
    ConnectEnd,
    /// `US_TX_BEG`: the first byte went upstream.
    UpstreamSendStart,
    /// `US_TX_END`: the last byte went upstream.
    UpstreamSendEnd,
    /// `US_RX_BEG`: the first byte came from upstream.
    UpstreamReceiveStart,
    /// `US_RX_END`: the last byte came from upstream.
    UpstreamReceiveEnd,
    /// `DS_TX_BEG`: the first byte of the response went out.
    ResponseStart,
    /// `DS_TX_END`: the last byte of the response went out.
    ResponseEnd,
    /// `US_HS_END`: the TLS handshake with the upstream ended.
    HandshakeEnd,
    /// `US_RX_BODY_BEG`: the first byte of content came from upstream.
    UpstreamContentStart,
    /// `DS_CX_BEG`: the client's connection was accepted.
    ClientStart,
    /// `DS_CX_END`: the client's connection ended, and the stream with it.
    ClientEnd,
    /// `DS_HS_BEG`: the first byte of the client's TLS handshake came.
    ClientHandshakeStart,
    /// `DS_HS_END`: the TLS handshake with the client ended.
    ClientHandshakeEnd,
}

/// What may stand beside a command's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    /// Nothing.
    Alone,
    /// A parameter, if wanted.
    Takes,
    /// A parameter and a length, if wanted.
    TakesAll,
    /// A parameter, and a length if wanted.
    Needs,
}

/// What a name stands for.
pub(super) enum Lookup {
    Command(Usage, fn(&str) -> Result<Command, String>),
    Unknown,
}

/// What may be configured, by name: a function that finds it and a list of the names.
macro_rules! commands {
    ($($($name:literal)|+ => $lookup:expr,)+) => {
        fn configurable(name: &str) -> Option<Lookup> {
            use AddressForm::{Port, Whole};
            use Usage::{Alone, Needs, Takes, TakesAll};
            Some(match name {
                $($($name)|+ => $lookup,)+
                _ => return None,
            })
        }

        const NAMES: &[&str] = &[$($($name),+),+];
    };
}

macro_rules! alone {
    ($command:expr) => {
        Lookup::Command(Alone, |_| Ok($command))
    };
}

/// How long heads are, on the wire or before they are compressed.
macro_rules! headers {
    ($of:ident, $decompressed:literal) => {
        alone!(Command::HeaderBytes { of: Heads::$of, decompressed: $decompressed })
    };
}

/// An address without its port, of which a parameter may take the first bits.
macro_rules! without_port {
    ($command:path) => {
        Lookup::Command(Takes, |p| without_port(p).map($command))
    };
}

commands! {
    "REQ" | "REQUEST_HEADER" => Lookup::Command(Needs, |p| fields(p).map(|(a, b)| Command::Request(a, b))),
    "REQ_WITHOUT_QUERY" => {
        Lookup::Command(Needs, |p| fields(p).map(|(a, b)| Command::RequestWithoutQuery(a, b)))
    },
    "RESP" | "RESPONSE_HEADER" => Lookup::Command(Needs, |p| fields(p).map(|(a, b)| Command::Response(a, b))),
    "TRAILER" | "RESPONSE_TRAILER" => Lookup::Command(Needs, |p| fields(p).map(|(a, b)| Command::Trailer(a, b))),
    "START_TIME" => Lookup::Command(Takes, |p| TimeFormat::new(p).map(Command::StartTime)),
    "EMIT_TIME" => Lookup::Command(Takes, |p| TimeFormat::new(p).map(Command::EmitTime)),
    "START_TIME_LOCAL" => Lookup::Command(Takes, |p| TimeFormat::local(p).map(Command::StartTime)),
    "EMIT_TIME_LOCAL" => Lookup::Command(Takes, |p| TimeFormat::local(p).map(Command::EmitTime)),
    "COALESCE" => Lookup::Command(Needs, |_| Ok(Command::Coalesce(Box::default()))),
    "ENVIRONMENT" => Lookup::Command(Needs, |p| Ok(Command::Environment(p.to_owned()))),
    "RESPONSE_CODE_DETAILS" => Lookup::Command(Takes, |p| {
        Ok(Command::ResponseCodeDetails { spaces: p == "ALLOW_WHITESPACES" })
    }),
    "COMMON_DURATION" => Lookup::Command(Needs, common_duration),
    "GRPC_STATUS" => Lookup::Command(TakesAll, |p| match p {
        "" | "CAMEL_STRING" => Ok(Command::GrpcStatus(GrpcForm::Camel)),
        "SNAKE_STRING" => Ok(Command::GrpcStatus(GrpcForm::Snake)),
        "NUMBER" => Ok(Command::GrpcStatus(GrpcForm::Number)),
        _ => Err("only CAMEL_STRING, SNAKE_STRING or NUMBER are known".to_owned()),
    }),
    "GRPC_STATUS_NUMBER" => alone!(Command::GrpcStatus(GrpcForm::Number)),
    "PATH" => Lookup::Command(TakesAll, path),
    "QUERY_PARAM" => Lookup::Command(Needs, |p| Ok(Command::QueryParam(p.as_bytes().into()))),
    "QUERY_PARAMS" => Lookup::Command(TakesAll, |p| match p {
        "" | "ORIG" => Ok(Command::QueryParams),
        _ => Err("only ORIG is supported".to_owned()),
    }),
    "REQUESTED_SERVER_NAME" => Lookup::Command(Takes, requested_server_name),
    "ACCESS_LOG_TYPE" => alone!(Command::AccessLogType),
    "BYTES_RECEIVED" => alone!(Command::BytesReceived),
    "BYTES_SENT" => alone!(Command::BytesSent),
    "CONNECTION_ID" => alone!(Command::ConnectionId),
    "CONNECTION_TERMINATION_DETAILS" => alone!(Command::ConnectionTerminationDetails),
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED" => headers!(DownstreamReceived, true),
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT" => headers!(DownstreamSent, true),
    "DOWNSTREAM_DETECTED_CLOSE_TYPE" => alone!(Command::DownstreamCloseType),
    "DOWNSTREAM_HANDSHAKE_DURATION" => alone!(Command::DownstreamHandshake),
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON" => alone!(Command::DownstreamTransportFailure),
    "DOWNSTREAM_HEADER_BYTES_RECEIVED" => headers!(DownstreamReceived, false),
    "DOWNSTREAM_HEADER_BYTES_SENT" => headers!(DownstreamSent, false),
    "DOWNSTREAM_LOCAL_CLOSE_REASON" => alone!(Command::DownstreamLocalClose),
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS" | "DOWNSTREAM_LOCAL_ADDRESS" => {
        alone!(Command::DownstreamLocal(Whole))
    },
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT"
    | "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT" => without_port!(Command::DownstreamLocal),
    "DOWNSTREAM_DIRECT_LOCAL_PORT" | "DOWNSTREAM_LOCAL_PORT" => {
        alone!(Command::DownstreamLocal(Port))
    },
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS" => alone!(Command::DownstreamDirectRemote(Whole)),
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT" => {
        without_port!(Command::DownstreamDirectRemote)
    },
    "DOWNSTREAM_DIRECT_REMOTE_PORT" => alone!(Command::DownstreamDirectRemote(Port)),
    "DOWNSTREAM_REMOTE_ADDRESS" => alone!(Command::DownstreamRemote(Whole)),
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => without_port!(Command::DownstreamRemote),
    "DOWNSTREAM_REMOTE_PORT" => alone!(Command::DownstreamRemote(Port)),
    "DOWNSTREAM_WIRE_BYTES_RECEIVED" => alone!(Command::DownstreamWireBytesReceived),
    "DOWNSTREAM_WIRE_BYTES_SENT" => alone!(Command::DownstreamWireBytesSent),
    "DURATION" => alone!(Command::Duration),
    "FILTER_CHAIN_NAME" => alone!(Command::FilterChainName),
    "HOSTNAME" => alone!(Command::Hostname),
    "LISTENER_NAME" => alone!(Command::ListenerName),
    "LOCAL_REPLY_BODY" => alone!(Command::LocalReplyBody),
    "PROTOCOL" => alone!(Command::Protocol),
    "REQUEST_DURATION" => alone!(Command::RequestDuration),
    "REQUEST_HEADERS_BYTES" => alone!(Command::RequestHeadersBytes),
    "REQUEST_TX_DURATION" => alone!(Command::RequestTxDuration),
    "RESPONSE_CODE" => alone!(Command::ResponseCode),
    "RESPONSE_DURATION" => alone!(Command::ResponseDuration),
    "RESPONSE_FLAGS" => alone!(Command::ResponseFlags),
    "RESPONSE_FLAGS_LONG" => alone!(Command::ResponseFlagsLong),
    "RESPONSE_HEADERS_BYTES" => alone!(Command::ResponseHeadersBytes),
    "RESPONSE_TRAILERS_BYTES" => alone!(Command::ResponseTrailersBytes),
    "RESPONSE_TX_DURATION" => alone!(Command::ResponseTxDuration),
    "ROUTE_RESOLUTION_COUNT" => alone!(Command::RouteLookups),
    "ROUTE_RESOLUTION_TIME_US" => alone!(Command::RouteLookupTime),
    "ROUTE_NAME" => alone!(Command::RouteName),
    "STREAM_ID" => alone!(Command::StreamId),
    "UPSTREAM_CLUSTER" => alone!(Command::UpstreamCluster),
    "UPSTREAM_CLUSTER_RAW" => alone!(Command::UpstreamClusterRaw),
    "UPSTREAM_CONNECTION_ID" => alone!(Command::UpstreamConnectionId),
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED" => headers!(UpstreamReceived, true),
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT" => headers!(UpstreamSent, true),
    "UPSTREAM_DETECTED_CLOSE_TYPE" => alone!(Command::UpstreamCloseType),
    "UPSTREAM_HEADER_BYTES_RECEIVED" => headers!(UpstreamReceived, false),
    "UPSTREAM_HEADER_BYTES_SENT" => headers!(UpstreamSent, false),
    "UPSTREAM_LOCAL_CLOSE_REASON" => alone!(Command::UpstreamLocalClose),
    "UPSTREAM_HOST" => alone!(Command::UpstreamHost),
    "UPSTREAM_REMOTE_ADDRESS" => alone!(Command::UpstreamRemote(Whole)),
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" => without_port!(Command::UpstreamRemote),
    "UPSTREAM_REMOTE_PORT" => alone!(Command::UpstreamRemote(Port)),
    "UPSTREAM_HOST_NAME" => alone!(Command::UpstreamHostName),
    "UPSTREAM_HOST_NAME_WITHOUT_PORT" => alone!(Command::UpstreamHostNameWithoutPort),
    "UPSTREAM_LOCAL_ADDRESS" => alone!(Command::UpstreamLocal(Whole)),
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT" => without_port!(Command::UpstreamLocal),
    "UPSTREAM_LOCAL_PORT" => alone!(Command::UpstreamLocal(Port)),
    "UPSTREAM_PROTOCOL" => alone!(Command::UpstreamProtocol),
    "UPSTREAM_REQUEST_ATTEMPT_COUNT" => alone!(Command::UpstreamRequestAttemptCount),
    "UPSTREAM_TRANSPORT_FAILURE_REASON" => alone!(Command::UpstreamTransportFailureReason),
    "UPSTREAM_TLS_CIPHER" => alone!(Command::UpstreamTlsCipher),
    "UPSTREAM_TLS_VERSION" => alone!(Command::UpstreamTlsVersion),
    "UPSTREAM_WIRE_BYTES_RECEIVED" => alone!(Command::UpstreamWireBytesReceived),
    "UPSTREAM_WIRE_BYTES_SENT" => alone!(Command::UpstreamWireBytesSent),
    "DYNAMIC_METADATA" => Lookup::Command(Needs, |p| Ok(metadata_of(MetadataOf::Dynamic, p))),
    "CLUSTER_METADATA" => Lookup::Command(Takes, |p| Ok(metadata_of(MetadataOf::Cluster, p))),
    "UPSTREAM_METADATA" => Lookup::Command(Takes, |p| Ok(metadata_of(MetadataOf::Endpoint, p))),
    "METADATA" => Lookup::Command(Needs, metadata),
    "UNIQUE_ID" => alone!(Command::UniqueId),
    "UPSTREAM_HOSTS_ATTEMPTED" => alone!(Command::HostsAttempted(Whole)),
    "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT" => {
        alone!(Command::HostsAttempted(AddressForm::WithoutPort))
    },
    "UPSTREAM_HOST_NAMES_ATTEMPTED" => alone!(Command::HostNamesAttempted { ports: true }),
    "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT" => {
        alone!(Command::HostNamesAttempted { ports: false })
    },
    "UPSTREAM_CONNECTION_IDS_ATTEMPTED" => alone!(Command::ConnectionIdsAttempted),
    "UPSTREAM_CONNECTION_POOL_READY_DURATION" => {
        alone!(Command::UpstreamConnectionPoolReadyDuration)
    },
    "TRACE_ID" => alone!(Command::TraceId),
    "SPAN_ID" => alone!(Command::SpanId),
    // Of QUIC alone, which is not spoken here.
    "BYTES_RETRANSMITTED" | "DOWNSTREAM_CX_RTT" | "PACKETS_RETRANSMITTED" => alone!(Command::Zero),
    "FILTER_STATE" => Lookup::Command(Needs, filter_state),
    "CEL" => Lookup::Command(Needs, |p| cel(p, false)),
    "TYPED_CEL" => Lookup::Command(Needs, |p| cel(p, true)),
    // No filter that sets it can be configured.
    "UPSTREAM_FILTER_STATE" => {
        Lookup::Command(Needs, |_| Ok(Command::Absent))
    },
    "DOWNSTREAM_LOCAL_DNS_SAN" => alone!(Command::Certificate(Shown::Local, Said::Domains)),
    "DOWNSTREAM_LOCAL_EMAIL_SAN" => alone!(Command::Certificate(Shown::Local, Said::Emails)),
    "DOWNSTREAM_LOCAL_IP_SAN" => alone!(Command::Certificate(Shown::Local, Said::Addresses)),
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN" => alone!(Command::Certificate(Shown::Local, Said::Others)),
    "DOWNSTREAM_LOCAL_SUBJECT" => alone!(Command::Certificate(Shown::Local, Said::Subject)),
    "DOWNSTREAM_LOCAL_URI_SAN" => alone!(Command::Certificate(Shown::Local, Said::Uris)),
    "DOWNSTREAM_PEER_DNS_SAN" => alone!(Command::Certificate(Shown::Peer, Said::Domains)),
    "DOWNSTREAM_PEER_EMAIL_SAN" => alone!(Command::Certificate(Shown::Peer, Said::Emails)),
    "DOWNSTREAM_PEER_FINGERPRINT_256" => {
        alone!(Command::Certificate(Shown::Peer, Said::Fingerprint))
    },
    "DOWNSTREAM_PEER_IP_SAN" => alone!(Command::Certificate(Shown::Peer, Said::Addresses)),
    "DOWNSTREAM_PEER_ISSUER" => alone!(Command::Certificate(Shown::Peer, Said::Issuer)),
    "DOWNSTREAM_PEER_OTHERNAME_SAN" => alone!(Command::Certificate(Shown::Peer, Said::Others)),
    "DOWNSTREAM_PEER_SERIAL" => alone!(Command::Certificate(Shown::Peer, Said::Serial)),
    "DOWNSTREAM_PEER_SUBJECT" => alone!(Command::Certificate(Shown::Peer, Said::Subject)),
    "DOWNSTREAM_PEER_URI_SAN" => alone!(Command::Certificate(Shown::Peer, Said::Uris)),
    "DOWNSTREAM_PEER_CERT" => alone!(Command::DownstreamTls(OfTls::PeerPem)),
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256" => {
        alone!(Command::DownstreamTls(OfTls::ChainFingerprints))
    },
    "DOWNSTREAM_PEER_FINGERPRINT_1" => alone!(Command::DownstreamTls(OfTls::OldFingerprint)),
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1" => {
        alone!(Command::DownstreamTls(OfTls::OldFingerprints))
    },
    "DOWNSTREAM_PEER_CHAIN_SERIALS" => alone!(Command::DownstreamTls(OfTls::ChainSerials)),
    "DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256" => {
        alone!(Command::DownstreamTls(OfTls::IssuerFingerprint))
    },
    "DOWNSTREAM_PEER_ISSUER_SERIAL" => alone!(Command::DownstreamTls(OfTls::IssuerSerial)),
    "DOWNSTREAM_PEER_CERT_V_END" => {
        Lookup::Command(Takes, |p| TimeFormat::new(p).map(|it| Command::PeerValidity(Bound::End, it)))
    },
    "DOWNSTREAM_PEER_CERT_V_START" => {
        Lookup::Command(Takes, |p| TimeFormat::new(p).map(|it| Command::PeerValidity(Bound::Start, it)))
    },
    "DOWNSTREAM_TLS_CIPHER" => alone!(Command::DownstreamTls(OfTls::Cipher)),
    "DOWNSTREAM_TLS_GROUP" => alone!(Command::DownstreamTls(OfTls::Group)),
    "DOWNSTREAM_TLS_SESSION_ID" => alone!(Command::DownstreamTls(OfTls::SessionId)),
    "DOWNSTREAM_TLS_VERSION" => alone!(Command::DownstreamTls(OfTls::Version)),
    "UPSTREAM_LOCAL_DNS_SAN" => alone!(Command::UpstreamCertificate(Shown::Local, Said::Domains)),
    "UPSTREAM_LOCAL_IP_SAN" => alone!(Command::UpstreamCertificate(Shown::Local, Said::Addresses)),
    "UPSTREAM_LOCAL_URI_SAN" => alone!(Command::UpstreamCertificate(Shown::Local, Said::Uris)),
    "UPSTREAM_PEER_CERT" => alone!(Command::UpstreamTls(OfTls::PeerPem)),
    "UPSTREAM_PEER_DNS_SAN" => alone!(Command::UpstreamCertificate(Shown::Peer, Said::Domains)),
    "UPSTREAM_PEER_IP_SAN" => alone!(Command::UpstreamCertificate(Shown::Peer, Said::Addresses)),
    "UPSTREAM_PEER_ISSUER" => alone!(Command::UpstreamCertificate(Shown::Peer, Said::Issuer)),
    "UPSTREAM_PEER_SUBJECT" => alone!(Command::UpstreamCertificate(Shown::Peer, Said::Subject)),
    "UPSTREAM_PEER_URI_SAN" => alone!(Command::UpstreamCertificate(Shown::Peer, Said::Uris)),
    "UPSTREAM_SERVER_NAME" => alone!(Command::UpstreamTls(OfTls::AskedName)),
    "UPSTREAM_TLS_GROUP" => alone!(Command::UpstreamTls(OfTls::Group)),
    "UPSTREAM_TLS_SESSION_ID" => alone!(Command::UpstreamTls(OfTls::SessionId)),
    "UPSTREAM_PEER_CERT_V_END" => {
        Lookup::Command(Takes, |p| {
            TimeFormat::new(p).map(|it| Command::UpstreamPeerValidity(Bound::End, it))
        })
    },
    "UPSTREAM_PEER_CERT_V_START" => {
        Lookup::Command(Takes, |p| {
            TimeFormat::new(p).map(|it| Command::UpstreamPeerValidity(Bound::Start, it))
        })
    },
    "TLS_JA3_FINGERPRINT" => alone!(Command::Fingerprint(Print::Ja3)),
    "TLS_JA4_FINGERPRINT" => alone!(Command::Fingerprint(Print::Ja4)),
    "VIRTUAL_CLUSTER_NAME" => alone!(Command::VirtualClusterName),
    "ROUNDTRIP_DURATION" => alone!(Command::Absent),
    "CUSTOM_FLAGS"
    | "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID"
    | "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID"
    | "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID" => alone!(Command::Empty),
}

/// Finds a command by its name.
pub(super) fn lookup(name: &str) -> Lookup {
    configurable(name).unwrap_or(Lookup::Unknown)
}

/// The names of all commands that can be configured.
pub fn command_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied()
}

/// `MAIN` or `MAIN?OTHER`.
fn fields(parameter: &str) -> Result<(Field, Option<Field>), String> {
    let field = |name: &str| Field::parse(name).ok_or_else(|| format!("'{name}' is not a header"));
    let (main, other) = match parameter.split_once('?') {
        Some((_, other)) if other.contains('?') => {
            return Err("more than one alternative".to_owned());
        }
        Some((main, other)) => (main, Some(field(other)?)),
        None => (parameter, None),
    };
    Ok((field(main)?, other))
}

fn common_duration(parameter: &str) -> Result<Command, String> {
    let mut words = parameter.split(':');
    let mut point = || {
        let name = words.next().unwrap_or_default();
        TimePoint::parse(name).ok_or_else(|| format!("'{name}' is no point in time"))
    };
    let (from, to) = (point()?, point()?);
    let unit = match words.next() {
        None | Some("ms") => 1_000_000,
        Some("us") => 1000,
        Some("ns") => 1,
        Some(other) => return Err(format!("'{other}' is not ms, us or ns")),
    };
    match words.next() {
        None => Ok(Command::CommonDuration(from, to, unit)),
        Some(_) => Err("only START:END:PRECISION is understood".to_owned()),
    }
}

fn cel(text: &str, typed: bool) -> Result<Command, String> {
    let expression = Expression::parse(text).map_err(|error| error.to_string())?;
    Ok(Command::Cel { expression, typed })
}

/// An address without its port, or its network of so many bits.
fn without_port(parameter: &str) -> Result<AddressForm, String> {
    if parameter.is_empty() {
        return Ok(AddressForm::WithoutPort);
    }
    let bits = parameter.parse().ok().filter(|bits| *bits <= 128);
    let bits =
        bits.ok_or_else(|| format!("'{parameter}' is not the length of a prefix (0 to 128)"))?;
    Ok(AddressForm::Network(bits))
}

fn path(parameter: &str) -> Result<Command, String> {
    let (query, which) = parameter.split_once(':').unwrap_or((parameter, ""));
    let query = match query {
        "" | "WQ" => true,
        "NQ" => false,
        _ => return Err("only WQ or NQ are known".to_owned()),
    };
    let source = match which {
        "" | "ORIG_OR_PATH" => Source::OriginalOrCurrent,
        "ORIG" => Source::Original,
        "PATH" => Source::Current,
        _ => return Err("only ORIG, PATH or ORIG_OR_PATH are known".to_owned()),
    };
    Ok(Command::Path { query, source })
}

/// `NAMESPACE:KEY:…`.
fn metadata_of(whose: MetadataOf, parameter: &str) -> Command {
    let mut words = parameter.split(':').map(Box::from);
    let namespace = words.next().unwrap_or_default();
    Command::Metadata(whose, namespace, words.collect())
}

/// `WHOSE:NAMESPACE:KEY:…`.
fn metadata(parameter: &str) -> Result<Command, String> {
    let (whose, rest) = parameter.split_once(':').unwrap_or((parameter, ""));
    let whose = match whose {
        "DYNAMIC" => MetadataOf::Dynamic,
        "LISTENER" => MetadataOf::Listener,
        "LISTENER_FILTER_CHAIN" => MetadataOf::FilterChain,
        "VIRTUAL_HOST" => MetadataOf::VirtualHost,
        "ROUTE" => MetadataOf::Route,
        "CLUSTER" => MetadataOf::Cluster,
        "UPSTREAM_HOST" => MetadataOf::Endpoint,
        _ => {
            let known = "DYNAMIC, LISTENER, LISTENER_FILTER_CHAIN, VIRTUAL_HOST, ROUTE, CLUSTER or UPSTREAM_HOST";
            return Err(format!("only metadata of {known} are known"));
        }
    };
    Ok(metadata_of(whose, rest))
}

/// `NAME`, `NAME:PLAIN`, `NAME:TYPED` or `NAME:FIELD:KEY`.
fn filter_state(parameter: &str) -> Result<Command, String> {
    let mut words = parameter.splitn(3, ':');
    let name = words.next().unwrap_or_default();
    let form = match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
        ("PLAIN", "") => StateForm::Plain,
        ("" | "TYPED", "") => StateForm::Typed,
        ("FIELD", key) if !key.is_empty() => StateForm::Field(key.into()),
        ("PLAIN" | "TYPED" | "FIELD", _) => {
            return Err("the name of a field stands behind FIELD, and there only".to_owned());
        }
        _ => return Err("only PLAIN, TYPED or FIELD are known".to_owned()),
    };
    if name.is_empty() {
        return Err("the name of an object is missing".to_owned());
    }
    Ok(Command::FilterState { name: name.into(), form })
}

/// `X:Y`: what is asked, and which host stands in.
fn requested_server_name(parameter: &str) -> Result<Command, String> {
    let (asked, which) = parameter.split_once(':').unwrap_or((parameter, ""));
    let source = match which {
        "" | "ORIG_OR_HOST" => Source::OriginalOrCurrent,
        "ORIG" => Source::Original,
        "HOST" => Source::Current,
        _ => return Err("only ORIG, HOST or ORIG_OR_HOST are known".to_owned()),
    };
    match asked {
        "" | "SNI_ONLY" => Ok(Command::RequestedServerName(Asked::Sni)),
        "SNI_FIRST" => Ok(Command::RequestedServerName(Asked::SniFirst(source))),
        "HOST_FIRST" => Ok(Command::RequestedServerName(Asked::HostFirst(source))),
        _ => Err("only SNI_ONLY, SNI_FIRST or HOST_FIRST are known".to_owned()),
    }
}

impl TimePoint {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "DS_RX_BEG" => Self::RequestStart,
            "DS_RX_END" => Self::RequestEnd,
            "US_CX_BEG" => Self::ConnectStart,
            "US_CX_END" => Self::ConnectEnd,
            "US_HS_END" => Self::HandshakeEnd,
            "US_RX_BODY_BEG" => Self::UpstreamContentStart,
            "DS_CX_BEG" => Self::ClientStart,
            "DS_CX_END" => Self::ClientEnd,
            "DS_HS_BEG" => Self::ClientHandshakeStart,
            "DS_HS_END" => Self::ClientHandshakeEnd,
            "US_TX_BEG" => Self::UpstreamSendStart,
            "US_TX_END" => Self::UpstreamSendEnd,
            "US_RX_BEG" => Self::UpstreamReceiveStart,
            "US_RX_END" => Self::UpstreamReceiveEnd,
            "DS_TX_BEG" => Self::ResponseStart,
            "DS_TX_END" => Self::ResponseEnd,
            _ => return None,
        })
    }
}

impl Command {
    /// Whether it asks what is shown on a connection to a cluster under TLS.
    pub(super) const fn asks_upstream_tls(&self) -> bool {
        matches!(
            self,
            Self::UpstreamCertificate(..) | Self::UpstreamPeerValidity(..) | Self::UpstreamTls(_)
        )
    }

    /// Whether it, or one of those among which it chooses, is such a one.
    pub(super) fn is_any(&self, wanted: fn(&Self) -> bool) -> bool {
        if let Self::Coalesce(parts) = self {
            return parts.iter().any(|part| part.has(wanted));
        }
        wanted(self)
    }
}
