//! A server that freezes for a second is charged for all who would have come meanwhile.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use towpath_lab::load::{Arrivals, Outcome, Plan, run};
use towpath_lab::origin::{Origin, spawn};

/// 2,000 requests per second on 20 connections for 5 s, frozen for 1 s in the middle.
fn stall(arrivals: Arrivals) -> Outcome {
    let server = spawn(&Origin::http("127.0.0.1:0".parse().unwrap(), 64)).unwrap();
    let mut plan = Plan::new(server.address().clone().into());
    plan.arrivals = arrivals;
    plan.connections = 20;
    plan.duration = Duration::from_secs(5);
    let measuring = std::thread::spawn(move || run(&plan).unwrap());
    std::thread::sleep(Duration::from_secs(2));
    server.freeze(Duration::from_secs(1));
    measuring.join().unwrap()
}

#[test]
fn intended_time_shows_the_stall_and_service_time_hides_it() {
    // A machine that is itself held up stalls more than the server did: it is asked again, twice at most.
    let mut failures = Vec::new();
    while failures.len() < 3 {
        match the_stall_shows() {
            Ok(()) => {
                return println!(
                    "held after {} tries that the machine spoilt: {failures:#?}",
                    failures.len()
                );
            }
            Err(failure) => failures.push(failure),
        }
    }
    panic!("{failures:#?}");
}

fn the_stall_shows() -> Result<(), String> {
    let shared = std::thread::spawn(|| stall(Arrivals::Paced { rate: 2000.0 }));
    let capped =
        std::thread::spawn(|| stall(Arrivals::ClosedCapped { per_connection_rate: 100.0 }));
    let scheduled = stall(Arrivals::PerConnection { per_connection_rate: 100.0 });
    for outcome in [shared.join().unwrap(), scheduled] {
        let all = (outcome.sent, outcome.errors.total()) == (10_000, 0);
        let (latency, service) = (outcome.latency.percentiles(), outcome.service.percentiles());
        let says_so = (900_000_000..=1_010_000_000).contains(&latency.p99)
            && (400_000_000..=600_000_000).contains(&latency.p90);
        // At most the twenty requests in flight were slow from their actual start: 0.2 % of all.
        let hides_it =
            service.p99 < 100_000_000 && (900_000_000..1_100_000_000).contains(&service.max);
        if !all || !says_so || !hides_it {
            let (sent, errors) = (outcome.sent, &outcome.errors);
            let name = &outcome.arrivals;
            return Err(format!("{name}: {sent} sent, {errors:?}, {latency:?}, {service:?}"));
        }
    }
    // A cap turns the stall into a lower rate with a healthy percentile.
    let capped = capped.join().unwrap();
    let (p99, rate) = (capped.latency.percentiles().p99, capped.achieved_rps());
    let warned = capped.warnings.iter().any(|warning| warning.contains("were not sent"));
    if p99 < 100_000_000 && rate < 1700.0 && warned {
        return Ok(());
    }
    Err(format!("capped: {p99} ns, {rate}/s, {:?}", capped.warnings))
}
