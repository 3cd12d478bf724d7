//! Servers that are told of streams (`OpenTelemetryAccessLogConfig`).

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::log::{Fixed, LogService, Template};
use towpath_engine::snapshot::route::RetryOn;
use towpath_engine::snapshot::tracing::Collector;

use super::Converter;
use crate::message::{Message, Value};
use crate::support::Entry;

impl Converter<'_> {
    pub(super) fn log_service(&mut self, config: &Message) -> Option<LogService> {
        self.formatters(config);
        let common = config.message("common_config");
        let collector = self.log_collector(config, common)?;
        let name = Some(config.text("log_name")).filter(|name| !name.is_empty());
        let name = name.or_else(|| common.map(|common| common.text("log_name")));
        let mut resource = Vec::new();
        if !config.flag("disable_builtin_labels") {
            let node = &self.snapshot.node;
            let own = [
                ("log_name", name.unwrap_or_default()),
                ("zone_name", &node.zone),
                ("cluster_name", &node.cluster),
                ("node_name", &node.id),
            ];
            resource.extend(own.map(|(name, value)| (name.into(), Fixed::Text(value.into()))));
        }
        if let Some(list) = config.message("resource_attributes") {
            resource.extend(pairs(list).map(|(name, value)| (name.into(), fixed(value))));
        }
        let body = match config.message("body").filter(|body| body.oneof("value").is_some()) {
            Some(body) => Some(self.template(body)?),
            None => None,
        };
        let attributes = match config.message("attributes") {
            Some(list) => self.templates(list)?,
            None => Vec::new(),
        };
        let stat_prefix = config.text("stat_prefix");
        if !(stat_prefix.is_empty() || stat_prefix.ends_with('.')) {
            let text = "write a dot at its end: what is counted has a name of its own";
            self.report.unsupported(config.at("stat_prefix"), text);
        }
        let buffered = |name| {
            let own = Some(config).filter(|config| config.has(name));
            own.or_else(|| common.filter(|common| common.has(name)))
        };
        let bytes = buffered("buffer_size_bytes").and_then(|it| it.number("buffer_size_bytes"));
        let interval = buffered("buffer_flush_interval");
        let interval = interval.and_then(|it| it.duration("buffer_flush_interval"));
        Some(LogService {
            collector,
            stat_prefix: Arc::from(stat_prefix),
            batch_bytes: bytes
                .map_or(BATCH_BYTES, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            interval: interval.unwrap_or(INTERVAL),
            resource,
            body,
            attributes,
        })
    }

    fn log_collector(&mut self, config: &Message, common: Option<&Message>) -> Option<Collector> {
        if let Some(common) = common {
            self.check_version(common);
            if common.has("custom_tags") {
                self.report.unsupported(common.at("custom_tags"), "write an attribute");
            }
        }
        let old = common.and_then(|common| common.message("grpc_service"));
        let (grpc, http) = (config.message("grpc_service"), config.message("http_service"));
        let (service, others) = match (grpc, http, old) {
            (None, Some(http), None) => return self.http_service(http, None),
            (grpc, http, old) => (grpc.or(old), grpc.is_some() && old.is_some() || http.is_some()),
        };
        if others {
            let text = "OpenTelemetry access logger can only have one transport configured.";
            self.report.problem(&config.at, text);
        }
        let Some(service) = service else {
            let text = "OpenTelemetry access logger requires one of: grpc_service, http_service, \
                        or common_config.grpc_service to be configured.";
            self.report.problem(&config.at, text);
            return None;
        };
        let mut collector = self.grpc_collector(service, EXPORT)?;
        if let Some(common) = common {
            self.read_log_retries(common, &mut collector);
        }
        Some(collector)
    }

    /// `grpc_stream_retry_policy`, which comes before that of the service.
    pub(super) fn read_log_retries(&mut self, common: &Message, collector: &mut Collector) {
        let on = Some(RetryOn::CONNECT_FAILURE);
        let own = self.core_retry_policy(common, "grpc_stream_retry_policy", on);
        collector.retry = own.or_else(|| collector.retry.take());
    }

    fn templates(&mut self, list: &Message) -> Option<Vec<(Box<str>, Template)>> {
        let made = pairs(list).map(|(name, value)| match value {
            Some(value) => Some((name.into(), self.template(value)?)),
            None => {
                self.report.problem(&list.at, ONLY);
                None
            }
        });
        made.collect()
    }

    /// A value that is made for each stream; how deep it nests the reader of messages limits.
    fn template(&mut self, any: &Message) -> Option<Template> {
        let Some(field) = any.oneof("value") else {
            self.report.problem(&any.at, ONLY);
            return None;
        };
        match (field.descriptor.name(), &field.value) {
            ("string_value", Value::String(text)) => {
                Some(Template::Text(self.format(text, false, &field.at)?))
            }
            ("array_value", Value::Message(list)) => {
                let items = list.messages("values").map(|item| self.template(item));
                Some(Template::List(items.collect::<Option<_>>()?))
            }
            ("kvlist_value", Value::Message(list)) => Some(Template::Map(self.templates(list)?)),
            _ => {
                self.report.problem(&field.at, ONLY);
                None
            }
        }
    }
}

/// The entries of a `KeyValueList`.
fn pairs(list: &Message) -> impl Iterator<Item = (&str, Option<&Message>)> {
    list.messages("values").map(|pair| (pair.text("key"), pair.message("value")))
}

fn fixed(any: Option<&Message>) -> Fixed {
    let Some(field) = any.and_then(|any| any.oneof("value")) else { return Fixed::Nothing };
    match (field.descriptor.name(), &field.value) {
        (_, Value::String(text)) => Fixed::Text(text.as_str().into()),
        (_, Value::Bool(flag)) => Fixed::Bool(*flag),
        (_, Value::Int(number)) => Fixed::Int(*number),
        (_, Value::Float(number)) => Fixed::Double(*number),
        (_, Value::Bytes(bytes)) => Fixed::Bytes(bytes.as_slice().into()),
        ("array_value", Value::Message(list)) => {
            Fixed::List(list.messages("values").map(|item| fixed(Some(item))).collect())
        }
        ("kvlist_value", Value::Message(list)) => {
            Fixed::Map(pairs(list).map(|(name, value)| (name.into(), fixed(value))).collect())
        }
        _ => Fixed::Nothing,
    }
}

const ONLY: &str = "Only string values, nested key value lists and array values are supported in OpenTelemetry access \
                    log format.";
const EXPORT: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
pub(super) const BATCH_BYTES: usize = 16 << 10;

const fn whole(message: &'static str, honoured: &'static [&'static str]) -> Entry {
    Entry { message, honoured, harmless: &[], changes: &[] }
}

pub(crate) const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
        honoured: &[
            "common_config",
            "http_service",
            "grpc_service",
            "disable_builtin_labels",
            "resource_attributes",
            "body",
            "attributes",
            "formatters",
            "stat_prefix",
            "log_name",
            "buffer_flush_interval",
            "buffer_size_bytes",
        ],
        harmless: &[],
        changes: &[
            ("filter_state_objects_to_log", "write `%FILTER_STATE(…)%` as an attribute"),
            ("custom_tags", "write an attribute"),
        ],
    },
    Entry {
        message: "envoy.extensions.access_loggers.grpc.v3.CommonGrpcAccessLogConfig",
        honoured: &[
            "log_name",
            "grpc_service",
            "transport_api_version",
            "buffer_flush_interval",
            "buffer_size_bytes",
            "custom_tags",
            "grpc_stream_retry_policy",
        ],
        harmless: &[],
        changes: &[(
            "filter_state_objects_to_log",
            "write `%FILTER_STATE(…)%` as an attribute or a tag",
        )],
    },
    whole("opentelemetry.proto.common.v1.KeyValueList", &["values"]),
    whole("opentelemetry.proto.common.v1.ArrayValue", &["values"]),
    whole("opentelemetry.proto.common.v1.KeyValue", &["key", "value"]),
    whole(
        "opentelemetry.proto.common.v1.AnyValue",
        &[
            "string_value",
            "bool_value",
            "int_value",
            "double_value",
            "array_value",
            "kvlist_value",
            "bytes_value",
        ],
    ),
];
