//! The listener filter that finds out whether a client speaks TLS.

use std::sync::Arc;

use md5::{Digest as _, Md5};
use towpath_proto::Instant;
use towpath_proto::tls::{Fingerprint, Greeting};

use super::listener::{Arrival, ListenerFilter, ListenerFilterConfig, Look};
use crate::matcher::Transport;
use crate::stats::{Registry, Scope, TlsInspectorStats};

/// Envoy `envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector`: finds out whether a client speaks TLS,
/// which server it asks for, and which protocols it offers. It takes no byte for itself.
#[derive(Clone, Copy, Debug)]
pub struct TlsInspector {
    /// `enable_ja3_fingerprinting`.
    pub ja3: bool,
    /// `enable_ja4_fingerprinting`.
    pub ja4: bool,
    /// `close_connection_on_client_hello_parsing_errors`: what is no `ClientHello` ends the connection. Otherwise it is
    /// plain text.
    pub only_tls: bool,
    /// `max_client_hello_size`, in bytes, at most [`Self::MOST_BYTES`]: a longer one ends the connection.
    pub most_bytes: usize,
}

impl TlsInspector {
    /// The most that `max_client_hello_size` may be, and what it is by default.
    pub const MOST_BYTES: usize = 16 * 1024;
}

impl Default for TlsInspector {
    fn default() -> Self {
        Self { ja3: false, ja4: false, only_tls: false, most_bytes: Self::MOST_BYTES }
    }
}

impl ListenerFilterConfig for TlsInspector {
    fn start(&self, registry: &Registry, worker: u32) -> Box<dyn ListenerFilter> {
        Box::new(Inspector { config: *self, stats: registry.set(worker, Scope::TlsInspector) })
    }
}

#[derive(Debug)]
struct Inspector {
    config: TlsInspector,
    stats: Arc<TlsInspectorStats>,
}

impl ListenerFilter for Inspector {
    fn most_bytes(&self) -> usize {
        self.config.most_bytes
    }

    fn look(&self, bytes: &[u8], arrival: &mut Arrival, _now: Instant) -> Look {
        match Greeting::read(bytes) {
            Greeting::Incomplete if bytes.len() < self.config.most_bytes => return Look::More,
            Greeting::Incomplete => {
                self.stats.client_hello_too_large.inc();
                return Look::Refused;
            }
            Greeting::Plain if self.config.only_tls => return Look::Refused,
            Greeting::Plain => self.stats.tls_not_found.inc(),
            Greeting::Hello { server_name, protocols, size } => {
                self.count(server_name.is_some(), !protocols.is_empty(), size);
                arrival.transport = Transport::Tls;
                arrival.server_name = server_name.map(|name| name.to_ascii_lowercase().into());
                arrival.protocols = protocols;
                self.read_fingerprints(bytes, arrival);
            }
        }
        Look::Done { takes: 0 }
    }
}

impl Inspector {
    fn count(&self, is_named: bool, has_protocols: bool, size: usize) {
        let stats = &self.stats;
        stats.tls_found.inc();
        if is_named { &stats.sni_found } else { &stats.sni_not_found }.inc();
        if has_protocols { &stats.alpn_found } else { &stats.alpn_not_found }.inc();
        stats.bytes_processed.record(size as u64);
    }

    fn read_fingerprints(&self, bytes: &[u8], arrival: &mut Arrival) {
        let TlsInspector { ja3, ja4, .. } = self.config;
        let print = (ja3 || ja4).then(|| Fingerprint::read(bytes)).flatten();
        let Some(print) = print else { return };
        arrival.fingerprints.ja3 = ja3.then(|| {
            let hash = Md5::digest(print.ja3());
            hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
        });
        arrival.fingerprints.ja4 = ja4.then(|| print.ja4().into());
    }
}
