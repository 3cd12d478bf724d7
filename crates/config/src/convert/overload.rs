//! The overload manager: a limit on downstream connections is all that is there.

use super::Converter;
use super::extension::RESOURCE_MONITOR;
use crate::message::{Message, Value};

const DOWNSTREAM_CONNECTIONS: &str =
    "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig";

impl Converter<'_> {
    /// The limit on downstream connections.
    pub(super) fn connection_limits(&mut self, bootstrap: &Message) -> Option<u64> {
        let monitored = bootstrap
            .message("overload_manager")
            .and_then(|manager| self.monitored_connections(manager));
        let of_runtime = self.runtime.number("overload.global_downstream_max_connections");
        monitored.or(of_runtime)
    }

    fn monitored_connections(&mut self, manager: &Message) -> Option<u64> {
        let monitors: Vec<_> = manager.messages("resource_monitors").collect();
        let mut limit = None;
        for monitor in monitors {
            let Some((config, _)) =
                self.extension(monitor, RESOURCE_MONITOR, &[DOWNSTREAM_CONNECTIONS])
            else {
                continue;
            };
            if let Some(Value::Int(max)) =
                config.get("max_active_downstream_connections").map(|field| &field.value)
            {
                limit = u64::try_from(*max).ok();
            }
        }
        limit
    }
}
