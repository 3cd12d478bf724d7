//! What happened to a request, in the order in which it happened, in words.

use std::fmt;
use std::time::Duration;

use towpath_engine::client::priority::Priority;
use towpath_engine::local::report::{Answerer, AttemptOutcome, OTHER_FIRST, Report};
use towpath_proto::{FlowLimit, Instant};

use crate::json::protocol;
use crate::proxy::describe;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Since the request began.
    pub at: Duration,
    /// What.
    pub what: String,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10.1} ms  {}", self.at.as_secs_f64() * 1e3, self.what)
    }
}

/// Everything that a report tells.
#[must_use]
pub fn entries(report: &Report) -> Vec<Entry> {
    let record = &report.record;
    let start = record.start;
    let mut list = Vec::new();
    let mut add = |at: Instant, what: String| list.push((at, what));
    if report.priority != Priority::default() {
        add(start, format!("begin with {} priority", report.priority.as_str()));
    }
    if let Some(proxy) = &report.proxy {
        add(start, format!("through the proxy {}", describe(proxy)));
    }
    for lookup in &report.lookups {
        add(lookup.asked, "ask for addresses".to_owned());
        if let (Some(at), Some(outcome)) = (lookup.answered, &lookup.outcome) {
            let by = match lookup.by {
                Answerer::System | Answerer::App => "",
                Answerer::Https(_) => " by DNS over HTTPS",
            };
            add(
                at,
                match (outcome, lookup.by) {
                    (Ok(1), _) => format!("1 address{by}"),
                    (Ok(count), _) => format!("{count} addresses{by}"),
                    (Err(_), Answerer::Https(Some(fault))) => format!("no addresses{by}: {fault}"),
                    (Err(failure), _) => format!("no addresses{by}: {failure}"),
                },
            );
        }
    }
    for (number, attempt) in report.attempts.iter().enumerate() {
        let number = number + 1;
        let known = if attempt.known.is_empty() {
            String::new()
        } else {
            format!("; known: {}", attempt.known)
        };
        let (address, why) = (attempt.address, attempt.why.as_str());
        add(attempt.started, format!("attempt {number}: connect to {address} ({why}{known})"));
        if let (Some(at), Some(outcome)) = (attempt.ended, attempt.outcome) {
            add(
                at,
                match outcome {
                    AttemptOutcome::Usable => format!("attempt {number}: connected"),
                    AttemptOutcome::Tls(fault) => format!("attempt {number}: {fault}"),
                    AttemptOutcome::Failed(failure) => format!("attempt {number}: {failure}"),
                    AttemptOutcome::Proxy(refusal) => format!("attempt {number}: proxy: {refusal}"),
                    AttemptOutcome::GivenUp => format!("attempt {number}: given up"),
                },
            );
        }
    }
    for (number, each) in report.tries.iter().enumerate() {
        let reused = if each.reused { "used before" } else { "new" };
        let of =
            each.shared.as_ref().map(|name| format!(", opened for {name}")).unwrap_or_default();
        let again = match (number, each.hedge) {
            (0, _) => "send",
            (_, true) => "send beside it",
            (_, false) => "send again",
        };
        add(
            each.began,
            format!(
                "{again} on connection {} to {} ({}, {reused}{of})",
                each.connection,
                each.peer,
                protocol(each.version)
            ),
        );
        if each.reset_reason == OTHER_FIRST {
            let at = record.upstream_first_received.or(record.end).unwrap_or(each.began);
            add(at, format!("given up on connection {}: {OTHER_FIRST}", each.connection));
        } else if !each.reset_reason.is_empty() {
            let next = report.tries.get(number + 1).map(|next| next.began).or(record.end);
            add(next.unwrap_or(each.began), format!("given up there: {}", each.reset_reason));
        }
    }
    for ping in &report.pings {
        add(ping.at, format!("PING on connection {}", ping.connection));
        if let Some(at) = ping.answered {
            add(at, format!("connection {} answers", ping.connection));
        }
    }
    for resumed in &report.resumed {
        add(resumed.at, format!("response goes on behind byte {}", resumed.from));
    }
    for limited in &report.limits {
        add(
            limited.at,
            match limited.limit {
                FlowLimit::Receive(Some(bytes)) => {
                    format!("a long path: the server may have {} KiB under way", bytes >> 10)
                }
                FlowLimit::Receive(None) => "the way bears more than that".to_owned(),
                FlowLimit::Send(Some(rate)) => {
                    format!("a queue stands: send {} KiB/s, as the way delivers", rate >> 10)
                }
                FlowLimit::Send(None) => "send as congestion control lets".to_owned(),
            },
        );
    }
    for widened in &report.widened {
        let kib = widened.bytes >> 10;
        add(widened.at, format!("the path bears more: responses may have {kib} KiB under way"));
    }
    for rest in &report.rests {
        let whom = match rest.status {
            Some(status) => format!("it answered {status}"),
            None => "it has too much to do".to_owned(),
        };
        let wish = if rest.asked { ", as it asked" } else { "" };
        let wait_s = (rest.until - rest.began).as_secs_f64();
        add(rest.began, format!("leave the origin alone for {wait_s:.1} s{wish}: {whom}"));
    }
    if let Some(at) = record.upstream_last_sent {
        add(at, format!("request sent: {} bytes of body", record.bytes_received));
    }
    if let Some(at) = record.response_start {
        add(at, format!("response begins: {}", record.status));
    }
    if let Some(at) = record.end {
        let end = match report.fired {
            Some(layer) => format!("end: the limit on time for the {} passed", layer.as_str()),
            None => format!("end: {} bytes of body", record.bytes_sent),
        };
        add(at, end);
    }
    list.sort_by_key(|(at, _)| *at);
    list.into_iter().map(|(at, what)| Entry { at: at - start, what }).collect()
}
