//! The admin endpoint: requests of operators and their tools arrive, what the control thread knows leaves.
//!
//! Paths, parameters and the shape of answers are Envoy's, so that its tools work. What is asked is answered on the
//! control thread; connections have a thread of their own (`thread.rs`), which makes statistics while it sends them and
//! lets workers go first. No request stops a worker.

mod certs;
mod clusters;
mod config_dump;
mod counted;
mod endpoints;
mod help;
mod listeners;
mod logging;
mod query;
mod reply;
mod runtime;
pub mod server;
mod server_info;
mod stats;
pub(crate) mod thread;
mod trace;

use std::rc::Rc;

use hyper::{Method, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::control::{Control, Phase};
use crate::log;
use crate::reload::Wish;
use query::Query;
use reply::Reply;

pub use server::AdminAddress;

/// A request on its way to the control thread.
pub(crate) struct Asked {
    method: Method,
    uri: Uri,
    teller: oneshot::Sender<Reply>,
}

/// Answers on the control thread what the admin endpoint's asks.
pub(crate) async fn answer_all(control: Rc<Control>, mut asked: mpsc::Receiver<Asked>) {
    while let Some(Asked { method, uri, teller }) = asked.recv().await {
        let control = control.clone();
        tokio::task::spawn_local(async move {
            // The client may have gone.
            let _ = teller.send(answer(&control, &method, &uri).await);
        });
    }
}

async fn answer(control: &Control, method: &Method, uri: &Uri) -> Reply {
    let path = uri.path();
    let Some(command) = COMMANDS.iter().find(|command| command.path == path) else {
        return Reply::refused(StatusCode::NOT_FOUND, format!("invalid path. {}", help::text()));
    };
    if command.mutates && *method != Method::POST {
        log!(Admin, Error, "admin path \"{path}\" mutates state, method={method} rather than POST");
        return Reply::refused(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("Method {method} not allowed, POST required."),
        );
    }
    if !matches!(*method, Method::GET | Method::HEAD | Method::POST) {
        return Reply::refused(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("Method {method} not allowed."),
        );
    }
    let query = Query::parse(uri.query().unwrap_or_default());
    run(command.what, control, &query).await
}

async fn run(what: What, control: &Control, query: &Query) -> Reply {
    match what {
        What::Home => Reply::html(help::page()),
        What::Help => Reply::text(help::text()),
        What::Certs => certs::certs(control),
        What::Clusters => clusters::clusters(control, query).await,
        What::ConfigDump => config_dump::config_dump(control, query).await,
        What::ConfigReload => reload(control).await,
        What::Contention => {
            Reply::text("Mutex contention is not traced: the data path has no mutex.")
        }
        What::DrainListeners => {
            control.drain_listeners(
                query.has("inboundonly"),
                query.has("graceful"),
                query.has("skip_exit"),
            );
            Reply::text("OK\n")
        }
        What::HealthFail => {
            control.fail_health(true);
            Reply::text("OK\n")
        }
        What::HealthOk => {
            control.fail_health(false);
            Reply::text("OK\n")
        }
        What::HotRestartVersion => Reply::text("disabled"),
        What::InitDump => init_dump(control),
        What::Listeners => listeners::listeners(control, query),
        What::Logging => logging::logging(query),
        What::Memory => server_info::memory(),
        What::Quit => {
            // The receiver is gone only when the process ends anyway.
            let _ = control.quit.send(());
            Reply::text("OK\n")
        }
        What::Ready => ready(control.phase()),
        What::ReopenLogs => {
            control.reopen_logs();
            Reply::text("OK\n")
        }
        What::ResetCounters => {
            control.reset_counters();
            Reply::text("OK\n")
        }
        What::Runtime => runtime::runtime(control),
        What::RuntimeModify => runtime::modify(control, query).await,
        What::ServerInfo => server_info::server_info(control),
        What::Stats => stats::stats(control, query),
        What::Prometheus => stats::prometheus(control, query),
        What::Trace => trace::trace(control, query).await,
        What::RecentLookups => {
            Reply::text("Lookup tracking is not enabled. Statistics are not looked up by name.\n")
        }
    }
}

fn ready(phase: Phase) -> Reply {
    let status =
        if phase == Phase::Live { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Reply::refused(status, format!("{}\n", phase.name()))
}

fn init_dump(control: &Control) -> Reply {
    match control.phase() {
        Phase::PreInitializing => {
            let names: Vec<String> =
                control.dns.unready().iter().map(ToString::to_string).collect();
            let unready = [serde_json::json!({"name": "dns", "target_names": names})];
            json(&serde_json::json!({"unready_targets_dumps": unready}))
        }
        Phase::Initializing | Phase::Live | Phase::Draining => json(&serde_json::json!({})),
    }
}

/// JSON as Envoy prints it: indented by one space.
fn json(value: &Value) -> Reply {
    Reply::json(pretty(value))
}

/// Asks for a new configuration, and says what came of it.
async fn reload(control: &Control) -> Reply {
    let (teller, told) = oneshot::channel();
    let _ = control.reload.send(Wish::Configuration(Some(teller)));
    match told.await {
        Ok(Ok(applied)) if applied.missing > 0 => Reply::accepted(format!("{applied}\n")),
        Ok(Ok(applied)) => Reply::text(format!("{applied}\n")),
        Ok(Err(why)) => Reply::refused(StatusCode::BAD_REQUEST, format!("{why}\n")),
        Err(_) => Reply::refused(StatusCode::SERVICE_UNAVAILABLE, "the program ends\n"),
    }
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    let written = serde::Serialize::serialize(value, &mut serializer);
    debug_assert!(written.is_ok(), "a value is always JSON");
    text.push(b'\n');
    text
}

/// A command of the admin endpoint.
struct Command {
    path: &'static str,
    what: What,
    mutates: bool,
    does: &'static str,
    parameters: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy)]
enum What {
    Home,
    Certs,
    Clusters,
    ConfigDump,
    ConfigReload,
    Contention,
    DrainListeners,
    HealthFail,
    HealthOk,
    Help,
    HotRestartVersion,
    InitDump,
    Listeners,
    Logging,
    Memory,
    Quit,
    Ready,
    ReopenLogs,
    ResetCounters,
    Runtime,
    RuntimeModify,
    ServerInfo,
    Stats,
    Prometheus,
    RecentLookups,
    Trace,
}

const fn query(path: &'static str, what: What, does: &'static str) -> Command {
    Command { path, what, mutates: false, does, parameters: &[] }
}

const fn order(path: &'static str, what: What, does: &'static str) -> Command {
    Command { path, what, mutates: true, does, parameters: &[] }
}

impl Command {
    const fn with(mut self, parameters: &'static [(&'static str, &'static str)]) -> Self {
        self.parameters = parameters;
        self
    }
}

const STATS_PARAMETERS: [(&str, &str); 5] = [
    ("usedonly", "only what was ever written"),
    ("filter", "only names that match this regular expression"),
    ("invert_filter", "only names that do not match the filter"),
    ("hidden", "only: those that are hidden, of which there are none"),
    ("histogram_buckets", "summary; for Prometheus cumulative or summary"),
];

/// Sorted by path.
static COMMANDS: [Command; 26] = [
    query("/", What::Home, "this list, for a browser"),
    query("/certs", What::Certs, "certificates in use"),
    query("/clusters", What::Clusters, "clusters and their hosts").with(&[
        ("format", "text or json"),
        ("filter", "only clusters whose name matches this regular expression"),
    ]),
    order(
        "/config/reload",
        What::ConfigReload,
        "read the configuration anew, and serve it if it is valid",
    ),
    query("/config_dump", What::ConfigDump, "the configuration in force").with(&[
        ("resource", "one repeated field, static_clusters say"),
        ("mask", "fields to show, separated by commas"),
        ("name_regex", "only resources whose whole name matches"),
        ("include_eds", "endpoints too"),
    ]),
    query("/contention", What::Contention, "mutex contention"),
    order("/drain_listeners", What::DrainListeners, "close listeners and let connections finish")
        .with(&[
            ("graceful", "go on accepting for the drain time"),
            ("skip_exit", "never stop accepting"),
            ("inboundonly", "only listeners whose traffic_direction is INBOUND"),
        ]),
    order(
        "/healthcheck/fail",
        What::HealthFail,
        "want no traffic: /ready says 503, responses end their connections",
    ),
    order("/healthcheck/ok", What::HealthOk, "take /healthcheck/fail back"),
    query("/help", What::Help, "this list"),
    query("/hot_restart_version", What::HotRestartVersion, "hot restart is disabled"),
    query("/init_dump", What::InitDump, "what the start waits for"),
    query("/listeners", What::Listeners, "listeners and their addresses")
        .with(&[("format", "text or json")]),
    order("/logging", What::Logging, "show or set log levels").with(&[
        ("level", "of all components"),
        ("paths", "of several: name1:level1,name2:level2"),
        ("group", "of one: name:level"),
    ]),
    query("/memory", What::Memory, "memory in use"),
    order("/quitquitquit", What::Quit, "end the process"),
    query("/ready", What::Ready, "the state; 200 when LIVE, else 503"),
    order("/reopen_logs", What::ReopenLogs, "open log files anew"),
    order("/reset_counters", What::ResetCounters, "set counters to zero"),
    query("/runtime", What::Runtime, "runtime values"),
    order("/runtime_modify", What::RuntimeModify, "set runtime values, or take them back")
        .with(&[("KEY", "the value of the key; empty to take it back")]),
    query("/server_info", What::ServerInfo, "version, state and command line"),
    query("/stats", What::Stats, "statistics").with(&[
        STATS_PARAMETERS[0],
        STATS_PARAMETERS[1],
        STATS_PARAMETERS[2],
        STATS_PARAMETERS[3],
        STATS_PARAMETERS[4],
        ("format", "text, json or prometheus"),
        ("type", "All, Counters, Gauges, Histograms or TextReadouts"),
    ]),
    query("/stats/prometheus", What::Prometheus, "statistics for Prometheus")
        .with(&STATS_PARAMETERS),
    query("/stats/recentlookups", What::RecentLookups, "not supported"),
    order("/trace", What::Trace, "record requests; answers a Perfetto file")
        .with(&[("seconds", "how long, 5 unless told; at most 60")]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_few_change_anything() {
        assert!(COMMANDS.windows(2).all(|pair| pair[0].path < pair[1].path));
        let changing = COMMANDS.iter().filter(|command| command.mutates).count();
        assert_eq!(changing, 10);
    }
}
