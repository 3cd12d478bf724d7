//! What a report says of a run: its conditions, and how they changed.

use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};
use towpath_sim::link::Conditions;

use super::{Link, conditions_json, conditions_words};
use crate::cli;
use crate::link::{Circumstances, Report, Tuning};

/// An outage, or from when on there were other conditions: planned, or asked for while the command ran.
pub(super) struct Happening {
    /// Since the command was started.
    pub at: Duration,
    /// Zero for what is not an outage.
    pub lasts: Duration,
    /// In words.
    pub what: String,
}

impl Happening {
    /// What stands in a picture.
    fn name(&self) -> &str {
        if self.what.contains(' ') { "change" } else { &self.what }
    }
}

impl Link {
    /// All that happened before the end, in its order.
    pub(super) fn happened(&self, taken: Vec<Happening>, duration: Duration) -> Vec<Happening> {
        let outages = self.outage.iter().map(|(at, lasts)| (*at, *lasts, "outage"));
        let changes = self.change.iter().map(|(at, profile)| (*at, Duration::ZERO, profile.name));
        let planned = outages.chain(changes);
        let planned =
            planned.map(|(at, lasts, what)| Happening { at, lasts, what: what.to_owned() });
        let mut all: Vec<Happening> = planned.chain(taken).filter(|it| it.at < duration).collect();
        all.sort_by_key(|it| it.at);
        all
    }

    pub(super) fn circumstances(
        &self,
        duration: Duration,
        happened: &[Happening],
        tuning: &Tuning,
        down: &Conditions,
        up: &Conditions,
    ) -> Circumstances {
        let spans = happened
            .iter()
            .map(|it| (it.at, it.at.saturating_add(it.lasts).min(duration), it.name().to_owned()));
        let changes: String = happened
            .iter()
            .filter(|it| it.lasts.is_zero())
            .map(|it| format!(" After {:.1} s {}.", it.at.as_secs_f64(), it.what))
            .collect();
        Circumstances {
            duration,
            spans: spans.collect(),
            conditions: format!(
                "Down: {}. Up: {}.{changes} Congestion control {}, SYN schedule {}, seed {}.",
                conditions_words(down),
                conditions_words(up),
                tuning.congestion_control,
                tuning.syn_schedule.describe(),
                self.seed
            ),
            command: cli::command_line(),
        }
    }

    pub(super) fn report_json(
        &self,
        report: &Report,
        happened: &[Happening],
        tuning: &Tuning,
        down: &Conditions,
        up: &Conditions,
        status: ExitStatus,
    ) -> Value {
        let mut value = report.to_json();
        value["profile"] = json!(self.profile.map(|profile| profile.name));
        value["seed"] = json!(self.seed);
        value["congestion_control"] = json!(tuning.congestion_control);
        value["syn_schedule"] = json!(tuning.syn_schedule.describe());
        value["conditions"] = json!({ "down": conditions_json(down), "up": conditions_json(up) });
        let outages = happened.iter().filter(|it| !it.lasts.is_zero());
        value["outages_s"] =
            outages.map(|it| json!([it.at.as_secs_f64(), it.lasts.as_secs_f64()])).collect();
        let changes = happened.iter().filter(|it| it.lasts.is_zero());
        value["changes"] =
            changes.map(|it| json!({ "at_s": it.at.as_secs_f64(), "what": it.what })).collect();
        value["exit_code"] = json!(status.code());
        value
    }
}
