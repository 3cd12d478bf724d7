//! `towpath lab compare`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::compare::{self, Conclusion, Experiment, SelfTest};

/// Compare two arrangements in interleaved pairs
#[derive(Debug, Args)]
#[command(after_help = "\
Exits with 0 when the hypothesis holds, 4 when it does not, 3 when these runs cannot tell.

A difference is claimed falsely in 5 of 100 experiments at most. Six pairs or fewer cannot claim one.

--self-test exits with 0 when the slowdown is found and equal arms differ no more often than that makes likely (of 100
self-tests one fails by chance), else with 4.

Example: towpath lab compare examples/experiments/extra-hop.toml --report extra-hop.html")]
pub struct Compare {
    /// The experiment
    #[arg(required_unless_present = "self_test")]
    experiment: Option<PathBuf>,
    /// Compare a test server with itself, then with one that is a tenth slower: is this machine quiet enough, and
    /// does the method keep its word?
    #[arg(long, conflicts_with_all = ["experiment", "report", "markdown"])]
    self_test: bool,
    /// How often the self-test compares the server with itself
    #[arg(long, conflicts_with = "experiment", requires = "self_test", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
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
            super::print(&format!("{}\n{}.\n", page.verdict, noise(&comparison)));
        }
        Ok(match comparison.conclusion {
            Conclusion::Supported => ExitCode::SUCCESS,
            Conclusion::Refuted => super::REFUTED.into(),
            Conclusion::Inconclusive => super::UNDECIDED.into(),
        })
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
            super::print(&findings.to_text());
        }
        Ok(if findings.is_sound() { ExitCode::SUCCESS } else { super::REFUTED.into() })
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
