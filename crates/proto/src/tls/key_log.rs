//! The secrets of connections, for tools that decrypt a capture of packets.
//!
//! Arrives: what rustls tells of each handshake. Leaves: lines of the NSS key log format, which Wireshark reads.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use rustls::KeyLog;

use crate::Address;

/// Takes the lines, each with its end. Envoy `TlsKeyLog`. With them the connections that they are of can be read.
pub trait KeyLines: fmt::Debug + Send + Sync {
    /// One more line.
    fn write(&self, line: &str);

    /// Whether it is told the secrets of some connections only.
    fn is_partial(&self) -> bool {
        false
    }

    /// Whether it is told those of a connection between these addresses; asked only where it is partial.
    fn wants(&self, _local: &Address, _remote: &Address) -> bool {
        true
    }
}

/// What speaks on the connections whose secrets are not written, where those of others are.
#[derive(Clone, Debug)]
pub(super) struct Quiet<T> {
    pub(super) lines: Arc<dyn KeyLines>,
    pub(super) instead: Arc<T>,
}

impl<T> Quiet<T> {
    /// What speaks between these addresses, if their secrets are not written.
    pub(super) fn between(&self, local: &Address, remote: &Address) -> Option<&T> {
        (!self.lines.wants(local, remote)).then_some(&*self.instead)
    }
}

/// Makes lines of what rustls tells.
#[derive(Debug)]
pub(super) struct Lines(pub(super) Arc<dyn KeyLines>);

impl KeyLog for Lines {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line =
            String::with_capacity(label.len() + 2 * (client_random.len() + secret.len()) + 3);
        line.push_str(label);
        for bytes in [client_random, secret] {
            line.push(' ');
            for byte in bytes {
                // A string takes all that is written.
                let _ = write!(line, "{byte:02x}");
            }
        }
        line.push('\n');
        self.0.write(&line);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Kept(Mutex<String>);

    impl KeyLines for Kept {
        fn write(&self, line: &str) {
            self.0.lock().unwrap().push_str(line);
        }
    }

    #[test]
    fn a_line_has_label_random_and_secret() {
        let kept = Arc::new(Kept::default());
        Lines(Arc::clone(&kept) as _).log("CLIENT_RANDOM", &[1, 0xab], &[0, 0xff]);
        assert_eq!(*kept.0.lock().unwrap(), "CLIENT_RANDOM 01ab 00ff\n");
    }
}
