//! `envoy.filters.http.set_metadata`: dynamic metadata that the configuration has.

mod stats;

use std::rc::Rc;
use std::sync::Arc;

use self::stats::SetMetadataStats;
use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, RouteConfig};
use crate::stream_info::{StreamInfo, Struct, merge};

/// Envoy `set_metadata.v3.Config`, of a chain or of a route; that of the most specific route comes after the chain's.
#[derive(Clone, Debug)]
pub struct SetMetadata {
    /// What is written, in order.
    pub entries: Arc<[Entry]>,
}

/// Envoy `set_metadata.v3.Metadata`.
#[derive(Debug)]
pub struct Entry {
    /// `metadata_namespace`.
    pub namespace: Box<str>,
    /// `value`.
    pub value: Struct,
    /// `allow_overwrite`: it joins what is in the namespace already. Otherwise it is left out then.
    pub joins: bool,
}

impl RouteConfig for SetMetadata {}

impl FilterConfig for SetMetadata {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { config: self.clone(), stats: scope.stats("http_set_metadata") })
    }

    fn reads_record(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance {
    config: SetMetadata,
    stats: Arc<SetMetadataStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if let Some(info) = request.facts.info {
            let by_route = request.route.first::<SetMetadata>();
            let by_route = by_route.map_or(&[][..], |config| &config.entries);
            for entry in self.config.entries.iter().chain(by_route) {
                self.write(entry, info);
            }
        }
        OnRequest::Pass
    }
}

impl Instance {
    fn write(&self, entry: &Entry, info: &StreamInfo) {
        let is_there = info.read_metadata(&entry.namespace, &[], |value| value.is_some());
        if is_there && !entry.joins {
            self.stats.overwrite_denied.inc();
            return;
        }
        // What is too much for one stream is left out.
        let _ = info.update_metadata(&entry.namespace, |all| {
            merge(all, &entry.value);
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stream, scope};
    use super::*;
    use crate::stream_info::{MOST_BYTES, Value};

    fn config(key: &str, text: &str, joins: bool) -> SetMetadata {
        let value = [(key.into(), Value::text(text.as_bytes()))].into_iter().collect();
        SetMetadata { entries: [Entry { namespace: "n".into(), value, joins }].into() }
    }

    fn run(config: SetMetadata, stream: &mut Stream) -> u64 {
        let filter = Instance { config, stats: scope().stats("http_set_metadata") };
        let passed = stream.request(|view| filter.on_request(view));
        assert!(matches!(passed, OnRequest::Pass));
        filter.stats.overwrite_denied.value()
    }

    fn said(stream: &Stream, key: &str) -> Option<Value> {
        stream.info.read_metadata("n", &[key.into()], |value| value.cloned())
    }

    #[test]
    fn a_namespace_is_written_once_unless_it_may_be_joined() {
        let mut stream = Stream::new(b"GET", &[]).on_route(config("b", "2", false));
        assert_eq!(run(config("a", "1", false), &mut stream), 1, "the route comes second");
        assert_eq!((said(&stream, "a"), said(&stream, "b")), (Some(Value::text(b"1")), None));
        let mut stream = Stream::new(b"GET", &[]).on_route(config("b", "2", true));
        assert_eq!(run(config("a", "1", false), &mut stream), 0);
        let both = (said(&stream, "a"), said(&stream, "b"));
        assert_eq!(both, (Some(Value::text(b"1")), Some(Value::text(b"2"))));
    }

    #[test]
    fn what_is_too_much_for_a_stream_is_left_out() {
        let mut stream = Stream::new(b"GET", &[]);
        run(config("a", &"x".repeat(MOST_BYTES), false), &mut stream);
        assert_eq!(said(&stream, "a"), None);
    }
}
