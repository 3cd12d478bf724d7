//! `envoy.load_balancing_policies.override_host`: hosts that requests name.

use towpath_engine::field::Field;
use towpath_engine::snapshot::override_host::{HostSource, MetadataPath, OverrideHosts};

use super::Converter;
use crate::message::Message;

impl Converter<'_> {
    /// Where requests name hosts, and what is told which one was chosen.
    pub(super) fn override_hosts(&mut self, config: &Message) -> OverrideHosts {
        let sources = config.messages("override_host_sources");
        OverrideHosts {
            sources: sources.filter_map(|source| self.host_source(source)).collect(),
            selected: config.message("selected_host_key").map(metadata_path),
        }
    }

    /// One source; nothing where it names a header that no request has.
    fn host_source(&mut self, source: &Message) -> Option<HostSource> {
        match (source.text("header"), source.message("metadata")) {
            ("", None) => {
                self.report.problem(&source.at, "Empty override source");
                None
            }
            ("", Some(key)) => Some(HostSource::Metadata(metadata_path(key))),
            (name, None) => Field::parse(name).map(HostSource::Header),
            (_, Some(_)) => {
                self.report.problem(&source.at, "Only one override source must be set");
                None
            }
        }
    }
}

pub(super) fn metadata_path(key: &Message) -> MetadataPath {
    let path = key.messages("path").map(|segment| segment.text("key").into());
    MetadataPath { namespace: key.text("key").into(), path: path.collect() }
}
