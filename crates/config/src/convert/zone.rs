//! Which requests stay in this proxy's locality, in both the forms of its configuration.

use std::sync::Arc;

use towpath_engine::snapshot::cluster::{Balancer, Zones};

use super::Converter;
use super::endpoint::locality_name;
use crate::message::Message;

impl Converter<'_> {
    /// What a cluster's policy makes of localities; nothing without a `local_cluster_name`, and for the local cluster
    /// itself. `config` is the cluster's `common_lb_config` or the policy's `locality_lb_config`.
    pub(super) fn zones(
        &mut self,
        bootstrap: &Message,
        cluster: &Message,
        policy: Balancer,
        config: Option<&Message>,
    ) -> Option<Zones> {
        let name = local_cluster(bootstrap)?;
        if policy.is_hashed() || cluster.text("name") == name {
            return None;
        }
        let config = config.and_then(|config| config.message("zone_aware_lb_config"));
        let percent = config.and_then(|config| config.message("routing_enabled"));
        let percent = percent.map_or(100.0, |percent| percent.float("value").unwrap_or(0.0));
        let enabled = self.runtime.number("upstream.zone_routing.enabled");
        let enabled = enabled.unwrap_or_else(|| percent.round().clamp(0.0, 100.0) as u64);
        let least = self.runtime.number("upstream.zone_routing.min_cluster_size");
        let written = || config.and_then(|config| config.number("min_cluster_size"));
        let by_weight = config
            .filter(|config| is_typed(config))
            .is_some_and(|config| config.choice("locality_basis") == "HEALTHY_HOSTS_WEIGHT");
        Some(Zones {
            local: self.intern(name),
            locality: self.own_locality(bootstrap),
            enabled_percent: u8::try_from(enabled.min(100)).unwrap_or(100),
            least_hosts: least.or_else(written).unwrap_or(6),
            forced: self.forced(config),
            by_weight,
        })
    }

    /// The local cluster must be one of the file's.
    pub(super) fn check_local_cluster(&mut self, bootstrap: &Message) {
        let Some(name) = local_cluster(bootstrap) else { return };
        let statics = bootstrap.message("static_resources").into_iter();
        let mut clusters = statics.flat_map(|statics| statics.messages("clusters"));
        if !clusters.any(|cluster| cluster.text("name") == name)
            && let Some(manager) = bootstrap.message("cluster_manager")
        {
            let text = format!("local cluster '{name}' must be defined");
            self.report.problem(manager.at("local_cluster_name"), text);
        }
    }

    /// How many healthy hosts of this proxy's locality make all requests stay.
    fn forced(&self, config: Option<&Message>) -> Option<u32> {
        let key = self.runtime.number("upstream.zone_routing.force_local_zone.min_size");
        let key = key.and_then(|key| u32::try_from(key).ok()).filter(|key| *key > 0);
        if key.is_some() {
            return key;
        }
        let config = config.filter(|config| is_typed(config))?;
        match config.message("force_local_zone") {
            Some(forced) => Some(forced.number32("min_size").unwrap_or(1)),
            // Its older form.
            None => config.flag("force_locality_direct_routing").then_some(1),
        }
    }

    /// Where this proxy is, as endpoints say it.
    fn own_locality(&self, bootstrap: &Message) -> Option<Arc<str>> {
        let locality = bootstrap.message("node").and_then(|node| node.message("locality"));
        let part = |name| locality.map_or("", |locality| locality.text(name));
        let zone = self.options.node_zone.as_deref();
        if locality.is_none() && zone.is_none() {
            return None;
        }
        let name =
            locality_name([part("region"), zone.unwrap_or_else(|| part("zone")), part("sub_zone")]);
        Some(name.into())
    }
}

/// `local_cluster_name`, if there is one.
fn local_cluster(bootstrap: &Message) -> Option<&str> {
    let name = bootstrap.message("cluster_manager")?.text("local_cluster_name");
    (!name.is_empty()).then_some(name)
}

/// The policy's message says more than the cluster's field.
fn is_typed(config: &Message) -> bool {
    config.descriptor.full_name().starts_with("envoy.extensions.")
}
