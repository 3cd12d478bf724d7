//! The highest rate that still meets a latency objective.
//!
//! One run at one rate is a coin with noise on it. Each rate is tried in short windows until a sequential
//! test ([`Sequential`]) has seen enough of them; the search first doubles, then bisects, and tries its
//! answer once more with fresh windows before it says so. Separate closed-loop runs with growing concurrency
//! feed the Universal Scalability Law, which says where more concurrency stops helping, and what was scarce
//! at the knee is named.

mod page;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::load::{Arrivals, LoadError, Noise, Outcome, Plan, TargetCost, run};
use crate::stats::{Decision, Interval, Scalability, Sequential, wilson};

/// What to look for.
#[derive(Clone, Debug)]
pub struct Search {
    /// The load, whose rate is replaced.
    pub plan: Plan,
    /// The percentile that must hold, as a share: 0.99.
    pub percentile: f64,
    /// What it must stay below.
    pub objective: Duration,
    /// Where to begin.
    pub from: f64,
    /// Where to stop.
    pub to: f64,
    /// How close the answer must be, as a share.
    pub precision: f64,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Knee {
    /// The highest rate that met the objective; `None` when the lowest already did not.
    pub rate: Option<f64>,
    /// The lowest rate above it that did not; `None` when the highest still did.
    pub broken: Option<f64>,
    /// Every rate tried, in order.
    pub steps: Vec<Step>,
    /// The fitted law, when concurrency was swept.
    pub law: Option<Scalability>,
    /// Concurrency and throughput of each closed-loop run.
    pub sweep: Vec<(f64, f64)>,
    /// What was scarce at the first rate that failed.
    pub limiter: String,
    /// Reasons to doubt it, from the runs at the last rate that held and the last that did not.
    pub warnings: Vec<String>,
}

/// One rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Requests per second intended.
    pub rate: f64,
    /// Requests per second achieved, over all windows.
    pub achieved: f64,
    /// The percentile in nanoseconds, over all windows.
    pub latency_ns: u64,
    /// Windows that met the objective.
    pub met: u32,
    /// Windows that did not.
    pub missed: u32,
    /// The share of windows that meet it, with its interval.
    pub share: Interval,
    /// What that says.
    pub decision: Decision,
    /// What else the machine was doing, over all windows.
    pub noise: Noise,
}

/// Searches; `progress` is told what is being done.
pub fn search(search: &Search, progress: &mut dyn FnMut(&str)) -> Result<Knee, LoadError> {
    let mut trials = Trials { search, steps: Vec::new(), best: None, worst: None };
    let (rate, broken) = trials.bracket(progress)?;
    let (rate, broken) = trials.confirm(rate, broken, progress)?;
    let warnings = trials.warnings();
    let Trials { steps, worst, .. } = trials;
    let sweep = sweep(search, progress)?;
    let limiter =
        worst.as_ref().map_or_else(|| NO_LIMIT.to_owned(), |outcome| limiter(search, outcome));
    Ok(Knee { rate, broken, steps, law: Scalability::fit(&sweep), sweep, limiter, warnings })
}

/// The rates tried so far.
struct Trials<'s> {
    search: &'s Search,
    steps: Vec<Step>,
    /// All windows of the last rate that held.
    best: Option<Outcome>,
    /// All windows of the last rate that was not shown to hold.
    worst: Option<Outcome>,
}

impl Trials<'_> {
    /// Doubles until a rate does not hold, then bisects: the highest that held and the lowest that did not.
    fn bracket(
        &mut self,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(Option<f64>, Option<f64>), LoadError> {
        let (mut good, mut bad) = (None, None);
        for rate in doubled(self.search.from, self.search.to) {
            if !self.holds(rate, progress)? {
                bad = Some(rate);
                break;
            }
            good = Some(rate);
        }
        while let (Some(low), Some(high)) = (good, bad) {
            if high / low <= 1.0 + self.search.precision {
                break;
            }
            let middle = (low * high).sqrt();
            if self.holds(middle, progress)? { good = Some(middle) } else { bad = Some(middle) }
        }
        Ok((good, bad))
    }

    /// Of many rates tried the answer is the one most likely to have been lucky, so it is tried once more;
    /// the next lower one that held takes the place of one that does not.
    fn confirm(
        &mut self,
        mut rate: Option<f64>,
        mut broken: Option<f64>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(Option<f64>, Option<f64>), LoadError> {
        while let Some(candidate) = rate.filter(|_| broken.is_some()) {
            if self.holds(candidate, progress)? {
                break;
            }
            broken = Some(candidate);
            rate = self.highest_held_below(candidate);
        }
        Ok((rate, broken))
    }

    fn highest_held_below(&self, rate: f64) -> Option<f64> {
        let held = self.steps.iter().filter(|step| step.decision == Decision::Holds);
        held.map(|step| step.rate).filter(|it| *it < rate).max_by(f64::total_cmp)
    }

    /// Tries a rate in windows until the test has seen enough. What stays undecided was not shown to hold.
    fn holds(&mut self, rate: f64, progress: &mut dyn FnMut(&str)) -> Result<bool, LoadError> {
        let mut test = Sequential::default();
        let mut outcome = self.window(rate, 0, progress)?;
        let mut decision = test.observe(meets(self.search, &outcome));
        while decision.is_none() {
            let window = self.window(rate, test.met() + test.missed(), progress)?;
            decision = test.observe(meets(self.search, &window));
            outcome.merge(&window);
        }
        let decision = decision.unwrap_or(Decision::Undecided);
        self.steps.push(Step {
            rate,
            achieved: outcome.achieved_rps(),
            latency_ns: outcome.latency.quantile(self.search.percentile),
            met: test.met(),
            missed: test.missed(),
            share: wilson(test.met(), test.met() + test.missed()),
            decision,
            noise: outcome.noise,
        });
        let holds = decision == Decision::Holds;
        *(if holds { &mut self.best } else { &mut self.worst }) = Some(outcome);
        Ok(holds)
    }

    /// What the load generator has to say about the two rates that the answer rests on.
    fn warnings(&self) -> Vec<String> {
        let of = |outcome: &Option<Outcome>, what: &str| -> Vec<String> {
            let warnings = outcome.iter().flat_map(|outcome| &outcome.warnings);
            let of_windows: Vec<String> = warnings.cloned().collect();
            let worst = worst_of_each(&of_windows);
            worst.map(|warning| format!("at the last rate that {what}, {warning}")).collect()
        };
        [of(&self.best, "held"), of(&self.worst, "did not hold")].concat()
    }

    fn window(
        &self,
        rate: f64,
        number: u32,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Outcome, LoadError> {
        progress(&format!("{rate:.0} requests/s, window {}", number + 1));
        let mut plan = self.search.plan.clone();
        plan.arrivals = match plan.arrivals {
            Arrivals::Poisson { .. } => Arrivals::Poisson { rate },
            Arrivals::Closed
            | Arrivals::ClosedCapped { .. }
            | Arrivals::PerConnection { .. }
            | Arrivals::Paced { .. }
            | Arrivals::Bunched { .. }
            | Arrivals::Ticked { .. }
            | Arrivals::Recorded { .. } => Arrivals::Paced { rate },
        };
        // No two windows meet the same arrivals, the confirming ones neither.
        plan.seed += self.steps.len() as u64 * 100 + u64::from(number);
        run(&plan)
    }
}

/// The first rate, twice as much each time, and at the end the last one, however close.
fn doubled(from: f64, to: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(from), move |&rate| (rate < to).then(|| to.min(rate * 2.0)))
}

/// Unsent and failed requests break the objective as slow ones do.
fn meets(search: &Search, outcome: &Outcome) -> bool {
    let tolerated = (1.0 - search.percentile) * outcome.sent.max(1) as f64;
    let slowest_allowed = search.objective.as_nanos() as u64;
    outcome.latency.count() > 0
        && (outcome.errors.total() as f64) <= tolerated
        && outcome.latency.quantile(search.percentile) <= slowest_allowed
}

fn sweep(search: &Search, progress: &mut dyn FnMut(&str)) -> Result<Vec<(f64, f64)>, LoadError> {
    let mut points = Vec::new();
    for connections in [1, 2, 4, 8, 16, 32, 64, 128]
        .into_iter()
        .filter(|count| *count <= search.plan.connections.max(8))
    {
        progress(&format!("closed loop, {connections} connections"));
        let plan = Plan { arrivals: Arrivals::Closed, connections, ..search.plan.clone() };
        points.push((plan.concurrency() as f64, run(&plan)?.achieved_rps()));
    }
    Ok(points)
}

/// Windows say the same with other figures: of those, the one with the largest.
fn worst_of_each(warnings: &[String]) -> impl Iterator<Item = &String> {
    let words = |warning: &str| warning.replace(|c: char| c.is_ascii_digit() || c == '.', "");
    let figure = |warning: &str| crate::number::first(warning).map_or(0.0, |it| it.value);
    warnings.iter().enumerate().filter_map(move |(at, warning)| {
        let same = |other: &&String| words(other) == words(warning);
        let is_first = !warnings[..at].iter().any(|other| same(&other));
        let worst = warnings.iter().filter(same).max_by(|a, b| figure(a).total_cmp(&figure(b)));
        worst.filter(|_| is_first)
    })
}

/// Names what was scarce, from what was spent.
fn limiter(search: &Search, outcome: &Outcome) -> String {
    let seconds = outcome.duration.as_nanos() as f64;
    let of_cpu = |ns: u64| ns as f64 / seconds;
    let wait = of_cpu(outcome.generator.run_queue_wait_ns);
    if outcome.generator.cpu_fraction > 0.85 {
        return format!(
            "the load generator, which used {:.0} % of a CPU",
            outcome.generator.cpu_fraction * 100.0
        );
    }
    if let Some(target) = &outcome.target {
        let (running, ready) = (of_cpu(target.cost.cpu_ns), of_cpu(target.cost.run_queue_wait_ns));
        let starved = ready / (running + ready).max(1e-9);
        if starved > 0.3 {
            return format!(
                "the machine: of the time in which the target was ready to run it had no CPU for {:.0} %",
                starved * 100.0
            );
        }
        if let Some(text) = limited_by_cpu(search, outcome, target) {
            return text;
        }
    }
    let late = outcome.generator.send_lateness.quantile(search.percentile);
    if wait > 0.2 || u128::from(late) * 2 > search.objective.as_nanos() {
        return format!(
            "the machine: the load generator waited for a CPU {:.0} % of the time and sent up to {:.1} ms late",
            wait * 100.0,
            late as f64 / 1e6
        );
    }
    if outcome.waited_for_connection * 10 > outcome.sent {
        let share = outcome.waited_for_connection as f64 / outcome.sent.max(1) as f64 * 100.0;
        return format!("connections: {share:.0} % of arrivals found none free");
    }
    match outcome.target {
        Some(_) => "not the CPU of what was watched: look at what the target waits for".to_owned(),
        None => "not known, because no process was watched".to_owned(),
    }
}

/// One thread answers one request at a time: with random arrivals it has a queue long before it is always busy.
/// The queue's length is that of M/D/1, whose waiting times are about exponential beyond their first part.
fn limited_by_cpu(search: &Search, outcome: &Outcome, target: &TargetCost) -> Option<String> {
    let busy = target.cost.busiest_thread_ns as f64 / outcome.duration.as_nanos() as f64;
    let cost_ns = target.cpu_ns_per_request()?;
    let seen_ns = outcome.latency.quantile(search.percentile) as f64;
    let is_random = matches!(search.plan.arrivals, Arrivals::Poisson { .. });
    let queue = if is_random { queue(busy, search.percentile) } else { 0.0 };
    let explained_ns = cost_ns * (1.0 + queue);
    let text = format!("the target's CPU: its busiest thread used {:.0} % of one", busy * 100.0);
    if busy > 0.85 {
        return Some(text);
    }
    (explained_ns * 2.0 > seen_ns).then(|| {
        format!(
            "{text}, and with random arrivals the queue before it explains {:.1} of {:.1} ms",
            explained_ns.min(seen_ns) / 1e6,
            seen_ns / 1e6
        )
    })
}

/// How many times its own length a request waits at this percentile (M/D/1).
fn queue(busy: f64, percentile: f64) -> f64 {
    let tail = (busy / (1.0 - percentile)).ln().max(0.0);
    tail / (2.0 * (1.0 - busy).max(1e-3))
}

impl Knee {
    /// The finding in a sentence.
    pub fn sentence(&self, search: &Search) -> String {
        let limit = format!("{:?}", search.objective);
        let (figure, unit) = limit.split_at(limit.find(char::is_alphabetic).unwrap_or(limit.len()));
        let objective = format!("p{} ≤ {figure} {unit}", search.percentile * 100.0);
        match (self.rate, self.broken) {
            (Some(rate), Some(broken)) => {
                format!(
                    "{objective} holds up to {rate:.0} requests/s and breaks at {broken:.0}; the limit was {}",
                    self.limiter
                )
            }
            (Some(rate), None) => {
                format!("{objective} still held at {rate:.0} requests/s, the highest rate tried")
            }
            (None, Some(broken)) => format!(
                "{objective} did not hold at {broken:.0} requests/s, the lowest rate tried; the limit was {}",
                self.limiter
            ),
            (None, None) => "no rate was tried".to_owned(),
        }
    }

    /// The finding with schema 1.
    pub fn to_json(&self) -> Value {
        json!({
            "schema": 1,
            "rate": self.rate,
            "broken": self.broken,
            "steps": self.steps,
            "sweep": self.sweep,
            "law": self.law,
            "peak_concurrency": self.law.map(|law| law.peak()).filter(|peak| peak.is_finite()),
            "limiter": self.limiter,
            "warnings": self.warnings,
        })
    }
}

const NO_LIMIT: &str = "nothing: the highest rate tried met the objective";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::{Origin, spawn};

    #[test]
    fn a_server_that_holds_answers_back_is_limited_by_its_connections() {
        // A machine that is itself held up breaks the objective sooner than the server does, and `knee` says so: the
        // server is asked again.
        let mut spoilt = Vec::new();
        while spoilt.len() < 10 {
            let (it, knee) = search_a_server_that_holds_back();
            let (rate, broken) = (knee.rate.unwrap_or(0.0), knee.broken.unwrap());
            assert!(rate <= 220.0 && broken > rate, "{rate} {broken}: {:?}", knee.steps);
            assert!(knee.to_json()["steps"][0]["noise"]["load"].is_number());
            let lambda = knee.law.map_or(0.0, |law| law.lambda);
            let by_machine = knee.limiter.starts_with("the machine");
            if rate >= 140.0 && (16.0..=21.0).contains(&lambda) && !by_machine {
                assert!(knee.limiter.starts_with("connections"), "{}", knee.limiter);
                assert!(knee.to_json()["warnings"].is_array());
                assert!(knee.to_page(&it, "again").to_html().contains("knee"));
                return;
            }
            spoilt.push((rate, lambda, knee.limiter, knee.steps));
        }
        panic!("{spoilt:#?}");
    }

    #[test]
    fn the_highest_rate_asked_for_is_tried() {
        let rates = |from, to| doubled(from, to).collect::<Vec<f64>>();
        assert_eq!(rates(200.0, 1000.0), [200.0, 400.0, 800.0, 1000.0]);
        assert_eq!(rates(200.0, 800.0), [200.0, 400.0, 800.0]);
        assert_eq!(rates(200.0, 200.0), [200.0]);
    }

    #[test]
    fn the_objective_is_drawn_when_not_even_the_lowest_rate_held() {
        let (search, _) = busy_outcome();
        assert_eq!(page::objective(&search, search.from), [(100.0, 10.0), (200.0, 10.0)]);
        assert_eq!(page::objective(&search, 778.0), [(100.0, 10.0), (778.0, 10.0)]);
    }

    #[test]
    fn the_objective_is_drawn_as_far_as_rates_were_tried() {
        let (search, _) = busy_outcome();
        let drawn = |broken, rates: &[f64]| {
            let step = |&rate: &f64| Step {
                rate,
                achieved: rate,
                latency_ns: 11_000_000,
                met: 0,
                missed: 3,
                share: wilson(0, 3),
                decision: Decision::Breaks,
                noise: Noise::default(),
            };
            let knee = Knee {
                rate: None,
                broken: Some(broken),
                steps: rates.iter().map(step).collect(),
                law: None,
                sweep: Vec::new(),
                limiter: String::new(),
                warnings: Vec::new(),
            };
            let sentence = knee.sentence(&search);
            assert!(sentence.starts_with("p99 ≤ 10 ms did not hold at "), "{sentence}");
            let html = knee.to_page(&search, "").to_html();
            html[html.find("<svg").unwrap()..html.find("</svg>").unwrap()].to_owned()
        };
        // The lowest rate, asked again at the end, did not hold either.
        assert_eq!(drawn(100.0, &[100.0, 800.0, 100.0]), drawn(800.0, &[100.0, 800.0, 100.0]));
    }

    /// A second at 778 requests/s to a server whose only thread needs 1 ms for each.
    fn busy_outcome() -> (Search, Outcome) {
        let mut plan = Plan::new("127.0.0.1:1".parse().unwrap());
        plan.arrivals = Arrivals::Poisson { rate: 778.0 };
        let search = Search {
            plan,
            percentile: 0.99,
            objective: Duration::from_millis(10),
            from: 100.0,
            to: 1000.0,
            precision: 0.05,
        };
        let mut outcome = Outcome {
            duration: Duration::from_secs(1),
            sent: 778,
            answered: 778,
            ..Outcome::default()
        };
        let mut target = TargetCost { answered: 778, ..TargetCost::default() };
        (target.cost.cpu_ns, target.cost.busiest_thread_ns) = (790_000_000, 790_000_000);
        outcome.target = Some(target);
        outcome.latency.record(11_000_000);
        (search, outcome)
    }

    #[test]
    fn a_single_thread_is_the_limit_before_it_is_always_busy() {
        let (search, outcome) = busy_outcome();
        let text = limiter(&search, &outcome);
        assert!(
            text.starts_with("the target's CPU: its busiest thread used 79 % of one"),
            "{text}"
        );
        // Sixteen threads with a twentieth of a CPU each are not busy, though together they use 0.8 CPUs.
        let mut idle = outcome.clone();
        idle.target.as_mut().unwrap().cost.busiest_thread_ns = 50_000_000;
        idle.latency.record(80_000_000);
        assert!(limiter(&search, &idle).starts_with("not the CPU"), "{}", limiter(&search, &idle));
        // Evenly spaced requests have no queue before they overlap.
        let mut paced = search;
        paced.plan.arrivals = Arrivals::Paced { rate: 778.0 };
        assert!(limiter(&paced, &outcome).starts_with("not the CPU"));
    }

    #[test]
    fn an_oversubscribed_machine_is_named() {
        let (search, mut outcome) = busy_outcome();
        outcome.target.as_mut().unwrap().cost.run_queue_wait_ns = 500_000_000;
        assert!(limiter(&search, &outcome).contains("it had no CPU for 39 %"));
        outcome.target = None;
        assert_eq!(limiter(&search, &outcome), "not known, because no process was watched");
        outcome.generator.send_lateness.record(7_000_000);
        let text = limiter(&search, &outcome);
        assert!(
            text.starts_with("the machine: the load generator") && text.contains("7.0 ms late"),
            "{text}"
        );
    }

    #[test]
    fn what_makes_the_answer_doubtful_is_told_with_it() {
        let (search, outcome) = busy_outcome();
        let doubtful =
            |warning: &str| Outcome { warnings: vec![warning.to_owned()], ..outcome.clone() };
        let trials = Trials {
            search: &search,
            steps: Vec::new(),
            best: Some(doubtful("it was late")),
            worst: Some(doubtful("it waited")),
        };
        let told = trials.warnings();
        assert_eq!(told[0], "at the last rate that held, it was late");
        assert_eq!(told[1], "at the last rate that did not hold, it waited");
        let windows = ["waited 15 %", "was late", "waited 18 %", "waited 9.5 %"].map(str::to_owned);
        let told: Vec<&String> = worst_of_each(&windows).collect();
        assert_eq!(told, ["waited 18 %", "was late"]);
    }

    /// Ten connections and 50 ms each: 200 requests per second and no more.
    fn search_a_server_that_holds_back() -> (Search, Knee) {
        let server = spawn(&Origin {
            delay: Duration::from_millis(50),
            ..Origin::http("127.0.0.1:0".parse().unwrap(), 10)
        })
        .unwrap();
        let mut plan = Plan::new(server.address().clone().into());
        plan.duration = Duration::from_millis(500);
        let it = Search {
            plan,
            percentile: 0.9,
            objective: Duration::from_millis(80),
            from: 50.0,
            to: 1600.0,
            precision: 0.1,
        };
        let knee = search(&it, &mut |_| ()).unwrap();
        (it, knee)
    }
}
