//! Peers that take their time: heads and bodies that trickle, readers that do not read. Memory stays bounded, and
//! other clients are served.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Proxy, bootstrap, origin};
use crate::load::ask;
use crate::{many_descriptors, memory, nothing_is_left};

#[test]
fn heads_that_trickle_are_cut_off_and_hold_no_other_up() {
    many_descriptors();
    let config = bootstrap(origin(Duration::ZERO)).replace(
        "stat_prefix: ingress",
        "stat_prefix: ingress\n          request_headers_timeout: 1s",
    );
    let proxy = Proxy::start(&config, &[]);
    let listener = proxy.listener("ingress");
    let before = memory(&proxy);
    let mut slow: Vec<TcpStream> =
        (0..400).map(|_| TcpStream::connect(&listener).unwrap()).collect();
    let start = Instant::now();
    let head = b"GET / HTTP/1.1\r\nhost: a\r\nx-long: ";
    for byte in head {
        // The proxy ends them meanwhile.
        slow.iter_mut().for_each(|stream| drop(stream.write_all(&[*byte])));
        let asked = Instant::now();
        let stream = TcpStream::connect(&listener).unwrap();
        let (answer, _) = ask(stream, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        assert_eq!(answer.status, 200);
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    let grown = memory(&proxy).saturating_sub(before);
    assert!(grown < 400 * 8 * 1024, "400 slow heads cost {grown} bytes");
    for stream in &mut slow {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => assert!(answer.starts_with(b"HTTP/1.1 408 "), "{}", answer.escape_ascii()),
            // What was written after the end makes the kernel reset.
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    drop(slow);
    assert_eq!(proxy.stat("http.ingress.downstream_rq_header_timeout"), Some(400));
    nothing_is_left(&proxy);
}

#[test]
fn a_body_goes_up_no_faster_than_the_origin_reads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(&bootstrap(listener.local_addr().unwrap()), &[]);
    let before = memory(&proxy);
    let mut client = TcpStream::connect(proxy.listener("ingress")).unwrap();
    write!(client, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {LARGE}\r\n\r\n").unwrap();
    let mut sender = client.try_clone().unwrap();
    let sending = std::thread::spawn(move || write_all(&mut sender, LARGE));
    let (mut origin, _) = listener.accept().unwrap();
    let end = read_head(&mut origin);
    // The receiver does not read: the sender is held back and nothing piles up.
    std::thread::sleep(Duration::from_millis(500));
    assert!(!sending.is_finished(), "{LARGE} bytes are somewhere");
    bounded(&proxy, before);
    let left = LARGE - (end.len() as u64);
    let read = std::io::copy(&mut (&mut origin).take(left), &mut std::io::sink()).unwrap();
    assert_eq!(read, left);
    sending.join().unwrap();
    bounded(&proxy, before);
    origin.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
    let (answer, client) = ask(client, b"").unwrap();
    assert_eq!(answer.status, 200);
    drop((client, origin));
    assert!(proxy.stat("cluster.origin.upstream_flow_control_backed_up_total") > Some(0));
    nothing_is_left(&proxy);
}

#[test]
fn a_body_comes_down_no_faster_than_the_client_reads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(&bootstrap(listener.local_addr().unwrap()), &[]);
    let before = memory(&proxy);
    let mut client = TcpStream::connect(proxy.listener("ingress")).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let (mut origin, _) = listener.accept().unwrap();
    read_head(&mut origin);
    write!(origin, "HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n").unwrap();
    let sending = std::thread::spawn(move || {
        write_all(&mut origin, LARGE);
        origin
    });
    std::thread::sleep(Duration::from_millis(500));
    assert!(!sending.is_finished(), "{LARGE} bytes are somewhere");
    bounded(&proxy, before);
    let end = read_head(&mut client);
    let left = LARGE - (end.len() as u64);
    let read = std::io::copy(&mut (&mut client).take(left), &mut std::io::sink()).unwrap();
    assert_eq!(read, left);
    drop(sending.join().unwrap());
    bounded(&proxy, before);
    drop(client);
    nothing_is_left(&proxy);
}

#[test]
fn bodies_that_stop_are_given_up() {
    let config = bootstrap(silent()).replace(
        "stat_prefix: ingress",
        "stat_prefix: ingress\n          stream_idle_timeout: 0.3s",
    );
    let proxy = Proxy::start(&config, &[]);
    let listener = proxy.listener("ingress");
    let mut clients: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(&listener).unwrap()).collect();
    for client in &mut clients {
        client.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf").unwrap();
    }
    for client in clients {
        let (answer, _) = ask(client, b"").unwrap();
        assert_eq!(answer.status, 408);
    }
    assert_eq!(proxy.stat("http.ingress.downstream_rq_idle_timeout"), Some(50));
    assert_eq!(proxy.stat("http.ingress.downstream_rq_4xx"), Some(50));
    nothing_is_left(&proxy);
}

const LARGE: u64 = 64 << 20;

/// Writes zeros.
fn write_all(stream: &mut TcpStream, mut left: u64) {
    let zeros = vec![0; 1 << 16];
    while left > 0 {
        let length = left.min(zeros.len() as u64) as usize;
        stream.write_all(&zeros[..length]).unwrap();
        left -= length as u64;
    }
}

/// Reads a head; answers what came of the body along with it.
fn read_head(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "the head is not whole");
        bytes.extend_from_slice(&buffer[..length]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            return bytes.split_off(end + 4);
        }
    }
}

/// An origin that takes what comes and says nothing.
fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || std::io::copy(&mut stream.unwrap(), &mut std::io::sink()));
        }
    });
    address
}

/// Far less than what was sent: two buffers of a megabyte at most, and the driver's scratch.
fn bounded(proxy: &Proxy, before: u64) {
    let grown = memory(proxy).saturating_sub(before);
    assert!(grown < 6 << 20, "{grown} bytes are held");
}
