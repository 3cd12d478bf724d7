use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

fn any_port() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

fn connect(running: &Running) -> TcpStream {
    let Address::Tcp(address) = running.address() else { panic!("not TCP") };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

#[test]
fn pipelined_requests_with_bodies_are_answered_in_order() {
    let running = spawn(&Origin::http(any_port(), 5)).unwrap();
    let mut stream = connect(&running);
    stream
        .write_all(
            b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcHEAD / HTTP/1.1\r\nConnection: \
                close\r\n\r\n",
        )
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde";
    assert_eq!(
        text,
        format!(
            "{answer}{answer}HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
        )
    );
    assert_eq!(running.served(), 3);
}

#[test]
fn the_rest_of_an_answer_can_be_had() {
    let running = spawn(&Origin { has_ranges: true, ..Origin::http(any_port(), 5) }).unwrap();
    let ask = |fields: &str| {
        let mut stream = connect(&running);
        let request = format!("GET / HTTP/1.1\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let (tag, close) =
        ("Accept-Ranges: bytes\r\nETag: \"filler\"\r\n", "Connection: close\r\n\r\n");
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{tag}{close}abcde");
    let rest = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\nContent-Range: bytes 3-4/5\r\n{tag}{close}de"
    );
    assert_eq!(ask(""), whole);
    assert_eq!(ask("Range: bytes=3-\r\nIf-Range: \"filler\"\r\n"), rest);
    assert_eq!(ask("Range: bytes=3-\r\n"), rest);
    for fields in [
        "Range: bytes=3-\r\nIf-Range: \"other\"\r\n",
        "Range: bytes=5-\r\n",
        "Range: bytes=1-2\r\n",
    ] {
        assert_eq!(ask(fields), whole, "{fields}");
    }
}

#[test]
fn a_delay_holds_answers_back() {
    let mut origin = Origin::http(any_port(), 1);
    origin.delay = Duration::from_millis(60);
    let running = spawn(&origin).unwrap();
    let started = Instant::now();
    let mut streams: Vec<TcpStream> = (0..5).map(|_| connect(&running)).collect();
    for stream in &mut streams {
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    }
    for mut stream in streams {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("\r\n\r\na"), "{text}");
    }
    let elapsed = started.elapsed();
    assert!(
        elapsed >= Duration::from_millis(60) && elapsed < Duration::from_millis(250),
        "{elapsed:?}"
    );
}

#[test]
fn nonsense_is_answered_with_400_and_a_close() {
    let running = spawn(&Origin::http(any_port(), 1)).unwrap();
    let mut stream = connect(&running);
    stream.write_all(b"nonsense\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
}

#[test]
fn echo_returns_more_than_any_buffer_holds() {
    let running = spawn(&Origin::tcp(any_port())).unwrap();
    let mut stream = connect(&running);
    let sent = filler(20 << 20);
    let mut reader = stream.try_clone().unwrap();
    let expected = sent.clone();
    let thread = std::thread::spawn(move || {
        let mut back = vec![0; expected.len()];
        reader.read_exact(&mut back).unwrap();
        assert!(back == expected);
    });
    stream.write_all(&sent).unwrap();
    thread.join().unwrap();
}

#[test]
fn unix_sockets_are_served_and_a_stale_one_is_replaced() {
    let path = std::env::temp_dir().join(format!("towpath-origin-{}", std::process::id()));
    let address = Address::Unix(path.clone());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let running = spawn(&Origin::http(address, 2)).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("ab"), "{text}");
    drop(running);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_chain_of_services_answers_and_reports_a_broken_link() {
    let store = spawn(&Origin::http(any_port(), 3)).unwrap();
    let mut chain = vec![store];
    for _ in 0..3 {
        let next = vec![chain.last().unwrap().address().clone().into()];
        chain.push(spawn(&Origin { next, ..Origin::http(any_port(), 2) }).unwrap());
    }
    let front = chain.pop().unwrap();
    let mut stream = connect(&front);
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    let mut text = vec![0; answer.len() * 3];
    stream
        .write_all(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        .unwrap();
    stream.read_exact(&mut text).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), answer.repeat(3));
    assert!(chain.iter().all(|service| service.served() == 3));
    drop(chain);
    stream.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 502 "), "{text}");
}
