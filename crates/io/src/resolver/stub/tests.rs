use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::super::message::tests::{answer, deny};
use super::super::patience::{LONGEST_FOR_IPV4, RESOLUTION_DELAY};
use super::*;

const FOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// What a server says to a question, which it counts.
type Say = dyn Fn(&[u8], Kind, usize) -> Option<Vec<u8>> + Send + Sync;

struct Server {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Server {
    fn new(say: impl Fn(&[u8], Kind, usize) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (count, say): (_, Arc<Say>) = (Arc::clone(&asked), Arc::new(say));
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                let question = question[..length].to_vec();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (say, socket) = (Arc::clone(&say), socket.try_clone().unwrap());
                thread::spawn(move || {
                    if let Some(answer) = say(&question, kind(&question), number) {
                        socket.send_to(&answer, from).unwrap();
                    }
                });
            }
        });
        Self { address, asked }
    }

    /// One that knows both families.
    fn good() -> Self {
        Self::new(|question, kind, _| Some(addresses(question, kind)))
    }

    fn silent() -> Self {
        Self::new(|_, _, _| None)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn kind(question: &[u8]) -> Kind {
    let end = question[12..].iter().position(|byte| *byte == 0).unwrap() + 12;
    if question[end + 2] == 1 { Kind::A } else { Kind::Aaaa }
}

fn addresses(question: &[u8], kind: Kind) -> Vec<u8> {
    answer(question, 0, &[if kind == Kind::A { FOUR } else { SIX }])
}

fn resolve(servers: &[&Server]) -> (Result<Vec<IpAddr>, Why>, Duration) {
    let servers: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let began = Instant::now();
    let found = Stub::default().resolve("name.test", &Config::of(&servers)).0;
    (found, began.elapsed())
}

#[test]
fn both_families_come_at_once_each_asked_once() {
    let server = Server::good();
    let (found, took) = resolve(&[&server]);
    assert_eq!(found, Ok(vec![SIX, FOUR]));
    assert_eq!(server.asked(), 2);
    assert!(took < Duration::from_millis(900), "{took:?}");
}

#[test]
fn a_family_that_gets_no_answer_holds_the_other_up_for_a_moment() {
    for (lost, found, least, most) in [
        (Kind::Aaaa, FOUR, RESOLUTION_DELAY, Duration::from_millis(900)),
        (Kind::A, SIX, LONGEST_FOR_IPV4, Duration::from_secs(3)),
    ] {
        let server =
            Server::new(move |question, kind, _| (kind != lost).then(|| addresses(question, kind)));
        let (answer, took) = resolve(&[&server]);
        assert_eq!(answer, Ok(vec![found]));
        assert!((least..most).contains(&took), "{took:?}");
    }
}

#[test]
fn a_lost_question_is_asked_again() {
    let server =
        Server::new(|question, kind, number| (number >= 2).then(|| addresses(question, kind)));
    let (found, took) = resolve(&[&server]);
    assert_eq!(found, Ok(vec![SIX, FOUR]));
    assert!((ASK_AGAIN..Duration::from_secs(4)).contains(&took), "{took:?}");
}

#[test]
fn a_dead_server_costs_a_moment_and_is_asked_last_from_then_on() {
    let (dead, good) = (Server::silent(), Server::good());
    let config = Config::of(&[dead.address, good.address]);
    let stub = Stub::default();
    let began = Instant::now();
    assert_eq!(stub.resolve("name.test", &config).0, Ok(vec![SIX, FOUR]));
    assert!((NEXT_SERVER..Duration::from_secs(2)).contains(&began.elapsed()));
    assert_eq!(dead.asked(), 2);
    assert_eq!(stub.resolve("other.test", &config).0, Ok(vec![SIX, FOUR]));
    assert_eq!(dead.asked(), 2);
}

#[test]
fn a_server_that_cannot_tell_or_does_not_listen_costs_nothing() {
    let good = Server::good();
    let failing = Server::new(|question, _, _| Some(answer(question, 2, &[])));
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for bad in [failing.address, gone] {
        let began = Instant::now();
        let found = Stub::default().resolve("name.test", &Config::of(&[bad, good.address])).0;
        assert_eq!(found, Ok(vec![SIX, FOUR]));
        assert!(began.elapsed() < NEXT_SERVER, "{:?}", began.elapsed());
    }
    assert_eq!(resolve(&[&failing, &failing]).0, Err(Why::Failed));
    let all_gone = Stub::default().resolve("name.test", &Config::of(&[gone])).0;
    assert_eq!(all_gone, Err(Why::Silent(Failure::Refused)));
}

#[test]
fn a_name_is_denied_when_both_families_are() {
    let none = Server::new(|question, _, _| Some(answer(question, 3, &[])));
    assert_eq!(resolve(&[&none]).0, Err(Why::NoSuchName));
    let empty = Server::new(|question, _, _| Some(answer(question, 0, &[])));
    assert_eq!(resolve(&[&empty]).0, Err(Why::NoSuchName));
    // Of a name that has IPv4 alone some servers deny the name itself when asked for IPv6.
    let half = Server::new(|question, kind, _| {
        thread::sleep(Duration::from_millis(if kind == Kind::A { 100 } else { 0 }));
        let code = if kind == Kind::A { 0 } else { 3 };
        Some(answer(question, code, if kind == Kind::A { &[FOUR] } else { &[] }))
    });
    assert_eq!(resolve(&[&half]).0, Ok(vec![FOUR]));
}

#[test]
fn what_is_known_holds_for_as_long_as_the_shorter_of_both_families() {
    let lifetime = |server: &Server| {
        let config = Config::of(&[server.address]);
        Stub::default().resolve("name.test", &config).1.map(|lifetime| lifetime.as_secs())
    };
    assert_eq!(lifetime(&Server::good()), Some(60));
    let without_six = |question: &[u8], kind, zone| match kind {
        Kind::A => addresses(question, kind),
        Kind::Aaaa => deny(&answer(question, 0, &[]), zone),
    };
    let short = move |question: &[u8], kind, _| Some(without_six(question, kind, Some((40, 30))));
    assert_eq!(lifetime(&Server::new(short)), Some(30));
    let unsaid = move |question: &[u8], kind, _| Some(without_six(question, kind, None));
    assert_eq!(lifetime(&Server::new(unsaid)), Some(60));
    for (zone, wanted) in [(Some((9, 8)), Some(8)), (None, None)] {
        let none = move |question: &[u8], _, _| Some(deny(&answer(question, 3, &[]), zone));
        assert_eq!(lifetime(&Server::new(none)), wanted);
    }
}

#[test]
fn forged_answers_are_passed_over() {
    let forger = Server::new(|question, kind, number| {
        let mut forged = addresses(question, kind);
        if number < 2 {
            forged[0] ^= 1;
        }
        Some(forged)
    });
    let (found, took) = resolve(&[&forger]);
    assert_eq!(found, Ok(vec![SIX, FOUR]));
    assert!(took >= ASK_AGAIN, "only the second answer was one");
}

#[test]
fn a_server_without_edns_is_asked_without() {
    let old = Server::new(|question, kind, _| {
        let extended = question[11] == 1;
        Some(if extended { answer(question, 1, &[]) } else { addresses(question, kind) })
    });
    let (found, took) = resolve(&[&old]);
    assert_eq!(found, Ok(vec![SIX, FOUR]));
    assert!(took < Duration::from_millis(900), "{took:?}");
}

#[test]
fn what_is_too_long_for_a_datagram_comes_by_tcp() {
    let by_udp = Server::new(|question, kind, _| {
        let cut = answer(question, 1 << 9, &[]);
        Some(if kind == Kind::A { cut } else { addresses(question, kind) })
    });
    let listener = std::net::TcpListener::bind(by_udp.address).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut question = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut question).unwrap();
            let many: Vec<IpAddr> = (1..=30).map(|last| [127, 0, 1, last].into()).collect();
            let answer = answer(&question, 0, &many);
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length, answer.as_slice()].concat()).unwrap();
        }
    });
    assert_eq!(resolve(&[&by_udp]).0.unwrap().len(), 31);
}
