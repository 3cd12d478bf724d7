//! What the log of a cluster's health checks says: Envoy's `HealthCheckEvent` as JSON, one a line.
//!
//! Envoy `HealthCheck.event_logger` with `HealthCheckEventFileSink`, and `event_log_path`. The fields stand in the
//! order of their numbers.

use std::io::Write as _;

use towpath_proto::{Address, Instant};

use super::probe::Outcome;
use super::session::Session;
use crate::format::iso_8601;
use crate::json::json_string;
use crate::snapshot::health::{HealthFlags, HealthLog, Probe};
use crate::stream_info::{JsonStyle, write_struct};
use crate::wall_clock::WallClock;

/// What a check came to, of which there may be several things to tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Concluded {
    pub(super) outcome: Outcome,
    /// The status of the host's answer, if it was one of HTTP.
    pub(super) http_status: u16,
    /// It was the host's first.
    pub(super) first: bool,
    pub(super) before: HealthFlags,
    pub(super) after: HealthFlags,
}

/// Envoy's `oneof event`.
#[derive(Clone, Copy, Debug)]
enum Event {
    EjectUnhealthy,
    AddHealthy,
    Failure,
    Degraded,
    NoLongerDegraded,
    Successful,
}

impl Concluded {
    /// Writes the lines that a cluster's log wants, in Envoy's order.
    pub(super) fn write(
        &self,
        session: &Session,
        cluster: &str,
        log: &HealthLog,
        at: (Instant, &WallClock),
        out: &mut Vec<u8>,
    ) {
        let (before, after) = (self.before, self.after);
        let mut tell = |event| self.write_event(event, session, cluster, at, out);
        if matches!(self.outcome, Outcome::Success { .. }) {
            if before.failed_check && !after.failed_check {
                tell(Event::AddHealthy);
            } else if log.successes {
                tell(Event::Successful);
            }
            match (before.degraded, after.degraded) {
                (false, true) => tell(Event::Degraded),
                (true, false) => tell(Event::NoLongerDegraded),
                (false, false) | (true, true) => {}
            }
            return;
        }
        if !before.failed_check && after.failed_check {
            tell(Event::EjectUnhealthy);
        }
        if self.first || log.failures {
            tell(Event::Failure);
        }
    }

    fn write_event(
        &self,
        event: Event,
        session: &Session,
        cluster: &str,
        (now, clock): (Instant, &WallClock),
        out: &mut Vec<u8>,
    ) {
        let checker = match session.checks.config.probe {
            Probe::Http(_) => "HTTP",
            Probe::Tcp(_) => "TCP",
            Probe::Grpc(_)
            // Such a check has no log.
            | Probe::Bolt(_) => "GRPC",
        };
        let _ = write!(out, "{{\"health_checker_type\":\"{checker}\",\"host\":");
        write_address(&session.host, out);
        out.extend_from_slice(b",\"cluster_name\":");
        json_string(out, cluster.as_bytes());
        let (kind, status, first) = (self.failure_type(), self.failure_status(), self.first);
        let failure = format!("\"failure_type\":\"{kind}\"");
        let _ = match event {
            Event::EjectUnhealthy => write!(
                out,
                ",\"eject_unhealthy_event\":{{{failure},\"http_status_code\":{status}}}"
            ),
            Event::AddHealthy => write!(out, ",\"add_healthy_event\":{{\"first_check\":{first}}}"),
            Event::Failure | Event::Degraded | Event::NoLongerDegraded | Event::Successful => {
                Ok(())
            }
        };
        out.extend_from_slice(b",\"timestamp\":\"");
        iso_8601(out, clock.since_1970(now));
        out.push(b'"');
        let _ = match event {
            Event::Failure => write!(
                out,
                ",\"health_check_failure_event\":{{{failure},\"first_check\":{first},\
                 \"http_status_code\":{status}}}"
            ),
            Event::Degraded => write!(out, ",\"degraded_healthy_host\":{{}}"),
            Event::NoLongerDegraded => write!(out, ",\"no_longer_degraded_host\":{{}}"),
            Event::EjectUnhealthy | Event::AddHealthy | Event::Successful => Ok(()),
        };
        if let Some(metadata) = &session.filter_metadata {
            out.extend_from_slice(b",\"metadata\":{\"filter_metadata\":");
            write_struct(out, metadata, JsonStyle::Protobuf);
            out.extend_from_slice(b",\"typed_filter_metadata\":{}}");
        }
        write_locality(&session.locality, out);
        if matches!(event, Event::Successful) {
            out.extend_from_slice(b",\"successful_health_check_event\":{}");
        }
        out.extend_from_slice(b"}\n");
    }

    /// Envoy's `HealthCheckFailureType`.
    const fn failure_type(&self) -> &'static str {
        match self.outcome {
            Outcome::Success { .. } | Outcome::Refused | Outcome::Retriable => "ACTIVE",
            Outcome::Broken => "NETWORK",
            Outcome::TimedOut => "NETWORK_TIMEOUT",
        }
    }

    const fn failure_status(&self) -> u16 {
        match self.outcome {
            Outcome::Refused | Outcome::Retriable => self.http_status,
            Outcome::Success { .. } | Outcome::Broken | Outcome::TimedOut => 0,
        }
    }
}

/// Envoy's `Address`.
fn write_address(address: &Address, out: &mut Vec<u8>) {
    let _ = match address {
        Address::Ip(address) => write!(
            out,
            "{{\"socket_address\":{{\"protocol\":\"TCP\",\"address\":\"{}\",\"port_value\":{},\
             \"resolver_name\":\"\",\"ipv4_compat\":false,\"network_namespace_filepath\":\"\"}}}}",
            address.ip(),
            address.port()
        ),
        Address::Unix(path) => {
            out.extend_from_slice(b"{\"pipe\":{\"path\":");
            json_string(out, path.as_os_str().as_encoded_bytes());
            write!(out, ",\"mode\":0}}}}")
        }
        Address::Internal(name) => {
            let (listener, endpoint) = name.split_once('/').unwrap_or((name, ""));
            out.extend_from_slice(b"{\"envoy_internal_address\":{\"server_listener_name\":");
            json_string(out, listener.as_bytes());
            out.extend_from_slice(b",\"endpoint_id\":");
            json_string(out, endpoint.as_bytes());
            write!(out, "}}}}")
        }
    };
}

/// Envoy's `Locality`, of `region/zone/sub_zone`.
fn write_locality(locality: &str, out: &mut Vec<u8>) {
    let mut parts = locality.splitn(3, '/');
    for (index, name) in ["region", "zone", "sub_zone"].into_iter().enumerate() {
        let _ = match index {
            0 => write!(out, ",\"locality\":{{\"{name}\":"),
            _ => write!(out, ",\"{name}\":"),
        };
        json_string(out, parts.next().unwrap_or("").as_bytes());
    }
    out.push(b'}');
}
