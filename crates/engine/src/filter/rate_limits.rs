//! What a request is called where requests are limited by what they are: descriptors (Envoy
//! `config.route.v3.RateLimit`), which routes and virtual hosts say how to make.

use std::net::IpAddr;

use towpath_proto::HeaderName;

use super::{RequestView, RouteConfig};
use crate::cidr::Prefix;
use crate::format::Format;
use crate::fraction::Fraction;
use crate::matcher::{HeaderMatcher, QueryMatcher};
use crate::stream_info::Value;
use crate::uri::query;

/// Keys with values: one descriptor.
pub type Descriptor = Vec<(Box<[u8]>, Box<[u8]>)>;

/// `rate_limits` of a route or a virtual host.
#[derive(Clone, Debug)]
pub struct RateLimits {
    /// In order; never empty.
    pub list: Vec<RateLimit>,
    /// They are of a virtual host.
    pub of_host: bool,
    /// Of a route's, `include_vh_rate_limits`: those of its virtual host count too.
    pub includes_host: bool,
}

impl RouteConfig for RateLimits {}

/// Envoy `VhRateLimitsOptions`: whether the limits of a virtual host count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostLimits {
    /// `OVERRIDE`: where the route has none.
    #[default]
    Otherwise,
    /// `INCLUDE`.
    Too,
    /// `IGNORE`.
    Never,
}

impl HostLimits {
    /// The limits of a request's route and virtual host that a filter of this stage reads.
    pub(crate) fn limits<'a>(
        self,
        request: &RequestView<'a>,
        stage: u32,
    ) -> impl Iterator<Item = &'a RateLimit> + use<'a> {
        let route = request.route.unnamed();
        let all = move || route.all::<RateLimits>();
        let of_route = all().find(|limits| !limits.of_host);
        let includes_host = of_route.is_some_and(|limits| limits.includes_host)
            || match self {
                Self::Too => true,
                Self::Otherwise => of_route.is_none(),
                Self::Never => false,
            };
        let read = all().filter(move |limits| includes_host || !limits.of_host);
        read.flat_map(|it| &it.list).filter(move |it| it.stage == stage)
    }
}

/// How one descriptor is made.
#[derive(Clone, Debug)]
pub struct RateLimit {
    /// `stage`: which filter of a chain reads it.
    pub stage: u32,
    /// `disable_key`: of which requests its runtime key makes the descriptor. Filters in the process leave out one that
    /// has a key.
    pub share: Option<Fraction>,
    /// `actions`: each makes an entry.
    pub actions: Vec<Action>,
    /// `limit`: what the server is told to apply.
    pub limit: Option<LimitSource>,
    /// `hits_addend`: what a request counts.
    pub hits: Option<Hits>,
    /// `x_ratelimit_option`: whether clients are told; default as the filter does.
    pub tells: Option<bool>,
}

/// Envoy `RateLimit.Override`.
#[derive(Clone, Debug)]
pub enum LimitSource {
    /// `rate_limit`.
    Fixed(LimitOverride),
    /// `dynamic_metadata`: a struct with `requests_per_unit` and `unit`.
    Metadata(MetadataKey),
}

/// A limit that a server is told to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// `requests_per_unit`.
    pub requests: u32,
    /// `unit`: Envoy's `RateLimitUnit`.
    pub unit: i32,
}

/// Where a value is in the dynamic metadata.
#[derive(Clone, Debug)]
pub struct MetadataKey {
    /// `key`.
    pub namespace: Box<str>,
    /// `path`.
    pub path: Vec<Box<str>>,
}

/// Envoy `RateLimit.HitsAddend`.
#[derive(Clone, Debug)]
pub struct Hits {
    /// `number`, or `format`.
    pub source: HitsSource,
    /// `is_negative_hits`: they are given back.
    pub gives_back: bool,
}

/// How much a request counts.
#[derive(Clone, Debug)]
pub enum HitsSource {
    /// So much.
    Number(u64),
    /// What this says, from 0 to 10⁹. A request of which it says no number has no descriptor.
    Format(Format),
}

/// A descriptor of one request, and how it counts.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// Its entries.
    pub entries: Descriptor,
    /// The limit to apply.
    pub limit: Option<LimitOverride>,
    /// How much it counts.
    pub hits: Option<u64>,
    /// It gives back.
    pub gives_back: bool,
    /// Whether clients are told; default as the filter does.
    pub tells: Option<bool>,
}

/// Envoy `RateLimit.Action`.
#[derive(Clone, Debug)]
pub enum Action {
    /// `source_cluster`: the node's own cluster.
    SourceCluster,
    /// `request_headers`: the first value of a header.
    Header {
        /// `header_name`.
        header: HeaderSource,
        /// `descriptor_key`.
        key: Box<[u8]>,
        /// `skip_if_absent`: without the header there is no entry, else no descriptor.
        is_optional: bool,
    },
    /// `query_parameters`: the first value of a parameter.
    Query {
        /// `query_parameter_name`.
        name: Box<[u8]>,
        /// `descriptor_key`.
        key: Box<[u8]>,
        /// `skip_if_absent`.
        is_optional: bool,
    },
    /// `destination_cluster`: where the route leads.
    DestinationCluster,
    /// `metadata`: a text in the dynamic metadata.
    Metadata {
        /// `metadata_key`.
        from: MetadataKey,
        /// `descriptor_key`.
        key: Box<[u8]>,
        /// `default_value`; without one, what is missing or empty makes no entry.
        default: Box<[u8]>,
        /// `skip_if_absent`.
        is_optional: bool,
    },
    /// `remote_address`: the client's, without its port.
    RemoteAddress,
    /// `masked_remote_address`: its network, of so many bits.
    RemoteNetwork {
        /// `v4_prefix_mask_len`.
        v4: u8,
        /// `v6_prefix_mask_len`.
        v6: u8,
    },
    /// `remote_address_match`: this, where the client's address is one of these.
    RemoteMatch {
        /// `descriptor_key`.
        key: Box<[u8]>,
        /// `descriptor_value`.
        value: Format,
        /// `default_value`: where that is empty; without one there is no descriptor.
        default: Box<[u8]>,
        /// `address_matcher.ranges`.
        ranges: Vec<Prefix>,
        /// `address_matcher.invert_match`: all others.
        inverted: bool,
    },
    /// `generic_key`: this.
    Fixed {
        /// `descriptor_key`; default `generic_key`.
        key: Box<[u8]>,
        /// `descriptor_value`.
        value: Box<[u8]>,
    },
    /// `header_value_match`, `query_parameter_value_match`: this, where a request matches.
    Match {
        /// `descriptor_key`.
        key: Box<[u8]>,
        /// `descriptor_value`.
        value: Box<[u8]>,
        /// `expect_match`: whether it is for those that match.
        wanted: bool,
        /// `headers`, all of them.
        headers: Vec<HeaderMatcher>,
        /// `query_parameters`, all of them.
        query: Vec<QueryMatcher>,
    },
}

/// Where a header is.
#[derive(Clone, Debug)]
pub enum HeaderSource {
    /// `:path`.
    Path,
    /// `:method`.
    Method,
    /// `:authority`, `host`.
    Authority,
    /// A field.
    Field(HeaderName),
}

/// What an action comes to.
enum Made {
    Entry(Box<[u8]>, Box<[u8]>),
    Nothing,
    NoDescriptor,
}

impl RateLimit {
    /// The descriptor of a request, if it has one.
    #[must_use]
    pub fn describe(&self, request: &RequestView<'_>) -> Option<Described> {
        let mut entries = Descriptor::new();
        for action in &self.actions {
            match action.of(request) {
                Made::Entry(key, value) => entries.push((key, value)),
                Made::Nothing => {}
                Made::NoDescriptor => return None,
            }
        }
        let hits = match &self.hits {
            Some(hits) => Some(hits.source.of(request)?),
            None => None,
        };
        Some(Described {
            entries,
            limit: self.limit.as_ref().and_then(|limit| limit.of(request)),
            hits,
            gives_back: self.hits.as_ref().is_some_and(|hits| hits.gives_back),
            tells: self.tells,
        })
    }
}

impl HitsSource {
    fn of(&self, request: &RequestView<'_>) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Format(format) => {
                let text = String::from_utf8(formatted(format, request)).ok()?;
                let number: f64 = text.trim().parse().ok()?;
                (0.0..=MOST_HITS).contains(&number).then_some(number as u64)
            }
        }
    }
}

impl LimitSource {
    fn of(&self, request: &RequestView<'_>) -> Option<LimitOverride> {
        let key = match self {
            Self::Fixed(limit) => return Some(*limit),
            Self::Metadata(key) => key,
        };
        key.read(request, |value| {
            let Some(Value::Struct(entries)) = value else { return None };
            let (Some(Value::Number(requests)), Some(Value::String(unit))) =
                (entries.get("requests_per_unit"), entries.get("unit"))
            else {
                return None;
            };
            let unit = UNITS.iter().position(|name| **name == **unit)?;
            Some(LimitOverride { requests: *requests as u32, unit: i32::try_from(unit).ok()? })
        })
    }
}

impl MetadataKey {
    fn read<R>(&self, request: &RequestView<'_>, read: impl FnOnce(Option<&Value>) -> R) -> R {
        match request.facts.info {
            Some(info) => info.read_metadata(&self.namespace, &self.path, read),
            None => read(None),
        }
    }
}

/// What a format says of a request.
fn formatted(format: &Format, request: &RequestView<'_>) -> Vec<u8> {
    let mut facts = *request.facts;
    facts.request = Some(request.head);
    let mut text = Vec::new();
    format.write(&mut text, &facts);
    text
}

/// Envoy `RateLimitUnit`, by number.
const UNITS: [&str; 8] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];
/// As in Envoy.
const MOST_HITS: f64 = 1e9;

impl Action {
    fn of(&self, request: &RequestView<'_>) -> Made {
        let client = || request.facts.record.downstream_remote.as_ref()?.ip().map(|it| it.ip());
        match self {
            Self::SourceCluster => Made::entry(b"source_cluster", request.node_cluster.as_bytes()),
            Self::Header { header, key, is_optional } => match header.of(request) {
                Some(value) => Made::entry(key, value),
                None if *is_optional => Made::Nothing,
                None => Made::NoDescriptor,
            },
            Self::Query { name, key, is_optional } => {
                match query::first_decoded(request.head.path(), name) {
                    Some(value) => {
                        let value: Vec<u8> = query::decoded(value).collect();
                        Made::entry(key, &value)
                    }
                    None if *is_optional => Made::Nothing,
                    None => Made::NoDescriptor,
                }
            }
            Self::DestinationCluster if request.forwards => {
                Made::entry(b"destination_cluster", request.facts.cluster.as_bytes())
            }
            Self::DestinationCluster => Made::NoDescriptor,
            Self::Metadata { from, key, default, is_optional } => from.read(request, |value| {
                let text = match value {
                    Some(Value::String(text)) => text.as_bytes(),
                    _ => b"",
                };
                match (text, &**default) {
                    (b"", b"") if *is_optional => Made::Nothing,
                    (b"", b"") => Made::NoDescriptor,
                    (b"", default) => Made::entry(key, default),
                    (text, _) => Made::entry(key, text),
                }
            }),
            Self::RemoteMatch { key, value, default, ranges, inverted } => {
                let Some(client) = client() else { return Made::NoDescriptor };
                if ranges.iter().any(|range| range.contains(client)) == *inverted {
                    return Made::NoDescriptor;
                }
                match (&formatted(value, request)[..], &**default) {
                    (b"", b"") => Made::NoDescriptor,
                    (b"", default) => Made::entry(key, default),
                    (value, _) => Made::entry(key, value),
                }
            }
            Self::RemoteAddress => match client() {
                Some(client) => Made::entry(b"remote_address", client.to_string().as_bytes()),
                None => Made::NoDescriptor,
            },
            Self::RemoteNetwork { v4, v6 } => match client() {
                Some(client) => {
                    let bits = if matches!(client, IpAddr::V4(_)) { *v4 } else { *v6 };
                    let network = Prefix::new(client, bits);
                    let network = format!("{}/{}", network.address, network.length);
                    Made::entry(b"masked_remote_address", network.as_bytes())
                }
                None => Made::NoDescriptor,
            },
            Self::Fixed { key, value } => Made::entry(key, value),
            Self::Match { key, value, wanted, headers, query } => {
                let matches = headers.iter().all(|it| it.matches(request.head))
                    && query.iter().all(|it| it.matches(request.head.path()));
                if matches == *wanted { Made::entry(key, value) } else { Made::NoDescriptor }
            }
        }
    }
}

impl HeaderSource {
    fn of<'a>(&self, request: &'a RequestView<'_>) -> Option<&'a [u8]> {
        let head = &*request.head;
        match self {
            Self::Path => Some(head.path()),
            Self::Method => Some(head.method_bytes()),
            Self::Authority => Some(head.authority()),
            Self::Field(name) => head.get_named(name),
        }
    }
}

impl Made {
    fn entry(key: &[u8], value: &[u8]) -> Self {
        Self::Entry(key.into(), value.into())
    }
}
