//! What a refusal says is protected.

use towpath_proto::{Head, Name};

/// The URL of a request as its client wrote it, with so much of its path.
pub(super) fn realm(head: &Head) -> Vec<u8> {
    let scheme = head.get(Name::XForwardedProto).unwrap_or_else(|| head.scheme());
    let path = head.get(Name::XEnvoyOriginalPath).unwrap_or_else(|| head.path());
    let path = &path[..path.len().min(MOST_OF_PATH)];
    [scheme, b"://", head.authority(), path].concat()
}

/// In bytes.
const MOST_OF_PATH: usize = 256;
