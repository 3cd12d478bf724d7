//! Where resources are asked for.

use super::Entry;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        message: "envoy.config.bootstrap.v3.Bootstrap.DynamicResources",
        honoured: &[
            "lds_config",
            "cds_config",
            "ads_config",
            "lds_resources_locator",
            "cds_resources_locator",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.ConfigSource",
        honoured: &[
            "ads",
            "self",
            "initial_fetch_timeout",
            "path",
            "path_config_source",
            "api_config_source",
            "resource_api_version",
        ],
        harmless: &[],
        changes: &[("authorities", "each xdstp:// name is asked of its own config source")],
    },
    Entry {
        message: "envoy.config.core.v3.ExtensionConfigSource",
        honoured: &[
            "config_source",
            "default_config",
            "apply_default_config_without_warming",
            "type_urls",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.PathConfigSource",
        honoured: &["path", "watched_directory"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.WatchedDirectory",
        honoured: &["path"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.AggregatedConfigSource",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.ApiConfigSource",
        honoured: &[
            "api_type",
            "transport_api_version",
            "grpc_services",
            "set_node_on_first_message_only",
            "rate_limit_settings",
        ],
        harmless: &[("refresh_delay", "only REST is polled"), ("request_timeout", "only of REST")],
        changes: &[
            ("cluster_names", "only of REST; write grpc_services"),
            ("config_validators", "there are no other validators"),
        ],
    },
    Entry {
        message: "envoy.config.core.v3.RateLimitSettings",
        honoured: &["max_tokens", "fill_rate"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcService",
        // A stream has no timeout, in Envoy neither.
        honoured: &["envoy_grpc", "google_grpc", "timeout", "initial_metadata", "retry_policy"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcService.GoogleGrpc",
        honoured: &[
            "target_uri",
            "stat_prefix",
            "channel_credentials",
            "call_credentials",
            "per_stream_buffer_limit_bytes",
            "channel_args",
        ],
        harmless: &[],
        changes: &[
            ("channel_credentials_plugin", "Envoy does not read it; write channel_credentials"),
            ("call_credentials_plugin", "Envoy does not read it; write call_credentials"),
            ("credentials_factory_name", "there are no other credentials than these fields say"),
            ("config", "there is nothing of a site's own to configure"),
        ],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcService.GoogleGrpc.ChannelCredentials",
        honoured: &["ssl_credentials", "local_credentials"],
        harmless: &[],
        changes: &[("google_default", "Google's tokens are not fetched; write ssl_credentials")],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcService.GoogleGrpc.SslCredentials",
        honoured: &["root_certs", "private_key", "cert_chain"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcService.GoogleGrpc.GoogleLocalCredentials",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials",
        honoured: &["access_token"],
        harmless: &[],
        changes: &[
            ("google_compute_engine", "tokens are not fetched; write an access_token"),
            ("google_refresh_token", "tokens are not fetched; write an access_token"),
            ("service_account_jwt_access", "tokens are not made; write an access_token"),
            ("google_iam", "tokens are not fetched; write an access_token"),
            ("from_plugin", "there are no plugins; write an access_token"),
            ("sts_service", "tokens are not exchanged; write an access_token"),
        ],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcService.GoogleGrpc.ChannelArgs",
        honoured: &["args"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcService.GoogleGrpc.ChannelArgs.Value",
        honoured: &["string_value", "int_value"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.RetryPolicy",
        honoured: &[
            "retry_back_off",
            "num_retries",
            "retry_on",
            "retry_priority",
            "retry_host_predicate",
            "host_selection_retry_max_attempts",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.BackoffStrategy",
        honoured: &["base_interval", "max_interval"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.RetryPolicy.RetryPriority",
        honoured: &["name", "typed_config"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.RetryPolicy.RetryHostPredicate",
        honoured: &["name", "typed_config"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.GrpcService.EnvoyGrpc",
        honoured: &["cluster_name", "authority", "skip_envoy_headers", "retry_policy"],
        harmless: &[],
        changes: &[(
            "max_receive_message_length",
            "limits are 256 MiB of a control plane, 1 MiB of others",
        )],
    },
    Entry {
        message: "envoy.config.cluster.v3.Cluster.EdsClusterConfig",
        honoured: &["eds_config", "service_name"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.network.http_connection_manager.v3.Rds",
        honoured: &["config_source", "route_config_name"],
        harmless: &[],
        changes: &[],
    },
];
