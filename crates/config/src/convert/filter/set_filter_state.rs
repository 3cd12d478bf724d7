//! Objects of the filter state, made by formats.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::set_filter_state::{SetFilterState, Setting};
use towpath_engine::stream_info::Sharing;

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.http.set_filter_state.v3.Config";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    convert: |converter, config| Some(Arc::new(converter.set_filter_state(config))),
    by_route: Some((CONFIG, |converter, config| {
        let config: Arc<dyn RouteConfig> = Arc::new(converter.set_filter_state(config));
        Some(config)
    })),
    support: SUPPORT,
};

impl Converter<'_> {
    fn set_filter_state(&mut self, config: &Message) -> SetFilterState {
        let all = config.messages("on_request_headers");
        SetFilterState {
            objects: all.filter_map(|value| self.state_setting(value, false)).collect(),
            reroutes: config.flag("clear_route_cache"),
        }
    }

    /// One object, of a connection or of a request.
    pub(in crate::convert) fn state_setting(
        &mut self,
        value: &Message,
        of_connection: bool,
    ) -> Option<Setting> {
        let name = value.text("object_key");
        let (maker, at) = match value.text("factory_key") {
            "" => (name, value.at("object_key")),
            maker => (maker, value.at("factory_key")),
        };
        let sharing = match value.choice("shared_with_upstream").as_str() {
            "ONCE" => Sharing::Once,
            "TRANSITIVE" => Sharing::Transitive,
            _ => Sharing::None,
        };
        match maker {
            // What reads it reads no other kind of object.
            HITS if name == HITS && sharing == Sharing::None => {}
            _ if name == HITS => self.report.unsupported(
                at,
                format!("`{HITS}` is a number: write no `factory_key`, and do not share it"),
            ),
            DYNAMIC_PORT if name == DYNAMIC_PORT => {}
            _ if name == DYNAMIC_PORT => {
                let text = format!("`{DYNAMIC_PORT}` is a number: write no `factory_key`");
                self.report.unsupported(at, text);
            }
            TCP_CLUSTER if of_connection && name == TCP_CLUSTER => {}
            "envoy.string" | "envoy.hashable_string" | DYNAMIC_HOST => {}
            LOCAL_ADDRESS | REMOTE_ADDRESS if name == maker => {}
            _ => self.report.unsupported(
                at,
                format!("nothing reads an object of `{maker}`; there are envoy.string, envoy.hashable_string and \
                {HITS}"),
            ),
        }
        Some(Setting {
            name: name.into(),
            value: self.substitution(value.message("format_string")?)?,
            sharing,
            skips_empty: value.flag("skip_if_empty"),
            is_hashable: ["envoy.hashable_string", LOCAL_ADDRESS, REMOTE_ADDRESS].contains(&maker),
        })
    }
}

/// The addresses of the connection to a listener of this process that it goes along with.
const LOCAL_ADDRESS: &str = "envoy.filters.listener.original_dst.local_ip";
const REMOTE_ADDRESS: &str = "envoy.filters.listener.original_dst.remote_ip";
/// Where a request to a dynamic forward proxy goes, in place of its own host and port.
const DYNAMIC_HOST: &str = "envoy.upstream.dynamic_host";
const DYNAMIC_PORT: &str = "envoy.upstream.dynamic_port";
/// Where the bytes of a connection go, in place of the TCP proxy's own cluster.
pub(in crate::convert) const TCP_CLUSTER: &str = "envoy.tcp_proxy.cluster";
/// What a request counts for the filter `ratelimit`.
const HITS: &str = "envoy.ratelimit.hits_addend";

const SUPPORT: &[Entry] = &[
    Entry {
        message: CONFIG,
        honoured: &["on_request_headers", "clear_route_cache"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue",
        honoured: &[
            "object_key",
            "factory_key",
            "format_string",
            "shared_with_upstream",
            "skip_if_empty",
        ],
        harmless: &[("read_only", "Envoy 1.40 replaces such objects too")],
        changes: &[],
    },
];
