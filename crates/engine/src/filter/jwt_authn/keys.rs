//! JSON Web Key Sets (RFC 7517), and signatures that their keys verify.
//!
//! A key verifies only what its own type can have signed: a public key is never taken for a secret (RFC 8725 §3.1), and
//! a curve goes with its hash function alone (RFC 7518 §3.4). RSA keys have 2,048 to 8,192 bits (RFC 7518 §3.3).

use std::borrow::Cow;
use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
};
use towpath_proto::tls::Certificate;

use super::status::Status;
use super::token::{Algorithm, Digest, Token, decoded};
use crate::stream_info::{Struct, Value, read_json};

/// The keys of an issuer.
#[derive(Debug, Default)]
pub struct Keys(Vec<Key>);

/// One key.
#[derive(Debug)]
struct Key {
    /// `kid`; empty means any.
    id: Box<str>,
    /// `alg`; empty means all that its type has.
    algorithm: Box<str>,
    material: Material,
}

enum Material {
    /// A `SubjectPublicKeyInfo` or `RSAPublicKey`, DER.
    Rsa(Box<[u8]>),
    /// A point, uncompressed.
    Ec(Curve, Box<[u8]>),
    Ed25519(Box<[u8]>),
    Secret(Box<[u8]>),
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa(_) => "Rsa",
            Self::Ec(_, _) => "Ec",
            Self::Ed25519(_) => "Ed25519",
            Self::Secret(_) => "Secret",
        })
    }
}

/// A curve of RFC 7518 §6.2.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    /// The algorithm that goes with it, and how long a coordinate is.
    const fn of_it(self) -> (Digest, &'static EcdsaVerificationAlgorithm, usize) {
        match self {
            Self::P256 => (Digest::Sha256, &ECDSA_P256_SHA256_FIXED, 32),
            Self::P384 => (Digest::Sha384, &ECDSA_P384_SHA384_FIXED, 48),
            Self::P521 => (Digest::Sha512, &ECDSA_P521_SHA512_FIXED, 66),
        }
    }
}

impl Keys {
    /// Reads a set. Keys that cannot be used are left out, as long as one can.
    ///
    /// # Errors
    /// What is wrong with it, in Envoy's words.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let set = read_json(&escaped(text)).ok_or("Jwks is an invalid JSON")?;
        let list = match set.get("keys") {
            Some(Value::List(list)) => list,
            None if is_of_certificates(&set) => return of_certificates(&set),
            None => return Err("Jwks does not have [keys] field"),
            Some(
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Struct(_),
            ) => return Err("[keys] in Jwks is not an array"),
        };
        if list.len() > MOST_KEYS {
            return Err("Jwks has more than 1000 keys");
        }
        let (mut keys, mut first) = (Vec::new(), None);
        for key in list {
            match read_key(key) {
                Ok(key) => keys.push(key),
                Err(why) => first = first.or(Some(why)),
            }
        }
        match keys.is_empty() {
            true => Err(first.unwrap_or("Jwks doesn't have any valid public key")),
            false => Ok(Self(keys)),
        }
    }

    /// Whether a key of these has signed a token.
    pub(super) fn verify(&self, token: &Token) -> Result<(), Status> {
        if self.0.is_empty() {
            return Err(Status::NoValidKeys);
        }
        let mut why = Status::NoSuchKey;
        for key in self.0.iter().filter(|key| key.fits(token)) {
            match key.material.verify(token) {
                Ok(()) => return Ok(()),
                Err(Status::Ed25519Length) => return Err(Status::Ed25519Length),
                Err(failed) => why = failed,
            }
        }
        Err(why)
    }
}

impl Key {
    /// Whether it may have signed a token.
    fn fits(&self, token: &Token) -> bool {
        (self.id.is_empty() || token.key_id.is_empty() || self.id == token.key_id)
            && (self.algorithm.is_empty() || *self.algorithm == *token.algorithm.name())
    }
}

impl Material {
    fn verify(&self, token: &Token) -> Result<(), Status> {
        let Token { signed, signature, .. } = token;
        let verified = match (self, token.algorithm) {
            (Self::Rsa(key), Algorithm::Rs(digest)) => {
                UnparsedPublicKey::new(pkcs1(digest), key).verify(signed, signature)
            }
            (Self::Rsa(key), Algorithm::Ps(digest)) => {
                UnparsedPublicKey::new(pss(digest), key).verify(signed, signature)
            }
            (Self::Ec(curve, key), Algorithm::Es(digest)) if curve.of_it().0 == digest => {
                UnparsedPublicKey::new(curve.of_it().1, key).verify(signed, signature)
            }
            (Self::Ed25519(_), Algorithm::EdDsa) if signature.len() != ED25519_SIGNATURE => {
                return Err(Status::Ed25519Length);
            }
            (Self::Ed25519(key), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&ED25519, key).verify(signed, signature)
            }
            (Self::Secret(secret), Algorithm::Hs(digest)) => {
                hmac::verify(&hmac::Key::new(hash(digest), secret), signed, signature)
            }
            (Self::Rsa(_) | Self::Ec(_, _) | Self::Ed25519(_) | Self::Secret(_), _) => {
                return Err(Status::VerificationFails);
            }
        };
        verified.map_err(|_| Status::VerificationFails)
    }
}

const fn pkcs1(digest: Digest) -> &'static RsaParameters {
    match digest {
        Digest::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        Digest::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        Digest::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
    }
}

const fn pss(digest: Digest) -> &'static RsaParameters {
    match digest {
        Digest::Sha256 => &RSA_PSS_2048_8192_SHA256,
        Digest::Sha384 => &RSA_PSS_2048_8192_SHA384,
        Digest::Sha512 => &RSA_PSS_2048_8192_SHA512,
    }
}

const fn hash(digest: Digest) -> hmac::Algorithm {
    match digest {
        Digest::Sha256 => hmac::HMAC_SHA256,
        Digest::Sha384 => hmac::HMAC_SHA384,
        Digest::Sha512 => hmac::HMAC_SHA512,
    }
}

fn read_key(key: &Value) -> Result<Key, &'static str> {
    let Value::Struct(key) = key else { return Err("[kty] is missing in [keys]") };
    let kind = field(key, "kty", "[kty] is missing in [keys]", "[kty] is bad in [keys]")?;
    let algorithm = text(key, "alg");
    let material = match kind {
        "RSA" => read_rsa(key, algorithm)?,
        "EC" => read_ec(key, algorithm)?,
        "oct" => read_secret(key, algorithm)?,
        "OKP" => read_ed25519(key, algorithm)?,
        _ => return Err("[kty] is not supported in [keys]"),
    };
    Ok(Key { id: text(key, "kid").into(), algorithm: algorithm.into(), material })
}

fn read_rsa(key: &Struct, algorithm: &str) -> Result<Material, &'static str> {
    if !(algorithm.is_empty() || algorithm.starts_with("RS") || algorithm.starts_with("PS")) {
        return Err("[alg] is not started with [RS] or [PS] for an RSA key");
    }
    let (missing, bad) =
        ("[n] field is missing for a RSA key", "[n] field is not string for a RSA key");
    let modulus = field(key, "n", missing, bad)?;
    let (missing, bad) =
        ("[e] field is missing for a RSA key", "[e] field is not string for a RSA key");
    let exponent = field(key, "e", missing, bad)?;
    let why = "Jwks RSA [n] or [e] field is missing or has a parse error";
    let (Some(n), Some(e)) = (number(modulus), number(exponent)) else { return Err(why) };
    // As in Envoy.
    if e != [3] && e != [1, 0, 1] {
        return Err(why);
    }
    if !RSA_BYTES.contains(&n.len()) {
        return Err("Jwks RSA [n] has fewer than 2048 or more than 8192 bits");
    }
    let components = RsaPublicKeyComponents { n, e };
    let parsed = components.to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256);
    let parsed = parsed.map_err(|_| why)?;
    Ok(Material::Rsa(parsed.as_ref().into()))
}

fn read_ec(key: &Struct, algorithm: &str) -> Result<Material, &'static str> {
    if !(algorithm.is_empty() || algorithm.starts_with("ES")) {
        return Err("[alg] is not started with [ES] for an EC key");
    }
    let name = match key.get("crv") {
        None => "",
        Some(Value::String(name)) => name,
        Some(_) => return Err("[crv] field is not string for an EC key"),
    };
    let curve = match (algorithm, name) {
        ("" | "ES256", "" | "P-256") => Curve::P256,
        ("ES384", "" | "P-384") | ("", "P-384") => Curve::P384,
        ("ES512", "" | "P-521") | ("", "P-521") => Curve::P521,
        ("", _) | (_, "") => return Err("[crv] or [alg] field is not supported for an EC key"),
        _ => return Err("[crv] field specified is not compatible with [alg] for an EC key"),
    };
    let (missing, bad) =
        ("[x] field is missing for an EC key", "[x] field is not string for an EC key");
    let x = field(key, "x", missing, bad)?;
    let (missing, bad) =
        ("[y] field is missing for an EC key", "[y] field is not string for an EC key");
    let y = field(key, "y", missing, bad)?;
    let (Some(x), Some(y)) = (number(x), number(y)) else {
        return Err("Jwks EC [x] or [y] field is an invalid Base64.");
    };
    let (_, algorithm, length) = curve.of_it();
    let why = "Jwks EC [x] and [y] fields have a parse error.";
    let mut point = vec![4];
    for coordinate in [x, y] {
        let padding = length.checked_sub(coordinate.len()).ok_or(why)?;
        point.extend(std::iter::repeat_n(0, padding));
        point.extend(coordinate);
    }
    UnparsedPublicKey::new(algorithm, &point).parse().map_err(|_| why)?;
    Ok(Material::Ec(curve, point.into()))
}

fn read_secret(key: &Struct, algorithm: &str) -> Result<Material, &'static str> {
    if !matches!(algorithm, "" | "HS256" | "HS384" | "HS512") {
        return Err("[alg] does not start with [HS] for an HMAC key");
    }
    let (missing, bad) =
        ("[k] field is missing for an HMAC key", "[k] field is not string for an HMAC key");
    let secret = unspaced(field(key, "k", missing, bad)?.as_bytes());
    let secret = secret.filter(|secret| !secret.is_empty());
    Ok(Material::Secret(secret.ok_or("Jwks Oct key is an invalid Base64")?.into()))
}

fn read_ed25519(key: &Struct, algorithm: &str) -> Result<Material, &'static str> {
    if !matches!(algorithm, "" | "EdDSA") {
        return Err("[alg] is not [EdDSA] for an OKP key");
    }
    let (missing, bad) =
        ("[crv] field is missing for an OKP key", "[crv] field is not string for an OKP key");
    if field(key, "crv", missing, bad)? != "Ed25519" {
        return Err("[crv] field is not supported for an OKP key");
    }
    let (missing, bad) =
        ("[x] field is missing for an OKP key", "[x] field is not string for an OKP key");
    let point = unspaced(field(key, "x", missing, bad)?.as_bytes());
    let point = point.ok_or("Jwks OKP [x] field is an invalid Base64.")?;
    if point.len() != ED25519_KEY {
        return Err("Jwks OKP [x] field is wrong length.");
    }
    Ok(Material::Ed25519(point.into()))
}

/// Whether a set is an object of certificates by their keys' names.
fn is_of_certificates(set: &Struct) -> bool {
    let is_pem = |value: &Value| {
        matches!(value, Value::String(pem) if pem.starts_with("-----BEGIN CERTIFICATE-----\n")
            && pem.ends_with("\n-----END CERTIFICATE-----\n"))
    };
    !set.is_empty() && set.iter().all(|(name, value)| !name.is_empty() && is_pem(value))
}

/// Keys of such a set. All are RSA keys.
fn of_certificates(set: &Struct) -> Result<Keys, &'static str> {
    if set.len() > MOST_KEYS {
        return Err("Jwks has more than 1000 keys");
    }
    let read = |name: &str| {
        let der = Certificate::first_of(text(set, name).as_bytes());
        let der = der.ok_or("X509 parse pubkey fails")?;
        let certificate = Certificate::parse(&der).ok_or("X509 parse pubkey fails")?;
        let key = certificate.subject_public_key_info();
        let parsed = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key).parse();
        parsed.map_err(|_| "X509 parse pubkey internal fails: get pubkey")?;
        Ok(Key { id: name.into(), algorithm: "".into(), material: Material::Rsa(key.into()) })
    };
    set.keys().map(|name| read(name)).collect::<Result<_, _>>().map(Keys)
}

fn text<'a>(entries: &'a Struct, name: &str) -> &'a str {
    match entries.get(name) {
        Some(Value::String(text)) => text,
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Struct(_),
        )
        | None => "",
    }
}

fn field<'a>(
    entries: &'a Struct,
    name: &str,
    missing: &'static str,
    bad: &'static str,
) -> Result<&'a str, &'static str> {
    match entries.get(name) {
        Some(Value::String(text)) => Ok(text),
        None => Err(missing),
        Some(_) => Err(bad),
    }
}

/// A number in Base64url, big-endian, without zeros before it.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = unspaced(text.as_bytes())?;
    let start = bytes.iter().position(|byte| *byte != 0)?;
    Some(bytes[start..].to_vec())
}

/// Base64url of a key, in which white space counts for nothing, as in Envoy.
fn unspaced(text: &[u8]) -> Option<Vec<u8>> {
    decoded(&text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<_>>())
}

/// The text with what controls in strings escaped: Envoy takes lines that are broken there, RFC 8259 §7 does not.
fn escaped(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(u8::is_ascii_control) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut in_string, mut after_escape) = (Vec::with_capacity(text.len()), false, false);
    for byte in text {
        match byte {
            b'"' if !after_escape => in_string = !in_string,
            0..0x20 if in_string => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                after_escape = false;
                continue;
            }
            _ => {}
        }
        after_escape = in_string && *byte == b'\\' && !after_escape;
        out.push(*byte);
    }
    Cow::Owned(out)
}

/// Without a `kid` all keys of a set are tried.
const MOST_KEYS: usize = 1000;
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
const ED25519_KEY: usize = 32;
const ED25519_SIGNATURE: usize = 64;

#[cfg(test)]
mod tests;
