//! Role-based access control: the rules.

use super::Entry;

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        message: "envoy.config.rbac.v3.RBAC",
        honoured: &["action", "policies"],
        harmless: &[],
        changes: &[("audit_logging_options", "there are no audit loggers")],
    },
    Entry {
        message: "envoy.config.rbac.v3.Policy",
        honoured: &["permissions", "principals", "condition"],
        harmless: &[],
        changes: &[
            ("checked_condition", "Envoy does not read it; write condition"),
            ("cel_config", "expressions have the functions that Envoy's have without it"),
        ],
    },
    Entry {
        message: "envoy.config.rbac.v3.Permission",
        honoured: &[
            "and_rules",
            "or_rules",
            "any",
            "header",
            "url_path",
            "destination_ip",
            "destination_port",
            "destination_port_range",
            "not_rule",
            "requested_server_name",
            "metadata",
            "sourced_metadata",
            "uri_template",
        ],
        harmless: &[],
        changes: &[("matcher", "matchers that are extensions are not there")],
    },
    Entry {
        message: "envoy.config.rbac.v3.Permission.Set",
        honoured: &["rules"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.rbac.v3.Principal",
        honoured: &[
            "and_ids",
            "or_ids",
            "any",
            "authenticated",
            "source_ip",
            "direct_remote_ip",
            "remote_ip",
            "header",
            "url_path",
            "not_id",
            "metadata",
            "sourced_metadata",
            "filter_state",
        ],
        harmless: &[],
        changes: &[("custom", "principals that are extensions are not there")],
    },
    Entry {
        message: "envoy.config.rbac.v3.Principal.Set",
        honoured: &["ids"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.rbac.v3.Principal.Authenticated",
        honoured: &["principal_name"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.rbac.v3.SourcedMetadata",
        honoured: &["metadata_matcher", "metadata_source"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.type.matcher.v3.PathMatcher",
        honoured: &["path"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.type.v3.Int32Range",
        honoured: &["start", "end"],
        harmless: &[],
        changes: &[],
    },
];
