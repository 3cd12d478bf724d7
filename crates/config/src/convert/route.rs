//! Routes: what they match, and actions that answer by themselves.

use std::sync::Arc;

use towpath_engine::matcher::{CertificateMatch, CookieMatcher, RareTests};
use towpath_engine::snapshot::route::{
    Action, PathMatch, PathRewrite, Redirect, RedirectPath, Route, Text,
};

use super::Converter;
use super::metadata::filter_metadata;
use super::route_table::{Surroundings, buffer_limit};
use crate::message::{Message, Value};

impl Converter<'_> {
    pub(super) fn route(&mut self, route: &Message, surroundings: &Surroundings) -> Option<Route> {
        let matches = route.message("match");
        let path = matches.and_then(|matches| self.path_match(matches));
        let headers =
            matches.map(|matches| self.header_matchers(matches, "headers")).unwrap_or_default();
        let query = matches
            .map(|matches| self.query_matchers(matches, "query_parameters"))
            .unwrap_or_default();
        let rare = matches.and_then(|matches| self.rare_tests(matches));
        let fraction = matches.and_then(|matches| matches.message("runtime_fraction"));
        let fraction = fraction.and_then(|fraction| self.runtime_fraction(fraction));
        let grpc_only = matches.is_some_and(|matches| matches.has("grpc"));
        let tracing = self.route_tracing(route);
        let request_headers = self.request_ops(route);
        let response_headers = self.response_ops(route);
        let mut filters = self.filter_overrides(route);
        if let Some(action) = route.message("route") {
            filters.extend(self.old_cors(action));
            filters.extend(self.old_rate_limits(action, false));
        }
        let before = self.http_clusters.len();
        let action = self.action(route, surroundings, path.as_ref());
        let action = self.bridged(route, action, before);
        Some(Route {
            name: Arc::from(route.text("name")),
            stat_prefix: Some(route.text("stat_prefix")).filter(|it| !it.is_empty()).map(Arc::from),
            path: path?,
            headers,
            query,
            rare,
            fraction,
            grpc_only,
            action: action?,
            request_headers,
            response_headers,
            retry_buffer_limit: buffer_limit(route).or(surroundings.retry_buffer),
            filters,
            tracing,
            filter_metadata: filter_metadata(route),
        })
    }

    /// What few routes ask.
    fn rare_tests(&mut self, matches: &Message) -> Option<Box<RareTests>> {
        let cookies: Vec<_> = matches.messages("cookies").collect();
        let cookies = cookies.into_iter().filter_map(|cookie| self.cookie_matcher(cookie));
        let cookies = cookies.collect();
        let certificate = matches.message("tls_context").map(|tls| CertificateMatch {
            presented: tls.wrapped_flag("presented"),
            validated: tls.wrapped_flag("validated"),
        });
        let certificate = certificate.unwrap_or_default();
        let metadata = self.metadata_matchers(matches, "dynamic_metadata");
        let state = self.state_matchers(matches, "filter_state");
        let tests = RareTests { cookies, certificate, metadata, state };
        (!tests.is_empty()).then(|| Box::new(tests))
    }

    fn cookie_matcher(&mut self, cookie: &Message) -> Option<CookieMatcher> {
        let test = self.string_matcher(cookie.message("string_match")?)?;
        let name = cookie.text("name").as_bytes().into();
        Some(CookieMatcher { name, test, invert: cookie.flag("invert_match") })
    }

    /// The path of a `RouteMatch`.
    pub(super) fn path_match(&mut self, matches: &Message) -> Option<PathMatch> {
        let case_sensitive = matches.wrapped_flag("case_sensitive").unwrap_or(true);
        let field = matches.oneof("path_specifier")?;
        Some(match (field.descriptor.name(), &field.value) {
            ("prefix", Value::String(text)) => PathMatch::Prefix(Text::new(text, case_sensitive)),
            ("path", Value::String(text)) => PathMatch::Exact(Text::new(text, case_sensitive)),
            ("path_separated_prefix", Value::String(text)) => {
                if text.ends_with('/') || text.contains(['?', '#']) || !text.starts_with('/') {
                    self.report.problem(
                        &field.at,
                        format!(
                            "`{text}` must begin with `/`, not end with it, and have no `?` or `#`"
                        ),
                    );
                }
                PathMatch::SeparatedPrefix(Text::new(text, case_sensitive))
            }
            ("safe_regex", Value::Message(regex)) => PathMatch::Regex(self.full_regex(regex)?),
            ("connect_matcher", _) => PathMatch::Connect,
            ("path_match_policy", Value::Message(policy)) => {
                PathMatch::Template(self.template_match(policy)?)
            }
            _ => return None,
        })
    }

    fn action(
        &mut self,
        route: &Message,
        surroundings: &Surroundings,
        path: Option<&PathMatch>,
    ) -> Option<Action> {
        let field = route.oneof("action")?;
        let Value::Message(action) = &field.value else { return None };
        match field.descriptor.name() {
            "route" => {
                let forward = self.forward(action, surroundings, path);
                forward.map(|forward| Action::Forward(Box::new(forward)))
            }
            "redirect" => {
                self.redirect(action, path).map(|redirect| Action::Redirect(Box::new(redirect)))
            }
            "direct_response" => self.direct(action, surroundings),
            _ => None,
        }
    }

    fn direct(&mut self, action: &Message, surroundings: &Surroundings) -> Option<Action> {
        let status = u16::try_from(action.number("status")?).ok()?;
        let body = match action.message("body") {
            Some(source) => self.data(source, surroundings.max_body)?,
            None => Vec::new(),
        };
        let format = match action.message("body_format") {
            Some(format) => Some(Box::new(self.body_format(format)?)),
            None => None,
        };
        Some(Action::Direct { status, body: body.into(), format })
    }

    fn redirect(&mut self, action: &Message, path: Option<&PathMatch>) -> Option<Redirect> {
        let scheme =
            if action.flag("https_redirect") { "https" } else { action.text("scheme_redirect") };
        let status = match action.choice("response_code").as_str() {
            "FOUND" => 302,
            "SEE_OTHER" => 303,
            "TEMPORARY_REDIRECT" => 307,
            "PERMANENT_REDIRECT" => 308,
            _ => 301,
        };
        let host = action.text("host_redirect");
        Some(Redirect {
            scheme: (!scheme.is_empty()).then(|| Arc::from(scheme)),
            host: (!host.is_empty()).then(|| host.as_bytes().into()),
            port: self.redirect_port(action)?,
            path: self.redirect_path(action, path)?,
            status,
            strip_query: action.flag("strip_query"),
        })
    }

    /// The port, if one is written; Envoy would put any number into the URL.
    fn redirect_port(&mut self, action: &Message) -> Option<Option<u16>> {
        let Some(port) = action.number("port_redirect").filter(|port| *port != 0) else {
            return Some(None);
        };
        if port > u64::from(u16::MAX) {
            self.report.problem(action.at("port_redirect"), format!("{port} is no port"));
        }
        u16::try_from(port).ok().map(Some)
    }

    fn redirect_path(
        &mut self,
        action: &Message,
        matched: Option<&PathMatch>,
    ) -> Option<RedirectPath> {
        let Some(field) = action.oneof("path_rewrite_specifier") else {
            return Some(RedirectPath::Keep);
        };
        Some(match (field.descriptor.name(), &field.value) {
            (_, Value::String(text)) if text.is_empty() => RedirectPath::Keep,
            ("path_redirect", Value::String(text)) => RedirectPath::Replace(text.as_bytes().into()),
            ("path_rewrite", Value::String(text)) => {
                RedirectPath::Format(self.header_format(text, &field.at)?)
            }
            ("prefix_rewrite", Value::String(text)) => {
                if matches!(matched, Some(PathMatch::Template(_))) {
                    let text = "cannot use prefix_rewrite with path_match_policy";
                    self.report.problem(&field.at, text);
                }
                RedirectPath::Rewrite(PathRewrite::Prefix(text.as_bytes().into()))
            }
            ("regex_rewrite", Value::Message(rewrite)) => {
                let (pattern, substitution) = self.rewrite(rewrite)?;
                RedirectPath::Rewrite(PathRewrite::Regex {
                    pattern,
                    substitution: substitution.into(),
                })
            }
            _ => return None,
        })
    }
}
