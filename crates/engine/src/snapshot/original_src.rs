//! The listener filter after which hosts see their clients' addresses as where connections come from.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use towpath_proto::{ConnectOptions, Instant, SocketOption, SocketState};

use super::listener::{Arrival, ListenerFilter, Look};

/// Envoy `extensions.filters.listener.original_src.v3.OriginalSrc`: connections to hosts are bound to the address of
/// their client, whatever port. That takes `CAP_NET_ADMIN`, and routes that lead back what is sent to that address.
#[derive(Clone, Copy, Debug)]
pub struct OriginalSrc {
    /// `mark`: `SO_MARK` of such connections; 0 sets none.
    pub mark: u32,
}

impl ListenerFilter for OriginalSrc {
    fn most_bytes(&self) -> usize {
        0
    }

    fn look(&self, _bytes: &[u8], arrival: &mut Arrival, _now: Instant) -> Look {
        if let Some(client) = arrival.client.ip() {
            arrival.source = Some(Source { ip: client.ip(), mark: self.mark });
        }
        Look::Done { takes: 0 }
    }
}

/// Where connections for a client come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The client's address.
    pub ip: IpAddr,
    /// `SO_MARK`; 0 sets none.
    pub mark: u32,
}

impl Source {
    /// The options of a cluster, with this in place of its own source.
    #[must_use]
    pub fn bind(self, options: &ConnectOptions) -> Arc<ConnectOptions> {
        let mut options = options.clone();
        options.source = Some(SocketAddr::new(self.ip, 0));
        let (level, name) = match self.ip {
            IpAddr::V4(_) => (SOL_IP, IP_TRANSPARENT),
            IpAddr::V6(_) => (SOL_IPV6, IPV6_TRANSPARENT),
        };
        let mut set = |level, name, value: [u8; 4]| {
            let (value, state) = (value.to_vec(), SocketState::PreBind);
            options.socket_options.push(SocketOption { level, name, value, state, only: None });
        };
        if self.mark != 0 {
            set(SOL_SOCKET, SO_MARK, self.mark.to_ne_bytes());
        }
        set(level, name, 1_i32.to_ne_bytes());
        Arc::new(options)
    }
}

// Linux's numbers, of `ip(7)`, `ipv6(7)` and `socket(7)`.
const SOL_IP: i32 = 0;
const SOL_SOCKET: i32 = 1;
const SOL_IPV6: i32 = 41;
const IP_TRANSPARENT: i32 = 19;
const SO_MARK: i32 = 36;
const IPV6_TRANSPARENT: i32 = 75;

#[cfg(test)]
mod tests {
    use towpath_proto::Address;

    use super::*;

    #[test]
    fn a_client_is_where_its_connections_come_from() {
        let address = |text: &str| Address::Ip(text.parse().unwrap());
        let mut arrival = Arrival::new(address("10.0.0.1:80"), address("10.0.0.2:1000"));
        let found = OriginalSrc { mark: 7 }.look(&[], &mut arrival, Instant::ZERO);
        assert_eq!(found, Look::Done { takes: 0 });
        let options = arrival.source.unwrap().bind(&ConnectOptions::default());
        assert_eq!(options.source.unwrap().to_string(), "10.0.0.2:0");
        let set: Vec<_> = options.socket_options.iter().map(|it| (it.level, it.name)).collect();
        assert_eq!(set, [(SOL_SOCKET, SO_MARK), (SOL_IP, IP_TRANSPARENT)]);
        let six = Source { ip: "fd00::1".parse().unwrap(), mark: 0 };
        let options = six.bind(&options).socket_options.last().cloned().unwrap();
        assert_eq!((options.level, options.name), (SOL_IPV6, IPV6_TRANSPARENT));
    }

    #[test]
    fn a_client_without_an_address_has_none_to_give() {
        let inside = Address::Internal("a/".into());
        let mut arrival = Arrival::new(inside.clone(), inside);
        OriginalSrc { mark: 0 }.look(&[], &mut arrival, Instant::ZERO);
        assert_eq!(arrival.source, None);
    }
}
