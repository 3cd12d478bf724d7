//! The drivers' suite, run against the readiness driver.
#![expect(clippy::wildcard_enum_match_arm, reason = "a story answers what concerns it")]
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]
#![expect(unreachable_pub, reason = "the suite is no library")]

#[macro_use]
mod suite;

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use suite::puppet::{Puppet, Strings};
use suite::scene::{PATIENCE, connect, loopback};
use suite::{Runner, Running, Settings};
use towpath_io::readiness::{Driver, Options};
use towpath_proto::{ConnectionId, Input, Instant, ListenerId, Machine, Output, ReadInterest};

struct Readiness;

/// A driver that always thinks that it is busy.
struct Gathering;

macro_rules! runner {
    ($runner:ty, $change:expr) => {
        impl Runner for $runner {
            fn start<M>(
                make: impl FnOnce() -> M + Send + 'static,
                settings: Settings,
                mailbox: impl FnMut(M::Message) + Send + 'static,
            ) -> Running<M::Message>
            where
                M: Machine + 'static,
                M::Message: Send + 'static,
            {
                let change: fn(Options) -> Options = $change;
                start(make, change(options(settings)), mailbox)
            }
        }
    };
}

runner!(Readiness, |options| options);
runner!(Gathering, |options| Options {
    gather: Duration::from_micros(50),
    gather_from: 0,
    ..options
});

fn start<M>(
    make: impl FnOnce() -> M + Send + 'static,
    options: Options,
    mailbox: impl FnMut(M::Message) + Send + 'static,
) -> Running<M::Message>
where
    M: Machine + 'static,
    M::Message: Send + 'static,
{
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        let mut driver = Driver::new(make(), options, mailbox).unwrap();
        sender.send(driver.handle()).unwrap();
        driver.run().unwrap();
    });
    Running { handle: receiver.recv().unwrap(), thread: Some(thread) }
}

fn options(settings: Settings) -> Options {
    let defaults = Options::default();
    Options {
        shard: settings.shard,
        shards: settings.shards.max(1),
        listeners: settings.listeners,
        max_messages: settings.max_messages.unwrap_or(defaults.max_messages),
        linger: settings.linger.unwrap_or(defaults.linger),
        ..defaults
    }
}

driver_suite! { Readiness:
    traffic :: {
        an_echo_returns_what_was_sent,
        an_echo_over_ipv6,
        an_echo_over_a_unix_socket,
        an_echo_in_the_abstract_namespace,
        many_connections_at_once,
        many_chunks_leave_in_few_writes,
        what_is_pushed_leaves_by_itself,
        what_is_not_read_stays_with_the_peer,
        what_arrived_while_not_read_comes_when_it_is,
        no_more_than_the_read_limit_comes_between_two_polls,
        sent_counts_every_byte_the_kernel_took,
        a_bound_on_what_comes_is_kept_and_taken_back,
        a_bound_on_what_goes_is_kept_and_taken_back,
        a_gigabyte_streams_through_in_bounded_memory,
        a_loud_connection_does_not_drown_a_quiet_one,
    }
    ending :: {
        the_peers_end_leaves_our_direction_open,
        our_end_leaves_the_peers_direction_open,
        a_flushed_close_delivers_everything,
        a_flushed_close_bears_a_peer_that_goes_on_talking,
        a_closing_connection_is_cut_when_its_peer_does_nothing,
        a_peer_that_goes_on_talking_does_not_put_off_the_end,
        what_was_sent_arrives_before_the_reset,
        a_reset_waits_no_longer_than_a_close_for_a_peer_that_does_not_read,
        a_close_at_once_waits_for_nothing,
        an_abort_is_a_reset,
        a_reset_is_told_whether_we_read_or_not,
        a_reset_after_the_peers_end_is_told,
        what_the_peer_said_before_it_went_is_read_first,
        a_closed_id_is_dead,
    }
    connecting :: {
        a_connect_tells_our_own_address,
        bytes_that_come_with_the_connect_are_read,
        an_address_without_a_listener_is_refused,
        a_cancelled_connect_is_never_answered,
        a_connect_that_ends_at_once_can_still_be_cancelled,
        a_connect_comes_from_where_it_is_told_to,
        names_are_resolved_by_the_system,
        a_name_can_be_asked_for_from_outside,
        what_the_kernel_knows_of_a_path_is_told,
        a_dead_connection_is_told_as_such,
    }
    listening :: {
        shards_share_port_zero_and_its_connections,
        connections_are_balanced_exactly,
        shards_share_a_unix_socket,
        a_taken_address_is_told,
        a_stopped_listener_refuses_and_its_connections_live_on,
        who_connects_to_a_held_listener_waits,
        a_stopped_unix_listener_takes_its_file_along,
        a_wildcard_listener_tells_the_address_that_was_dialled,
        an_ipv6_wildcard_takes_ipv4_when_asked,
        few_accepts_at_a_time_lose_no_connection,
        child_with_few_descriptors,
        descriptors_run_out_and_come_back,
    }
    time :: {
        timers_are_never_early_and_hardly_late,
        a_deadline_in_the_past_fires_at_once_and_once,
        a_later_wait_replaces_an_earlier_one,
        a_flood_of_messages_arrives_whole_and_in_order,
        messages_beyond_the_limit_and_after_the_end_come_back,
    }
}

mod gathering {
    use super::{Gathering, suite};

    driver_suite! { Gathering:
        traffic :: {
            an_echo_returns_what_was_sent,
            many_connections_at_once,
            many_chunks_leave_in_few_writes,
            what_is_not_read_stays_with_the_peer,
            what_arrived_while_not_read_comes_when_it_is,
            a_loud_connection_does_not_drown_a_quiet_one,
        }
        time :: {
            a_deadline_in_the_past_fires_at_once_and_once,
            a_flood_of_messages_arrives_whole_and_in_order,
        }
    }
}

/// What is read in a turn waits until its end: the connections together are bounded too.
#[test]
fn a_turn_reads_so_much_and_the_rest_in_the_next() {
    const CONNECTIONS: usize = 10;
    const EACH: usize = 30_000;
    let (mailbox, told) = Strings::mailbox();
    let options = Options { turn_bytes: EACH, ..Options::default() };
    let mut driver = Driver::new(Puppet::default(), options, mailbox).unwrap();
    let strings = Strings::new(driver.handle(), told);
    let (listener, address) = (ListenerId(0), loopback(0));
    strings.order(Output::Listen { listener, address, options: Arc::default() });
    driver.turn(Some(PATIENCE)).unwrap();
    driver.turn(Some(Duration::ZERO)).unwrap();
    let Input::Listening { outcome: Ok(bound), .. } = strings.told() else { panic!("not bound") };
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| connect(bound.ip().unwrap())).collect();
    let mut accepted = 0;
    while accepted < CONNECTIONS {
        driver.turn(Some(PATIENCE)).unwrap();
        while let Some(Input::Accepted { .. }) = strings.told_within(Duration::ZERO) {
            accepted += 1;
        }
    }
    for stream in &mut streams {
        stream.write_all(&[7; EACH]).unwrap();
    }
    let mut received = std::collections::HashMap::new();
    let mut total = 0;
    while total < CONNECTIONS * EACH {
        driver.turn(Some(PATIENCE)).unwrap();
        let mut in_turn = 0;
        while let Some(Input::Received { connection, chunk }) = strings.told_within(Duration::ZERO)
        {
            in_turn += chunk.len();
            *received.entry(connection).or_insert(0) += chunk.len();
        }
        assert!(in_turn < 2 * EACH, "{in_turn} bytes in a turn");
        total += in_turn;
    }
    assert!(received.values().all(|&bytes| bytes == EACH), "{received:?}");
}

/// One connection whose peer has more to say than is read in a turn.
struct Pour {
    driver: Driver<Puppet>,
    strings: Strings,
    connection: ConnectionId,
    most: usize,
    total: usize,
}

const LIMIT: usize = 64 * 1024;
/// What the kernels may take for a peer that never reads.
const PROOF: usize = 8 << 20;

impl Pour {
    fn start(grows: bool) -> Self {
        let (mailbox, told) = Strings::mailbox();
        let mut driver = Driver::new(Puppet::default(), Options::default(), mailbox).unwrap();
        let strings = Strings::new(driver.handle(), told);
        let (listener, address) = (ListenerId(0), loopback(0));
        strings.order(Output::Listen { listener, address, options: Arc::default() });
        driver.turn(Some(PATIENCE)).unwrap();
        driver.turn(Some(Duration::ZERO)).unwrap();
        let Input::Listening { outcome: Ok(bound), .. } = strings.told() else {
            panic!("not bound")
        };
        let mut stream = connect(bound.ip().unwrap());
        let connection = loop {
            driver.turn(Some(PATIENCE)).unwrap();
            if let Some(Input::Accepted { connection, .. }) = strings.told_within(Duration::ZERO) {
                break connection;
            }
        };
        strings.order(Output::ReadLimit { connection, bytes: LIMIT, grows });
        driver.turn(Some(PATIENCE)).unwrap();
        // Ends when the driver is gone.
        std::thread::spawn(move || while stream.write_all(&[7; 1 << 20]).is_ok() {});
        Self { driver, strings, connection, most: 0, total: 0 }
    }

    /// Turns until that much has come; the largest share of one turn is kept.
    fn until(&mut self, enough: impl Fn(&Self) -> bool) {
        let begun = std::time::Instant::now();
        (self.most, self.total) = (0, 0);
        while !enough(self) {
            assert!(begun.elapsed() < PATIENCE, "{} bytes at once", self.most);
            self.driver.turn(Some(PATIENCE)).unwrap();
            let mut in_turn = 0;
            while let Some(Input::Received { chunk, .. }) = self.strings.told_within(Duration::ZERO)
            {
                in_turn += chunk.len();
            }
            self.most = self.most.max(in_turn);
            self.total += in_turn;
        }
    }

    fn read(&mut self, interest: ReadInterest) {
        self.strings.order(Output::ReadInterest { connection: self.connection, interest });
        self.driver.turn(Some(PATIENCE)).unwrap();
        // What was read in the turn before the order.
        while self.strings.told_within(Duration::ZERO).is_some() {}
    }
}

#[test]
fn a_read_limit_that_grows_does_so_when_much_was_read_without_a_pause() {
    let mut pour = Pour::start(true);
    for (pauses, proof) in [(0, PROOF), (1, PROOF / 4), (2, PROOF)] {
        for _ in 0..pauses {
            pour.read(ReadInterest::Off);
            pour.read(ReadInterest::On);
        }
        pour.until(|pour| pour.total >= proof - 2 * LIMIT);
        assert!(pour.most <= LIMIT, "{} bytes at once, before it was proved", pour.most);
        pour.until(|pour| pour.most > LIMIT);
        assert!(pour.most <= Options::default().read_budget_bytes);
    }
}

#[test]
fn a_strict_read_limit_does_not_grow() {
    let mut pour = Pour::start(false);
    pour.until(|pour| pour.total >= 4 * PROOF);
    assert!(pour.most <= LIMIT, "{} bytes at once", pour.most);
}

/// A thread that is only lent gets it back in time.
#[test]
fn a_turn_takes_no_longer_than_it_may() {
    let (back, came_back) = channel();
    std::thread::spawn(move || {
        let puppet = Puppet::default();
        let mut driver = Driver::new(puppet, Options::default(), |_| {}).unwrap();
        driver.turn(None).unwrap();
        for limit in [Duration::from_millis(30), Duration::ZERO] {
            let start = std::time::Instant::now();
            driver.turn(Some(limit)).unwrap();
            back.send(start.elapsed()).unwrap();
        }
    });
    // Nothing else would wake it.
    let took = came_back.recv_timeout(PATIENCE).expect("it comes back");
    assert!(took >= Duration::from_millis(30), "{took:?}");
    came_back.recv_timeout(PATIENCE).expect("it comes back");
}

#[test]
fn a_loud_connection_is_left_for_another_after_its_share() {
    let (mailbox, told) = Strings::mailbox();
    let options = Options { read_bytes: 2048, read_budget_bytes: 4096, ..Options::default() };
    let mut driver = Driver::new(Puppet::default(), options, mailbox).unwrap();
    let strings = Strings::new(driver.handle(), told);
    let mut next = || loop {
        match strings.told_within(Duration::ZERO) {
            Some(told) => return told,
            None => driver.turn(Some(PATIENCE)).unwrap(),
        }
    };
    let (listener, address) = (ListenerId(0), loopback(0));
    strings.order(Output::Listen { listener, address, options: Arc::default() });
    let Input::Listening { outcome: Ok(bound), .. } = next() else { panic!("no listener") };
    let mut accept = || {
        let stream = connect(bound.ip().unwrap());
        let Input::Accepted { connection, .. } = next() else { panic!("no connection") };
        (stream, connection)
    };
    let ((mut loud, shouting), (mut quiet, _)) = (accept(), accept());
    // What comes with a new connection is over, and all of the bytes are there before the driver has its next turn.
    strings.order(Output::Wait(Instant::ZERO));
    assert!(matches!(next(), Input::Timeout));
    loud.write_all(&[7; 40_000]).unwrap();
    quiet.write_all(b"psst").unwrap();
    let mut loud_bytes = 0;
    loop {
        match next() {
            Input::Received { connection, chunk } if connection == shouting => {
                loud_bytes += chunk.len();
            }
            Input::Received { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(loud_bytes < 40_000, "the quiet one waited for all of it");
}
