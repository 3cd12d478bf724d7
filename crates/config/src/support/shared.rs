//! Messages that many others hold.

use super::Entry;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        message: "envoy.config.core.v3.Address",
        honoured: &["socket_address", "pipe"],
        harmless: &[],
        changes: &[("envoy_internal_address", "internal listeners are not there")],
    },
    Entry {
        message: "envoy.config.core.v3.SocketAddress",
        honoured: &["protocol", "address", "port_value", "named_port", "ipv4_compat"],
        harmless: &[],
        changes: &[
            ("resolver_name", "there is one resolver"),
            ("network_namespace_filepath", "sockets are in the namespace of the program"),
        ],
    },
    Entry {
        message: "envoy.config.core.v3.Pipe",
        honoured: &["path", "mode"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.SocketOption",
        honoured: &["level", "name", "int_value", "buf_value", "state"],
        harmless: &[("description", "it is for the reader")],
        changes: &[
            ("type", "a socket option is set on every socket"),
            ("ip_version", "a socket option is set on every socket"),
        ],
    },
    Entry {
        message: "envoy.config.core.v3.TcpKeepalive",
        honoured: &["keepalive_probes", "keepalive_time", "keepalive_interval"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.BindConfig",
        honoured: &["source_address", "freebind", "socket_options"],
        harmless: &[],
        changes: &[
            ("extra_source_addresses", "connections have one source address"),
            ("additional_source_addresses", "connections have one source address"),
            ("local_address_selector", "connections have one source address"),
        ],
    },
    Entry {
        message: "envoy.config.core.v3.CidrRange",
        honoured: &["address_prefix", "prefix_len"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.RuntimeUInt32",
        honoured: &["default_value", "runtime_key"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.RuntimeDouble",
        honoured: &["default_value", "runtime_key"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.RuntimeFeatureFlag",
        honoured: &["default_value", "runtime_key"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.RuntimeFractionalPercent",
        honoured: &["default_value", "runtime_key"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.type.v3.FractionalPercent",
        honoured: &["numerator", "denominator"],
        harmless: &[],
        changes: &[],
    },
    Entry { message: "envoy.type.v3.Percent", honoured: &["value"], harmless: &[], changes: &[] },
    Entry {
        message: "envoy.type.v3.Int64Range",
        honoured: &["start", "end"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.SubstitutionFormatString",
        honoured: &[
            "text_format",
            "json_format",
            "text_format_source",
            "omit_empty_values",
            "content_type",
            "json_format_options",
        ],
        harmless: &[],
        changes: &[("formatters", "format extensions are not there")],
    },
    Entry {
        message: "envoy.config.core.v3.JsonFormatOptions",
        honoured: &[],
        harmless: &[("sort_properties", "properties are always sorted")],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.DataSource",
        honoured: &["filename", "inline_bytes", "inline_string", "environment_variable"],
        harmless: &[],
        changes: &[("watched_directory", "a file is read once")],
    },
    Entry {
        message: "envoy.config.core.v3.TypedExtensionConfig",
        honoured: &["name", "typed_config"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.HeaderValueOption",
        honoured: &["header", "append", "append_action", "keep_empty_value"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.HeaderValue",
        honoured: &["key", "value", "raw_value"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.HttpProtocolOptions",
        honoured: &[
            "idle_timeout",
            "max_connection_duration",
            "max_headers_count",
            "max_response_headers_kb",
            "max_stream_duration",
            "headers_with_underscores_action",
            "max_requests_per_connection",
        ],
        harmless: &[("max_connection_duration_jitter", "durations have no jitter")],
        changes: &[],
    },
    Entry {
        message: "envoy.config.core.v3.Http1ProtocolOptions",
        honoured: &[
            "allow_absolute_url",
            "accept_http_10",
            "default_host_for_http_10",
            "header_key_format",
            "enable_trailers",
            "allow_chunked_length",
            "allow_custom_methods",
        ],
        harmless: &[
            (
                "override_stream_error_on_invalid_http_message",
                "after an invalid HTTP/1 message the connection is always closed",
            ),
            ("use_balsa_parser", "there is one parser"),
        ],
        changes: &[
            ("send_fully_qualified_url", "requests are sent in origin form"),
            ("ignore_http_11_upgrade", "write upgrade_configs"),
        ],
    },
    Entry {
        message: "envoy.config.core.v3.Http1ProtocolOptions.HeaderKeyFormat",
        honoured: &["proper_case_words"],
        harmless: &[],
        changes: &[(
            "stateful_formatter",
            "the case of a header's name is not kept; write proper_case_words",
        )],
    },
    Entry {
        message: "envoy.config.core.v3.Http1ProtocolOptions.HeaderKeyFormat.ProperCaseWords",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.type.matcher.v3.StringMatcher",
        honoured: &["exact", "prefix", "suffix", "safe_regex", "contains", "ignore_case"],
        harmless: &[],
        changes: &[("custom", "string matching extensions are not there")],
    },
    Entry {
        message: "envoy.type.matcher.v3.ListStringMatcher",
        honoured: &["patterns"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.type.matcher.v3.RegexMatcher",
        honoured: &["regex"],
        harmless: &[("google_re2", "there is one kind of regular expression")],
        changes: &[],
    },
    Entry {
        message: "envoy.type.matcher.v3.RegexMatchAndSubstitute",
        honoured: &["pattern", "substitution"],
        harmless: &[],
        changes: &[],
    },
];
