//! SOFAMosn 0.1.0 against Envoy 1.7: TCP forwarding of 1 KB HTTP posts and of 1 KB Bolt calls over a link of 2.5 ms;
//! what SOFAMosn was built for, Bolt routed by its service; and HTTP/2, which it has learnt since.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use towpath_sim::link::{Conditions, Timeline};

use super::peers::{Forward, Layer, Proxy, SERVICE, Wire};
use super::{Options, Replay, Samples, name_the_silent, percentile_ms, shuffle};
use crate::address::Address;
use crate::experiment::{Program, Running, free_addresses};
use crate::link::{FAR, Link, Tuning};
use crate::load::tls::{Tls, Trusted};
use crate::load::{self, Outcome, Plan, Request};
use crate::random::Random;

pub(super) fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> io::Result<Replay> {
    let (rounds, seconds) = if options.is_quick { (3, 1.0) } else { (8, 2.0) };
    let link = Link::open(&Tuning::default())?;
    let half = Conditions { delay: Duration::from_micros(1250), ..Conditions::default() };
    link.follow(&half, &half, &Timeline::default(), options.seed, false);
    let mut samples = Samples::new(options.seed);
    samples.originals = &[("towpath", "SOFAMosn 0.1.0"), ("envoy", "Envoy 1.7")];
    let mut notes = vec![
        "TCP forwarding by one worker; the client is behind an emulated link with a round trip of 2.5 ms, proxy and \
         server share the far end. \
         The published columns are SOFAMosn 0.1.0 (beside Towpath) and Envoy 1.7 (beside Envoy), on a machine of 2013."
            .to_owned(),
    ];
    let mut subjects = vec![
        None,
        Some(Proxy::Towpath),
        Some(Proxy::Envoy),
        Some(Proxy::Nginx),
        Some(Proxy::Haproxy),
    ];
    let plain = Job { table: TABLE, layer: Layer::Tcp, subjects: &[], speaks: Speaks::Http1 };
    subjects.retain(|subject| match launch(&link, *subject, &plain, options) {
        Ok(_) => true,
        Err(error) => {
            notes.push(format!(
                "{} was not measured: {error}.",
                subject.map_or("direct", Proxy::name)
            ));
            false
        }
    });
    let mut random = Random::new(options.seed);
    for (concurrency, published) in PUBLISHED {
        for round in 0..rounds {
            shuffle(&mut subjects, &mut random);
            for subject in &subjects {
                let who = subject.map_or("direct", Proxy::name);
                progress(&format!(
                    "{concurrency} connections, round {} of {rounds}, {who}",
                    round + 1
                ));
                let (running, entry) =
                    launch(&link, *subject, &plain, options).map_err(io::Error::other)?;
                let plan = plan(&running, entry, concurrency, seconds);
                let outcome =
                    link.near().run(move || load::run(&plan)).map_err(io::Error::other)?;
                record(&mut samples, TABLE, concurrency, who, &outcome);
                let what = format!("{TABLE}, {}: {who}", case(concurrency));
                name_the_silent(&mut notes, &what, &outcome);
            }
        }
        for (who, figures) in [("towpath", published.0), ("envoy", published.1)] {
            for ((metric, unit), value) in METRICS.into_iter().zip(figures) {
                samples.publish(TABLE, &case(concurrency), who, metric, unit, value);
            }
        }
    }
    for job in JOBS {
        multiplexed(&job, &link, options, &mut samples, &mut notes, progress)?;
    }
    Ok(Replay { rows: samples.into_rows(), notes, made: None })
}

/// Bolt and HTTP/2, many requests in flight on each connection.
fn multiplexed(
    job: &Job,
    link: &Link,
    options: &Options,
    samples: &mut Samples,
    notes: &mut Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> io::Result<()> {
    let (rounds, seconds) = if options.is_quick { (2, 1.0) } else { (8, 2.0) };
    let mut subjects = job.subjects.to_vec();
    subjects.retain(|subject| match launch(link, Some(*subject), job, options) {
        Ok(_) => true,
        Err(error) => {
            let (who, table) = (subject.name(), job.table);
            notes.push(format!("{table}: {who} was not measured: {error}."));
            false
        }
    });
    let mut random = Random::new(options.seed);
    for concurrency in [1, 20, 200, 500] {
        for round in 0..rounds {
            shuffle(&mut subjects, &mut random);
            for subject in &subjects {
                let who = subject.name();
                progress(&format!(
                    "{}: {concurrency} connections, round {} of {rounds}, {who}",
                    job.table,
                    round + 1
                ));
                let (running, entry) =
                    launch(link, Some(*subject), job, options).map_err(io::Error::other)?;
                let mut plan = plan(&running, entry, concurrency, seconds);
                plan.in_flight = IN_FLIGHT;
                if job.speaks == Speaks::Bolt {
                    plan.protocol = load::Protocol::Bolt;
                    plan.request.headers.push(("service".to_owned(), SERVICE.to_owned()));
                } else {
                    plan.protocol = load::Protocol::Http2;
                }
                if job.speaks == Speaks::Http2UnderTls {
                    let tls = Tls::new("localhost", &Trusted::All, false, plan.protocol);
                    plan.tls = Some(tls.map_err(io::Error::other)?);
                }
                let outcome =
                    link.near().run(move || load::run(&plan)).map_err(io::Error::other)?;
                record(samples, job.table, concurrency, who, &outcome);
                let what = format!("{}, {}: {who}", job.table, case(concurrency));
                name_the_silent(notes, &what, &outcome);
            }
        }
    }
    for (who, figures) in [("towpath", BOLT_MOSN), ("envoy", BOLT_ENVOY)] {
        let is_bolt = job.speaks == Speaks::Bolt;
        if is_bolt && job.subjects.iter().any(|subject| subject.name() == who) {
            for ((metric, unit), value) in BOLT_METRICS.into_iter().zip(figures) {
                samples.publish(job.table, &case(PUBLISHED_BESIDE), who, metric, unit, value);
            }
        }
    }
    Ok(())
}

fn launch(
    link: &Link,
    subject: Option<Proxy>,
    job: &Job,
    options: &Options,
) -> Result<(Running, SocketAddr), String> {
    let addresses = free_addresses(FAR, 2).map_err(|error| error.to_string())?;
    let [entry, server] = addresses[..] else { return Err("no free ports".to_owned()) };
    let listen = if subject.is_some() { server } else { entry };
    let mut programs = vec![Program {
        name: "origin".to_owned(),
        role: "service".to_owned(),
        command: [
            options.peers.towpath.display().to_string().as_str(),
            "lab",
            "origin",
            "--protocol",
            if job.speaks == Speaks::Bolt { "bolt" } else { "h1" },
            "--size",
            "1k",
            "--listen",
            &listen.to_string(),
        ]
        .map(str::to_owned)
        .into(),
        config: None,
        listens: vec![listen],
    }];
    if let Some(proxy) = subject {
        let (clients, servers) = match job.speaks {
            Speaks::Http1 | Speaks::Bolt => (Wire::Http1, Wire::Http1),
            Speaks::Http2 => (Wire::Http2, Wire::Http2),
            Speaks::Http2UnderTls => (Wire::Secure, Wire::Http1),
        };
        let forward = Forward { clients, servers, ..Forward::new(entry, vec![server]) };
        programs.push(proxy.program(&options.peers, job.layer, &[forward])?);
    }
    let running =
        Running::launch(&programs, Some(link.far())).map_err(|error| error.to_string())?;
    Ok((running, entry))
}

fn plan(running: &Running, entry: SocketAddr, concurrency: usize, seconds: f64) -> Plan {
    let mut plan = Plan::new(Address::Tcp(entry).into());
    plan.request = Request::with_body(1024);
    plan.connections = concurrency;
    plan.warmup = Duration::from_millis(300);
    plan.duration = Duration::from_secs_f64(seconds);
    let proxies = running.pids("proxy");
    plan.pids = if proxies.is_empty() { running.pids("service") } else { proxies };
    plan
}

fn record(samples: &mut Samples, table: &str, concurrency: usize, who: &str, outcome: &Outcome) {
    let latency = &outcome.latency;
    let mean_ms = if latency.count() == 0 { f64::NAN } else { latency.mean() / 1e6 };
    let target = outcome.target.unwrap_or_default();
    // Without a proxy there is nothing to charge: the server's own cost is not comparable.
    let is_direct = who == "direct";
    let figures = [
        outcome.achieved_rps(),
        mean_ms,
        percentile_ms(latency, 0.99),
        percentile_ms(latency, 0.98),
        percentile_ms(latency, 0.95),
        if is_direct { f64::NAN } else { target.cost.rss_bytes as f64 / 1_048_576.0 },
        if is_direct {
            f64::NAN
        } else {
            target.cost.cpu_ns as f64 / outcome.duration.as_nanos() as f64 * 100.0
        },
        if is_direct { f64::NAN } else { target.cpu_ns_per_request().unwrap_or(f64::NAN) / 1e3 },
    ];
    for ((metric, unit), value) in METRICS.into_iter().zip(figures) {
        samples.add(table, &case(concurrency), who, metric, unit, value);
    }
    samples.add(
        table,
        &case(concurrency),
        who,
        "errors",
        "requests",
        outcome.errors.total() as f64,
    );
}

fn case(concurrency: usize) -> String {
    format!("concurrency {concurrency}")
}

const TABLE: &str = "TCP forwarding, HTTP/1.1, 1 KB posts";

/// A table.
struct Job {
    table: &'static str,
    layer: Layer,
    subjects: &'static [Proxy],
    speaks: Speaks,
}

/// What clients speak.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Http1,
    Bolt,
    /// And servers.
    Http2,
    /// To servers of HTTP/1.1.
    Http2UnderTls,
}

const JOBS: [Job; 4] = [
    Job {
        table: "TCP forwarding, Bolt, 1 KB calls, 16 in flight on each connection",
        layer: Layer::Tcp,
        subjects: &[Proxy::Towpath, Proxy::Envoy, Proxy::Haproxy],
        speaks: Speaks::Bolt,
    },
    Job {
        table: "Routed forwarding, Bolt, 1 KB calls, 16 in flight on each connection",
        layer: Layer::Bolt,
        subjects: &[Proxy::Towpath],
        speaks: Speaks::Bolt,
    },
    Job {
        table: "HTTP/2 to HTTP/2, 1 KB posts, 16 streams on each connection",
        layer: Layer::Http,
        subjects: &[Proxy::Towpath, Proxy::Envoy, Proxy::Haproxy],
        speaks: Speaks::Http2,
    },
    Job {
        table: "HTTP/2 under TLS to HTTP/1.1, 1 KB posts, 16 streams on each connection",
        layer: Layer::Http,
        subjects: &[Proxy::Towpath, Proxy::Envoy],
        speaks: Speaks::Http2UnderTls,
    },
];

const IN_FLIGHT: usize = 16;

/// The report names no concurrency for Bolt. Rate times round trip is 1,680 calls under way: between 20 and 200
/// connections.
const PUBLISHED_BESIDE: usize = 200;
const BOLT_METRICS: [(&str, &str); 5] = [
    ("rate", "requests/s"),
    ("mean", "ms"),
    ("memory", "MiB"),
    ("cpu", "% of a CPU"),
    ("cpu_per_request", "µs"),
];
/// The last figure recomputed from CPU and rate.
const BOLT_MOSN: [f64; 5] = [103_500.0, 16.23, 31.0, 100.0, 9.66];
const BOLT_ENVOY: [f64; 5] = [104_000.0, 15.88, 18.0, 100.0, 9.62];

const METRICS: [(&str, &str); 8] = [
    ("rate", "requests/s"),
    ("mean", "ms"),
    ("p99", "ms"),
    ("p98", "ms"),
    ("p95", "ms"),
    ("memory", "MiB"),
    ("cpu", "% of a CPU"),
    ("cpu_per_request", "µs"),
];

type Figures = [f64; 8];

/// SOFAMosn's and Envoy's columns, the last figure recomputed from CPU and rate.
const PUBLISHED: [(usize, (Figures, Figures)); 4] = [
    (
        20,
        (
            [5600.0, 3.549, 4.0, 4.0, 4.0, 24.0, 40.0, 71.4],
            [5600.0, 3.545, 4.0, 4.0, 4.0, 23.0, 20.0, 35.7],
        ),
    ),
    (
        40,
        (
            [11_150.0, 3.583, 4.0, 4.0, 4.0, 34.0, 70.0, 62.8],
            [11_200.0, 3.565, 4.0, 4.0, 4.0, 24.0, 40.0, 35.7],
        ),
    ),
    (
        200,
        (
            [29_670.0, 5.715, 16.0, 13.0, 11.0, 96.0, 100.0, 33.7],
            [38_800.0, 5.068, 7.0, 7.0, 6.0, 24.0, 95.0, 24.5],
        ),
    ),
    (
        220,
        (
            [30_367.0, 8.201, 20.0, 19.0, 16.0, 100.0, 100.0, 32.9],
            [41_070.0, 5.369, 9.0, 8.0, 8.0, 24.0, 100.0, 24.3],
        ),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_nothing_has_no_latency_and_is_named() {
        let mut samples = Samples::new(1);
        let silent = Outcome { duration: Duration::from_secs(1), ..Outcome::default() };
        record(&mut samples, TABLE, 20, "haproxy", &silent);
        let rows = samples.into_rows();
        let metrics: Vec<&str> = rows.iter().map(|row| row.metric.as_str()).collect();
        assert_eq!(metrics, ["rate", "memory", "cpu", "errors"]);
        let mut notes = Vec::new();
        name_the_silent(&mut notes, "haproxy", &silent);
        name_the_silent(&mut notes, "haproxy", &silent);
        name_the_silent(&mut notes, "envoy", &Outcome { answered: 1, ..silent });
        assert_eq!(notes, ["haproxy gave no answer within 1 s."]);
    }
}
