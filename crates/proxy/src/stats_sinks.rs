//! Statistics that are sent away: by UDP from here, or by what a worker tells a server. What was sent before is known.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use towpath_config::{Push, PushTarget};
use towpath_engine::message::ToWorker;
use towpath_engine::snapshot::export::Exporter;
use towpath_engine::stats::{self, Reading, push};

use crate::workers::Workers;

/// All sinks of the configuration.
pub(crate) struct StatsSinks {
    targets: Vec<Target>,
    push: stats::Push,
    /// Between two times that they are told; `None` where admin requests say when.
    pub(crate) interval: Option<Duration>,
}

enum Target {
    Socket(UdpSocket),
    Server(Arc<Exporter>),
}

impl StatsSinks {
    /// Opens the sockets.
    pub(crate) fn open(push: Push) -> Result<Self, String> {
        let Push { sinks, interval } = push;
        let mut targets = Vec::new();
        let mut all = Vec::new();
        for (target, mut sink) in sinks {
            targets.push(match target {
                PushTarget::Udp(address) => Target::Socket(
                    connect(address)
                        .map_err(|error| format!("cannot send statistics to {address}: {error}"))?,
                ),
                PushTarget::Server(to) => Target::Server(to),
            });
            if let push::Sink::OpenTelemetry(sink) = &mut sink {
                sink.begin(unix_ns());
            }
            all.push(sink);
        }
        Ok(Self { targets, push: stats::Push::new(all), interval })
    }

    /// Whether there is a sink.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Sends what has changed.
    pub(crate) fn tell(&mut self, reading: &Reading, workers: &Workers) {
        let targets = &self.targets;
        self.push.flush(reading, unix_ns(), |to, bytes| match targets.get(to) {
            // What no sink takes is lost, as in Envoy.
            Some(Target::Socket(socket)) => drop(socket.send(bytes)),
            Some(Target::Server(to)) => {
                let message = Bytes::copy_from_slice(bytes);
                workers.tell_first(ToWorker::Export { to: Arc::clone(to), message });
            }
            None => {}
        });
    }
}

/// Nanoseconds since 1970.
fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
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
