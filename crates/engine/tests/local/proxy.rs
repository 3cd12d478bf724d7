//! Origins behind proxies: tunnels by CONNECT and SOCKS, requests that a proxy forwards, refusals, and outages.

use std::collections::HashMap;

use towpath_engine::local::message::{Proxy, ProxyProtocol};
use towpath_proto::proxy::{Credentials, Refusal};
use towpath_proto::{AttemptId, Close, ConnectionId};
use towpath_sim::{Orders, Script};

use super::*;

const PROXY: ([u8; 4], u16) = ([10, 0, 2, 1], 3128);

/// What a proxy in the world does with its clients.
#[derive(Clone, Copy, Debug, Default)]
struct Manners {
    /// Answers CONNECT so in place of a tunnel.
    says: Option<&'static str>,
    /// Wants a password.
    guarded: bool,
    /// Takes a connection and says nothing.
    silent: bool,
}

/// How far a client's connection is.
enum Side {
    /// What it said so far, and how often it was answered.
    Asking(Vec<u8>, usize),
    Waiting,
    Joined(ConnectionId),
}

/// What the proxy was asked, without what went through its tunnels.
type Asked = Rc<RefCell<Vec<String>>>;

/// A proxy whose every name is the one origin.
fn proxy(
    asked: Asked,
    manners: Manners,
) -> Script<Message, impl FnMut(Input<Message>, &mut Orders<Message>, Instant)> {
    let mut sides: HashMap<ConnectionId, Side> = HashMap::new();
    let mut connecting: HashMap<AttemptId, (ConnectionId, &'static [u8])> = HashMap::new();
    let mut attempts = 0;
    Script::new(
        move |orders: &mut Orders<Message>| orders.listen(scene::address(PROXY)),
        move |input, orders: &mut Orders<Message>, _| match input {
            Input::Accepted { connection, .. } => {
                sides.insert(connection, Side::Asking(Vec::new(), 0));
            }
            Input::Received { connection, chunk } => match sides.get_mut(&connection) {
                Some(Side::Joined(other)) => orders.send(*other, chunk),
                Some(Side::Asking(said, replies)) if !manners.silent => {
                    said.extend_from_slice(&chunk);
                    let answered = answer(said, *replies, manners, &asked);
                    *replies += 1;
                    match answered {
                        Said::Nothing => *replies -= 1,
                        Said::Text(text) => orders.send(connection, text),
                        Said::No(text) => {
                            orders.send(connection, text);
                            orders.close(connection, Close::Flush);
                        }
                        Said::Yes(text) => {
                            sides.insert(connection, Side::Waiting);
                            connecting.insert(AttemptId(attempts), (connection, text));
                            attempts += 1;
                            orders.connect(scene::address(ORIGIN));
                        }
                    }
                }
                _ => {}
            },
            Input::Connected { attempt, connection, .. } => {
                let (client, text) = connecting.remove(&attempt).unwrap();
                sides.insert(client, Side::Joined(connection));
                sides.insert(connection, Side::Joined(client));
                orders.send(client, text);
            }
            Input::ConnectFailed { attempt, .. } => {
                let (client, _) = connecting.remove(&attempt).unwrap();
                orders.send(client, &b"HTTP/1.1 502 Bad Gateway\r\n\r\n"[..]);
                orders.close(client, Close::Flush);
            }
            Input::Ended { connection } | Input::Closed { connection, .. } => {
                if let Some(Side::Joined(other)) = sides.remove(&connection) {
                    sides.remove(&other);
                    orders.close(other, Close::Flush);
                }
            }
            _ => {}
        },
    )
}

enum Said {
    Nothing,
    Text(&'static [u8]),
    No(&'static [u8]),
    Yes(&'static [u8]),
}

/// What a proxy says to what it has heard.
fn answer(said: &[u8], replies: usize, manners: Manners, asked: &Asked) -> Said {
    if said.first() == Some(&5) {
        return socks(said, replies, manners, asked);
    }
    let text = String::from_utf8_lossy(said).into_owned();
    if !text.ends_with("\r\n\r\n") {
        return Said::Nothing;
    }
    let guarded = manners.guarded && !text.contains("proxy-authorization: Basic dTpw\r\n");
    asked.borrow_mut().push(text);
    match manners.says {
        Some(says) => Said::No(says.as_bytes()),
        None if guarded => Said::No(b"HTTP/1.1 407 Who?\r\nproxy-authenticate: Basic\r\n\r\n"),
        None => Said::Yes(b"HTTP/1.1 200 Connection established\r\n\r\n"),
    }
}

/// The whole conversation so far decides, as it comes in pieces.
fn socks(said: &[u8], replies: usize, manners: Manners, asked: &Asked) -> Said {
    let [_, count, rest @ ..] = said else { return Said::Nothing };
    let Some((methods, rest)) = rest.split_at_checked(usize::from(*count)) else {
        return Said::Nothing;
    };
    if replies == 0 {
        assert!(methods.contains(if manners.guarded { &2 } else { &0 }));
        return Said::Text(if manners.guarded { b"\x05\x02" } else { b"\x05\x00" });
    }
    let mut rest = rest;
    if manners.guarded {
        let Some((password, after)) = rest.split_at_checked(5) else { return Said::Nothing };
        assert_eq!(password, [1, 1, b'u', 1, b'p']);
        if replies == 1 {
            return Said::Text(b"\x01\x00");
        }
        rest = after;
    }
    match rest {
        [5, 1, 0, 3, length, name @ ..] if name.len() == usize::from(*length) + 2 => {
            let name = &name[..usize::from(*length)];
            asked.borrow_mut().push(String::from_utf8_lossy(name).into_owned());
            Said::Yes(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        }
        _ => Said::Nothing,
    }
}

struct Town {
    app: App,
    log: Log,
    asked: Asked,
}

fn town(seed: u64, manners: Manners) -> Town {
    let mut app = App::new(seed, Settings::default());
    let log = app.serve(ORIGIN, Habits::default());
    let asked = Asked::default();
    app.world.add(proxy(Rc::clone(&asked), manners));
    Town { app, log, asked }
}

fn through(protocol: ProxyProtocol, who: Option<(&str, &str)>) -> Options {
    let credentials = who.map(|(user, password)| Credentials {
        user: user.to_owned(),
        password: password.to_owned(),
    });
    let proxy = Proxy {
        host: "10.0.2.1".into(),
        port: PROXY.1,
        transport: Transport::Plain,
        protocol,
        credentials,
        fields: Vec::new(),
    };
    Options { proxy: Some(Arc::new(proxy)), ..Options::default() }
}

fn ask(number: u64) -> Ask {
    Ask {
        id: format!("p{number}"),
        method: "GET",
        body: 0,
        chunked: false,
        answer: 3000,
        answer_chunked: false,
        pause: Duration::ZERO,
    }
}

#[test]
fn tunnels_carry_requests_and_the_proxy_resolves_the_name() {
    for_each_seed(50, |seed| {
        for (protocol, guarded) in [
            (ProxyProtocol::Connect, false),
            (ProxyProtocol::Connect, true),
            (ProxyProtocol::Socks5, false),
            (ProxyProtocol::Socks5, true),
        ] {
            let mut town = town(seed, Manners { guarded, ..Manners::default() });
            let options = through(protocol, guarded.then_some(("u", "p")));
            // A name that only the proxy can resolve.
            let calls: Vec<CallId> = (0..3)
                .map(|number| {
                    let call = town.app.ask(&ask(number), "inside.test", options.clone());
                    town.app.run_until_ended(call, Duration::from_secs(5));
                    call
                })
                .collect();
            for (number, call) in (0..).zip(&calls) {
                town.app.check_answered(*call, &ask(number));
                let report = town.app.calls[call].report();
                assert_eq!(report.tries[0].reused, number > 0, "the tunnel is kept");
                assert_eq!(report.proxy, options.proxy);
            }
            let asked = town.asked.borrow();
            let last = asked.last().unwrap();
            match protocol {
                ProxyProtocol::Socks5 => assert_eq!(last, "inside.test"),
                _ => assert!(last.starts_with("CONNECT inside.test:8080 HTTP/1.1\r\n"), "{last}"),
            }
            assert_eq!(town.log.borrow().times.len(), 3);
        }
    });
}

#[test]
fn a_refusal_is_the_answer_and_is_told() {
    let cases = [
        (Manners { guarded: true, ..Manners::default() }, Refusal::Credentials),
        (
            Manners { says: Some("HTTP/1.1 403 No\r\n\r\n"), ..Manners::default() },
            Refusal::Status(403),
        ),
        (Manners { says: Some("SSH-2.0-x\r\n\r\n"), ..Manners::default() }, Refusal::Malformed),
    ];
    for_each_seed(20, |seed| {
        for (manners, refusal) in cases {
            let mut town = town(seed, manners);
            let options = through(ProxyProtocol::Connect, None);
            let call = town.app.ask(&ask(0), "inside.test", options);
            town.app.run(Duration::from_secs(1));
            let state = &town.app.calls[&call];
            assert_eq!(state.outcome(), Outcome::Failed(Error::Proxy(refusal)));
            let attempts = &state.report().attempts;
            assert_eq!(attempts[0].outcome, Some(AttemptOutcome::Proxy(refusal)));
            assert_eq!(attempts.len(), 1, "it is not asked again");
        }
    });
}

#[test]
fn a_proxy_that_says_nothing_is_asked_by_fresh_attempts_until_the_time_is_over() {
    for_each_seed(10, |seed| {
        let mut town = town(seed, Manners { silent: true, ..Manners::default() });
        let limit = Duration::from_secs(3);
        let options = Options { total: Some(limit), ..through(ProxyProtocol::Connect, None) };
        let call = town.app.ask(&ask(0), "inside.test", options);
        town.app.run_until_ended(call, Duration::from_secs(10));
        let state = &town.app.calls[&call];
        assert_eq!(state.outcome(), Outcome::Failed(Error::TimedOut(Layer::Total)));
        assert!(state.report().attempts.len() > 1);
    });
}

#[test]
fn an_outage_costs_less_than_a_second_after_it_through_a_tunnel_as_well() {
    for_each_seed(50, |seed| {
        let mut town = town(seed, Manners::default());
        town.app.lose_network();
        let options = through(ProxyProtocol::Connect, None);
        let call = town.app.ask(&ask(0), "inside.test", options);
        town.app.run(Duration::from_millis(4000 + seed % 7 * 130));
        town.app.restore_network();
        let back = town.app.world.now();
        town.app.run_until_ended(call, Duration::from_secs(5));
        town.app.check_answered(call, &ask(0));
        let took = town.app.calls[&call].ended_at() - back;
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn a_tunnel_that_is_cut_in_the_middle_is_asked_for_again() {
    for_each_seed(50, |seed| {
        let mut town = town(seed, Manners::default());
        let options = through(ProxyProtocol::Connect, None);
        let call = town.app.ask(&ask(0), "inside.test", options);
        // At the latest while the tunnel is being asked for.
        town.app.run(Duration::from_millis(20 + seed));
        town.app.world.vanish_connections();
        town.app.run_until_ended(call, Duration::from_secs(10));
        town.app.check_answered(call, &ask(0));
    });
}

#[test]
fn a_proxy_that_forwards_is_asked_like_an_origin_and_shared() {
    let mut app = App::new(1, Settings::default());
    // It answers for whatever is asked for.
    let log = app.serve(PROXY, Habits::default());
    for (number, host) in (0..).zip(["a.test", "b.test"]) {
        let call = app.ask(&ask(number), host, through(ProxyProtocol::Forward, None));
        app.run_until_ended(call, Duration::from_secs(5));
        app.check_answered(call, &ask(number));
        assert_eq!(app.calls[&call].report().tries[0].reused, number > 0);
    }
    assert_eq!(log.borrow().times.len(), 2);
}

#[test]
fn a_proxy_under_tls_needs_to_be_told_of_tls() {
    let mut town = town(1, Manners::default());
    let mut options = through(ProxyProtocol::Connect, None);
    let proxy = Arc::make_mut(options.proxy.as_mut().unwrap());
    proxy.transport = Transport::Tls;
    let call = town.app.ask(&ask(0), "inside.test", options);
    town.app.run(Duration::from_millis(10));
    assert_eq!(town.app.calls[&call].outcome(), Outcome::Failed(Error::NoTls));
}

#[test]
fn where_no_proxy_listens_it_fails_at_once() {
    let mut app = App::new(1, Settings::default());
    app.serve(ORIGIN, Habits::default());
    let call = app.ask(&ask(0), "inside.test", through(ProxyProtocol::Socks5, None));
    app.run(Duration::from_secs(1));
    assert_eq!(app.calls[&call].outcome(), Outcome::Failed(Error::Connect(Failure::Refused)));
}

#[test]
fn what_cannot_be_said_to_a_proxy_is_not() {
    let mut town = town(1, Manners::default());
    let long = "a".repeat(300);
    let call = town.app.ask(&ask(0), &long, through(ProxyProtocol::Socks5, None));
    town.app.run(Duration::from_secs(1));
    let refused = Outcome::Failed(Error::Proxy(Refusal::TooLong));
    assert_eq!(town.app.calls[&call].outcome(), refused);
}
