//! `--fail-if 'p99>5ms'`: what a run must not show.

use std::time::Duration;

use serde_json::{Value, json};

use super::units::{parse_milliseconds, show_ns};
use crate::histogram::Nanoseconds;
use crate::load::Outcome;

/// A comparison of one figure with a bound, which fails the run when it is true.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    text: String,
    figure: Figure,
    is_above: bool,
    is_equal_enough: bool,
    bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    /// Nanoseconds at a share of requests, from the intended start or from the actual one.
    Latency(f64),
    Service(f64),
    Mean,
    Errors,
    /// Errors of all requests, as a share.
    ErrorShare,
    /// Answers per second.
    Rate,
    /// The target's CPU nanoseconds per request.
    Cpu,
    /// How late the generator sent, in nanoseconds, at a share of requests.
    Lateness,
}

/// A condition that was true.
pub(super) struct Breach<'c> {
    condition: &'c Condition,
    /// `None` where the figure was not measured, which no run passes with.
    value: Option<f64>,
}

/// Reads `FIGURE>BOUND`, with `>`, `>=`, `<` or `<=`.
pub(super) fn parse(text: &str) -> Result<Condition, String> {
    let at = text
        .find(['<', '>'])
        .ok_or_else(|| format!("'{text}' compares nothing: write p99>5ms or errors>0"))?;
    let (name, rest) = (text[..at].trim().to_lowercase(), &text[at..]);
    let (is_equal_enough, bound) = match rest[1..].strip_prefix('=') {
        Some(bound) => (true, bound.trim()),
        None => (false, rest[1..].trim()),
    };
    let (figure, bound) = figure(&name, bound)?;
    Ok(Condition {
        text: text.to_owned(),
        figure,
        is_above: rest.starts_with('>'),
        is_equal_enough,
        bound,
    })
}

/// The conditions that are true of a run.
pub(super) fn breaches<'c>(conditions: &'c [Condition], outcome: &Outcome) -> Vec<Breach<'c>> {
    let breach = |condition: &'c Condition| {
        let value = condition.figure.of(outcome);
        value.is_none_or(|value| condition.holds(value)).then_some(Breach { condition, value })
    };
    conditions.iter().filter_map(breach).collect()
}

impl Condition {
    fn holds(&self, value: f64) -> bool {
        (if self.is_above { value > self.bound } else { value < self.bound })
            || (self.is_equal_enough && value == self.bound)
    }
}

impl Breach<'_> {
    /// `p99>5ms: it is 7.12 ms`.
    pub(super) fn sentence(&self) -> String {
        let value = match self.value {
            Some(value) => format!("it is {}", self.condition.figure.show(value)),
            None => "it was not measured".to_owned(),
        };
        format!("{}: {value}", self.condition.text)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "condition": self.condition.text, "value": self.value })
    }
}

impl Figure {
    fn of(self, outcome: &Outcome) -> Option<f64> {
        // Without a right answer there is no latency: a percentile of nothing must not pass.
        let of = |histogram: &Nanoseconds, share| {
            (histogram.count() > 0).then(|| histogram.quantile(share) as f64)
        };
        match self {
            Self::Latency(share) => of(&outcome.latency, share),
            Self::Service(share) => of(&outcome.service, share),
            Self::Mean => (outcome.latency.count() > 0).then(|| outcome.latency.mean()),
            Self::Errors => Some(outcome.errors.total() as f64),
            Self::ErrorShare => {
                let all = outcome.latency.count() + outcome.errors.total();
                (all > 0).then(|| outcome.errors.total() as f64 / all as f64)
            }
            Self::Rate => Some(outcome.achieved_rps()),
            Self::Cpu => outcome.target.and_then(|target| target.cpu_ns_per_request()),
            Self::Lateness => Some(outcome.generator.send_lateness.quantile(0.999) as f64),
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Latency(_) | Self::Service(_) | Self::Mean | Self::Cpu | Self::Lateness => {
                show_ns(value)
            }
            Self::Errors => format!("{value}"),
            Self::ErrorShare => format!("{:.3} %", value * 100.0),
            Self::Rate => format!("{value:.1}/s"),
        }
    }
}

fn figure(name: &str, bound: &str) -> Result<(Figure, f64), String> {
    let time = |figure: Figure| {
        let bound: Duration = parse_milliseconds(bound)?;
        Ok((figure, bound.as_nanos() as f64))
    };
    let number = || {
        bound
            .parse::<f64>()
            .ok()
            .filter(|it| it.is_finite())
            .ok_or_else(|| format!("'{bound}' is not a number"))
    };
    let (prefix, share) =
        name.rsplit_once('.').filter(|(prefix, _)| *prefix == "service").unwrap_or(("", name));
    match share {
        "mean" if prefix.is_empty() => time(Figure::Mean),
        "cpu" if prefix.is_empty() => time(Figure::Cpu),
        "lateness" if prefix.is_empty() => time(Figure::Lateness),
        "rate" | "rps" if prefix.is_empty() => Ok((Figure::Rate, number()?)),
        "errors" if prefix.is_empty() => match bound.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 =
                    percent.trim().parse().map_err(|_| format!("'{bound}' is not a percentage"))?;
                Ok((Figure::ErrorShare, percent / 100.0))
            }
            None => Ok((Figure::Errors, number()?)),
        },
        _ => match (percentile(share), prefix) {
            (Some(share), "") => time(Figure::Latency(share)),
            (Some(share), _) => time(Figure::Service(share)),
            (None, _) => Err(format!("'{name}' is none of {FIGURES}")),
        },
    }
}

/// `p99.9`, `p999` and `max` as a share.
fn percentile(name: &str) -> Option<f64> {
    if name == "max" {
        return Some(1.0);
    }
    let digits = name.strip_prefix('p')?;
    let value: f64 = digits.parse().ok()?;
    // p999 is short for p99.9.
    let share = if digits.starts_with("99") && !digits.contains('.') {
        value / 10f64.powi(digits.len() as i32)
    } else {
        value / 100.0
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

const FIGURES: &str =
    "p50 … p99.9, max, mean, service.p99, errors (a count, or 1%), rate, cpu, lateness";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::TargetCost;

    /// A hundred answers of 1 to 100 ms and two errors in two seconds.
    fn outcome() -> Outcome {
        let mut outcome =
            Outcome { duration: Duration::from_secs(2), answered: 100, ..Outcome::default() };
        for ms in 1..=100 {
            outcome.latency.record(ms * 1_000_000);
            outcome.service.record(1_000_000);
        }
        outcome.errors.add("status", 2);
        outcome
    }

    fn is_broken(text: &str, outcome: &Outcome) -> bool {
        !breaches(&[parse(text).unwrap()], outcome).is_empty()
    }

    #[test]
    fn each_figure_is_compared_with_its_bound() {
        let outcome = outcome();
        for (broken, kept) in [
            ("p50>49", "p50>51"),
            ("p99 > 98ms", "p99>0.2s"),
            ("p99.9>=99ms", "p999>101ms"),
            ("max>99ms", "max>101ms"),
            ("mean>50", "mean>51"),
            ("service.p99<1.1ms", "service.p99>1.1ms"),
            ("errors>1", "errors>2"),
            ("errors>=2", "errors<2"),
            ("errors>1.9%", "errors>2%"),
            ("rate<51", "rate<=49.9"),
        ] {
            assert!(is_broken(broken, &outcome), "{broken}");
            assert!(!is_broken(kept, &outcome), "{kept}");
        }
    }

    #[test]
    fn what_was_not_measured_does_not_pass() {
        let mut outcome = outcome();
        assert!(is_broken("cpu>1s", &outcome));
        outcome.target = Some(TargetCost { answered: 100, ..TargetCost::default() });
        assert!(!is_broken("cpu>1s", &outcome));
        assert!(is_broken(
            "p99>1s",
            &Outcome { duration: Duration::from_secs(1), ..Outcome::default() }
        ));
        let condition = [parse("p99>5ms").unwrap()];
        assert_eq!(breaches(&condition, &outcome)[0].sentence(), "p99>5ms: it is 99.02 ms");
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "p99",
            "p99>",
            "p99>5 parsecs",
            "joy>5",
            "p101>5",
            "service.errors>0",
            "errors>x",
            ">5",
            "rate>nan",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
