//! How a client asks a proxy for a tunnel to somewhere else: CONNECT (RFC 9110 §9.3.6) and SOCKS version 5 (RFC 1928).
//!
//! Arrives: what the proxy says. Leaves: what to say to it, and at the end the tunnel's first bytes, or why there is
//! none. The proxy is given the host's name as it is, so it is the one that resolves it.
//!
//! What it deliberately does not do: Digest, GSSAPI, SOCKS 4, and UDP.

mod connect;
mod socks5;
#[cfg(test)]
mod tests;

use std::fmt;

use connect::Connect;
use socks5::Socks5;

/// A tunnel that is being asked for.
#[derive(Debug)]
pub struct Handshake {
    state: State,
    output: Vec<u8>,
}

#[derive(Debug)]
enum State {
    Connect(Connect),
    Socks5(Socks5),
}

/// The user name and password of a client.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// And the password.
    pub password: String,
}

/// Why there is no tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It answered CONNECT with this status.
    Status(u16),
    /// It wants credentials, or refuses those it got (407; RFC 1929).
    Credentials,
    /// It answered with this code (RFC 1928 §6).
    Socks(u8),
    /// What it said is not its protocol.
    Malformed,
    /// It ended the connection.
    Ended,
    /// The TLS handshake with it failed.
    Tls(crate::tls::Fault),
    /// The host's name, or the credentials, are longer than the protocol has room for.
    TooLong,
}

/// How far it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The proxy has to say more.
    Waiting,
    /// The tunnel is there; these are its first bytes.
    Open(Vec<u8>),
}

impl Handshake {
    /// Asks by CONNECT for `authority`, a host and a port.
    #[must_use]
    pub fn connect(
        authority: &str,
        fields: &[(String, String)],
        who: Option<&Credentials>,
    ) -> Self {
        let output = connect::request(authority, fields, who);
        Self { state: State::Connect(Connect::default()), output }
    }

    /// Asks by SOCKS version 5 for a host (a name, or an address as text) and a port.
    ///
    /// # Errors
    /// [`Refusal::TooLong`].
    pub fn socks5(host: &str, port: u16, who: Option<&Credentials>) -> Result<Self, Refusal> {
        let (socks5, output) = Socks5::new(host, port, who)?;
        Ok(Self { state: State::Socks5(socks5), output })
    }

    /// Takes what the proxy said. Afterwards [`Handshake::take_output`] may have something.
    ///
    /// # Errors
    /// When there will be no tunnel.
    pub fn receive(&mut self, chunk: &[u8]) -> Result<Progress, Refusal> {
        match &mut self.state {
            State::Connect(connect) => connect.receive(chunk),
            State::Socks5(socks5) => socks5.receive(chunk, &mut self.output),
        }
    }

    /// What a proxy says of the credentials that it wants, after [`Refusal::Credentials`]: the values of its fields
    /// `proxy-authenticate`. SOCKS says nothing.
    #[must_use]
    pub fn challenges(&self) -> &[String] {
        match &self.state {
            State::Connect(connect) => &connect.challenges,
            State::Socks5(_) => &[],
        }
    }

    /// What to say to the proxy.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "it answered CONNECT with {status}"),
            Self::Credentials => f.write_str("it wants other credentials"),
            Self::Socks(code) => f.write_str(socks5::reason(*code)),
            Self::Malformed => f.write_str("it does not speak its protocol"),
            Self::Ended => f.write_str("it ended the connection"),
            Self::Tls(fault) => write!(f, "TLS with it: {fault}"),
            Self::TooLong => f.write_str("the host's name or the credentials are too long for it"),
        }
    }
}

impl std::error::Error for Refusal {}
