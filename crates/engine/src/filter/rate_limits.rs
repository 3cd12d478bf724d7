//! What a request is called where requests are limited by what they are: descriptors (Envoy
//! `config.route.v3.RateLimit`), which routes and virtual hosts say how to make.

use std::net::IpAddr;

use towpath_proto::HeaderName;

use super::{RequestView, RouteConfig};
use crate::cidr::Prefix;
use crate::matcher::{HeaderMatcher, QueryMatcher};

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

/// How one descriptor is made.
#[derive(Clone, Debug)]
pub struct RateLimit {
    /// `stage`: which filter of a chain reads it.
    pub stage: u32,
    /// `actions`: each makes an entry.
    pub actions: Vec<Action>,
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
    /// `remote_address`: the client's, without its port.
    RemoteAddress,
    /// `masked_remote_address`: its network, of so many bits.
    RemoteNetwork {
        /// `v4_prefix_mask_len`.
        v4: u8,
        /// `v6_prefix_mask_len`.
        v6: u8,
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
    pub fn describe(&self, request: &RequestView<'_>) -> Option<Descriptor> {
        let mut entries = Descriptor::new();
        for action in &self.actions {
            match action.of(request) {
                Made::Entry(key, value) => entries.push((key, value)),
                Made::Nothing => {}
                Made::NoDescriptor => return None,
            }
        }
        (!entries.is_empty()).then_some(entries)
    }
}

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
