//! The comparison put to the test on this machine: equal arms must not differ, a planted slowdown must show.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Experiment, Metric, run};
use crate::report::Table;
use crate::stats::{self, Effect, Verdict};

/// How hard to test.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfTest {
    /// Comparisons of a server with itself.
    pub comparisons: usize,
    /// Pairs in each.
    pub pairs: usize,
    /// Pairs against the planted slowdown.
    pub planted_pairs: usize,
    /// How long each run is.
    pub duration: Duration,
    /// The planted slowdown as a share of the CPU time per request.
    pub slowdown: f64,
    /// Makes the intervals' resampling repeatable. Orders are drawn anew each time.
    pub seed: u64,
}

/// What the test showed.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// CPU time for each request of the server, in µs.
    pub cpu_us_per_request: f64,
    /// The server against itself, one effect for each comparison.
    pub equal: Vec<Effect>,
    /// The planted slowdown as a ratio.
    pub planted: f64,
    /// What was found of it.
    pub found: Effect,
}

impl SelfTest {
    /// Carries it out; `progress` is told what is being done.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> io::Result<Findings> {
        progress("cost of one request");
        let mut costs = vec![self.compare("", 3, self.seed, progress)?.1];
        let mut equal = Vec::new();
        for number in 0..self.comparisons {
            let mut tell = |what: &str| {
                progress(&format!("equal arms {} of {}: {what}", number + 1, self.comparisons))
            };
            let (effect, cost) =
                self.compare("", self.pairs, self.seed + number as u64, &mut tell)?;
            equal.push(effect);
            costs.push(cost);
        }
        let work_us = stats::median(&costs) * self.slowdown;
        let work = format!("--work {:.0}ns", work_us * 1e3);
        let mut tell = |what: &str| progress(&format!("planted slowdown: {what}"));
        let (found, cost) = self.compare(&work, self.planted_pairs, self.seed, &mut tell)?;
        // The machine may be slower or quicker by now: what was planted is a share of what a request costs here.
        let planted = 1.0 + work_us / cost;
        Ok(Findings { cpu_us_per_request: cost, equal, planted, found })
    }

    /// The server against itself with `extra` arguments: the effect, and what a request costs A in µs.
    fn compare(
        &self,
        extra: &str,
        pairs: usize,
        seed: u64,
        progress: &mut dyn FnMut(&str),
    ) -> io::Result<(Effect, f64)> {
        let text = FILE
            .replace("DURATION", &format!("{}ms", self.duration.as_millis()))
            .replace("EXTRA", extra);
        let mut experiment = Experiment::parse(&text).map_err(io::Error::other)?;
        (experiment.pairs, experiment.equal_pairs, experiment.seed) = (pairs, 0, seed);
        let comparison = run(&experiment, progress)?;
        let cost = Metric::CpuPerRequest.of(&comparison.merged.0);
        let effect = comparison.effects.first().map(|it| it.effect);
        effect
            .zip(cost.is_finite().then_some(cost))
            .ok_or_else(|| io::Error::other("the test server's CPU time could not be measured"))
    }
}

impl Findings {
    /// Comparisons of equal arms that claimed a difference, however small.
    pub fn false_claims(&self) -> usize {
        self.equal.iter().filter(|effect| is_claim(effect.verdict(ANY, super::ALPHA))).count()
    }

    /// Those of them that an experiment would claim whose file does not say what matters.
    pub fn false_claims_that_matter(&self) -> usize {
        let matters = super::plan::five_percent();
        self.equal.iter().filter(|effect| is_claim(effect.verdict(matters, super::ALPHA))).count()
    }

    /// How many self-tests of a hundred have as many false claims or more when the stated error rate is the true one,
    /// as a share.
    pub fn chance_of_as_many(&self) -> f64 {
        at_least(self.false_claims(), self.equal.len(), super::ALPHA)
    }

    /// Whether the planted slowdown was called one.
    pub fn is_found(&self) -> bool {
        self.found.verdict(ANY, super::ALPHA) == Verdict::Higher
    }

    /// Whether the machine and the method can be trusted: the slowdown is found, and false claims are no more than
    /// the stated error rate makes in all but one of a hundred self-tests.
    pub fn is_sound(&self) -> bool {
        self.is_found() && self.chance_of_as_many() >= SURPRISE
    }

    /// The findings in words.
    pub fn to_text(&self) -> String {
        let mut table =
            Table::new(&["comparison", "B/A", "95 % interval", "p", "claims a difference"]);
        let mut row = |name: String, effect: &Effect| {
            let ratio = effect.ratio;
            table.row([
                name,
                format!("{:.3}", ratio.estimate),
                format!("{:.3} – {:.3}", ratio.low, ratio.high),
                format!("{:.4}", effect.p),
                if is_claim(effect.verdict(ANY, super::ALPHA)) { "yes" } else { "no" }.to_owned(),
            ]);
        };
        for (at, effect) in self.equal.iter().enumerate() {
            row(format!("equal arms {}", at + 1), effect);
        }
        row(format!("planted {:+.0} %", (self.planted - 1.0) * 100.0), &self.found);
        format!(
            "{}\nA request costs {:.2} µs of CPU. {} of {} comparisons of equal arms claimed a difference, {} of them \
             one of {:.0} % or more; at the \
             stated error rate of {:.0} %, {:.0} % of self-tests have as many or more. The planted slowdown of {:.0} % \
             was {}, as {:+.1} % \
             ({:+.1} to {:+.1} %).\n",
            table.to_markdown(),
            self.cpu_us_per_request,
            self.false_claims(),
            self.equal.len(),
            self.false_claims_that_matter(),
            super::plan::five_percent() * 100.0,
            super::ALPHA * 100.0,
            self.chance_of_as_many() * 100.0,
            (self.planted - 1.0) * 100.0,
            if self.is_found() { "found" } else { "not found" },
            (self.found.ratio.estimate - 1.0) * 100.0,
            (self.found.ratio.low - 1.0) * 100.0,
            (self.found.ratio.high - 1.0) * 100.0,
        )
    }

    /// The findings with schema 1.
    pub fn to_json(&self) -> Value {
        json!({
            "schema": 1,
            "cpu_us_per_request": self.cpu_us_per_request,
            "equal": self.equal,
            "false_claims": self.false_claims(),
            "false_claims_that_matter": self.false_claims_that_matter(),
            "chance_of_as_many": self.chance_of_as_many(),
            "planted": self.planted,
            "found": self.found,
            "is_sound": self.is_sound(),
        })
    }
}

fn is_claim(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Higher | Verdict::Lower)
}

/// The chance of `claims` or more among `count` comparisons that each err at `rate`.
fn at_least(claims: usize, count: usize, rate: f64) -> f64 {
    let mut exactly = (1.0 - rate).powi(count as i32);
    let mut fewer = 0.0;
    for claimed in 0..claims {
        fewer += exactly;
        exactly *= (count - claimed) as f64 / (claimed + 1) as f64 * rate / (1.0 - rate);
    }
    (1.0 - fewer).max(0.0)
}

/// What would come up less often than this is not put down to chance.
const SURPRISE: f64 = 0.01;

/// No difference is too small to be a claim.
const ANY: f64 = 1e-6;

const FILE: &str = r#"
title = "self-test"
pairs = 3

[hypothesis]
metric = "cpu_per_request"
expect = "higher"

[load]
connections = 16
closed = true
duration = "DURATION"
warmup = "100ms"

[programs.plain]
command = "{towpath} lab origin --listen {listen} --size 64"

[programs.other]
command = "{towpath} lab origin --listen {listen} --size 64 EXTRA"

[a]
chain = "plain"

[b]
chain = "other"
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Interval;

    fn effect(estimate: f64, p: f64) -> Effect {
        let ratio = Interval { estimate, low: estimate - 0.01, high: estimate + 0.01 };
        Effect { ratio, p, pairs: 10 }
    }

    fn findings(false_claims: usize, found: Effect) -> Findings {
        let claims = std::iter::repeat_n(effect(1.02, 0.01), false_claims);
        let none = std::iter::repeat_n(effect(1.001, 0.8), 20 - false_claims);
        let equal = claims.chain(none).collect();
        Findings { cpu_us_per_request: 5.0, equal, planted: 1.1, found }
    }

    #[test]
    fn as_many_false_claims_are_tolerated_as_chance_makes() {
        // Binomial: 4 or more of 20 at 5 % come up in 1.59 %, 5 or more in 0.26 %; 12 or more of 100 in 0.43 %.
        assert!((at_least(4, 20, 0.05) - 0.0159).abs() < 1e-4);
        assert!((at_least(5, 20, 0.05) - 0.0026).abs() < 1e-4);
        assert!((at_least(12, 100, 0.05) - 0.0043).abs() < 1e-4);
        assert_eq!((at_least(0, 0, 0.05), at_least(0, 20, 0.05)), (1.0, 1.0));
        assert!(findings(4, effect(1.1, 0.01)).is_sound());
        assert!(!findings(5, effect(1.1, 0.01)).is_sound());
    }

    #[test]
    fn a_slowdown_that_is_not_found_makes_it_unsound() {
        assert!(!findings(0, effect(1.05, 0.2)).is_sound());
        assert!(!findings(0, effect(0.9, 0.01)).is_sound());
        let text = findings(1, effect(1.1, 0.01)).to_text();
        assert!(
            text.contains("1 of 20 comparisons")
                && text.contains("0 of them one of 5 % or more")
                && text.contains("64 % of self-tests have as many")
                && text.contains("was found, as +10.0 %"),
            "{text}"
        );
    }
}
