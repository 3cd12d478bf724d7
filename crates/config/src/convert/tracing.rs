//! Distributed tracing: of connection managers, of routes, and of the bootstrap.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::format::MetadataOf;
use towpath_engine::snapshot::listener::Direction;
use towpath_engine::snapshot::route::{Fraction, HeaderAction, HeaderOps};
use towpath_engine::snapshot::tracing::{
    Collector, CustomTag, Decorator, Dialect, OpenTelemetry, Provider, RouteTracing, Sampler,
    Sampling, TagSource, Tracing, Zipkin,
};

use super::Converter;
use super::extension::{RESOURCE_DETECTOR, SAMPLER, TRACER};
use super::runtime::{PHASE_SPANS, fraction};
use crate::message::{Message, Value};

const ZIPKIN: &str = "envoy.config.trace.v3.ZipkinConfig";
const OPENTELEMETRY: &str = "envoy.config.trace.v3.OpenTelemetryConfig";

impl Converter<'_> {
    /// `tracing.http` of the bootstrap, for connection managers that name no provider.
    pub(super) fn common_tracing(&mut self, bootstrap: &Message) {
        let Some(tracing) = bootstrap.message("tracing") else { return };
        let provider = tracing.message("http").and_then(|http| self.provider(http));
        self.common_provider = provider.map(|provider| (provider, self.print(tracing)));
    }

    /// `tracing` of a connection manager.
    pub(super) fn tracing(&mut self, manager: &Message) -> Option<Tracing> {
        let message = manager.message("tracing")?;
        let ids = manager.message("request_id_extension").and_then(|ids| ids.any("typed_config"));
        let ids = ids.and_then(|(any, _)| any.message.as_ref());
        let of_ids = |name| ids.and_then(|ids| ids.wrapped_flag(name)).unwrap_or(true);
        let percent = |name| message.message(name).and_then(|percent| percent.float("value"));
        // Of two of them Envoy takes whole percents.
        let whole = |name| Fraction {
            numerator: percent(name).map_or(100, |percent| percent as u32),
            denominator: 100,
        };
        let random = percent("random_sampling").map_or(10_000, |it| (it * 100.0).round() as u32);
        let sampling = self.sampling(Sampling {
            client: whole("client_sampling"),
            random: Fraction { numerator: random, denominator: 10_000 },
            overall: whole("overall_sampling"),
        });
        let provider = match message.message("provider") {
            Some(provider) => Some(self.provider(provider)?),
            None => self.common_provider.clone().map(|(provider, print)| {
                self.files = self.files.wrapping_add(print);
                provider
            }),
        };
        Some(Tracing {
            sampling,
            verbose: message.flag("verbose"),
            max_path: message
                .number32("max_path_tag_length")
                .map_or(MAX_PATH, |most| most as usize),
            tags: self.custom_tags(message),
            spawns_upstream: message.flag("spawn_upstream_span"),
            operation: self.operation(message, "operation"),
            upstream_operation: self.operation(message, "upstream_operation"),
            phases: self.runtime.feature(PHASE_SPANS, false),
            silent: message.flag("no_context_propagation"),
            is_egress: self.direction == Direction::Outbound,
            packs_reason: of_ids("pack_trace_reason"),
            draws_by_id: of_ids("use_request_id_for_trace_sampling"),
            provider,
        })
    }

    /// The shares, with what the runtime says before them.
    fn sampling(&self, default: Sampling) -> Sampling {
        let of_key = |key, default| self.fraction_of_key(key).unwrap_or(default);
        Sampling {
            client: of_key("tracing.client_enabled", default.client),
            random: of_key("tracing.random_sampling", default.random),
            overall: of_key("tracing.global_enabled", default.overall),
        }
    }

    /// `tracing` and `decorator` of a route.
    pub(super) fn route_tracing(&mut self, route: &Message) -> Option<Box<RouteTracing>> {
        let decorator = route.message("decorator").map(|decorator| Decorator {
            operation: Arc::from(decorator.text("operation")),
            propagates: decorator.wrapped_flag("propagate").unwrap_or(true),
        });
        let mut tracing = RouteTracing { decorator, ..RouteTracing::default() };
        match route.message("tracing") {
            Some(message) => {
                let share = |name| message.message(name).map_or(ALL, fraction);
                tracing.sampling = Some(self.sampling(Sampling {
                    client: share("client_sampling"),
                    random: share("random_sampling"),
                    overall: share("overall_sampling"),
                }));
                tracing.tags = self.custom_tags(message);
                tracing.operation = self.operation(message, "operation");
                tracing.upstream_operation = self.operation(message, "upstream_operation");
            }
            None if tracing.decorator.is_none() => return None,
            None => {}
        }
        Some(Box::new(tracing))
    }

    fn operation(
        &mut self,
        message: &Message,
        name: &str,
    ) -> Option<towpath_engine::format::Format> {
        let text = message.text(name);
        if text.is_empty() { None } else { self.format(text, true, message.at(name)) }
    }

    pub(super) fn custom_tags(&mut self, message: &Message) -> Vec<CustomTag> {
        let tags: Vec<_> = message.messages("custom_tags").collect();
        tags.into_iter().filter_map(|tag| self.custom_tag(tag)).collect()
    }

    fn custom_tag(&mut self, tag: &Message) -> Option<CustomTag> {
        let name = Arc::from(tag.text("tag"));
        let Some(field) = tag.oneof("type") else {
            self.report.problem(&tag.at, "a tag needs a value");
            return None;
        };
        let source = match (field.descriptor.name(), &field.value) {
            ("literal", Value::Message(literal)) => {
                TagSource::Literal(literal.text("value").into())
            }
            ("environment", Value::Message(variable)) => {
                let value = std::env::var(variable.text("name")).ok();
                let value = value.unwrap_or_else(|| variable.text("default_value").to_owned());
                TagSource::Literal(value.into())
            }
            ("request_header", Value::Message(header)) => TagSource::Header {
                name: towpath_proto::head::HeaderName::new(header.text("name")).ok()?,
                default: header.text("default_value").into(),
            },
            ("metadata", Value::Message(metadata)) => Self::metadata_tag(metadata)?,
            ("value", Value::String(text)) => {
                TagSource::Format(self.format(text, false, &field.at)?)
            }
            _ => return None,
        };
        Some(CustomTag { name, source })
    }

    fn metadata_tag(metadata: &Message) -> Option<TagSource> {
        let whose = match metadata.message("kind")?.oneof("kind")?.descriptor.name() {
            "request" => MetadataOf::Dynamic,
            "route" => MetadataOf::Route,
            "cluster" => MetadataOf::Cluster,
            _ => MetadataOf::Endpoint,
        };
        let key = metadata.message("metadata_key")?;
        let path: Vec<_> = key.messages("path").map(|segment| segment.text("key").into()).collect();
        Some(TagSource::Metadata {
            whose,
            namespace: key.text("key").into(),
            path,
            default: metadata.text("default_value").into(),
        })
    }

    /// A `Tracing.Http`.
    fn provider(&mut self, holder: &Message) -> Option<Arc<Provider>> {
        let (config, _) = self.extension(holder, TRACER, &[ZIPKIN, OPENTELEMETRY])?;
        let provider = match config.descriptor.full_name() {
            ZIPKIN => self.zipkin(config)?,
            _ => self.opentelemetry(config)?,
        };
        Some(Arc::new(provider))
    }

    fn zipkin(&mut self, config: &Message) -> Option<Provider> {
        let version = config.choice("collector_endpoint_version");
        if !matches!(version.as_str(), "HTTP_JSON" | "HTTP_PROTO") {
            let text = format!("{version} is not spoken; write HTTP_JSON or HTTP_PROTO");
            self.report.unsupported(config.at("collector_endpoint_version"), text);
        }
        let timeout = self.runtime.number("tracing.zipkin.request_timeout").unwrap_or(5000);
        let timeout = Duration::from_millis(timeout);
        let collector = match config.message("collector_service") {
            Some(service) => self.http_service(service, Some(timeout))?,
            None => {
                let cluster = config.text("collector_cluster");
                if cluster.is_empty() {
                    let text = "Either collector_cluster or collector_service must be specified";
                    self.report.problem(&config.at, text);
                    return None;
                }
                if config.text("collector_endpoint").is_empty() {
                    let text = "collector_endpoint must be specified when using collector_cluster";
                    self.report.problem(&config.at, text);
                }
                self.cluster_id(cluster, true, config.at("collector_cluster"))?;
                let host = match config.text("collector_hostname") {
                    "" => cluster,
                    host => host,
                };
                Collector {
                    cluster: Arc::from(cluster),
                    authority: Arc::from(host),
                    path: config.text("collector_endpoint").into(),
                    headers: HeaderOps::default(),
                    timeout,
                    is_grpc: false,
                    skip_envoy_headers: false,
                    retry: None,
                }
            }
        };
        let dialect = Dialect::Zipkin(Zipkin {
            is_binary: version == "HTTP_PROTO",
            long_ids: config.flag("trace_id_128bit"),
            shares: config.wrapped_flag("shared_span_context").unwrap_or(true),
            with_w3c: config.choice("trace_context_option") == "USE_B3_WITH_W3C_PROPAGATION",
        });
        Some(self.batched(dialect, collector, "zipkin", MOST_WAITING))
    }

    fn opentelemetry(&mut self, config: &Message) -> Option<Provider> {
        let collector = match (config.message("grpc_service"), config.message("http_service")) {
            (Some(_), Some(_)) => {
                let text =
                    "OpenTelemetry Tracer cannot have both gRPC and HTTP exporters configured";
                self.report.problem(&config.at, text);
                return None;
            }
            (None, Some(service)) => self.http_service(service, None)?,
            (Some(service), None) => {
                let (service, timeout) = self.grpc_service(service)?;
                Collector {
                    cluster: service.cluster,
                    authority: service.authority,
                    path: EXPORT.into(),
                    headers: service.metadata,
                    timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
                    is_grpc: true,
                    skip_envoy_headers: service.skip_envoy_headers,
                    retry: service.retry,
                }
            }
            (None, None) => {
                self.report.unsupported(&config.at, "needs `grpc_service` or `http_service`");
                return None;
            }
        };
        let sampler = match config.message("sampler") {
            Some(sampler) => Some(self.sampler(sampler)?),
            None => None,
        };
        let dialect = Dialect::OpenTelemetry(OpenTelemetry {
            resource: self.resource(config),
            tells_scope: config.wrapped_flag("set_instrumentation_scope").unwrap_or(true),
            sampler,
        });
        let most = config.number32("max_cache_size").map_or(MOST_WAITING, |most| most as usize);
        Some(self.batched(dialect, collector, "opentelemetry", most))
    }

    fn batched(
        &self,
        dialect: Dialect,
        collector: Collector,
        tracer: &str,
        most_waiting: usize,
    ) -> Provider {
        let key = |name: &str| self.runtime.number(&format!("tracing.{tracer}.{name}"));
        Provider {
            dialect,
            collector,
            batch: key("min_flush_spans").map_or(5, |it| usize::try_from(it).unwrap_or(usize::MAX)),
            interval: Duration::from_millis(key("flush_interval_ms").unwrap_or(5000)),
            most_waiting,
        }
    }

    /// An `HttpService`.
    pub(super) fn http_service(
        &mut self,
        service: &Message,
        timeout: Option<Duration>,
    ) -> Option<Collector> {
        let uri = service.message("http_uri")?;
        let written = uri.text("uri");
        let after_scheme = written.split_once("://").map(|(_, rest)| rest);
        let (host, path) = match after_scheme {
            Some(rest) => rest.find('/').map_or((rest, "/"), |at| rest.split_at(at)),
            None => ("", written),
        };
        let cluster = uri.text("cluster");
        let own = self.whole_timeout(uri)?;
        let mut add = self.added(service, "request_headers_to_add");
        for op in &mut add {
            op.action = HeaderAction::Overwrite;
        }
        Some(Collector {
            cluster: Arc::from(cluster),
            authority: Arc::from(if host.is_empty() { cluster } else { host }),
            path: path.into(),
            headers: HeaderOps { remove: Vec::new(), add },
            timeout: timeout.or(own).unwrap_or(DEFAULT_TIMEOUT),
            is_grpc: false,
            skip_envoy_headers: false,
            retry: None,
        })
    }

    /// What is said of the proxy; later detectors override.
    fn resource(&mut self, config: &Message) -> Vec<(String, String)> {
        let is_set = |name| config.wrapped_flag(name).unwrap_or(true);
        let mut resource = Attributes::default();
        if is_set("set_service_name_resource_attribute") {
            let name = config.text("service_name");
            resource.set("service.name", if name.is_empty() { UNKNOWN_SERVICE } else { name });
        }
        if is_set("set_telemetry_sdk_resource_attributes") {
            resource.set_program();
        }
        self.detected(config, resource)
    }

    /// The same where nothing is said of the program's name.
    pub(super) fn resource_of_program(&mut self, config: &Message) -> Vec<(String, String)> {
        let mut resource = Attributes::default();
        resource.set_program();
        self.detected(config, resource)
    }

    fn detected(&mut self, config: &Message, mut resource: Attributes) -> Vec<(String, String)> {
        let detectors: Vec<_> = config.messages("resource_detectors").collect();
        for detector in detectors {
            let known = [STATIC_DETECTOR, ENVIRONMENT_DETECTOR];
            let Some((found, at)) = self.extension(detector, RESOURCE_DETECTOR, &known) else {
                continue;
            };
            if found.descriptor.full_name() == STATIC_DETECTOR {
                for (name, item) in found.entries("attributes") {
                    if let Value::String(value) = &item.value {
                        resource.set(name, value);
                    }
                }
                continue;
            }
            let said = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
            for pair in said.split(',').filter(|pair| !pair.is_empty()) {
                match pair.split_once('=') {
                    Some((name, value)) => resource.set(name.trim(), value.trim()),
                    None => {
                        let text = "OTEL_RESOURCE_ATTRIBUTES is no list of `name=value`";
                        self.report.problem(at, text);
                    }
                }
            }
        }
        resource.0
    }

    fn sampler(&mut self, holder: &Message) -> Option<Sampler> {
        let (config, _) = self.extension(holder, SAMPLER, &[ALWAYS_ON, BY_RATIO, BY_PARENT])?;
        match config.descriptor.full_name() {
            ALWAYS_ON => Some(Sampler::AlwaysOn),
            BY_RATIO => {
                let share = config.message("sampling_percentage").map(fraction);
                Some(Sampler::Ratio(share.unwrap_or(Fraction { numerator: 0, denominator: 100 })))
            }
            _ => {
                let Some(inner) = config.message("wrapped_sampler") else {
                    self.report.problem(&config.at, "needs a `wrapped_sampler`");
                    return None;
                };
                Some(Sampler::Parent(Box::new(self.sampler(inner)?)))
            }
        }
    }
}

/// Names and values, of which the last counts.
#[derive(Debug, Default)]
struct Attributes(Vec<(String, String)>);

impl Attributes {
    fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, before)) => value.clone_into(before),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    fn set_program(&mut self) {
        self.set("telemetry.sdk.language", "rust");
        self.set("telemetry.sdk.name", "towpath");
        self.set("telemetry.sdk.version", env!("CARGO_PKG_VERSION"));
    }
}

const ALL: Fraction = Fraction { numerator: 100, denominator: 100 };
const MAX_PATH: usize = 256;
/// As OpenTelemetry's tracer has it by default.
const MOST_WAITING: usize = 1024;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const UNKNOWN_SERVICE: &str = "unknown_service:envoy";
const STATIC_DETECTOR: &str = "envoy.extensions.tracers.opentelemetry.resource_detectors.v3.\
StaticConfigResourceDetectorConfig";
const ENVIRONMENT_DETECTOR: &str = "envoy.extensions.tracers.opentelemetry.resource_detectors.v3.\
EnvironmentResourceDetectorConfig";
const ALWAYS_ON: &str = "envoy.extensions.tracers.opentelemetry.samplers.v3.AlwaysOnSamplerConfig";
const BY_RATIO: &str =
    "envoy.extensions.tracers.opentelemetry.samplers.v3.TraceIdRatioBasedSamplerConfig";
const BY_PARENT: &str =
    "envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig";
