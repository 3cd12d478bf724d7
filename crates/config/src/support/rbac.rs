//! Role-based access control: the rules, and the network filter.

use super::Entry;

const NO_CEL: &str = "CEL is not there";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        message: "envoy.extensions.filters.network.rbac.v3.RBAC",
        honoured: &[
            "rules",
            "shadow_rules",
            "shadow_rules_stat_prefix",
            "stat_prefix",
            "enforcement_type",
            "delay_deny",
            "matcher",
            "shadow_matcher",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.network.sni_cluster.v3.SniCluster",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.config.rbac.v3.RBAC",
        honoured: &["action", "policies"],
        harmless: &[],
        changes: &[("audit_logging_options", "there are no audit loggers")],
    },
    Entry {
        message: "envoy.config.rbac.v3.Policy",
        honoured: &["permissions", "principals"],
        harmless: &[],
        changes: &[("condition", NO_CEL), ("checked_condition", NO_CEL), ("cel_config", NO_CEL)],
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
        ],
        harmless: &[],
        changes: &[
            ("matcher", "matchers that are extensions are not there"),
            ("uri_template", "path templates are not there"),
        ],
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
