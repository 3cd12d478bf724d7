//! What guards a cluster guards one of Bolt: TLS, outlier detection, circuit breakers; and what is logged of its calls.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use towpath_proto::Out;
use towpath_proto::bolt::{Decoder, Frame, Kind, Message, Options, Status, Version, write_header};

use crate::common::{PATIENCE, Proxy, Scratch, until};
use crate::config::{routed, server};

#[test]
fn calls_go_upstream_under_tls_and_only_to_whom_the_cluster_trusts() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["bolt.test".to_owned()]).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(
            vec![cert.der().clone()],
            PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let origin = Origin::start(move |stream, served| {
        let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
        serve(StreamOwned::new(tls, stream), served, echo);
    });
    let scratch = Scratch::new();
    let roots = scratch.write("roots.pem", &cert.pem());
    let cluster = |name: &str, trusted: &str| {
        let tls = format!(
            r#"
    transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: bolt.test
        common_tls_context:
          validation_context:
            trusted_ca: {{ filename: {} }}
            match_typed_subject_alt_names: [ {{ san_type: DNS, matcher: {{ exact: {trusted} }} }} ]"#,
            roots.display()
        );
        server(name, origin.address, "heartbeat: { interval: 1s }", &tls)
    };
    let routes = "
        { match: { service: { exact: strict } }, route: { cluster: strict } },
        { route: { cluster: server } }";
    let clusters = [cluster("server", "bolt.test"), cluster("strict", "other.test")];
    let proxy = Proxy::start(&routed(routes, "", &clusters), &["--concurrency", "1"]);
    let mut client = Client::of(&proxy);
    // Some of them at once, some longer than a record.
    let contents: Vec<Vec<u8>> = (1..=40).map(|at| vec![at; usize::from(at) * 1000]).collect();
    for content in &contents {
        client.send(&[("service", "any")], content, Kind::Request);
    }
    for (content, number) in contents.iter().zip(1..) {
        let frame = client.answer(number);
        assert_eq!(frame.status(), Some(Status::SUCCESS));
        assert_eq!(frame.content()[..], content[..]);
    }
    assert_eq!(proxy.stat("cluster.server.ssl.handshake"), Some(1));
    let frame = client.ask(&[("service", "strict")], b"secret");
    assert_eq!(frame.status(), Some(Status::COMMUNICATION_ERROR));
    assert_eq!(proxy.stat("cluster.strict.ssl.fail_verify_san"), Some(1));
    assert_eq!(origin.served(), 40);
}

#[test]
fn a_host_that_is_busy_again_and_again_is_left_alone() {
    let good = Origin::start(|stream, served| serve(stream, served, echo));
    let busy = Origin::start(|stream, served| {
        serve(stream, served, |frame| {
            Some(Message::response(frame.version(), frame.id(), Status::SERVER_BUSY))
        });
    });
    let outliers = "
    outlier_detection:
      consecutive_5xx: 3
      enforcing_success_rate: 0
      interval: 0.05s
      base_ejection_time: 600s
      max_ejection_percent: 100";
    let cluster = server("server", good.address, "", outliers);
    let both = format!("lb_endpoints: [ {}, ", endpoint(busy.address));
    let cluster = cluster.replace("lb_endpoints: [ ", &both);
    let config = routed(ROUTE, "", &[cluster]);
    let proxy = Proxy::start(&config, &["--concurrency", "1"]);
    let mut client = Client::of(&proxy);
    until("the busy one is ejected", || {
        client.ask(&[], b"call");
        proxy.stat("cluster.server.outlier_detection.ejections_active") == Some(1)
    });
    assert_eq!(
        proxy.stat("cluster.server.outlier_detection.ejections_enforced_consecutive_5xx"),
        Some(1)
    );
    // The worker is told a moment after that.
    until("no call goes there", || {
        (0..20).all(|_| client.ask(&[], b"call").status() == Some(Status::SUCCESS))
    });
    let before = (good.served(), busy.served());
    for _ in 0..50 {
        assert_eq!(client.ask(&[], b"call").status(), Some(Status::SUCCESS));
    }
    assert_eq!((good.served(), busy.served()), (before.0 + 50, before.1));
}

#[test]
fn a_cluster_takes_as_many_calls_as_its_breakers_let_in() {
    let silent = Origin::start(|stream, served| serve(stream, served, |_| None));
    let breakers = "
    circuit_breakers: { thresholds: [ { max_requests: 3 } ] }";
    let cluster = server("server", silent.address, "", breakers);
    let route = "{ route: { cluster: server, timeout: 2s } }";
    let proxy = Proxy::start(&routed(route, "", &[cluster]), &["--concurrency", "1"]);
    let mut client = Client::of(&proxy);
    for _ in 0..3 {
        client.send(&[], b"call", Kind::Request);
    }
    until("three are with the server", || silent.served() == 3);
    for _ in 0..2 {
        assert_eq!(client.ask(&[], b"call").status(), Some(Status::SERVER_BUSY));
    }
    for number in 1..=3 {
        assert_eq!(client.answer(number).status(), Some(Status::TIMEOUT));
    }
    assert_eq!(silent.served(), 3, "no other call came through");
    client.send(&[], b"call", Kind::Request);
    until("there is room again", || silent.served() == 4);
}

#[test]
fn a_line_has_what_the_frames_say_from_proxy_or_origin() {
    let origin = Origin::start(|stream, served| {
        serve(stream, served, |frame| match &frame.content()[..] {
            b"silence" => None,
            _ => echo(frame),
        });
    });
    let scratch = Scratch::new();
    let log = scratch.path("access.log");
    let line = "%REQ(:METHOD)% %REQ(:PATH)% %REQ(x-tenant)% %REQ(User-Agent)% %REQ(gone?x-tenant)% %RESP(x-of)% \
        %PROTOCOL% %RESPONSE_CODE% %RESPONSE_FLAGS% %ROUTE_NAME% %BYTES_RECEIVED% %BYTES_SENT%";
    let access_log = format!(
        r#"{{ name: file, filter: {{ header_filter: {{ header: {{ name: x-tenant, present_match: true }} }} }},
            typed_config: {{
            "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: {},
            log_format: {{ text_format_source: {{ inline_string: "{line}\n" }} }} }} }}"#,
        log.display()
    );
    let routes = "{ name: orders, match: { service: { exact: Orders } }, route: { cluster: server, timeout: 0.2s } }";
    let config = routed(routes, &access_log, &[server("server", origin.address, "", "")]);
    let proxy = Proxy::start(&config, &["--concurrency", "1"]);
    let mut client = Client::of(&proxy);
    let keys = |service| {
        [("service", service), ("method", "place"), ("x-tenant", "seven"), ("user-agent", "sofa")]
    };
    assert_eq!(client.ask(&keys("Orders"), b"four").status(), Some(Status::SUCCESS));
    assert_eq!(client.ask(&keys("Orders"), b"silence").status(), Some(Status::TIMEOUT));
    assert_eq!(client.ask(&keys("Nobody"), b"four").status(), Some(Status::NO_PROCESSOR));
    // It has not what the log's filter wants.
    assert_eq!(client.ask(&[("service", "Orders")], b"four").status(), Some(Status::SUCCESS));
    client.send(&keys("Orders"), b"four", Kind::Oneway);
    let wanted = [
        "POST /Orders/place seven sofa seven the-answer - 200 - orders 4 4",
        "POST /Orders/place seven sofa seven - - 504 UT orders 7 0",
        "POST /Nobody/place seven sofa seven - - 404 NR - 4 0",
        "POST /Orders/place seven sofa seven - - 200 - orders 4 0",
    ];
    until("all are logged", || scratch.read("access.log").lines().count() >= wanted.len());
    assert_eq!(scratch.read("access.log").lines().collect::<Vec<_>>(), wanted);
}

const ROUTE: &str = "{ route: { cluster: server, timeout: 30s } }";

fn endpoint(address: SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!(
        "{{ endpoint: {{ address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }} }} }}"
    )
}

/// A client that asks one thing after the other, or all at once.
struct Client {
    stream: TcpStream,
    decoder: Decoder,
    number: u32,
    early: Vec<Frame>,
}

impl Client {
    fn of(proxy: &Proxy) -> Self {
        let stream = TcpStream::connect(proxy.listener("ingress")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, decoder: Decoder::new(Options::default()), number: 0, early: Vec::new() }
    }

    fn ask(&mut self, keys: &[(&str, &str)], content: &[u8]) -> Frame {
        self.send(keys, content, Kind::Request);
        self.answer(self.number)
    }

    fn send(&mut self, keys: &[(&str, &str)], content: &[u8], kind: Kind) {
        self.number += 1;
        let message = Message {
            kind,
            headers: block(keys),
            content: content.to_vec().into(),
            checksum: true,
            ..Message::request(Version::V2 { checksums: true }, self.number)
        };
        self.stream.write_all(&written(&message)).unwrap();
    }

    fn answer(&mut self, number: u32) -> Frame {
        loop {
            if let Some(at) = self.early.iter().position(|frame| frame.id() == number) {
                return self.early.swap_remove(at);
            }
            let mut buffer = vec![0; 64 * 1024];
            let count = self.stream.read(&mut buffer).expect("an answer, in time");
            assert!(count > 0, "the connection ended");
            self.decoder.receive(buffer[..count].to_vec().into());
            while let Some(frame) = self.decoder.poll().unwrap() {
                self.early.push(frame);
            }
        }
    }
}

fn block(keys: &[(&str, &str)]) -> bytes::Bytes {
    let mut block = bytes::BytesMut::new();
    for (key, value) in keys {
        write_header(&mut block, key.as_bytes(), value.as_bytes());
    }
    block.freeze()
}

fn written(message: &Message) -> Vec<u8> {
    let mut out = Out::new();
    message.write(&mut out).unwrap();
    out.drain().collect::<Vec<_>>().concat()
}

/// A server, one thread for each connection.
struct Origin {
    address: SocketAddr,
    served: Arc<AtomicU64>,
}

impl Origin {
    fn start(serve: impl Fn(TcpStream, &AtomicU64) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, served) = (listener.local_addr().unwrap(), Arc::<AtomicU64>::default());
        let (serve, count) = (Arc::new(serve), Arc::clone(&served));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (serve, count) = (Arc::clone(&serve), Arc::clone(&count));
                std::thread::spawn(move || serve(stream, &count));
            }
        });
        Self { address, served }
    }

    /// How many calls came.
    fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

fn serve(
    mut stream: impl Read + Write,
    served: &AtomicU64,
    answer: impl Fn(&Frame) -> Option<Message>,
) {
    let (mut decoder, mut buffer) = (Decoder::new(Options::default()), vec![0; 64 * 1024]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        decoder.receive(buffer[..count].to_vec().into());
        while let Some(frame) = decoder.poll().unwrap() {
            let message = if frame.command() == towpath_proto::bolt::Command::Heartbeat {
                Some(Message::heartbeat_answer(frame.version(), frame.id()))
            } else {
                served.fetch_add(1, Ordering::Relaxed);
                answer(&frame)
            };
            let Some(message) = message.filter(|_| frame.kind() == Kind::Request) else { continue };
            if stream.write_all(&written(&message)).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    }
}

/// What came, with a header.
#[expect(clippy::unnecessary_wraps, reason = "others say nothing")]
fn echo(frame: &Frame) -> Option<Message> {
    Some(Message {
        headers: block(&[("x-of", "the-answer")]),
        content: frame.content(),
        checksum: frame.has_checksum(),
        ..Message::response(frame.version(), frame.id(), Status::SUCCESS)
    })
}
