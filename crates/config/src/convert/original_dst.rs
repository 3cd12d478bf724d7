//! Clusters of type `ORIGINAL_DST`: their hosts are where clients wanted to go.

use std::time::Duration;

use towpath_engine::field::Field;
use towpath_engine::snapshot::cluster::OriginalDestination;

use super::Converter;
use super::override_host::metadata_path;
use crate::error::Rank;
use crate::message::Message;

impl Converter<'_> {
    pub(super) fn original_destination(&mut self, cluster: &Message) -> OriginalDestination {
        if cluster.has("load_assignment") {
            let at = cluster.at("load_assignment");
            self.report
                .problem(at, "ORIGINAL_DST clusters must have no load assignment configured");
        }
        for health in ["health_checks", "outlier_detection"] {
            if cluster.has(health) {
                let text = "a host is where a client wants to go, however it is";
                self.report.finding(cluster.at(health), Rank::Harmless, text);
            }
        }
        let config = cluster.message("original_dst_lb_config");
        OriginalDestination {
            metadata: config.and_then(|config| config.message("metadata_key")).map(metadata_path),
            header: config.and_then(|config| self.destination_header(config)),
            port: config
                .and_then(|config| config.number("upstream_port_override"))
                .and_then(|port| u16::try_from(port).ok()),
            cleanup_interval: cluster.duration("cleanup_interval").unwrap_or(DEFAULT_CLEANUP),
        }
    }

    fn destination_header(&mut self, config: &Message) -> Option<Field> {
        let (name, at) = (config.text("http_header_name"), config.at("http_header_name"));
        if !config.flag("use_http_header") {
            if !name.is_empty() {
                self.report.problem(at, "needs `use_http_header: true`");
            }
            return None;
        }
        let field = Field::parse(if name.is_empty() { DEFAULT_HEADER } else { name });
        if field.is_none() {
            self.report.problem(at, format!("{name:?} is not a header"));
        }
        field
    }
}

const DEFAULT_HEADER: &str = "x-envoy-original-dst-host";
const DEFAULT_CLEANUP: Duration = Duration::from_secs(5);
