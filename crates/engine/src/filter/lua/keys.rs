//! `importPublicKey()` and `verifySignature()`.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA1_ASN1, ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1,
    ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA1_ASN1,
    ECDSA_P521_SHA224_ASN1, ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1, ECDSA_P521_SHA512_ASN1,
    ParsedPublicKey, RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_2048_8192_SHA384, VerificationAlgorithm,
};

/// A key that a script may use: a `SubjectPublicKeyInfo`, and what it is for.
#[derive(Debug)]
pub(super) struct Key {
    der: Box<[u8]>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rsa,
    P256,
    P384,
    P521,
}

impl Key {
    /// Reads a key (DER).
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let kinds = [Kind::Rsa, Kind::P256, Kind::P384, Kind::P521];
        let is_one = |kind: &Kind| {
            kind.algorithms()
                .iter()
                .any(|(_, algorithm)| ParsedPublicKey::new(*algorithm, der).is_ok())
        };
        let kind = kinds.into_iter().filter(|_| is_info(der)).find(is_one)?;
        Some(Self { der: der.into(), kind })
    }

    pub(super) fn is(&self, der: &[u8]) -> bool {
        *self.der == *der
    }

    /// Whether it has signed this.
    ///
    /// # Errors
    /// Why it has not, in Envoy's words.
    pub(super) fn verify(&self, hash: &str, signature: &[u8], text: &[u8]) -> Result<(), String> {
        let name = hash.to_ascii_lowercase();
        if !HASHES.contains(&&*name) {
            return Err(format!("{hash} is not supported."));
        }
        let known = self.kind.algorithms().iter().find(|(known, _)| *known == name);
        let Some((_, algorithm)) = known else {
            return Err(format!("{hash} is not supported for this key."));
        };
        let key = ParsedPublicKey::new(*algorithm, &*self.der);
        let key = key.map_err(|_| "Failed to initialize digest verify.".to_owned())?;
        key.verify_sig(text, signature)
            .map_err(|_| "Failed to verify digest. Error code: 0".to_owned())
    }
}

impl Kind {
    /// The algorithms of its keys, by their hash functions.
    const fn algorithms(self) -> &'static [(&'static str, &'static dyn VerificationAlgorithm)] {
        match self {
            Self::Rsa => &[
                ("sha1", &RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY),
                ("sha256", &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
                ("sha384", &RSA_PKCS1_2048_8192_SHA384),
                ("sha512", &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
            ],
            Self::P256 => &[
                ("sha1", &ECDSA_P256_SHA1_ASN1),
                ("sha256", &ECDSA_P256_SHA256_ASN1),
                ("sha384", &ECDSA_P256_SHA384_ASN1),
                ("sha512", &ECDSA_P256_SHA512_ASN1),
            ],
            Self::P384 => &[
                ("sha256", &ECDSA_P384_SHA256_ASN1),
                ("sha384", &ECDSA_P384_SHA384_ASN1),
                ("sha512", &ECDSA_P384_SHA512_ASN1),
            ],
            Self::P521 => &[
                ("sha1", &ECDSA_P521_SHA1_ASN1),
                ("sha224", &ECDSA_P521_SHA224_ASN1),
                ("sha256", &ECDSA_P521_SHA256_ASN1),
                ("sha384", &ECDSA_P521_SHA384_ASN1),
                ("sha512", &ECDSA_P521_SHA512_ASN1),
            ],
        }
    }
}

/// Whether it begins as a `SubjectPublicKeyInfo` does (RFC 5280 §4.1): a sequence in a sequence.
fn is_info(der: &[u8]) -> bool {
    let content = match der {
        [SEQUENCE, length, content @ ..] if *length < LONG => content,
        [SEQUENCE, length, rest @ ..] => rest.get(usize::from(*length - LONG)..).unwrap_or(&[]),
        _ => &[],
    };
    content.first() == Some(&SEQUENCE)
}

const SEQUENCE: u8 = 0x30;
/// A length of so many octets more follows (X.690 §8.1.3.5).
const LONG: u8 = 0x80;
const HASHES: &[&str] = &["sha1", "sha224", "sha256", "sha384", "sha512"];

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::AsDer as _;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING,
        ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    };

    use super::*;

    #[test]
    fn a_key_verifies_what_it_has_signed_and_nothing_else() {
        let random = SystemRandom::new();
        for (signing, hash, others) in [
            (&ECDSA_P256_SHA256_ASN1_SIGNING, "SHA256", Kind::P256),
            (&ECDSA_P384_SHA384_ASN1_SIGNING, "sha384", Kind::P384),
            (&ECDSA_P521_SHA512_ASN1_SIGNING, "Sha512", Kind::P521),
        ] {
            let pair = EcdsaKeyPair::generate(signing).unwrap();
            let signature = pair.sign(&random, b"text").unwrap();
            let der = pair.public_key().as_der().unwrap();
            let key = Key::read(der.as_ref()).unwrap();
            assert_eq!(key.kind, others);
            assert_eq!(key.verify(hash, signature.as_ref(), b"text"), Ok(()));
            let failed = Err("Failed to verify digest. Error code: 0".to_owned());
            assert_eq!(key.verify(hash, signature.as_ref(), b"other"), failed);
            assert_eq!(key.verify(hash, b"", b"text"), failed);
            assert!(Key::read(pair.public_key().as_ref()).is_none(), "a point alone");
        }
    }

    #[test]
    fn an_rsa_key_is_one() {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), b"text", &mut signature).unwrap();
        let der = pair.public_key().as_der().unwrap();
        let key = Key::read(der.as_ref()).unwrap();
        assert_eq!(key.kind, Kind::Rsa);
        assert_eq!(key.verify("SHA256", &signature, b"text"), Ok(()));
        assert!(key.verify("SHA512", &signature, b"text").is_err());
        assert_eq!(key.verify("MD5", &signature, b"text"), Err("MD5 is not supported.".to_owned()));
        assert!(key.verify("SHA224", &signature, b"text").unwrap_err().contains("this key"));
        assert!(Key::read(pair.public_key().as_ref()).is_none(), "an RSAPublicKey");
        for end in 0..der.as_ref().len() {
            assert!(Key::read(&der.as_ref()[..end]).is_none(), "cut at {end}");
        }
    }
}
