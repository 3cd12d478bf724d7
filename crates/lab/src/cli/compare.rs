//! `towpath lab compare`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::compare::commands::{self, CommandMetric, Question};
use crate::compare::{self, Conclusion, Expect, Experiment, SelfTest, recorded};
use crate::results::{self, Figures};

/// Compare two arrangements in interleaved pairs
#[derive(Debug, Args)]
#[command(after_help = "\
Exits with 0 when the hypothesis holds, 4 when it does not, 3 when these runs cannot tell.

A difference is claimed falsely in 5 of 100 experiments at most. Six pairs or fewer cannot claim one.

--self-test exits with 0 when the slowdown is found and equal arms differ no more often than that makes likely (of 100
self-tests one fails by chance), else with 4.

Without --expect, two commands are compared and the exit code is 0 whatever comes of it.

Examples: towpath lab compare examples/experiments/extra-hop.toml --report extra-hop.html
          towpath lab compare --a 'gzip -k -c big' --b 'zstd -c big' --expect lower
          towpath lab compare --a 'hey -z 2s http://[::1]:80/' --b 'hey -z 2s http://[::1]:81/' --metric p99
          towpath lab compare --a-results before/*.json --b-results after/*.json")]
pub struct Compare {
    /// The experiment
    #[arg(required_unless_present_any = ["self_test", "a", "a_results"])]
    experiment: Option<PathBuf>,
    /// Compare this shell command with that of --b, rather than an experiment
    #[arg(long, value_name = "COMMAND", requires = "b", conflicts_with_all = ["experiment", "self_test"])]
    a: Option<String>,
    /// The command compared with that of --a
    #[arg(long, value_name = "COMMAND", requires = "a")]
    b: Option<String>,
    /// What of the commands is compared: time, cpu, a figure of a load generator that they run (rate, mean, p99, max,
    /// errors), or a regular expression whose one group is the number in what they print
    #[arg(long, requires = "a", default_value = "time", value_parser = CommandMetric::parse)]
    metric: CommandMetric,
    /// Run this before each command
    #[arg(long, value_name = "COMMAND", requires = "a")]
    prepare: Option<String>,
    /// What B is said to be: lower, higher or same
    #[arg(long, requires = "a", value_parser = parse_expectation)]
    expect: Option<Expect>,
    /// The smallest difference that matters, in percent
    #[arg(long, default_value_t = 5.0)]
    matters: f64,
    /// Compare results recorded by any load generator: these
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        requires = "b_results",
        conflicts_with_all = ["experiment", "self_test", "a"]
    )]
    a_results: Vec<PathBuf>,
    /// With these
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "a_results")]
    b_results: Vec<PathBuf>,
    /// Compare a test server with itself, then with one that is a tenth slower: is this machine quiet enough, and
    /// does the method keep its word?
    #[arg(long, conflicts_with_all = ["experiment", "report", "markdown"])]
    self_test: bool,
    /// How often the self-test compares the server with itself
    #[arg(long, conflicts_with = "experiment", requires = "self_test", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    comparisons: u16,
    /// Pairs, whatever the file says
    #[arg(long)]
    pairs: Option<usize>,
    /// Write a page
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write Markdown for a pull request; - is standard output
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write everything with schema 1; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Compare {
    pub(super) fn run(self) -> super::Outcome {
        if !(self.matters > 0.0 && self.matters < 1000.0) {
            return Err(super::usage("--matters is in percent and above zero"));
        }
        if let Some((a, b)) = self.a.as_ref().zip(self.b.as_ref()) {
            return self.commands(a, b);
        }
        if !self.a_results.is_empty() {
            return self.recorded();
        }
        let Some(file) = &self.experiment else { return self.test() };
        let path = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| super::usage(format!("{path}: {error}")))?;
        let mut experiment =
            Experiment::parse(&text).map_err(|error| super::usage(format!("{path}: {error}")))?;
        if let Some(pairs) = self.pairs {
            experiment.pairs = pairs.clamp(3, 1000);
        }
        if experiment.needs_link() {
            crate::link::become_root_of_a_user_namespace()?;
        }
        let comparison = compare::run(&experiment, &mut |what| super::print_progress(what))?;
        super::print_progress("");
        let page = comparison.to_page(&experiment, &super::command_line());
        if let Some(path) = &self.report {
            super::write_text(path, &page.to_html())?;
        }
        if let Some(path) = &self.markdown {
            super::write_text(path, &page.to_markdown())?;
        }
        if let Some(path) = &self.json {
            super::write_result(path, "compare", comparison.to_json())?;
        }
        let is_dash = |path: &Option<PathBuf>| path.as_deref() == Some(std::path::Path::new("-"));
        if !is_dash(&self.json) && !is_dash(&self.markdown) {
            super::terminal::tell(&format!("{}\n{}.\n", page.verdict, noise(&comparison)));
        }
        Ok(match comparison.conclusion {
            Conclusion::Supported => ExitCode::SUCCESS,
            Conclusion::Refuted => super::REFUTED.into(),
            Conclusion::Inconclusive => super::UNDECIDED.into(),
        })
    }

    fn commands(&self, a: &str, b: &str) -> super::Outcome {
        let pairs = self.pairs.unwrap_or(10).clamp(3, 1000);
        let question = Question {
            a: a.to_owned(),
            b: b.to_owned(),
            prepare: self.prepare.clone(),
            metric: self.metric.clone(),
            expect: self.expect,
            matters: self.matters / 100.0,
            pairs,
            equal_pairs: pairs.div_ceil(2).max(3),
            seed: 1,
        };
        let answer = commands::ask(&question, &mut |what| super::print_progress(what))?;
        super::print_progress("");
        let page = answer.to_page(&question, &super::command_line());
        if let Some(path) = &self.report {
            super::write_text(path, &page.to_html())?;
        }
        if let Some(path) = &self.markdown {
            super::write_text(path, &page.to_markdown())?;
        }
        if let Some(path) = &self.json {
            super::write_result(path, "commands", answer.to_json(&question))?;
        }
        let is_dash = |path: &Option<PathBuf>| path.as_deref() == Some(std::path::Path::new("-"));
        if !is_dash(&self.json) && !is_dash(&self.markdown) {
            super::terminal::tell(&answer.to_text(&question));
        }
        Ok(match answer.conclusion {
            None | Some(Conclusion::Supported) => ExitCode::SUCCESS,
            Some(Conclusion::Refuted) => super::REFUTED.into(),
            Some(Conclusion::Inconclusive) => super::UNDECIDED.into(),
        })
    }

    fn recorded(&self) -> super::Outcome {
        let read = |paths: &[PathBuf]| -> Result<Vec<Figures>, Box<dyn std::error::Error>> {
            let one = |path: &PathBuf| {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| super::usage(format!("{}: {error}", path.display())))?;
                results::read(&text).ok_or_else(|| {
                    super::usage(format!("{}: no load generator's result", path.display()))
                })
            };
            paths.iter().map(one).collect()
        };
        let (a, b) = (read(&self.a_results)?, read(&self.b_results)?);
        let recorded = recorded::compare(&a, &b, self.matters / 100.0, 1);
        if recorded.figures.is_empty() {
            return Err("the results have no figure in common".into());
        }
        if let Some(path) = &self.json {
            super::write_result(path, "results", recorded.to_json())?;
        }
        if self.json.as_deref() != Some(std::path::Path::new("-")) {
            super::terminal::tell(&recorded.to_text());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn test(&self) -> super::Outcome {
        let pairs = self.pairs.unwrap_or(10).clamp(7, 1000);
        let test = SelfTest {
            comparisons: self.comparisons.into(),
            pairs,
            planted_pairs: pairs.max(40),
            duration: Duration::from_millis(300),
            slowdown: 0.1,
            seed: 1,
        };
        let findings = test.run(&mut |what| super::print_progress(what))?;
        super::print_progress("");
        if let Some(path) = &self.json {
            super::write_result(path, "self-test", findings.to_json())?;
        }
        if self.json.as_deref() != Some(std::path::Path::new("-")) {
            super::terminal::tell(&findings.to_text());
        }
        Ok(if findings.is_sound() { ExitCode::SUCCESS } else { super::REFUTED.into() })
    }
}

fn parse_expectation(text: &str) -> Result<Expect, String> {
    match text {
        "lower" => Ok(Expect::Lower),
        "higher" => Ok(Expect::Higher),
        "same" => Ok(Expect::Same),
        _ => Err("it is lower, higher or same".to_owned()),
    }
}

fn noise(comparison: &compare::Comparison) -> String {
    match &comparison.noise {
        Some(noise) => format!(
            "A against itself: ratio {:.3} ({:.3} to {:.3})",
            noise.ratio.estimate, noise.ratio.low, noise.ratio.high
        ),
        None => "A was not run against itself".to_owned(),
    }
}
