//! How HTTP is spoken to a cluster: `HttpProtocolOptions`, and the older fields of the cluster itself.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::BoltUpstream;
use towpath_proto::http1;

use super::Converter;
use super::bolt::BOLT_OPTIONS;
use super::route_action::unless_zero;
use crate::error::Rank;
use crate::message::{Message, Value};

/// Envoy's default for HTTP/1.
const DEFAULT_RESPONSE_HEADERS_KB: u32 = 80;
const HTTP_PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// What a cluster's HTTP options come to.
pub(super) struct Upstream {
    pub(super) http1: http1::Options,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) max_connection_duration: Option<Duration>,
    pub(super) max_requests_per_connection: u32,
    pub(super) bolt: Option<Arc<BoltUpstream>>,
}

impl Converter<'_> {
    pub(super) fn upstream(&mut self, cluster: &Message) -> Upstream {
        let (typed, bolt) = self.protocol_options(cluster);
        let bolt = bolt.map(|bolt| Arc::new(self.bolt_upstream(bolt)));
        let http1 = match typed {
            Some(typed) => self.chosen_http1(typed),
            None => cluster.message("http_protocol_options"),
        };
        let common = typed.unwrap_or(cluster).message("common_http_protocol_options");
        let mut http1 = self.http1_options(http1, common);
        http1.max_head_bytes = common
            .and_then(|common| common.number32("max_response_headers_kb"))
            .unwrap_or(DEFAULT_RESPONSE_HEADERS_KB)
            .saturating_mul(1024);
        let duration = |name| common.and_then(|common| common.duration(name));
        let requests = common.and_then(|common| common.number32("max_requests_per_connection"));
        Upstream {
            http1,
            idle_timeout: unless_zero(duration("idle_timeout").unwrap_or(DEFAULT_IDLE_TIMEOUT)),
            max_connection_duration: duration("max_connection_duration").and_then(unless_zero),
            max_requests_per_connection: requests
                .or_else(|| cluster.number32("max_requests_per_connection"))
                .unwrap_or(0),
            bolt,
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

    /// The HTTP/1 options of the protocol that is chosen.
    fn chosen_http1<'m>(&mut self, typed: &'m Message) -> Option<&'m Message> {
        let field = typed.oneof("upstream_protocol_options")?;
        let Value::Message(choice) = &field.value else { return None };
        match field.descriptor.name() {
            "explicit_http_config" => {
                let protocol = choice.oneof("protocol_config")?;
                match (protocol.descriptor.name(), &protocol.value) {
                    ("http_protocol_options", Value::Message(http1)) => return Some(http1),
                    ("http2_protocol_options", _) => {
                        self.report.unsupported(&protocol.at, "HTTP/2 is not spoken to clusters")
                    }
                    _ => self.report.unsupported(&protocol.at, "HTTP/3 is not spoken to clusters"),
                }
                None
            }
            "use_downstream_protocol_config" => {
                for other in ["http2_protocol_options", "http3_protocol_options"] {
                    if choice.has(other) {
                        self.report.finding(
                            choice.at(other),
                            Rank::Harmless,
                            "no request comes in over this protocol",
                        );
                    }
                }
                choice.message("http_protocol_options")
            }
            _ => {
                self.report.unsupported(
                    &field.at,
                    "the protocol is not chosen by ALPN: HTTP/1 is spoken to clusters",
                );
                None
            }
        }
    }
}

const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
