//! Versions, cipher suites and groups by the names that OpenSSL and Envoy give them.

use aws_lc_rs::agreement::{self, ECDH_P521, EphemeralPrivateKey, UnparsedPublicKey};
use aws_lc_rs::rand::SystemRandom;
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{ActiveKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{
    Error, NamedGroup, PeerMisbehaved, ProtocolVersion, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
};

use super::transcript::SUITES;

/// A version of TLS. Older ones are not spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl Version {
    /// As OpenSSL and Envoy's `%UPSTREAM_TLS_VERSION%` write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        }
    }

    pub(super) fn of(version: ProtocolVersion) -> Option<Self> {
        let all = [Self::Tls12, Self::Tls13];
        all.into_iter().find(|known| known.supported().version == version)
    }

    const fn supported(self) -> &'static SupportedProtocolVersion {
        match self {
            Self::Tls12 => &rustls::version::TLS12,
            Self::Tls13 => &rustls::version::TLS13,
        }
    }

    /// The versions from `least` to `most`, newest first.
    pub(super) fn range(least: Self, most: Self) -> Vec<&'static SupportedProtocolVersion> {
        let wanted = [Self::Tls13, Self::Tls12].into_iter();
        wanted.filter(|version| (least..=most).contains(version)).map(Self::supported).collect()
    }
}

/// A cipher suite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CipherSuite(SupportedCipherSuite);

impl Eq for CipherSuite {}

impl CipherSuite {
    /// The suite with this OpenSSL name, such as `ECDHE-RSA-AES128-GCM-SHA256`, if it is spoken here.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        SUITES.iter().find(|(known, _)| *known == name).map(|(_, suite)| Self(*suite))
    }

    /// Its OpenSSL name, as Envoy's `%UPSTREAM_TLS_CIPHER%` writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        SUITES.iter().find(|(_, suite)| *suite == self.0).map_or("", |(name, _)| name)
    }

    /// Its number in IANA's registry of TLS cipher suites.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0.suite().into()
    }

    pub(super) const fn of(suite: SupportedCipherSuite) -> Self {
        Self(suite)
    }

    /// These; all when these are none, and all of TLS 1.3 when there is none of it among them.
    pub(super) fn with_tls13(chosen: &[Self]) -> Vec<SupportedCipherSuite> {
        let suites = SUITES.iter().map(|(_, suite)| *suite);
        if chosen.is_empty() {
            return suites.collect();
        }
        let is_chosen = chosen.iter().any(|suite| suite.0.tls13().is_some());
        let tls13 = suites.filter(|suite| suite.tls13().is_some() && !is_chosen);
        tls13.chain(chosen.iter().map(|suite| suite.0)).collect()
    }
}

/// How a handshake is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureAlgorithm(pub(super) SignatureScheme);

impl SignatureAlgorithm {
    /// The algorithm that RFC 8446 §4.2.3 calls so, such as `rsa_pss_rsae_sha256`, if it is spoken here.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        SIGNATURES.iter().find(|(known, _)| *known == name).map(|(_, scheme)| Self(*scheme))
    }
}

const SIGNATURES: &[(&str, SignatureScheme)] = &[
    ("ecdsa_secp256r1_sha256", SignatureScheme::ECDSA_NISTP256_SHA256),
    ("ecdsa_secp384r1_sha384", SignatureScheme::ECDSA_NISTP384_SHA384),
    ("ecdsa_secp521r1_sha512", SignatureScheme::ECDSA_NISTP521_SHA512),
    ("ed25519", SignatureScheme::ED25519),
    ("rsa_pss_rsae_sha256", SignatureScheme::RSA_PSS_SHA256),
    ("rsa_pss_rsae_sha384", SignatureScheme::RSA_PSS_SHA384),
    ("rsa_pss_rsae_sha512", SignatureScheme::RSA_PSS_SHA512),
    ("rsa_pkcs1_sha256", SignatureScheme::RSA_PKCS1_SHA256),
    ("rsa_pkcs1_sha384", SignatureScheme::RSA_PKCS1_SHA384),
    ("rsa_pkcs1_sha512", SignatureScheme::RSA_PKCS1_SHA512),
];

/// A group for the exchange of keys.
#[derive(Clone, Copy, Debug)]
pub struct Group(&'static dyn SupportedKxGroup);

impl Group {
    /// The group with this name, such as `X25519` or `P-256`, if it is spoken here.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        GROUPS.iter().find(|(known, _)| *known == name).map(|(_, group)| Self(*group))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = GROUPS.iter().find(|(_, group)| group.name() == self.0.name());
        found.map_or("", |(name, _)| name)
    }

    pub(super) const fn of(group: &'static dyn SupportedKxGroup) -> Self {
        Self(group)
    }

    /// These; without any, all that are offered unless asked otherwise.
    pub(super) fn or_default(chosen: &[Self]) -> Vec<&'static dyn SupportedKxGroup> {
        if chosen.is_empty() {
            return vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
        }
        chosen.iter().map(|group| group.0).collect()
    }
}

const GROUPS: &[(&str, &dyn SupportedKxGroup)] = &[
    ("X25519", kx_group::X25519),
    ("P-256", kx_group::SECP256R1),
    ("prime256v1", kx_group::SECP256R1),
    ("P-384", kx_group::SECP384R1),
    ("secp384r1", kx_group::SECP384R1),
    ("P-521", &P521),
    ("secp521r1", &P521),
    ("X25519MLKEM768", kx_group::X25519MLKEM768),
];

/// Ephemeral ECDH on secp521r1 (RFC 8446 §4.2.8.2), which rustls does not bring along.
#[derive(Debug)]
struct P521;

impl SupportedKxGroup for P521 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let private = EphemeralPrivateKey::generate(&ECDH_P521, &SystemRandom::new())
            .map_err(|_| GetRandomFailed)?;
        let public = private.compute_public_key().map_err(|_| GetRandomFailed)?;
        Ok(Box::new(P521Exchange { private, public }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

struct P521Exchange {
    private: EphemeralPrivateKey,
    public: agreement::PublicKey,
}

impl ActiveKeyExchange for P521Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        // RFC 8446 §4.2.8.2: the uncompressed form is the only one; aws-lc-rs would take others.
        if peer.first() != Some(&4) {
            return Err(PeerMisbehaved::InvalidKeyShare.into());
        }
        let peer = UnparsedPublicKey::new(&ECDH_P521, peer);
        let wrong = Error::from(PeerMisbehaved::InvalidKeyShare);
        agreement::agree_ephemeral(self.private, peer, wrong, |secret| {
            Ok(SharedSecret::from(secret))
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}
