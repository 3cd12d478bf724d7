//! What an authority says of a server's certificate (RFC 6960), which a server shows along with it: stapling.
//!
//! Arrives: DER from a file. Leaves: the same bytes, whose certificate they are about, and how long they hold. Whether
//! they are signed well is the client's to judge.

use super::certificate::{GENERALIZED_TIME, INTEGER, OBJECT_ID, OCTET_STRING, Reader, SEQUENCE};
use super::client::SettingsError;

/// An OCSP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staple {
    pub(super) der: Vec<u8>,
    serial: Vec<u8>,
    /// In seconds since 1970; without it, it holds no longer than the moment it was made.
    next_update: Option<i64>,
}

impl Staple {
    /// Reads a response about one certificate.
    ///
    /// # Errors
    /// When it is malformed, says that there is no answer, or is about several certificates.
    pub fn from_der(der: &[u8]) -> Result<Self, SettingsError> {
        let mut whole = Reader(der);
        let mut response = whole.enter(SEQUENCE).ok_or(SettingsError::MalformedStaple)?;
        let status = response.enter(ENUMERATED).ok_or(SettingsError::MalformedStaple)?;
        if status.0 != SUCCESSFUL {
            return Err(SettingsError::StapleWithoutAnswer);
        }
        if response.0.is_empty() {
            return Err(SettingsError::StapleWithoutAnswer);
        }
        let mut answers = answers(response).ok_or(SettingsError::MalformedStaple)?;
        let answer = answers.enter(SEQUENCE).ok_or(SettingsError::MalformedStaple)?;
        if !answers.0.is_empty() {
            return Err(SettingsError::StapleForMany);
        }
        let (serial, next_update) =
            single(answer).filter(|_| whole.0.is_empty()).ok_or(SettingsError::MalformedStaple)?;
        Ok(Self { der: der.to_vec(), serial: serial.to_vec(), next_update })
    }

    /// Whether it is about the certificate with this serial number.
    pub(super) fn is_about(&self, serial: &[u8]) -> bool {
        self.serial == serial
    }

    /// Whether it does not hold at this time, in seconds since 1970.
    pub(super) fn is_expired(&self, now: i64) -> bool {
        self.next_update.is_none_or(|until| until < now)
    }
}

/// The list of answers in a response, behind its status (RFC 6960 §4.2.1).
fn answers(mut response: Reader<'_>) -> Option<Reader<'_>> {
    let mut bytes = response.enter(RESPONSE_BYTES)?.enter(SEQUENCE)?;
    if bytes.enter(OBJECT_ID)?.0 != BASIC {
        return None;
    }
    let mut basic = bytes.enter(OCTET_STRING)?.enter(SEQUENCE)?;
    let mut data = basic.enter(SEQUENCE)?;
    if data.0.first() == Some(&VERSION) && data.enter(VERSION)?.enter(INTEGER)?.0 != [0] {
        return None;
    }
    let (responder, _) = data.any()?;
    if !matches!(responder, BY_NAME | BY_KEY) {
        return None;
    }
    data.enter(GENERALIZED_TIME)?;
    data.enter(SEQUENCE)
}

/// The serial number of a certificate, and until when what is said of it holds.
fn single(mut answer: Reader<'_>) -> Option<(&[u8], Option<i64>)> {
    let mut certificate = answer.enter(SEQUENCE)?;
    certificate.enter(SEQUENCE)?;
    certificate.enter(OCTET_STRING)?;
    certificate.enter(OCTET_STRING)?;
    let serial = certificate.enter(INTEGER)?.0;
    let (status, _) = answer.any()?;
    if !matches!(status, GOOD | REVOKED | UNKNOWN) {
        return None;
    }
    answer.time()?;
    let next_update = match answer.0.first() {
        Some(&NEXT_UPDATE) => Some(answer.enter(NEXT_UPDATE)?.time()?),
        Some(_) | None => None,
    };
    Some((serial, next_update))
}

/// When a server shows what an authority says of its certificate. Envoy `ocsp_staple_policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StaplePolicy {
    /// While it holds.
    #[default]
    Lenient,
    /// While it holds; a client that asks for it at other times is refused.
    Strict,
    /// The same, and there must be one for each certificate.
    Must,
}

/// What became of a client's wish to be shown it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stapling {
    /// It was shown.
    Shown,
    /// There is none that holds, and the client is served without.
    Omitted,
    /// There is none that holds, and the client is refused.
    Failed,
}

impl StaplePolicy {
    pub(super) fn stapling(self, staple: Option<&Staple>, now: i64) -> Stapling {
        match staple {
            Some(staple) if !staple.is_expired(now) => Stapling::Shown,
            Some(_) if self == Self::Strict => Stapling::Failed,
            Some(_) | None if self == Self::Must => Stapling::Failed,
            Some(_) | None => Stapling::Omitted,
        }
    }
}

const ENUMERATED: u8 = 0x0a;
const SUCCESSFUL: &[u8] = &[0];
const RESPONSE_BYTES: u8 = 0xa0;
/// 1.3.6.1.5.5.7.48.1.1.
const BASIC: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
const VERSION: u8 = 0xa0;
const BY_NAME: u8 = 0xa1;
const BY_KEY: u8 = 0xa2;
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;
const UNKNOWN: u8 = 0x82;
const NEXT_UPDATE: u8 = 0xa0;
