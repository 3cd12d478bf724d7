//! JSON Web Tokens (RFC 7519) in their compact form (RFC 7515 §7.1).
//!
//! Arrives: text from a request. Leaves: what it says, of which nothing is true before its signature is verified.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::status::Status;
use crate::stream_info::{Struct, Value, read_json};

/// What a token says.
#[derive(Debug)]
pub(super) struct Token {
    /// `alg`.
    pub(super) algorithm: Algorithm,
    /// `kid`; empty means none.
    pub(super) key_id: Box<str>,
    pub(super) header: Struct,
    pub(super) payload: Struct,
    /// The payload as it came.
    pub(super) encoded_payload: Box<str>,
    /// `iss`; empty means none.
    pub(super) issuer: Box<str>,
    /// `sub`; empty means none.
    pub(super) subject: Box<str>,
    /// `aud`.
    pub(super) audiences: Vec<Box<str>>,
    /// `nbf`, in seconds since 1970; 0 means none.
    not_before: u64,
    /// `exp`, in seconds since 1970; 0 means none.
    expires: u64,
    /// What is signed.
    pub(super) signed: Vec<u8>,
    pub(super) signature: Vec<u8>,
}

/// How it is signed (RFC 7518 §3.1, RFC 8037 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs(Digest),
    Rs(Digest),
    Ps(Digest),
    Es(Digest),
    EdDsa,
}

/// The hash function of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digest {
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    /// By its name. There is no `none`.
    fn named(name: &str) -> Option<Self> {
        let digest = match name.get(2..)? {
            "256" => Digest::Sha256,
            "384" => Digest::Sha384,
            "512" => Digest::Sha512,
            _ => return (name == "EdDSA").then_some(Self::EdDsa),
        };
        match name.get(..2)? {
            "HS" => Some(Self::Hs(digest)),
            "RS" => Some(Self::Rs(digest)),
            "PS" => Some(Self::Ps(digest)),
            "ES" => Some(Self::Es(digest)),
            _ => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        use Digest::{Sha256, Sha384, Sha512};
        match self {
            Self::Hs(Sha256) => "HS256",
            Self::Hs(Sha384) => "HS384",
            Self::Hs(Sha512) => "HS512",
            Self::Rs(Sha256) => "RS256",
            Self::Rs(Sha384) => "RS384",
            Self::Rs(Sha512) => "RS512",
            Self::Ps(Sha256) => "PS256",
            Self::Ps(Sha384) => "PS384",
            Self::Ps(Sha512) => "PS512",
            Self::Es(Sha256) => "ES256",
            Self::Es(Sha384) => "ES384",
            Self::Es(Sha512) => "ES512",
            Self::EdDsa => "EdDSA",
        }
    }
}

impl Token {
    /// Reads a token.
    ///
    /// # Errors
    /// What of it cannot be read.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Status> {
        let mut parts = text.split(|byte| *byte == b'.').filter(|part| !part.is_empty());
        let (Some(head), Some(body), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Status::BadFormat);
        };
        let header = decoded(head).ok_or(Status::HeaderBadBase64)?;
        let header = read_json(&header).ok_or(Status::HeaderBadJson)?;
        let algorithm = text_of(&header, "alg", Status::HeaderBadAlg)?;
        let algorithm = algorithm.ok_or(Status::HeaderBadAlg)?;
        let algorithm = Algorithm::named(algorithm).ok_or(Status::HeaderAlgUnknown)?;
        let key_id = text_of(&header, "kid", Status::HeaderBadKid)?.unwrap_or_default().into();
        let payload = decoded(body).ok_or(Status::PayloadBadBase64)?;
        let payload = read_json(&payload).ok_or(Status::PayloadBadJson)?;
        let issuer = text_of(&payload, "iss", Status::IssuerNotText)?.unwrap_or_default().into();
        let subject = text_of(&payload, "sub", Status::SubjectNotText)?.unwrap_or_default().into();
        seconds(&payload, "iat", Status::IssuedNotNumber, Status::IssuedOutOfRange)?;
        let not_before =
            seconds(&payload, "nbf", Status::NotBeforeNotNumber, Status::NotBeforeOutOfRange)?;
        let expires =
            seconds(&payload, "exp", Status::ExpiresNotNumber, Status::ExpiresOutOfRange)?;
        text_of(&payload, "jti", Status::IdNotText)?;
        let audiences = audiences(&payload)?;
        Ok(Self {
            algorithm,
            key_id,
            header,
            encoded_payload: String::from_utf8_lossy(body).into(),
            issuer,
            subject,
            audiences,
            not_before,
            expires,
            signed: [head, b".", body].concat(),
            signature: decoded(signature).ok_or(Status::SignatureBadBase64)?,
            payload,
        })
    }

    /// Whether it is valid at this second since 1970, as far as clocks may differ.
    ///
    /// # Errors
    /// It is not valid yet, or no longer.
    pub(super) const fn check_time(&self, now: u64, skew: u64) -> Result<(), Status> {
        if now.saturating_add(skew) < self.not_before {
            return Err(Status::NotYetValid);
        }
        if self.expires != 0 && now > self.expires.saturating_add(skew) {
            return Err(Status::Expired);
        }
        Ok(())
    }

    /// When it ends, in seconds since 1970, if it says so.
    pub(super) fn expires(&self) -> Option<u64> {
        Some(self.expires).filter(|expires| *expires != 0)
    }

    /// About how many bytes it holds.
    pub(super) fn weight(&self) -> usize {
        let texts = self.encoded_payload.len() + self.signed.len() + self.signature.len();
        crate::stream_info::weight_of(&self.header)
            + crate::stream_info::weight_of(&self.payload)
            + texts
    }
}

fn text_of<'a>(entries: &'a Struct, name: &str, wrong: Status) -> Result<Option<&'a str>, Status> {
    match entries.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Struct(_),
        ) => Err(wrong),
    }
}

/// A number of seconds without its fraction; 0 if there is none.
fn seconds(entries: &Struct, name: &str, wrong: Status, outside: Status) -> Result<u64, Status> {
    match entries.get(name) {
        None => Ok(0),
        Some(Value::Number(number)) if *number >= 0.0 && *number < u64::MAX as f64 => {
            Ok(*number as u64)
        }
        Some(Value::Number(_)) => Err(outside),
        Some(
            Value::Null | Value::Bool(_) | Value::String(_) | Value::List(_) | Value::Struct(_),
        ) => Err(wrong),
    }
}

fn audiences(payload: &Struct) -> Result<Vec<Box<str>>, Status> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Struct(_) => {
            Err(Status::AudienceNotText)
        }
    };
    match payload.get("aud") {
        None => Ok(Vec::new()),
        Some(Value::List(items)) => items.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}

/// Base64url, with or without padding; blanks count for nothing, as in Envoy.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    if !text.iter().any(u8::is_ascii_whitespace) {
        return BASE64.decode(text).ok();
    }
    let text: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    BASE64.decode(text).ok()
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use super::super::tests::{HEADER, unsigned};
    use super::*;

    fn error(header: &str, payload: &str) -> Option<Status> {
        Token::parse(unsigned(header, payload).as_bytes()).err()
    }

    #[test]
    fn three_parts_and_no_more() {
        for text in ["", "a", "a.b", "a.b.c.d", "..", "a..b"] {
            assert_eq!(Token::parse(text.as_bytes()).err(), Some(Status::BadFormat), "{text}");
        }
        assert_eq!(Token::parse(b"*.e30.AA").err(), Some(Status::HeaderBadBase64));
        assert_eq!(Token::parse(b"e30.e30.AA").err(), Some(Status::HeaderBadAlg));
        assert_eq!(Token::parse(b"W10.e30.AA").err(), Some(Status::HeaderBadJson));
        // Base64 of Base64 is no header.
        assert_eq!(Token::parse(b"ZXlKaGJHYw.e30.AA").err(), Some(Status::HeaderBadJson));
    }

    #[test]
    fn what_is_not_of_its_type_is_refused() {
        for (header, wanted) in [
            (r#"{"alg":1}"#, Status::HeaderBadAlg),
            (r#"{"alg":"none"}"#, Status::HeaderAlgUnknown),
            (r#"{"alg":"None"}"#, Status::HeaderAlgUnknown),
            (r#"{"alg":""}"#, Status::HeaderAlgUnknown),
            (r#"{"alg":"hs256"}"#, Status::HeaderAlgUnknown),
            (r#"{"alg":"HS1"}"#, Status::HeaderAlgUnknown),
            (r#"{"alg":"ää"}"#, Status::HeaderAlgUnknown),
            (r#"{"alg":"HS256","kid":1}"#, Status::HeaderBadKid),
            (r#"{"alg":"HS256","alg":"none"}"#, Status::HeaderBadJson),
        ] {
            assert_eq!(error(header, "{}"), Some(wanted), "{header}");
        }
        for (payload, wanted) in [
            (r#"{"iss":1}"#, Status::IssuerNotText),
            (r#"{"sub":[]}"#, Status::SubjectNotText),
            (r#"{"iat":"1"}"#, Status::IssuedNotNumber),
            (r#"{"iat":-1}"#, Status::IssuedOutOfRange),
            (r#"{"nbf":null}"#, Status::NotBeforeNotNumber),
            (r#"{"nbf":1e30}"#, Status::NotBeforeOutOfRange),
            (r#"{"exp":{}}"#, Status::ExpiresNotNumber),
            (r#"{"exp":-0.5}"#, Status::ExpiresOutOfRange),
            (r#"{"jti":2}"#, Status::IdNotText),
            (r#"{"aud":["a",1]}"#, Status::AudienceNotText),
            ("[]", Status::PayloadBadJson),
        ] {
            assert_eq!(error(HEADER, payload), Some(wanted), "{payload}");
        }
        assert_eq!(error(HEADER, r#"{"exp":1.5,"aud":"a"}"#), None);
    }

    #[test]
    fn a_token_is_valid_from_its_first_to_its_last_second() {
        let text = unsigned(HEADER, r#"{"nbf":100,"exp":200}"#);
        let token = Token::parse(text.as_bytes()).unwrap();
        for (now, skew, wanted) in [
            (99, 0, Err(Status::NotYetValid)),
            (99, 1, Ok(())),
            (100, 0, Ok(())),
            (200, 0, Ok(())),
            (201, 0, Err(Status::Expired)),
            (201, 1, Ok(())),
            (u64::MAX, u64::MAX, Ok(())),
        ] {
            assert_eq!(token.check_time(now, skew), wanted, "{now} {skew}");
        }
    }
}
