#![expect(clippy::wildcard_enum_match_arm, reason = "a script answers what concerns it")]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::{Close, ConnectOptions, ConnectionId, ListenOptions, Output, ReadInterest};

use super::*;
use crate::script::{Orders, Script};
use crate::seeds::for_each_seed;

type Log<E> = Rc<RefCell<Vec<E>>>;

fn log<E>() -> Log<E> {
    Rc::new(RefCell::new(Vec::new()))
}

fn place() -> Address {
    Address::Ip(([10, 9, 9, 9], 7).into())
}

const LONG: Duration = Duration::from_secs(3600);

/// Sends everything back, and closes after the peer.
fn echo() -> impl Machine<Message = ()> {
    Script::new(
        |orders| orders.listen(place()),
        |input, orders, _| match input {
            Input::Received { connection, chunk } => orders.send(connection, chunk),
            Input::Ended { connection } => orders.close(connection, Close::Flush),
            _ => {}
        },
    )
}

#[derive(Debug, PartialEq)]
enum Seen {
    Connected,
    Bytes(Vec<u8>),
    Sent(usize),
    Ended,
    Closed,
    NotConnected(Failure),
    Timeout,
}

/// Connects, sends `bytes` in one piece, says FIN, and notes what happens.
fn caller(bytes: Vec<u8>, seen: &Log<Seen>) -> impl Machine<Message = ()> + 'static {
    let seen = Rc::clone(seen);
    Script::new(
        |orders| orders.connect(place()),
        move |input, orders: &mut Orders<()>, _| {
            seen.borrow_mut().push(match input {
                Input::Connected { connection, .. } => {
                    orders.send(connection, bytes.clone());
                    orders.close(connection, Close::Half);
                    Seen::Connected
                }
                Input::ConnectFailed { failure, .. } => Seen::NotConnected(failure),
                Input::Received { chunk, .. } => Seen::Bytes(chunk.to_vec()),
                Input::Sent { bytes, .. } => Seen::Sent(bytes),
                Input::Ended { connection } => {
                    orders.close(connection, Close::Flush);
                    Seen::Ended
                }
                Input::Closed { .. } => Seen::Closed,
                _ => return,
            });
        },
    )
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

fn received(seen: &[Seen]) -> Vec<u8> {
    seen.iter()
        .flat_map(|it| if let Seen::Bytes(bytes) = it { bytes.clone() } else { vec![] })
        .collect()
}

#[test]
fn on_a_good_path_everything_arrives_once_and_in_order() {
    for_each_seed(300, |seed| {
        let mut world = World::new(seed);
        let seen = log();
        world.add(echo());
        world.add(caller(pattern(50_000), &seen));
        assert!(world.run_until_quiet(LONG));
        let seen = seen.borrow();
        assert_eq!(seen.first(), Some(&Seen::Connected));
        assert_eq!(seen.last(), Some(&Seen::Ended));
        assert_eq!(received(&seen), pattern(50_000));
        let sent: usize = seen.iter().map(|it| if let Seen::Sent(n) = it { *n } else { 0 }).sum();
        assert_eq!(sent, 50_000);
    });
}

#[test]
fn on_a_bad_path_what_arrives_is_a_prefix_and_every_attempt_is_answered() {
    let (mut refused, mut timed_out, mut reset, mut whole, mut vanished) = (0, 0, 0, 0, 0);
    for_each_seed(1000, |seed| {
        let mut world = World::new(seed);
        world.set_faults(Faults::harsh());
        let seen = log();
        world.add(echo());
        world.add(caller(pattern(5_000), &seen));
        assert!(world.run_until_quiet(LONG));
        let seen = seen.borrow();
        assert!(pattern(5_000).starts_with(&received(&seen)));
        match seen.last() {
            Some(Seen::NotConnected(Failure::Refused)) => refused += 1,
            Some(Seen::NotConnected(Failure::TimedOut)) => timed_out += 1,
            Some(Seen::Closed) => reset += 1,
            Some(Seen::Ended) => {
                assert_eq!(received(&seen), pattern(5_000));
                whole += 1;
            }
            _ => vanished += 1,
        }
    });
    if std::env::var_os("TOWPATH_SIM_SEED").is_none() {
        let all = [refused, timed_out, reset, whole, vanished];
        assert!(all.iter().all(|&count| count > 10), "every outcome comes up: {all:?}");
    }
}

#[test]
fn a_seed_is_a_run() {
    let run = |seed| {
        let mut world = World::new(seed);
        world.set_faults(Faults::lively());
        let seen = log();
        world.add(echo());
        for _ in 0..4 {
            world.add(caller(pattern(3_000), &seen));
        }
        world.run_until_quiet(LONG);
        (world.fingerprint(), world.now())
    };
    for seed in 0..50 {
        assert_eq!(run(seed), run(seed));
        assert_ne!(run(seed), run(seed + 1));
    }
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer() {
    for_each_seed(200, |seed| {
        let mut world = World::new(seed);
        let buffers = 2000..=4000;
        world.set_faults(Faults { buffer_bytes: buffers, ..Faults::none() });
        let reader: Rc<RefCell<Option<ConnectionId>>> = Rc::default();
        let read = Rc::new(RefCell::new(0));
        let (accepted, count) = (Rc::clone(&reader), Rc::clone(&read));
        let far = world.add(Script::new(
            |orders| orders.listen(place()),
            move |input, orders, _| match input {
                Input::Accepted { connection, .. } => {
                    *accepted.borrow_mut() = Some(connection);
                    orders.read(connection, ReadInterest::Off);
                }
                Input::Message(()) => {
                    let connection = accepted.borrow().expect("accepted before the message");
                    orders.read(connection, ReadInterest::On);
                }
                Input::Received { chunk, .. } => *count.borrow_mut() += chunk.len(),
                _ => {}
            },
        ));
        let seen = log();
        let near = world.add(caller(pattern(100_000), &seen));
        assert!(world.run_until_quiet(LONG));
        assert_eq!(*read.borrow(), 0);
        let held = 100_000 - world.unsent_bytes(near).0;
        assert!((2000..=16_000).contains(&held), "the kernels hold {held}");
        assert!(!seen.borrow().contains(&Seen::Ended));
        world.send(far, ());
        assert!(world.run_until_quiet(LONG));
        assert_eq!(*read.borrow(), 100_000);
        assert_eq!(world.unsent_bytes(near), (0, 100_000));
    });
}

#[test]
fn timers_are_never_early_and_at_most_a_little_late() {
    for_each_seed(100, |seed| {
        let mut world: World<()> = World::new(seed);
        let fired = log();
        let note = Rc::clone(&fired);
        world.add(Script::new(
            |orders| orders.wake_at(Instant::from_nanos(5_000_000)),
            move |input, orders, now| {
                if matches!(input, Input::Timeout) {
                    note.borrow_mut().push(now);
                    if note.borrow().len() < 5 {
                        orders.wake_at(now + Duration::from_millis(5));
                    }
                }
            },
        ));
        assert!(world.run_until_quiet(LONG));
        let mut before = Instant::ZERO;
        for &at in fired.borrow().iter() {
            let waited = at - before;
            let wished = Duration::from_millis(5);
            assert!(waited >= wished && waited <= wished + Duration::from_millis(2), "{waited:?}");
            before = at;
        }
        assert_eq!(fired.borrow().len(), 5);
    });
}

#[test]
fn messages_keep_their_order_in_and_out() {
    for_each_seed(100, |seed| {
        let mut world: World<u32> = World::new(seed);
        let node = world.add(Script::new(
            |_| {},
            |input, orders: &mut Orders<u32>, _| {
                if let Input::Message(n) = input {
                    orders.message(n + 1);
                }
            },
        ));
        for n in 0..50 {
            world.send(node, n);
            world.run_for(Duration::from_micros(u64::from(n)));
        }
        world.run_until_quiet(LONG);
        let back: Vec<u32> = world.take_messages(node).into_iter().map(|(_, n)| n).collect();
        assert_eq!(back, (1..=50).collect::<Vec<_>>());
        assert!(world.take_messages(node).is_empty());
    });
}

#[test]
fn no_listener_means_refused() {
    let mut world = World::new(1);
    let seen = log();
    world.add(caller(vec![1], &seen));
    assert!(world.run_until_quiet(LONG));
    assert_eq!(*seen.borrow(), [Seen::NotConnected(Failure::Refused)]);
}

#[test]
fn a_cancelled_connect_is_not_answered_and_its_peer_sees_no_connection_that_lasts() {
    for_each_seed(300, |seed| {
        let mut world: World<()> = World::new(seed);
        let far = world.add(echo());
        let seen = log();
        let note = Rc::clone(&seen);
        world.add(Script::new(
            |orders| {
                orders.connect(place());
                orders.wake_at(Instant::from_nanos(200_000));
            },
            move |input, orders: &mut Orders<()>, _| match input {
                Input::Timeout if note.borrow().is_empty() => {
                    orders.push(Output::CancelConnect { attempt: AttemptId(0) });
                    note.borrow_mut().push(Seen::Timeout);
                }
                Input::Connected { connection, .. } => {
                    note.borrow_mut().push(Seen::Connected);
                    orders.close(connection, Close::Abort);
                }
                Input::ConnectFailed { failure, .. } => {
                    note.borrow_mut().push(Seen::NotConnected(failure));
                }
                _ => {}
            },
        ));
        assert!(world.run_until_quiet(LONG));
        assert_eq!(seen.borrow().len(), 1, "{:?}", seen.borrow());
        assert_eq!(world.connections(far), 0);
    });
}

#[test]
fn a_killed_peer_is_noticed_and_a_frozen_one_is_late() {
    for_each_seed(200, |seed| {
        let mut world = World::new(seed);
        let (buffer_bytes, segment_bytes) = (4096..=8192, 1000..=1500);
        world.set_faults(Faults { buffer_bytes, segment_bytes, ..Faults::none() });
        let seen = log();
        let far = world.add(echo());
        world.add(caller(pattern(100_000), &seen));
        let under_way = |world: &mut World<()>| {
            let _ = world;
            seen.borrow().iter().any(|it| matches!(it, Seen::Bytes(_)))
        };
        assert!(world.run_until(LONG, under_way));
        world.freeze(far, Duration::from_secs(30));
        world.run_for(Duration::from_secs(29));
        let heard = received(&seen.borrow()).len();
        assert!(heard < 100_000);
        world.run_for(Duration::from_secs(5));
        assert!(received(&seen.borrow()).len() > heard);
        if seen.borrow().last() != Some(&Seen::Ended) {
            world.kill(far);
            assert!(world.run_until_quiet(LONG));
            assert!(matches!(seen.borrow().last(), Some(Seen::Closed | Seen::Ended)));
        }
    });
}

#[test]
fn shards_share_an_address_and_others_may_not() {
    let listener = |reuse_port| {
        Script::new(
            move |orders: &mut Orders<Result<Address, Failure>>| {
                let options = ListenOptions { reuse_port, ..ListenOptions::default() };
                let options = Arc::new(options);
                orders.push(Output::Listen { listener: ListenerId(0), address: place(), options });
            },
            |input, orders: &mut Orders<Result<Address, Failure>>, _| match input {
                Input::Listening { outcome, .. } => orders.message(outcome),
                Input::Accepted { local, .. } => orders.message(Ok(local)),
                _ => {}
            },
        )
    };
    let mut world = World::new(5);
    let shards = [world.add(listener(true)), world.add(listener(true))];
    world.run_until_quiet(LONG);
    let alone = world.add(listener(false));
    world.run_until_quiet(LONG);
    let outcome = world.take_messages(alone).remove(0).1;
    assert_eq!(outcome, Err(Failure::AddressInUse));
    for shard in shards {
        assert_eq!(world.take_messages(shard).remove(0).1, Ok(place()));
    }
    for _ in 0..40 {
        world.add(Script::new(|orders| orders.connect(place()), |_, _, _| {}));
    }
    world.run_until_quiet(LONG);
    for shard in shards {
        assert!(world.take_messages(shard).len() > 5, "both take a part");
    }
}

#[test]
fn names_resolve_as_the_scene_says() {
    let mut world: World<Result<Vec<IpAddr>, Failure>> = World::new(1);
    world.set_name("origin", &[[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]);
    let node = world.add(Script::new(
        |orders: &mut Orders<Result<Vec<IpAddr>, Failure>>| {
            for (query, name) in [(0, "origin"), (1, "nowhere")] {
                orders.push(Output::Resolve { query: QueryId(query), name: name.to_owned() });
            }
        },
        |input, orders: &mut Orders<Result<Vec<IpAddr>, Failure>>, _| {
            if let Input::Resolved { outcome, .. } = input {
                orders.message(outcome);
            }
        },
    ));
    world.run_until_quiet(LONG);
    let outcomes: Vec<_> = world.take_messages(node).into_iter().map(|(_, it)| it).collect();
    assert!(outcomes.contains(&Ok(vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()])));
    assert!(outcomes.contains(&Err(Failure::NoSuchName)));
}

/// Runs a caller that does something forbidden once it is connected.
fn misbehave(act: impl Fn(&mut Orders<()>, ConnectionId) + 'static) {
    let mut world: World<()> = World::new(1);
    world.add(echo());
    world.add(Script::new(
        |orders| orders.connect(place()),
        move |input, orders: &mut Orders<()>, _| {
            if let Input::Connected { connection, .. } = input {
                act(orders, connection);
            }
        },
    ));
    world.run_until_quiet(LONG);
}

#[test]
#[should_panic(expected = "which it closed itself")]
fn sending_after_close_is_a_broken_promise() {
    misbehave(|orders, connection| {
        orders.close(connection, Close::Flush);
        orders.send(connection, "late");
    });
}

#[test]
#[should_panic(expected = "after it said it would not")]
fn sending_after_half_close_is_a_broken_promise() {
    misbehave(|orders, connection| {
        orders.close(connection, Close::Half);
        orders.send(connection, "late");
    });
}

#[test]
#[should_panic(expected = "of which it was never told")]
fn an_invented_id_is_a_broken_promise() {
    misbehave(|orders, _| orders.send(ConnectionId::new(77, 0), "who?"));
}

#[test]
#[should_panic(expected = "sends nothing")]
fn an_empty_chunk_is_a_broken_promise() {
    misbehave(|orders, connection| orders.push(Output::Send { connection, chunk: Bytes::new() }));
}

#[test]
#[should_panic(expected = "AttemptId(0) twice")]
fn an_attempt_id_used_twice_is_a_broken_promise() {
    misbehave(|orders, _| {
        let options = Arc::new(ConnectOptions::default());
        orders.push(Output::Connect { attempt: AttemptId(0), address: place(), options });
    });
}

#[test]
#[should_panic(expected = "waits for a time that has passed")]
fn waiting_for_the_past_is_a_broken_promise() {
    let mut world: World<()> = World::new(1);
    world.add(Script::new(
        |orders| orders.wake_at(Instant::ZERO),
        |_, orders: &mut Orders<()>, _| orders.wake_at(Instant::ZERO),
    ));
    world.run_until_quiet(LONG);
}
