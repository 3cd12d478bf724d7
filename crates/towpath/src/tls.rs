//! How `https` and `tls` are spoken: versions 1.2 and 1.3, the server's name always sent and always checked.

use std::fmt;

use towpath_proto::tls::{ClientSettings, ClientTemplate, Identity, Names, Roots, Trust};

use crate::Error;

/// Whom to believe, and who we are. By default those whom the platform believes, and nobody.
#[derive(Default)]
#[must_use = "it is used by an engine's builder"]
pub struct Tls {
    roots: Option<Vec<u8>>,
    pins: Vec<[u8; 32]>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// The platform's roots (on Linux, `SSL_CERT_FILE` and `SSL_CERT_DIR` override where they are), no pins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Believes those that these certificates have signed (PEM), and not the platform's.
    pub fn roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Beside being signed by a root, a server's certificate must have a public key with this SHA-256 of its
    /// `SubjectPublicKeyInfo`, or with that of another pin (RFC 7469 §2.4).
    pub fn pin(mut self, spki_sha256: [u8; 32]) -> Self {
        self.pins.push(spki_sha256);
        self
    }

    /// Who we are, to servers that ask: a certificate with its chain, and its key (PEM).
    pub fn identity(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((chain.into(), key.into()));
        self
    }

    /// What is needed to speak it, with these protocols offered (RFC 7301). Reads the platform's roots, if they are wanted.
    pub(crate) fn template(&self, alpn: &[&str]) -> Result<ClientTemplate, Error> {
        let sound = |error: towpath_proto::tls::SettingsError| Error::Tls(error.to_string());
        let roots = match &self.roots {
            Some(pem) => Roots::from_pem(pem).map_err(sound)?,
            None => Roots::from_der(platform_roots()).map_err(|_| {
                Error::Tls("the platform has no certificates that are trusted".to_owned())
            })?,
        };
        let identity = match &self.identity {
            Some((chain, key)) => Some(Identity::from_pem(chain, key).map_err(sound)?),
            None => None,
        };
        let trust = Trust {
            roots: Some(roots),
            names: Names::Server,
            spki_sha256: self.pins.clone(),
            ..Trust::default()
        };
        ClientSettings {
            alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
            trust,
            identity,
            ..ClientSettings::default()
        }
        .build()
        .map_err(sound)
    }
}

/// Those that cannot be read are passed over: platforms have such.
fn platform_roots() -> impl Iterator<Item = Vec<u8>> {
    let found = rustls_native_certs::load_native_certs();
    found.certs.into_iter().map(|certificate| certificate.as_ref().to_vec())
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("pins", &self.pins.len()).finish_non_exhaustive()
    }
}
