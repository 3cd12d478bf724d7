//! Requests must show a name and a password.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::basic_auth::{BasicAuth, RouteBasicAuth, Users};

use super::Known;
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.basic_auth.v3.BasicAuth";
const ROUTE_TYPE: &str = "envoy.extensions.filters.http.basic_auth.v3.BasicAuthPerRoute";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| Some(Arc::new(converter.basic_auth(config)?)),
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    Some(Arc::new(RouteBasicAuth(converter.users(config)?)))
}

impl Converter<'_> {
    fn basic_auth(&mut self, config: &Message) -> Option<BasicAuth> {
        let name_header = match config.text("forward_username_header") {
            "" => None,
            name => Some(self.header_name(name, config.at("forward_username_header"))?),
        };
        let header = match config.text("authentication_header") {
            "" => "authorization",
            name => name,
        };
        Some(BasicAuth {
            users: self.users(config)?,
            name_header,
            header: self.header_name(header, config.at("authentication_header"))?,
            allows_missing: config.flag("allow_missing"),
            keeps_name: config.flag("emit_dynamic_metadata"),
        })
    }

    fn users(&mut self, holder: &Message) -> Option<Arc<Users>> {
        let Some(source) = holder.message("users") else {
            self.report.problem(&holder.at, "needs `users`");
            return None;
        };
        let text = self.text_data(source, MOST_USERS_BYTES)?;
        if text.is_empty() {
            self.report.problem(&source.at, "DataSource cannot be empty");
            return None;
        }
        match Users::parse(&text) {
            Ok(users) => Some(Arc::new(users)),
            Err(why) => {
                self.report.problem(&source.at, why);
                None
            }
        }
    }
}

const MOST_USERS_BYTES: usize = 1 << 20;

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &[
            "users",
            "forward_username_header",
            "authentication_header",
            "allow_missing",
            "emit_dynamic_metadata",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry { message: ROUTE_TYPE, honoured: &["users"], harmless: &[], changes: &[] },
];
