//! Connects: how they end, how they are taken back, where they come from.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{
    Address, AttemptId, ConnectOptions, ConnectionId, Failure, Input, Output, QueryId,
};

use super::Runner;
use super::scene::{Scene, loopback, socket_path};

fn connected(scene: &Scene, expected: u64) -> (ConnectionId, Address) {
    match scene.told() {
        Input::Connected { attempt, connection, local } => {
            assert_eq!(attempt, AttemptId(expected));
            (connection, local)
        }
        other => panic!("{other:?}"),
    }
}

fn not_connected(scene: &Scene, expected: u64) -> Failure {
    match scene.told() {
        Input::ConnectFailed { attempt, failure } => {
            assert_eq!(attempt, AttemptId(expected));
            failure
        }
        other => panic!("{other:?}"),
    }
}

pub fn a_connect_tells_our_own_address<R: Runner>() {
    let scene = Scene::new::<R>();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    scene.connect(1, server.local_addr().unwrap().into(), ConnectOptions::default());
    let (mut stream, peer) = server.accept().unwrap();
    let (connection, local) = connected(&scene, 1);
    assert_eq!(local, Address::Ip(peer));
    stream.write_all(b"welcome").unwrap();
    scene.expect_bytes(connection, b"welcome");
    scene.send(connection, "thanks");
    let mut words = [0; 6];
    stream.read_exact(&mut words).unwrap();
    assert_eq!(&words, b"thanks");
}

pub fn bytes_that_come_with_the_connect_are_read<R: Runner>() {
    let scene = Scene::new::<R>();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let greeter = std::thread::spawn(move || {
        for _ in 0..50 {
            let (mut stream, _) = server.accept().unwrap();
            stream.write_all(b"220 ready").unwrap();
        }
    });
    for attempt in 0..50 {
        scene.connect(attempt, address.into(), ConnectOptions::default());
        let (connection, _) = connected(&scene, attempt);
        scene.expect_bytes(connection, b"220 ready");
        scene.expect_ended(connection);
    }
    greeter.join().unwrap();
}

pub fn an_address_without_a_listener_is_refused<R: Runner>() {
    let scene = Scene::new::<R>();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    scene.connect(1, free.into(), ConnectOptions::default());
    assert_eq!(not_connected(&scene, 1), Failure::Refused);
    let path = socket_path("absent");
    scene.connect(2, Address::Unix(Arc::from(path)), ConnectOptions::default());
    assert_eq!(not_connected(&scene, 2), Failure::Refused);
    let nameless = Address::Unix(Arc::from(Path::new("")));
    scene.connect(3, nameless, ConnectOptions::default());
    assert_eq!(not_connected(&scene, 3), Failure::AddressNotAvailable);
}

/// A listener whose queue is full: further connects hang.
fn full() -> (TcpListener, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut streams = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        streams.push(stream);
    }
    (listener, streams)
}

pub fn a_cancelled_connect_is_never_answered<R: Runner>() {
    let scene = Scene::new::<R>();
    let (listener, queued) = full();
    let address = listener.local_addr().unwrap();
    scene.connect(1, address.into(), ConnectOptions::default());
    scene.quiet();
    scene.cancel(1);
    drop(queued);
    // With room again a connect that is still there would be repeated within a second and succeed.
    std::thread::spawn(move || while listener.accept().is_ok() {});
    assert!(scene.strings.told_within(Duration::from_millis(1300)).is_none());
    scene.cancel(1);
    scene.cancel(77);
    scene.quiet();
}

pub fn a_connect_that_ends_at_once_can_still_be_cancelled<R: Runner>() {
    let scene = Scene::new::<R>();
    let path = socket_path("at-once");
    let listener = UnixListener::bind(&path).unwrap();
    for attempt in (0..50).map(AttemptId) {
        let address = Address::Unix(Arc::from(&*path));
        let connect = Output::Connect { attempt, address, options: Arc::default() };
        scene.strings.order_all(vec![connect, Output::CancelConnect { attempt }]);
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    let absent = Address::Unix(Arc::from(socket_path("absent-at-once")));
    let attempt = AttemptId(50);
    let connect = Output::Connect { attempt, address: absent, options: Arc::default() };
    scene.strings.order_all(vec![connect, Output::CancelConnect { attempt }]);
    scene.quiet();
}

pub fn a_connect_comes_from_where_it_is_told_to<R: Runner>() {
    let scene = Scene::new::<R>();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Ip(server.local_addr().unwrap());
    let from =
        |ip: [u8; 4]| ConnectOptions { source: Some((ip, 0).into()), ..ConnectOptions::default() };
    scene.connect(1, address.clone(), from([127, 0, 0, 2]));
    let (_stream, peer) = server.accept().unwrap();
    assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 2]));
    assert_eq!(connected(&scene, 1).1, Address::Ip(peer));
    scene.connect(2, address, from([192, 0, 2, 1]));
    assert_eq!(not_connected(&scene, 2), Failure::AddressNotAvailable);
}

pub fn names_are_resolved_by_the_system<R: Runner>() {
    let scene = Scene::new::<R>();
    let ask = |query, name: &str| {
        scene.order(Output::Resolve { query: QueryId(query), name: name.to_owned() });
        match scene.told() {
            Input::Resolved { query: of, outcome, .. } => {
                assert_eq!(of, QueryId(query));
                outcome
            }
            other => panic!("{other:?}"),
        }
    };
    let local = ask(1, "localhost").unwrap();
    assert!(!local.is_empty() && local.iter().all(IpAddr::is_loopback), "{local:?}");
    assert_eq!(ask(2, "192.0.2.7"), Ok(vec![IpAddr::from([192, 0, 2, 7])]));
    assert!(ask(3, "no such name").is_err());
}

pub fn a_name_can_be_asked_for_from_outside<R: Runner>() {
    let scene = Scene::new::<R>();
    for (query, name) in [(7, "192.0.2.7"), (8, "no such name")] {
        scene.running.handle.resolve(QueryId(query), name.to_owned()).unwrap();
        match scene.told() {
            Input::Resolved { query: of, outcome, .. } => {
                assert_eq!((of, outcome.is_ok()), (QueryId(query), query == 7));
            }
            other => panic!("{other:?}"),
        }
    }
}

pub fn what_the_kernel_knows_of_a_path_is_told<R: Runner>() {
    let scene = Scene::new::<R>();
    let (_peer, connection) = scene.pair();
    scene.order(Output::Inspect { connection });
    match scene.told() {
        Input::Inspected { connection: of, facts } => {
            assert_eq!(of, connection);
            if cfg!(linux) {
                let facts = facts.expect("Linux says it");
                assert_eq!(facts.unacknowledged, 0);
                assert!(facts.round_trip < Duration::from_secs(1), "{facts:?}");
            }
        }
        other => panic!("{other:?}"),
    }
    // Of a dead connection nothing is told.
    scene.order(Output::Inspect { connection: ConnectionId::new(4_000_000, 3) });
    scene.quiet();
}

pub fn a_dead_connection_is_told_as_such<R: Runner>() {
    let scene = Scene::new::<R>();
    scene.connect(1, loopback(1), ConnectOptions::default());
    assert_eq!(not_connected(&scene, 1), Failure::Refused);
    // Ids are dead for ever: orders for them lead to nothing.
    let never = ConnectionId::new(4_000_000, 3);
    scene.send(never, "hello?");
    scene.close(never, towpath_proto::Close::Abort);
    scene.quiet();
}
