//! What a server is told of a stream beside its parts: Envoy's attributes, those that are known when heads come by.

use towpath_proto::head::Version;
use towpath_proto::{Address, Head, Name};

use crate::format::Facts;
use crate::protobuf::{Kind, Struct, Value};

/// An attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// `request.path`.
    Path,
    /// `request.url_path`.
    UrlPath,
    /// `request.query`.
    Query,
    /// `request.host`.
    Host,
    /// `request.scheme`.
    Scheme,
    /// `request.method`.
    Method,
    /// `request.referer`.
    Referer,
    /// `request.useragent`.
    UserAgent,
    /// `request.id`.
    Id,
    /// `request.protocol`.
    Protocol,
    /// `source.address`.
    SourceAddress,
    /// `source.port`.
    SourcePort,
    /// `destination.address`.
    DestinationAddress,
    /// `destination.port`.
    DestinationPort,
    /// `connection.requested_server_name`.
    ServerName,
    /// `connection.mtls`.
    IsMutual,
    /// `xds.cluster_name`.
    ClusterName,
    /// `xds.route_name`.
    RouteName,
}

const ALL: &[(&str, Attribute)] = &[
    ("request.path", Attribute::Path),
    ("request.url_path", Attribute::UrlPath),
    ("request.query", Attribute::Query),
    ("request.host", Attribute::Host),
    ("request.scheme", Attribute::Scheme),
    ("request.method", Attribute::Method),
    ("request.referer", Attribute::Referer),
    ("request.useragent", Attribute::UserAgent),
    ("request.id", Attribute::Id),
    ("request.protocol", Attribute::Protocol),
    ("source.address", Attribute::SourceAddress),
    ("source.port", Attribute::SourcePort),
    ("destination.address", Attribute::DestinationAddress),
    ("destination.port", Attribute::DestinationPort),
    ("connection.requested_server_name", Attribute::ServerName),
    ("connection.mtls", Attribute::IsMutual),
    ("xds.cluster_name", Attribute::ClusterName),
    ("xds.route_name", Attribute::RouteName),
];

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

    fn value(self, request: Option<&Head>, facts: &Facts<'_>) -> Option<Kind> {
        let text = |bytes: &[u8]| Kind::Text(String::from_utf8_lossy(bytes).into_owned());
        let field = |name| Some(text(request?.get(name)?));
        let path = || Some(request?.path());
        let cut = || Some(path()?.iter().position(|&byte| byte == b'?').unwrap_or(path()?.len()));
        let record = facts.record;
        let port = |address: Option<&Address>| Some(Kind::Number(address?.ip()?.port().into()));
        let named = |name: &str| (!name.is_empty()).then(|| Kind::Text(name.to_owned()));
        let address = |address: Option<&Address>| Some(Kind::Text(address?.to_string()));
        match self {
            Self::Path => path().map(text),
            Self::UrlPath => Some(text(&path()?[..cut()?])),
            Self::Query => Some(text(path()?.get(cut()? + 1..).unwrap_or_default())),
            Self::Host => Some(text(request?.authority())),
            Self::Scheme => Some(text(request?.scheme())),
            Self::Method => Some(text(request?.method_bytes())),
            Self::Referer => field(Name::Referer),
            Self::UserAgent => field(Name::UserAgent),
            Self::Id => field(Name::XRequestId),
            Self::Protocol => Some(Kind::Text(
                match request?.version() {
                    Version::Http10 => "HTTP/1.0",
                    Version::Http11 => "HTTP/1.1",
                    Version::Http2 | _ => "HTTP/2",
                }
                .to_owned(),
            )),
            Self::SourceAddress => address(record.downstream_remote.as_ref()),
            Self::SourcePort => port(record.downstream_remote.as_ref()),
            Self::DestinationAddress => address(record.downstream_local.as_ref()),
            Self::DestinationPort => port(record.downstream_local.as_ref()),
            Self::ServerName => named(record.server_name.as_deref().unwrap_or_default()),
            Self::IsMutual => Some(Kind::Flag(
                record.downstream_tls.as_deref().is_some_and(|tls| tls.peer.is_some()),
            )),
            Self::ClusterName => named(facts.cluster),
            Self::RouteName => Some(Kind::Text(facts.route.to_owned())),
        }
    }
}

/// Attributes with their names; those that the stream does not have are left out.
pub(super) fn told(
    wanted: &[(Box<str>, Attribute)],
    request: Option<&Head>,
    facts: &Facts<'_>,
) -> Struct {
    let fields = wanted.iter().filter_map(|(name, attribute)| {
        let kind = attribute.value(request, facts)?;
        Some((name.to_string(), Value { kind: Some(kind) }))
    });
    Struct { fields: fields.collect() }
}
