//! Aggregate clusters: which clusters' hosts they choose among.

use towpath_engine::snapshot::ClusterId;

use super::Converter;
use crate::error::Rank;
use crate::message::Message;

pub(super) const AGGREGATE: &str = "envoy.extensions.clusters.aggregate.v3.ClusterConfig";

impl Converter<'_> {
    pub(super) fn aggregated(&mut self, cluster: &Message, config: &Message) -> Vec<ClusterId> {
        for own in ["load_assignment", "health_checks", "outlier_detection"] {
            if cluster.has(own) {
                let text = "an aggregate has no hosts of its own";
                self.report.finding(cluster.at(own), Rank::Harmless, text);
            }
        }
        let names: Vec<_> = config.texts("clusters").collect();
        let mut found = Vec::new();
        for (name, at) in names {
            match self.snapshot.cluster_id(name) {
                Some(id) => found.push(id),
                None => {
                    let text = format!("there is no cluster '{name}': it is passed over");
                    self.report.finding(at, Rank::Harmless, text);
                }
            }
        }
        found
    }
}
