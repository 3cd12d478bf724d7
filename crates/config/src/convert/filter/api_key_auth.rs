//! Requests must show a key of a client.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::api_key_auth::{
    ApiKeyAuth, Clients, Forwarding, RouteApiKeyAuth, Source,
};

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth";
const ROUTE_TYPE: &str = "envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuthPerRoute";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| Some(Arc::new(converter.api_key_auth(config)?)),
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    let clients = match config.messages("credentials").next() {
        Some(_) => Some(converter.api_clients(config)?),
        None => None,
    };
    Some(Arc::new(RouteApiKeyAuth {
        clients,
        sources: converter.key_sources(config)?,
        forwarding: converter.key_forwarding(config)?,
        allowed: config.texts("allowed_clients").map(|(text, _)| text.into()).collect(),
    }))
}

impl Converter<'_> {
    fn api_key_auth(&mut self, config: &Message) -> Option<ApiKeyAuth> {
        Some(ApiKeyAuth {
            clients: self.api_clients(config)?,
            sources: self.key_sources(config)?,
            forwarding: self.key_forwarding(config)?,
        })
    }

    fn api_clients(&mut self, config: &Message) -> Option<Arc<Clients>> {
        let mut clients = Clients::default();
        for credential in config.messages("credentials") {
            let key = credential.text("key");
            if !clients.add(key, credential.text("client")) {
                // The key is a secret, and is not told.
                self.report.problem(credential.at("key"), "Duplicated credential key");
                return None;
            }
        }
        Some(Arc::new(clients))
    }

    /// Of a source that names several places the first counts, as in Envoy.
    fn key_sources(&mut self, config: &Message) -> Option<Vec<Source>> {
        let sources: Vec<_> = config.messages("key_sources").collect();
        let read = |source: &Message| {
            let (header, query) = (source.text("header"), source.text("query"));
            match (header, query, source.text("cookie")) {
                ("", "", "") => {
                    let text = "One of 'header'/'query'/'cookie' must be set.";
                    self.report.problem(&source.at, text);
                    None
                }
                ("", "", cookie) => Some(Source::Cookie(cookie.as_bytes().into())),
                ("", query, _) => Some(Source::Query(query.as_bytes().into())),
                (header, ..) => {
                    Some(Source::Header(self.header_name(header, source.at("header"))?))
                }
            }
        };
        sources.into_iter().map(read).collect()
    }

    fn key_forwarding(&mut self, config: &Message) -> Option<Forwarding> {
        let Some(forwarding) = config.message("forwarding") else {
            return Some(Forwarding::default());
        };
        let header = match forwarding.text("header") {
            "" => None,
            name => Some(self.header_name(name, forwarding.at("header"))?),
        };
        Some(Forwarding { header, hides: forwarding.flag("hide_credentials") })
    }
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &["credentials", "key_sources", "forwarding"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: ROUTE_TYPE,
        honoured: &["credentials", "key_sources", "allowed_clients", "forwarding"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.api_key_auth.v3.Credential",
        honoured: &["key", "client"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.api_key_auth.v3.KeySource",
        honoured: &["header", "query", "cookie"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.api_key_auth.v3.Forwarding",
        honoured: &["header", "hide_credentials"],
        harmless: &[],
        changes: &[],
    },
];
