//! A server that freezes for a second is charged for everybody who would have come meanwhile.
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
    let shared = std::thread::spawn(|| stall(Arrivals::Paced { rate: 2000.0 }));
    let capped =
        std::thread::spawn(|| stall(Arrivals::ClosedCapped { per_connection_rate: 100.0 }));
    let scheduled = stall(Arrivals::PerConnection { per_connection_rate: 100.0 });
    for outcome in [shared.join().unwrap(), scheduled] {
        let latency = outcome.latency.percentiles();
        assert!(
            (900_000_000..=1_010_000_000).contains(&latency.p99),
            "{}: {latency:?}",
            outcome.arrivals
        );
        assert!(
            (400_000_000..=600_000_000).contains(&latency.p90),
            "{}: {latency:?}",
            outcome.arrivals
        );
        // At most the twenty requests in flight were slow from their actual start: 0.2 % of all.
        let service = outcome.service.percentiles();
        assert!(service.p99 < 100_000_000, "{}: {service:?}", outcome.arrivals);
        assert!(
            (900_000_000..1_100_000_000).contains(&service.max),
            "{}: {service:?}",
            outcome.arrivals
        );
        assert_eq!((outcome.sent, outcome.errors.total()), (10_000, 0));
    }
    // A cap turns the stall into a lower rate with a healthy percentile.
    let capped = capped.join().unwrap();
    assert!(capped.latency.percentiles().p99 < 100_000_000);
    assert!(capped.achieved_rps() < 1700.0, "{}", capped.achieved_rps());
    assert!(
        capped.warnings.iter().any(|warning| warning.contains("were not sent")),
        "{:?}",
        capped.warnings
    );
}
