//! `envoy.load_balancing_policies.client_side_weighted_round_robin`: hosts that weigh what they say of their load.

use towpath_engine::load_report::{LoadReports, Rules};

use super::Converter;
use crate::message::Message;

impl Converter<'_> {
    pub(super) fn reported_loads(&mut self, config: &Message) -> LoadReports {
        if config.flag("enable_oob_load_report") {
            let text = "reports of load come with answers only, not out of band";
            self.report.unsupported(config.at("enable_oob_load_report"), text);
        }
        let usual = Rules::default();
        let metrics = config.texts("metric_names_for_computing_utilization");
        LoadReports::new(Rules {
            blackout: config.duration("blackout_period").unwrap_or(usual.blackout),
            expiration: config.duration("weight_expiration_period").unwrap_or(usual.expiration),
            period: config.duration("weight_update_period").unwrap_or(usual.period),
            penalty: config.float("error_utilization_penalty").unwrap_or(usual.penalty),
            metrics: metrics.map(|(name, _)| name.into()).collect(),
        })
    }
}
