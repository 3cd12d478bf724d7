//! Statistics that are sent away.

use std::net::SocketAddr;
use std::time::Duration;

use towpath_engine::stats::statsd::{Dialect, Sink};

use super::Converter;
use super::address::Written;
use super::extension::STATS_SINK;
use super::facts::Push;
use crate::message::Message;

impl Converter<'_> {
    /// To whom statistics are sent, and when.
    pub(super) fn push(&mut self, bootstrap: &Message) -> Push {
        let sinks: Vec<_> = bootstrap.messages("stats_sinks").collect();
        let on_admin = bootstrap.flag("stats_flush_on_admin");
        let interval = bootstrap.duration("stats_flush_interval").unwrap_or(INTERVAL);
        Push {
            sinks: sinks.into_iter().filter_map(|sink| self.stats_sink(sink)).collect(),
            interval: (!on_admin).then_some(interval),
        }
    }

    fn stats_sink(&mut self, sink: &Message) -> Option<(SocketAddr, Sink)> {
        let (config, at) = self.extension(sink, STATS_SINK, &[STATSD, DOG_STATSD, GRAPHITE])?;
        let dialect = match config.descriptor.full_name() {
            STATSD => Dialect::Plain,
            DOG_STATSD => Dialect::Dog,
            _ => Dialect::Graphite,
        };
        let prefix = Some(config.text("prefix")).filter(|prefix| !prefix.is_empty());
        let datagram_bytes = match dialect {
            Dialect::Plain => 0,
            Dialect::Dog | Dialect::Graphite => {
                let bytes = config.number("max_bytes_per_datagram").unwrap_or(0);
                usize::try_from(bytes).unwrap_or(usize::MAX)
            }
        };
        let address = config.message("address")?;
        let Some(socket) = address.message("socket_address") else {
            self.report.unsupported(at, "statistics are sent by UDP; write a socket_address");
            return None;
        };
        match self.socket_address(socket)? {
            Written::Address(address) => Some((
                address.ip()?,
                Sink { dialect, prefix: prefix.unwrap_or("envoy").to_owned(), datagram_bytes },
            )),
            Written::Name(name, _) => {
                self.report.problem(&address.at, format!("malformed IP address: {name}"));
                None
            }
        }
    }
}

const INTERVAL: Duration = Duration::from_secs(5);
const STATSD: &str = "envoy.config.metrics.v3.StatsdSink";
const DOG_STATSD: &str = "envoy.config.metrics.v3.DogStatsdSink";
const GRAPHITE: &str = "envoy.extensions.stat_sinks.graphite_statsd.v3.GraphiteStatsdSink";
