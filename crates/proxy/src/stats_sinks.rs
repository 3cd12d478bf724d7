//! Statistics that are sent away by UDP: sockets, and what was sent before.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use towpath_config::Push;
use towpath_engine::stats::{Reading, statsd};

/// All sinks of the configuration.
pub(crate) struct StatsSinks {
    sockets: Vec<UdpSocket>,
    push: statsd::Push,
    /// Between two times that they are told; `None` where admin requests say when.
    pub(crate) interval: Option<Duration>,
}

impl StatsSinks {
    /// Opens the sockets.
    pub(crate) fn open(push: Push) -> Result<Self, String> {
        let Push { sinks, interval } = push;
        let mut sockets = Vec::new();
        let mut all = Vec::new();
        for (address, sink) in sinks {
            let socket = connect(address)
                .map_err(|error| format!("cannot send statistics to {address}: {error}"))?;
            sockets.push(socket);
            all.push(sink);
        }
        Ok(Self { sockets, push: statsd::Push::new(all), interval })
    }

    /// Whether there is a sink.
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Sends what has changed.
    pub(crate) fn tell(&mut self, reading: &Reading) {
        let sockets = &self.sockets;
        self.push.flush(reading, |to, datagram| {
            // What no sink takes is lost, as in Envoy.
            let _ = sockets.get(to).map(|socket| socket.send(datagram));
        });
    }
}

fn connect(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    Ok(socket)
}
