//! What another server may change of a head, and how.

use towpath_proto::Head;
use towpath_proto::head::HeaderName;

use crate::expression::Regex;

/// Envoy `HeaderMutationRules`.
#[derive(Debug, Default)]
pub struct MutationRules {
    /// `allow_all_routing`: `host`, `:authority`, `:method` and `:scheme` too.
    pub allow_all_routing: bool,
    /// `allow_envoy`: `x-envoy-…` too.
    pub allow_envoy: bool,
    /// `disallow_system`: nothing that begins with a colon.
    pub disallow_system: bool,
    /// `disallow_all`.
    pub disallow_all: bool,
    /// `allow_expression`: names that may be changed in any case.
    pub allow: Option<Regex>,
    /// `disallow_expression`: names that may not be changed in any case.
    pub disallow: Option<Regex>,
    /// `disallow_is_error`: what may not be changed is an error, and not left as it is.
    pub is_error: bool,
}

/// How a field is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Set,
    Append,
    Remove,
}

impl MutationRules {
    pub(super) fn allows(&self, operation: Operation, name: &str, value: &[u8]) -> bool {
        self.allows_name(operation, name)
            && (operation == Operation::Remove || is_fitting(name, value))
    }

    fn allows_name(&self, operation: Operation, name: &str) -> bool {
        let is_system = name.starts_with(':');
        if operation == Operation::Remove && (is_system || name == "host") {
            return false;
        }
        let matches =
            |regex: &Option<Regex>| regex.as_ref().is_some_and(|it| it.is_match(name.as_bytes()));
        if matches(&self.disallow) {
            return false;
        }
        if matches(&self.allow) {
            return true;
        }
        if self.disallow_all {
            return false;
        }
        let routes = matches!(name, "host" | ":authority" | ":method" | ":scheme");
        if routes && !self.allow_all_routing {
            return false;
        }
        if is_system && (operation == Operation::Append || self.disallow_system) {
            return false;
        }
        self.allow_envoy || !name.starts_with("x-envoy")
    }
}

/// Whether such a field may have this value.
fn is_fitting(name: &str, value: &[u8]) -> bool {
    match name {
        "host" | ":authority" => value.iter().all(is_of_authority),
        ":scheme" => matches!(value, b"http" | b"https"),
        ":status" => status_of(value).is_some_and(|status| status >= 200),
        _ => name.starts_with(':') || is_value(value),
    }
}

/// RFC 3986 §3.2, with what stands around it in a URI.
fn is_of_authority(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@[]%".contains(byte)
}

fn status_of(value: &[u8]) -> Option<u16> {
    std::str::from_utf8(value).ok()?.parse().ok().filter(|status| *status < 1000)
}

/// False if a head cannot have such a value.
pub(super) fn change(head: &mut Head, name: &str, value: &[u8], appends: bool) -> bool {
    match name {
        ":method" => return head.set_method(value),
        ":scheme" => return head.set_scheme(value),
        ":authority" | "host" => head.set_authority(value),
        // What would end a path on the wire is no part of one.
        ":path" if value.is_empty() || value.iter().any(|byte| !(0x21..=0x7e).contains(byte)) => {
            return false;
        }
        ":path" => head.set_path(value),
        ":status" => match status_of(value) {
            Some(status) => head.set_status(status),
            None => return false,
        },
        // How a message is framed is not another server's to say.
        "transfer-encoding" => {}
        _ => {
            let Ok(name) = HeaderName::new(name) else { return false };
            if appends {
                head.append_named(&name, value);
            } else {
                head.remove_named(&name);
                head.append_named(&name, value);
            }
        }
    }
    true
}

pub(super) fn is_name(name: &str) -> bool {
    matches!(name, ":method" | ":scheme" | ":authority" | ":path" | ":status")
        || HeaderName::new(name).is_ok()
}

/// Whether it can stand in a head: no control characters but tabs.
pub(super) fn is_value(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f))
}
