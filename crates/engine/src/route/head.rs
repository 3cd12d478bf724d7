//! What a listener makes of a request's authority and path before the request is routed.

use towpath_proto::{Address, Head};

use super::path::{PathRules, Sanitized};
use super::rewrite::without_trailing_dot;
use crate::snapshot::Http;
use crate::snapshot::http::{EscapedSlashes, StripPort};

/// Makes authority and path canonical, as far as the configuration wants it. A client that was accepted at `local` may
/// be told to go to the path that is in the head then.
pub(crate) fn normalize(head: &mut Head, config: &Http, local: &Address) -> Sanitized {
    let mut made = Vec::new();
    if config.strip_trailing_dot && without_trailing_dot(head.authority(), &mut made) {
        head.set_authority(&made);
    }
    if config.strip_port != StripPort::No {
        let port = local.ip().map(|local| local.port());
        if let Some(name) = config.strip_port.apply(head.authority(), port) {
            let name = name.to_vec();
            head.set_authority(&name);
        }
    }
    let rules = PathRules {
        normalize: config.normalize_path,
        merge_slashes: config.merge_slashes,
        escaped_slashes: config.escaped_slashes,
    };
    if !rules.normalize && !rules.merge_slashes && rules.escaped_slashes == EscapedSlashes::Keep {
        return Sanitized::Unchanged;
    }
    let sanitized = rules.sanitize(head.path(), &mut made);
    if matches!(sanitized, Sanitized::Changed | Sanitized::Redirect) {
        head.set_path(&made);
    }
    sanitized
}
