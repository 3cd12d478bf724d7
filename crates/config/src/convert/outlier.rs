//! Outlier detection: which hosts are left out for their answers.

use std::time::Duration;

use towpath_engine::snapshot::health::{OutlierDetection, Rule};

use super::Converter;
use crate::message::Message;

impl Converter<'_> {
    /// The outlier detection of a cluster.
    pub(super) fn outliers(&mut self, cluster: &Message) -> Option<OutlierDetection> {
        let message = cluster.message("outlier_detection")?;
        let split = message.flag("split_external_local_origin_errors");
        self.refuse_comparisons(message, split);
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
        })
    }

    /// Hosts are not compared with each other, which Envoy does unless it is told not to.
    fn refuse_comparisons(&mut self, message: &Message, split: bool) {
        let mut refuse = |name: &str, default: u32, matters: bool| {
            if message.number32(name).unwrap_or(default) > 0 && matters {
                let at = if message.has(name) { message.at(name) } else { &message.at };
                self.report.unsupported(at, format!("hosts are not compared; write `{name}: 0`"));
            }
        };
        refuse("enforcing_success_rate", 100, true);
        refuse("enforcing_local_origin_success_rate", 100, split);
        refuse("enforcing_failure_percentage", 0, true);
        refuse("enforcing_failure_percentage_local_origin", 0, split);
    }
}

const INTERVAL: Duration = Duration::from_secs(10);
const BASE_TIME: Duration = Duration::from_secs(30);
const MAX_TIME: Duration = Duration::from_secs(300);
