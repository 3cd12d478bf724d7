//! What the log of outlier detection says of a host that is left out or comes back: Envoy's `OutlierDetectionEvent` as
//! JSON, one a line (`cluster_manager.outlier_detection.event_log_path`).

use std::io::Write as _;
use std::time::Duration;

use towpath_proto::{Address, Instant};

use super::outlier::EjectionType;
use crate::format::iso_8601;
use crate::json::json_string;
use crate::snapshot::health::Run;
use crate::tally::Origin;
use crate::wall_clock::WallClock;

/// Something that happened to a host.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) host: Address,
    pub(super) at: Instant,
    /// How often it was left out so far.
    pub(super) ejections: u32,
    /// Since it was left out or came back, whichever is the opposite.
    pub(super) since_last: Option<Duration>,
    pub(super) action: Action,
}

#[derive(Debug)]
pub(super) enum Action {
    /// It was found wanting, and is left out if that is enforced.
    Eject { of_type: EjectionType, enforced: bool },
    /// It came back.
    Return,
}

impl Event {
    /// Its line.
    pub(super) fn write(&self, cluster: &str, clock: &WallClock, out: &mut Vec<u8>) {
        let of_type = match &self.action {
            Action::Eject { of_type, .. } => of_type,
            // The default of protobuf's field.
            Action::Return => &EjectionType::Run(Run::Errors),
        };
        let _ = write!(out, "{{\"type\":\"{}\",\"timestamp\":\"", of_type.name());
        iso_8601(out, clock.since_1970(self.at));
        out.extend_from_slice(b"\",");
        if let Some(since) = self.since_last {
            let _ = write!(out, "\"secs_since_last_action\":\"{}\",", since.as_secs());
        }
        out.extend_from_slice(b"\"cluster_name\":");
        json_string(out, cluster.as_bytes());
        out.extend_from_slice(b",\"upstream_url\":");
        json_string(out, self.host.to_string().as_bytes());
        let (action, enforced) = match self.action {
            Action::Eject { enforced, .. } => ("EJECT", enforced),
            Action::Return => ("UNEJECT", false),
        };
        let ejections = self.ejections;
        let _ = write!(
            out,
            ",\"action\":\"{action}\",\"num_ejections\":{ejections},\"enforced\":{enforced}"
        );
        if let Action::Eject { of_type, .. } = &self.action {
            let _ = match of_type {
                EjectionType::Run(_) | EjectionType::Degraded => {
                    write!(out, ",\"eject_consecutive_event\":{{}}")
                }
                EjectionType::Success { rate, mean, threshold, .. } => write!(
                    out,
                    ",\"eject_success_rate_event\":{{\"host_success_rate\":{rate},\
                     \"cluster_average_success_rate\":{mean},\
                     \"cluster_success_rate_ejection_threshold\":{threshold}}}"
                ),
                EjectionType::Failure { rate, .. } => write!(
                    out,
                    ",\"eject_failure_percentage_event\":{{\"host_success_rate\":{rate}}}"
                ),
            };
        }
        out.extend_from_slice(b"}\n");
    }
}

impl EjectionType {
    /// Envoy's `OutlierEjectionType`.
    const fn name(&self) -> &'static str {
        match self {
            Self::Degraded => "DEGRADED",
            Self::Run(Run::Errors) => "CONSECUTIVE_5XX",
            Self::Run(Run::Gateway) => "CONSECUTIVE_GATEWAY_FAILURE",
            Self::Run(Run::Local) => "CONSECUTIVE_LOCAL_ORIGIN_FAILURE",
            Self::Success { origin: Origin::External, .. } => "SUCCESS_RATE",
            Self::Success { origin: Origin::Local, .. } => "SUCCESS_RATE_LOCAL_ORIGIN",
            Self::Failure { origin: Origin::External, .. } => "FAILURE_PERCENTAGE",
            Self::Failure { origin: Origin::Local, .. } => "FAILURE_PERCENTAGE_LOCAL_ORIGIN",
        }
    }
}
