//! One HTTP filter by itself: a request of its own, whose content is shown in pieces.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_config::{Options, Source, Sources, load};
use towpath_engine::filter::notes::Notes;
use towpath_engine::filter::{
    FilterConfig, FilterScope, OnRequest, RequestView, ResponseView, RouteConfigs, StreamFilter,
};
use towpath_engine::format::Facts;
use towpath_engine::header_ops::Scratch;
use towpath_engine::record::Record;
use towpath_engine::snapshot::listener::Terminal;
use towpath_engine::stats::Registry;
use towpath_proto::{Head, HeadPool, Instant};

/// The first filter of a chain, as a configuration has it.
pub fn of_chain(fields: &str) -> Option<Arc<dyn FilterConfig>> {
    let text = format!(
        "static_resources:
  listeners:
  - name: in
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
         HttpConnectionManager
          stat_prefix: h
          route_config: {{}}
          http_filters:
          - {fields}
          - name: router
            typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
"
    );
    let sources = Sources::file(Source::yaml("chain.yaml", &*text));
    let loaded = load(&sources, &Options::default()).ok()?;
    let chain = loaded.snapshot.listeners.first()?.chains.first()?;
    let Terminal::Http(http) = &chain.terminal else { return None };
    Some(Arc::clone(&http.chain.filters.first()?.config))
}

/// A filter that goes on with a stream to the cluster `c`, by the connection manager `h`.
pub struct Watched {
    record: Record,
    filter: Box<dyn StreamFilter>,
    registry: Arc<Registry>,
}

impl Watched {
    /// Shows it the head of a request with content, which it may change.
    pub fn begin(config: &dyn FilterConfig, head: &mut Head) -> Self {
        match Self::ask(config, head) {
            (Some(watched), _) => watched,
            (None, other) => panic!("it goes on with what it was asked about: {other:?}"),
        }
    }

    /// The same of a filter that may do anything with it: what, where it does not go on with the stream.
    pub fn ask(config: &dyn FilterConfig, head: &mut Head) -> (Option<Self>, OnRequest) {
        let registry = Arc::new(Registry::default());
        let scope =
            FilterScope::new("h".into(), Rc::new(Notes::default()), Arc::clone(&registry), 0);
        let record = Record::default();
        let facts = facts(&record);
        let mut request = RequestView {
            head,
            heads: &mut HeadPool::default(),
            ends: false,
            is_empty: false,
            content: &mut Vec::new(),
            facts: &facts,
            route: RouteConfigs::default(),
            is_routed: true,
            forwards: true,
            random: 0,
            scratch: &mut Scratch::default(),
            node_cluster: "",
            drains: false,
            before: &[],
            reroutes: false,
            checks_health: false,
        };
        match config.start(&scope).on_request(&mut request) {
            OnRequest::Watch(filter) => {
                (Some(Self { record, filter, registry }), OnRequest::Pass)
            }
            other => (None, other),
        }
    }

    /// The request's content as it goes on; none where it is refused.
    pub fn request(&mut self, pieces: &[Bytes]) -> Option<Vec<u8>> {
        let facts = facts(&self.record);
        let mut all = Vec::new();
        for piece in pieces {
            let mut piece = piece.clone();
            self.filter.on_request_data(&mut piece, &facts).ok()?;
            all.extend_from_slice(&piece);
        }
        all.extend_from_slice(&self.filter.on_request_end(&facts).ok()?);
        Some(all)
    }

    /// The same of a response.
    pub fn response(&mut self, head: &mut Head, pieces: &[Bytes]) -> Vec<u8> {
        let facts = facts(&self.record);
        let mut response = ResponseView {
            head,
            ends: false,
            facts: &facts,
            route: RouteConfigs::default(),
            scratch: &mut Scratch::default(),
            health_fails: false,
            checks_health: false,
            node_cluster: "",
            reply: None,
        };
        self.filter.on_response_head(&mut response);
        let mut all = Vec::new();
        for piece in pieces {
            let mut piece = piece.clone();
            if self.filter.on_response_data(&mut piece, &facts).is_ok() {
                all.extend_from_slice(&piece);
            }
        }
        all.extend_from_slice(&self.filter.on_response_end(None, &facts));
        all
    }

    /// A counter that the filter has.
    pub fn number(&self, name: &str) -> u64 {
        self.registry.read().number(name).unwrap_or(0)
    }
}

fn facts(record: &Record) -> Facts<'_> {
    Facts { cluster: "c", cluster_stat_name: "c", ..Facts::new(record, Instant::ZERO) }
}
