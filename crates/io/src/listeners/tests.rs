use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

use super::*;

const LISTENER: ListenerId = ListenerId(1);

fn shard(index: usize, of: usize) -> Shard {
    Shard { index, of }
}

fn any_port() -> Address {
    Address::Ip(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn unix(name: &str) -> (Address, PathBuf) {
    let path = std::env::temp_dir().join(format!("towpath-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&path);
    (Address::Unix(Arc::from(path.as_path())), path)
}

#[test]
fn port_zero_is_one_port_for_all_shards() {
    let listeners = Listeners::new();
    let options = ListenOptions::default();
    let ports: HashSet<Address> = (0..4)
        .map(|index| listeners.acquire(shard(index, 4), LISTENER, &any_port(), &options).unwrap().1)
        .collect();
    assert_eq!(ports.len(), 1);
    let other = listeners.acquire(shard(0, 4), ListenerId(2), &any_port(), &options).unwrap().1;
    assert!(!ports.contains(&other), "another listener, another port");
}

#[test]
fn a_failure_is_told_once_to_each_and_then_tried_again() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Ip(taken.local_addr().unwrap());
    let listeners = Listeners::new();
    let options = ListenOptions::default();
    let ask = |index| listeners.acquire(shard(index, 2), LISTENER, &address, &options).map(|_| ());
    assert_eq!(ask(0), Err(Failure::AddressInUse));
    drop(taken);
    assert_eq!(ask(1), Err(Failure::AddressInUse), "the same answer for the other shard");
    assert_eq!(ask(0), Ok(()));
    assert_eq!(ask(1), Ok(()));
}

#[test]
fn a_released_shard_leaves_no_socket_behind() {
    let listeners = Listeners::new();
    let options = ListenOptions::default();
    let (sockets, address) =
        listeners.acquire(shard(0, 2), LISTENER, &any_port(), &options).unwrap();
    let (kept, _) = listeners.acquire(shard(1, 2), LISTENER, &any_port(), &options).unwrap();
    drop(sockets);
    listeners.release(shard(0, 2), LISTENER, &any_port());
    for _ in 0..32 {
        let _client = TcpStream::connect(address.ip().unwrap()).unwrap();
        kept[0].accept().unwrap();
    }
    let (again, same) = listeners.acquire(shard(0, 2), LISTENER, &any_port(), &options).unwrap();
    assert_eq!((again.len(), same), (1, address));
}

#[test]
fn a_stale_file_is_replaced_and_a_live_one_is_not() {
    let (address, path) = unix("stale");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listeners = Listeners::new();
    let options = ListenOptions { mode: 0o600, ..ListenOptions::default() };
    let held = listeners.acquire(shard(0, 1), LISTENER, &address, &options).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let rival = Listeners::new().acquire(shard(0, 1), LISTENER, &address, &options);
    assert_eq!(rival.map(|_| ()), Err(Failure::AddressInUse));
    drop(held);
    listeners.release(shard(0, 1), LISTENER, &address);
    assert!(!path.exists(), "the last to let go removes the file");
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let (address, path) = unix("plain");
    fs::write(&path, "precious").unwrap();
    let options = ListenOptions::default();
    let outcome = Listeners::new().acquire(shard(0, 1), LISTENER, &address, &options);
    assert_eq!(outcome.map(|_| ()), Err(Failure::AddressInUse));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    fs::remove_file(path).unwrap();
}

#[test]
fn the_file_of_another_is_not_removed() {
    let (address, path) = unix("theirs");
    let listeners = Listeners::new();
    let options = ListenOptions::default();
    drop(listeners.acquire(shard(0, 1), LISTENER, &address, &options).unwrap());
    // A successor took the path over while we were still there.
    fs::remove_file(&path).unwrap();
    let successor = UnixListener::bind(&path).unwrap();
    listeners.release(shard(0, 1), LISTENER, &address);
    assert!(path.exists());
    drop(successor);
    fs::remove_file(path).unwrap();
}

#[test]
fn unix_shards_share_one_socket() {
    let (address, path) = unix("shared");
    let listeners = Listeners::new();
    let options = ListenOptions::default();
    let (first, _) = listeners.acquire(shard(0, 2), LISTENER, &address, &options).unwrap();
    let (second, _) = listeners.acquire(shard(1, 2), LISTENER, &address, &options).unwrap();
    drop(first);
    listeners.release(shard(0, 2), LISTENER, &address);
    assert!(path.exists(), "the other still listens");
    let _client = UnixStream::connect(&path).unwrap();
    second[0].accept().unwrap();
    listeners.release(shard(1, 2), LISTENER, &address);
    assert!(!path.exists());
}

#[test]
fn a_prepared_address_is_taken_by_the_listener_that_asks_for_it() {
    let options = ListenOptions::default();
    let listeners = Listeners::new();
    let prepared = listeners.prepare(&any_port(), &options).unwrap();
    let port = socket::local_address(&prepared.first.socket).unwrap();
    assert!(TcpStream::connect(port.ip().unwrap()).is_err(), "nothing listens yet");
    listeners.offer(vec![prepared]);
    let (_one, bound) = listeners.acquire(shard(0, 2), LISTENER, &any_port(), &options).unwrap();
    let (_two, same) = listeners.acquire(shard(1, 2), LISTENER, &any_port(), &options).unwrap();
    assert_eq!((&bound, &same), (&port, &port));
    let (_other, another) =
        listeners.acquire(shard(0, 2), ListenerId(2), &any_port(), &options).unwrap();
    assert_ne!(another, port, "it is taken once");
}

#[test]
fn an_address_that_cannot_be_bound_is_known_before() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Ip(taken.local_addr().unwrap());
    let outcome = Listeners::new().prepare(&address, &ListenOptions::default());
    assert_eq!(outcome.map(|_| ()), Err(Failure::AddressInUse));
}

#[test]
fn what_is_offered_and_not_taken_is_given_up() {
    let (address, path) = unix("offered");
    let listeners = Listeners::new();
    let options = ListenOptions::default();
    drop(listeners.prepare(&address, &options).unwrap());
    assert!(!path.exists(), "never offered");
    listeners.offer(vec![listeners.prepare(&address, &options).unwrap()]);
    assert!(path.exists());
    listeners.offer(Vec::new());
    assert!(!path.exists());
}

#[test]
fn a_listener_gives_its_only_socket_to_another() {
    let (path_address, path) = unix("given");
    let alone = ListenOptions { reuse_port: false, ..ListenOptions::default() };
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = Address::Ip(tcp.local_addr().unwrap());
    drop(tcp);
    for address in [path_address, port] {
        let listeners = Listeners::new();
        let old = listeners.acquire(shard(0, 1), LISTENER, &address, &alone).unwrap();
        let other = ListenOptions { freebind: true, ..alone.clone() };
        let refused = listeners.prepare(&address, &other);
        assert_eq!(refused.map(|_| ()), Err(Failure::AddressInUse), "another socket is needed");
        let longer = ListenOptions { backlog: 7, ..alone.clone() };
        listeners.offer(vec![listeners.prepare(&address, &longer).unwrap()]);
        drop(old);
        listeners.release(shard(0, 1), LISTENER, &address);
        let new = listeners.acquire(shard(0, 1), ListenerId(2), &address, &longer).unwrap();
        match &address {
            Address::Ip(ip) => drop(TcpStream::connect(ip).unwrap()),
            Address::Unix(path) => drop(UnixStream::connect(path).unwrap()),
            Address::Internal(_) => panic!("it has no socket"),
        }
        new.0[0].accept().unwrap();
        listeners.release(shard(0, 1), ListenerId(2), &address);
    }
    assert!(!path.exists(), "the last to let go removes the file");
}

#[test]
fn socket_options_are_set_in_their_states() {
    use towpath_proto::{SocketOption, SocketState};
    let size = |state, bytes: i32| SocketOption {
        level: libc::SOL_SOCKET,
        name: libc::SO_RCVBUF,
        value: bytes.to_ne_bytes().to_vec(),
        state,
        only: None,
    };
    for state in [SocketState::PreBind, SocketState::Bound, SocketState::Listening] {
        let socket_options = vec![size(state, 40_000)];
        let options = ListenOptions { socket_options, ..ListenOptions::default() };
        let (sockets, _) =
            Listeners::new().acquire(shard(0, 1), LISTENER, &any_port(), &options).unwrap();
        assert_eq!(sockets[0].recv_buffer_size().unwrap(), 80_000, "{state:?}");
    }
}

#[test]
fn an_option_for_another_version_of_ip_is_left_out() {
    use towpath_proto::{IpVersion, SocketOption, SocketState};
    for state in [SocketState::PreBind, SocketState::Bound, SocketState::Listening] {
        let size = |only, bytes: i32| SocketOption {
            level: libc::SOL_SOCKET,
            name: libc::SO_RCVBUF,
            value: bytes.to_ne_bytes().to_vec(),
            state,
            only: Some(only),
        };
        let socket_options = vec![size(IpVersion::V4, 40_000), size(IpVersion::V6, 60_000)];
        let options = ListenOptions { socket_options, ..ListenOptions::default() };
        let (sockets, _) =
            Listeners::new().acquire(shard(0, 1), LISTENER, &any_port(), &options).unwrap();
        assert_eq!(sockets[0].recv_buffer_size().unwrap(), 80_000, "{state:?}");
    }
}

#[test]
fn an_option_that_the_kernel_refuses_is_named() {
    use towpath_proto::{SocketOption, SocketState};
    let (level, name) = (libc::SOL_SOCKET, 9999);
    let refused = Failure::SocketOption { level, name, code: libc::ENOPROTOOPT };
    for state in [SocketState::PreBind, SocketState::Bound, SocketState::Listening] {
        let option =
            SocketOption { level, name, value: 1_i32.to_ne_bytes().to_vec(), state, only: None };
        let options = ListenOptions { socket_options: vec![option], ..ListenOptions::default() };
        let outcome = Listeners::new().acquire(shard(0, 1), LISTENER, &any_port(), &options);
        assert_eq!(outcome.map(|_| ()), Err(refused), "{state:?}");
    }
}
