//! A stream at a filter, for the unit tests of filters.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::head::HeadPool;
use towpath_proto::{Head, Instant};

use super::{
    FilterOverride, FilterScope, RequestView, ResponseView, RouteConfig, RouteConfigs, StreamFilter,
};
use crate::format::Facts;
use crate::header_ops::Scratch;
use crate::record::Record;
use crate::stream_info::StreamInfo;

/// A stream at a filter that routes call `f`.
pub(super) struct Stream {
    pub(super) head: Head,
    pub(super) ends: bool,
    pub(super) forwards: bool,
    pub(super) content: Vec<Bytes>,
    pub(super) info: StreamInfo,
    pub(super) overrides: Vec<FilterOverride>,
    /// Where its route leads.
    pub(super) cluster: &'static str,
}

impl Stream {
    pub(super) fn new(method: &[u8], fields: &[(&str, &str)]) -> Self {
        let mut head = Head::request(method, b"http", b"h", b"/");
        for (name, value) in fields {
            head.append_bytes(name.as_bytes(), value.as_bytes());
        }
        Self {
            head,
            ends: true,
            forwards: true,
            content: Vec::new(),
            info: StreamInfo::default(),
            overrides: Vec::new(),
            cluster: "",
        }
    }

    pub(super) fn on_route(mut self, config: impl RouteConfig) -> Self {
        let config: Option<Arc<dyn RouteConfig>> = Some(Arc::new(config));
        self.overrides.push(FilterOverride { filter: "f".into(), disabled: false, config });
        self
    }

    pub(super) fn request<R>(&mut self, look: impl FnOnce(&mut RequestView<'_>) -> R) -> R {
        let record = Record::default();
        let facts = Facts {
            info: Some(&self.info),
            cluster: self.cluster,
            cluster_stat_name: self.cluster,
            ..Facts::new(&record, Instant::ZERO)
        };
        let (mut scratch, mut heads) = (Scratch::default(), HeadPool::new(1));
        look(&mut RequestView {
            head: &mut self.head,
            ends: self.ends,
            is_empty: self.ends,
            content: &mut self.content,
            facts: &facts,
            route: RouteConfigs { filter: "f", levels: [&self.overrides, &[], &[], &[]] },
            is_routed: true,
            forwards: self.forwards,
            random: 0,
            scratch: &mut scratch,
            heads: &mut heads,
            node_cluster: "node",
            drains: false,
            before: &[],
            reroutes: false,
            checks_health: false,
        })
    }

    /// Shows a response with this status.
    pub(super) fn respond<R>(
        &self,
        status: u16,
        look: impl FnOnce(&mut ResponseView<'_>) -> R,
    ) -> (Head, R) {
        let mut head = Head::response(status);
        let (record, mut scratch) = (Record::default(), Scratch::default());
        let looked = look(&mut ResponseView {
            head: &mut head,
            ends: true,
            facts: &Facts::new(&record, Instant::ZERO),
            route: RouteConfigs { filter: "f", levels: [&self.overrides, &[], &[], &[]] },
            scratch: &mut scratch,
            node_cluster: "node",
            checks_health: false,
            health_fails: false,
            reply: None,
        });
        (head, looked)
    }

    /// The head of a response with this status, as the filter leaves it.
    pub(super) fn response(&self, status: u16, filter: &mut dyn StreamFilter) -> Head {
        self.respond(status, |view| filter.on_response_head(view)).0
    }
}

/// The scope of a chain by itself.
pub(super) fn scope() -> FilterScope {
    FilterScope::new("main".into(), Rc::default(), Arc::default(), 0)
}
