//! Outlier detection: which hosts are left out for their answers.

use std::time::Duration;

use towpath_engine::snapshot::SinkId;
use towpath_engine::snapshot::health::{Comparison, OutlierDetection, Rule};
use towpath_engine::snapshot::log::Sink;

use super::Converter;
use crate::message::Message;

impl Converter<'_> {
    /// Where it is told which hosts are left out.
    pub(super) fn outlier_log(&mut self, bootstrap: &Message) -> Option<SinkId> {
        let manager = bootstrap.message("cluster_manager")?;
        let path = manager.message("outlier_detection")?.text("event_log_path");
        (!path.is_empty()).then(|| self.sink(Sink::File(path.into())))
    }

    /// The outlier detection of a cluster.
    pub(super) fn outliers(&mut self, cluster: &Message) -> Option<OutlierDetection> {
        let message = cluster.message("outlier_detection")?;
        let split = message.flag("split_external_local_origin_errors");
        let number = |name, default| message.number32(name).unwrap_or(default);
        let rule = |threshold, enforcing, default| Rule {
            threshold: number(threshold, 5),
            enforcing: number(enforcing, default),
        };
        let duration = |name, default| message.duration(name).unwrap_or(default);
        let base_time = duration("base_ejection_time", BASE_TIME);
        let max_time = duration("max_ejection_time", MAX_TIME.max(base_time));
        if max_time < base_time {
            self.report.problem(
                message.at("max_ejection_time"),
                "must not be less than base_ejection_time",
            );
        }
        Some(OutlierDetection {
            errors: rule("consecutive_5xx", "enforcing_consecutive_5xx", 100),
            gateway: rule(
                "consecutive_gateway_failure",
                "enforcing_consecutive_gateway_failure",
                0,
            ),
            local: rule(
                "consecutive_local_origin_failure",
                "enforcing_consecutive_local_origin_failure",
                100,
            ),
            split,
            interval: duration("interval", INTERVAL),
            base_time,
            max_time,
            jitter: duration("max_ejection_time_jitter", Duration::ZERO),
            max_percent: number("max_ejection_percent", 10),
            always_one: message.wrapped_flag("always_eject_one_host").unwrap_or(false),
            returns_when_checked: message
                .wrapped_flag("successful_active_health_check_uneject_host")
                .unwrap_or(true),
            detects_degraded: message.wrapped_flag("detect_degraded_hosts").unwrap_or(false),
            comparison: Comparison {
                success_hosts: number("success_rate_minimum_hosts", 5),
                success_volume: number("success_rate_request_volume", 100),
                stdev_factor: number("success_rate_stdev_factor", 1900),
                enforcing_success: [
                    number("enforcing_success_rate", 100),
                    number("enforcing_local_origin_success_rate", 100),
                ],
                failure_hosts: number("failure_percentage_minimum_hosts", 5),
                failure_volume: number("failure_percentage_request_volume", 50),
                failure_percent: number("failure_percentage_threshold", 85),
                enforcing_failure: [
                    number("enforcing_failure_percentage", 0),
                    number("enforcing_failure_percentage_local_origin", 0),
                ],
            },
        })
    }
}

const INTERVAL: Duration = Duration::from_secs(10);
const BASE_TIME: Duration = Duration::from_secs(30);
const MAX_TIME: Duration = Duration::from_secs(300);
