//! Peers that take more than is theirs: that never read, that stay when they were told to go, that reset in the middle.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::common::{PATIENCE, Proxy, bootstrap, origin, until};
use crate::load::ask;
use crate::{many_descriptors, memory, nothing_is_left};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const LAST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// What Envoy 1.40 holds for each (HTTP, both ways, `per_connection_buffer_limit_bytes: 16384`).
const ENVOYS_BYTES: u64 = 81 * 1024;
const STALLED: u64 = 150;

#[test]
fn clients_that_do_not_read_hold_what_the_buffer_limit_lets_them() {
    many_descriptors();
    let proxy = Proxy::start(&with_limits(&bootstrap(endless())), &["--concurrency", "1"]);
    let listener = proxy.listener("ingress");
    let before = memory(&proxy);
    let clients: Vec<TcpStream> = (0..STALLED)
        .map(|_| {
            let mut client = TcpStream::connect(&listener).unwrap();
            SockRef::from(&client).set_recv_buffer_size(4096).unwrap();
            client.write_all(GET).unwrap();
            client
        })
        .collect();
    let paused = "cluster.origin.upstream_flow_control_paused_reading_total";
    until("all are stalled", || proxy.stat(paused) >= Some(STALLED));
    holds_less_than_envoy(&proxy, before);
    let buffered = "http.ingress.downstream_cx_tx_bytes_buffered";
    // What the kernel still takes is over soon.
    until(buffered, || proxy.stat(buffered) > Some(STALLED * 8 * 1024));
    drop(clients);
    nothing_is_left(&proxy);
    until(buffered, || proxy.stat(buffered) == Some(0));
}

#[test]
fn origins_that_do_not_read_make_us_hold_what_the_buffer_limit_lets_them() {
    many_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = with_limits(&bootstrap(listener.local_addr().unwrap()));
    let proxy = Proxy::start(&config, &["--concurrency", "1"]);
    let address = proxy.listener("ingress");
    let before = memory(&proxy);
    let mut held = Vec::new();
    for _ in 0..STALLED {
        let mut client = TcpStream::connect(&address).unwrap();
        client
            .write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n")
            .unwrap();
        let (origin, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        held.push((client, origin));
    }
    let paused = "http.ingress.downstream_flow_control_paused_reading_total";
    until("all are stalled", || {
        for (client, _) in &mut held {
            while client.write(&[0; 1 << 16]).is_ok() {}
        }
        proxy.stat(paused) >= Some(STALLED)
    });
    holds_less_than_envoy(&proxy, before);
    let buffered = "cluster.origin.upstream_cx_tx_bytes_buffered";
    // What the kernel still takes is over soon.
    until(buffered, || proxy.stat(buffered) > Some(STALLED * 8 * 1024));
    drop(held);
    nothing_is_left(&proxy);
    until(buffered, || proxy.stat(buffered) == Some(0));
}

fn holds_less_than_envoy(proxy: &Proxy, before: u64) {
    let each = memory(proxy).saturating_sub(before) / STALLED;
    eprintln!("a stalled peer holds {each} bytes");
    assert!(each < ENVOYS_BYTES, "a stalled peer holds {each} bytes");
}

/// 16 KiB for each connection of either side.
fn with_limits(bootstrap: &str) -> String {
    let limit = "per_connection_buffer_limit_bytes: 16384";
    bootstrap
        .replace("    traffic_direction", &format!("    {limit}\n    traffic_direction"))
        .replace("    connect_timeout", &format!("    {limit}\n    connect_timeout"))
}

/// An origin whose responses do not end.
fn endless() -> SocketAddr {
    serve(|mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n");
        while stream.write_all(&[0; 1 << 16]).is_ok() {}
    })
}

#[test]
fn a_client_that_says_close_holds_nothing_once_it_is_answered() {
    let proxy = Proxy::start(&bootstrap(origin(Duration::ZERO)), &["--concurrency", "1"]);
    let listener = proxy.listener("ingress");
    let clients: Vec<TcpStream> =
        (0..20).map(|_| ask(TcpStream::connect(&listener).unwrap(), LAST).unwrap().1).collect();
    let active = "http.ingress.downstream_cx_active";
    until("none of them counts", || proxy.stat(active) == Some(0));
    // Its socket is gone too: nothing takes what it still says.
    for mut client in clients {
        until("its socket is gone", || client.write_all(b"x").is_err());
    }
}

#[test]
fn clients_that_were_told_to_go_count_until_they_are_gone() {
    const LIMIT: u64 = 50;
    let limit = "layered_runtime: { layers: [ { name: static, static_layer: \
        { envoy.resource_limits.listener.ingress.connection_limit: 50 } } ] }\n";
    let config = [&bootstrap(origin(Duration::ZERO)), limit].concat();
    let config = config.replace(
        "stat_prefix: ingress",
        "stat_prefix: ingress\n          delayed_close_timeout: 3s\n          \
         common_http_protocol_options: { max_requests_per_connection: 1 }",
    );
    let proxy = Proxy::start(&config, &["--concurrency", "1"]);
    let listener = proxy.listener("ingress");
    let only = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut clients: Vec<TcpStream> =
        (0..LIMIT).map(|_| ask(TcpStream::connect(&listener).unwrap(), only).unwrap().1).collect();
    assert_eq!(proxy.stat("http.ingress.downstream_cx_active"), Some(LIMIT), "all of them count");
    let mut late = TcpStream::connect(&listener).unwrap();
    late.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(late.read(&mut [0]).is_ok_and(|length| length == 0), "no room for another");
    // They go on talking, and are cut all the same.
    until("all are gone", || {
        thread::sleep(Duration::from_millis(50));
        clients.iter_mut().for_each(|client| drop(client.write(b"x")));
        proxy.stat("http.ingress.downstream_cx_active") == Some(0)
    });
    assert_eq!(proxy.stat("http.ingress.downstream_cx_delayed_close_timeout"), Some(LIMIT));
    let (answer, _) = ask(TcpStream::connect(&listener).unwrap(), GET).unwrap();
    assert_eq!(answer.status, 200, "there is room again");
    for client in &mut clients {
        let end = Instant::now() + PATIENCE;
        while client.write(b"x").is_ok() {
            assert!(Instant::now() < end, "the connection is still there");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_head_without_an_end_is_not_read_for_ever() {
    let proxy = Proxy::start(&bootstrap(origin(Duration::ZERO)), &[]);
    let mut client = TcpStream::connect(proxy.listener("ingress")).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx: ").unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    let (began, mut sent) = (Instant::now(), 0_u64);
    while client.write_all(&[b'y'; 4096]).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it is still read");
        sent += 4096;
    }
    // What the kernels hold, and little more.
    assert!(sent < 32 << 20, "{sent} bytes were taken");
    assert_eq!(proxy.stat("http.ingress.downstream_rq_4xx"), Some(1));
    nothing_is_left(&proxy);
}

#[test]
fn what_came_before_the_origins_end_is_passed_on() {
    for (reset, length) in [(true, "content-length: 1000\r\n"), (false, "content-length: 1000\r\n")]
    {
        let origin = serve(move |mut stream| {
            read_request(&mut stream);
            let head = format!("HTTP/1.1 200 OK\r\n{length}\r\nthe first part");
            stream.write_all(head.as_bytes()).unwrap();
            if reset {
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
        });
        let proxy = Proxy::start(&bootstrap(origin), &[]);
        for _ in 0..20 {
            let mut client = TcpStream::connect(proxy.listener("ingress")).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(GET).unwrap();
            let mut all = Vec::new();
            let end = client.read_to_end(&mut all);
            assert!(all.ends_with(b"the first part"), "reset {reset}: {}", all.escape_ascii());
            // The client sees the end that the origin made.
            assert_eq!(end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset), reset);
        }
        nothing_is_left(&proxy);
    }
}

#[test]
fn last_words_of_a_tunnel_come_before_its_reset() {
    let origin = serve(|mut stream| {
        read_request(&mut stream);
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(switch).unwrap();
        assert_eq!(stream.read(&mut [0; 5]).unwrap(), 5);
        stream.write_all(b"1009 too big").unwrap();
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let config = bootstrap(origin).replace(
        "stat_prefix: ingress",
        "stat_prefix: ingress\n          upgrade_configs: [ { upgrade_type: websocket } ]",
    );
    let proxy = Proxy::start(&config, &[]);
    for _ in 0..20 {
        let mut client = TcpStream::connect(proxy.listener("ingress")).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
            .write_all(
                b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            )
            .unwrap();
        let mut bytes = [0; 4096];
        let length = client.read(&mut bytes).unwrap();
        assert!(bytes[..length].starts_with(b"HTTP/1.1 101 "));
        client.write_all(b"large").unwrap();
        let mut all = Vec::new();
        let error = client.read_to_end(&mut all).unwrap_err();
        assert_eq!(all, b"1009 too big");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    nothing_is_left(&proxy);
}

/// An origin that does this with each connection.
fn serve(habit: impl Fn(TcpStream) + Copy + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || habit(stream));
        }
    });
    address
}

fn read_request(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !stream.read(&mut byte).is_ok_and(|length| length == 1) {
            return;
        }
        bytes.push(byte[0]);
    }
}
