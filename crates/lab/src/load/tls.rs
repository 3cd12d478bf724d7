//! TLS on the generator's connections.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use towpath_proto::tls::{
    Client, ClientSettings, ClientTemplate, Clock, Fault, Layer, Names, Roots, ServerName,
    SettingsError, Trust,
};

use super::Protocol;

/// What every connection speaks TLS with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Wanted", into = "Wanted")]
pub struct Tls {
    template: ClientTemplate,
    name: ServerName,
    wanted: Wanted,
}

/// What [`Tls::new`] was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wanted {
    server: String,
    trusted: Trusted,
    is_resuming: bool,
    is_http2: bool,
}

impl TryFrom<Wanted> for Tls {
    type Error = SettingsError;

    fn try_from(wanted: Wanted) -> Result<Self, SettingsError> {
        let Wanted { server, trusted, is_resuming, is_http2 } = wanted;
        let protocol = if is_http2 { Protocol::Http2 } else { Protocol::Http1 };
        Self::new(&server, &trusted, is_resuming, protocol)
    }
}

impl From<Tls> for Wanted {
    fn from(tls: Tls) -> Self {
        tls.wanted
    }
}

/// Which servers are trusted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Trusted {
    /// Those with a certificate that leads to one of the platform's roots.
    Platform,
    /// Those with a certificate that leads to one of these (PEM).
    Roots(Vec<u8>),
    /// All: certificates are not checked.
    All,
}

impl Tls {
    /// TLS towards the server of this name, under this protocol; sessions are resumed only if that is wanted.
    ///
    /// # Errors
    /// When the name is none, or no root can be read.
    pub fn new(
        server: &str,
        trusted: &Trusted,
        is_resuming: bool,
        protocol: Protocol,
    ) -> Result<Self, SettingsError> {
        let is_http2 = protocol == Protocol::Http2;
        let roots = match trusted {
            Trusted::All => None,
            Trusted::Roots(pem) => Some(Roots::from_pem(pem)?),
            Trusted::Platform => {
                let found = rustls_native_certs::load_native_certs().certs;
                Some(Roots::from_der(found.into_iter().map(|it| it.to_vec()))?)
            }
        };
        let names = if roots.is_some() { Names::Server } else { Names::Any };
        let settings = ClientSettings {
            alpn: vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }],
            trust: Trust { roots, names, ..Trust::default() },
            stored_sessions: if is_resuming { 8 } else { 0 },
            ..ClientSettings::default()
        };
        let wanted =
            Wanted { server: server.to_owned(), trusted: trusted.clone(), is_resuming, is_http2 };
        Ok(Self { template: settings.build()?, name: ServerName::new(server)?, wanted })
    }

    /// What begins TLS on the connections of one generator.
    pub(super) fn dialler(&self) -> Dialler {
        let clock = Clock::default();
        clock.set(
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO),
        );
        Dialler { client: self.template.client(&clock), name: self.name.clone() }
    }
}

/// Begins TLS on connections.
#[derive(Debug)]
pub(crate) struct Dialler {
    client: Client,
    name: ServerName,
}

impl Dialler {
    pub(super) fn begin(&self) -> Option<Secure> {
        let layer = self.client.connect(&self.name).ok()?;
        Some(Secure { layer, waiting: None, plain: BytesMut::new() })
    }
}

/// One connection's TLS, and the request that waits for the end of its handshake.
#[derive(Debug)]
pub(crate) struct Secure {
    layer: Layer,
    waiting: Option<Bytes>,
    plain: BytesMut,
}

/// The connection cannot be used any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) Fault);

impl Secure {
    pub(crate) fn is_established(&self) -> bool {
        self.layer.is_established()
    }

    /// Records to send before anything else.
    pub(crate) fn output(&mut self) -> Vec<u8> {
        self.layer.take_output()
    }

    /// The records of a request; none yet while the handshake lasts.
    pub(crate) fn seal(&mut self, plain: Bytes) -> Result<Bytes, Broken> {
        if !self.layer.is_established() {
            self.waiting = Some(plain);
            return Ok(Bytes::new());
        }
        let mut out = BytesMut::new();
        self.seal_into(&plain, &mut out)?;
        Ok(out.freeze())
    }

    /// Adds records to others; only once the handshake has ended.
    pub(crate) fn seal_into(&mut self, plain: &[u8], out: &mut BytesMut) -> Result<(), Broken> {
        self.layer.seal(plain, out).map_err(Broken)
    }

    /// The protocol that the server has chosen (RFC 7301).
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.layer.alpn()
    }

    /// Takes what arrived: what it says, and what is to be sent because of it.
    pub(crate) fn receive(&mut self, chunk: &[u8]) -> Result<(BytesMut, Vec<u8>), Broken> {
        let result = self.layer.receive(chunk, &mut self.plain);
        let mut out = self.layer.take_output();
        result.map_err(Broken)?;
        if self.layer.is_established()
            && let Some(request) = self.waiting.take()
        {
            out.extend_from_slice(&self.seal(request)?);
        }
        Ok((self.plain.split(), out))
    }
}
