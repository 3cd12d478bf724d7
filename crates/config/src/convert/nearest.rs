//! What comes nearest to an extension of Envoy's that is not supported.

/// By the beginning of the type's name behind its first word, the first that fits.
const NEAREST: &[(&str, &str)] = &[
    ("extensions.filters.http.wasm.", SCRIPTS),
    ("extensions.filters.http.golang.", SCRIPTS),
    ("extensions.filters.http.dynamic_modules.", SCRIPTS),
    ("extensions.filters.http.rate_limit_quota.", "`ratelimit`"),
    ("extensions.filters.http.adaptive_concurrency.", "`circuit_breakers` of a cluster"),
    ("extensions.filters.http.admission_control.", "the overload manager"),
    ("extensions.filters.http.json_to_metadata.", "`header_to_metadata`"),
    ("extensions.filters.http.gcp_authn.", "`credential_injector`"),
    ("extensions.filters.http.kill_request.", "`fault`"),
    ("extensions.filters.http.file_system_buffer.", "`buffer`"),
    ("extensions.filters.http.tap.", "access logs"),
    ("extensions.filters.http.on_demand.", "a whole table by RDS"),
    ("extensions.filters.network.redis_proxy.", BYTES),
    ("extensions.filters.network.mongo_proxy.", BYTES),
    ("extensions.filters.network.mysql_proxy.", BYTES),
    ("extensions.filters.network.postgres_proxy.", BYTES),
    ("extensions.filters.network.kafka_broker.", BYTES),
    ("extensions.filters.network.zookeeper_proxy.", BYTES),
    ("extensions.filters.network.thrift_proxy.", BYTES),
    ("extensions.filters.network.dubbo_proxy.", BYTES),
    ("extensions.filters.network.ext_authz.", "`rbac`"),
    ("extensions.filters.network.ratelimit.", "`local_ratelimit`"),
    ("extensions.access_loggers.", "`file`, `http_grpc` or `open_telemetry`"),
    ("extensions.stat_sinks.", SINKS),
    ("config.metrics.", SINKS),
    ("extensions.tracers.", TRACERS),
    ("config.trace.", TRACERS),
];

const SCRIPTS: &str = "`lua` or `ext_proc`";
const BYTES: &str = "`tcp_proxy`, which passes bytes on,";
const SINKS: &str = "`statsd`, `dog_statsd` or `open_telemetry`";
const TRACERS: &str = "`opentelemetry` or `zipkin`";

/// What a configuration may ask for in place of a type that is not supported; nothing where nothing is near.
pub(super) fn nearest(type_name: &str) -> Option<&'static str> {
    let rest = type_name.strip_prefix("envoy.")?;
    NEAREST.iter().find(|(of, _)| rest.starts_with(of)).map(|(_, near)| *near)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_is_of_the_same_kind() {
        for (of, near) in [
            ("envoy.extensions.filters.http.wasm.v3.Wasm", Some("`lua` or `ext_proc`")),
            ("envoy.extensions.filters.network.ext_authz.v3.ExtAuthz", Some("`rbac`")),
            ("envoy.config.trace.v3.DatadogConfig", Some("`opentelemetry` or `zipkin`")),
            ("envoy.extensions.filters.http.aws_lambda.v3.Config", None),
            ("of.another.project", None),
        ] {
            assert_eq!(nearest(of), near, "{of}");
        }
    }
}
