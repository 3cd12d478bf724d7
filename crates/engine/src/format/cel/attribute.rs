//! Attributes of a stream, by the names that Envoy's documentation lists under "Attributes".

use std::borrow::Cow;

use towpath_proto::tls;
use towpath_proto::{Address, Head, Instant, Name};

use super::Value;
use crate::format::Facts;
use crate::record::{Record, ShownCertificate};
use crate::stream_info::Struct;

/// Declares the attributes with their names.
macro_rules! attributes {
    ($($name:literal => $attribute:ident,)+) => {
        /// An attribute of a stream.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Attribute {
            $(#[doc = concat!("`", $name, "`.")] $attribute,)+
        }

        const ALL: &[(&str, Attribute)] = &[$(($name, Attribute::$attribute),)+];
    };
}

attributes! {
    "request.path" => Path,
    "request.url_path" => UrlPath,
    "request.query" => Query,
    "request.host" => Host,
    "request.scheme" => Scheme,
    "request.method" => Method,
    "request.headers" => Headers,
    "request.headers_bytes" => HeadersBytes,
    "request.referer" => Referer,
    "request.useragent" => UserAgent,
    "request.time" => Time,
    "request.id" => Id,
    "request.protocol" => Protocol,
    "request.duration" => Duration,
    "request.size" => Size,
    "request.total_size" => TotalSize,
    "response.code" => Code,
    "response.code_details" => CodeDetails,
    "response.flags" => Flags,
    "response.grpc_status" => GrpcStatus,
    "response.headers" => ResponseHeaders,
    "response.headers_bytes" => ResponseHeadersBytes,
    "response.trailers" => Trailers,
    "response.size" => ResponseSize,
    "response.total_size" => ResponseTotalSize,
    "response.backend_latency" => BackendLatency,
    "source.address" => SourceAddress,
    "source.port" => SourcePort,
    "destination.address" => DestinationAddress,
    "destination.port" => DestinationPort,
    "connection.id" => ConnectionId,
    "connection.mtls" => IsMutual,
    "connection.requested_server_name" => ServerName,
    "connection.tls_version" => TlsVersion,
    "connection.subject_local_certificate" => SubjectLocal,
    "connection.subject_peer_certificate" => SubjectPeer,
    "connection.uri_san_local_certificate" => UriLocal,
    "connection.uri_san_peer_certificate" => UriPeer,
    "connection.dns_san_local_certificate" => DnsLocal,
    "connection.dns_san_peer_certificate" => DnsPeer,
    "connection.sha256_peer_certificate_digest" => DigestPeer,
    "connection.peer_certificate" => PeerCertificate,
    "connection.termination_details" => TerminationDetails,
    "upstream.address" => UpstreamAddress,
    "upstream.port" => UpstreamPort,
    "upstream.local_address" => UpstreamLocalAddress,
    "upstream.transport_failure_reason" => UpstreamFailureReason,
    "upstream.request_attempt_count" => AttemptCount,
    "upstream.cx_pool_ready_duration" => PoolReadyDuration,
    "upstream.tls_version" => UpstreamTlsVersion,
    "metadata" => Metadata,
    "filter_state" => FilterState,
    "xds.cluster_name" => ClusterName,
    "xds.cluster_metadata" => ClusterMetadata,
    "xds.route_name" => RouteName,
    "xds.route_metadata" => RouteMetadata,
    "xds.virtual_host_name" => VirtualHostName,
    "xds.virtual_host_metadata" => VirtualHostMetadata,
    "xds.upstream_host_metadata" => HostMetadata,
    "xds.filter_chain_name" => FilterChainName,
    "xds.listener_metadata" => ListenerMetadata,
}

impl Attribute {
    /// By its name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        ALL.iter().find(|(known, _)| *known == name).map(|(_, attribute)| *attribute)
    }

    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|(name, _)| *name)
    }

    /// What a stream has of it. Of the filter state it has nothing to say: objects are looked up by their names.
    #[must_use]
    pub fn value<'a>(self, facts: &Facts<'a>) -> Option<Value<'a>> {
        // Each knows its own, and has nothing to say of the others.
        self.of_request(facts)
            .or_else(|| self.of_response(facts))
            .or_else(|| self.of_ends(facts.record))
            .or_else(|| self.of_connection(facts.record))
            .or_else(|| self.of_configuration(facts))
    }

    fn of_request<'a>(self, facts: &Facts<'a>) -> Option<Value<'a>> {
        let (record, head) = (facts.record, facts.request);
        let heading = || head.map_or(0, Head::byte_size) as u64;
        match self {
            Self::Path => text(head?.path()),
            Self::UrlPath => text(halves(head?.path()).0),
            Self::Query => text(halves(head?.path()).1),
            Self::Host => text(head?.authority()),
            Self::Scheme => text(head?.scheme()),
            Self::Method => text(head?.method_bytes()),
            Self::Headers => Some(Value::Fields(head)),
            Self::HeadersBytes => int(heading()),
            Self::Referer => text(head?.get(Name::Referer)?),
            Self::UserAgent => text(head?.get(Name::UserAgent)?),
            Self::Time => {
                Some(Value::Time(facts.epoch_unix_ns.wrapping_add(record.start.as_nanos())))
            }
            Self::Id => text(head?.get(Name::XRequestId)?),
            Self::Protocol => {
                let version = record.protocol.or_else(|| Some(head?.version()))?;
                Some(Value::text(version.as_str()))
            }
            Self::Duration => between(Some(record.start), record.end),
            Self::Size => match head.and_then(|head| head.get(Name::ContentLength)) {
                Some(length) => std::str::from_utf8(length).ok()?.parse().ok().map(Value::Int),
                None => int(record.bytes_received),
            },
            Self::TotalSize => int(record.bytes_received + heading()),
            _ => None,
        }
    }

    fn of_response<'a>(self, facts: &Facts<'a>) -> Option<Value<'a>> {
        let (record, head, trailers) = (facts.record, facts.response, facts.trailers);
        let size = |head: Option<&Head>| head.map_or(0, Head::byte_size) as u64;
        match self {
            Self::Code if record.status == 0 => None,
            Self::Code => int(record.status.into()),
            Self::CodeDetails => named(record.details),
            Self::Flags => int(record.flags.0.into()),
            Self::GrpcStatus => facts.grpc_status().map(Value::Int),
            Self::ResponseHeaders => Some(Value::Fields(head)),
            Self::ResponseHeadersBytes => int(size(head)),
            Self::Trailers => Some(Value::Fields(trailers)),
            Self::ResponseSize => int(record.bytes_sent),
            Self::ResponseTotalSize => {
                let trailers = trailers.map_or(0, Head::field_bytes) as u64;
                int(record.bytes_sent + size(head) + trailers)
            }
            Self::BackendLatency => {
                between(record.upstream_first_sent, record.upstream_last_received)
            }
            _ => None,
        }
    }

    fn of_ends(self, record: &Record) -> Option<Value<'_>> {
        match self {
            Self::SourceAddress => address(record.downstream_remote.as_ref()),
            Self::SourcePort => port(record.downstream_remote.as_ref()),
            Self::DestinationAddress => address(record.downstream_local.as_ref()),
            Self::DestinationPort => port(record.downstream_local.as_ref()),
            Self::UpstreamAddress => address(record.upstream_host.as_ref()),
            Self::UpstreamPort => port(record.upstream_host.as_ref()),
            Self::UpstreamLocalAddress => address(record.upstream_local.as_ref()),
            Self::AttemptCount => Some(Value::Uint(record.attempts.into())),
            Self::PoolReadyDuration => {
                record.pool_wait().map(|wait| Value::Duration(nanos(wait.as_nanos())))
            }
            Self::UpstreamTlsVersion => {
                record.upstream_tls.as_ref().map(|tls| Value::text(tls.version.name()))
            }
            _ => None,
        }
    }

    fn of_connection(self, record: &Record) -> Option<Value<'_>> {
        let tls = record.downstream_tls.as_deref();
        let peer = || tls?.peer.as_ref();
        let own = || tls?.own.as_ref();
        let first =
            |names: &'_ [Box<[u8]>]| names.first().map(|name| Value::Text(name.to_vec().into()));
        let subject = |it: &ShownCertificate| Value::Text(it.subject.clone().into_bytes().into());
        match self {
            Self::ConnectionId => Some(Value::Uint(record.connection)),
            Self::IsMutual => Some(Value::Bool(peer().is_some())),
            Self::ServerName => {
                Some(Value::text(record.server_name.as_deref().unwrap_or_default()))
            }
            Self::TlsVersion => {
                tls.map(|tls| Value::text(tls.version.map_or("", tls::Version::name)))
            }
            Self::SubjectLocal => tls.map(|_| own().map_or_else(|| Value::text(""), subject)),
            Self::SubjectPeer => tls.map(|_| peer().map_or_else(|| Value::text(""), subject)),
            Self::UriLocal => first(&own()?.uris),
            Self::UriPeer => first(&peer()?.uris),
            Self::DnsLocal => first(&own()?.domains),
            Self::DnsPeer => first(&peer()?.domains),
            Self::DigestPeer => Some(Value::Text(peer()?.fingerprint.clone().into_bytes().into())),
            Self::PeerCertificate => {
                peer()?;
                let mut pem = Vec::new();
                tls?.write_peer_pem(&mut pem);
                Some(Value::Text(pem.into()))
            }
            Self::TerminationDetails => named(record.termination),
            _ => None,
        }
    }

    fn of_configuration<'a>(self, facts: &Facts<'a>) -> Option<Value<'a>> {
        let told = |metadata: Option<&'a Struct>| {
            Some(Value::Metadata(metadata.map_or_else(Cow::default, Cow::Borrowed)))
        };
        match self {
            Self::Metadata => {
                let all = facts.info.map(|info| info.read_all(Struct::clone));
                Some(Value::Metadata(Cow::Owned(all.unwrap_or_default())))
            }
            Self::UpstreamFailureReason if facts.cluster.is_empty() => None,
            Self::UpstreamFailureReason => {
                let words = facts.record.transport_failure.replace('_', " ");
                Some(Value::Text(words.into_bytes().into()))
            }
            Self::ClusterName => named(facts.cluster),
            Self::ClusterMetadata if facts.cluster.is_empty() => None,
            Self::ClusterMetadata => told(facts.told.cluster),
            Self::RouteName => Some(Value::text(facts.route)),
            Self::RouteMetadata => told(facts.told.route.map(AsRef::as_ref)),
            Self::VirtualHostName => named(facts.virtual_host),
            Self::VirtualHostMetadata => told(facts.told.virtual_host.map(AsRef::as_ref)),
            Self::HostMetadata if facts.record.upstream_host.is_none() => None,
            Self::HostMetadata => told(facts.told.endpoint),
            Self::FilterChainName => Some(Value::text(facts.filter_chain)),
            Self::ListenerMetadata => told(facts.told.listener),
            _ => None,
        }
    }
}

/// An object of the filter state, by its name.
pub(super) fn state<'a>(facts: &Facts<'a>, name: &[u8]) -> Option<Value<'a>> {
    let name = std::str::from_utf8(name).ok()?;
    facts.info?.read_state(name, |object| {
        object.map(|object| Value::Bytes(Cow::Owned(object.value.to_vec())))
    })
}

fn text(bytes: &[u8]) -> Option<Value<'_>> {
    Some(Value::Text(Cow::Borrowed(bytes)))
}

fn named(name: &str) -> Option<Value<'_>> {
    (!name.is_empty()).then(|| Value::text(name))
}

fn int<'a>(number: u64) -> Option<Value<'a>> {
    i64::try_from(number).ok().map(Value::Int)
}

fn nanos(nanos: u128) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

fn between<'a>(from: Option<Instant>, to: Option<Instant>) -> Option<Value<'a>> {
    let (from, to) = (from?, to?);
    Some(Value::Duration(nanos(to.since(from).as_nanos())))
}

fn address<'a>(address: Option<&Address>) -> Option<Value<'a>> {
    Some(Value::Text(address?.to_string().into_bytes().into()))
}

fn port<'a>(address: Option<&Address>) -> Option<Value<'a>> {
    int(address?.ip()?.port().into())
}

/// A path and the query behind it; there are no fragments here.
fn halves(path: &[u8]) -> (&[u8], &[u8]) {
    let Some(at) = path.iter().position(|&byte| byte == b'?') else { return (path, b"") };
    (&path[..at], path.get(at + 1..).unwrap_or_default())
}
