//! Two commands in interleaved pairs: how long they take, what CPU they use, or a number that they print.

use std::io;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use regex::Regex;
use serde::Serialize;
use serde_json::{Value, json};

use super::{ALPHA, Conclusion, Expect, dots, paired, plan_pairs};
use crate::random::Random;
use crate::report::{Axis, Curves, Page, Scale, Table};
use crate::results;
use crate::stats::{Effect, Verdict, median, paired_effect};

/// What is asked about two commands.
#[derive(Clone, Debug)]
pub struct Question {
    /// The base, for a shell.
    pub a: String,
    /// What is compared with it.
    pub b: String,
    /// Run before each of them, without being measured.
    pub prepare: Option<String>,
    /// What is compared.
    pub metric: CommandMetric,
    /// What is said about B, if anything.
    pub expect: Option<Expect>,
    /// The smallest share that matters.
    pub matters: f64,
    /// Pairs of A and B.
    pub pairs: usize,
    /// Pairs of A with itself.
    pub equal_pairs: usize,
    /// Makes the bootstrap repeatable.
    pub seed: u64,
}

/// A figure of one run of a command.
#[derive(Clone, Debug)]
pub enum CommandMetric {
    /// Seconds from its start to its end.
    Time,
    /// Seconds of CPU that it and what it started used.
    Cpu,
    /// A figure of a load generator whose output it prints: `rate`, `mean`, `p99`, `max`, `errors`.
    Figure(String),
    /// The number that the one group of an expression matches in what it prints.
    Printed(Regex),
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether what was said holds; `None` when nothing was said.
    pub conclusion: Option<Conclusion>,
    /// B against A.
    pub effect: Effect,
    /// What that says.
    pub verdict: Verdict,
    /// A against itself.
    pub noise: Option<Effect>,
    /// Every run in the order made.
    pub runs: Vec<CommandRun>,
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CommandRun {
    /// Which pair.
    pub pair: usize,
    /// `a`, `b`, or `a'` for the second of two equal ones.
    pub arm: &'static str,
    /// The figure.
    pub value: f64,
}

/// Runs both in turns; `progress` is told what is being done.
pub fn ask(question: &Question, progress: &mut dyn FnMut(&str)) -> io::Result<Answer> {
    progress("once each, unmeasured");
    question.run(&question.a)?;
    question.run(&question.b)?;
    let order = plan_pairs(question.pairs, question.equal_pairs, &mut Random::fresh());
    let mut runs = Vec::new();
    for (pair, planned) in order.iter().enumerate() {
        for is_other in [planned.is_other_first, !planned.is_other_first] {
            let (command, arm) = match (is_other, planned.is_equal) {
                (false, _) => (&question.a, "a"),
                (true, true) => (&question.a, "a'"),
                (true, false) => (&question.b, "b"),
            };
            progress(&format!("pair {} of {}, {command}", pair + 1, order.len()));
            runs.push(CommandRun { pair, arm, value: question.run(command)? });
        }
    }
    let effect_of = |other| {
        let figures = runs.iter().map(|run: &CommandRun| (run.pair, run.arm, run.value));
        paired_effect(&paired(figures, other), question.seed)
    };
    let Some(effect) = effect_of("b") else {
        return Err(io::Error::other("there are too few figures above zero to compare"));
    };
    let verdict = effect.verdict(question.matters, ALPHA);
    Ok(Answer {
        conclusion: question.expect.map(|expect| expect.judge(verdict)),
        effect,
        verdict,
        noise: effect_of("a'"),
        runs,
    })
}

impl Question {
    fn run(&self, command: &str) -> io::Result<f64> {
        if let Some(prepare) = &self.prepare {
            shell(prepare)?;
        }
        let cpu = || -> io::Result<f64> {
            let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(io::Error::from)?;
            Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds())
                as f64
                / 1e6)
        };
        let (before, started) = (cpu()?, Instant::now());
        let text = shell(command)?;
        let (seconds, spent) = (started.elapsed().as_secs_f64(), cpu()? - before);
        match &self.metric {
            CommandMetric::Time => Ok(seconds),
            CommandMetric::Cpu => Ok(spent),
            CommandMetric::Figure(_) | CommandMetric::Printed(_) => {
                self.metric.find(&text).ok_or_else(|| {
                    let end: String = text
                        .chars()
                        .rev()
                        .take(200)
                        .collect::<Vec<char>>()
                        .into_iter()
                        .rev()
                        .collect();
                    io::Error::other(format!(
                        "'{command}' printed no {}: …{}",
                        self.metric.name(),
                        end.trim()
                    ))
                })
            }
        }
    }
}

impl CommandMetric {
    /// `time`, `cpu`, a figure's name, or an expression with one group.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "time" => return Ok(Self::Time),
            "cpu" => return Ok(Self::Cpu),
            "rate" | "mean" | "max" | "errors" => return Ok(Self::Figure(text.to_owned())),
            _ => {}
        }
        if text
            .strip_prefix('p')
            .is_some_and(|digits| digits.parse::<f64>().is_ok_and(|it| it <= 100.0))
        {
            return Ok(Self::Figure(text.to_owned()));
        }
        let expression = Regex::new(text).map_err(|error| error.to_string())?;
        if expression.captures_len() != 2 {
            return Err(format!(
                "'{text}' is none of time, cpu, rate, mean, max, errors and p99, nor an expression with one group \
                 around a \
                 number"
            ));
        }
        Ok(Self::Printed(expression))
    }

    /// Its name in a sentence.
    pub fn name(&self) -> &str {
        match self {
            Self::Time => "time",
            Self::Cpu => "CPU time",
            Self::Figure(name) => name,
            Self::Printed(expression) => expression.as_str(),
        }
    }

    /// The figure in what was printed; times of load generators in milliseconds.
    pub fn find(&self, text: &str) -> Option<f64> {
        match self {
            Self::Time | Self::Cpu => None,
            Self::Printed(expression) => expression.captures(text)?.get(1)?.as_str().parse().ok(),
            Self::Figure(name) => {
                let figures = results::read(text)?;
                match name.as_str() {
                    "rate" => figures.rate,
                    "errors" => figures.errors,
                    "mean" => figures.mean_s.map(|s| s * 1e3),
                    "max" => figures.percentile(100.0).map(|s| s * 1e3),
                    name => figures.percentile(name[1..].parse().ok()?).map(|s| s * 1e3),
                }
            }
        }
    }

    fn unit(&self) -> &'static str {
        match self {
            Self::Time | Self::Cpu => " s",
            Self::Figure(name) if name == "rate" => "/s",
            Self::Figure(name) if name == "errors" => "",
            Self::Figure(_) => " ms",
            Self::Printed(_) => "",
        }
    }
}

impl Answer {
    /// The finding in a sentence.
    pub fn sentence(&self, question: &Question) -> String {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let (ratio, name) = (self.effect.ratio, question.metric.name());
        let change = format!(
            "{:+.1} % ({:+.1} to {:+.1} %)",
            percent(ratio.estimate),
            percent(ratio.low),
            percent(ratio.high)
        );
        match self.verdict {
            Verdict::Higher | Verdict::Lower => format!("{name} of B against A: {change}"),
            Verdict::Same => format!(
                "{name} of B and A do not differ by {:.0} % or more: {change}",
                question.matters * 100.0
            ),
            Verdict::Inconclusive => format!(
                "Inconclusive: {name} of B against A is {change}, which {} pairs cannot tell from none",
                self.effect.pairs
            ),
        }
    }

    /// Medians, the finding and the noise as text.
    pub fn to_text(&self, question: &Question) -> String {
        let unit = question.metric.unit();
        let line = |name: &str, arms: &[&str], command: &str| {
            let values = self.values(arms);
            let (low, high) =
                values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
                    (low.min(*it), high.max(*it))
                });
            format!("{name}  {:.4}{unit} ({low:.4} to {high:.4})  {command}\n", median(&values))
        };
        let noise = self.noise.map_or_else(String::new, |noise| {
            let it = noise.ratio;
            format!(
                "A against itself: ratio {:.3} ({:.3} to {:.3})\n",
                it.estimate, it.low, it.high
            )
        });
        format!(
            "{}{}{}.\n{noise}",
            line("A", &["a", "a'"], &question.a),
            line("B", &["b"], &question.b),
            self.sentence(question)
        )
    }

    /// The answer as JSON.
    pub fn to_json(&self, question: &Question) -> Value {
        json!({
            "a": question.a,
            "b": question.b,
            "metric": question.metric.name(),
            "conclusion": self.conclusion,
            "effect": self.effect,
            "verdict": self.verdict,
            "noise": self.noise,
            "runs": self.runs,
        })
    }

    /// The answer as a page.
    pub fn to_page(&self, question: &Question, command: &str) -> Page {
        let mut page = Page::new("Two commands", format!("{}.", self.sentence(question)));
        let mut table = Table::new(&["", "command", "median", "runs"]);
        for (name, arms, command) in
            [("A", &["a", "a'"][..], &question.a), ("B", &["b"][..], &question.b)]
        {
            let values = self.values(arms);
            table.row([
                name.to_owned(),
                command.clone(),
                format!("{:.4}{}", median(&values), question.metric.unit()),
                values.len().to_string(),
            ]);
        }
        page.table(table);
        page.heading("Each run in the order made");
        let series = |name: &str, arms: &[&str]| {
            dots(name, arms, self.runs.iter().map(|run| (run.arm, run.value)))
        };
        page.curves(
            "Pairs of A with itself lie among those with B.",
            &Curves {
                x: Axis::new("run", Scale::Linear),
                y: Axis::new(
                    &format!("{}{}", question.metric.name(), question.metric.unit()),
                    Scale::Linear,
                ),
                series: vec![series("A", &["a", "a'"]), series("B", &["b"])],
                marks: Vec::new(),
            },
        );
        page.heading("Conditions");
        page.text(crate::about::Machine::here().sentence());
        page.code(command);
        page
    }

    fn values(&self, arms: &[&str]) -> Vec<f64> {
        self.runs.iter().filter(|run| arms.contains(&run.arm)).map(|run| run.value).collect()
    }
}

/// Runs a command and gives what it printed.
fn shell(command: &str) -> io::Result<String> {
    let output = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last =
            said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        return Err(io::Error::other(format!("'{command}' failed ({}): {last}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(a: &str, b: &str, metric: &str) -> Question {
        Question {
            a: a.to_owned(),
            b: b.to_owned(),
            prepare: None,
            metric: CommandMetric::parse(metric).unwrap(),
            expect: Some(Expect::Higher),
            matters: 0.05,
            pairs: 8,
            equal_pairs: 4,
            seed: 1,
        }
    }

    #[test]
    fn a_number_that_a_command_prints_is_compared() {
        // Two digits that differ from run to run, so that there is something to be uncertain about.
        let print = |base: u32| format!("echo \"speed: $(( {base} + $$ % 7 )) MB/s\"");
        let question = question(&print(200), &print(400), r"speed: (\d+) MB/s");
        let answer = ask(&question, &mut |_| ()).unwrap();
        assert_eq!(
            (answer.verdict, answer.conclusion),
            (Verdict::Higher, Some(Conclusion::Supported))
        );
        assert!((1.85..2.15).contains(&answer.effect.ratio.estimate), "{:?}", answer.effect);
        assert_eq!(answer.runs.len(), 2 * 12);
        assert!(
            answer.to_text(&question).contains("of B against A: +"),
            "{}",
            answer.to_text(&question)
        );
        assert_eq!(answer.to_json(&question)["runs"].as_array().unwrap().len(), 24);
    }

    #[test]
    fn time_is_that_of_the_command_and_cpu_is_not() {
        let question = question("sleep 0.05", "sleep 0.2", "time");
        let seconds = question.run(&question.b).unwrap();
        assert!(seconds >= 0.2, "{seconds}");
        let cpu = Question { metric: CommandMetric::Cpu, ..question };
        assert!(cpu.run(&cpu.b).unwrap() < 0.1, "sleep costs nothing");
        let busy = cpu.run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").unwrap();
        assert!(busy > 0.01, "{busy}");
    }

    #[test]
    fn the_output_of_a_load_generator_is_understood() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/results/wrk.txt");
        let text = std::fs::read_to_string(file).unwrap();
        let find = |metric: &str| CommandMetric::parse(metric).unwrap().find(&text);
        assert_eq!((find("rate"), find("errors")), (Some(81_971.64), Some(0.0)));
        assert!(find("p99").is_some_and(|ms| (ms - 5.81).abs() < 1e-9));
        assert_eq!(find("p12"), None);
    }

    #[test]
    fn what_goes_wrong_is_told() {
        let failing = question("echo no luck >&2; exit 3", "true", "time");
        assert!(ask(&failing, &mut |_| ()).unwrap_err().to_string().contains("no luck"));
        let silent = question("echo nothing", "true", "rate");
        assert!(ask(&silent, &mut |_| ()).unwrap_err().to_string().contains("printed no rate"));
        for metric in ["joy", "p101", "(a)(b)", "("] {
            assert!(CommandMetric::parse(metric).is_err(), "{metric}");
        }
    }
}
