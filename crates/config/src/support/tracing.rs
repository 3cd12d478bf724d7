//! Distributed tracing.

use super::Entry;

const fn whole(message: &'static str, honoured: &'static [&'static str]) -> Entry {
    Entry { message, honoured, harmless: &[], changes: &[] }
}

pub(super) const ENTRIES: &[Entry] = &[
    whole(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.Tracing",
        &[
            "client_sampling",
            "random_sampling",
            "overall_sampling",
            "verbose",
            "max_path_tag_length",
            "custom_tags",
            "provider",
            "spawn_upstream_span",
            "operation",
            "upstream_operation",
            "no_context_propagation",
        ],
    ),
    whole("envoy.config.trace.v3.Tracing", &["http"]),
    whole("envoy.config.trace.v3.Tracing.Http", &["name", "typed_config"]),
    whole(
        "envoy.config.route.v3.Tracing",
        &[
            "client_sampling",
            "random_sampling",
            "overall_sampling",
            "custom_tags",
            "operation",
            "upstream_operation",
        ],
    ),
    whole("envoy.config.route.v3.Decorator", &["operation", "propagate"]),
    whole(
        "envoy.type.tracing.v3.CustomTag",
        &["tag", "literal", "environment", "request_header", "metadata", "value"],
    ),
    whole("envoy.type.tracing.v3.CustomTag.Literal", &["value"]),
    whole("envoy.type.tracing.v3.CustomTag.Environment", &["name", "default_value"]),
    whole("envoy.type.tracing.v3.CustomTag.Header", &["name", "default_value"]),
    whole("envoy.type.tracing.v3.CustomTag.Metadata", &["kind", "metadata_key", "default_value"]),
    whole("envoy.type.metadata.v3.MetadataKind", &["request", "route", "cluster", "host"]),
    whole("envoy.type.metadata.v3.MetadataKind.Request", &[]),
    whole("envoy.type.metadata.v3.MetadataKind.Route", &[]),
    whole("envoy.type.metadata.v3.MetadataKind.Cluster", &[]),
    whole("envoy.type.metadata.v3.MetadataKind.Host", &[]),
    whole("envoy.type.metadata.v3.MetadataKey", &["key", "path"]),
    whole("envoy.type.metadata.v3.MetadataKey.PathSegment", &["key"]),
    Entry {
        message: "envoy.config.trace.v3.ZipkinConfig",
        honoured: &[
            "collector_cluster",
            "collector_endpoint",
            "trace_id_128bit",
            "shared_span_context",
            "collector_endpoint_version",
            "collector_hostname",
            "trace_context_option",
            "collector_service",
        ],
        harmless: &[],
        changes: &[
            ("split_spans_for_request", "write `spawn_upstream_span: true` beside the provider"),
            ("timestamp_trace_ids", "trace ids say no time"),
        ],
    },
    Entry {
        message: "envoy.config.trace.v3.OpenTelemetryConfig",
        honoured: &[
            "grpc_service",
            "http_service",
            "service_name",
            "resource_detectors",
            "sampler",
            "max_cache_size",
            "set_telemetry_sdk_resource_attributes",
            "set_service_name_resource_attribute",
            "set_instrumentation_scope",
        ],
        harmless: &[],
        changes: &[("exporter", "write grpc_service or http_service")],
    },
    Entry {
        message: "envoy.config.core.v3.HttpService",
        honoured: &["http_uri", "request_headers_to_add"],
        harmless: &[],
        changes: &[("formatters", "only the commands of formats that are always there are known")],
    },
    whole(
        "envoy.extensions.tracers.opentelemetry.resource_detectors.v3.EnvironmentResourceDetectorConfig",
        &[],
    ),
    whole(
        "envoy.extensions.tracers.opentelemetry.resource_detectors.v3.StaticConfigResourceDetectorConfig",
        &["attributes"],
    ),
    whole("envoy.extensions.tracers.opentelemetry.samplers.v3.AlwaysOnSamplerConfig", &[]),
    whole(
        "envoy.extensions.tracers.opentelemetry.samplers.v3.TraceIdRatioBasedSamplerConfig",
        &["sampling_percentage"],
    ),
    whole(
        "envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig",
        &["wrapped_sampler"],
    ),
];
