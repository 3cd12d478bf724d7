//! `%RESPONSE_CODE_DETAILS%` and its kin in the words of Envoy 1.40.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use towpath_proto::Failure;
use towpath_proto::tls::{Distrust, Fault};

/// The upstream answered.
pub const VIA_UPSTREAM: &str = "via_upstream";
/// The upstream answered with a redirect that was followed.
pub const INTERNAL_REDIRECT: &str = "internal_redirect";
/// A route's `direct_response` or `redirect`.
pub const DIRECT_RESPONSE: &str = "direct_response";
/// No virtual host or no route takes the request.
pub const ROUTE_NOT_FOUND: &str = "route_not_found";
/// The route's cluster does not exist.
pub const CLUSTER_NOT_FOUND: &str = "cluster_not_found";
/// The cluster has no host to pick.
pub const NO_HEALTHY_UPSTREAM: &str = "no_healthy_upstream";
/// Its cluster drops a share of its requests.
pub const DROP_OVERLOAD: &str = "drop_overload";
/// Its cluster drops all requests.
pub const UNCONDITIONAL_DROP_OVERLOAD: &str = "unconditional_drop_overload";
/// The route's timeout passed.
pub const RESPONSE_TIMEOUT: &str = "response_timeout";
/// An attempt's timeout passed.
pub const UPSTREAM_PER_TRY_TIMEOUT: &str = "upstream_per_try_timeout";
/// An attempt's idle timeout passed.
pub const UPSTREAM_PER_TRY_IDLE_TIMEOUT: &str = "upstream_per_try_idle_timeout";
/// An attempt took longer than its cluster's `max_stream_duration`.
pub const UPSTREAM_MAX_STREAM_DURATION: &str = "upstream_max_stream_duration_reached";
/// Nothing moved for too long.
pub const STREAM_IDLE_TIMEOUT: &str = "stream_idle_timeout";
/// A client's handshake did not end in time: why its connection is over.
pub const TRANSPORT_SOCKET_TIMEOUT: &str = "transport socket timeout was reached";
/// The request did not come in whole in time.
pub const REQUEST_OVERALL_TIMEOUT: &str = "request_overall_timeout";
/// The request's head did not come in whole in time.
pub const REQUEST_HEADER_TIMEOUT: &str = "request_header_timeout";
/// The stream lived too long.
pub const MAX_DURATION_TIMEOUT: &str = "max_duration_timeout";
/// The connection lived too long.
pub const DURATION_TIMEOUT: &str = "duration_timeout";
/// The client closed the connection.
pub const DOWNSTREAM_REMOTE_DISCONNECT: &str = "downstream_remote_disconnect";
/// The overload manager refuses requests.
pub const OVERLOAD: &str = "overload";
/// A connection ends because of the process's load.
pub const FORCED_GOAWAY: &str = "forced_goaway";
/// The upgrade is not let through.
pub const UPGRADE_FAILED: &str = "upgrade_failed";
/// A server has answered a request for WebSocket otherwise, and not with an error.
pub const WEBSOCKET_HANDSHAKE_UNSUCCESSFUL: &str = "websocket_handshake_unsuccessful";
/// It names no client, and has to.
pub const ORIGINAL_IP_DETECTION_FAILED: &str = "rejecting_because_detection_failed";
/// The target is not a path.
pub const ABSOLUTE_PATH_REJECTED: &str = "absolute_path_rejected";
/// The path cannot be normalised, or has what is refused.
pub const PATH_NORMALIZATION_FAILED: &str = "path_normalization_failed";
/// A filter of ours answered a health check.
pub const HEALTH_CHECK_OK: &str = "health_check_ok";
/// The same, while this proxy wants no traffic.
pub const HEALTH_CHECK_FAILED: &str = "health_check_failed";
/// The same, as the host answered before.
pub const HEALTH_CHECK_CACHED: &str = "health_check_cached";
/// The same: enough hosts of each cluster are well.
pub const HEALTH_CHECK_OK_CLUSTER_HEALTHY: &str = "health_check_ok_cluster_healthy";
/// The same: too few of a cluster are.
pub const HEALTH_CHECK_FAILED_CLUSTER_UNHEALTHY: &str = "health_check_failed_cluster_unhealthy";
/// The same: a cluster has no hosts.
pub const HEALTH_CHECK_FAILED_CLUSTER_EMPTY: &str = "health_check_failed_cluster_empty";
/// The same: a cluster is not there.
pub const HEALTH_CHECK_FAILED_NO_CLUSTER_FOUND: &str = "health_check_failed_no_cluster_found";
/// The request's body is larger than may be kept.
pub const REQUEST_PAYLOAD_TOO_LARGE: &str = "request_payload_too_large";
/// The response's body is larger than may be kept.
pub const RESPONSE_PAYLOAD_TOO_LARGE: &str = "response_payload_too_large";
/// The bodies that are collected for one client's calls are, together, more than may be held.
pub const TOO_MUCH_HELD: &str = "bolt.too_much_held";
/// What came from a client is not Bolt.
pub const BOLT_CODEC_ERROR: &str = "bolt.codec_error";
/// A client has given its request up.
pub const HTTP2_REMOTE_RESET: &str = "http2.remote_reset";
/// A request to change the protocol has come by HTTP/2, or would have to leave by it.
pub const HTTP2_UPGRADE: &str = "http2.upgrade_not_supported";
/// A client of Bolt does not read its answers.
pub const SLOW_READER: &str = "bolt.slow_reader";
/// The path of a request does not say which service and method of Bolt it is for.
pub const NO_SERVICE: &str = "bolt.no_service";
/// The fields of a message are more than a block of Bolt's headers can have.
pub const BLOCK_TOO_LONG: &str = "bolt.headers_too_long";
/// A one-way call was sent.
pub const ONEWAY: &str = "bolt.oneway";

/// Details that a configuration words, for the life of the process: the same text takes memory once, however often it
/// is loaded.
#[must_use]
pub fn worded(text: &str) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text) {
        return known;
    }
    let text: &'static str = Box::leak(text.into());
    texts.insert(text);
    text
}

/// Details that a server has given a request, without white space. There are so many of them at most, by process:
/// others are `otherwise`.
#[must_use]
pub fn told(text: &str, otherwise: &'static str) -> &'static str {
    static TOLD: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    const MOST: usize = 1000;
    const LONGEST: usize = 512;
    let text: String =
        text.chars().map(|it| if it.is_ascii_whitespace() { '_' } else { it }).collect();
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = told.get(&*text) {
        return known;
    }
    if told.len() >= MOST || text.len() > LONGEST {
        return otherwise;
    }
    let text: &'static str = Box::leak(text.into());
    told.insert(text);
    text
}

/// The details before and after the response began, and the transport failure, if any.
macro_rules! words {
    ($reason:expr) => {
        (
            concat!("upstream_reset_before_response_started{", $reason, "}"),
            concat!("upstream_reset_after_response_started{", $reason, "}"),
            "",
        )
    };
    ($reason:expr, $transport:expr) => {
        (
            concat!("upstream_reset_before_response_started{", $reason, "|", $transport, "}"),
            concat!("upstream_reset_after_response_started{", $reason, "|", $transport, "}"),
            $transport,
        )
    };
}

/// The same for each way in which a connect fails, in the words of `strerror`.
macro_rules! failures {
    ($failure:expr, $reason:literal, $kind:literal) => {
        match $failure {
            Failure::Refused => words!($reason, concat!($kind, "Connection_refused")),
            Failure::Reset => words!($reason, concat!($kind, "Connection_reset_by_peer")),
            Failure::TimedOut => words!($reason, concat!($kind, "Connection_timed_out")),
            Failure::Unreachable => words!($reason, concat!($kind, "Network_is_unreachable")),
            Failure::AddressInUse => words!($reason, concat!($kind, "Address_already_in_use")),
            Failure::AddressNotAvailable => {
                words!($reason, concat!($kind, "Cannot_assign_requested_address"))
            }
            Failure::Denied => words!($reason, concat!($kind, "Permission_denied")),
            Failure::Exhausted => {
                words!($reason, concat!($kind, "Resource_temporarily_unavailable"))
            }
            _ => words!($reason, concat!($kind, "Unknown_error")),
        }
    };
}

/// An error of BoringSSL's own library, by its number and name.
macro_rules! ssl {
    ($number:literal, $name:expr) => {
        words!(
            "remote_connection_failure",
            concat!(
                "TLS_error:|",
                $number,
                ":SSL routines:OPENSSL_internal:",
                $name,
                ":TLS_error_end"
            )
        )
    };
}

/// A certificate that was refused, and why.
macro_rules! refused {
    ($why:expr) => {
        ssl!("268435581", concat!("CERTIFICATE_VERIFY_FAILED:verify cert failed: ", $why))
    };
}

/// A certificate whose chain was refused.
macro_rules! distrusted {
    ($why:literal) => {
        refused!(concat!("X509_verify_cert: certificate verification error at depth 0: ", $why))
    };
}

/// Why an upstream stream ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// A circuit breaker is open.
    Overflow,
    /// We could not begin to connect.
    LocalConnectionFailure(Failure),
    /// The connect failed.
    RemoteConnectionFailure(Failure),
    /// The TLS handshake failed.
    Tls(Fault),
    /// The connect took too long.
    ConnectionTimeout,
    /// The connection ended.
    ConnectionTermination,
    /// The peer broke the protocol.
    ProtocolError,
    /// We gave the stream up.
    LocalReset,
    /// The peer reset the stream.
    RemoteReset,
    /// The peer did not take the stream.
    RemoteRefused,
}

impl Reset {
    /// What a local reply says after `reset reason: `.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::LocalConnectionFailure(_) => "local connection failure",
            Self::RemoteConnectionFailure(_) | Self::Tls(_) => "remote connection failure",
            Self::ConnectionTimeout => "connection timeout",
            Self::ConnectionTermination => "connection termination",
            Self::ProtocolError => "protocol error",
            Self::LocalReset => "local reset",
            Self::RemoteReset => "remote reset",
            Self::RemoteRefused => "remote refused stream reset",
        }
    }

    /// `%RESPONSE_CODE_DETAILS%` of a stream that got no response.
    #[must_use]
    pub const fn before_response(self) -> &'static str {
        self.words().0
    }

    /// `%RESPONSE_CODE_DETAILS%` of a stream whose response had begun.
    #[must_use]
    pub const fn after_response(self) -> &'static str {
        self.words().1
    }

    /// `%UPSTREAM_TRANSPORT_FAILURE_REASON%`; empty when there is none.
    #[must_use]
    pub const fn transport_failure(self) -> &'static str {
        self.words().2
    }

    const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Overflow => words!("overflow"),
            Self::ConnectionTimeout => words!("connection_timeout"),
            Self::ConnectionTermination => words!("connection_termination"),
            Self::ProtocolError => words!("protocol_error"),
            Self::LocalReset => words!("local_reset"),
            Self::RemoteReset => words!("remote_reset"),
            Self::RemoteRefused => words!("remote_refused_stream_reset"),
            Self::Tls(fault) => tls_words(fault),
            Self::LocalConnectionFailure(failure) => {
                failures!(failure, "local_connection_failure", "immediate_connect_error:_")
            }
            Self::RemoteConnectionFailure(failure) => {
                failures!(failure, "remote_connection_failure", "delayed_connect_error:_")
            }
        }
    }
}

/// `%DOWNSTREAM_TRANSPORT_FAILURE_REASON%` of a client that has sent `first` before anything else; empty where there is
/// none. What BoringSSL does not say in the words that it has for servers.
pub(crate) fn client_failure(fault: Fault, is_ready: bool, first: &[u8]) -> &'static str {
    // In the order of BoringSSL, which looks at the five bytes that a record begins with.
    let is_request = [b"GET ", b"POST", b"HEAD", b"PUT "].iter().any(|it| first.starts_with(*it));
    let (_, _, words) = match fault {
        Fault::NotTls if is_request => ssl!("268435612", "HTTP_REQUEST"),
        Fault::NotTls if first.starts_with(b"CONNE") => {
            ssl!("268435611", "HTTPS_PROXY_REQUEST")
        }
        Fault::Certificate(Distrust::Missing) => ssl!(
            "268435648",
            "PEER_DID_NOT_RETURN_A_CERTIFICATE:peer did not provide required client certificate"
        ),
        Fault::Incompatible => ssl!("268435640", "NO_SHARED_CIPHER"),
        Fault::Decrypt if is_ready => words!(
            "remote_connection_failure",
            "TLS_error:|503316581:Cipher functions:OPENSSL_internal:BAD_DECRYPT|268435595:SSL \
             routines:OPENSSL_internal:DECRYPTION_FAILED_OR_BAD_RECORD_MAC:TLS_error_end|268435650:SSL \
             routines:OPENSSL_internal:PROTOCOL_IS_SHUTDOWN:TLS_error_end"
        ),
        Fault::Certificate(_)
        | Fault::Alert(_)
        | Fault::HelloRefused
        | Fault::NotTls
        | Fault::Version
        | Fault::Violation
        | Fault::Decrypt
        | Fault::Ended
        | Fault::Reset
        | Fault::Time
        | Fault::Internal
        | _ => tls_words(fault),
    };
    words
}

/// Why TLS failed, in the words of BoringSSL, whose error numbers are 2^28 and the reason's.
const fn tls_words(fault: Fault) -> (&'static str, &'static str, &'static str) {
    match fault {
        Fault::Certificate(distrust) => match distrust {
            Distrust::Expired => distrusted!("certificate has expired"),
            Distrust::NotYetValid => distrusted!("certificate is not yet valid"),
            Distrust::UnknownIssuer => distrusted!("unable to get local issuer certificate"),
            Distrust::SelfSigned => distrusted!("self signed certificate"),
            Distrust::Revoked => distrusted!(
                "certificate revocation check against provided CRLs failed: certificate revoked"
            ),
            Distrust::RevocationUnknown => distrusted!(
                "certificate revocation check against provided CRLs failed: unable to get certificate CRL"
            ),
            Distrust::Signature => distrusted!("certificate signature failure"),
            Distrust::Purpose => distrusted!("unsupported certificate purpose"),
            Distrust::Depth => distrusted!("certificate chain too long"),
            Distrust::KeyUsage => ssl!("268435758", "KEY_USAGE_BIT_INCORRECT"),
            Distrust::Name => refused!("SAN matcher"),
            Distrust::Pin => refused!("cert hash and spki"),
            Distrust::Missing => refused!("empty cert chain"),
            Distrust::Malformed | Distrust::Invalid | _ => refused!("invalid certificate"),
        },
        Fault::Alert(number) => alert_words(number),
        Fault::HelloRefused => ssl!(
            "268436496",
            "SSLV3_ALERT_HANDSHAKE_FAILURE|268435610:SSL routines:OPENSSL_internal:HANDSHAKE_FAILURE_ON_CLIENT_HELLO"
        ),
        Fault::NotTls => ssl!("268435703", "WRONG_VERSION_NUMBER"),
        Fault::Version => ssl!("268435696", "UNSUPPORTED_PROTOCOL"),
        Fault::Decrypt => ssl!("268435595", "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"),
        Fault::Reset => words!(
            "remote_connection_failure",
            "TLS_error:|33554536:system library:OPENSSL_internal:Connection reset by peer:TLS_error_end"
        ),
        Fault::Ended => words!("remote_connection_failure"),
        Fault::Incompatible => {
            words!("remote_connection_failure", "TLS_error:nothing in common:TLS_error_end")
        }
        Fault::Violation => {
            words!("remote_connection_failure", "TLS_error:protocol violation:TLS_error_end")
        }
        Fault::Time | Fault::Internal | _ => {
            words!("remote_connection_failure", "TLS_error:internal error:TLS_error_end")
        }
    }
}

/// An alert that the peer sent.
const fn alert_words(number: u8) -> (&'static str, &'static str, &'static str) {
    match number {
        10 => ssl!("268436466", "SSLV3_ALERT_UNEXPECTED_MESSAGE"),
        20 => ssl!("268436476", "SSLV3_ALERT_BAD_RECORD_MAC"),
        22 => ssl!("268436478", "TLSV1_ALERT_RECORD_OVERFLOW"),
        40 => ssl!("268436496", "SSLV3_ALERT_HANDSHAKE_FAILURE"),
        42 => ssl!("268436498", "SSLV3_ALERT_BAD_CERTIFICATE"),
        43 => ssl!("268436499", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"),
        44 => ssl!("268436500", "SSLV3_ALERT_CERTIFICATE_REVOKED"),
        45 => ssl!("268436501", "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
        46 => ssl!("268436502", "SSLV3_ALERT_CERTIFICATE_UNKNOWN"),
        47 => ssl!("268436503", "SSLV3_ALERT_ILLEGAL_PARAMETER"),
        48 => ssl!("268436504", "TLSV1_ALERT_UNKNOWN_CA"),
        49 => ssl!("268436505", "TLSV1_ALERT_ACCESS_DENIED"),
        50 => ssl!("268436506", "TLSV1_ALERT_DECODE_ERROR"),
        51 => ssl!("268436507", "TLSV1_ALERT_DECRYPT_ERROR"),
        70 => ssl!("268436526", "TLSV1_ALERT_PROTOCOL_VERSION"),
        71 => ssl!("268436527", "TLSV1_ALERT_INSUFFICIENT_SECURITY"),
        80 => ssl!("268436536", "TLSV1_ALERT_INTERNAL_ERROR"),
        112 => ssl!("268436568", "TLSV1_ALERT_UNRECOGNIZED_NAME"),
        116 => ssl!("268436572", "TLSV1_ALERT_CERTIFICATE_REQUIRED"),
        120 => ssl!("268436576", "TLSV1_ALERT_NO_APPLICATION_PROTOCOL"),
        _ => words!("remote_connection_failure", "TLS_error:alert:TLS_error_end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Envoy 1.40 logged them.
    #[test]
    fn failures_of_clients_are_worded_as_envoys() {
        let said = |fault, first: &[u8]| client_failure(fault, false, first);
        for (fault, first, wanted) in [
            (
                Fault::NotTls,
                &b"GET /"[..],
                "|268435612:SSL routines:OPENSSL_internal:HTTP_REQUEST:",
            ),
            (
                Fault::NotTls,
                b"CONNE",
                "|268435611:SSL routines:OPENSSL_internal:HTTPS_PROXY_REQUEST:",
            ),
            (
                Fault::NotTls,
                b"\xff\xff",
                "|268435703:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER:",
            ),
            (
                Fault::Incompatible,
                b"",
                "|268435640:SSL routines:OPENSSL_internal:NO_SHARED_CIPHER:",
            ),
            (Fault::Version, b"", "|268435696:SSL routines:OPENSSL_internal:UNSUPPORTED_PROTOCOL:"),
            (
                Fault::Certificate(Distrust::Missing),
                b"",
                "|268435648:SSL routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE:\
                 peer did not provide required client certificate:",
            ),
        ] {
            assert_eq!(said(fault, first), format!("TLS_error:{wanted}TLS_error_end"));
        }
        assert_eq!(said(Fault::Ended, b""), "");
        assert!(client_failure(Fault::Decrypt, true, b"").contains("BAD_DECRYPT"));
        assert!(!client_failure(Fault::Decrypt, false, b"").contains("BAD_DECRYPT"));
    }

    /// As Envoy 1.40 logged them.
    #[test]
    fn resets_are_worded_as_envoys() {
        let refused = Reset::RemoteConnectionFailure(Failure::Refused);
        assert_eq!(
            refused.before_response(),
            "upstream_reset_before_response_started\
             {remote_connection_failure|delayed_connect_error:_Connection_refused}"
        );
        assert_eq!(refused.transport_failure(), "delayed_connect_error:_Connection_refused");
        assert_eq!(refused.reason(), "remote connection failure");
        assert_eq!(
            Reset::ConnectionTermination.before_response(),
            "upstream_reset_before_response_started{connection_termination}"
        );
        assert_eq!(
            Reset::ProtocolError.after_response(),
            "upstream_reset_after_response_started{protocol_error}"
        );
        assert_eq!(Reset::Overflow.transport_failure(), "");
        let expired = Reset::Tls(Fault::Certificate(Distrust::Expired));
        assert_eq!(
            expired.transport_failure(),
            "TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: \
             X509_verify_cert: certificate verification error at depth 0: certificate has expired:TLS_error_end"
        );
        assert_eq!(
            Reset::Tls(Fault::Alert(70)).before_response(),
            "upstream_reset_before_response_started{remote_connection_failure|TLS_error:|268436526:\
             SSL routines:OPENSSL_internal:TLSV1_ALERT_PROTOCOL_VERSION:TLS_error_end}"
        );
        assert_eq!(
            Reset::Tls(Fault::Ended).before_response(),
            "upstream_reset_before_response_started{remote_connection_failure}"
        );
    }
}
