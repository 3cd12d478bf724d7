//! `towpath lab replay`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::about::{Made, describe};
use crate::replay::{self, Options, Peers, Replay};

/// Run a public performance report again
#[derive(Debug, Args)]
#[command(after_help = "\
Peers are looked for in the environment (TOWPATH_ENVOY, TOWPATH_NGINX, TOWPATH_HAPROXY, TOWPATH_CURL,
TOWPATH_OKHTTP: a class path), then below target/peers, then in the search path. A client that is missing is named.

Example: towpath lab replay sidecar --quick --report sidecar.html")]
pub struct ReplayCommand {
    /// Which report
    #[arg(value_enum)]
    recipe: Recipe,
    /// Under three minutes rather than thorough
    #[arg(long)]
    quick: bool,
    /// Run nothing: take the figures that an earlier run wrote with --json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "tables"])]
    from: Option<PathBuf>,
    /// Write a page
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write the figures with schema 1; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Makes orders and losses repeatable
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Of mars only these tables: 1 loss, 2 outages, 3 request sizes, 4 response sizes, 5 outages in the middle of
    /// something
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=5))]
    tables: Vec<u32>,
    /// Envoy's executable
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// nginx's executable
    #[arg(long, value_name = "PATH")]
    nginx: Option<PathBuf>,
    /// HAProxy's executable
    #[arg(long, value_name = "PATH")]
    haproxy: Option<PathBuf>,
    /// The class path of OkHttp
    #[arg(long, value_name = "PATHS")]
    okhttp: Option<String>,
    /// A long-running client for envoy-mobile, with {url}, {count} and {interval_ms} in its words; by default this
    /// program's `get`
    #[arg(long, value_name = "COMMAND")]
    variant: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Recipe {
    /// CPU and battery of a client
    EnvoyMobile,
    /// Bad networks
    Mars,
    /// A chain of services with sidecars
    Sidecar,
    /// TCP forwarding
    Mosn,
    /// The cost of emitting trace events
    Atrace,
    /// Every one of the network: all but atrace
    All,
}

impl ReplayCommand {
    pub(super) fn run(self) -> super::Outcome {
        if let Some(path) = &self.from {
            let told = |error: &dyn std::fmt::Display| {
                super::usage(format!("{}: {error}", path.display()))
            };
            let text = std::fs::read_to_string(path).map_err(|error| told(&error))?;
            let all: Replay = serde_json::from_str(&text).map_err(|error| told(&error))?;
            let name = self
                .recipe
                .to_possible_value()
                .map_or_else(String::new, |it| it.get_name().to_owned());
            write(&all, &name, self.json.as_deref(), self.report.as_deref(), summary)?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.recipe == Recipe::Atrace {
            return self.run_atrace();
        }
        if !self.tables.is_empty() && self.recipe != Recipe::Mars {
            return Err(super::usage("only mars has --tables"));
        }
        crate::link::become_root_of_a_user_namespace()?;
        let mut peers = Peers::find();
        peers.envoy = self.envoy.or(peers.envoy);
        peers.nginx = self.nginx.or(peers.nginx);
        peers.haproxy = self.haproxy.or(peers.haproxy);
        peers.okhttp = self.okhttp.or(peers.okhttp);
        peers.variant = self.variant;
        let options = Options { is_quick: self.quick, seed: self.seed, peers, tables: self.tables };
        let recipes: Vec<replay::Recipe> = match self.recipe {
            Recipe::EnvoyMobile => vec![replay::Recipe::EnvoyMobile],
            Recipe::Mars => vec![replay::Recipe::Mars],
            Recipe::Sidecar => vec![replay::Recipe::Sidecar],
            Recipe::Mosn => vec![replay::Recipe::Mosn],
            Recipe::Atrace => Vec::new(),
            Recipe::All => replay::Recipe::ALL.into(),
        };
        let mut all = Replay::default();
        let mut names = Vec::new();
        for recipe in recipes {
            let name = recipe.name();
            let result = replay::run(recipe, &options, &mut |what| {
                super::print_progress(&format!("{name}: {what}"))
            });
            super::print_progress("");
            all.append(result.map_err(|error| format!("{name}: {error}"))?);
            names.push(name);
        }
        write(&all, &names.join(", "), self.json.as_deref(), self.report.as_deref(), summary)?;
        Ok(if all.rows.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Every case in this process, which stays itself: trace_marker is for the real root.
    fn run_atrace(self) -> super::Outcome {
        let result = replay::atrace::run(self.quick, &mut |what| {
            super::print_progress(&format!("atrace: {what}"))
        });
        super::print_progress("");
        let all = result.map_err(|error| format!("atrace: {error}"))?;
        let text = |all: &Replay| {
            let notes: String = all.notes.iter().map(|note| format!("{note}\n")).collect();
            let rulers = all.rows.iter().filter(|row| row.table == replay::atrace::RULERS);
            let rulers: String =
                rulers.map(|row| format!("{:<52} {:>8.2} ns\n", row.case, row.value)).collect();
            format!("{notes}\n{rulers}\n{}", replay::atrace::table(all).to_markdown())
        };
        write(&all, "atrace", self.json.as_deref(), self.report.as_deref(), text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the figures to where they are wanted, as text unless standard output is taken.
fn write(
    all: &Replay,
    names: &str,
    json: Option<&Path>,
    report: Option<&Path>,
    text: impl Fn(&Replay) -> String,
) -> std::io::Result<()> {
    if let Some(path) = json {
        // Figures that were read from a file keep where and when they were made.
        let made = all.made.clone().unwrap_or_else(|| Made::now(&super::command_line()));
        super::write_json(path, &describe("replay", &made, all.to_json()))?;
    }
    if let Some(path) = report {
        let page = all.to_page(&format!("Replay: {names}"), &super::command_line());
        super::write_text(path, &page.to_html())?;
    }
    if json != Some(Path::new("-")) {
        super::print(&text(all));
    }
    Ok(())
}

/// The page's tables as text.
fn summary(replay: &Replay) -> String {
    replay.to_page("Replay", &super::command_line()).to_markdown()
}
