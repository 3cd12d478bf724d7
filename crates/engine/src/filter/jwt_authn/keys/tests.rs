use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use super::*;

/// A token, and how it is signed.
fn token(header: &str, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Token {
    let signed = format!("{}.{}", BASE64.encode(header), BASE64.encode(r#"{"iss":"a"}"#));
    let signature = BASE64.encode(sign(signed.as_bytes()));
    Token::parse(format!("{signed}.{signature}").as_bytes()).unwrap()
}

fn header(algorithm: &str) -> String {
    format!(r#"{{"alg":"{algorithm}"}}"#)
}

fn set(keys: &[String]) -> Keys {
    Keys::parse(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes()).unwrap()
}

fn rsa(key: &RsaKeyPair, more: &str) -> String {
    // `RSAPublicKey` of 2,048 bits: two headers and a zero, the modulus, then 65537.
    let (n, e) = (&key.public_key().as_ref()[9..265], [1, 0, 1]);
    format!(r#"{{"kty":"RSA","n":"{}","e":"{}"{more}}}"#, BASE64.encode(n), BASE64.encode(e))
}

fn sign_rsa(key: &RsaKeyPair, how: &'static dyn RsaEncoding, data: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(how, &SystemRandom::new(), data, &mut signature).unwrap();
    signature
}

fn secret(id: &str, secret: &[u8]) -> String {
    format!(r#"{{"kty":"oct","kid":"{id}","k":"{}"}}"#, BASE64.encode(secret))
}

fn sign_secret(secret: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), data).as_ref().to_vec()
}

#[test]
fn rsa_keys_verify_what_they_have_signed() {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let other = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let ways: [(&str, &'static dyn RsaEncoding); 6] = [
        ("RS256", &RSA_PKCS1_SHA256),
        ("RS384", &RSA_PKCS1_SHA384),
        ("RS512", &RSA_PKCS1_SHA512),
        ("PS256", &RSA_PSS_SHA256),
        ("PS384", &RSA_PSS_SHA384),
        ("PS512", &RSA_PSS_SHA512),
    ];
    let (keys, others) = (set(&[rsa(&other, ""), rsa(&key, "")]), set(&[rsa(&other, "")]));
    for (name, how) in ways {
        let token = token(&header(name), |data| sign_rsa(&key, how, data));
        assert_eq!(keys.verify(&token), Ok(()), "{name}");
        assert_eq!(others.verify(&token), Err(Status::VerificationFails), "{name}");
        let of_alg = set(&[rsa(&key, r#","alg":"RS384""#)]);
        let wanted = if name == "RS384" { Ok(()) } else { Err(Status::NoSuchKey) };
        assert_eq!(of_alg.verify(&token), wanted, "{name}");
    }
    let confused = token(&header("RS256"), |data| sign_rsa(&key, &RSA_PSS_SHA256, data));
    assert_eq!(keys.verify(&confused), Err(Status::VerificationFails));
}

#[test]
fn curves_go_with_their_hash_alone() {
    let ways: [(&str, &str, &'static EcdsaSigningAlgorithm); 3] = [
        ("ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        ("ES384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
        ("ES512", "P-521", &ECDSA_P521_SHA512_FIXED_SIGNING),
    ];
    for (name, curve, how) in ways {
        let key = EcdsaKeyPair::generate(how).unwrap();
        let point = key.public_key().as_ref();
        let (x, y) = point[1..].split_at((point.len() - 1) / 2);
        let (x, y) = (BASE64.encode(x), BASE64.encode(y));
        let jwk = format!(r#"{{"kty":"EC","crv":"{curve}","x":"{x}","y":"{y}"}}"#);
        let keys = set(&[jwk]);
        let sign = |data: &[u8]| key.sign(&SystemRandom::new(), data).unwrap().as_ref().to_vec();
        assert_eq!(keys.verify(&token(&header(name), sign)), Ok(()), "{name}");
        for wrong in ["ES256", "ES384", "ES512", "RS256", "HS256", "EdDSA"] {
            let wanted = if wrong == name { Ok(()) } else { Err(Status::VerificationFails) };
            assert_eq!(keys.verify(&token(&header(wrong), sign)), wanted, "{name} {wrong}");
        }
        let mirrored = format!(r#"{{"kty":"EC","crv":"{curve}","x":"{y}","y":"{x}"}}"#);
        let text = format!(r#"{{"keys":[{mirrored}]}}"#);
        let why = "Jwks EC [x] and [y] fields have a parse error.";
        assert_eq!(Keys::parse(text.as_bytes()).unwrap_err(), why);
    }
}

#[test]
fn ed25519_says_when_a_signature_has_another_length() {
    let key = Ed25519KeyPair::generate().unwrap();
    let x = BASE64.encode(key.public_key());
    let keys = set(&[format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#)]);
    let good = token(&header("EdDSA"), |data| key.sign(data).as_ref().to_vec());
    assert_eq!(keys.verify(&good), Ok(()));
    let forged = token(&header("EdDSA"), |_| vec![7; 64]);
    assert_eq!(keys.verify(&forged), Err(Status::VerificationFails));
    let short = token(&header("EdDSA"), |_| vec![7; 63]);
    assert_eq!(keys.verify(&short), Err(Status::Ed25519Length));
    let other = token(&header("HS256"), |data| key.sign(data).as_ref().to_vec());
    assert_eq!(keys.verify(&other), Err(Status::VerificationFails));
}

#[test]
fn a_public_key_is_no_secret() {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let keys = set(&[rsa(&key, "")]);
    let public = key.public_key().as_ref();
    for secret in [public, BASE64.encode(public).as_bytes(), rsa(&key, "").as_bytes()] {
        let forged = token(&header("HS256"), |data| sign_secret(secret, data));
        assert_eq!(keys.verify(&forged), Err(Status::VerificationFails));
    }
    // And a secret verifies nothing that says it is signed by a public key.
    let keys = set(&[secret("a", b"secret")]);
    for name in ["RS256", "ES256", "EdDSA"] {
        let forged = token(&header(name), |data| sign_secret(b"secret", data));
        assert_eq!(keys.verify(&forged), Err(Status::VerificationFails), "{name}");
    }
}

#[test]
fn of_several_keys_the_one_with_the_tokens_name_counts() {
    let keys = set(&[secret("a", b"one"), secret("b", b"two"), secret("", b"three")]);
    let verify = |id: &str, by: &[u8]| {
        let header = format!(r#"{{"alg":"HS256","kid":"{id}"}}"#);
        keys.verify(&token(&header, |data| sign_secret(by, data)))
    };
    assert_eq!(verify("a", b"one"), Ok(()));
    assert_eq!(verify("a", b"two"), Err(Status::VerificationFails));
    assert_eq!(verify("b", b"two"), Ok(()));
    // A key without a name, or a token without one, fits all.
    assert_eq!(verify("c", b"three"), Ok(()));
    assert_eq!(verify("", b"two"), Ok(()));
    assert_eq!(
        set(&[secret("a", b"one")])
            .verify(&token(r#"{"alg":"HS256","kid":"b"}"#, |data| sign_secret(b"one", data),)),
        Err(Status::NoSuchKey)
    );
    assert_eq!(
        Keys::default().verify(&token(&header("HS256"), |_| vec![1])),
        Err(Status::NoValidKeys)
    );
}

#[test]
fn lines_may_be_broken_within_a_key() {
    // "secret" in two lines, behind a name with an escaped quote, as YAML's block scalars leave it.
    let text = b"{\"keys\":[\n {\"kty\":\"oct\",\"use\":\"\\\"\\\\\",\"k\":\"c2Vj\n\t   cmV0\"}]}";
    let keys = Keys::parse(text).unwrap();
    let token = token(&header("HS256"), |data| sign_secret(b"secret", data));
    assert_eq!(keys.verify(&token), Ok(()));
    let text = b"{\"keys\":[{\"kty\":\"oct\",\x01\"k\":\"c2VjcmV0\"}]}";
    assert_eq!(Keys::parse(text).unwrap_err(), "Jwks is an invalid JSON");
}

#[test]
fn a_set_says_what_is_wrong_with_it() {
    for (text, why) in [
        ("", "Jwks is an invalid JSON"),
        ("[]", "Jwks is an invalid JSON"),
        ("{}", "Jwks does not have [keys] field"),
        (r#"{"a":"b"}"#, "Jwks does not have [keys] field"),
        (r#"{"keys":{}}"#, "[keys] in Jwks is not an array"),
        (r#"{"keys":[]}"#, "Jwks doesn't have any valid public key"),
        (r#"{"keys":[1]}"#, "[kty] is missing in [keys]"),
        (r#"{"keys":[{"kty":1}]}"#, "[kty] is bad in [keys]"),
        (r#"{"keys":[{"kty":"x"}]}"#, "[kty] is not supported in [keys]"),
        (r#"{"keys":[{"kty":"RSA"}]}"#, "[n] field is missing for a RSA key"),
        (r#"{"keys":[{"kty":"RSA","n":"AQ","e":1}]}"#, "[e] field is not string for a RSA key"),
        (
            r#"{"keys":[{"kty":"RSA","n":"AQ","e":"Ag"}]}"#,
            "Jwks RSA [n] or [e] field is missing or has a parse error",
        ),
        (
            r#"{"keys":[{"kty":"RSA","n":"AQ","e":"AQAB"}]}"#,
            "Jwks RSA [n] has fewer than 2048 or more than 8192 bits",
        ),
        (
            r#"{"keys":[{"kty":"RSA","alg":"HS256"}]}"#,
            "[alg] is not started with [RS] or [PS] for an RSA key",
        ),
        (
            r#"{"keys":[{"kty":"EC","alg":"ES256","crv":"P-384"}]}"#,
            "[crv] field specified is not compatible with [alg] for an EC key",
        ),
        (
            r#"{"keys":[{"kty":"EC","crv":"secp256k1"}]}"#,
            "[crv] or [alg] field is not supported for an EC key",
        ),
        (
            r#"{"keys":[{"kty":"EC","x":"AQ","y":"AQ"}]}"#,
            "Jwks EC [x] and [y] fields have a parse error.",
        ),
        (r#"{"keys":[{"kty":"oct","k":""}]}"#, "Jwks Oct key is an invalid Base64"),
        (
            r#"{"keys":[{"kty":"OKP","crv":"X25519"}]}"#,
            "[crv] field is not supported for an OKP key",
        ),
        (
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AQ"}]}"#,
            "Jwks OKP [x] field is wrong length.",
        ),
    ] {
        assert_eq!(Keys::parse(text.as_bytes()).unwrap_err(), why, "{text}");
    }
    let many = vec![secret("a", b"1"); MOST_KEYS + 1];
    let many = format!(r#"{{"keys":[{}]}}"#, many.join(","));
    assert_eq!(Keys::parse(many.as_bytes()).unwrap_err(), "Jwks has more than 1000 keys");
    // One that can be used is enough.
    assert_eq!(set(&[r#"{"kty":"x"}"#.into(), secret("a", b"1"), "1".into()]).0.len(), 1);
}

#[test]
fn a_set_may_be_certificates_by_name() {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let pem = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
    let pem = pem.replace("\r\n", "\n").replace('\n', "\\n");
    let keys = Keys::parse(format!(r#"{{"k1":"{pem}"}}"#).as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(&key.serialize_der()).unwrap();
    let sign = |data: &[u8]| sign_rsa(&pair, &RSA_PKCS1_SHA256, data);
    assert_eq!(keys.verify(&token(r#"{"alg":"RS256","kid":"k1"}"#, sign)), Ok(()));
    assert_eq!(keys.verify(&token(r#"{"alg":"RS256","kid":"k2"}"#, sign)), Err(Status::NoSuchKey));
    let garbled = pem.replace("MII", "MIJ");
    assert!(Keys::parse(format!(r#"{{"k1":"{garbled}"}}"#).as_bytes()).is_err());
}
