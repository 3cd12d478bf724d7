//! What went wrong here, told to clients: Envoy's `proxy_status_config`, RFC 9209.

use towpath_proto::head::Head;

use crate::record::{Flags, Record};
use crate::snapshot::http::ProxyStatus;

/// An error of RFC 9209 §2.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Error {
    name: &'static str,
    /// The status that goes with it, if it is one of our own making.
    recommended: Option<u16>,
}

/// Adds what a stream's flags say to the head of its answer; nothing where there is no flag that is an error.
#[cold]
pub(crate) fn tell(config: &ProxyStatus, flags: Flags, record: &Record, head: &mut Head) {
    let Some(error) = error_of(flags) else { return };
    let mut value = format!("{}; error={}", config.name, error.name).into_bytes();
    if config.tells_details && !record.details.is_empty() {
        let mut details = vec![record.details.to_owned()];
        if config.tells_termination && !record.termination.is_empty() {
            details.push(record.termination.to_owned());
        }
        if config.tells_flags {
            details.push(flags.short_names().collect::<Vec<_>>().join(","));
        }
        value.extend_from_slice(b"; details=\"");
        value.extend(details.join("; ").bytes().flat_map(escaped));
        value.push(b'"');
    }
    // RFC 9110 §5.3: one line, where servers before this one have said theirs.
    if let Some(before) = head.get_bytes(NAME) {
        value = [before, b", ", &value].concat();
    }
    head.set_bytes(NAME, &value);
    if let Some(status) = error.recommended.filter(|_| config.sets_status) {
        head.set_status(status);
    }
}

/// The error that some flags stand for. Of several it is the one that Envoy tells.
fn error_of(flags: Flags) -> Option<Error> {
    ERRORS.iter().find(|(flag, _)| flags.has(*flag)).map(|(_, error)| *error)
}

fn escaped(byte: u8) -> impl Iterator<Item = u8> {
    let (before, byte) = match byte {
        b'\r' => (Some(b'\\'), b'r'),
        b'\n' => (Some(b'\\'), b'n'),
        b'\t' => (Some(b'\\'), b't'),
        b'"' => (Some(b'\\'), b'"'),
        byte => (None, byte),
    };
    before.into_iter().chain([byte])
}

const fn error(name: &'static str, status: u16) -> Error {
    Error { name, recommended: if status == 0 { None } else { Some(status) } }
}

const UNAVAILABLE: Error = error("destination_unavailable", 503);
const LATE: Error = error("http_response_timeout", 504);
const CONNECT_LATE: Error = error("connection_timeout", 504);
const TERMINATED: Error = error("connection_terminated", 502);
const REFUSED: Error = error("connection_refused", 502);
const LIMITED: Error = error("connection_limit_reached", 503);
const REQUEST: Error = error("http_request_error", 0);

const NAME: &[u8] = b"proxy-status";

/// In Envoy's order. What is no request gets its flag too late there to be told.
const ERRORS: [(Flags, Error); 26] = [
    (Flags::FAILED_LOCAL_HEALTH_CHECK, UNAVAILABLE),
    (Flags::NO_HEALTHY_UPSTREAM, UNAVAILABLE),
    (Flags::UPSTREAM_REQUEST_TIMEOUT, LATE),
    (Flags::DURATION_TIMEOUT, CONNECT_LATE),
    (Flags::LOCAL_RESET, CONNECT_LATE),
    (Flags::UPSTREAM_REMOTE_RESET, TERMINATED),
    (Flags::UPSTREAM_CONNECTION_FAILURE, REFUSED),
    (Flags::UNAUTHORIZED_EXTERNAL_SERVICE, REFUSED),
    (Flags::UPSTREAM_CONNECTION_TERMINATION, TERMINATED),
    (Flags::OVERLOAD_MANAGER, LIMITED),
    (Flags::DROP_OVERLOAD, LIMITED),
    (Flags::FAULT_INJECTED, REQUEST),
    (Flags::DOWNSTREAM_CONNECTION_TERMINATION, TERMINATED),
    (Flags::DOWNSTREAM_REMOTE_RESET, TERMINATED),
    (Flags::UPSTREAM_OVERFLOW, LIMITED),
    (Flags::NO_ROUTE_FOUND, error("destination_not_found", 500)),
    (Flags::RATE_LIMITED, LIMITED),
    (Flags::RATELIMIT_SERVICE_ERROR, LIMITED),
    (Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED, UNAVAILABLE),
    (Flags::STREAM_IDLE_TIMEOUT, LATE),
    (Flags::INVALID_ENVOY_REQUEST_HEADERS, REQUEST),
    (Flags::UPSTREAM_MAX_STREAM_DURATION, LATE),
    (Flags::NO_FILTER_CONFIG_FOUND, error("proxy_configuration_error", 500)),
    (Flags::UPSTREAM_PROTOCOL_ERROR, error("http_protocol_error", 502)),
    (Flags::NO_CLUSTER_FOUND, UNAVAILABLE),
    (Flags::DNS_RESOLUTION_FAILED, error("dns_error", 502)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn told(config: &ProxyStatus, flags: Flags) -> (u16, String) {
        let mut head = Head::response(503);
        head.append_bytes(NAME, b"before; error=dns_error");
        let record = Record { details: "a \"word\"", ..Record::default() };
        tell(config, flags, &record, &mut head);
        let value = head.get_bytes(NAME).unwrap_or_default();
        (head.status(), String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn an_error_is_told_behind_those_of_other_proxies() {
        let mut config = ProxyStatus {
            name: "here".into(),
            tells_details: true,
            tells_termination: true,
            tells_flags: true,
            sets_status: false,
        };
        let flags = Flags::NO_ROUTE_FOUND.with(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED);
        let before = "before; error=dns_error";
        let whole =
            format!(r#"{before}, here; error=destination_not_found; details="a \"word\"; URX,NR""#);
        assert_eq!(told(&config, flags), (503, whole));
        (config.tells_details, config.sets_status) = (false, true);
        let short = format!("{before}, here; error=destination_not_found");
        assert_eq!(told(&config, flags), (500, short));
        assert_eq!(told(&config, Flags::NONE), (503, before.to_owned()));
        assert_eq!(told(&config, Flags::DELAY_INJECTED), (503, before.to_owned()));
    }
}
