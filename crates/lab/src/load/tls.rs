//! TLS on the generator's connections.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use towpath_proto::tls::{
    Client, ClientSettings, ClientTemplate, Clock, Fault, Layer, Names, Roots, ServerName,
    SettingsError, Trust,
};

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
}

impl TryFrom<Wanted> for Tls {
    type Error = SettingsError;

    fn try_from(wanted: Wanted) -> Result<Self, SettingsError> {
        Self::new(&wanted.server, &wanted.trusted, wanted.is_resuming)
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
    /// TLS towards the server of this name; sessions are resumed only if that is wanted.
    ///
    /// # Errors
    /// When the name is none, or no root can be read.
    pub fn new(server: &str, trusted: &Trusted, is_resuming: bool) -> Result<Self, SettingsError> {
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
            alpn: vec![b"http/1.1".to_vec()],
            trust: Trust { roots, names, ..Trust::default() },
            stored_sessions: if is_resuming { 8 } else { 0 },
            ..ClientSettings::default()
        };
        let wanted = Wanted { server: server.to_owned(), trusted: trusted.clone(), is_resuming };
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
        self.layer.seal(&plain, &mut out).map_err(Broken)?;
        Ok(out.freeze())
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
