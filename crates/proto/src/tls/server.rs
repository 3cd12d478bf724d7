//! TLS towards clients: what is wanted, checked once, and a worker's own part of it.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{NoKeyLog, ServerConfig};

use crate::Address;

use super::client::{Clock, Identity, SettingsError, check_alpn, provider, versions};
use super::fault::Fault;
use super::hello::Offer;
use super::identities::{Choice, Identities};
use super::key_log::{KeyLines, Lines, Quiet};
use super::layer::Layer;
use super::staple::StaplePolicy;
use super::suites::{CipherSuite, Group, SignatureAlgorithm, Version};
use super::tickets::{KeptSessions, Rotation, SessionIds, TicketKey, TicketKeys, Ticketer};
use super::verify::{ClientVerifier, Trust};

/// What is wanted of TLS towards clients. The default speaks 1.2 and 1.3, asks for no certificate, and lacks an
/// identity.
#[derive(Debug)]
pub struct ServerSettings {
    /// The oldest and the newest version to speak.
    pub versions: (Version, Version),
    /// Cipher suites of TLS 1.2, best first; all when empty. Those of 1.3 are always all.
    pub cipher_suites: Vec<CipherSuite>,
    /// Whether the client's order of cipher suites counts before ours. Envoy `prefer_client_ciphers`.
    pub prefers_client_ciphers: bool,
    /// Groups, best first; X25519, P-256 and P-384 when empty.
    pub groups: Vec<Group>,
    /// How handshakes are signed, by clients too, best first; in all ways when empty.
    pub signature_algorithms: Vec<SignatureAlgorithm>,
    /// Protocols (RFC 7301), best first; 1 to 255 bytes each. The first that a client offers is chosen. A client that
    /// offers others alone gets none, and is served all the same.
    pub alpn: Vec<Vec<u8>>,
    /// Certificates, at least one. A client gets the first that has the name it asks for, or else a wildcard for it, or
    /// else the very first; ECDSA before RSA among equals, if it can verify that.
    pub identities: Vec<Identity>,
    /// Whether clients are shown what an authority says of a certificate ([`Identity::staple`]).
    pub staple_policy: StaplePolicy,
    /// Looks for a certificate that the client can verify among all, where none has the name that it asks for. Envoy
    /// `full_scan_certs_on_sni_mismatch`.
    pub scans_all_identities: bool,
    /// What certificate a client must have; it is not asked for one when this is `None`. [`Names::Server`] is refused,
    /// and a trust that tells nothing apart believes no client.
    ///
    /// [`Names::Server`]: super::Names::Server
    pub trust: Option<Trust>,
    /// Whether clients without a certificate are refused. Means nothing without `trust`.
    pub requires_certificate: bool,
    /// Does not tell clients which roots `trust` has. Envoy `suppress_client_ca_list`.
    pub hides_roots: bool,
    /// Sessions that clients keep for themselves.
    pub tickets: Tickets,
    /// Sessions by id that are kept for clients of TLS 1.2, by all workers together; 0 means none. Each has about
    /// 200 bytes, and the client's certificates: at most 16 KiB.
    pub stored_sessions: usize,
    /// How long sessions can be resumed, in whole seconds. Clients are told at most seven days.
    pub session_lifetime: Duration,
    /// What is told the secrets of each connection, if anything. Envoy `key_log`.
    pub key_log: Option<Arc<dyn KeyLines>>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            versions: (Version::Tls12, Version::Tls13),
            cipher_suites: Vec::new(),
            prefers_client_ciphers: false,
            groups: Vec::new(),
            signature_algorithms: Vec::new(),
            alpn: Vec::new(),
            identities: Vec::new(),
            staple_policy: StaplePolicy::default(),
            scans_all_identities: false,
            trust: None,
            requires_certificate: false,
            hides_roots: false,
            tickets: Tickets::Own,
            stored_sessions: 1024,
            session_lifetime: Duration::from_secs(12 * 60 * 60),
            key_log: None,
        }
    }
}

/// Which keys tickets are encrypted with.
#[derive(Debug)]
pub enum Tickets {
    /// None: no tickets, and so no resumption in TLS 1.3.
    None,
    /// Keys of our own, new ones after each lifetime of sessions.
    Own,
    /// These, at least one: the first encrypts, all decrypt. Envoy `session_ticket_keys`.
    Given(Vec<TicketKey>),
}

/// Settings that are sound: made once, shared by all workers.
#[derive(Clone, Debug)]
pub struct ServerTemplate {
    config: Arc<ServerConfig>,
    identities: Arc<Identities>,
    clients: Arc<dyn ClientCertVerifier>,
    /// What would judge them, where all are taken.
    strict: Option<Arc<ClientVerifier>>,
    /// What finds the issuers of their certificates.
    judge: Option<Arc<ClientVerifier>>,
    keys: Option<Arc<TicketKeys>>,
    sessions: Arc<KeptSessions>,
    stored_sessions: usize,
    /// In seconds.
    session_lifetime: u32,
    /// What is told the secrets of some connections only.
    partial_log: Option<Arc<dyn KeyLines>>,
}

impl ServerSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// When they contradict each other, or something is missing.
    pub fn build(self) -> Result<ServerTemplate, SettingsError> {
        let provider = Arc::new(provider(&self.cipher_suites, &self.groups));
        let versions = versions(self.versions)?;
        check_alpn(&self.alpn)?;
        let schemes: Vec<_> = self.signature_algorithms.iter().map(|chosen| chosen.0).collect();
        let (own, policy) = (self.identities, self.staple_policy);
        let mut identities = Identities::new(own, policy, &schemes, &provider)?;
        if self.scans_all_identities {
            identities.scan_all();
        }
        let identities = Arc::new(identities);
        let (mut strict, mut judge) = (None, None);
        let clients: Arc<dyn ClientCertVerifier> = match self.trust {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(trust) => {
                if trust.accept_untrusted {
                    let trust = Trust { accept_untrusted: false, ..trust.clone() };
                    strict = Some(Arc::new(ClientVerifier::new(trust, &schemes, &provider)?));
                }
                let mut verifier = ClientVerifier::new(trust, &schemes, &provider)?;
                if self.requires_certificate {
                    verifier.require();
                }
                if self.hides_roots {
                    verifier.hide_roots();
                }
                let verifier = Arc::new(verifier);
                judge = Some(Arc::clone(&verifier));
                verifier
            }
        };
        let mut config = ServerConfig::builder_with_details(provider, Clock::default().provider())
            .with_protocol_versions(&versions)
            .map_err(|_| SettingsError::NoCipherSuite)?
            .with_client_cert_verifier(Arc::clone(&clients))
            .with_cert_resolver(
                Choice::default().telling(Arc::clone(&identities), Clock::default()),
            );
        config.ignore_client_order = !self.prefers_client_ciphers;
        config.alpn_protocols = self.alpn;
        let partial_log = self.key_log.clone().filter(|lines| lines.is_partial());
        if let Some(lines) = self.key_log {
            config.key_log = Arc::new(Lines(lines));
        }
        let keys = match self.tickets {
            Tickets::None => None,
            Tickets::Own => Some(TicketKeys::Rotated(RwLock::new(Rotation::default()))),
            Tickets::Given(keys) if keys.is_empty() => return Err(SettingsError::TicketKey),
            Tickets::Given(keys) => Some(TicketKeys::Given(keys)),
        };
        if keys.is_none() {
            config.send_tls13_tickets = 0;
        }
        let lifetime = self.session_lifetime.as_secs();
        Ok(ServerTemplate {
            config: Arc::new(config),
            identities,
            clients,
            strict,
            judge,
            keys: keys.map(Arc::new),
            sessions: Arc::default(),
            stored_sessions: self.stored_sessions,
            session_lifetime: u32::try_from(lifetime).unwrap_or(u32::MAX),
            partial_log,
        })
    }
}

impl ServerTemplate {
    /// A worker's own server, which goes by the worker's clock. Sessions are those of all workers.
    #[must_use]
    pub fn server(&self, clock: &Clock) -> Server {
        let mut config = (*self.config).clone();
        config.time_provider = clock.provider();
        let choice = Choice::default();
        config.cert_resolver = choice.telling(Arc::clone(&self.identities), clock.clone());
        let lifetime = self.session_lifetime;
        if let Some(keys) = &self.keys {
            let (keys, clock) = (Arc::clone(keys), clock.clone());
            config.ticketer = Arc::new(Ticketer { keys, clock, lifetime });
        }
        config.session_storage = match self.stored_sessions {
            0 => Arc::new(NoServerSessionStorage {}),
            most => {
                let (kept, clock) = (Arc::clone(&self.sessions), clock.clone());
                Arc::new(SessionIds { kept, most, clock, lifetime })
            }
        };
        let (clients, strict) = (Arc::clone(&self.clients), self.strict.clone());
        let guard = Guard { clients, strict, judge: self.judge.clone(), clock: clock.clone() };
        let quiet = self.partial_log.as_ref().map(|lines| {
            let mut config = config.clone();
            config.key_log = Arc::new(NoKeyLog {});
            let instead = Server::new(config, guard.clone(), choice.clone());
            Quiet { lines: Arc::clone(lines), instead: Arc::new(instead) }
        });
        Server { quiet, ..Server::new(config, guard, choice) }
    }
}

/// Begins TLS on connections that one worker has accepted.
#[derive(Clone, Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    /// For clients that offer protocols of which we speak none: rustls would refuse them (RFC 7301 §3.2).
    without_alpn: Arc<ServerConfig>,
    guard: Guard,
    choice: Choice,
    quiet: Option<Quiet<Self>>,
}

/// Judges the certificates of clients by a worker's clock.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    clients: Arc<dyn ClientCertVerifier>,
    /// What would judge them, where all are taken.
    strict: Option<Arc<ClientVerifier>>,
    /// What finds the issuers of their certificates.
    judge: Option<Arc<ClientVerifier>>,
    clock: Clock,
}

impl Guard {
    pub(super) fn judge(&self, chain: &[CertificateDer<'_>]) -> Result<(), Fault> {
        self.judge_by(&*self.clients, chain)
    }

    /// Who has issued the first certificate of a chain that was found good (DER).
    pub(super) fn issuer<'a>(&'a self, chain: &'a [CertificateDer<'a>]) -> Option<&'a [u8]> {
        self.judge.as_ref()?.issuer(chain)
    }

    /// Whether a chain that was taken is a good one.
    pub(super) fn approves(&self, chain: &[CertificateDer<'_>]) -> bool {
        let strict = self.strict.as_deref();
        strict.is_none_or(|strict| self.judge_by(strict, chain).is_ok())
    }

    fn judge_by(
        &self,
        verifier: &dyn ClientCertVerifier,
        chain: &[CertificateDer<'_>],
    ) -> Result<(), Fault> {
        let Some((leaf, intermediates)) = chain.split_first() else { return Ok(()) };
        let now = self.clock.provider().current_time().ok_or(Fault::Time)?;
        let judged = verifier.verify_client_cert(leaf, intermediates, now);
        judged.map(drop).map_err(|error| Fault::of(&error))
    }
}

impl Server {
    fn new(config: ServerConfig, guard: Guard, choice: Choice) -> Self {
        let mut without_alpn = config.clone();
        without_alpn.alpn_protocols.clear();
        let (config, without_alpn) = (Arc::new(config), Arc::new(without_alpn));
        Self { config, without_alpn, guard, choice, quiet: None }
    }

    /// What begins TLS on a connection between these addresses.
    #[must_use]
    pub fn between(&self, local: &Address, remote: &Address) -> &Self {
        self.quiet.as_ref().and_then(|quiet| quiet.between(local, remote)).unwrap_or(self)
    }

    /// A layer for a new connection, which waits for the client's first bytes.
    #[must_use]
    pub fn accept(&self) -> Layer {
        Layer::server(Self { quiet: None, ..self.clone() })
    }

    pub(super) const fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(super) const fn choice(&self) -> &Choice {
        &self.choice
    }

    pub(super) fn config_for(&self, offer: &Offer) -> Arc<ServerConfig> {
        let fits = offer.has_any_of(&self.config.alpn_protocols);
        Arc::clone(if fits { &self.config } else { &self.without_alpn })
    }
}
