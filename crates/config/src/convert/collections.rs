//! Collections of clusters and listeners that a control plane is asked for by their names (`cds_resources_locator`,
//! `lds_resources_locator`), and what the node says of itself in these names.

use std::sync::Arc;

use serde_json::Value as Json;
use towpath_xds::Name;

use super::Converter;
use super::discovery::{ConfigSource, From};
use crate::error::Rank;
use crate::message::Message;

impl Converter<'_> {
    /// The collection that a field names, which holds resources of a type and is asked of this source.
    pub(super) fn collection(
        &mut self,
        bootstrap: &Message,
        (field, kind): (&str, &str),
        source: Option<&ConfigSource>,
    ) -> Option<Arc<str>> {
        let resources = bootstrap.message("dynamic_resources")?;
        let locator = resources.text(field);
        if locator.is_empty() {
            return None;
        }
        let at = resources.at(field);
        if locator.starts_with("file:") {
            self.report.unsupported(at, "a file is no collection; write `path_config_source`");
            return None;
        }
        let mut name = match Name::parse(locator) {
            Ok(name) => name,
            Err(why) => {
                self.report.problem(at, format!("`{locator}` {why}"));
                return None;
            }
        };
        if name.kind() != kind {
            let text = format!("xdstp:// type does not match {kind} in {locator}");
            self.report.unsupported(at, text);
        }
        if !name.is_collection() {
            self.report.unsupported(at, "is asked for as a collection that ends with `/*` alone");
        }
        let is_spoken = match source.map(|source| &source.from) {
            Some(From::Ads) => true,
            Some(From::Grpc(grpc)) => grpc.delta,
            Some(From::File(_)) | None => false,
        };
        if !is_spoken {
            let text = "a collection is asked of ADS, or of a stream of its own in the delta form";
            self.report.unsupported(at, text);
        }
        for (parameter, value) in self.node_context(bootstrap) {
            name.add(&format!("xds.node.{parameter}"), &value);
        }
        Some(name.to_string().into())
    }

    /// What `node_context_params` say of the node.
    fn node_context(&mut self, bootstrap: &Message) -> Vec<(String, String)> {
        let node = self.node(bootstrap);
        let mut context = Vec::new();
        let wanted: Vec<_> = bootstrap.texts("node_context_params").collect();
        for (name, at) in wanted {
            let value = match name {
                "id" => node.id.clone(),
                "cluster" => node.cluster.clone(),
                "locality.region" => node.locality.region.clone(),
                "locality.zone" => node.locality.zone.clone(),
                "locality.sub_zone" => node.locality.sub_zone.clone(),
                "user_agent_name" => "towpath".to_owned(),
                "user_agent_version" => env!("CARGO_PKG_VERSION").to_owned(),
                "metadata" => {
                    let entries = node.metadata.as_object().into_iter().flatten();
                    let entry = |(key, value): (&String, &Json)| {
                        (format!("metadata.{key}"), value.to_string())
                    };
                    context.extend(entries.map(entry));
                    continue;
                }
                "user_agent_build_version.version" | "user_agent_build_version.metadata" => {
                    self.report.unsupported(at, "a node's `user_agent_build_version` is not told");
                    continue;
                }
                _ => {
                    let text = format!("nothing of a node is called `{name}`; Envoy says nothing");
                    self.report.finding(at, Rank::Harmless, text);
                    continue;
                }
            };
            context.push((name.to_owned(), value));
        }
        context
    }
}

/// The resources of `cds_resources_locator`.
pub(super) const CLUSTERS: (&str, &str) =
    ("cds_resources_locator", "envoy.config.cluster.v3.Cluster");
/// The resources of `lds_resources_locator`.
pub(super) const LISTENERS: (&str, &str) =
    ("lds_resources_locator", "envoy.config.listener.v3.Listener");
