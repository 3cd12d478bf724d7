//! Routes between HTTP and Bolt. Towpath's own; `docs/bolt.md` has their schema.

use std::sync::Arc;

use bytes::Bytes;
use towpath_engine::snapshot::bolt::{Bridge, ToBolt, ToHttp};
use towpath_engine::snapshot::route::Action;
use towpath_proto::bolt::Version;
use towpath_proto::head::{Head, Method};

use super::Converter;
use crate::message::{Message, Value};

/// What an HTTP route says under its `typed_per_filter_config`.
pub(super) const BOLT_BRIDGE: &str = "towpath.extensions.bolt.v1.BoltBridge";
/// The name under which it does.
pub(super) const BOLT_BRIDGE_NAME: &str = "towpath.filters.http.bolt_bridge";

impl Converter<'_> {
    /// An HTTP route's action, with its bridge to Bolt if it has one. `before` is how many clusters HTTP was sent to
    /// before it.
    pub(super) fn bridged(
        &mut self,
        route: &Message,
        action: Option<Action>,
        before: usize,
    ) -> Option<Action> {
        let Some(config) = self.route_config(route) else { return action };
        let bridge = self.bolt_bridge(config);
        // What it leads to must speak Bolt.
        let clusters = self.http_clusters.split_off(before.min(self.http_clusters.len()));
        self.bolt_clusters.extend(clusters);
        let Action::Forward(mut forward) = action? else {
            self.report.problem(&config.at, "only a `route` action can be bridged to Bolt");
            return None;
        };
        if !forward.upgrades.is_empty() {
            self.report.problem(&config.at, "Bolt has no upgrades; take `upgrade_configs` away");
        }
        if forward.hedges {
            self.report
                .problem(&config.at, "calls of Bolt are not hedged; take `hedge_policy` away");
        }
        forward.bridge = Some(Bridge::ToBolt(bridge?));
        Some(Action::Forward(forward))
    }

    fn route_config<'m>(&mut self, route: &'m Message) -> Option<&'m Message> {
        let mut entries = route.entries("typed_per_filter_config").iter();
        let message = entries.find_map(|(name, item)| match &item.value {
            Value::Any(any) if any.name == BOLT_BRIDGE && name == BOLT_BRIDGE_NAME => {
                any.message.as_ref()
            }
            _ => None,
        })?;
        self.accept(message);
        Some(message)
    }

    fn bolt_bridge(&mut self, message: &Message) -> Option<ToBolt> {
        let text = |name| match message.text(name) {
            "" => None,
            text => Some(Arc::from(text)),
        };
        let codec = message.number32("codec").unwrap_or(HESSIAN_2);
        let Ok(codec) = u8::try_from(codec) else {
            self.report.problem(message.at("codec"), "must be at most 255");
            return None;
        };
        let checksums = message.flag("checksum");
        let version = match message.number32("version").unwrap_or(1) {
            1 if checksums => {
                self.report.problem(message.at("checksum"), "version 1 has no checksums");
                return None;
            }
            1 => Version::V1,
            2 => Version::V2 { checksums },
            _ => {
                self.report.problem(message.at("version"), "must be 1 or 2");
                return None;
            }
        };
        Some(ToBolt {
            service: text("service"),
            method: text("method"),
            class: self.bolt_class(message, SOFA_REQUEST),
            codec,
            version,
            content_type: content_type(message),
            max_request: self.most_collected(message, "max_request_bytes"),
        })
    }

    /// A Bolt route's bridge to HTTP.
    pub(super) fn http_bridge(&mut self, message: &Message) -> Option<ToHttp> {
        let method = match message.text("method") {
            "" => "POST",
            method => method,
        };
        let is_token = Head::default().set_method(method.as_bytes());
        let known = Method::from_bytes(method.as_bytes());
        if !is_token || matches!(known, Method::Connect | Method::Head | Method::Trace) {
            self.report.problem(message.at("method"), format!("`{method}` cannot carry a call"));
        }
        let prefix = message.text("path_prefix");
        let is_path = prefix.starts_with('/') && !prefix.ends_with('/');
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#".contains(&byte);
        let is_sound = prefix.is_empty() || (is_path && prefix.bytes().all(is_plain));
        if !is_sound {
            let text = format!(
                "`{prefix}` must begin with `/`, not end with it, and have no `?`, `#` or space"
            );
            self.report.problem(message.at("path_prefix"), text);
        }
        let host = message.text("host");
        if !host.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.report.problem(message.at("host"), format!("`{host}` is no host"));
        }
        Some(ToHttp {
            method: Arc::from(method),
            host: (!host.is_empty()).then(|| Arc::from(host)),
            path_prefix: Arc::from(prefix),
            content_type: content_type(message),
            class: self.bolt_class(message, SOFA_RESPONSE),
            max_response: self.most_collected(message, "max_response_bytes"),
        })
    }

    fn bolt_class(&mut self, message: &Message, default: &'static str) -> Bytes {
        let class = message.text("class");
        // Java reads its length as a signed number.
        if class.len() > i16::MAX as usize {
            self.report.problem(message.at("class"), "must be at most 32,767 bytes");
        }
        match class {
            "" => Bytes::from_static(default.as_bytes()),
            class => Bytes::copy_from_slice(class.as_bytes()),
        }
    }

    fn most_collected(&mut self, message: &Message, name: &str) -> usize {
        let limit = message.number32(name).unwrap_or(DEFAULT_COLLECTED);
        if limit > MOST_COLLECTED {
            self.report.problem(message.at(name), format!("must be at most {MOST_COLLECTED}"));
        }
        limit as usize
    }
}

fn content_type(message: &Message) -> Arc<str> {
    match message.text("content_type") {
        "" => Arc::from("application/octet-stream"),
        text => Arc::from(text),
    }
}

const HESSIAN_2: u32 = 1;
const DEFAULT_COLLECTED: u32 = 1 << 20;
/// A frame's length is a signed 32-bit number to Java.
const MOST_COLLECTED: u32 = 1 << 30;
const SOFA_REQUEST: &str = "com.alipay.sofa.rpc.core.request.SofaRequest";
const SOFA_RESPONSE: &str = "com.alipay.sofa.rpc.core.response.SofaResponse";
