//! `towpath lab replay`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::replay::{self, Options, Peers, Replay};
use crate::report::Table;

/// Run a public performance report again
#[derive(Debug, Args)]
#[command(after_help = "\
Peers are looked for in the environment (TOWPATH_ENVOY, TOWPATH_NGINX, TOWPATH_HAPROXY, TOWPATH_CURL,
TOWPATH_OKHTTP: a class path), then below target/peers, then in the search path. Who is missing is named.

Example: towpath lab replay sidecar --quick --report sidecar.html")]
pub struct ReplayCommand {
    /// Which report
    #[arg(value_enum)]
    recipe: Recipe,
    /// Under three minutes rather than thorough
    #[arg(long)]
    quick: bool,
    /// Write a page
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write the figures with schema 1; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Makes orders and losses repeatable
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    /// A long-running client for envoy-mobile, with {url}, {count} and {interval_ms} in its words
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
    /// Every one
    All,
}

impl ReplayCommand {
    pub(super) fn run(self) -> super::Outcome {
        crate::link::become_root_of_a_user_namespace()?;
        let mut peers = Peers::find();
        peers.envoy = self.envoy.or(peers.envoy);
        peers.nginx = self.nginx.or(peers.nginx);
        peers.haproxy = self.haproxy.or(peers.haproxy);
        peers.okhttp = self.okhttp.or(peers.okhttp);
        peers.variant = self.variant;
        let options = Options { is_quick: self.quick, seed: self.seed, peers };
        let recipes: Vec<replay::Recipe> = match self.recipe {
            Recipe::EnvoyMobile => vec![replay::Recipe::EnvoyMobile],
            Recipe::Mars => vec![replay::Recipe::Mars],
            Recipe::Sidecar => vec![replay::Recipe::Sidecar],
            Recipe::Mosn => vec![replay::Recipe::Mosn],
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
        if let Some(path) = &self.json {
            super::write_json(path, &all.to_json())?;
        }
        if let Some(path) = &self.report {
            let page =
                all.to_page(&format!("Replay: {}", names.join(", ")), &super::command_line());
            super::write_text(path, &page.to_html())?;
        }
        if self.json.as_deref() != Some(std::path::Path::new("-")) {
            super::print(&summary(&all));
        }
        Ok(if all.rows.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn summary(replay: &Replay) -> String {
    let mut text = String::new();
    for note in &replay.notes {
        text += &format!("{note}\n");
    }
    let mut tables: Vec<&str> = replay.rows.iter().map(|row| row.table.as_str()).collect();
    tables.dedup();
    for name in tables {
        let mut table =
            Table::new(&["case", "who", "metric", "value", "95 % interval", "published"]);
        for row in replay.rows.iter().filter(|row| row.table == name) {
            let interval = row.low.zip(row.high).map(|(low, high)| format!("{low:.3} – {high:.3}"));
            table.row([
                row.case.clone(),
                row.who.clone(),
                row.metric.clone(),
                format!("{:.3} {}", row.value, row.unit),
                interval.unwrap_or_default(),
                row.published.map(|value| format!("{value:.3}")).unwrap_or_default(),
            ]);
        }
        text += &format!("\n### {name}\n\n{}", table.to_markdown());
    }
    text
}
