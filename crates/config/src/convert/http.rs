//! The HTTP connection manager.

use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::matcher::tree::Tree;
use towpath_engine::matcher::{Input, StringMatcher};
use towpath_engine::snapshot::Http;
use towpath_engine::snapshot::http::{
    CertificateDetail, ClientCertificate, Codec, EscapedSlashes, ForwardClientCert, HttpChain,
    InternalAddresses, LocalReply, LocalReplyMapper, ProxyStatus, ServerHeader, StripPort,
    ToldNode, Upgrade,
};
use towpath_engine::snapshot::route::{HeaderOps, RouteTable};
use towpath_proto::{Name, PreparedField, http1};

use super::Converter;
use super::extension::HEADER_FORMATTER;
use super::matcher_tree::{About, Place};
use super::route_action::unless_zero;
use super::runtime::REJECT_FRAGMENT;
use crate::error::Rank;
use crate::message::Message;

impl Converter<'_> {
    pub(super) fn http(&mut self, message: &Message) -> Option<Http> {
        let codec = self.codec(message);
        let http1 = self.downstream_http1(message);
        let http2 = self.downstream_http2(message, &http1);
        let routes = self.routes(message);
        let chain = self.http_filters(message, "http_filters");
        let access_logs = self.access_logs(message, "access_log");
        let local_reply =
            message.message("local_reply_config").map(|config| self.local_reply(config));
        let (upgrades, upgraded) = self.listener_upgrades(message);
        let tracing = self.tracing(message);
        if let Some(extension) = message.message("request_id_extension") {
            self.extension_without_name(extension);
        }
        let common = message.message("common_http_protocol_options");
        let duration = |name| common.and_then(|common| common.duration(name));
        let options = message.message("access_log_options");
        let flush_interval =
            options.and_then(|options| options.duration("access_log_flush_interval"));
        Some(Http {
            stat_prefix: Arc::from(message.text("stat_prefix")),
            codec,
            http1: Arc::new(http1),
            http2,
            routes: Arc::new(routes?),
            chain: chain?,
            upgraded,
            server_name: match message.text("server_name") {
                "" => PreparedField::new(Name::Server, b"envoy"),
                name => PreparedField::new(Name::Server, name.as_bytes()),
            },
            server_header: match message.choice("server_header_transformation").as_str() {
                "APPEND_IF_ABSENT" => ServerHeader::AppendIfAbsent,
                "PASS_THROUGH" => ServerHeader::PassThrough,
                _ => ServerHeader::Overwrite,
            },
            idle_timeout: unless_zero(duration("idle_timeout").unwrap_or(HOUR)),
            max_connection_duration: duration("max_connection_duration").and_then(unless_zero),
            max_stream_duration: duration("max_stream_duration").and_then(unless_zero),
            max_requests_per_connection: common
                .and_then(|common| common.number32("max_requests_per_connection"))
                .unwrap_or(0),
            stream_flush_timeout: message.duration("stream_flush_timeout").map(unless_zero),
            stream_idle_timeout: unless_zero(
                message.duration("stream_idle_timeout").unwrap_or(5 * MINUTE),
            ),
            request_timeout: message.duration("request_timeout").and_then(unless_zero),
            request_headers_timeout: message
                .duration("request_headers_timeout")
                .and_then(unless_zero),
            delayed_close_timeout: message.duration("delayed_close_timeout").unwrap_or(SECOND),
            access_logs,
            log_flush_interval: flush_interval
                .or_else(|| message.duration("access_log_flush_interval")),
            log_on_new_request: options.map_or_else(
                || message.flag("flush_access_log_on_new_request"),
                |options| options.flag("flush_access_log_on_new_request"),
            ),
            log_on_tunnel: options
                .is_some_and(|it| it.flag("flush_log_on_tunnel_successfully_established")),
            client_certificate: client_certificate(message),
            client_certificate_matcher: self.client_certificate_matcher(message),
            tells_overload: message.flag("append_local_overload"),
            use_remote_address: message.flag("use_remote_address"),
            xff_trusted_hops: message.number32("xff_num_trusted_hops").unwrap_or(0),
            skip_xff_append: message.flag("skip_xff_append"),
            ignored_upgrades: self.ignored_upgrades(message),
            detections: self.client_detections(message),
            early_mutations: self.early_mutations(message),
            internal_addresses: self.internal_addresses(message),
            via: Arc::from(message.text("via")),
            proxy_status: self.proxy_status(message),
            told: message.wrapped_flag("add_user_agent").unwrap_or(false).then(|| {
                let (cluster, id) = (&self.snapshot.node.cluster, &self.snapshot.node.id);
                Box::new(ToldNode { cluster: Arc::from(&**cluster), id: Arc::from(&**id) })
            }),
            generate_request_id: message.wrapped_flag("generate_request_id").unwrap_or(true),
            preserve_external_request_id: message.flag("preserve_external_request_id"),
            request_id_in_response: message.flag("always_set_request_id_in_response"),
            ipv4_mapped: message.flag("represent_ipv4_remote_address_as_ipv4_mapped_ipv6"),
            append_forwarded_port: message.flag("append_x_forwarded_port"),
            proxy_100_continue: message.flag("proxy_100_continue"),
            normalize_path: message.flag("normalize_path"),
            merge_slashes: message.flag("merge_slashes"),
            escaped_slashes: match message.choice("path_with_escaped_slashes_action").as_str() {
                "REJECT_REQUEST" => EscapedSlashes::Reject,
                "UNESCAPE_AND_REDIRECT" => EscapedSlashes::UnescapeAndRedirect,
                "UNESCAPE_AND_FORWARD" => EscapedSlashes::UnescapeAndForward,
                _ => EscapedSlashes::Keep,
            },
            strip_port: self.strip_port(message),
            strip_trailing_dot: message.flag("strip_trailing_host_dot"),
            // As in Envoy, one that is written out comes first.
            scheme_of_upstream: message.message("scheme_header_transformation").is_some_and(|it| {
                it.flag("match_upstream") && it.text("scheme_to_overwrite").is_empty()
            }),
            scheme: self.scheme(message),
            upgrades,
            local_reply,
            tracing,
        })
    }

    fn codec(&mut self, message: &Message) -> Codec {
        match message.choice("codec_type").as_str() {
            "HTTP1" => return Codec::Http1,
            "AUTO" => {}
            "HTTP2" => {}
            other => {
                self.report.unsupported(message.at("codec_type"), format!("{other} is not spoken"))
            }
        }
        Codec::Auto
    }

    fn routes(&mut self, message: &Message) -> Option<RouteTable> {
        let Some(rds) = message.message("rds") else {
            return message.message("route_config").map(|config| self.route_table(config, true));
        };
        // Until its table is there a listener does not serve; where it never comes, requests match nothing, as in
        // Envoy.
        let found = self.discovered_routes(rds, message.text("stat_prefix"));
        let Some(found) = found else { return Some(RouteTable::default()) };
        self.accept(found);
        Some(self.route_table(found, false))
    }

    /// `upgrade_configs`, and the chains of filters that they have.
    fn listener_upgrades(&mut self, message: &Message) -> (Vec<Upgrade>, Vec<HttpChain>) {
        let (mut upgrades, mut chains) = (self.upgrades(message), Vec::new());
        let configs = message.messages("upgrade_configs");
        for (upgrade, config) in upgrades.iter_mut().zip(configs) {
            if config.messages("filters").next().is_some() {
                chains.extend(self.http_filters(config, "filters"));
                upgrade.chain = u8::try_from(chains.len()).ok().and_then(NonZeroU8::new);
                if chains.len() > usize::from(u8::MAX) {
                    let text = "no more than 255 upgrades have filters of their own";
                    self.report.unsupported(config.at("filters"), text);
                }
            }
        }
        (upgrades, chains)
    }

    fn proxy_status(&self, message: &Message) -> Option<Box<ProxyStatus>> {
        let config = message.message("proxy_status_config")?;
        let name = config.oneof("proxy_name").map(|field| field.descriptor.name());
        let name = match (name, message.text("server_name")) {
            (Some("literal_proxy_name"), _) => config.text("literal_proxy_name"),
            (Some("use_node_id"), _) => &self.snapshot.node.id,
            (_, "") => "envoy",
            (_, name) => name,
        };
        Some(Box::new(ProxyStatus {
            name: name.into(),
            tells_details: !config.flag("remove_details"),
            tells_termination: !config.flag("remove_connection_termination_details"),
            tells_flags: !config.flag("remove_response_flags"),
            sets_status: config.flag("set_recommended_response_code"),
        }))
    }

    pub(super) fn extension_without_name(&mut self, holder: &Message) {
        let Some((any, at)) = holder.any("typed_config") else { return };
        match &any.message {
            Some(message) if any.name == UUID_REQUEST_ID => self.accept(message),
            _ => self.report.unsupported(
                at,
                format!("request ids of type `{}` are not there, only UUIDs", any.name),
            ),
        }
    }

    fn downstream_http1(&mut self, message: &Message) -> http1::Options {
        let options = message.message("http_protocol_options");
        let common = message.message("common_http_protocol_options");
        if let Some(common) = common.filter(|common| common.has("max_response_headers_kb")) {
            let at = common.at("max_response_headers_kb");
            self.report.problem(at, "is for responses, of which a listener gets none");
        }
        if let Some(options) = options.filter(|options| options.flag("send_fully_qualified_url")) {
            let text = "is for requests to servers, as in Envoy";
            self.report.finding(options.at("send_fully_qualified_url"), Rank::Harmless, text);
        }
        let mut http1 = self.http1_options(options, common);
        http1.max_head_bytes =
            message.number32("max_request_headers_kb").unwrap_or(60).saturating_mul(1024);
        http1.cut_fragment = !self.runtime.feature(REJECT_FRAGMENT, true);
        http1.accept_http10 = options.is_some_and(|options| options.flag("accept_http_10"));
        let host = options.map_or("", |options| options.text("default_host_for_http_10"));
        http1.default_host_http10 =
            (!host.is_empty()).then(|| Bytes::copy_from_slice(host.as_bytes()));
        http1
    }

    fn ignored_upgrades(&mut self, message: &Message) -> Vec<StringMatcher> {
        let Some(options) = message.message("http_protocol_options") else { return Vec::new() };
        let matchers: Vec<_> = options.messages("ignore_http_11_upgrade").collect();
        matchers.into_iter().filter_map(|matcher| self.string_matcher(matcher)).collect()
    }

    /// What both sides of HTTP/1 have in common.
    pub(super) fn http1_options(
        &mut self,
        options: Option<&Message>,
        common: Option<&Message>,
    ) -> http1::Options {
        let defaults = http1::Options::default();
        let flag = |name| options.is_some_and(|options| options.flag(name));
        let action = common
            .map_or_else(String::new, |common| common.choice("headers_with_underscores_action"));
        let format = options.and_then(|options| options.message("header_key_format"));
        http1::Options {
            max_fields: common
                .and_then(|common| common.number32("max_headers_count"))
                .unwrap_or(defaults.max_fields),
            allow_absolute_url: options
                .and_then(|options| options.wrapped_flag("allow_absolute_url"))
                .unwrap_or(true),
            enable_trailers: flag("enable_trailers"),
            allow_chunked_length: flag("allow_chunked_length"),
            allow_custom_methods: flag("allow_custom_methods"),
            absolute_form: flag("send_fully_qualified_url"),
            underscores: match action.as_str() {
                "REJECT_REQUEST" => http1::Underscores::Reject,
                "DROP_HEADER" => http1::Underscores::Drop,
                _ => http1::Underscores::Allow,
            },
            name_case: match format.is_some_and(|format| format.has("proper_case_words")) {
                true => http1::NameCase::Proper,
                false => http1::NameCase::Lower,
            },
            keeps: format
                .and_then(|format| format.message("stateful_formatter"))
                .and_then(|formatter| self.kept(formatter)),
            ..defaults
        }
    }

    /// What a `stateful_formatter` keeps of heads that are received.
    fn kept(&mut self, formatter: &Message) -> Option<http1::Kept> {
        let (config, _) = self.extension(formatter, HEADER_FORMATTER, &[PRESERVE_CASE])?;
        let others = config.choice("formatter_type_on_envoy_headers");
        Some(http1::Kept {
            others: match others.as_str() {
                "PROPER_CASE" => http1::NameCase::Proper,
                _ => http1::NameCase::Lower,
            },
            reason: config.flag("forward_reason_phrase"),
        })
    }

    fn client_certificate_matcher(&mut self, message: &Message) -> Option<Tree<ClientCertificate>> {
        let place = Place {
            name: "a matcher of certificates",
            allows: |input| {
                let is_left = matches!(
                    input,
                    Input::Metadata | Input::FilterState { .. } | Input::Attributes
                );
                !input.is_of_arrival() && !is_left
            },
            about: About::Stream,
        };
        let tree = message.message("forward_client_cert_matcher")?;
        self.matcher_tree(tree, place, &[CLIENT_CERTIFICATE], &mut |_, action| {
            Some(client_certificate(action))
        })
    }

    fn strip_port(&mut self, message: &Message) -> StripPort {
        match (message.flag("strip_any_host_port"), message.flag("strip_matching_host_port")) {
            (true, true) => {
                let text =
                    "only one of strip_matching_host_port and strip_any_host_port can be set";
                self.report.problem(message.at("strip_any_host_port"), text);
                StripPort::Any
            }
            (true, false) => StripPort::Any,
            (false, true) => StripPort::Matching,
            (false, false) => StripPort::No,
        }
    }

    fn scheme(&mut self, message: &Message) -> Option<Arc<str>> {
        let transformation = message.message("scheme_header_transformation")?;
        let scheme = transformation.text("scheme_to_overwrite");
        (!scheme.is_empty()).then(|| Arc::from(scheme))
    }

    fn internal_addresses(&mut self, message: &Message) -> InternalAddresses {
        let Some(config) = message.message("internal_address_config") else {
            return InternalAddresses::default();
        };
        InternalAddresses {
            unix_sockets: config.flag("unix_sockets"),
            ranges: self.prefixes(config, "cidr_ranges"),
        }
    }

    fn local_reply(&mut self, config: &Message) -> LocalReply {
        let mappers: Vec<_> = config.messages("mappers").collect();
        LocalReply {
            mappers: mappers.into_iter().filter_map(|mapper| self.reply_mapper(mapper)).collect(),
            body: config.message("body_format").and_then(|format| self.body_format(format)),
        }
    }

    fn reply_mapper(&mut self, mapper: &Message) -> Option<LocalReplyMapper> {
        let filter = mapper.message("filter").and_then(|filter| self.log_filter(filter));
        let body = match mapper.message("body") {
            Some(source) => Some(self.text_data(source, MAX_LOCAL_BODY)?),
            None => None,
        };
        let format =
            mapper.message("body_format_override").and_then(|format| self.body_format(format));
        let headers = HeaderOps { remove: Vec::new(), add: self.added(mapper, "headers_to_add") };
        Some(LocalReplyMapper {
            filter: filter?,
            status: mapper.number("status_code").and_then(|status| u16::try_from(status).ok()),
            body: body.map(Arc::from),
            format,
            headers,
        })
    }
}

/// What a connection manager, or an action of its matcher, says of certificates.
fn client_certificate(message: &Message) -> ClientCertificate {
    ClientCertificate {
        forward: forward_client_cert(message),
        details: certificate_details(message),
    }
}

fn forward_client_cert(message: &Message) -> ForwardClientCert {
    match message.choice("forward_client_cert_details").as_str() {
        "FORWARD_ONLY" => ForwardClientCert::ForwardOnly,
        "APPEND_FORWARD" => ForwardClientCert::AppendForward,
        "SANITIZE_SET" => ForwardClientCert::SanitizeSet,
        "ALWAYS_FORWARD_ONLY" => ForwardClientCert::AlwaysForwardOnly,
        _ => ForwardClientCert::Sanitize,
    }
}

/// In Envoy's order, which is none of the message's.
fn certificate_details(message: &Message) -> Vec<CertificateDetail> {
    let Some(details) = message.message("set_current_client_cert_details") else {
        return Vec::new();
    };
    let all = [
        ("cert", CertificateDetail::Certificate),
        ("chain", CertificateDetail::Chain),
        ("subject", CertificateDetail::Subject),
        ("uri", CertificateDetail::Uri),
        ("dns", CertificateDetail::Dns),
    ];
    all.into_iter().filter(|(name, _)| details.flag(name)).map(|(_, detail)| detail).collect()
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// A longer local reply is a mistake.
const MAX_LOCAL_BODY: usize = 1 << 20;
const UUID_REQUEST_ID: &str = "envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig";
const CLIENT_CERTIFICATE: &str = "envoy.extensions.filters.network.http_connection_manager.v3.\
                                  HttpConnectionManager.ForwardClientCertConfig";
const PRESERVE_CASE: &str =
    "envoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig";
