//! Answers that are replaced.

use std::sync::Arc;

use towpath_engine::filter::custom_response::{CustomResponse, LocalResponse};
use towpath_engine::filter::{FilterConfig, RouteConfig};
use towpath_engine::matcher::Input;
use towpath_engine::snapshot::route::HeaderOps;

use super::Known;
use crate::convert::Converter;
use crate::convert::matcher_tree::{About, Place};
use crate::message::Message;
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.http.custom_response.v3.CustomResponse";
const LOCAL: &str =
    "envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    convert: |converter, config| {
        let config: Arc<dyn FilterConfig> = Arc::new(converter.custom_response(config)?);
        Some(config)
    },
    by_route: Some((CONFIG, |converter, config| {
        let config: Arc<dyn RouteConfig> = Arc::new(converter.custom_response(config)?);
        Some(config)
    })),
    support: SUPPORT,
};

impl Converter<'_> {
    fn custom_response(&mut self, config: &Message) -> Option<CustomResponse> {
        let Some(matcher) = config.message("custom_response_matcher") else {
            return Some(CustomResponse(None));
        };
        let place = Place {
            name: "a matcher of responses",
            allows: |input| {
                let of_request = matches!(
                    input,
                    Input::RequestHeader(_) | Input::QueryParameter(_) | Input::Attributes
                );
                !(of_request || input.is_of_arrival())
            },
            about: About::Response,
        };
        let tree = self.matcher_tree(matcher, place, &[LOCAL], &mut Self::local_response)?;
        Some(CustomResponse(Some(Arc::new(tree))))
    }

    fn local_response(&mut self, policy: &Message) -> Option<LocalResponse> {
        let body = match policy.message("body") {
            Some(source) => Some(Arc::from(self.text_data(source, MAX_BODY)?)),
            None => None,
        };
        let format = match policy.message("body_format") {
            Some(format) => Some(self.body_format(format)?.format),
            None => None,
        };
        let add = self.added(policy, "response_headers_to_add");
        Some(LocalResponse {
            status: policy.number("status_code").and_then(|status| u16::try_from(status).ok()),
            body,
            format,
            headers: HeaderOps { remove: Vec::new(), add },
        })
    }
}

/// Bytes of content.
const MAX_BODY: usize = 1 << 20;

const SUPPORT: &[Entry] = &[
    Entry { message: CONFIG, honoured: &["custom_response_matcher"], harmless: &[], changes: &[] },
    Entry {
        message: LOCAL,
        honoured: &["body", "body_format", "status_code", "response_headers_to_add"],
        harmless: &[],
        changes: &[],
    },
];
