//! Clients that stay with the host that they had.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::stateful_session::{
    RouteSession, SessionCookie, SessionState, SharedSession, StatefulSession,
};

use super::Known;
use crate::convert::Converter;
use crate::convert::extension::SESSION_STATE;
use crate::message::Message;
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.stateful_session.v3.StatefulSession";
const ROUTE_TYPE: &str =
    "envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute";
const COOKIE: &str = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState";
const HEADER: &str = "envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState";
const ENVELOPE: &str = "envoy.extensions.http.stateful_session.envelope.v3.EnvelopeSessionState";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| {
        Some(Arc::new(SharedSession(Arc::new(converter.stateful_session(config)?))))
    },
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    if config.flag("disabled") {
        return Some(Arc::new(RouteSession(None)));
    }
    let session = converter.stateful_session(config.message("stateful_session")?)?;
    Some(Arc::new(RouteSession(Some(Arc::new(session)))))
}

impl Converter<'_> {
    fn stateful_session(&mut self, config: &Message) -> Option<StatefulSession> {
        let state = match config.message("session_state") {
            Some(extension) => Some(self.session_state(extension)?),
            None => None,
        };
        let strict = config.flag("strict");
        let missing = match config.number("status_on_strict_destination_not_found") {
            Some(status) if strict && status != 0 => match u16::try_from(status) {
                Ok(status @ 200..=599) => status,
                _ => {
                    let at = config.at("status_on_strict_destination_not_found");
                    self.report.unsupported(at, "an answer has a status of 200 to 599");
                    return None;
                }
            },
            _ => 503,
        };
        let stat_prefix = config.text("stat_prefix").into();
        Some(StatefulSession { state, strict, missing, stat_prefix })
    }

    fn session_state(&mut self, extension: &Message) -> Option<SessionState> {
        if let Some((any, at)) = extension.any("typed_config")
            && any.name == ENVELOPE
        {
            let text = "envoy.http.stateful_session.envelope is not there: it changes what hosts \
                        say of their own sessions; write a cookie or header of the proxy's own";
            self.report.unsupported(at, text);
            return None;
        }
        let (config, _) = self.extension(extension, SESSION_STATE, &[COOKIE, HEADER])?;
        let is_cookie = config.descriptor.full_name() == COOKIE;
        // Envoy finds it by its name.
        let name = match is_cookie {
            true => "envoy.http.stateful_session.cookie",
            false => "envoy.http.stateful_session.header",
        };
        if extension.text("name") != name {
            let text = format!("Didn't find a registered implementation: its name is `{name}`");
            self.report.problem(extension.at("name"), text);
            return None;
        }
        if !is_cookie {
            let name = self.header_name(config.text("name"), config.at("name"))?;
            return Some(SessionState::Header(name));
        }
        let cookie = config.message("cookie")?;
        let attributes: Vec<_> = cookie
            .messages("attributes")
            .map(|attribute| (attribute.text("name"), attribute.text("value")))
            .collect();
        let lifetime = cookie.duration("ttl").map_or(0, |ttl| ttl.as_secs());
        let (name, path) = (cookie.text("name"), cookie.text("path"));
        Some(SessionState::Cookie(SessionCookie::new(name, path, lifetime, &attributes)))
    }
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &[
            "session_state",
            "strict",
            "stat_prefix",
            "status_on_strict_destination_not_found",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: ROUTE_TYPE,
        honoured: &["disabled", "stateful_session"],
        harmless: &[],
        changes: &[],
    },
    Entry { message: COOKIE, honoured: &["cookie"], harmless: &[], changes: &[] },
    Entry { message: HEADER, honoured: &["name"], harmless: &[], changes: &[] },
    Entry {
        message: "envoy.type.http.v3.Cookie",
        honoured: &["name", "ttl", "path", "attributes"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.type.http.v3.CookieAttribute",
        honoured: &["name", "value"],
        harmless: &[],
        changes: &[],
    },
];
