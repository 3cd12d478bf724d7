//! How HTTP is spoken to a cluster: `HttpProtocolOptions`, and the older fields of the cluster itself.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::field::Field;
use towpath_engine::filter::ChainFilter;
use towpath_engine::snapshot::cluster::AskedNames;
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::snapshot::route::{HashPolicy, Mirror, RetryPolicy};
use towpath_engine::snapshot::{BoltUpstream, Http2};
use towpath_proto::http1;

use super::Converter;
use super::bolt::BOLT_OPTIONS;
use super::route_action::unless_zero;
use super::tls::may_negotiate;
use crate::error::Rank;
use crate::message::{Message, Value};

/// Envoy's default for HTTP/1.
const DEFAULT_RESPONSE_HEADERS_KB: u32 = 80;
const DEFAULT_HTTP2_HEADERS_KB: u32 = 60;
const HTTP_PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Names that requests choose, if they choose some.
fn asked_names(options: &Message) -> Option<AskedNames> {
    let field = options.text("override_auto_sni_header");
    let names = AskedNames {
        sni: options.flag("auto_sni"),
        certified: options.flag("auto_san_validation"),
        field: Field::parse(field).filter(|_| !field.is_empty()),
    };
    (names.sni || names.certified).then_some(names)
}

/// What a cluster's HTTP options come to.
pub(super) struct Upstream {
    pub(super) http1: http1::Options,
    pub(super) http2: Option<Arc<Http2>>,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) max_connection_duration: Option<Duration>,
    pub(super) max_stream_duration: Option<Duration>,
    pub(super) max_requests_per_connection: u32,
    pub(super) bolt: Option<Arc<BoltUpstream>>,
    pub(super) asked_names: Option<AskedNames>,
    pub(super) filters: Vec<ChainFilter>,
    pub(super) hash: Vec<HashPolicy>,
    pub(super) retry: Option<Arc<RetryPolicy>>,
    pub(super) mirrors: Option<Arc<[Mirror]>>,
}

impl Converter<'_> {
    pub(super) fn upstream(&mut self, cluster: &Message) -> Upstream {
        let (typed, bolt) = self.protocol_options(cluster);
        let bolt = bolt.map(|bolt| Arc::new(self.bolt_upstream(bolt)));
        let chosen = match typed {
            Some(typed) => self.chosen(typed, cluster),
            None => self.chosen_by_old_fields(cluster),
        };
        let common = typed.unwrap_or(cluster).message("common_http_protocol_options");
        if let Some(options) = chosen.http1.filter(|it| it.has("ignore_http_11_upgrade")) {
            let text = "what a server upgrades to has been asked for";
            self.report.unsupported(options.at("ignore_http_11_upgrade"), text);
        }
        let mut http1 = self.http1_options(chosen.http1, common);
        let head_kb = common.and_then(|common| common.number32("max_response_headers_kb"));
        let head_bytes = |default| head_kb.unwrap_or(default).saturating_mul(1024);
        http1.max_head_bytes = head_bytes(DEFAULT_HTTP2_HEADERS_KB);
        let http2 = chosen
            .http2
            .map(|Chosen2 { options, choice }| self.http2(options, &http1, None, choice));
        http1.max_head_bytes = head_bytes(DEFAULT_RESPONSE_HEADERS_KB);
        let duration = |name| common.and_then(|common| common.duration(name));
        let requests = common.and_then(|common| common.number32("max_requests_per_connection"));
        let filters = typed.map(|typed| self.upstream_http_filters(typed, "http_filters"));
        Upstream {
            http1,
            http2,
            filters: filters.unwrap_or_default(),
            hash: typed.map(|typed| self.hash_policies(typed)).unwrap_or_default(),
            retry: typed
                .and_then(|typed| typed.message("retry_policy"))
                .and_then(|policy| self.cluster_retry_policy(policy)),
            mirrors: typed
                .map(|typed| self.mirrors(typed, false))
                .filter(|mirrors| !mirrors.is_empty())
                .map(Arc::from),
            idle_timeout: unless_zero(duration("idle_timeout").unwrap_or(DEFAULT_IDLE_TIMEOUT)),
            max_connection_duration: duration("max_connection_duration").and_then(unless_zero),
            max_stream_duration: duration("max_stream_duration").and_then(unless_zero),
            max_requests_per_connection: requests
                .or_else(|| cluster.number32("max_requests_per_connection"))
                .unwrap_or(0),
            bolt,
            asked_names: {
                let names = typed.unwrap_or(cluster).message("upstream_http_protocol_options");
                let says = typed.is_some() || names.is_some();
                self.names_asked(cluster, names.and_then(asked_names), says)
            },
        }
    }

    /// The options of HTTP, and those of Bolt.
    fn protocol_options<'m>(
        &mut self,
        cluster: &'m Message,
    ) -> (Option<&'m Message>, Option<&'m Message>) {
        let (mut options, mut bolt) = (None, None);
        for (name, item) in cluster.entries("typed_extension_protocol_options") {
            let Value::Any(any) = &item.value else { continue };
            match &any.message {
                Some(message)
                    if any.name == HTTP_PROTOCOL_OPTIONS && name == HTTP_PROTOCOL_OPTIONS =>
                {
                    self.accept(message);
                    options = Some(message);
                }
                Some(message) if any.name == BOLT_OPTIONS && name == BOLT_OPTIONS => {
                    self.accept(message);
                    bolt = Some(message);
                }
                Some(_) if [HTTP_PROTOCOL_OPTIONS, BOLT_OPTIONS].contains(&&*any.name) => {
                    self.report.problem(
                        &item.at,
                        format!("there are no protocol options called `{name}`"),
                    );
                }
                Some(_) => self
                    .report
                    .unsupported(&item.at, format!("protocol options `{name}` are not there")),
                None => self.report.problem(
                    &item.at,
                    format!("there are no protocol options `{name}` of type `{}`", any.name),
                ),
            }
        }
        (options, bolt)
    }

    /// The protocols of `HttpProtocolOptions`.
    fn chosen<'m>(&mut self, typed: &'m Message, cluster: &Message) -> Chosen<'m> {
        let Some(field) = typed.oneof("upstream_protocol_options") else {
            return Chosen::default();
        };
        let Value::Message(choice) = &field.value else { return Chosen::default() };
        match field.descriptor.name() {
            "explicit_http_config" => self.explicit(choice),
            "use_downstream_protocol_config" => self.as_downstream(choice),
            _ => {
                if !may_negotiate(cluster) {
                    let text =
                        "ALPN configured for a cluster which has a non-ALPN transport socket";
                    self.report.problem(&field.at, text);
                }
                if choice.has("http3_protocol_options") {
                    self.report.unsupported(choice.at("http3_protocol_options"), NO_HTTP3);
                }
                let options = choice.message("http2_protocol_options");
                Chosen {
                    http1: choice.message("http_protocol_options"),
                    http2: Some(Chosen2 { options, choice: Choice::Negotiated }),
                }
            }
        }
    }

    fn explicit<'m>(&mut self, choice: &'m Message) -> Chosen<'m> {
        let Some(protocol) = choice.oneof("protocol_config") else { return Chosen::default() };
        match (protocol.descriptor.name(), &protocol.value) {
            ("http_protocol_options", Value::Message(http1)) => {
                Chosen { http1: Some(http1), http2: None }
            }
            ("http2_protocol_options", Value::Message(http2)) => Chosen::only_http2(http2),
            _ => {
                self.report.unsupported(&protocol.at, NO_HTTP3);
                Chosen::default()
            }
        }
    }

    fn as_downstream<'m>(&mut self, choice: &'m Message) -> Chosen<'m> {
        if choice.has("http3_protocol_options") {
            let text = "no request comes in over this protocol";
            self.report.finding(choice.at("http3_protocol_options"), Rank::Harmless, text);
        }
        Chosen::as_downstream(choice)
    }

    /// The protocols of a cluster without `HttpProtocolOptions`.
    fn chosen_by_old_fields<'m>(&mut self, cluster: &'m Message) -> Chosen<'m> {
        if cluster.choice("protocol_selection") == "USE_DOWNSTREAM_PROTOCOL" {
            return Chosen::as_downstream(cluster);
        }
        if let Some(http2) = cluster.message("http2_protocol_options") {
            return Chosen::only_http2(http2);
        }
        Chosen { http1: cluster.message("http_protocol_options"), http2: None }
    }
}

/// Which protocols a cluster speaks, and the options of each.
#[derive(Default)]
struct Chosen<'m> {
    http1: Option<&'m Message>,
    http2: Option<Chosen2<'m>>,
}

struct Chosen2<'m> {
    options: Option<&'m Message>,
    choice: Choice,
}

impl<'m> Chosen<'m> {
    fn only_http2(options: &'m Message) -> Self {
        let choice = Choice::Always;
        Self { http1: None, http2: Some(Chosen2 { options: Some(options), choice }) }
    }

    /// Both, by the options of each in `message`.
    fn as_downstream(message: &'m Message) -> Self {
        let options = message.message("http2_protocol_options");
        Self {
            http1: message.message("http_protocol_options"),
            http2: Some(Chosen2 { options, choice: Choice::AsDownstream }),
        }
    }
}

const NO_HTTP3: &str = "HTTP/3 is not spoken to clusters";
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
