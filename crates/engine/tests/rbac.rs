//! The rules of a filter chain: a client is judged by its first bytes, and what is refused leaves nothing.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use scene::origin::{Habits, Log, origin};
use scene::{HTTP, Plan, TCP, add_worker_for, address, drain_and_check, origin_address};
use towpath_engine::matcher::{MetadataMatcher, StringMatcher, ValueMatcher};
use towpath_engine::message::Message;
use towpath_engine::network_filter::rbac::NetworkRbac;
use towpath_engine::rbac::{Action, Policy, Rule, Rules, Whose};
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::listener::Prefix;
use towpath_engine::stats::Registry;
use towpath_proto::{Close, Input, Instant};
use towpath_sim::{Orders, Script, World, for_each_seed};

/// What a client got, and when its connection ended.
type Got = Rc<RefCell<(Vec<u8>, Option<Instant>)>>;

/// A client that sends requests, one each 10 ms.
fn client(
    to: ([u8; 4], u16),
    requests: usize,
    got: &Got,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant) + use<>> {
    let got = Rc::clone(got);
    let (mut left, mut connection) = (requests, None);
    Script::new(
        |orders: &mut Orders<Message>| orders.wake_at(Instant::from_nanos(2_000_000)),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Timeout if connection.is_none() => {
                orders.connect(address(to));
            }
            Input::Connected { connection: id, .. } => {
                connection = Some(id);
                orders.wake_at(now + Duration::from_millis(10));
            }
            Input::Timeout if left > 0 && got.borrow().1.is_none() => {
                left -= 1;
                orders.send(connection.unwrap(), Bytes::from_static(REQUEST));
                orders.wake_at(now + Duration::from_millis(10));
            }
            Input::Received { chunk, .. } => got.borrow_mut().0.extend_from_slice(&chunk),
            Input::Ended { connection: id } => {
                orders.close(id, Close::Flush);
                got.borrow_mut().1 = Some(now);
            }
            Input::Closed { .. } => got.borrow_mut().1 = Some(now),
            _ => {}
        },
    )
}

const REQUEST: &[u8] =
    b"GET /x HTTP/1.1\r\nhost: app.test\r\nx-id: one\r\nx-size: 4\r\nx-body: 0\r\n\r\n";

struct Outcome {
    text: String,
    ended: Option<Duration>,
    allowed: u64,
    denied: u64,
    shadow_denied: u64,
}

/// A client that asks three times at a listener with these rules.
fn run(seed: u64, to: ([u8; 4], u16), change: impl FnOnce(&mut NetworkRbac)) -> Outcome {
    run_behind(seed, to, Vec::new(), change)
}

/// The same behind other rules.
fn run_behind(
    seed: u64,
    to: ([u8; 4], u16),
    mut filters: Vec<NetworkRbac>,
    change: impl FnOnce(&mut NetworkRbac),
) -> Outcome {
    let mut rbac = NetworkRbac { stat_prefix: "r".into(), ..NetworkRbac::default() };
    change(&mut rbac);
    filters.push(rbac);
    let mut world: World<Message> = World::new(seed);
    world.add(origin(origin_address(1), Log::default(), Habits::default()));
    let (registry, got) = (Arc::new(Registry::default()), Got::default());
    let worker = add_worker_for(&mut world, seed, Arc::new(snapshot(to, filters)), &registry);
    world.run_for(Duration::from_millis(1));
    world.add(client(to, 3, &got));
    world.run_for(Duration::from_secs(5));
    let number = |name: &str| registry.read().number(name).unwrap_or(0);
    let outcome = Outcome {
        text: String::from_utf8_lossy(&got.borrow().0).into_owned(),
        ended: got.borrow().1.map(|at| at - Instant::ZERO),
        allowed: number("r.rbac.allowed"),
        denied: number("r.rbac.denied"),
        shadow_denied: number("r.rbac.shadow_denied"),
    };
    drain_and_check(&mut world, worker);
    assert_eq!(number("listener.in.downstream_cx_active"), 0);
    outcome
}

fn snapshot(to: ([u8; 4], u16), filters: Vec<NetworkRbac>) -> Snapshot {
    let mut snapshot = Plan::new(1).snapshot();
    snapshot.listeners.retain(|listener| listener.addresses == [address(to)]);
    let listener = Arc::get_mut(&mut snapshot.listeners[0]).unwrap();
    let chain = Arc::get_mut(&mut listener.chains[0]).unwrap();
    for filter in filters {
        chain.filters.list.push(Arc::new(filter));
    }
    snapshot
}

fn rules(action: Action, rule: Rule) -> Option<Rules> {
    Some(Rules::new(action, vec![Policy::new("p", vec![rule], vec![Rule::Any])]))
}

fn nothing() -> Option<Rules> {
    Some(Rules::new(Action::Allow, Vec::new()))
}

#[test]
fn a_client_that_is_refused_gets_nothing() {
    for to in [HTTP, TCP] {
        for_each_seed(20, |seed| {
            let outcome = run(seed, to, |rbac| rbac.rules = nothing());
            assert_eq!((outcome.text.as_str(), outcome.allowed, outcome.denied), ("", 0, 1));
            assert!(outcome.ended.is_some_and(|at| at < Duration::from_millis(100)));
        });
    }
}

#[test]
fn a_client_that_is_allowed_is_judged_once() {
    for to in [HTTP, TCP] {
        for_each_seed(20, |seed| {
            let local = Rule::Address(Whose::Local, Prefix::new(to.0.into(), 32));
            let outcome = run(seed, to, |rbac| {
                rbac.rules = rules(Action::Allow, local);
                rbac.shadow = nothing();
            });
            assert_eq!(outcome.text.matches("x-id: one").count(), 3, "{}", outcome.text);
            assert_eq!((outcome.allowed, outcome.denied, outcome.shadow_denied), (1, 0, 1));
        });
    }
}

#[test]
fn continuous_rules_judge_all_that_comes() {
    for to in [HTTP, TCP] {
        let outcome = run(1, to, |rbac| {
            rbac.rules = rules(Action::Log, Rule::Any);
            rbac.is_continuous = true;
        });
        assert_eq!(outcome.text.matches("x-id: one").count(), 3, "{}", outcome.text);
        // The network cuts what is sent into pieces as it likes.
        assert!(outcome.allowed >= 3 && outcome.denied == 0, "{}", outcome.allowed);
    }
}

/// Rules that refuse, but only count, and leave that under this prefix.
fn shadow(prefix: &str, is_continuous: bool) -> NetworkRbac {
    NetworkRbac {
        stat_prefix: "other".into(),
        shadow: nothing(),
        shadow_prefix: prefix.into(),
        is_continuous,
        ..NetworkRbac::default()
    }
}

/// Takes what rules of this prefix have refused.
fn was_denied(prefix: &str) -> Rule {
    Rule::Metadata(MetadataMatcher {
        namespace: "envoy.filters.network.rbac".into(),
        path: vec![[prefix, "shadow_engine_result"].concat().into()],
        value: ValueMatcher::Text(StringMatcher::exact("denied", false)),
        invert: false,
    })
}

#[test]
fn rules_look_at_what_rules_before_them_have_left() {
    for to in [HTTP, TCP] {
        for (prefix, denied) in [("a_", 1), ("b_", 0)] {
            let outcome = run_behind(1, to, vec![shadow("a_", false)], |rbac| {
                rbac.rules = rules(Action::Deny, was_denied(prefix));
            });
            assert_eq!((outcome.denied, outcome.text.is_empty()), (denied, denied == 1));
        }
    }
}

#[test]
fn rules_for_first_bytes_judge_once_beside_others() {
    for to in [HTTP, TCP] {
        let outcome = run_behind(1, to, vec![shadow("a_", true)], |rbac| {
            // What is left stays for what comes later.
            rbac.rules = rules(Action::Allow, was_denied("a_"));
        });
        assert_eq!(outcome.text.matches("x-id: one").count(), 3, "{}", outcome.text);
        assert_eq!((outcome.allowed, outcome.denied), (1, 0));
    }
}

#[test]
fn a_refused_client_is_held_before_it_is_closed() {
    for to in [HTTP, TCP] {
        let outcome = run(1, to, |rbac| {
            rbac.rules = nothing();
            rbac.delay = Duration::from_secs(2);
        });
        assert_eq!((outcome.text.as_str(), outcome.denied), ("", 1), "it is judged once");
        let ended = outcome.ended.unwrap();
        assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&ended), "{ended:?}");
    }
}
