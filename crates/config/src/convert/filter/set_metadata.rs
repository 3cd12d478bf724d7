//! Dynamic metadata that the configuration has.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::set_metadata::{Entry as Written, SetMetadata};

use super::Known;
use crate::convert::metadata::structure;
use crate::message::Message;
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.http.set_metadata.v3.Config";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    convert: |_, config| Some(Arc::new(set_metadata(config))),
    by_route: Some((CONFIG, |_, config| {
        let config: Arc<dyn RouteConfig> = Arc::new(set_metadata(config));
        Some(config)
    })),
    support: SUPPORT,
};

fn set_metadata(config: &Message) -> SetMetadata {
    let entry = |from: &Message, joins| {
        from.has("value").then(|| Written {
            namespace: from.text("metadata_namespace").into(),
            value: structure(from, "value"),
            joins,
        })
    };
    let old = entry(config, true).filter(|entry| !entry.namespace.is_empty());
    let all = config.messages("metadata");
    let all = all.filter_map(|metadata| entry(metadata, metadata.flag("allow_overwrite")));
    SetMetadata { entries: old.into_iter().chain(all).collect() }
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: CONFIG,
        honoured: &["metadata_namespace", "value", "metadata"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.set_metadata.v3.Metadata",
        honoured: &["metadata_namespace", "allow_overwrite", "value"],
        harmless: &[],
        changes: &[("typed_value", "metadata is structs alone")],
    },
];
