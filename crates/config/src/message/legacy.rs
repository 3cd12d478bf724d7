//! Forms of the v1 and v2 APIs that have one obvious meaning in v3. Each is accepted with a note that says what to
//! write; every other old form is refused, with the reason where one helps.

use super::decode::{Decoder, field_named};
use super::{Any, At, Field, Message, Value};
use crate::tree::{Key, Node, Value as Tree};

/// Reads a field that v3 does not have. Returns whether it said anything about it.
pub(super) fn field(
    decoder: &mut Decoder<'_>,
    message: &mut Message,
    node: &Node,
    key: &Key,
    value: &Node,
    at: &At,
) -> bool {
    let owner = message.descriptor.full_name().to_owned();
    match (owner.as_str(), key.name.as_str()) {
        (_, "config") if message.descriptor.get_field_by_name("typed_config").is_some() => {
            untyped_config(decoder, message, node, key, value, at);
        }
        ("envoy.config.cluster.v3.Cluster", "hosts") => {
            hosts(decoder, message, node, key, value, at)
        }
        ("envoy.config.listener.v3.Listener", "deprecated_v1") => {
            deprecated_v1(decoder, message, key, value, at)
        }
        (owner, name) => {
            let renamed =
                RENAMED.iter().find(|(message, old, _)| (*message, *old) == (owner, name));
            let removed =
                REMOVED.iter().find(|(message, old, _)| (*message, *old) == (owner, name));
            match (renamed, removed) {
                (Some((_, _, new)), _) => rename(decoder, message, new, key, value, at),
                (None, Some((_, _, reason))) => decoder.report.problem(at, *reason),
                (None, None) => return false,
            }
        }
    }
    true
}

/// The v3 name of a v2 message type.
pub(super) fn current_type(name: &str) -> Option<&'static str> {
    TYPES.iter().find(|(old, _)| *old == name).map(|(_, new)| *new)
}

/// The message types that an old extension name or type name stands for; the schema must have them.
pub(crate) fn types_for(text: &str) -> Option<&'static str> {
    let by_name =
        EXTENSIONS.iter().find(|extension| extension.old == text || extension.new == text);
    by_name.map(|extension| extension.type_name).or_else(|| current_type(text))
}

/// The message type that an extension of the v2 API has when it is named and not configured.
pub(crate) fn bare_extension(old_name: &str) -> Option<&'static str> {
    EXTENSIONS
        .iter()
        .find(|extension| extension.old == old_name)
        .map(|extension| extension.type_name)
}

/// `name: envoy.tcp_proxy` with `config: {…}`.
fn untyped_config(
    decoder: &mut Decoder<'_>,
    message: &mut Message,
    node: &Node,
    key: &Key,
    value: &Node,
    at: &At,
) {
    let name = node.get("name").and_then(Node::text).unwrap_or_default();
    let extension =
        EXTENSIONS.iter().find(|extension| extension.old == name || extension.new == name);
    let Some(extension) = extension else {
        decoder.report.problem(
            at,
            format!("`config` is of the v2 API and `{name}` is not known; write `typed_config`"),
        );
        return;
    };
    let (Some(descriptor), Some(field)) = (
        decoder.schema.message(extension.type_name),
        field_named(&message.descriptor, "typed_config"),
    ) else {
        return;
    };
    let typed = message.at.named("config", key.pos);
    let type_name = extension.type_name;
    decoder.report.note(
        at,
        format!(
            "`config` is of the v2 API; write `name: {}` and `typed_config: \
             {{\"@type\": type.googleapis.com/{type_name}, …}}`",
            extension.new
        ),
    );
    let Some(inner) = decoder.message(&descriptor, value, &typed) else { return };
    let any = Any { name: type_name.to_owned(), message: Some(inner) };
    message.fields.push(Field::new(field, typed, Value::Any(Box::new(any))));
}

/// `hosts` of a cluster, a list of addresses.
fn hosts(
    decoder: &mut Decoder<'_>,
    message: &mut Message,
    node: &Node,
    key: &Key,
    value: &Node,
    at: &At,
) {
    let Tree::List(hosts) = &value.value else {
        return decoder.report.problem(at, format!("must be a list, not {}", value.kind()));
    };
    decoder.report.note(
        at,
        "`hosts` is of the v2 API; write `load_assignment` with one `lb_endpoints` entry for each",
    );
    let entry = |pos, name: &str, value| (Key { pos, name: name.to_owned() }, Node { pos, value });
    let endpoints = hosts
        .iter()
        .map(|host| {
            let address = entry(host.pos, "address", host.value.clone());
            let endpoint = entry(host.pos, "endpoint", Tree::Map(vec![address]));
            Node { pos: host.pos, value: Tree::Map(vec![endpoint]) }
        })
        .collect();
    let lb_endpoints = entry(value.pos, "lb_endpoints", Tree::List(endpoints));
    let locality = Node { pos: value.pos, value: Tree::Map(vec![lb_endpoints]) };
    let name = node.get("name").and_then(Node::text).unwrap_or_default();
    let assignment = Tree::Map(vec![
        entry(key.pos, "cluster_name", Tree::String(name.to_owned())),
        entry(value.pos, "endpoints", Tree::List(vec![locality])),
    ]);
    set(decoder, message, "load_assignment", key, &Node { pos: value.pos, value: assignment });
}

/// `deprecated_v1: {bind_to_port: …}` of a listener.
fn deprecated_v1(
    decoder: &mut Decoder<'_>,
    message: &mut Message,
    key: &Key,
    value: &Node,
    at: &At,
) {
    decoder
        .report
        .note(at, "`deprecated_v1` is of the v2 API; write `bind_to_port` in the listener itself");
    if let Some(bind) = value.get("bind_to_port") {
        set(decoder, message, "bind_to_port", key, bind);
    }
}

fn rename(
    decoder: &mut Decoder<'_>,
    message: &mut Message,
    new: &str,
    key: &Key,
    value: &Node,
    at: &At,
) {
    decoder.report.note(at, format!("`{}` is of the v2 API; write `{new}`", key.name));
    set(decoder, message, new, key, value);
}

fn set(decoder: &mut Decoder<'_>, message: &mut Message, name: &str, key: &Key, value: &Node) {
    if let Some(field) = field_named(&message.descriptor, name) {
        decoder.field(message, &field, key, value);
    }
}

/// An extension that had another name in the v2 API.
struct Extension {
    old: &'static str,
    new: &'static str,
    type_name: &'static str,
}

const EXTENSIONS: &[Extension] = &[
    Extension {
        old: "envoy.tcp_proxy",
        new: "envoy.filters.network.tcp_proxy",
        type_name: "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    },
    Extension {
        old: "envoy.http_connection_manager",
        new: "envoy.filters.network.http_connection_manager",
        type_name: "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    },
    Extension {
        old: "envoy.router",
        new: "envoy.filters.http.router",
        type_name: "envoy.extensions.filters.http.router.v3.Router",
    },
    Extension {
        old: "envoy.health_check",
        new: "envoy.filters.http.health_check",
        type_name: "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    },
    Extension {
        old: "envoy.file_access_log",
        new: "envoy.access_loggers.file",
        type_name: "envoy.extensions.access_loggers.file.v3.FileAccessLog",
    },
];

/// v2 message types and what they became.
const TYPES: &[(&str, &str)] = &[
    (
        "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    ),
    (
        "envoy.config.filter.network.tcp_proxy.v2.TcpProxy",
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    ),
    ("envoy.config.filter.http.router.v2.Router", "envoy.extensions.filters.http.router.v3.Router"),
    (
        "envoy.config.filter.http.health_check.v2.HealthCheck",
        "envoy.extensions.filters.http.health_check.v3.HealthCheck",
    ),
    (
        "envoy.config.accesslog.v2.FileAccessLog",
        "envoy.extensions.access_loggers.file.v3.FileAccessLog",
    ),
];

/// Message, old field, new field.
const RENAMED: &[(&str, &str, &str)] = &[(
    "envoy.config.route.v3.WeightedCluster.ClusterWeight",
    "host_rewrite",
    "host_rewrite_literal",
)];

/// Message, old field, what to do.
const REMOVED: &[(&str, &str, &str)] = &[
    (
        "envoy.config.route.v3.RouteMatch",
        "regex",
        "`regex` is of the v2 API and has another grammar; write `safe_regex: {regex: …}` and check the expression",
    ),
    (
        "envoy.config.route.v3.HeaderMatcher",
        "regex_match",
        "`regex_match` is of the v2 API and has another grammar; write `string_match: {safe_regex: {regex: …}}` and \
         check the expression",
    ),
    (
        "envoy.config.cluster.v3.Cluster",
        "tls_context",
        "`tls_context` is of the v2 API; write a `transport_socket`",
    ),
    (
        "envoy.config.listener.v3.FilterChain",
        "tls_context",
        "`tls_context` is of the v2 API; write a `transport_socket`",
    ),
    (
        "envoy.config.cluster.v3.Cluster",
        "extension_protocol_options",
        "is of the v2 API; write `typed_extension_protocol_options`",
    ),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "idle_timeout",
        "is of the v2 API; write `common_http_protocol_options: {idle_timeout: …}`",
    ),
    (
        "envoy.config.bootstrap.v3.Bootstrap",
        "runtime",
        "`runtime` is of the v2 API; write `layered_runtime`",
    ),
    (
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "deprecated_v1",
        "is of the v2 API; write `filter_chain_match` in the chain",
    ),
];
