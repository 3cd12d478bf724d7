//! `envoy.filters.http.set_filter_state`: objects of the filter state, made by formats.

use std::iter;
use std::rc::Rc;
use std::sync::Arc;

use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, RouteConfig};
use crate::format::{Facts, Format};
use crate::stream_info::{Sharing, StateObject};

/// Envoy `set_filter_state.v3.Config`, of a chain or of a route. Those of a table, a host and a route come after
/// the chain's, in this order.
#[derive(Clone, Debug)]
pub struct SetFilterState {
    /// `on_request_headers`, in order.
    pub objects: Arc<[Setting]>,
    /// `clear_route_cache`: the request is routed anew.
    pub reroutes: bool,
}

/// Envoy `FilterStateValue`.
#[derive(Debug)]
pub struct Setting {
    /// `object_key`.
    pub name: Box<str>,
    /// `format_string`.
    pub value: Format,
    /// `shared_with_upstream`.
    pub sharing: Sharing,
    /// `skip_if_empty`.
    pub skips_empty: bool,
    /// It is an `envoy.hashable_string`.
    pub is_hashable: bool,
}

impl RouteConfig for SetFilterState {}

impl FilterConfig for SetFilterState {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(self.clone())
    }

    fn reads_record(&self) -> bool {
        true
    }
}

impl HttpFilter for SetFilterState {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let mut facts = *request.facts;
        facts.request = Some(request.head);
        let by_route: Vec<&Self> = request.route.all().collect();
        for setting in
            iter::once(self).chain(by_route.into_iter().rev()).flat_map(|it| &*it.objects)
        {
            setting.write(&facts);
        }
        request.reroutes |= self.reroutes;
        OnRequest::Pass
    }
}

impl Setting {
    /// Sets the object in what is known of the stream or connection.
    pub(crate) fn write(&self, facts: &Facts<'_>) {
        let Some(info) = facts.info else { return };
        let mut value = Vec::new();
        self.value.write(&mut value, facts);
        if value.is_empty() && self.skips_empty {
            return;
        }
        // What is too much for one stream is left out.
        let _ = info.set_state(
            &self.name,
            StateObject {
                value: value.into(),
                sharing: self.sharing,
                is_hashable: self.is_hashable,
                ..StateObject::default()
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stream, scope};
    use super::*;
    use crate::stream_info::MOST_BYTES;

    fn config(name: &str, format: &str, reroutes: bool) -> SetFilterState {
        let setting = Setting {
            name: name.into(),
            value: Format::parse(format).unwrap(),
            sharing: Sharing::None,
            skips_empty: true,
            is_hashable: false,
        };
        SetFilterState { objects: [setting].into(), reroutes }
    }

    /// Whether the request is routed anew.
    fn run(config: &SetFilterState, stream: &mut Stream) -> bool {
        let filter = config.start(&scope());
        stream.request(|view| {
            assert!(matches!(filter.on_request(view), OnRequest::Pass));
            view.reroutes
        })
    }

    fn said(stream: &Stream, name: &str) -> Option<String> {
        let text = |object: &StateObject| String::from_utf8_lossy(&object.value).into_owned();
        stream.info.read_state(name, |object| object.map(text))
    }

    #[test]
    fn objects_are_made_of_the_request_those_of_its_route_last() {
        let mut stream = Stream::new(b"GET", &[("x-a", "1")]);
        assert!(!run(&config("o", "%REQ(x-a)%", false), &mut stream));
        assert_eq!(said(&stream, "o").as_deref(), Some("1"));
        let mut stream = Stream::new(b"GET", &[("x-a", "1")]).on_route(config("o", "2", false));
        run(&config("o", "%REQ(x-a)%", false), &mut stream);
        assert_eq!(said(&stream, "o").as_deref(), Some("2"));
        assert!(run(&config("o", "1", true), &mut Stream::new(b"GET", &[])));
    }

    #[test]
    fn what_is_empty_or_too_much_for_a_stream_is_left_out() {
        let mut stream = Stream::new(b"GET", &[]);
        run(&config("o", "%DYNAMIC_METADATA(n:k)%", false), &mut stream);
        assert_eq!(
            said(&stream, "o").as_deref(),
            Some("-"),
            "a value that is missing is not empty"
        );
        let mut stream = Stream::new(b"GET", &[]);
        run(&config("o", "", false), &mut stream);
        run(&config("p", &"x".repeat(MOST_BYTES), false), &mut stream);
        assert_eq!((said(&stream, "o"), said(&stream, "p")), (None, None));
    }
}
