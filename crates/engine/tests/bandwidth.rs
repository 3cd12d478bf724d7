//! Many streams that share one rate: all of them come to their end whole, together they are no faster than the rate,
//! and what is held of them is bounded.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::sync::Arc;
use std::time::Duration;

use scene::client::{Ending, add_clients};
use scene::filters::add_filter;
use scene::origin::{Habits, Log, origin};
use scene::{Plan, add_worker_for, drain_and_check, origin_address};
use towpath_engine::filter::bandwidth_limit::{BandwidthLimit, SharedBandwidthLimit};
use towpath_engine::filter::pace::Allowance;
use towpath_engine::message::Message;
use towpath_engine::snapshot::Snapshot;
use towpath_engine::stats::Registry;
use towpath_sim::{World, for_each_seed};

const CLIENTS: usize = 60;
const REQUESTS: usize = 3;
const ALL: usize = CLIENTS * REQUESTS;
const KIB_PER_SECOND: u64 = 64;
/// A stream's buffer limit in each direction, and a read beyond it.
const HELD_OF_STREAM: u64 = 2 * (16 + 64) * 1024;

fn snapshot(interval: Duration) -> Snapshot {
    let mut plan = Plan::new(1);
    plan.cluster.limits.connections = 1000;
    plan.cluster.limits.requests = 1000;
    plan.adjust_http = |http| http.stream_idle_timeout = None;
    plan.adjust_forward = |forward| forward.timeout = None;
    let mut snapshot = plan.snapshot();
    let config = BandwidthLimit {
        stat_prefix: "rate".into(),
        requests: true,
        responses: true,
        allowance: Allowance::new(KIB_PER_SECOND),
        interval,
        trailers: None,
    };
    add_filter(&mut snapshot, "rate", SharedBandwidthLimit(Arc::new(config)));
    snapshot
}

#[test]
fn many_streams_share_a_rate() {
    for (interval, seeds) in [(Duration::from_millis(50), 3), (Duration::from_millis(500), 1)] {
        for_each_seed(seeds, |seed| {
            let mut world: World<Message> = World::new(seed);
            let served = Log::default();
            world.add(origin(origin_address(1), served.clone(), Habits::default()));
            let registry = Arc::new(Registry::default());
            let worker = add_worker_for(&mut world, seed, Arc::new(snapshot(interval)), &registry);
            world.run_for(Duration::from_millis(1));
            let endings = add_clients(&mut world, seed, (CLIENTS, REQUESTS), 40_000);
            let number = |name: &str| {
                registry.read().number(&format!("rate.http_bandwidth_limit.{name}")).unwrap_or(0)
            };
            let sum = |what: &str| {
                number(&format!("request_{what}_total_size"))
                    + number(&format!("response_{what}_total_size"))
            };
            let mut most_held = 0;
            let mut seconds = 0;
            while endings.borrow().len() < ALL {
                world.run_for(Duration::from_secs(1));
                seconds += 1;
                let (came, went) = (sum("incoming"), sum("allowed"));
                // A full second's tokens are there at the start.
                let most = KIB_PER_SECOND * 1024 * (seconds + 2);
                assert!(went <= most, "{went} bytes in {seconds} s");
                most_held = most_held.max(came - went);
                assert!(seconds < 1000, "streams starve: {} of {ALL}", endings.borrow().len());
            }
            assert!(most_held <= CLIENTS as u64 * HELD_OF_STREAM, "{most_held} bytes were held");
            let went = sum("allowed");
            assert_eq!(went, sum("incoming"), "nothing is left behind");
            // The rate is used: it takes no longer than it must, but for what each client pauses.
            let least = went / (KIB_PER_SECOND * 1024);
            assert!(seconds <= 2 * least + 10, "{went} bytes took {seconds} s");
            for (id, ending) in endings.borrow().iter() {
                let whole = [Ending::Answered { status: 200, from_origin: true }];
                assert_eq!(ending[..], whole, "{id}");
            }
            assert_eq!((served.borrow().times.len(), served.borrow().wrong_bodies), (ALL, 0));
            for way in ["request_pending", "response_pending"] {
                assert_eq!(number(way), 0, "{way}");
            }
            drain_and_check(&mut world, worker);
        });
    }
}
