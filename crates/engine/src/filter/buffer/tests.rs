//! What is collected, and a stream at a filter for the tests of other filters.

use std::sync::Arc;

use towpath_proto::head::HeadPool;
use towpath_proto::{Head, Instant};

use super::*;
use crate::filter::{FilterOverride, ResponseView, RouteConfigs};
use crate::format::Facts;
use crate::header_ops::Scratch;
use crate::record::Record;
use crate::stream_info::StreamInfo;

/// A stream at a filter that routes call `f`.
pub(in crate::filter) struct Stream {
    pub(in crate::filter) head: Head,
    pub(in crate::filter) ends: bool,
    pub(in crate::filter) forwards: bool,
    pub(in crate::filter) content: Vec<Bytes>,
    pub(in crate::filter) info: StreamInfo,
    pub(in crate::filter) overrides: Vec<FilterOverride>,
    /// Where its route leads.
    pub(in crate::filter) cluster: &'static str,
}

impl Stream {
    pub(in crate::filter) fn new(method: &[u8], fields: &[(&str, &str)]) -> Self {
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

    pub(in crate::filter) fn on_route(mut self, config: impl RouteConfig) -> Self {
        let config: Option<Arc<dyn RouteConfig>> = Some(Arc::new(config));
        self.overrides.push(FilterOverride { filter: "f".into(), disabled: false, config });
        self
    }

    pub(in crate::filter) fn request<R>(
        &mut self,
        look: impl FnOnce(&mut RequestView<'_>) -> R,
    ) -> R {
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

    /// The head of a response with this status, as the filter leaves it.
    pub(in crate::filter) fn response(&self, status: u16, filter: &mut dyn StreamFilter) -> Head {
        let mut head = Head::response(status);
        let (record, mut scratch) = (Record::default(), Scratch::default());
        filter.on_response_head(&mut ResponseView {
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
        head
    }
}

/// The scope of a chain by itself.
pub(in crate::filter) fn scope() -> FilterScope {
    FilterScope::new("main".into(), Rc::default(), Arc::default(), 0)
}

/// The limit that a request with content is collected to.
fn limit_of(mut stream: Stream) -> Option<usize> {
    let filter = Buffer { limit: 10 }.start(&scope());
    stream.ends = false;
    let outcome = stream.request(|view| filter.on_request(view));
    if let OnRequest::Collect(_, limit) = outcome { Some(limit) } else { None }
}

#[test]
fn the_limit_is_the_most_specific_one() {
    let stream = || Stream::new(b"POST", &[]);
    assert_eq!(limit_of(stream()), Some(10));
    for limit in [0, 11] {
        let route = RouteBuffer::Limit(Buffer { limit });
        assert_eq!(limit_of(stream().on_route(route)), Some(limit));
    }
    assert_eq!(limit_of(stream().on_route(RouteBuffer::Disabled)), None);
    let filter = Buffer { limit: 10 };
    let passed = stream().request(|view| filter.on_request(view));
    assert!(matches!(passed, OnRequest::Pass), "without content");
}

#[test]
fn a_request_says_how_long_it_is_unless_it_does_already() {
    for (said, wanted) in [(None, "5"), (Some("7"), "7")] {
        let mut stream = Stream::new(b"POST", &[]);
        if let Some(said) = said {
            stream.head.set(Name::ContentLength, said.as_bytes());
        }
        stream.content = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cde")];
        let went = stream.request(|view| Collected.on_collected(view));
        assert!(matches!(went, OnAnswer::GoOn));
        assert_eq!(stream.head.get(Name::ContentLength), Some(wanted.as_bytes()));
    }
}
