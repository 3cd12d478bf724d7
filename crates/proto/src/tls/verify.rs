//! Whether a peer's certificate is the one we want: chain, names, pins, as Envoy's `CertificateValidationContext`
//! combines them.

use std::fmt::Debug;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::crypto::hash::Hash;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved,
    RootCertStore, SignatureScheme, SupportedCipherSuite,
};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use super::any_name::{read_back, restore};
use super::certificate::{AlternativeName, Certificate};
use super::client::SettingsError;
use super::fault::{Distrust, Fault};

/// Which certificates to trust. The default trusts any, as Envoy without a `validation_context` does.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Authorities, of which one must have signed the certificate; without them its chain is not looked at. Envoy
    /// `trusted_ca`.
    pub roots: Option<Roots>,
    /// Who judges a server's chain and name in the place of `roots`, or beside them.
    pub platform: Option<Platform>,
    /// Which of the certificates that they have signed are revoked; without it, that is not looked at. Means nothing
    /// without `roots`. Envoy `crl`.
    pub revocations: Option<Revocations>,
    /// What the certificate must say.
    pub names: Names,
    /// SHA-256 of public keys (`SubjectPublicKeyInfo`) of which the certificate must have one, unless
    /// `certificate_sha256` has it. Envoy `verify_certificate_spki`.
    pub spki_sha256: Vec<[u8; 32]>,
    /// SHA-256 of certificates of which it must be one, unless `spki_sha256` has it. Envoy `verify_certificate_hash`.
    pub certificate_sha256: Vec<[u8; 32]>,
    /// Does not look at the dates of certificates and of `revocations`. A chain must have had a time when all of it was
    /// valid. Envoy `allow_expired_certificate`.
    pub ignores_dates: bool,
    /// How many certificates a chain may have above the peer's own, with the trusted one. Envoy `max_verify_depth`.
    pub max_depth: Option<u32>,
    /// Refuses a certificate whose key is not for signatures (RFC 5280 §4.2.1.3), as BoringSSL does.
    pub checks_key_usage: bool,
    /// Takes whatever certificate comes. Envoy `trust_chain_verification: ACCEPT_UNTRUSTED`.
    pub accept_untrusted: bool,
}

impl Trust {
    /// Whether every certificate is as good as another.
    fn is_indifferent(&self) -> bool {
        let pins = self.spki_sha256.len() + self.certificate_sha256.len();
        self.roots.is_none() && matches!(self.names, Names::Any) && pins == 0
    }

    /// Whether a certificate that passes shows that its server has the name it was asked for.
    fn proves_names(&self) -> bool {
        let pins = self.spki_sha256.len() + self.certificate_sha256.len();
        let is_known = self.roots.is_some() || pins > 0;
        is_known && matches!(self.names, Names::Server) && !self.accept_untrusted
    }
}

/// What names a certificate must have.
#[derive(Clone, Debug, Default)]
pub enum Names {
    /// Any.
    #[default]
    Any,
    /// That of the server we asked for, by the rules of RFC 6125. Envoy `auto_sni_san_validation`.
    Server,
    /// One that one of these matches. Envoy `match_typed_subject_alt_names`.
    Matching(Vec<Arc<dyn NameMatcher>>),
}

/// Looks at an alternative name of a certificate.
pub trait NameMatcher: Debug + Send + Sync {
    /// Whether it is wanted.
    fn matches(&self, name: &AlternativeName<'_>) -> bool;
}

/// The platform's own judgement of servers' certificates, where programs cannot read whom it believes. It is asked on
/// the thread of the handshake, and holds that up for as long as it takes.
#[derive(Clone, Debug)]
pub struct Platform(Arc<dyn ServerCertVerifier>);

impl Platform {
    /// What `make` makes for the cryptography that is spoken here.
    ///
    /// # Errors
    /// When the platform cannot be asked.
    pub fn new<V: ServerCertVerifier + 'static>(
        make: impl FnOnce(Arc<CryptoProvider>) -> Result<V, Error>,
    ) -> Result<Self, SettingsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let made = make(provider).map_err(|_| SettingsError::Platform)?;
        Ok(Self(Arc::new(made)))
    }
}

/// Certificates that are trusted, with all that they have signed.
#[derive(Clone, Debug)]
pub struct Roots {
    store: Arc<RootCertStore>,
    /// As they were given: one may be the peer's own, or that of its issuer.
    certificates: Arc<[CertificateDer<'static>]>,
}

impl Roots {
    /// Those of a PEM file; other items in it are passed over.
    ///
    /// # Errors
    /// When there is none, or one is malformed.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SettingsError> {
        let mut store = RootCertStore::empty();
        let mut certificates = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| SettingsError::MalformedPem)?;
            store.add(certificate.clone()).map_err(|_| SettingsError::MalformedRoot)?;
            certificates.push(certificate);
        }
        Self::of(store, certificates)
    }

    /// Those of the platform, as `rustls-native-certs` and others give them; malformed ones are passed over, because
    /// platforms have such.
    ///
    /// # Errors
    /// When there is none.
    pub fn from_der(given: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, SettingsError> {
        let mut store = RootCertStore::empty();
        let given = given.into_iter().map(CertificateDer::from);
        let certificates = given.filter(|given| store.add(given.clone()).is_ok()).collect();
        Self::of(store, certificates)
    }

    fn of(
        store: RootCertStore,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Result<Self, SettingsError> {
        if store.is_empty() {
            return Err(SettingsError::NoRoots);
        }
        Ok(Self { store: Arc::new(store), certificates: certificates.into() })
    }
}

/// Lists of revoked certificates (RFC 5280 §5). A certificate whose issuer has no list among them, or an old one, is
/// refused like one that is in it: of no lists at all, every certificate.
#[derive(Clone, Debug)]
pub struct Revocations {
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// Looks at the peer's own certificate only, and not at those that lead to a root. Envoy
    /// `only_verify_leaf_cert_crl`.
    pub leaf_only: bool,
}

impl Revocations {
    /// Those of PEM files; other items in them are passed over.
    ///
    /// # Errors
    /// When one is malformed.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SettingsError> {
        let lists =
            CertificateRevocationListDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|_| SettingsError::MalformedPem)?;
        Ok(Self { lists, leaf_only: false })
    }

    /// Adds those of others.
    pub fn extend(&mut self, others: Self) {
        self.lists.extend(others.lists);
    }
}

/// Judges as [`Trust`] says.
#[derive(Debug)]
pub(super) struct Verifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
    /// How handshakes may be signed, best first.
    schemes: Vec<SignatureScheme>,
    /// Follows chains with an eye on `trust.revocations`, if there are any.
    revocations: Option<Arc<WebPkiServerVerifier>>,
}

impl Verifier {
    /// `schemes` are how handshakes may be signed; in all ways when empty.
    pub(super) fn new(
        trust: Trust,
        schemes: &[SignatureScheme],
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, SettingsError> {
        let revocations = match (&trust.roots, &trust.revocations) {
            (Some(Roots { store, .. }), Some(Revocations { lists, leaf_only })) => {
                let mut builder = WebPkiServerVerifier::builder_with_provider(
                    Arc::clone(store),
                    Arc::clone(provider),
                )
                .with_crls(lists.iter().cloned());
                if !trust.ignores_dates {
                    builder = builder.enforce_revocation_expiration();
                }
                if *leaf_only {
                    builder = builder.only_check_end_entity_revocation();
                }
                Some(builder.build().map_err(SettingsError::of_verifier)?)
            }
            _ => None,
        };
        let algorithms = provider.signature_verification_algorithms;
        let schemes = match schemes {
            [] => algorithms.supported_schemes(),
            chosen => chosen.to_vec(),
        };
        Ok(Self { trust, algorithms, schemes, revocations })
    }

    /// Whether a chain that was judged for one name would do for another.
    pub(super) fn vouches(
        &self,
        chain: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        now: UnixTime,
    ) -> bool {
        let Some((leaf, intermediates)) = chain.split_first() else { return false };
        self.trust.proves_names()
            && self.verify_server_cert(leaf, intermediates, server, &[], now).is_ok()
    }

    /// Whether one of the roots has signed the certificate of a server.
    fn judge_server_chain(
        &self,
        roots: &Roots,
        (leaf, intermediates): (&CertificateDer<'_>, &[CertificateDer<'_>]),
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let Some(revocations) = &self.revocations else {
            let (parsed, anchors) = (ParsedCertificate::try_from(leaf)?, &roots.store);
            return verify_server_cert_signed_by_trust_anchor(
                &parsed,
                anchors,
                intermediates,
                now,
                self.algorithms.all,
            );
        };
        // It looks at the name, too, after the chain; names are judged elsewhere.
        let judged =
            revocations.verify_server_cert(leaf, intermediates, server_name, &[], now).map(drop);
        match judged {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(()),
            judged => judged,
        }
    }

    /// `is_signed` says whether one of the roots has signed the certificate, by way of others or not.
    fn judge(
        &self,
        chain: Chain<'_>,
        server: Option<&ServerName<'_>>,
        is_signed: impl Fn(&Roots, UnixTime) -> Result<(), Error>,
        now: UnixTime,
    ) -> Result<(), Error> {
        if let Some(roots) = &self.trust.roots {
            self.judge_chain(roots, chain, is_signed, now)?;
        }
        self.judge_names(chain.leaf, server)?;
        self.judge_pins(chain.leaf)
    }

    fn judge_chain(
        &self,
        roots: &Roots,
        chain: Chain<'_>,
        is_signed: impl Fn(&Roots, UnixTime) -> Result<(), Error>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let is_root = roots.certificates.iter().any(|root| root == chain.leaf);
        let ignores_dates = self.trust.ignores_dates;
        if is_root && self.trust.revocations.is_none() {
            return if ignores_dates { Ok(()) } else { judge_validity(chain.leaf, now) };
        }
        let most = self.trust.max_depth.filter(|_| !is_root);
        let at = |time| {
            is_signed(roots, time)?;
            // The verifier takes no lists as no wish for any.
            if self.trust.revocations.as_ref().is_some_and(|given| given.lists.is_empty()) {
                return Err(Distrust::RevocationUnknown.error());
            }
            most.map_or(Ok(()), |most| chain.judge_depth(most, roots, self.algorithms, time))
        };
        let mut judged = at(now);
        if ignores_dates && is_about_dates(&judged) {
            // Where there was a time when all of a chain was valid, it began with one of its certificates.
            let mut times = chain.beginnings().map(at);
            judged = times.find(|judged| !is_about_dates(judged)).unwrap_or(judged);
        }
        judged.map_err(|error| match Certificate::parse(chain.leaf) {
            Some(leaf)
                if leaf.is_self_issued()
                    && error == Error::InvalidCertificate(CertificateError::UnknownIssuer) =>
            {
                Distrust::SelfSigned.error()
            }
            Some(_) | None => error,
        })
    }

    /// Whether the key of a certificate may be used for what it is used for here, whether it is believed or not.
    fn judge_usage(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        if !self.trust.checks_key_usage {
            return Ok(());
        }
        let signs = Certificate::parse(leaf).is_none_or(|leaf| leaf.signs());
        signs.then_some(()).ok_or_else(|| Distrust::KeyUsage.error())
    }

    /// A peer must sign as it was told to (RFC 8446 §4.4.3).
    fn judge_scheme(&self, signed: &DigitallySignedStruct) -> Result<(), Error> {
        let is_offered = self.schemes.contains(&signed.scheme);
        let wrong = PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme;
        is_offered.then_some(()).ok_or_else(|| wrong.into())
    }

    fn judge_names(
        &self,
        leaf: &CertificateDer<'_>,
        server: Option<&ServerName<'_>>,
    ) -> Result<(), Error> {
        match &self.trust.names {
            Names::Any => Ok(()),
            Names::Server => {
                let server = server.ok_or_else(|| Distrust::Name.error())?;
                if let Some(name) = read_back(&server.to_str()) {
                    let leaf = Certificate::parse(leaf);
                    let is_for = leaf.is_some_and(|leaf| leaf.is_for(&name));
                    return is_for.then_some(()).ok_or_else(|| Distrust::Name.error());
                }
                verify_server_name(&ParsedCertificate::try_from(leaf)?, server)
            }
            Names::Matching(matchers) => {
                let leaf = Certificate::parse(leaf).ok_or_else(|| Distrust::Malformed.error())?;
                let wanted = |name: AlternativeName<'_>| {
                    matchers.iter().any(|matcher| matcher.matches(&name))
                };
                leaf.alternative_names()
                    .any(wanted)
                    .then_some(())
                    .ok_or_else(|| Distrust::Name.error())
            }
        }
    }

    fn judge_pins(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let (keys, certificates) = (&self.trust.spki_sha256, &self.trust.certificate_sha256);
        if keys.is_empty() && certificates.is_empty() {
            return Ok(());
        }
        let parsed = Certificate::parse(leaf).ok_or_else(|| Distrust::Malformed.error())?;
        let pinned = certificates.contains(&sha256(leaf))
            || keys.contains(&sha256(parsed.subject_public_key_info()));
        pinned.then_some(()).ok_or_else(|| Distrust::Pin.error())
    }
}

/// What a peer has shown.
#[derive(Clone, Copy)]
struct Chain<'a> {
    leaf: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
    usage: KeyUsage,
}

impl Chain<'_> {
    /// Whether at most so many certificates lead from its own to a root, with that.
    fn judge_depth(
        self,
        most: u32,
        roots: &Roots,
        algorithms: WebPkiSupportedAlgorithms,
        time: UnixTime,
    ) -> Result<(), Error> {
        let leaf = EndEntityCert::try_from(self.leaf).map_err(|_| Distrust::Malformed.error())?;
        let fits = |path: &VerifiedPath<'_>| {
            let above = path.intermediate_certificates().count() + 1;
            let fits = u32::try_from(above).is_ok_and(|above| above <= most);
            fits.then_some(()).ok_or(webpki::Error::MaximumPathDepthExceeded)
        };
        let (all, anchors) = (algorithms.all, &roots.store.roots);
        leaf.verify_for_usage(all, anchors, self.intermediates, time, self.usage, None, Some(&fits))
            .map(drop)
            .map_err(|_| Distrust::Depth.error())
    }

    /// When each of its certificates began to be valid.
    fn beginnings(self) -> impl Iterator<Item = UnixTime> {
        let all = iter::once(self.leaf).chain(self.intermediates).take(MAX_DATED);
        all.filter_map(|certificate| {
            let (not_before, _) = Certificate::parse(certificate)?.validity();
            Some(UnixTime::since_unix_epoch(Duration::from_secs(not_before.try_into().ok()?)))
        })
    }
}

fn is_about_dates(judged: &Result<(), Error>) -> bool {
    let fault = judged.as_ref().map_err(Fault::of);
    matches!(fault, Err(Fault::Certificate(Distrust::Expired | Distrust::NotYetValid)))
}

/// A certificate that is trusted by itself needs no signature, but must be of its time.
fn judge_validity(leaf: &[u8], now: UnixTime) -> Result<(), Error> {
    let leaf = Certificate::parse(leaf).ok_or_else(|| Distrust::Malformed.error())?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match leaf.validity() {
        (not_before, _) if now < not_before => Err(Distrust::NotYetValid.error()),
        (_, not_after) if now > not_after => Err(Distrust::Expired.error()),
        (_, _) => Ok(()),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge_usage(end_entity)?;
        if !self.trust.accept_untrusted {
            if let Some(Platform(platform)) = &self.trust.platform {
                platform.verify_server_cert(
                    end_entity,
                    intermediates,
                    server_name,
                    ocsp_response,
                    now,
                )?;
            }
            let usage = KeyUsage::server_auth();
            let chain = Chain { leaf: end_entity, intermediates, usage };
            let is_signed = |roots: &Roots, time| {
                self.judge_server_chain(roots, (end_entity, intermediates), server_name, time)
            };
            self.judge(chain, Some(server_name), is_signed, now)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge_scheme(dss)?;
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge_scheme(dss)?;
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// Judges the certificates of clients.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    verifier: Verifier,
    /// Follows chains to the roots, if there are roots.
    chains: Option<Arc<dyn ClientCertVerifier>>,
    /// The names of the roots, by which a client chooses its certificate.
    hints: Vec<DistinguishedName>,
    is_mandatory: bool,
}

impl ClientVerifier {
    /// Lets clients without a certificate pass, and tells clients the names of the roots.
    pub(super) fn new(
        trust: Trust,
        schemes: &[SignatureScheme],
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, SettingsError> {
        if matches!(trust.names, Names::Server) {
            return Err(SettingsError::Names);
        }
        let (mut chains, mut hints) = (None, Vec::new());
        if let Some(Roots { store, .. }) = &trust.roots {
            let mut builder = WebPkiClientVerifier::builder_with_provider(
                Arc::clone(store),
                Arc::clone(provider),
            );
            if let Some(Revocations { lists, leaf_only }) = &trust.revocations {
                builder = builder.with_crls(lists.iter().cloned());
                if !trust.ignores_dates {
                    builder = builder.enforce_revocation_expiration();
                }
                if *leaf_only {
                    builder = builder.only_check_end_entity_revocation();
                }
            }
            chains = Some(builder.build().map_err(SettingsError::of_verifier)?);
            hints = store.subjects();
        }
        let verifier = Verifier::new(trust, schemes, provider)?;
        Ok(Self { verifier, chains, hints, is_mandatory: false })
    }

    pub(super) fn require(&mut self) {
        self.is_mandatory = true;
    }

    pub(super) fn hide_roots(&mut self) {
        self.hints.clear();
    }

    /// The roots that chains are followed to.
    pub(super) fn roots(&self) -> &[CertificateDer<'static>] {
        self.verifier.trust.roots.as_ref().map_or(&[], |roots| &roots.certificates)
    }

    /// Of the certificate that others lead to a root, the one that has signed it, once the chain was found good: a
    /// root if that can be, as BoringSSL looks for it.
    pub(super) fn issuer<'a>(&'a self, chain: &'a [CertificateDer<'a>]) -> Option<&'a [u8]> {
        let roots: &'a [CertificateDer<'a>] = self.roots();
        let (leaf, others) = chain.split_first()?;
        // Nothing is signed that is trusted by itself, and nothing is followed where there is no root.
        if roots.is_empty() || roots.contains(leaf) {
            return None;
        }
        let read = Certificate::parse(leaf)?;
        let fits = |it: &&'a CertificateDer<'a>| {
            Certificate::parse(it).is_some_and(|it| it.may_have_issued(&read))
        };
        let fitting: Vec<_> = roots.iter().chain(others).filter(fits).collect();
        match fitting[..] {
            [only] => Some(only.as_ref()),
            // Some have the name of another.
            _ => fitting.into_iter().find(|it| self.has_signed(it, leaf, &read)).map(AsRef::as_ref),
        }
    }

    /// Whether a certificate's key has signed another one.
    fn has_signed(
        &self,
        issuer: &CertificateDer<'_>,
        leaf: &CertificateDer<'_>,
        read: &Certificate<'_>,
    ) -> bool {
        let (Ok(leaf), Ok(anchor)) =
            (EndEntityCert::try_from(leaf), webpki::anchor_from_trusted_cert(issuer))
        else {
            return false;
        };
        let begins = u64::try_from(read.validity().0).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(begins));
        let (all, usage) = (self.verifier.algorithms.all, KeyUsage::client_auth());
        leaf.verify_for_usage(all, &[anchor], &[], time, usage, None, None).is_ok()
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let trust = &self.verifier.trust;
        self.verifier.judge_usage(end_entity)?;
        if !trust.accept_untrusted {
            // A client has no name that would have been asked for, so nothing is left to judge it by.
            if trust.is_indifferent() {
                return Err(Distrust::UnknownIssuer.error());
            }
            let usage = KeyUsage::client_auth();
            let chain = Chain { leaf: end_entity, intermediates, usage };
            let is_signed = |_: &Roots, time| {
                let chains = self.chains.as_ref().ok_or_else(|| Distrust::UnknownIssuer.error())?;
                chains.verify_client_cert(end_entity, intermediates, time).map(drop)
            };
            self.verifier.judge(chain, None, is_signed, now).map_err(|error| {
                // A client is told so of both (RFC 8446 §6.2, `unknown_ca`).
                let is_unknown = matches!(
                    Fault::of(&error),
                    Fault::Certificate(Distrust::SelfSigned | Distrust::Depth)
                );
                if is_unknown { Distrust::UnknownIssuer.error() } else { error }
            })?;
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.judge_scheme(dss)?;
        let restored = restore(message);
        let message = restored.as_deref().unwrap_or(message);
        verify_tls12_signature(message, cert, dss, &self.verifier.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.judge_scheme(dss)?;
        verify_tls13_signature(message, cert, dss, &self.verifier.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.schemes.clone()
    }
}

/// Of so many certificates of a chain the dates are tried: webpki follows six that lead to a root, and a peer may send
/// others beside them.
const MAX_DATED: usize = 8;

/// SHA-256, by the cryptography library.
pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(sha256_hash().hash(bytes).as_ref());
    digest
}

fn sha256_hash() -> &'static dyn Hash {
    use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    match TLS13_AES_128_GCM_SHA256 {
        SupportedCipherSuite::Tls12(suite) => suite.common.hash_provider,
        SupportedCipherSuite::Tls13(suite) => suite.common.hash_provider,
    }
}
