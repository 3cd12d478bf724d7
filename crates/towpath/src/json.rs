//! A report as JSON, for programs in any language.

use std::fmt::{self, Write as _};
use std::time::Duration;

use towpath_engine::json::json_string;
use towpath_engine::local::report::{
    Answerer, Attempt, AttemptOutcome, Limited, Lookup, Ping, Report, Rested, Resumed, Try, Widened,
};
use towpath_proto::head::Version;
use towpath_proto::{FlowLimit, Instant};

use crate::proxy::describe;

/// A report as one JSON object, without line breaks. Times are milliseconds since the request began; what did not
/// happen is `null`.
///
/// | Key | Value |
/// |---|---|
/// | `schema` | 1; rises when a key changes its meaning |
/// | `network` | the label of the network that it began on |
/// | `proxy` | the proxy that it goes through, in words; `null` without one |
/// | `priority` | `high`, `normal` or `low` |
/// | `status` | the response's status; 0 without one |
/// | `bytes_sent`, `bytes_received` | of the bodies, as the app sees it |
/// | `lookups` | questions for addresses, [below](#members-of-lists) |
/// | `attempts` | connection attempts: `address`, `why`, `known`, `started_ms`, `ended_ms`, `outcome` |
/// | `tries` | each time that it was given to a connection, [below](#members-of-lists) |
/// | `retries`, `redone` | repetitions after a failure; on a standby connection |
/// | `hedges` | how often it was sent a second time beside the first |
/// | `resumed` | times that its response went on on another connection: `at_ms`, `from` (bytes that had come before) |
/// | `pings` | PINGs on its connection: `at_ms`, `connection`, `answered_ms` |
/// | `limits` | bounds on what its connection has under way, because its path is slow, [below](#members-of-lists) |
/// | `widened` | times that the window of each response on its connection grew (HTTP/2): `at_ms`, `bytes` |
/// | `rests` | waits because the origin answered 429 or 503, [below](#members-of-lists) |
/// | `timed_out` | the limit on time that ended it |
/// | `sent_ms`, `first_byte_ms`, `total_ms` | the request's last byte out, the response's first byte in, the end |
///
/// # Members of lists
///
/// - `lookups`: `asked_ms`, `answered_ms`, `addresses` (how many; `null` when it failed), `by` (`system`, `app`, or
///   `https`: DNS over HTTPS; `null` without an answer), `failure` (why there are none; else `null`).
/// - `tries`: `began_ms`, `peer`, `connection`, `protocol` (`HTTP/1.1`, `HTTP/2`), `reused`, `shared` (the name that
///   the connection was opened for, if another; else `null`), `hedge` (beside another), `reset_reason`.
/// - `limits`: `at_ms`, and `receive_bytes` (from the server) or `send_bytes_per_s`, `null` when it is taken back.
/// - `rests`: `began_ms`, `until_ms`, `asked` (it named the time), `status` (`null` where it had answered another
///   request).
#[must_use]
pub fn to_json(report: &Report) -> String {
    let record = &report.record;
    let at = |at: Instant| Milliseconds(at - record.start);
    let mut json = String::from("{\"schema\":1");
    let mut add = |name: &str, value: &dyn fmt::Display| {
        let _ = write!(json, ",\"{name}\":{value}");
    };
    add("network", &Text(&report.network));
    let proxy = report.proxy.as_ref().map(|proxy| describe(proxy));
    add("proxy", &OrNull(proxy.as_deref().map(Text)));
    add("priority", &Text(report.priority.as_str()));
    add("status", &record.status);
    // The engine's words are those of a proxy, whose downstream side the app is here.
    add("bytes_sent", &record.bytes_received);
    add("bytes_received", &record.bytes_sent);
    add("lookups", &list(&report.lookups, |one| lookup(one, at)));
    add("attempts", &list(&report.attempts, |one| attempt(one, at)));
    add("tries", &list(&report.tries, |one| attempted(one, at)));
    add("retries", &report.retries);
    add("redone", &report.redone);
    add("hedges", &report.hedges);
    add("resumed", &list(&report.resumed, |one| resumed(one, at)));
    add("pings", &list(&report.pings, |one| ping(one, at)));
    add("limits", &list(&report.limits, |one| limited(one, at)));
    add("widened", &list(&report.widened, |one| widened(one, at)));
    add("rests", &list(&report.rests, |one| rested(one, at)));
    add("timed_out", &OrNull(report.fired.map(|layer| Text(layer.as_str()))));
    add("sent_ms", &OrNull(record.upstream_last_sent.map(at)));
    add("first_byte_ms", &OrNull(record.response_start.map(at)));
    add("total_ms", &OrNull(record.end.map(at)));
    json.push('}');
    json
}

fn lookup(one: &Lookup, at: impl Fn(Instant) -> Milliseconds) -> String {
    let addresses = one.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok());
    let (by, fault) = match one.by {
        Answerer::System => ("system", None),
        Answerer::App => ("app", None),
        Answerer::Https(fault) => ("https", fault.as_ref().map(ToString::to_string)),
    };
    let failure = one.outcome.as_ref().and_then(|outcome| outcome.as_ref().err());
    let failure = fault.or_else(|| failure.map(ToString::to_string));
    format!(
        "{{\"asked_ms\":{},\"answered_ms\":{},\"addresses\":{},\"by\":{},\"failure\":{}}}",
        at(one.asked),
        OrNull(one.answered.map(at)),
        OrNull(addresses),
        OrNull(one.answered.map(|_| Text(by))),
        OrNull(failure.as_deref().map(Text))
    )
}

fn attempt(one: &Attempt, at: impl Fn(Instant) -> Milliseconds) -> String {
    let outcome = one.outcome.map(|outcome| match outcome {
        AttemptOutcome::Usable => "connected".to_owned(),
        AttemptOutcome::Failed(failure) => failure.to_string(),
        AttemptOutcome::Tls(fault) => fault.to_string(),
        AttemptOutcome::Proxy(refusal) => format!("proxy: {refusal}"),
        AttemptOutcome::GivenUp => "given up".to_owned(),
    });
    format!(
        "{{\"address\":\"{}\",\"why\":{},\"known\":{},\"started_ms\":{},\"ended_ms\":{},\"outcome\":{}}}",
        one.address,
        Text(one.why.as_str()),
        Text(&one.known),
        at(one.started),
        OrNull(one.ended.map(at)),
        OrNull(outcome.as_deref().map(Text))
    )
}

fn attempted(one: &Try, at: impl Fn(Instant) -> Milliseconds) -> String {
    format!(
        "{{\"began_ms\":{},\"peer\":{},\"connection\":{},\"protocol\":\"{}\",\"reused\":{},\"shared\":{},\"hedge\":\
        {},\"reset_reason\":{}}}",
        at(one.began),
        Text(&one.peer.to_string()),
        one.connection,
        protocol(one.version),
        one.reused,
        OrNull(one.shared.as_deref().map(Text)),
        one.hedge,
        Text(one.reset_reason)
    )
}

/// As in a request line, or as RFC 9113 calls it.
pub(crate) const fn protocol(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2",
        Version::Http3 | _ => "HTTP/3",
    }
}

fn resumed(one: &Resumed, at: impl Fn(Instant) -> Milliseconds) -> String {
    format!("{{\"at_ms\":{},\"from\":{}}}", at(one.at), one.from)
}

fn ping(one: &Ping, at: impl Fn(Instant) -> Milliseconds) -> String {
    format!(
        "{{\"at_ms\":{},\"connection\":{},\"answered_ms\":{}}}",
        at(one.at),
        one.connection,
        OrNull(one.answered.map(at))
    )
}

fn limited(one: &Limited, at: impl Fn(Instant) -> Milliseconds) -> String {
    let (key, value) = match one.limit {
        FlowLimit::Receive(bytes) => ("receive_bytes", bytes),
        FlowLimit::Send(rate) => ("send_bytes_per_s", rate),
    };
    format!("{{\"at_ms\":{},\"{key}\":{}}}", at(one.at), OrNull(value))
}

fn widened(one: &Widened, at: impl Fn(Instant) -> Milliseconds) -> String {
    format!("{{\"at_ms\":{},\"bytes\":{}}}", at(one.at), one.bytes)
}

fn rested(one: &Rested, at: impl Fn(Instant) -> Milliseconds) -> String {
    format!(
        "{{\"began_ms\":{},\"until_ms\":{},\"asked\":{},\"status\":{}}}",
        at(one.began),
        at(one.until),
        one.asked,
        OrNull(one.status)
    )
}

fn list<T>(all: &[T], one: impl Fn(&T) -> String) -> String {
    format!("[{}]", all.iter().map(one).collect::<Vec<_>>().join(","))
}

struct Milliseconds(Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0.as_secs_f64() * 1e3)
    }
}

struct OrNull<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for OrNull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null"),
        }
    }
}

/// A string (RFC 8259 §7).
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut quoted = Vec::with_capacity(self.0.len() + 2);
        json_string(&mut quoted, self.0.as_bytes());
        f.write_str(&String::from_utf8_lossy(&quoted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted() {
        assert_eq!(Text("a\"b\\c\n\u{1}é").to_string(), r#""a\"b\\c\n\u0001é""#);
    }

    #[test]
    fn an_empty_report_has_every_key() {
        let json = to_json(&Report::default());
        assert_eq!(
            json,
            "{\"schema\":1,\"network\":\"\",\"proxy\":null,\"priority\":\"normal\",\"status\":0,\
             \"bytes_sent\":0,\"bytes_received\":0,\
             \"lookups\":[],\"attempts\":[],\"tries\":[],\"retries\":0,\"redone\":0,\"hedges\":0,\"resumed\":\
             [],\"pings\":[],\
             \"limits\":[],\"widened\":[],\"rests\":[],\"timed_out\":null,\
             \"sent_ms\":null,\"first_byte_ms\":null,\"total_ms\":null}"
        );
    }
}
