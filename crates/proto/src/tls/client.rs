//! TLS towards servers: what is wanted, checked once, and a worker's own part of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::client::{Resumption, Tls12Resumption, UnbufferedClientConnection};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::VerifierBuilderError;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, NoKeyLog, SupportedProtocolVersion};

use crate::Address;

use super::any_name::{is_expressible, read_back, spell};
use super::fault::Fault;
use super::key_log::{KeyLines, Lines, Quiet};
use super::layer::Layer;
use super::sessions::Sessions;
use super::staple::Staple;
use super::suites::{CipherSuite, Group, SignatureAlgorithm, Version};
use super::transcript::{Choosing, Signing};
use super::verify::{Trust, Verifier};

/// What is wanted of TLS towards servers. The default speaks 1.2 and 1.3 and trusts any certificate: say which to
/// [`Trust`].
#[derive(Debug)]
pub struct ClientSettings {
    /// The oldest and the newest version to speak.
    pub versions: (Version, Version),
    /// Cipher suites of TLS 1.2, best first; all when empty. Those of 1.3 are always all.
    pub cipher_suites: Vec<CipherSuite>,
    /// Groups, best first; X25519, P-256 and P-384 when empty.
    pub groups: Vec<Group>,
    /// How handshakes are signed, by servers too, best first; in all ways when empty.
    pub signature_algorithms: Vec<SignatureAlgorithm>,
    /// Protocols to offer (RFC 7301), best first; 1 to 255 bytes each.
    pub alpn: Vec<Vec<u8>>,
    /// Whom to believe.
    pub trust: Trust,
    /// Who we are, for servers that ask.
    pub identity: Option<Identity>,
    /// Sessions that a worker keeps to resume, of each version; 0 means none.
    pub stored_sessions: usize,
    /// What is told the secrets of each connection, if anything. Envoy `key_log`.
    pub key_log: Option<Arc<dyn KeyLines>>,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            versions: (Version::Tls12, Version::Tls13),
            cipher_suites: Vec::new(),
            groups: Vec::new(),
            signature_algorithms: Vec::new(),
            alpn: Vec::new(),
            trust: Trust::default(),
            identity: None,
            stored_sessions: 8,
            key_log: None,
        }
    }
}

/// A certificate with the certificates that lead to a root, and its private key.
#[derive(Debug)]
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    /// What its authority says of it; a server's only. Envoy `ocsp_staple`.
    pub staple: Option<Staple>,
}

impl Identity {
    /// From PEM: the certificate first, then those that have signed it; and one key (PKCS #8, PKCS #1 or SEC 1).
    ///
    /// # Errors
    /// When there is no certificate or no key, or one is malformed.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, SettingsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|_| SettingsError::MalformedPem)?;
        if chain.is_empty() {
            return Err(SettingsError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| SettingsError::NoKey)?;
        Ok(Self { chain, key, staple: None })
    }

    /// Whether the key is that of the certificate; [`ClientSettings::build`] and
    /// [`ServerSettings::build`](super::ServerSettings::build) ask so, too.
    ///
    /// # Errors
    /// When it is not, or of a kind that does not sign.
    pub fn check(&self) -> Result<(), SettingsError> {
        let provider = aws_lc_rs::default_provider();
        let made = CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), &provider);
        made.map(drop).map_err(|_| SettingsError::WrongKey)
    }
}

/// What is wrong with settings. The caller's to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Something that should be PEM is not.
    #[error("malformed PEM")]
    MalformedPem,
    /// A trusted certificate cannot be read.
    #[error("malformed trusted certificate")]
    MalformedRoot,
    /// There is no trusted certificate.
    #[error("no trusted certificate")]
    NoRoots,
    /// The platform does not judge certificates.
    #[error("the platform does not judge certificates")]
    Platform,
    /// A list of revoked certificates cannot be read: it is malformed, of version 1, or about some certificates of its
    /// issuer only.
    #[error("a list of revoked certificates that cannot be read")]
    RevocationList,
    /// There is no certificate to show.
    #[error("no certificate")]
    NoCertificate,
    /// There is no private key, or it cannot be read.
    #[error("no private key that can be read")]
    NoKey,
    /// The private key is not that of the certificate, or of a kind that does not sign.
    #[error("the private key does not fit the certificate")]
    WrongKey,
    /// The oldest version is newer than the newest.
    #[error("no TLS version is left")]
    NoVersion,
    /// No cipher suite and group for a version that is spoken.
    #[error("no cipher suite is left for a version that is spoken")]
    NoCipherSuite,
    /// A protocol's name has no or more than 255 bytes.
    #[error("a protocol's name has 1 to 255 bytes")]
    Alpn,
    /// A server asks for a name of its own in a client's certificate.
    #[error("a client's certificate does not have the server's name")]
    Names,
    /// There are no keys for tickets, or one does not have 80 bytes.
    #[error("a ticket key has 80 bytes, and there is at least one")]
    TicketKey,
    /// What an authority says of a certificate cannot be read.
    #[error("malformed OCSP response")]
    MalformedStaple,
    /// An authority did not answer.
    #[error("OCSP response was unsuccessful, or has no body")]
    StapleWithoutAnswer,
    /// It speaks of several certificates.
    #[error("OCSP Response must be for one certificate only")]
    StapleForMany,
    /// It speaks of another certificate.
    #[error("OCSP response does not match its TLS certificate")]
    WrongStaple,
    /// There is none, but the certificate demands one.
    #[error("OCSP response is required for must-staple certificate")]
    MustStaple,
    /// There is none, but the policy demands one.
    #[error("Required OCSP response is missing from TLS context")]
    NoStaple,
    /// Not a name that a server can have.
    #[error("not a server's name")]
    ServerName,
}

impl SettingsError {
    pub(super) fn of_verifier(error: VerifierBuilderError) -> Self {
        match error {
            VerifierBuilderError::InvalidCrl(_) => Self::RevocationList,
            // Nothing else is said today.
            VerifierBuilderError::NoRootAnchors | _ => Self::NoRoots,
        }
    }
}

/// Settings that are sound: made once, shared by all workers.
#[derive(Clone, Debug)]
pub struct ClientTemplate {
    config: Arc<ClientConfig>,
    verifier: Arc<Verifier>,
    stored_sessions: usize,
    /// What is told the secrets of some connections only.
    partial_log: Option<Arc<dyn KeyLines>>,
}

impl ClientSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// When they contradict each other.
    pub fn build(self) -> Result<ClientTemplate, SettingsError> {
        let provider = Arc::new(provider(&self.cipher_suites, &self.groups));
        let versions = versions(self.versions)?;
        check_alpn(&self.alpn)?;
        let schemes: Vec<_> = self.signature_algorithms.iter().map(|chosen| chosen.0).collect();
        let verifier = Arc::new(Verifier::new(self.trust, &schemes, &provider)?);
        let config =
            ClientConfig::builder_with_details(Arc::clone(&provider), Clock::default().provider())
                .with_protocol_versions(&versions)
                .map_err(|_| SettingsError::NoCipherSuite)?
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(&verifier) as _);
        let mut config = match self.identity {
            None => config.with_no_client_auth(),
            Some(Identity { chain, key, .. }) => {
                let mut certified = CertifiedKey::from_der(chain, key, &provider)
                    .map_err(|_| SettingsError::WrongKey)?;
                certified.key = Choosing::among(Arc::new(Signing(certified.key)), &schemes);
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
        };
        config.alpn_protocols = self.alpn;
        let partial_log = self.key_log.clone().filter(|lines| lines.is_partial());
        if let Some(lines) = self.key_log {
            config.key_log = Arc::new(Lines(lines));
        }
        let (config, stored_sessions) = (Arc::new(config), self.stored_sessions);
        Ok(ClientTemplate { config, verifier, stored_sessions, partial_log })
    }
}

/// What does the cryptography, as far as that is chosen.
pub(super) fn provider(cipher_suites: &[CipherSuite], groups: &[Group]) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: CipherSuite::with_tls13(cipher_suites),
        kx_groups: Group::or_default(groups),
        ..aws_lc_rs::default_provider()
    }
}

pub(super) fn versions(
    (least, most): (Version, Version),
) -> Result<Vec<&'static SupportedProtocolVersion>, SettingsError> {
    let versions = Version::range(least, most);
    if versions.is_empty() { Err(SettingsError::NoVersion) } else { Ok(versions) }
}

pub(super) fn check_alpn(names: &[Vec<u8>]) -> Result<(), SettingsError> {
    let fits = names.iter().all(|name| (1..=255).contains(&name.len()));
    fits.then_some(()).ok_or(SettingsError::Alpn)
}

impl ClientTemplate {
    /// A worker's own client, which goes by the worker's clock: what it learns of servers is not shared.
    #[must_use]
    pub fn client(&self, clock: &Clock) -> Client {
        let mut config = (*self.config).clone();
        config.time_provider = clock.provider();
        config.resumption = match self.stored_sessions {
            0 => Resumption::disabled(),
            most => Resumption::store(Arc::new(Sessions::new(most)))
                .tls12_resumption(Tls12Resumption::SessionIdOrTickets),
        };
        let quiet = self.partial_log.as_ref().map(|lines| {
            let mut config = config.clone();
            config.key_log = Arc::new(NoKeyLog {});
            let (config, verifier) = (Arc::new(config), Arc::clone(&self.verifier));
            let instead = Arc::new(Client { config, verifier, quiet: None });
            Quiet { lines: Arc::clone(lines), instead }
        });
        Client { config: Arc::new(config), verifier: Arc::clone(&self.verifier), quiet }
    }
}

/// Begins TLS on connections of one worker.
#[derive(Clone, Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    verifier: Arc<Verifier>,
    quiet: Option<Quiet<Self>>,
}

impl Client {
    /// What begins TLS on a connection between these addresses.
    #[must_use]
    pub fn between(&self, local: &Address, remote: &Address) -> &Self {
        self.quiet.as_ref().and_then(|quiet| quiet.between(local, remote)).unwrap_or(self)
    }

    /// A layer for a new connection to `server`; its first bytes wait in [`Layer::take_output`].
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn connect(&self, server: &ServerName) -> Result<Layer, Fault> {
        self.connect_offering(Offer::Otherwise(&[]), server)
    }

    /// The same, which offers other protocols than the settings say, or those that they do not.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_offering(&self, offer: Offer<'_>, server: &ServerName) -> Result<Layer, Fault> {
        let alpn = match offer {
            Offer::Otherwise(names) if self.config.alpn_protocols.is_empty() => {
                names.iter().map(|name| name.to_vec()).collect()
            }
            Offer::Otherwise(_) => self.config.alpn_protocols.clone(),
            Offer::Instead(names) => names.iter().map(|name| name.to_vec()).collect(),
        };
        let (config, name) = (Arc::clone(&self.config), server.0.clone());
        let connection = UnbufferedClientConnection::new_with_alpn(config, name, alpn)
            .map_err(|error| Fault::of(&error))?;
        Layer::client(connection)
    }

    /// Whether both come of the same settings: whom to believe, and who we are.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.verifier, &other.verifier)
    }

    /// Whether the server at the other end of an established connection may be taken for `server` (RFC 9113 §9.1.1):
    /// the certificates that it has shown are judged once more as in a handshake, by that name and at this time. Never
    /// where the settings ask for no signature and no pin, or do not look at names: a certificate says nothing of who
    /// is there then.
    #[must_use]
    pub fn vouches(&self, layer: &Layer, server: &ServerName) -> bool {
        let Some(now) = self.config.time_provider.current_time() else { return false };
        self.verifier.vouches(layer.peer_chain(), &server.0, now)
    }
}

/// Protocols that a handshake offers (RFC 7301), best first; 1 to 255 bytes each.
#[derive(Clone, Copy, Debug)]
pub enum Offer<'a> {
    /// These where the settings have none.
    Otherwise(&'a [&'a [u8]]),
    /// These, whatever the settings have.
    Instead(&'a [Box<[u8]>]),
}

/// The name of a server. Sessions are kept by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName(rustls::pki_types::ServerName<'static>);

impl ServerName {
    /// A domain name, which is sent, or an IP address, which is not (RFC 6066 §3).
    ///
    /// # Errors
    /// When it is neither.
    pub fn new(name: &str) -> Result<Self, SettingsError> {
        let name = name.to_owned().try_into().map_err(|_| SettingsError::ServerName)?;
        Ok(Self(name))
    }

    /// Any text, which is sent as it is, an address too: RFC 6066 §3 knows domain names alone, but some servers go by
    /// others.
    ///
    /// # Errors
    /// When it is too long, or has a label that is empty, too long or at a hyphen.
    pub fn verbatim(name: &str) -> Result<Self, SettingsError> {
        if is_expressible(name) {
            return Self::new(name);
        }
        spell(name).map(|name| Self(name.into())).ok_or(SettingsError::ServerName)
    }

    /// The name of a host: as [`ServerName::new`] has it, or what that has not verbatim; no name where neither can be.
    #[must_use]
    pub fn of_host(name: &str) -> Option<Self> {
        Self::new(name).or_else(|_| Self::verbatim(name)).ok()
    }

    /// The name that is sent, if one is.
    pub(super) fn sent(&self) -> Option<Box<str>> {
        let rustls::pki_types::ServerName::DnsName(name) = &self.0 else { return None };
        Some(read_back(name.as_ref()).map_or_else(|| name.as_ref().into(), Into::into))
    }

    /// No name is sent.
    #[must_use]
    pub fn unnamed() -> Self {
        Self(std::net::IpAddr::from([0; 4]).into())
    }
}

/// The wall time as a worker is told it: by it certificates and tickets are judged. Until it is told once, none is
/// valid.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<Told>);

impl Clock {
    /// Sets the time since 1970, which holds until the next call.
    pub fn set(&self, since_1970: Duration) {
        self.0.0.store(since_1970.as_secs(), Ordering::Relaxed);
    }

    /// Seconds since 1970; `None` until it is told.
    pub(super) fn seconds(&self) -> Option<u64> {
        Some(self.0.current_time()?.as_secs())
    }

    pub(super) fn provider(&self) -> Arc<dyn TimeProvider> {
        Arc::clone(&self.0) as Arc<dyn TimeProvider>
    }
}

/// Seconds since 1970; 0 when it was not told.
#[derive(Debug, Default)]
struct Told(AtomicU64);

impl TimeProvider for Told {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.load(Ordering::Relaxed);
        (seconds > 0).then(|| UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
