//! What filters, logs and spans add to a request, in the words of Envoy's configuration: for Towpath and Envoy alone.

use std::path::Path;

/// Parts of a bootstrap, each in its place, with the indentation of that place.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// Fields of the connection manager.
    pub(super) manager: String,
    /// Fields of the virtual host.
    pub(super) host: String,
    /// Routes before the one that matches all.
    pub(super) routes: String,
    /// HTTP filters before the router.
    pub(super) filters: String,
    /// Further clusters.
    pub(super) clusters: String,
}

/// Twenty routes by regular expressions, of which the last one matches and changes ten fields.
pub(super) fn routes(_: &Path, _: u16) -> Parts {
    let fields = |of: &str| {
        let field = |number| format!("{{ header: {{ key: x-{of}-{number}, value: a value }} }}");
        format!("{of}_headers_to_add: [ {} ]", (0..5).map(field).collect::<Vec<_>>().join(", "))
    };
    let route = |number: usize| {
        let kind = if number == 19 { "items".to_owned() } else { format!("kind{number}") };
        format!(
            "
              - match: {{ safe_regex: {{ regex: '/api/v[0-9]+/{kind}/[0-9]+' }} }}
                route: {{ cluster: origin, timeout: 120s }}
                {}
                {}",
            fields("request"),
            fields("response")
        )
    };
    Parts { routes: (0..20).map(route).collect(), ..Parts::default() }
}

/// `rbac` with a rule of paths and one of headers, `cors` with origins, and `local_ratelimit` that never runs dry.
pub(super) fn access(_: &Path, _: u16) -> Parts {
    let filter = |name: &str, kind: &str, fields: &str| {
        format!(
            "
          - name: {name}
            typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.{kind}, {fields} }}"
        )
    };
    let always = "default_value: { numerator: 100, denominator: HUNDRED }";
    let rules = "rules: { action: ALLOW, policies: { one: { permissions: [ { url_path: { path: { prefix: /api } } } ], \
         principals: [ { header: { name: user-agent, string_match: { prefix: curl } } } ] } } }";
    let limit = format!(
        "stat_prefix: limit, token_bucket: {{ max_tokens: 1000000, tokens_per_fill: 1000000, fill_interval: 1s }}, \
         filter_enabled: {{ {always} }}, filter_enforced: {{ {always} }}"
    );
    Parts {
        filters: filter("rbac", "rbac.v3.RBAC", rules)
            + &filter("cors", "cors.v3.Cors", "")
            + &filter("limit", "local_ratelimit.v3.LocalRateLimit", &limit),
        host: "
              typed_per_filter_config:
                cors:
                  \"@type\": type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy
                  allow_origin_string_match: [ { suffix: .host.test } ]
                  allow_methods: GET, PUT"
            .into(),
        ..Parts::default()
    }
}

/// A key of RSA with 2,048 bits, and a token that it has signed, which holds until 2100.
const KEY: &str = "rr3o88Aq3D18XCTlTK75K6D7hH_PA8HsCPZCIaiu73vGVvE4WdSfrvceibHqmF7gVb-Zft6dWF2RxAWj1CwUDFXO2zsXQJif\
     xvSUYniL7c4nUCFcX5LPVHjKuXuHJgmE9Ra2XTFlgjfmvPTWos2S6kdT3l_53G5r0Yk-7d8zVKScsN5WgxoL-HrKBpUEM7228vhRAIGlB3SU-bN9\
     s-KuF4vb_Qp44tql3zwu_mVnHD-hTXvp9Z6QsnY4pJ5Mq6zPJP93hNTkMOgnbqojbmvhvuidh9DN5vMOU0slq0Jf4_qU02Cibs-hvmDOSPSlV4Si\
     mlqW1CKsO9Sb6MIaQPO0AQ";
pub(super) const TOKEN: &str = "Authorization: Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJtYW55IiwiZXhwIjo0\
     MTAyNDQ0ODAwfQ.O2ht3Yr4aDwZKVNv7lOrpEzayLcDhvUlsXMBsLs-qX4-Ufmh8vzxRub3pus9DgtuaLcQa-KVvtEGJpGmxIa4EQccOJWklPSFdV\
     hM6i-ck0KponupZgZO0rpPQeGE2thKUYcYR_2298qssaeFVwu7tZQYvCBmabu8vL9uIVUlB3iV3swsQdQmoEip7zGSZKfKHTCSnykihN-zW8SXuxW\
     8gX2p9MjXBeKRYITnsXGD3VQv2w3fhdYlmI-0HxiI5tB0skhhZZZfcaFW0XpyxRFNi3jTZIEWWOY_iEUHaeTp0Tvfw10_5rnpcPFBem-NNrGkO2ou\
     T9xJoPBoHuR9DwFEqQ\r\n";

const KEYS_BEFORE: &str = r#"{"keys": [{"kty": "RSA", "kid": "rsa", "e": "AQAB", "n": ""#;
const KEYS_BEHIND: &str = "\"}]}";

/// Each request's token is checked by a key that the file has.
pub(super) fn jwt(_: &Path, _: u16) -> Parts {
    Parts {
        filters: format!(
            "
          - name: jwt
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
              providers:
                many:
                  issuer: many
                  local_jwks:
                    inline_string: '{KEYS_BEFORE}{KEY}{KEYS_BEHIND}'
              rules:
              - {{ match: {{ prefix: / }}, requires: {{ provider_name: many }} }}"
        ),
        ..Parts::default()
    }
}

/// Each request is logged as an object of JSON, with what the default format says.
pub(super) fn json(folder: &Path, _: u16) -> Parts {
    let fields = [
        ("start", "START_TIME"),
        ("method", "REQ(:METHOD)"),
        ("path", "REQ(X-ENVOY-ORIGINAL-PATH?:PATH)"),
        ("protocol", "PROTOCOL"),
        ("status", "RESPONSE_CODE"),
        ("flags", "RESPONSE_FLAGS"),
        ("received", "BYTES_RECEIVED"),
        ("sent", "BYTES_SENT"),
        ("duration", "DURATION"),
        ("agent", "REQ(USER-AGENT)"),
        ("authority", "REQ(:AUTHORITY)"),
        ("upstream", "UPSTREAM_HOST"),
    ]
    .map(|(name, command)| format!("                  {name}: \"%{command}%\"\n"))
    .concat();
    Parts {
        manager: format!(
            "
          access_log:
          - name: envoy.access_loggers.file
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: {}
              log_format:
                json_format:
{fields}",
            folder.join("access.log").display()
        ),
        ..Parts::default()
    }
}

/// Of so many requests in a hundred a span is told to a collector, by OTLP over HTTP; all get or keep their context.
fn spans(collector: u16, percent: u8) -> Parts {
    Parts {
        manager: format!(
            "
          tracing:
            random_sampling: {{ value: {percent} }}
            provider:
              name: envoy.tracers.opentelemetry
              typed_config:
                \"@type\": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                service_name: here
                http_service: {{ http_uri: {{ uri: \"http://otel/v1/traces\", cluster: collector, timeout: 1s }} }}"
        ),
        clusters: cluster("collector", collector, ""),
        ..Parts::default()
    }
}

/// One request in a hundred.
pub(super) fn few_spans(_: &Path, collector: u16) -> Parts {
    spans(collector, 1)
}

/// All of them.
pub(super) fn all_spans(_: &Path, collector: u16) -> Parts {
    spans(collector, 100)
}

/// A server is asked about each request, by gRPC.
pub(super) fn asked(_: &Path, server: u16) -> Parts {
    let http2 = "
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }";
    Parts {
        filters: "
          - name: asked
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
              grpc_service: { envoy_grpc: { cluster_name: judge }, timeout: 120s }"
            .into(),
        clusters: cluster("judge", server, http2),
        ..Parts::default()
    }
}

/// A cluster of four hosts that is asked for nothing.
pub(super) fn four_hosts(name: &str) -> String {
    let host = |number| {
        format!(
            "
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.1.{number}, port_value: 8080 }} }} }}"
        )
    };
    format!(
        "
  - name: {name}
    type: STATIC
    connect_timeout: 5s
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:{}",
        (1..=4).map(host).collect::<String>()
    )
}

fn cluster(name: &str, port: u16, fields: &str) -> String {
    format!(
        "
  - name: {name}
    type: STATIC
    connect_timeout: 5s{fields}
    circuit_breakers:
      thresholds:
      - {{ max_connections: 20000, max_pending_requests: 200000, max_requests: 200000 }}
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address: {{ address: 127.0.0.1, port_value: {port} }}"
    )
}
