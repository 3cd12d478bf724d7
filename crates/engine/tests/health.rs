//! A monitor and a worker in virtual time: who fails is left out, who is well again comes back, and traffic always has
//! somewhere to go.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test that cannot go on has failed; a script answers to what it cares about"
)]

mod scene;
#[path = "scene/secure.rs"]
mod secure;
#[path = "health/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use secure::{Certificates, CloseNotify};
use towpath_engine::snapshot::health::{
    BoltProbe, Comparison, HealthFlags, HttpProbe, OutlierDetection, Probe, Rule, TcpProbe,
};
use towpath_engine::snapshot::route::HeaderOps;
use towpath_proto::bolt::Version;
use towpath_sim::{Faults, for_each_seed};
use world::{Behaviour, HealthWorld, check, milliseconds};

#[test]
fn who_fails_is_left_out_and_comes_back() {
    for_each_seed(25, |seed| {
        let mut setup = HealthWorld::new(seed, 3, check(http()), Faults::none());
        setup.run(milliseconds(200));
        assert_eq!(setup.well(), [true; 3]);
        setup.ask_for(milliseconds(400));
        assert_eq!(setup.served(), BTreeSet::from([1, 2, 3]));
        for behaviour in
            [Behaviour::Refusing, Behaviour::Silent, Behaviour::Closing, Behaviour::Failing]
        {
            setup.set_behaviour(2, behaviour);
            setup.run(ENOUGH);
            assert_eq!(setup.well(), [true, false, true], "{behaviour:?}");
            let timed_out = setup.health_flags(2).unwrap().timed_out;
            assert_eq!(timed_out, behaviour == Behaviour::Silent, "{behaviour:?}");
            setup.ask_for(milliseconds(400));
            assert_eq!(setup.served(), BTreeSet::from([1, 3]), "{behaviour:?}");
            setup.set_behaviour(2, Behaviour::Well);
            setup.run(ENOUGH);
            assert_eq!(setup.well(), [true; 3], "{behaviour:?}");
            setup.ask_for(milliseconds(400));
            assert_eq!(setup.served(), BTreeSet::from([1, 2, 3]), "{behaviour:?}");
        }
        setup.counters_add_up();
    });
}

#[test]
fn thresholds_and_pauses_decide_how_fast() {
    for_each_seed(20, |seed| {
        let mut config = check(http());
        config.unhealthy_threshold = 4;
        config.healthy_threshold = 3;
        let mut setup = HealthWorld::new(seed, 1, config, Faults::none());
        setup.run(milliseconds(300));
        setup.set_behaviour(1, Behaviour::Closing);
        // Four failures, a pause of 50 to 60 ms before each.
        let fallen = setup.until(|setup| setup.well() == [false]);
        assert!(fallen > milliseconds(150) && fallen < milliseconds(300), "{fallen:?}");
        setup.set_behaviour(1, Behaviour::Well);
        let risen = setup.until(|setup| setup.well() == [true]);
        assert!(risen > milliseconds(100) && risen < milliseconds(300), "{risen:?}");
    });
}

#[test]
fn a_host_that_says_so_is_left_out_at_its_first_word() {
    for_each_seed(20, |seed| {
        let mut config = check(http());
        config.unhealthy_threshold = 1000;
        let mut setup = HealthWorld::new(seed, 1, config, Faults::none());
        setup.run(milliseconds(300));
        setup.set_behaviour(1, Behaviour::Failing);
        setup.run(milliseconds(200));
        assert_eq!(setup.well(), [false]);
    });
}

#[test]
fn a_host_counts_only_once_it_was_asked() {
    let mut config = check(http());
    config.initial_jitter = Duration::from_secs(1000);
    let mut setup = HealthWorld::new(1, 2, config, Faults::none());
    setup.run(milliseconds(100));
    assert_eq!(setup.well(), [false; 2]);
}

#[test]
fn when_too_few_are_well_all_are_asked() {
    for_each_seed(20, |seed| {
        let mut setup = HealthWorld::new(seed, 4, check(http()), Faults::none());
        setup.run(milliseconds(200));
        setup.set_behaviour(1, Behaviour::Unlisted);
        setup.set_behaviour(2, Behaviour::Unlisted);
        setup.run(ENOUGH);
        assert_eq!(setup.well(), [false, false, true, true]);
        setup.ask_for(milliseconds(400));
        assert_eq!(setup.served(), BTreeSet::from([3, 4]), "half are well: no panic");
        setup.set_behaviour(3, Behaviour::Unlisted);
        setup.set_behaviour(4, Behaviour::Unlisted);
        setup.run(ENOUGH);
        assert_eq!(setup.well(), [false; 4]);
        setup.ask_for(milliseconds(400));
        assert_eq!(setup.served(), BTreeSet::from([1, 2, 3, 4]), "all fail their checks and serve");
        assert_eq!(setup.refused(), 0, "no traffic is lost");
    });
}

#[test]
fn without_panic_no_host_is_asked_when_none_is_healthy() {
    let mut setup = HealthWorld::without_panic(1, 2, check(http()));
    setup.run(milliseconds(200));
    setup.set_behaviour(1, Behaviour::Unlisted);
    setup.set_behaviour(2, Behaviour::Unlisted);
    setup.run(ENOUGH);
    setup.ask_for(milliseconds(200));
    assert!(setup.served().is_empty());
    assert!(setup.refused() > 0, "each gets a 503");
    setup.set_behaviour(1, Behaviour::Well);
    setup.run(ENOUGH);
    setup.ask_for(milliseconds(200));
    assert_eq!(setup.served(), BTreeSet::from([1]));
}

#[test]
fn on_a_bad_day_every_check_ends_once_and_the_living_are_found() {
    for_each_seed(20, |seed| {
        let faults = if seed % 2 == 0 { Faults::lively() } else { Faults::harsh() };
        let mut config = check(http());
        config.timeout = Duration::from_secs(2);
        let mut setup = HealthWorld::new(seed, 3, config, faults);
        setup.set_behaviour(1, Behaviour::Silent);
        setup.run(Duration::from_secs(40));
        setup.counters_add_up();
        assert!(setup.attempts() > 30, "{}", setup.attempts());
        assert!(!setup.ever_well(1), "nothing ever came from it");
        assert!(seed % 2 != 0 || setup.ever_well(2) && setup.ever_well(3), "on a lively day");
    });
}

#[test]
fn connections_are_kept_or_not_as_it_is_wanted() {
    for (reuse, most) in [(true, 1), (false, 1000)] {
        let mut config = check(http());
        config.reuse_connection = reuse;
        let mut setup = HealthWorld::new(7, 1, config, Faults::none());
        setup.run(Duration::from_secs(5));
        let (connections, attempts) = (setup.connections_to(1), setup.attempts());
        assert!(attempts > 20 && connections <= most, "{connections} for {attempts}");
        assert!(reuse || connections >= attempts - 1, "{connections} for {attempts}");
    }
}

#[test]
fn bytes_are_looked_for_over_tcp() {
    for_each_seed(20, |seed| {
        let probe = TcpProbe {
            send: Arc::from(&b"GET /check HTTP/1.1\r\nhost: a\r\n\r\n"[..]),
            receive: vec![Arc::from(&b"200"[..]), Arc::from(&b"x-host: 1"[..])],
            header: None,
        };
        let mut setup = HealthWorld::new(seed, 2, check(Probe::Tcp(probe)), Faults::none());
        setup.run(ENOUGH);
        // The second one says `x-host: 2`.
        assert_eq!(setup.well(), [true, false]);
        setup.set_behaviour(1, Behaviour::Failing);
        setup.run(ENOUGH);
        assert_eq!(setup.well(), [false, false]);
    });
}

#[test]
fn a_connection_is_enough_where_nothing_is_waited_for() {
    let mut setup = HealthWorld::new(1, 2, check(Probe::Tcp(TcpProbe::default())), Faults::none());
    setup.kill(2);
    setup.run(ENOUGH);
    assert_eq!(setup.well(), [true, false]);
    setup.counters_add_up();
}

#[test]
fn a_heartbeat_asks_a_host_that_speaks_bolt() {
    for version in [Version::V1, Version::V2 { checksums: false }] {
        for_each_seed(20, |seed| {
            let probe = Probe::Bolt(BoltProbe { version });
            let mut setup = HealthWorld::speaking_bolt(seed, 2, check(probe));
            setup.run(ENOUGH);
            assert_eq!(setup.well(), [true; 2]);
            for behaviour in [Behaviour::Failing, Behaviour::Silent, Behaviour::Refusing] {
                setup.set_behaviour(1, behaviour);
                setup.run(ENOUGH);
                assert_eq!(setup.well(), [false, true], "{behaviour:?}");
                setup.set_behaviour(1, Behaviour::Well);
                setup.run(ENOUGH);
                assert_eq!(setup.well(), [true; 2], "{behaviour:?}");
            }
        });
    }
}

#[test]
fn checks_are_made_under_tls_as_the_cluster_has_it() {
    let certificates = Certificates::new();
    for (name, is_well) in [("app.test", true), ("other.test", false)] {
        for close_notify in [CloseNotify::Sent, CloseNotify::Missing] {
            let tls = (&certificates, name, close_notify);
            let mut setup = HealthWorld::under_tls(3, 2, check(http()), tls);
            setup.run(ENOUGH);
            assert_eq!(setup.well(), [is_well; 2], "{name} {close_notify:?}");
            assert_eq!(setup.asked(1) > 0, is_well, "{name} {close_notify:?}");
            setup.set_behaviour(1, Behaviour::Closing);
            setup.run(ENOUGH);
            assert_eq!(setup.well(), [false, is_well], "{name} {close_notify:?}");
            setup.counters_add_up();
        }
    }
}

#[test]
fn a_host_that_leaves_is_forgotten_and_a_new_one_is_asked() {
    let mut setup = HealthWorld::new(5, 3, check(http()), Faults::none());
    setup.run(ENOUGH);
    setup.set_hosts(&[2, 3]);
    setup.run(ENOUGH);
    assert_eq!(setup.known(), BTreeSet::from([2, 3]));
    let asked = setup.asked(1);
    setup.run(ENOUGH);
    assert_eq!(setup.asked(1), asked, "who left is left alone");
    setup.set_hosts(&[1, 2]);
    setup.run(ENOUGH);
    assert_eq!(setup.health_flags(1), Some(HealthFlags::WELL));
    assert_eq!(setup.health_flags(3), None);
}

fn http() -> Probe {
    Probe::Http(HttpProbe {
        method: "GET".into(),
        host: "".into(),
        path: "/check".into(),
        headers: HeaderOps::default(),
        expected: std::iter::once(200..201).collect(),
        retriable: Vec::new(),
        send: [].into(),
        receive: Vec::new(),
        service: None,
        is_http2: false,
        looked_at: 1024,
    })
}

/// More than any threshold takes here.
const ENOUGH: Duration = Duration::from_millis(1500);

#[test]
fn who_answers_with_errors_is_left_out_for_a_while() {
    for_each_seed(12, |seed| {
        let mut setup = HealthWorld::with_outliers(seed, 3, outliers(50));
        setup.ask_for(milliseconds(300));
        assert_eq!(setup.served(), BTreeSet::from([1, 2, 3]));
        for behaviour in [Behaviour::Failing, Behaviour::Closing, Behaviour::Refusing] {
            setup.set_behaviour(2, behaviour);
            setup.ask_for(milliseconds(400));
            assert!(
                setup.health_flags(2).is_some_and(|health_flags| health_flags.ejected),
                "{behaviour:?}"
            );
            setup.set_behaviour(2, Behaviour::Well);
            setup.ask_for(milliseconds(300));
            assert_eq!(setup.served(), BTreeSet::from([1, 3]), "{behaviour:?}");
            assert_eq!(setup.refused(), 0, "{behaviour:?}");
            // It comes back, and every quiet interval makes its next ejection shorter.
            setup.run(Duration::from_secs(6));
            assert_eq!(setup.known(), BTreeSet::new(), "{behaviour:?}");
            setup.ask_for(milliseconds(300));
            assert_eq!(setup.served(), BTreeSet::from([1, 2, 3]), "{behaviour:?}");
        }
    });
}

#[test]
fn the_share_of_hosts_that_are_out_is_bounded() {
    for_each_seed(12, |seed| {
        for (percent, most) in [(0, 0), (25, 1), (50, 2)] {
            let mut setup = HealthWorld::with_outliers(seed, 4, outliers(percent));
            (1..=4).for_each(|host| setup.set_behaviour(host, Behaviour::Failing));
            setup.ask_for(Duration::from_secs(1));
            assert_eq!(setup.known().len(), most, "{percent} %");
            assert_eq!(setup.served().len(), 4, "each was asked before");
            setup.ask_for(milliseconds(300));
            assert_eq!(setup.served().len(), 4 - most, "{percent} %");
            assert_eq!(setup.refused(), 0);
        }
    });
}

#[test]
fn when_all_are_out_all_are_asked() {
    for_each_seed(20, |seed| {
        let mut setup = HealthWorld::with_outliers(seed, 3, outliers(100));
        (1..=3).for_each(|host| setup.set_behaviour(host, Behaviour::Failing));
        setup.ask_for(Duration::from_secs(1));
        assert_eq!(setup.known(), BTreeSet::from([1, 2, 3]));
        setup.ask_for(milliseconds(300));
        assert_eq!(setup.served(), BTreeSet::from([1, 2, 3]));
        assert_eq!(setup.refused(), 0, "panic finds a host for every request");
    });
}

#[test]
fn who_passes_its_checks_is_let_in_again_at_once() {
    let mut config = outliers(50);
    config.base_time = Duration::from_secs(100);
    config.max_time = Duration::from_secs(100);
    let mut setup = HealthWorld::with_both(1, 2, check(http()), config);
    setup.run(ENOUGH);
    setup.set_behaviour(1, Behaviour::Failing);
    setup.ask_for(milliseconds(500));
    setup.set_behaviour(1, Behaviour::Well);
    setup.run(ENOUGH);
    assert_eq!(setup.health_flags(1), Some(HealthFlags::WELL));
}

/// Three errors in a row, out for three seconds at first.
fn outliers(max_percent: u32) -> OutlierDetection {
    let rule = Rule { threshold: 3, enforcing: 100 };
    OutlierDetection {
        errors: rule,
        gateway: rule,
        local: rule,
        split: false,
        interval: milliseconds(100),
        base_time: Duration::from_secs(3),
        max_time: Duration::from_secs(9),
        jitter: milliseconds(50),
        max_percent,
        always_one: false,
        returns_when_checked: true,
        detects_degraded: false,
        comparison: Comparison::default(),
    }
}
