//! For how long answers are kept: as their records say (RFC 1035 §3.2.1), and denials as their zone does (RFC 2308).

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use towpath::{Engine, Error, NetworkKind, Settings};
use towpath_engine::local::message::Error as Failed;
use towpath_proto::Failure;

use super::server::{Asked, DNS, Doh, Say, answer, answer_for, deny_for, plain_that};
use super::{HERE, asking, builder, get, website};
use crate::authority::Authority;
use crate::server::Server;

/// An engine that needs a new connection, and so addresses, for each request.
fn engine_asking(say: impl Fn(&Asked) -> Say + Send + Sync + 'static) -> (Doh, Engine) {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "dns.test", &[], say);
    let engine = builder(&authority).settings(settings()).dns_over_https(doh.options());
    (doh, engine.start().unwrap())
}

fn settings() -> Settings {
    Settings { requests_per_connection: 1, ..Settings::default() }
}

fn say_for(asked: &Asked, ttl: u8) -> Vec<u8> {
    answer_for(&asked.message, 0, if asked.is_four { HERE } else { &[] }, ttl)
}

fn is_denied(engine: &Engine, name: &str, website: &Server) -> Duration {
    let began = Instant::now();
    match get(engine, name, website) {
        Err(Error::Failed(failed)) => {
            assert_eq!(failed.why(), Failed::Resolve(Failure::NoSuchName));
        }
        other => panic!("{other:?}"),
    }
    began.elapsed()
}

#[test]
fn an_answer_is_asked_for_again_when_its_time_is_over_and_not_before() {
    let website = website();
    let plain = |ttl: u8| move |asked: &Asked| Say::Answer(200, DNS, say_for(asked, ttl));
    let aged = |age: u64| move |asked: &Asked| Say::Aged(age, say_for(asked, 60));
    let kept: [(Doh, Engine); 2] = [engine_asking(plain(60)), engine_asking(aged(30))];
    let over: [(Doh, Engine); 3] =
        [engine_asking(plain(1)), engine_asking(plain(0)), engine_asking(aged(59))];
    for (doh, engine) in kept.iter().chain(&over) {
        for _ in 0..5 {
            get(engine, "app.test", &website).unwrap();
        }
        assert_eq!(doh.names().len(), 2, "one that may not be kept holds for a second");
    }
    sleep(Duration::from_millis(1100));
    for (asked, all) in [(2, &kept[..]), (4, &over[..])] {
        for (doh, engine) in all {
            get(engine, "app.test", &website).unwrap();
            // The old one is used meanwhile.
            let end = Instant::now() + Duration::from_secs(5);
            while doh.names().len() < asked && Instant::now() < end {
                sleep(Duration::from_millis(5));
            }
            assert_eq!(doh.names().len(), asked);
        }
    }
}

#[test]
fn a_denial_is_kept_as_its_zone_says_on_its_network() {
    let website = website();
    let (doh, engine) = asking(|asked| match asked.name.as_str() {
        "short.test" => Say::Answer(200, DNS, deny_for(&asked.message, 3, 1)),
        "none.test" => Say::Answer(200, DNS, deny_for(&asked.message, 0, 60)),
        "unsaid.test" => Say::Answer(200, DNS, answer(&asked.message, 3, &[])),
        _ => Say::Answer(200, DNS, deny_for(&asked.message, 3, 60)),
    });
    let count = |name: &str| doh.names().iter().filter(|it| *it == name).count();
    for name in ["long.test", "none.test", "short.test"] {
        for _ in 0..5 {
            is_denied(&engine, name, &website);
        }
        assert_eq!(count(name), 2, "{name}");
    }
    assert!(is_denied(&engine, "long.test", &website) < Duration::from_millis(200));
    is_denied(&engine, "unsaid.test", &website);
    is_denied(&engine, "unsaid.test", &website);
    assert_eq!(count("unsaid.test"), 4, "the zone does not say how long");
    sleep(Duration::from_millis(1100));
    is_denied(&engine, "short.test", &website);
    is_denied(&engine, "long.test", &website);
    assert_eq!((count("short.test"), count("long.test")), (4, 2));
    engine.network_changed("elsewhere", NetworkKind::Fixed, true).unwrap();
    is_denied(&engine, "long.test", &website);
    assert_eq!(count("long.test"), 4);
}

#[test]
#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn answers_of_plain_dns_are_kept_as_long() {
    let website = website();
    for (ttl, again) in [(60, 2), (1, 4)] {
        let (dns, asked) = plain_that(move |question, is_four| {
            answer_for(question, 0, if is_four { HERE } else { &[] }, ttl)
        });
        let engine = Engine::builder().settings(settings()).dns_servers([dns]).start().unwrap();
        for _ in 0..5 {
            get(&engine, "app.test", &website).unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        sleep(Duration::from_millis(1100));
        get(&engine, "app.test", &website).unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        while asked.load(Ordering::SeqCst) < again && Instant::now() < end {
            sleep(Duration::from_millis(5));
        }
        assert_eq!(asked.load(Ordering::SeqCst), again, "{ttl}");
    }
    let (dns, asked) = plain_that(|question, _| deny_for(question, 3, 60));
    let engine = Engine::builder().dns_servers([dns]).start().unwrap();
    for _ in 0..5 {
        is_denied(&engine, "app.test", &website);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}
