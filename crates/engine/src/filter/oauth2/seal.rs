//! What the filter's secrets are for: signatures, and cookies that only the filter reads.
//!
//! Cookies are encrypted as Envoy 1.40 encrypts them, so that either reads the other's: AES-256-CBC with the digest of
//! the secret as its key and the vector before the text; or, behind `gcm.`, AES-256-GCM.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::cipher::{
    AES_256, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{digest, hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// The secret that cookies are signed and encrypted with.
pub struct CookieSecret {
    key: hmac::Key,
    digest: [u8; 32],
    is_empty: bool,
    encryption: Encryption,
}

/// Which ciphers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// `envoy.reloadable_features.oauth2_use_gcm_encryption`: cookies are written so. Default false.
    pub writes_gcm: bool,
    /// `envoy.reloadable_features.oauth2_legacy_cbc_decrypt_compat`: cookies without a mark are read. Default true.
    pub reads_cbc: bool,
}

/// A text that was encrypted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) text: Vec<u8>,
    /// By the cipher that has no mark.
    pub(super) is_cbc: bool,
}

impl fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieSecret").field("encryption", &self.encryption).finish_non_exhaustive()
    }
}

impl CookieSecret {
    /// Any bytes; none at all are no secret, and requests are answered with 503.
    #[must_use]
    pub fn new(secret: &[u8], encryption: Encryption) -> Self {
        let mut digest = [0; 32];
        digest.copy_from_slice(digest::digest(&digest::SHA256, secret).as_ref());
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        Self { key, digest, is_empty: secret.is_empty(), encryption }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// A signature of lines.
    pub(super) fn signature(&self, lines: &[&[u8]]) -> String {
        STANDARD.encode(self.sign(lines))
    }

    /// Whether it is one of these lines. Older versions of Envoy wrote it in hexadecimal digits before base64.
    pub(super) fn has_signed(&self, lines: &[&[u8]], signature: &[u8]) -> bool {
        let bytes = self.sign(lines);
        let digits: String = bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let known = [STANDARD.encode(bytes), STANDARD.encode(digits)];
        known.iter().any(|known| is_same(known.as_bytes(), signature))
    }

    fn sign(&self, lines: &[&[u8]]) -> hmac::Tag {
        hmac::sign(&self.key, &lines.join(&b"\n"[..]))
    }

    /// A token against requests that another site forges: random digits, and a signature of them.
    pub(super) fn nonce(&self, digits: &str) -> String {
        format!("{digits}.{}", self.signature(&[digits.as_bytes()]))
    }

    /// Whether a token is one of ours.
    pub(super) fn is_nonce(&self, token: &[u8]) -> bool {
        let Some(at) = token.iter().position(|byte| *byte == b'.') else { return false };
        let signature = self.signature(&[&token[..at]]);
        is_same(signature.as_bytes(), &token[at + 1..])
    }

    /// Encrypts a text. `None` where the system gives no random numbers.
    pub(super) fn seal(&self, text: &[u8]) -> Option<String> {
        let mut bytes = text.to_vec();
        if self.encryption.writes_gcm {
            let nonce = random::<NONCE_LEN>()?;
            let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.digest).ok()?);
            let of_this = Nonce::assume_unique_for_key(nonce);
            key.seal_in_place_append_tag(of_this, Aad::empty(), &mut bytes).ok()?;
            return Some(MARK.to_owned() + &URL_SAFE_NO_PAD.encode([&nonce[..], &bytes].concat()));
        }
        let key = UnboundCipherKey::new(&AES_256, &self.digest).ok()?;
        let key = PaddedBlockEncryptingKey::cbc_pkcs7(key).ok()?;
        let DecryptionContext::Iv128(vector) = key.encrypt(&mut bytes).ok()? else { return None };
        Some(URL_SAFE_NO_PAD.encode([&vector.as_ref()[..], &bytes].concat()))
    }

    /// Reads what [`seal`](Self::seal) has written.
    pub(super) fn open(&self, text: &[u8]) -> Option<Opened> {
        if let Some(text) = text.strip_prefix(MARK.as_bytes()) {
            let mut bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
            let (nonce, sealed) = bytes.split_first_chunk_mut::<NONCE_LEN>()?;
            let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.digest).ok()?);
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let text = key.open_in_place(nonce, Aad::empty(), sealed).ok()?.to_vec();
            // Envoy takes no empty text for one.
            return (!text.is_empty()).then_some(Opened { text, is_cbc: false });
        }
        if !self.encryption.reads_cbc {
            return None;
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (vector, sealed) = bytes.split_first_chunk_mut::<16>()?;
        let vector = DecryptionContext::Iv128(FixedLength::from(&*vector));
        let key = UnboundCipherKey::new(&AES_256, &self.digest).ok()?;
        let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
        // An empty one has no padding, which says that it is none.
        let is_whole = !sealed.is_empty() && sealed.len().is_multiple_of(16);
        let text = is_whole.then(|| key.decrypt(sealed, vector).ok()).flatten()?.to_vec();
        Some(Opened { text, is_cbc: true })
    }
}

/// Compares in a time that does not depend on where they differ.
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    verify_slices_are_equal(one, other).is_ok()
}

/// Random bytes that cannot be guessed.
pub(super) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// What a client proves with a verifier (RFC 7636 §4.2, `S256`).
pub(super) fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

/// Before a text of AES-256-GCM; base64url has no dot.
const MARK: &str = "gcm.";

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Encryption = Encryption { writes_gcm: false, reads_cbc: true };

    fn secret(encryption: Encryption) -> CookieSecret {
        CookieSecret::new(b"hmac secret", encryption)
    }

    #[test]
    fn what_envoy_has_encrypted_is_read() {
        let opened = secret(DEFAULT).open(b"4j9LBIfQQUmEMolpwiBmi3K6-JHEdQ91BYxtSnx5I_A");
        assert_eq!(opened, Some(Opened { text: b"acc".to_vec(), is_cbc: true }));
    }

    #[test]
    fn what_is_encrypted_is_read_again_and_never_alike() {
        for writes_gcm in [false, true] {
            let secret = secret(Encryption { writes_gcm, reads_cbc: true });
            for length in [0, 1, 15, 16, 17, 5000] {
                let text = vec![b'a'; length];
                let (one, other) = (secret.seal(&text).unwrap(), secret.seal(&text).unwrap());
                assert_ne!(one, other);
                assert_eq!(one.starts_with(MARK), writes_gcm);
                let opened = secret.open(one.as_bytes()).map(|opened| opened.text);
                let is_text = !(writes_gcm && text.is_empty());
                assert_eq!(opened, is_text.then_some(text));
            }
        }
    }

    #[test]
    fn what_is_changed_or_of_another_secret_is_not_read() {
        let gcm = secret(Encryption { writes_gcm: true, reads_cbc: true });
        let sealed = gcm.seal(b"a token").unwrap().into_bytes();
        for at in MARK.len()..sealed.len() {
            let mut other = sealed.clone();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(gcm.open(&other), None, "changed at {at}");
        }
        for cut in 0..sealed.len() {
            assert_eq!(gcm.open(&sealed[..cut]), None, "cut at {cut}");
        }
        assert_eq!(CookieSecret::new(b"other", DEFAULT).open(&sealed), None);
        for text in ["", "gcm.", "a", "!", &"A".repeat(22), &"A".repeat(24), &"A".repeat(60)] {
            assert_eq!(gcm.open(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn without_the_older_cipher_its_cookies_are_none() {
        let text = secret(DEFAULT).seal(b"a").unwrap();
        let strict = secret(Encryption { writes_gcm: true, reads_cbc: false });
        assert_eq!(strict.open(text.as_bytes()), None);
    }

    #[test]
    fn nonces_and_signatures_are_envoys() {
        let secret = secret(DEFAULT);
        let nonce = "16f636cd8ba02e34.DEDw+kknIXuZ0N6xMXDr4zg4NxFRNr2o/dcnRvGZFqg=";
        assert_eq!(secret.nonce("16f636cd8ba02e34"), nonce);
        assert!(secret.is_nonce(nonce.as_bytes()));
        for other in [
            "",
            ".",
            "16f636cd8ba02e34",
            "16f636cd8ba02e34.",
            "17f636cd8ba02e34.DEDw+kknIXuZ0N6xMXDr4zg4NxFRNr2o/dcnRvGZFqg=",
        ] {
            assert!(!secret.is_nonce(other.as_bytes()), "{other}");
        }
        let lines: [&[u8]; 5] = [b"127.0.0.1:19000", b"1795704389", b"acc", b"idt", b"ref"];
        assert_eq!(secret.signature(&lines), "qE4krYcdi+aBp4ydelMNdy2vBnmFkGR7sLOVLSbaJ0M=");
        assert!(secret.has_signed(&lines, b"qE4krYcdi+aBp4ydelMNdy2vBnmFkGR7sLOVLSbaJ0M="));
        assert!(!secret.has_signed(&lines[..4], b"qE4krYcdi+aBp4ydelMNdy2vBnmFkGR7sLOVLSbaJ0M="));
    }

    #[test]
    fn a_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
