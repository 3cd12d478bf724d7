//! A host that a request asks for by its address.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use towpath_proto::Address;

/// Envoy `LoadBalancerContext::OverrideHost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedHost {
    /// Where it is; nothing where the text is no address of a host, so that no cluster has it.
    pub address: Option<Address>,
    /// No other host will do.
    pub strict: bool,
    /// The status of the answer if it is strict and its cluster has no such host. Where it has one that is not to be
    /// used, the status is 503.
    pub missing: u16,
}

impl WantedHost {
    /// The address that Envoy writes in this way: `127.0.0.1:80`, `[::1]:80` or the path of a unix socket.
    #[must_use]
    pub fn address(text: &str) -> Option<Address> {
        if text.starts_with(['/', '@']) {
            return Some(Address::Unix(Arc::from(Path::new(text))));
        }
        let address: SocketAddr = text.parse().ok()?;
        (address.to_string() == text).then_some(Address::Ip(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_as_an_address_is_one() {
        for text in ["127.0.0.1:80", "[::1]:80", "/run/app", "@app"] {
            let address = WantedHost::address(text).map(|address| address.to_string());
            assert_eq!(address.as_deref(), Some(text));
        }
        for text in ["", "a", "127.0.0.1", "127.0.0.1:080", "[0:0::1]:80", "127.0.0.1:80 "] {
            assert_eq!(WantedHost::address(text), None, "{text}");
        }
    }
}
