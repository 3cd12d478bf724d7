//! Keys of `jwt_authn` that are fetched before requests need them (`async_fetch`), alone and beside Envoy.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Proxy, Scratch, bootstrap, origin, program, until};

/// Of the issuer `far`, signed with the key in [`KEYS`].
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.eyJpc3MiOiJmYXIifQ.\
                     gkihH4JGXgwlnO749XiyKGYmLqZybBxFsJdJ_h-m4-o";
const KEYS: &str =
    r#"{"keys":[{"kty":"oct","kid":"k1","k":"c2VjcmV0LW9mLTMyLWJ5dGVzLWZvci10ZXN0aW5nLTE"}]}"#;

#[test]
fn keys_are_there_before_a_request_needs_them() {
    for outcome in
        [story(program(), &["--concurrency", "2"]), story(program(), &["--concurrency", "1"])]
    {
        assert_eq!(outcome, wanted());
    }
}

#[test]
#[ignore = "needs a real Envoy: cargo xtask peers, then TOWPATH_PEERS=target/peers/bin"]
fn envoy_does_the_same() {
    let peers = std::env::var_os("TOWPATH_PEERS").expect("TOWPATH_PEERS names the peers' folder");
    let mut envoy = Command::new(Path::new(&peers).join("envoy"));
    envoy.stdin(Stdio::null());
    assert_eq!(story(envoy, &["--concurrency", "2", "--use-dynamic-base-id"]), wanted());
}

/// What is seen of one configuration, in the order of time.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// While the server of keys holds back its first answer: readiness, and how often it was asked.
    while_waiting: (String, usize),
    /// Once it has given it, and two requests were answered: their statuses, and how often it was asked.
    once_there: ([u16; 2], usize),
    /// The server has ended, and keys would be too old if they were of a request: the status of another one.
    once_gone: u16,
    /// Good answers.
    good: u64,
}

fn wanted() -> Seen {
    Seen {
        while_waiting: ("INITIALIZING\n".to_owned(), 1),
        once_there: ([200, 401], 1),
        once_gone: 200,
        good: 1,
    }
}

/// A configuration whose keys are to be fetched again every three seconds, whatever requests do.
fn story(program: Command, flags: &[&str]) -> Seen {
    let keys = KeyServer::start(2 * SECOND);
    let config = with_keys(&bootstrap(origin(Duration::ZERO)), keys.address);
    let proxy = Proxy::run(program, Scratch::new(), &config, flags);
    until("asked for keys", || keys.asked() > 0);
    std::thread::sleep(SECOND / 2);
    let while_waiting = (proxy.get("/ready").1, keys.asked());
    until("ready", || proxy.get("/ready").1 == "LIVE\n");
    let listener = proxy.listener("ingress");
    let once_there = ([ask(&listener, TOKEN), ask(&listener, "x.y.z")], keys.asked());
    keys.stop();
    let failed = || proxy.stat("http.ingress.jwt_authn.jwks_fetch_failed").unwrap();
    // A fetch every half a second: so much later, keys that a request had fetched would be too old.
    until("not fetched", || failed() > 3);
    let once_gone = ask(&listener, TOKEN);
    let good = proxy.stat("http.ingress.jwt_authn.jwks_fetch_success").unwrap();
    Seen { while_waiting, once_there, once_gone, good }
}

const SECOND: Duration = Duration::from_secs(1);

/// The first listener wants tokens, whose keys are a server's.
fn with_keys(bootstrap: &str, keys: SocketAddr) -> String {
    let filter = r#"          http_filters:
          - name: jwt
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
              rules: [ { match: { prefix: / }, requires: { provider_name: far } } ]
              providers:
                far:
                  issuer: far
                  remote_jwks:
                    http_uri: { uri: "http://keys.test/", cluster: keys, timeout: 5s }
                    cache_duration: 3s
                    async_fetch: { failed_refetch_duration: 0.5s }
"#;
    let cluster = format!(
        r#"  clusters:
  - name: keys
    load_assignment:
      cluster_name: keys
      endpoints:
      - lb_endpoints: [ {{ endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }} }} ]
"#,
        keys.ip(),
        keys.port()
    );
    let config = bootstrap.replacen("          http_filters:\n", filter, 1);
    config.replacen("  clusters:\n", &cluster, 1)
}

/// The status of a request with this token.
fn ask(address: &str, token: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(10 * SECOND)).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {token}\r\n\r\n")
        .unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// A server of keys; it gives its first answer after a while.
struct KeyServer {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl KeyServer {
    fn start(delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self { address, asked: Arc::default(), ended: Arc::default() };
        let (asked, ended) = (Arc::clone(&server.asked), Arc::clone(&server.ended));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while !line.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut line).unwrap() == 0 {
                        break;
                    }
                }
                let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
                if ended.load(Ordering::Relaxed) > 0 {
                    continue;
                }
                if is_first {
                    std::thread::sleep(delay);
                }
                let length = KEYS.len();
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
                write!(stream, "{head} {length}\r\n\r\n{KEYS}").unwrap();
            }
        });
        server
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// From here on it closes what connects.
    fn stop(&self) {
        self.ended.store(1, Ordering::Relaxed);
    }
}
