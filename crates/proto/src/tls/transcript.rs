//! What a handshake hashes and signs of its messages: server names as the peer has them, which rustls has in another
//! spelling (`any_name.rs`).

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::cipher_suite as suite;
use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::sign::{Signer, SigningKey};
use rustls::{
    CipherSuiteCommon, Error, SignatureAlgorithm, SignatureScheme, SupportedCipherSuite,
    Tls12CipherSuite, Tls13CipherSuite,
};

use super::any_name::restore;

/// A hash of handshake messages.
struct Transcript(&'static dyn Hash);

impl Hash for Transcript {
    fn start(&self) -> Box<dyn Context> {
        Box::new(Running(self.0.start()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.0.hash(data)
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.0.algorithm()
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct Running(Box<dyn Context>);

impl Context for Running {
    fn fork_finish(&self) -> Output {
        self.0.fork_finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Self(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    /// rustls adds whole messages, or a `ClientHello` without its binders.
    fn update(&mut self, messages: &[u8]) {
        match restore(messages) {
            None => self.0.update(messages),
            Some(restored) => self.0.update(&restored),
        }
    }
}

/// A key that signs handshake messages, as TLS 1.2 does; 1.3 signs a hash of them (RFC 8446 §4.4.3).
#[derive(Debug)]
pub(super) struct Signing(pub(super) Arc<dyn SigningKey>);

impl SigningKey for Signing {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(Signs(self.0.choose_scheme(offered)?)))
    }

    fn public_key(&self) -> Option<rustls::pki_types::SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

/// A key that signs by these algorithms alone, best first.
#[derive(Debug)]
pub(super) struct Choosing {
    pub(super) key: Arc<dyn SigningKey>,
    pub(super) schemes: Vec<SignatureScheme>,
}

impl Choosing {
    /// The key as it is where none are chosen.
    pub(super) fn among(
        key: Arc<dyn SigningKey>,
        chosen: &[SignatureScheme],
    ) -> Arc<dyn SigningKey> {
        match chosen {
            [] => key,
            chosen => Arc::new(Self { key, schemes: chosen.to_vec() }),
        }
    }
}

impl SigningKey for Choosing {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let wanted = self.schemes.iter().filter(|scheme| offered.contains(scheme));
        wanted.copied().find_map(|scheme| self.key.choose_scheme(&[scheme]))
    }

    fn public_key(&self) -> Option<rustls::pki_types::SubjectPublicKeyInfoDer<'_>> {
        self.key.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

#[derive(Debug)]
struct Signs(Box<dyn Signer>);

impl Signer for Signs {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match restore(message) {
            None => self.0.sign(message),
            Some(restored) => self.0.sign(&restored),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}

/// A cipher suite of rustls's that hashes so.
macro_rules! restoring {
    ($name:ident, $version:ident, $kind:ident) => {{
        static OF_RUSTLS: &$kind = match suite::$name {
            SupportedCipherSuite::$version(suite) => suite,
            _ => panic!("a suite of another version"),
        };
        static HASH: Transcript = Transcript(OF_RUSTLS.common.hash_provider);
        static SUITE: $kind = $kind {
            common: CipherSuiteCommon { hash_provider: &HASH, ..OF_RUSTLS.common },
            ..*OF_RUSTLS
        };
        SupportedCipherSuite::$version(&SUITE)
    }};
    ($name:ident) => {
        restoring!($name, Tls12, Tls12CipherSuite)
    };
}

/// What is spoken, in the order in which it is offered: that of BoringSSL and Envoy, cheapest first.
pub(super) static SUITES: &[(&str, SupportedCipherSuite)] = &[
    ("TLS_AES_128_GCM_SHA256", restoring!(TLS13_AES_128_GCM_SHA256, Tls13, Tls13CipherSuite)),
    ("TLS_AES_256_GCM_SHA384", restoring!(TLS13_AES_256_GCM_SHA384, Tls13, Tls13CipherSuite)),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        restoring!(TLS13_CHACHA20_POLY1305_SHA256, Tls13, Tls13CipherSuite),
    ),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", restoring!(TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", restoring!(TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)),
    ("ECDHE-RSA-AES128-GCM-SHA256", restoring!(TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)),
    ("ECDHE-RSA-CHACHA20-POLY1305", restoring!(TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256)),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", restoring!(TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384)),
    ("ECDHE-RSA-AES256-GCM-SHA384", restoring!(TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384)),
];
