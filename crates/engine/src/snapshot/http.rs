//! How HTTP is spoken downstream. Envoy's `HttpConnectionManager`.

use std::net::IpAddr;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Name, PreparedField, http1};

use super::client::Detection;
use super::http2::Http2;
use super::log::AccessLog;
use super::proxy_header::ProxyHeader;
use super::route::{BodyFormat, HeaderOps, RouteTable};
use super::tracing::Tracing;
use crate::cidr::Prefix;
use crate::filter::ChainFilter;
use crate::header_ops::HeaderMutations;
use crate::matcher::tree::Tree;
use crate::matcher::{LogFilter, StringMatcher};

/// Envoy `extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`.
#[derive(Debug)]
pub struct Http {
    /// Prefix of `http.<stat_prefix>.…`.
    pub stat_prefix: Arc<str>,
    /// Which protocols may come in.
    pub codec: Codec,
    /// Options of the HTTP/1 codec.
    pub http1: Arc<http1::Options>,
    /// Whether and how HTTP/2 comes in.
    pub http2: Option<Arc<Http2>>,
    /// The routes.
    pub routes: Arc<RouteTable>,
    /// `http_filters`.
    pub chain: HttpChain,
    /// `upgrade_configs.filters`: what upgrades pass in its place, by [`Upgrade::chain`].
    pub upgraded: Vec<HttpChain>,
    /// `server_name`; default `envoy`, so that a client of Envoy sees what it saw.
    pub server_name: PreparedField,
    /// `server_header_transformation`.
    pub server_header: ServerHeader,
    /// `common_http_protocol_options.idle_timeout`: a connection without a stream for this long is closed. Default 1 h.
    pub idle_timeout: Option<Duration>,
    /// `common_http_protocol_options.max_connection_duration`.
    pub max_connection_duration: Option<Duration>,
    /// `common_http_protocol_options.max_stream_duration`.
    pub max_stream_duration: Option<Duration>,
    /// `common_http_protocol_options.max_requests_per_connection`; 0 means no limit.
    pub max_requests_per_connection: u32,
    /// `stream_idle_timeout`: nothing in either direction. Default 5 min.
    pub stream_idle_timeout: Option<Duration>,
    /// `stream_flush_timeout`: how long an answer that is over may wait for its client's windows, in place of the time
    /// that a stream may be idle: `Some(None)` for ever.
    pub stream_flush_timeout: Option<Option<Duration>>,
    /// `request_timeout`: from the first byte until the whole request is in. Default none.
    pub request_timeout: Option<Duration>,
    /// `request_headers_timeout`: from the first byte until the head is in. Default none.
    pub request_headers_timeout: Option<Duration>,
    /// `delayed_close_timeout`: how long a connection that we ended waits for the peer's FIN. Default 1 s; zero closes
    /// at once.
    pub delayed_close_timeout: Duration,
    /// `access_log`.
    pub access_logs: Vec<AccessLog>,
    /// `access_log_options.access_log_flush_interval`: extra lines for long streams.
    pub log_flush_interval: Option<Duration>,
    /// `access_log_options.flush_access_log_on_new_request`.
    pub log_on_new_request: bool,
    /// `access_log_options.flush_log_on_tunnel_successfully_established`.
    pub log_on_tunnel: bool,
    /// What becomes of `x-forwarded-client-cert`, where the matcher leads nowhere.
    pub client_certificate: ClientCertificate,
    /// `forward_client_cert_matcher`: leads requests to what becomes of theirs.
    pub client_certificate_matcher: Option<Tree<ClientCertificate>>,
    /// `append_local_overload`: `x-envoy-local-overloaded` in answers to requests that are refused for overload.
    pub tells_overload: bool,
    /// `use_remote_address`: this is an edge; the peer's address is the client's.
    pub use_remote_address: bool,
    /// `xff_num_trusted_hops`.
    pub xff_trusted_hops: u32,
    /// `skip_xff_append`.
    pub skip_xff_append: bool,
    /// `http_protocol_options.ignore_http_11_upgrade`: what these match is not asked for, as far as requests go on.
    pub ignored_upgrades: Vec<StringMatcher>,
    /// `original_ip_detection_extensions`: the first that finds the client counts; `x-forwarded-for` alone where there
    /// is none.
    pub detections: Vec<Detection>,
    /// `early_header_mutation_extensions`, before anything is made of a request but its path and host.
    pub early_mutations: HeaderMutations,
    /// `internal_address_config`: which peers count as internal.
    pub internal_addresses: InternalAddresses,
    /// `via`, appended to both heads when not empty.
    pub via: Arc<str>,
    /// `proxy_status_config`: answers say what went wrong here.
    pub proxy_status: Option<Box<ProxyStatus>>,
    /// `add_user_agent`: what servers are told of this proxy.
    pub told: Option<Box<ToldNode>>,
    /// `generate_request_id`. Default true.
    pub generate_request_id: bool,
    /// `preserve_external_request_id`.
    pub preserve_external_request_id: bool,
    /// `always_set_request_id_in_response`.
    pub request_id_in_response: bool,
    /// `represent_ipv4_remote_address_as_ipv4_mapped_ipv6`.
    pub ipv4_mapped: bool,
    /// `append_x_forwarded_port`.
    pub append_forwarded_port: bool,
    /// `proxy_100_continue`: pass `Expect: 100-continue` on and the upstream's 100 back.
    pub proxy_100_continue: bool,
    /// `normalize_path`.
    pub normalize_path: bool,
    /// `merge_slashes`.
    pub merge_slashes: bool,
    /// `path_with_escaped_slashes_action`.
    pub escaped_slashes: EscapedSlashes,
    /// `strip_any_host_port` or `strip_matching_host_port`.
    pub strip_port: StripPort,
    /// `strip_trailing_host_dot`.
    pub strip_trailing_dot: bool,
    /// `scheme_header_transformation.match_upstream`: the scheme of a request is that of what its host is spoken to by.
    pub scheme_of_upstream: bool,
    /// `scheme_header_transformation.scheme_to_overwrite`.
    pub scheme: Option<Arc<str>>,
    /// `upgrade_configs`: lower-case upgrade types that are let through; `connect` for CONNECT.
    pub upgrades: Vec<Upgrade>,
    /// `local_reply_config`.
    pub local_reply: Option<LocalReply>,
    /// `tracing`.
    pub tracing: Option<Tracing>,
}

impl Http {
    /// The filters of a stream, whose upgrade may have its own.
    pub(crate) fn chain(&self, upgraded: Option<NonZeroU8>) -> &HttpChain {
        upgraded.and_then(|at| self.upgraded.get(usize::from(at.get()) - 1)).unwrap_or(&self.chain)
    }

    /// All of its chains.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &HttpChain> {
        std::iter::once(&self.chain).chain(&self.upgraded)
    }

    /// Whether what becomes of a request's `x-forwarded-client-cert` depends on the client's certificate.
    pub(crate) const fn tells_certificates(&self) -> bool {
        if self.client_certificate_matcher.is_some() {
            return true;
        }
        match self.client_certificate.forward {
            ForwardClientCert::Sanitize | ForwardClientCert::AlwaysForwardOnly => false,
            ForwardClientCert::ForwardOnly
            | ForwardClientCert::AppendForward
            | ForwardClientCert::SanitizeSet => true,
        }
    }
}

/// Envoy `HttpConnectionManager.ForwardClientCertConfig`.
#[derive(Clone, Debug, Default)]
pub struct ClientCertificate {
    /// `forward_client_cert_details`.
    pub forward: ForwardClientCert,
    /// `set_current_client_cert_details`: what is told of a client's certificate beside its hash, in this order.
    pub details: Vec<CertificateDetail>,
}

/// Envoy `HttpConnectionManager.ForwardClientCertDetails`. All but the last remove what a client says that has shown no
/// certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardClientCert {
    /// `SANITIZE`: it is removed.
    #[default]
    Sanitize,
    /// `FORWARD_ONLY`: it is passed on as it came.
    ForwardOnly,
    /// `APPEND_FORWARD`: the client's certificate is told behind what came.
    AppendForward,
    /// `SANITIZE_SET`: the client's certificate is told in place of what came.
    SanitizeSet,
    /// `ALWAYS_FORWARD_ONLY`: it is passed on as it came, of clients without a certificate too.
    AlwaysForwardOnly,
}

/// Something that `x-forwarded-client-cert` says of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateDetail {
    /// `Cert`: the certificate.
    Certificate,
    /// `Chain`: it and those that lead to its root.
    Chain,
    /// `Subject`.
    Subject,
    /// `URI`: each of its URIs.
    Uri,
    /// `DNS`: each of its domains.
    Dns,
}

/// Envoy `HttpConnectionManager.CodecType`, as far as it is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// HTTP/1.x, and HTTP/2 as [`Http::http2`] says; without that an HTTP/2 preface is refused.
    #[default]
    Auto,
    /// HTTP/1.x only.
    Http1,
    /// What tests of many streams on a connection speak.
    #[cfg(test)]
    Toy,
}

/// Envoy `HttpConnectionManager.ProxyStatusConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyStatus {
    /// `literal_proxy_name`, the node's id, or the `server_name`.
    pub name: Box<str>,
    /// Unless `remove_details`: the details of the response.
    pub tells_details: bool,
    /// Unless `remove_connection_termination_details`: why the connection ends, beside those.
    pub tells_termination: bool,
    /// Unless `remove_response_flags`: the flags, beside those.
    pub tells_flags: bool,
    /// `set_recommended_response_code`.
    pub sets_status: bool,
}

/// A chain of HTTP filters.
#[derive(Debug, Default)]
pub struct HttpChain {
    /// Those before the router, in order.
    pub filters: Vec<ChainFilter>,
    /// The last one.
    pub router: Router,
}

/// Envoy `extensions.filters.http.router.v3.Router`.
#[derive(Debug)]
pub struct Router {
    /// `dynamic_stats`: counters for each cluster and virtual cluster. Default true.
    pub dynamic_stats: bool,
    /// `suppress_envoy_headers`: no `x-envoy-*` is added.
    pub suppress_envoy_headers: bool,
    /// `respect_expected_rq_timeout`.
    pub respect_expected_timeout: bool,
    /// `start_child_span`: each attempt has a span of its own, where requests are traced.
    pub starts_child_span: bool,
    /// `strict_check_headers`: a request that has one of these wrong is refused.
    pub strict_headers: Vec<Name>,
    /// `upstream_http_filters`: what each attempt of a request passes before its host, in order, unless its cluster has
    /// filters of its own.
    pub upstream_filters: Vec<ChainFilter>,
    /// `upstream_log`: lines for each attempt of a request.
    pub attempt_logs: Vec<AccessLog>,
    /// `flush_upstream_log_on_upstream_stream`: and one when it has its connection.
    pub log_attempt_start: bool,
    /// `upstream_log_flush_interval`: and one each time while it lasts, at least 1 ms.
    pub attempt_log_interval: Option<Duration>,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            dynamic_stats: true,
            suppress_envoy_headers: false,
            respect_expected_timeout: false,
            starts_child_span: false,
            strict_headers: Vec::new(),
            upstream_filters: Vec::new(),
            attempt_logs: Vec::new(),
            log_attempt_start: false,
            attempt_log_interval: None,
        }
    }
}

/// `server_header_transformation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerHeader {
    /// Ours replaces the upstream's.
    #[default]
    Overwrite,
    /// Ours when there is none.
    AppendIfAbsent,
    /// As the upstream has it.
    PassThrough,
}

/// `internal_address_config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InternalAddresses {
    /// `unix_sockets`: a peer on a unix socket is internal.
    pub unix_sockets: bool,
    /// `cidr_ranges`.
    pub ranges: Vec<Prefix>,
}

impl InternalAddresses {
    /// Whether this peer counts as internal.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|prefix| prefix.contains(address))
    }
}

/// `path_with_escaped_slashes_action`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EscapedSlashes {
    /// `%2F` stays.
    #[default]
    Keep,
    /// 400.
    Reject,
    /// 307 to the unescaped path.
    UnescapeAndRedirect,
    /// Unescaped before routing.
    UnescapeAndForward,
}

/// Which ports are cut from `Host`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StripPort {
    /// None.
    #[default]
    No,
    /// The listener's own. `strip_matching_host_port`.
    Matching,
    /// Any. `strip_any_host_port`.
    Any,
}

/// What `add_user_agent` tells.
#[derive(Clone, Debug)]
pub struct ToldNode {
    /// `x-envoy-downstream-service-cluster`, and `user-agent` where a request has none.
    pub cluster: Arc<str>,
    /// `x-envoy-downstream-service-node`, if it is not empty.
    pub id: Arc<str>,
}

/// One of `upgrade_configs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upgrade {
    /// Lower case: `websocket`, `connect`, ….
    pub kind: Arc<str>,
    /// Whether it is let through.
    pub enabled: bool,
    /// `connect_config` of a route: CONNECT ends here.
    pub connect: Option<Arc<ConnectConfig>>,
    /// `filters` of a connection manager: which of [`Http::upgraded`] it passes, from 1 on; the ordinary chain without.
    pub chain: Option<NonZeroU8>,
}

/// Envoy `ConnectConfig`: CONNECT ends here, and the host gets what is in the tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectConfig {
    /// `allow_post`: the content of a POST is such bytes, too.
    pub takes_post: bool,
    /// `proxy_protocol_config`: what the host is told of the client before.
    pub header: Option<ProxyHeader>,
}

/// `local_reply_config`: how answers that we make ourselves look.
#[derive(Debug)]
pub struct LocalReply {
    /// The first that matches rewrites the reply.
    pub mappers: Vec<LocalReplyMapper>,
    /// The body of all others.
    pub body: Option<BodyFormat>,
}

/// One of `local_reply_config.mappers`.
#[derive(Debug)]
pub struct LocalReplyMapper {
    /// Which replies.
    pub filter: LogFilter,
    /// The status instead.
    pub status: Option<u16>,
    /// The body text instead, before formatting (`%LOCAL_REPLY_BODY%`).
    pub body: Option<Arc<str>>,
    /// The body's format instead.
    pub format: Option<BodyFormat>,
    /// Headers to add.
    pub headers: HeaderOps,
}
