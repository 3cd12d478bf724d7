//! A suite's bootstrap for one of the two: the same text but for the ports of its upstreams and the path of its log.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use crate::case::Suite;
use crate::pressure;
use crate::secure;

const CONNECTION_MANAGER: &str = concat!(
    "type.googleapis.com/envoy.extensions.filters.network.",
    "http_connection_manager.v3.HttpConnectionManager"
);
const TCP_PROXY: &str =
    "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
const FILE_LOG: &str = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";

/// What HTTP listeners log unless they say otherwise.
const HTTP_LOG: &str = "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL% %REQ(:AUTHORITY)% %RESPONSE_CODE% \
    %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% in %BYTES_RECEIVED% out %BYTES_SENT% \
    to %UPSTREAM_CLUSTER% %UPSTREAM_HOST% %UPSTREAM_TRANSPORT_FAILURE_REASON% route %ROUTE_NAME% \
    tries %UPSTREAM_REQUEST_ATTEMPT_COUNT% from %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%";
/// What TCP listeners log.
const TCP_LOG: &str = "%RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% in %BYTES_RECEIVED% \
    out %BYTES_SENT% to %UPSTREAM_CLUSTER% %UPSTREAM_HOST% %UPSTREAM_TRANSPORT_FAILURE_REASON%";
const ALL_TO_APP: &str = "- \
    { name: all, domains: [\"*\"], routes: [ { match: { prefix: / }, route: { cluster: app } } ] }";

/// The whole text.
pub(crate) fn write(suite: &Suite, upstreams: &BTreeMap<String, SocketAddr>, log: &Path) -> String {
    let mut text = String::from(
        "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n",
    );
    if !has(&suite.bootstrap, "node") {
        text.push_str("node: { id: here, cluster: there }\n");
    }
    text.push_str(&suite.bootstrap);
    text.push_str("\nstatic_resources:\n  listeners:\n");
    for (name, http) in &suite.http {
        listener(&mut text, name, [&http.listener, &http.chain, &http.filters]);
        let _ = write!(
            text,
            "      - name: http\n        typed_config:\n          \"@type\": {CONNECTION_MANAGER}\n          \
             stat_prefix: {name}\n"
        );
        text.push_str(&indented(&http.manager, 10));
        if !has(&http.manager, "access_log") {
            text.push_str(&access_log(&format!("{name} {HTTP_LOG}"), 10));
        }
        if !has(&http.manager, "http_filters") {
            let _ = writeln!(
                text,
                "          http_filters: [ {{ name: router, typed_config: {{ \"@type\": {ROUTER} }} }} ]"
            );
        }
        let _ = writeln!(text, "          route_config:\n            name: table");
        text.push_str(&indented(&http.table, 12));
        text.push_str("            virtual_hosts:\n");
        text.push_str(&indented(http.hosts.as_deref().unwrap_or(ALL_TO_APP), 12));
    }
    for (name, tcp) in &suite.tcp {
        listener(&mut text, name, [&tcp.listener, &tcp.chain, &tcp.filters]);
        if !tcp.last.is_empty() {
            text.push_str(&indented(&tcp.last, 6));
            continue;
        }
        let _ = write!(
            text,
            "      - name: tcp\n        typed_config:\n          \"@type\": {TCP_PROXY}\n          stat_prefix: \
             {name}\n"
        );
        text.push_str(&indented(&tcp.proxy, 10));
        if !has(&tcp.proxy, "access_log") {
            text.push_str(&access_log(&format!("{name} {TCP_LOG}"), 10));
        }
    }
    if !suite.secrets.is_empty() {
        text.push_str("  secrets:\n");
        text.push_str(&indented(&suite.secrets, 2));
    }
    text.push_str("  clusters:\n");
    for (name, cluster) in &suite.cluster {
        let _ = writeln!(text, "  - name: {name}");
        if !has(&cluster.fields, "type") && !has(&cluster.fields, "cluster_type") {
            text.push_str("    type: STATIC\n");
        }
        text.push_str(&indented(&cluster.fields, 4));
        let provided = "lb_policy: CLUSTER_PROVIDED";
        if has(&cluster.fields, "load_assignment") || cluster.fields.contains(provided) {
            continue;
        }
        let _ = writeln!(text, "    load_assignment:\n      cluster_name: {name}");
        if !cluster.to.is_empty() {
            text.push_str("      endpoints:\n      - lb_endpoints:\n");
        }
        for to in &cluster.to {
            let port = upstreams.get(to).map_or(CLOSED_PORT, SocketAddr::port);
            let _ = writeln!(
                text,
                "        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}"
            );
        }
    }
    for (name, address) in upstreams {
        text = text.replace(&format!("${{{name}.port}}"), &address.port().to_string());
    }
    let folder = log.parent().unwrap_or(log);
    text = pressure::fill(&text, folder);
    let text = with_resolvers(text);
    let suites = crate::folder().display().to_string();
    secure::fill(&text.replace("${log}", &log.display().to_string()).replace("${suites}", &suites))
}

/// Puts resolvers where a text wants them, with more fields where it has some.
fn with_resolvers(mut text: String) -> String {
    let port = crate::dns::start();
    while let Some(at) = text.find("${dns") {
        let end = at + text[at..].find('}').unwrap_or(text.len() - at - 1);
        // Fields may have braces of their own.
        let end = (end..text.len())
            .find(|end| {
                let inside = &text[at..=*end];
                inside.ends_with('}') && inside.matches('{').count() == inside.matches('}').count()
            })
            .unwrap_or(end);
        let fields = text[at + "${dns".len()..end].trim().to_owned();
        text.replace_range(at..=end, &name_server(port, &fields));
    }
    text
}

/// A resolver of c-ares that asks the name server of the tests.
fn name_server(port: u16, fields: &str) -> String {
    const CARES: &str =
        "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig";
    let fields = if fields.is_empty() { String::new() } else { format!(", {fields}") };
    format!(
        "{{ name: envoy.network.dns_resolver.cares, typed_config: {{ \"@type\": {CARES}, resolvers: \
         [ {{ socket_address: {{ address: 127.0.0.1, port_value: {port}, protocol: UDP }} }} ]{fields} }} }}"
    )
}

/// Nothing listens there.
pub(crate) const CLOSED_PORT: u16 = 1;

fn listener(text: &mut String, name: &str, [fields, chain, filters]: [&str; 3]) {
    let _ = write!(text, "  - name: {name}\n    stat_prefix: {name}\n");
    if !has(fields, "internal_listener") {
        text.push_str("    address: { socket_address: { address: 127.0.0.1, port_value: 0 } }\n");
    }
    text.push_str(&indented(fields, 4));
    text.push_str("    filter_chains:\n    -\n");
    text.push_str(&indented(chain, 6));
    text.push_str("      filters:\n");
    text.push_str(&indented(filters, 6));
}

fn access_log(format: &str, columns: usize) -> String {
    let entry = format!(
        "access_log:\n- name: file\n  typed_config:\n    \"@type\": {FILE_LOG}\n    path: ${{log}}\n    \
         log_format: {{ text_format_source: {{ inline_string: \"{format}\\n\" }} }}\n"
    );
    indented(&entry, columns)
}

/// Whether YAML sets a top-level field.
fn has(yaml: &str, field: &str) -> bool {
    yaml.lines().any(|line| line.strip_prefix(field).is_some_and(|rest| rest.starts_with(':')))
}

fn indented(yaml: &str, columns: usize) -> String {
    let lines = yaml.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("{:columns$}{line}\n", "")).collect()
}
