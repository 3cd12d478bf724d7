//! Why a connection has no TLS, or has it no longer.

use rustls::{CertificateError, Error, InvalidMessage, PeerIncompatible};

/// Why TLS failed. Always fatal for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The peer's certificate was refused. The peer's fault, or that of our configuration.
    #[error("certificate refused: {0}")]
    Certificate(#[source] Distrust),
    /// The peer refused us with this alert (RFC 8446 §6.2).
    #[error("the peer sent alert {0}")]
    Alert(u8),
    /// The server refused our first message with the alert `handshake_failure`: most often nothing that we offer suits
    /// it.
    #[error("the server refused the ClientHello")]
    HelloRefused,
    /// What the peer sent is no TLS record.
    #[error("not TLS")]
    NotTls,
    /// There is no version of TLS that both want.
    #[error("no TLS version in common")]
    Version,
    /// There is no cipher suite, group, signature or protocol that both want.
    #[error("nothing in common")]
    Incompatible,
    /// The peer broke the protocol.
    #[error("protocol violation")]
    Violation,
    /// A record does not decrypt: it was changed on its way, or the peer is broken.
    #[error("a record does not decrypt")]
    Decrypt,
    /// The peer ended the connection before the handshake was over.
    #[error("ended in the handshake")]
    Ended,
    /// The peer reset the connection before the handshake was over.
    #[error("reset in the handshake")]
    Reset,
    /// It was not told what time it is. Our fault.
    #[error("the time is not known")]
    Time,
    /// Our fault: no randomness, or a key that does not sign.
    #[error("internal error")]
    Internal,
}

/// Why a certificate was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// It is not valid any more.
    #[error("expired")]
    Expired,
    /// It is not valid yet.
    #[error("not yet valid")]
    NotYetValid,
    /// No trusted certificate has signed it.
    #[error("unknown issuer")]
    UnknownIssuer,
    /// It has signed itself and is not trusted.
    #[error("self-signed")]
    SelfSigned,
    /// It was revoked.
    #[error("revoked")]
    Revoked,
    /// Whether it was revoked is not known: its issuer's list is missing or outdated.
    #[error("revocation not known")]
    RevocationUnknown,
    /// A signature is wrong, or of a kind that is not accepted.
    #[error("bad signature")]
    Signature,
    /// More certificates lead to a trusted one than the settings allow.
    #[error("chain too long")]
    Depth,
    /// Its key is not for signatures, and so not for a handshake.
    #[error("key not for signatures")]
    KeyUsage,
    /// It is for something else than this.
    #[error("wrong purpose")]
    Purpose,
    /// It names another peer.
    #[error("wrong name")]
    Name,
    /// It is not one of those that are pinned.
    #[error("not pinned")]
    Pin,
    /// It cannot be read.
    #[error("malformed")]
    Malformed,
    /// There is none.
    #[error("missing")]
    Missing,
    /// Something else about it, such as a name constraint.
    #[error("invalid")]
    Invalid,
}

impl Fault {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "rustls's errors are many and grow: all that are not told apart are the peer's protocol violations"
    )]
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::Certificate(Distrust::of(error)),
            Error::NoCertificatesPresented => Self::Certificate(Distrust::Missing),
            Error::AlertReceived(alert) => Self::Alert((*alert).into()),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::MessageTooLarge,
            ) => Self::NotTls,
            Error::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled,
            ) => Self::Version,
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => Self::Incompatible,
            Error::General(reason) if reason == NO_CERTIFICATE => Self::Incompatible,
            Error::DecryptError => Self::Decrypt,
            Error::FailedToGetCurrentTime => Self::Time,
            Error::FailedToGetRandomBytes | Error::EncryptError | Error::General(_) => {
                Self::Internal
            }
            _ => Self::Violation,
        }
    }
}

impl Distrust {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "rustls's errors are many and grow: all that are not told apart make a certificate invalid"
    )]
    fn of(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::Revoked => Self::Revoked,
            CertificateError::UnknownRevocationStatus
            | CertificateError::ExpiredRevocationList
            | CertificateError::ExpiredRevocationListContext { .. } => Self::RevocationUnknown,
            CertificateError::BadSignature
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
                Self::Signature
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::Purpose
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::Name
            }
            CertificateError::BadEncoding => Self::Malformed,
            CertificateError::Other(other) => {
                other.0.downcast_ref::<Self>().copied().unwrap_or(Self::Invalid)
            }
            _ => Self::Invalid,
        }
    }

    /// As a verifier says it to rustls.
    pub(super) fn error(self) -> Error {
        let error = match self {
            Self::Expired => CertificateError::Expired,
            Self::NotYetValid => CertificateError::NotValidYet,
            Self::UnknownIssuer => CertificateError::UnknownIssuer,
            Self::Revoked => CertificateError::Revoked,
            Self::RevocationUnknown => CertificateError::UnknownRevocationStatus,
            Self::Malformed => CertificateError::BadEncoding,
            // To peers these are `certificate_unknown`, as Envoy has it for names.
            Self::Name
            | Self::SelfSigned
            | Self::Signature
            | Self::Purpose
            | Self::Depth
            | Self::KeyUsage
            | Self::Pin
            | Self::Missing
            | Self::Invalid => {
                CertificateError::Other(rustls::OtherError(std::sync::Arc::new(self)))
            }
        };
        Error::InvalidCertificate(error)
    }
}

/// What rustls says when none of a server's certificates was chosen.
const NO_CERTIFICATE: &str = "no server certificate chain resolved";
