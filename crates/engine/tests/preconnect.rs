//! Connections that are opened ahead of need.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    clippy::wildcard_enum_match_arm,
    reason = "these are tests, and a script answers to what it cares about"
)]

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::message::Message;
use towpath_engine::stats::Registry;
use towpath_sim::{Random, World, for_each_seed};

mod scene;

use scene::client::{Endings, asks, client};
use scene::origin::{Habits, Log, origin};
use scene::{HTTP, Plan, add_counted_worker, address, drain_and_check, origin_address};

/// How many connections a host gets by one client's requests, which come one after the other.
fn connections(seed: u64, adjust: impl FnOnce(&mut Plan)) -> u64 {
    let mut world: World<Message> = World::new(seed);
    world.add(origin(origin_address(1), Log::default(), Habits::default()));
    let mut plan = Plan::new(1);
    adjust(&mut plan);
    let registry = Arc::new(Registry::default());
    let worker = add_counted_worker(&mut world, seed, plan, &registry);
    world.run_for(Duration::from_millis(1));
    let (mut random, endings) = (Random::new(seed), Endings::default());
    let asks = asks(&mut random, 0, 10, 1000);
    world.add(client(address(HTTP), asks, Rc::clone(&endings)));
    world.run_for(Duration::from_secs(50));
    drain_and_check(&mut world, worker);
    assert_eq!(endings.borrow().len(), 10);
    registry.read().number("cluster.app.upstream_cx_total").unwrap()
}

#[test]
fn a_host_has_connections_for_more_streams_than_there_are() {
    for_each_seed(5, |seed| {
        for (ratio, wanted) in [(1000, 1), (1001, 2), (1500, 2), (2000, 2), (2001, 3), (3000, 3)] {
            let opened = connections(seed, |plan| plan.cluster.preconnect_milli = ratio);
            assert_eq!(opened, wanted, "{ratio}");
        }
    });
}

#[test]
fn no_circuit_breaker_is_passed_ahead_of_need() {
    let opened = connections(1, |plan| {
        plan.cluster.preconnect_milli = 3000;
        plan.cluster.limits.connections = 2;
    });
    assert_eq!(opened, 2);
}
