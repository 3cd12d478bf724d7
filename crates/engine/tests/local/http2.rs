//! Many requests of an app over one connection of HTTP/2: who shares it, what is moved off it and when, and that
//! nothing is done twice that must not be.

use towpath_engine::local::message::HttpVersions;
use towpath_proto::head::{HeadPool, Version};
use towpath_proto::http2::{Arrival, Code, Connection, Options as Http2Options};
use towpath_proto::{Close, ConnectionId, Out};
use towpath_sim::{Orders, Script};

use super::*;

/// What an origin does beside answering.
#[derive(Clone, Copy, Debug)]
struct Habits2 {
    /// Streams at once on a connection.
    most_streams: u32,
    /// From a request's end to its answer.
    delay: Duration,
    /// Goes away after so many requests of a connection, and closes it when they are answered.
    leaves_after: Option<u32>,
    /// Refuses every n-th request.
    refuses: Option<u32>,
    /// Gives every n-th request up.
    resets: Option<u32>,
}

const USUAL: Habits2 = Habits2 {
    most_streams: 100,
    delay: Duration::ZERO,
    leaves_after: None,
    refuses: None,
    resets: None,
};

#[derive(Debug, Default)]
struct Seen2 {
    times: BTreeMap<String, u32>,
    wrong_bodies: u32,
    connections: u32,
    most_at_once: usize,
    requests: u32,
}

struct Peer {
    http2: Connection,
    streams: BTreeMap<u32, Asked>,
    requests: u32,
    leaves: bool,
}

struct Asked {
    head: Head,
    body: Vec<u8>,
    due: Option<Instant>,
    answer: Option<Bytes>,
}

struct Origin2 {
    peers: BTreeMap<ConnectionId, Peer>,
    heads: HeadPool,
    habits: Habits2,
    seen: Rc<RefCell<Seen2>>,
}

fn serve(app: &mut App, habits: Habits2) -> (NodeId, Rc<RefCell<Seen2>>) {
    let seen = Rc::<RefCell<Seen2>>::default();
    let (peers, heads) = (BTreeMap::new(), HeadPool::default());
    let mut origin = Origin2 { peers, heads, habits, seen: Rc::clone(&seen) };
    let script = Script::new(
        |orders: &mut Orders<Message>| orders.listen(scene::address(ORIGIN)),
        move |input, orders: &mut Orders<Message>, now| origin.act(input, orders, now),
    );
    (app.world.add(script), seen)
}

impl Origin2 {
    fn act(&mut self, input: Input<Message>, orders: &mut Orders<Message>, now: Instant) {
        match input {
            Input::Accepted { connection, .. } => {
                let options = Http2Options {
                    max_concurrent_streams: self.habits.most_streams,
                    max_window_updates: 1000,
                    ..Http2Options::default()
                };
                let http2 = Connection::server(Arc::new(options));
                let peer = Peer { http2, streams: BTreeMap::new(), requests: 0, leaves: false };
                self.peers.insert(connection, peer);
                self.seen.borrow_mut().connections += 1;
            }
            Input::Received { connection, chunk } => {
                if let Some(peer) = self.peers.get_mut(&connection) {
                    peer.receive(chunk, &mut self.heads, self.habits, &self.seen, now);
                }
            }
            Input::Sent { connection, .. } => {
                if let Some(peer) = self.peers.get_mut(&connection) {
                    peer.http2.sent(0);
                }
                return;
            }
            Input::Ended { connection } => {
                if self.peers.remove(&connection).is_some() {
                    orders.close(connection, Close::Flush);
                }
                return;
            }
            Input::Closed { connection, .. } => {
                self.peers.remove(&connection);
                return;
            }
            _ => {}
        }
        self.answer(orders, now);
    }

    fn answer(&mut self, orders: &mut Orders<Message>, now: Instant) {
        let mut next: Option<Instant> = None;
        self.peers.retain(|&id, peer| {
            let mut out = Out::new();
            let due = peer.answer(&mut out, now);
            next = next.into_iter().chain(due).min();
            peer.http2.flush(&mut out);
            out.drain().for_each(|chunk| orders.send(id, chunk));
            let over = peer.leaves && peer.http2.streams() == 0;
            if over {
                orders.close(id, Close::Flush);
            }
            !over
        });
        if let Some(next) = next {
            orders.wake_at(next);
        }
    }
}

impl Peer {
    fn receive(
        &mut self,
        chunk: Bytes,
        heads: &mut HeadPool,
        habits: Habits2,
        seen: &RefCell<Seen2>,
        now: Instant,
    ) {
        self.http2.receive(chunk);
        while let Some((number, arrival)) = self.http2.poll(heads).expect("the app speaks HTTP/2") {
            let mut seen = seen.borrow_mut();
            match arrival {
                Arrival::Part(towpath_proto::Event::Head { head, end }) => {
                    (seen.requests, self.requests) = (seen.requests + 1, self.requests + 1);
                    let count = seen.requests;
                    let hits = |every: Option<u32>| every.is_some_and(|n| count.is_multiple_of(n));
                    if hits(habits.refuses) {
                        self.http2.reset(number, Code::REFUSED_STREAM);
                        self.http2.release(number);
                        continue;
                    }
                    let asked = Asked { head, body: Vec::new(), due: None, answer: None };
                    assert!(self.streams.insert(number, asked).is_none());
                    seen.most_at_once = seen.most_at_once.max(self.streams.len());
                    if hits(habits.resets) {
                        self.forget(number, &mut seen);
                        self.http2.reset(number, Code::INTERNAL_ERROR);
                        self.http2.release(number);
                        continue;
                    }
                    if habits.leaves_after == Some(self.requests) {
                        self.leaves = true;
                        self.http2.go_away(Code::NO_ERROR);
                    }
                    if end {
                        self.end(number, habits, &mut seen, now);
                    }
                }
                Arrival::Part(towpath_proto::Event::Data(data)) => {
                    if let Some(asked) = self.streams.get_mut(&number) {
                        asked.body.extend_from_slice(&data);
                    }
                    self.http2.consumed(number);
                }
                Arrival::Part(_) => self.end(number, habits, &mut seen, now),
                Arrival::Reset(_) | Arrival::Refused => {
                    self.streams.remove(&number);
                    self.http2.release(number);
                }
            }
        }
    }

    fn forget(&mut self, number: u32, seen: &mut Seen2) {
        if let Some(asked) = self.streams.remove(&number) {
            *seen.times.entry(text(&asked.head, b"x-id")).or_default() += 1;
        }
    }

    fn end(&mut self, number: u32, habits: Habits2, seen: &mut Seen2, now: Instant) {
        let Some(asked) = self.streams.get_mut(&number) else { return };
        let id = text(&asked.head, b"x-id");
        let promised: usize = text(&asked.head, b"x-body").parse().unwrap();
        seen.wrong_bodies += u32::from(asked.body != pattern(&id, promised));
        *seen.times.entry(id).or_default() += 1;
        asked.due = Some(now + habits.delay);
    }

    /// Sends what windows take; when the next answer is due.
    fn answer(&mut self, out: &mut Out, now: Instant) -> Option<Instant> {
        let http2 = &mut self.http2;
        let mut next: Option<Instant> = None;
        self.streams.retain(|&number, asked| {
            let Some(due) = asked.due else { return true };
            if due > now {
                next = next.into_iter().chain([due]).min();
                return true;
            }
            let is_head = asked.head.method() == towpath_proto::head::Method::Head;
            let id = text(&asked.head, b"x-id");
            let size: usize = text(&asked.head, b"x-size").parse().unwrap();
            let answer = asked.answer.get_or_insert_with(|| {
                let mut head = Head::response(200);
                head.append_bytes(b"x-id", id.as_bytes());
                head.append_bytes(b"etag", b"\"v1\"");
                let first = text(&asked.head, b"range");
                let first = first.strip_prefix("bytes=").and_then(|it| it.strip_suffix('-'));
                let first: usize = first.map_or(0, |first| first.parse().unwrap());
                if first > 0 {
                    head.set_status(206);
                    let range = format!("bytes {first}-{}/{size}", size - 1);
                    head.append_bytes(b"content-range", range.as_bytes());
                }
                head.append_bytes(b"content-length", (size - first).to_string().as_bytes());
                http2.send_head(number, &head, false, out);
                if is_head { Bytes::new() } else { pattern(&id, size).slice(first..) }
            });
            let room = http2.writable(number).min(answer.len());
            if room > 0 {
                http2.send_data(number, answer.split_to(room));
            }
            if !answer.is_empty() {
                return true;
            }
            http2.send_end(number);
            http2.release(number);
            false
        });
        next
    }
}

fn prior_knowledge() -> Options {
    Options { http: HttpVersions::Http2, ..Options::default() }
}

fn once() -> Options {
    Options { repeat: Repeat::Never, ..prior_knowledge() }
}

fn post(app: &App, body: usize) -> Ask {
    Ask {
        id: format!("p{}", app.next),
        method: "POST",
        body,
        chunked: false,
        answer: 100,
        answer_chunked: false,
        pause: Duration::ZERO,
    }
}

fn check_complete(app: &App, calls: &[CallId]) {
    for call in calls {
        complete(app, *call);
    }
}

fn complete(app: &App, call: CallId) -> &Call {
    let state = &app.calls[&call];
    assert_eq!(state.outcome(), Outcome::Complete, "{:?}", state.report());
    state
}

#[test]
fn many_requests_share_one_connection() {
    for_each_seed(50, |seed| {
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, Habits2 { delay: Duration::from_millis(100), ..USUAL });
        let list = asks(&mut Random::new(seed), 0, 50, 60_000);
        let calls: Vec<CallId> =
            list.iter().map(|ask| app.ask(ask, "10.0.1.1", prior_knowledge())).collect();
        app.run(Duration::from_secs(20));
        for (call, ask) in calls.iter().zip(&list) {
            app.check_answered(*call, ask);
            assert_eq!(app.calls[call].head.as_ref().unwrap().version(), Version::Http2);
            assert_eq!(app.calls[call].report().tries[0].version, Version::Http2);
            assert_eq!(seen.borrow().times[&ask.id], 1);
        }
        let seen = seen.borrow();
        assert_eq!((seen.connections, seen.wrong_bodies), (1, 0));
        assert!(seen.most_at_once > 30, "{}", seen.most_at_once);
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}

#[test]
fn another_connection_is_opened_only_beyond_what_the_peer_takes_at_once() {
    for_each_seed(50, |seed| {
        let mut app = App::new(seed, Settings::default());
        let delay = Duration::from_millis(200);
        let (_, seen) = serve(&mut app, Habits2 { most_streams: 10, delay, ..USUAL });
        let first = app.get(10, prior_knowledge());
        app.run_until_ended(first, Duration::from_secs(2));
        let calls: Vec<CallId> = (0..10).map(|_| app.get(10, once())).collect();
        app.run(Duration::from_secs(1));
        check_complete(&app, &calls);
        assert_eq!(seen.borrow().connections, 1);
        let calls: Vec<CallId> = (0..30).map(|_| app.get(10, once())).collect();
        app.run(Duration::from_secs(3));
        check_complete(&app, &calls);
        let seen = seen.borrow();
        assert!((2..=4).contains(&seen.connections), "{}", seen.connections);
        assert!(seen.times.values().all(|times| *times == 1), "{:?}", seen.times);
    });
}

#[test]
fn what_is_beyond_the_first_connection_before_its_settings_come_is_not_lost() {
    for_each_seed(50, |seed| {
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, Habits2 { most_streams: 6, ..USUAL });
        let calls: Vec<CallId> = (0..60).map(|_| app.get(500, once())).collect();
        app.run(Duration::from_secs(10));
        check_complete(&app, &calls);
        let seen = seen.borrow();
        assert!(seen.times.values().all(|times| *times == 1), "{:?}", seen.times);
        assert!(seen.connections <= 16, "{}", seen.connections);
    });
}

#[test]
fn what_a_server_that_leaves_has_not_processed_goes_elsewhere_once() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        let leaves_after = Some(5 + seed as u32 % 7);
        let delay = Duration::from_millis(seed % 50);
        let (_, seen) = serve(&mut app, Habits2 { leaves_after, delay, ..USUAL });
        let mut random = Random::new(seed);
        let mut calls = Vec::new();
        for _ in 0..40 {
            let ask = post(&app, 3000);
            calls.push(app.ask(&ask, "10.0.1.1", once()));
            app.run(Duration::from_millis(random.below(15)));
        }
        app.run(Duration::from_secs(20));
        for call in &calls {
            let state = complete(&app, *call);
            assert_eq!(seen.borrow().times[&state.id], 1, "{:?}", state.report());
        }
        assert_eq!(seen.borrow().wrong_bodies, 0);
    });
}

#[test]
fn what_is_refused_is_sent_again_and_what_is_given_up_only_where_it_may_be_repeated() {
    for_each_seed(50, |seed| {
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, Habits2 { refuses: Some(7), ..USUAL });
        let calls: Vec<CallId> = (0..30).map(|_| app.get(500, once())).collect();
        app.run(Duration::from_secs(10));
        check_complete(&app, &calls);
        assert!(seen.borrow().times.values().all(|times| *times == 1));
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, Habits2 { resets: Some(7), ..USUAL });
        let calls: Vec<CallId> = (0..7).map(|_| app.get(500, once())).collect();
        app.run(Duration::from_secs(10));
        let failed = calls.iter().filter(|call| app.calls[call].outcome() != Outcome::Complete);
        assert_eq!(failed.count(), 1);
        assert!(seen.borrow().times.values().all(|times| *times == 1));
        let calls: Vec<CallId> = (0..7).map(|_| app.get(500, prior_knowledge())).collect();
        app.run(Duration::from_secs(10));
        check_complete(&app, &calls);
    });
}

#[test]
fn before_what_must_not_be_repeated_goes_onto_an_idle_connection_its_peer_is_asked() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, USUAL);
        let first = app.get(10, prior_knowledge());
        app.run_until_ended(first, Duration::from_secs(2));
        app.run(Duration::from_millis(1_200 + seed * 50));
        let ask = post(&app, 100);
        let began = app.world.now();
        let call = app.ask(&ask, "10.0.1.1", once());
        app.run_until_ended(call, Duration::from_secs(5));
        let state = complete(&app, call);
        let [ping] = &state.report().pings[..] else { panic!("{:?}", state.report()) };
        let [only] = &state.report().tries[..] else { panic!("{:?}", state.report()) };
        assert!(only.reused && only.began >= ping.answered.unwrap(), "{:?}", state.report());
        let took = state.ended_at() - began;
        assert!(took < Duration::from_millis(190), "two round trips: {took:?}");
        assert_eq!(seen.borrow().connections, 1);
        // Lately heard of, it is asked nothing.
        app.run(Duration::from_millis(500));
        let again = app.ask(&post(&app, 100), "10.0.1.1", once());
        app.run_until_ended(again, Duration::from_secs(5));
        assert!(complete(&app, again).report().pings.is_empty());
    });
}

#[test]
fn a_connection_that_died_while_it_was_idle_costs_what_cannot_be_repeated_a_quarter_of_a_second() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, USUAL);
        let first = app.get(10, prior_knowledge());
        app.run_until_ended(first, Duration::from_secs(2));
        app.run(Duration::from_millis(2_000 + seed * 50));
        app.world.vanish_connections();
        let options = if seed % 2 == 0 { once() } else { prior_knowledge() };
        let began = app.world.now();
        let call = app.ask(&post(&app, 100), "10.0.1.1", options.clone());
        let get = app.get(100, Options { repeat: Repeat::ByMethod, ..options });
        for call in [call, get] {
            app.run_until_ended(call, Duration::from_secs(5));
            let state = complete(&app, call);
            let took = state.ended_at() - began;
            assert!(took < Duration::from_millis(400), "{took:?} {:?}", state.report());
            assert_eq!(seen.borrow().times[&state.id], 1, "{:?}", state.report());
            assert_eq!(state.report().pings[0].answered, None);
        }
        assert_eq!(seen.borrow().connections, 2);
    });
}

#[test]
fn a_slow_server_is_neither_suspected_nor_asked_twice() {
    for_each_seed(30, |seed| {
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, Habits2 { delay: Duration::from_secs(6), ..USUAL });
        let calls: Vec<CallId> = (0..20).map(|_| app.get(1_000, prior_knowledge())).collect();
        app.run(Duration::from_secs(10));
        for call in &calls {
            let report = complete(&app, *call).report();
            assert_eq!((report.tries.len(), report.redone), (1, 0), "{report:?}");
            assert!(!report.pings.is_empty());
            assert!(report.pings.iter().all(|ping| ping.answered.is_some()), "{report:?}");
        }
        let seen = seen.borrow();
        assert_eq!(seen.connections, 1);
        assert!(seen.times.values().all(|times| *times == 1));
    });
}

#[test]
fn all_requests_of_a_dead_connection_move_together() {
    for_each_seed(100, |seed| {
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, Habits2 { delay: Duration::from_millis(300), ..USUAL });
        let calls: Vec<CallId> = (0..60).map(|_| app.get(1_000, prior_knowledge())).collect();
        app.run(Duration::from_millis(100));
        app.world.vanish_connections();
        let cut = app.world.now();
        for call in &calls {
            app.run_until_ended(*call, Duration::from_secs(10));
            let state = complete(&app, *call);
            assert_eq!(state.report().redone, 1, "{:?}", state.report());
            let took = state.report().tries[1].began - cut;
            assert!(took < Duration::from_millis(1_400), "{took:?} {:?}", state.report());
        }
        assert_eq!(seen.borrow().connections, 2, "one for all");
        app.run(Duration::from_secs(30));
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}

#[test]
fn an_outage_costs_all_that_is_under_way_less_than_a_second_after_it() {
    for_each_seed(100, |seed| {
        let mut random = Random::new(seed);
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, Habits2 { delay: Duration::from_millis(300), ..USUAL });
        let calls: Vec<CallId> = (0..20).map(|_| app.get(1_000, prior_knowledge())).collect();
        app.run(Duration::from_millis(100));
        app.lose_network();
        let length = Duration::from_millis(3_000 + random.below(20_000));
        app.run(length);
        app.restore_network();
        let back = app.world.now();
        for call in &calls {
            app.run_until_ended(*call, Duration::from_secs(20));
            let state = complete(&app, *call);
            let after = state.ended_at() - back;
            // 300 ms of them are the server's own.
            assert!(after < Duration::from_millis(1_500), "{after:?} {:?}", state.report());
        }
        assert!(seen.borrow().connections <= 1 + 6, "{}", seen.borrow().connections);
    });
}

#[test]
fn a_response_that_stands_still_goes_on_elsewhere() {
    for_each_seed(30, |seed| {
        let settings = Settings { window_bytes: 70_000, ..Settings::default() };
        let mut app = App::new(seed, settings);
        let (_, seen) = serve(&mut app, USUAL);
        let call = app.get(300_000, prior_knowledge());
        while app.calls[&call].received.len() < 50_000 {
            app.run(Duration::from_millis(1));
        }
        app.world.vanish_connections();
        let cut = app.world.now();
        app.run_until_ended(call, Duration::from_secs(60));
        let state = complete(&app, call);
        assert_eq!(state.received, pattern(&state.id, 300_000));
        assert_eq!(state.report().resumed.len(), 1, "{:?}", state.report());
        let resumed = state.report().resumed[0].at - cut;
        assert!(resumed < Duration::from_millis(3_600), "{resumed:?} {:?}", state.report());
        assert_eq!(seen.borrow().connections, 2);
    });
}

#[test]
fn windows_grow_with_what_the_path_has_under_way() {
    let time = |max_stream_window| {
        let settings = Settings { window_bytes: 65_535, max_stream_window, ..Settings::default() };
        let mut app = App::new(1, settings);
        let wide = 4 << 20;
        app.world.set_faults(Faults {
            segment_bytes: 16_384..=16_384,
            read_bytes: wide..=wide,
            buffer_bytes: wide..=wide,
            partial_permille: 0,
            ..path()
        });
        let (_, _seen) = serve(&mut app, USUAL);
        let call = app.get(4_000_000, prior_knowledge());
        app.run_until_ended(call, Duration::from_secs(60));
        let state = complete(&app, call);
        assert_eq!(state.received.len(), 4_000_000);
        let sizes: Vec<u32> = state.report().widened.iter().map(|each| each.bytes).collect();
        (state.ended_at() - Instant::ZERO, sizes)
    };
    let (fixed, none) = time(0);
    assert!(none.is_empty(), "{none:?}");
    let (grown, sizes) = time(1 << 20);
    assert_eq!(sizes, [131_070, 262_140, 524_280, 1_048_560, 1 << 20]);
    assert!(grown * 3 < fixed, "{grown:?} in place of {fixed:?}");
}

#[test]
fn an_app_that_does_not_read_holds_up_its_own_response_alone() {
    let settings = Settings { window_bytes: 65_535, ..Settings::default() };
    let mut app = App::new(1, settings);
    let (_, seen) = serve(&mut app, USUAL);
    let slow = app.get(2_000_000, prior_knowledge());
    for _ in 0..1_000 {
        // Without the app's word on what it has used.
        app.world.run_for(Duration::from_millis(1));
    }
    for _ in 0..20 {
        let call = app.get(30_000, prior_knowledge());
        app.world.run_for(Duration::from_millis(200));
        let messages = app.world.take_messages(app.worker);
        for (at, message) in messages {
            if let Message::From(FromWorker::Local(event)) = message {
                app.on_event(event, at);
            }
        }
        assert_eq!(app.calls[&call].ends.len(), 1);
    }
    let waits = app.calls[&slow].received.len();
    assert!(waits <= 65_535 * 2 + 66_000, "{waits}");
    assert_eq!(seen.borrow().connections, 1);
    app.run(Duration::from_secs(30));
    assert_eq!(complete(&app, slow).received.len(), 2_000_000);
}

#[test]
fn a_round_trip_that_grows_moves_nothing() {
    for_each_seed(30, |seed| {
        let mut app = App::new(seed, Settings::default());
        let (server, seen) = serve(&mut app, USUAL);
        let first = app.get(10, prior_knowledge());
        app.run_until_ended(first, Duration::from_secs(2));
        app.run(Duration::from_millis(2_000));
        // It is late by more than it is given, and there before another connection is.
        app.world.freeze(server, Duration::from_millis(205));
        let call = app.get(10, prior_knowledge());
        app.run_until_ended(call, Duration::from_secs(5));
        let report = complete(&app, call).report();
        assert_eq!((report.tries.len(), report.redone), (1, 0), "{report:?}");
        assert!(seen.borrow().times.values().all(|times| *times == 1));
    });
}

#[test]
fn on_another_network_everything_moves_at_once() {
    for_each_seed(50, |seed| {
        let mut app = App::new(seed, Settings::default());
        let (_, seen) = serve(&mut app, Habits2 { delay: Duration::from_millis(400), ..USUAL });
        let gets: Vec<CallId> = (0..20).map(|_| app.get(500, prior_knowledge())).collect();
        app.run(Duration::from_millis(100));
        app.world.vanish_connections();
        let change = NetworkChange {
            label: "other".into(),
            kind: Network::Fixed,
            online: true,
            spares_loopback: false,
        };
        app.command(Command::Network(change));
        let changed = app.world.now();
        for call in &gets {
            app.run_until_ended(*call, Duration::from_secs(10));
            let state = complete(&app, *call);
            let took = state.ended_at() - changed;
            assert!(took < Duration::from_millis(1_000), "{took:?} {:?}", state.report());
        }
        assert_eq!(seen.borrow().connections, 2);
    });
}

#[test]
fn whatever_breaks_each_request_ends_once_and_none_is_done_twice_over_http2() {
    for_each_seed(300, |seed| {
        let mut app = App::new(seed, Settings::default());
        app.world.set_faults(if seed % 2 == 0 { Faults::lively() } else { Faults::harsh() });
        let habits = Habits2 {
            most_streams: if seed % 3 == 0 { 2 } else { 100 },
            delay: Duration::from_millis(seed % 90),
            leaves_after: (seed % 4 == 0).then_some(3),
            refuses: (seed % 5 == 0).then_some(4),
            resets: (seed % 7 == 0).then_some(5),
        };
        let (_, seen) = serve(&mut app, habits);
        let mut random = Random::new(seed);
        let list = asks(&mut random, 0, 12, 4_000);
        let mut calls = Vec::new();
        for ask in &list {
            calls.push(app.ask(ask, "10.0.1.1", prior_knowledge()));
            app.run(Duration::from_millis(random.below(300)));
        }
        app.run(Duration::from_secs(90));
        for (call, ask) in calls.iter().zip(&list) {
            let times = seen.borrow().times.get(&ask.id).copied().unwrap_or(0);
            if ask.method == "POST" {
                assert!(times <= 1, "{ask:?} was done {times} times");
            }
            if app.calls[call].outcome() == Outcome::Complete {
                app.check_answered(*call, ask);
            }
        }
        assert_eq!(app.world.machine::<Worker>(app.worker).streams(), 0);
    });
}

#[test]
fn a_server_that_breaks_the_rules_is_told_why() {
    let mut app = App::new(1, Settings::default());
    let told = Rc::<RefCell<Vec<u8>>>::default();
    let heard = Rc::clone(&told);
    app.world.add(Script::new(
        |orders: &mut Orders<Message>| orders.listen(scene::address(ORIGIN)),
        move |input, orders: &mut Orders<Message>, _| match input {
            Input::Accepted { connection, .. } => {
                // SETTINGS, and PING of a stream.
                let frames =
                    [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], &[0, 0, 8, 6, 0, 0, 0, 0, 1], &[0; 8]];
                orders.send(connection, frames.concat());
            }
            Input::Received { chunk, .. } => heard.borrow_mut().extend_from_slice(&chunk),
            _ => {}
        },
    ));
    let call = app.get(10, prior_knowledge());
    app.run(Duration::from_secs(20));
    assert!(matches!(app.calls[&call].outcome(), Outcome::Failed(_)));
    let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert!(told.borrow().ends_with(&goaway), "{}", told.borrow().escape_ascii());
}
