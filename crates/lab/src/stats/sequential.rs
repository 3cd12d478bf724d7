//! A sequential test of yes-or-no windows: it asks for as many as the answer takes and no more.
//!
//! Wald's sequential probability ratio test (Wald 1945). A server *holds* when at least [`HOLDS`] of its
//! windows meet the objective and *breaks* when at most [`BREAKS`] do; either is taken for the other in at
//! most [`ERROR`] of the cases. Between them, where one window in two meets it, the test wanders: it ends
//! undecided after [`WINDOWS`].

use serde::Serialize;

use super::{Interval, normal};

/// Windows seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequential {
    met: u32,
    missed: u32,
}

/// What the windows say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The objective is met.
    Holds,
    /// It is not.
    Breaks,
    /// So many windows cannot tell.
    Undecided,
}

impl Sequential {
    /// Counts a window; the decision when there is one, `None` when another window is needed.
    pub fn observe(&mut self, is_met: bool) -> Option<Decision> {
        if is_met {
            self.met += 1;
        } else {
            self.missed += 1;
        }
        let evidence = f64::from(self.met) * (HOLDS / BREAKS).ln()
            + f64::from(self.missed) * ((1.0 - HOLDS) / (1.0 - BREAKS)).ln();
        let enough = ((1.0 - ERROR) / ERROR).ln();
        match () {
            () if evidence >= enough => Some(Decision::Holds),
            () if evidence <= -enough => Some(Decision::Breaks),
            () if self.met + self.missed >= WINDOWS => Some(Decision::Undecided),
            () => None,
        }
    }

    /// Windows that met the objective.
    pub fn met(&self) -> u32 {
        self.met
    }

    /// Windows that did not.
    pub fn missed(&self) -> u32 {
        self.missed
    }
}

/// The share of successes and its 95 % interval (Wilson 1927), which stays within 0 and 1 for few trials.
pub fn wilson(successes: u32, trials: u32) -> Interval {
    if trials == 0 {
        return Interval { estimate: f64::NAN, low: 0.0, high: 1.0 };
    }
    let (count, share) = (f64::from(trials), f64::from(successes) / f64::from(trials));
    let z = normal::quantile(0.975);
    let weight = 1.0 + z * z / count;
    let middle = (share + z * z / (2.0 * count)) / weight;
    let reach = z * (share * (1.0 - share) / count + z * z / (4.0 * count * count)).sqrt() / weight;
    Interval { estimate: share, low: (middle - reach).max(0.0), high: (middle + reach).min(1.0) }
}

/// The share of windows that meet the objective where it holds.
pub const HOLDS: f64 = 0.8;
/// The share where it breaks.
pub const BREAKS: f64 = 0.2;
/// How often one is taken for the other.
pub const ERROR: f64 = 0.05;
/// When to stop asking.
pub const WINDOWS: u32 = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn decide(share: f64, random: &mut Random) -> (Decision, u32) {
        let mut test = Sequential::default();
        loop {
            if let Some(decision) = test.observe(random.uniform() < share) {
                return (decision, test.met() + test.missed());
            }
        }
    }

    #[test]
    fn errors_are_as_rare_as_stated_and_windows_as_few_as_can_be() {
        let mut random = Random::new(7);
        for (share, wrong) in [(HOLDS, Decision::Breaks), (BREAKS, Decision::Holds)] {
            let results: Vec<(Decision, u32)> =
                (0..20_000).map(|_| decide(share, &mut random)).collect();
            let errors = results.iter().filter(|(decision, _)| *decision == wrong).count();
            assert!(errors as f64 <= ERROR * 20_000.0, "{errors} of 20,000 at {share}");
            let mean = results.iter().map(|(_, count)| f64::from(*count)).sum::<f64>() / 20_000.0;
            assert!(mean < 5.5, "{mean} windows at {share}");
        }
        assert_eq!(decide(1.0, &mut random), (Decision::Holds, 3));
        assert_eq!(decide(0.0, &mut random), (Decision::Breaks, 3));
    }

    #[test]
    fn an_even_chance_ends_in_time_and_favours_neither() {
        let mut random = Random::new(9);
        let results: Vec<(Decision, u32)> = (0..10_000).map(|_| decide(0.5, &mut random)).collect();
        assert!(results.iter().all(|(_, count)| *count <= WINDOWS));
        let count = |wanted| results.iter().filter(|(decision, _)| *decision == wanted).count();
        let (holds, breaks) = (count(Decision::Holds), count(Decision::Breaks));
        assert!(holds.abs_diff(breaks) < 300 && count(Decision::Undecided) > 1000);
    }

    #[test]
    fn wilson_agrees_with_published_values() {
        // Newcombe 1998, table I, method 3.
        for (successes, trials, low, high) in
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)]
        {
            let interval = wilson(successes, trials);
            assert!((interval.low - low).abs() < 1e-4 && (interval.high - high).abs() < 1e-4);
        }
        assert_eq!((wilson(0, 0).low, wilson(0, 0).high), (0.0, 1.0));
        assert_eq!(wilson(29, 29).high, 1.0);
    }
}
