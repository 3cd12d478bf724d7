//! The listener filter that finds out whether a client speaks HTTP in clear text, and which version.

use std::sync::Arc;

use towpath_proto::Instant;
use towpath_proto::http2::PREFACE;

use super::listener::{Arrival, ListenerFilter, ListenerFilterConfig, Look};
use crate::matcher::Transport;
use crate::stats::{HttpInspectorStats, Registry, Scope};

/// Envoy `envoy.extensions.filters.listener.http_inspector.v3.HttpInspector`: what a client in clear text speaks
/// becomes the protocol that it offers: `http/1.0`, `http/1.1` or `h2c`; none when it is no HTTP. It takes no byte for
/// itself.
#[derive(Debug)]
pub struct HttpInspector;

impl ListenerFilterConfig for HttpInspector {
    fn start(&self, registry: &Registry, worker: u32) -> Box<dyn ListenerFilter> {
        Box::new(Inspector { stats: registry.set(worker, Scope::HttpInspector) })
    }
}

#[derive(Debug, Default)]
struct Inspector {
    stats: Arc<HttpInspectorStats>,
}

impl ListenerFilter for Inspector {
    /// As in Envoy: a longer request line is no HTTP.
    fn most_bytes(&self) -> usize {
        64 * 1024
    }

    fn look(&self, bytes: &[u8], arrival: &mut Arrival, _now: Instant) -> Look {
        if arrival.transport != Transport::RawBuffer {
            return Look::Done { takes: 0 };
        }
        let (protocol, counter): (&[u8], _) = match first_line(bytes) {
            Spoken::Unknown if bytes.len() < self.most_bytes() => return Look::More,
            Spoken::Unknown | Spoken::Other => {
                self.stats.http_not_found.inc();
                return Look::Done { takes: 0 };
            }
            Spoken::Http10 => (b"http/1.0", &self.stats.http10_found),
            Spoken::Http11 => (b"http/1.1", &self.stats.http11_found),
            Spoken::Http2 => (b"h2c", &self.stats.http2_found),
        };
        counter.inc();
        arrival.protocols = vec![protocol.into()];
        Look::Done { takes: 0 }
    }
}

/// What a connection's first bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    /// More bytes are needed to tell.
    Unknown,
    /// HTTP of a version before 1.1, or one that there is not.
    Http10,
    Http11,
    /// The preface of RFC 9113 §3.4.
    Http2,
    Other,
}

/// `method SP request-target SP HTTP-version`, as far as it has come (RFC 9112 §3).
fn first_line(bytes: &[u8]) -> Spoken {
    let seen = bytes.len().min(PREFACE.len());
    if bytes.get(..seen) == PREFACE.get(..seen) {
        return if seen < PREFACE.len() { Spoken::Unknown } else { Spoken::Http2 };
    }
    // What is in front of a request line is passed over (RFC 9112 §2.2).
    let bytes = bytes.trim_ascii_start();
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    let line = &bytes[..end.unwrap_or(bytes.len())];
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (method, target, version) = (parts.next(), parts.next(), parts.next());
    let is_method = |method: &[u8]| {
        method.len() <= LONGEST_METHOD
            && method.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'-')
    };
    let is_target = |target: &[u8]| target.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    let is_version = |version: &[u8]| {
        let name = b"HTTP/";
        let seen = version.len().min(name.len());
        version.get(..seen) == name.get(..seen) && version.len() <= b"HTTP/1.1".len()
    };
    let fits = method.is_none_or(is_method)
        && target.is_none_or(is_target)
        && version.is_none_or(is_version);
    match (fits, end, version) {
        (false, _, _) => Spoken::Other,
        (true, None, _) => Spoken::Unknown,
        (true, Some(_), Some(b"HTTP/1.1")) => Spoken::Http11,
        (true, Some(_), Some(version)) if is_whole(version) => Spoken::Http10,
        (true, Some(_), Some(_) | None) => Spoken::Other,
    }
}

fn is_whole(version: &[u8]) -> bool {
    matches!(version, [.., major, b'.', minor] if version.len() == b"HTTP/1.1".len()
        && major.is_ascii_digit()
        && minor.is_ascii_digit())
}

/// Longer than any that is registered; a client that sends more bytes than that speaks something else.
const LONGEST_METHOD: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_tells_what_is_spoken_as_soon_as_it_can() {
        for (bytes, spoken) in [
            (&b""[..], Spoken::Unknown),
            (b"GET", Spoken::Unknown),
            (b"GET /index.html HTTP/1.1", Spoken::Unknown),
            (b"GET /index.html HTTP/1.1\r", Spoken::Http11),
            (b"\r\nGET / HTTP/1.1\n", Spoken::Http11),
            (b"GET / HTTP/1.0\r\nhost: a", Spoken::Http10),
            (b"OPTIONS * HTTP/2.0\r\n", Spoken::Http10),
            (b"PRI", Spoken::Unknown),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", Spoken::Unknown),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0", Spoken::Http2),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Spoken::Other),
            (b"EHLO example.com\r\n", Spoken::Other),
            (b"GET /\r\n", Spoken::Other),
            (b"GET / HTTP/1.1 \r\n", Spoken::Other),
            (b"GET / HTCPCP", Spoken::Other),
            (b"\x16\x03\x01", Spoken::Other),
            (b"\0", Spoken::Other),
            (b"get / ", Spoken::Other),
            (&[b'A'; 33], Spoken::Other),
        ] {
            assert_eq!(first_line(bytes), spoken, "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn tls_is_left_alone_and_an_endless_line_is_no_http() {
        let inspector = Inspector::default();
        let at = towpath_proto::Address::unspecified;
        let mut arrival = Arrival { transport: Transport::Tls, ..Arrival::new(at(), at()) };
        assert_eq!(inspector.look(b"", &mut arrival, Instant::ZERO), Look::Done { takes: 0 });
        let mut arrival = Arrival::new(at(), at());
        let line = [&b"GET /"[..], &[b'a'; 64 * 1024]].concat();
        let most = inspector.most_bytes();
        assert_eq!(inspector.look(&line[..most - 1], &mut arrival, Instant::ZERO), Look::More);
        assert_eq!(
            inspector.look(&line[..most], &mut arrival, Instant::ZERO),
            Look::Done { takes: 0 }
        );
        assert!(arrival.protocols.is_empty());
        assert_eq!(
            inspector.look(b"GET / HTTP/1.1\r\n", &mut arrival, Instant::ZERO),
            Look::Done { takes: 0 }
        );
        assert_eq!(*arrival.protocols[0], *b"http/1.1");
    }
}
