//! HTTP and Bolt translated into each other, by route, in both directions.

use super::scene::client::{Ask as HttpAsk, Ending as HttpEnding, Endings as HttpEndings};
use super::scene::origin::pattern;
use super::scene::{HTTP, Plan, add_counted_worker, drain_and_check};
use super::*;
use towpath_engine::snapshot::bolt::{Bridge, ToBolt, ToHttp};
use towpath_proto::head::{Head, HeadPool};
use towpath_proto::http1;
use towpath_proto::{Event, Next};

const SERVICE: &str = "com.example.Orders";
const MOST: usize = 5000;

#[test]
fn http_requests_become_calls_on_one_connection_and_each_gets_its_own_answer() {
    for_each_seed(25, |seed| {
        let mut towards = TowardsBolt::new(seed, Faults::none());
        towards.origin(true, echo);
        let endings = towards.clients(5, 20);
        towards.world.run_for(Duration::from_secs(600));
        assert_eq!(endings.borrow().len(), 100);
        for (id, ends) in endings.borrow().iter() {
            assert_eq!(ends[..], [HttpEnding::Answered { status: 200, from_origin: true }], "{id}");
        }
        assert_eq!(towards.number("cluster.app.upstream_cx_total"), 1);
        drain_and_check(&mut towards.world, towards.worker);
    });
}

#[test]
fn http_requests_and_their_calls_end_once_each_when_connections_are_cut() {
    for_each_seed(25, |seed| {
        let mut towards = TowardsBolt::new(seed, Faults::harsh());
        towards.origin(true, echo);
        let endings = towards.clients(4, 15);
        towards.world.run_for(Duration::from_secs(3000));
        assert_eq!(endings.borrow().len(), 60);
        assert!(endings.borrow().values().all(|ends| ends.len() == 1));
        drain_and_check(&mut towards.world, towards.worker);
    });
}

#[test]
fn a_request_becomes_service_method_block_and_content() {
    let (answer, calls) = ask_bolt(
        b"PUT /pl%61ce?urgent=1 HTTP/1.1\r\nHost: a\r\nX-Tenant: seven\r\nService: forged\r\nBolt-Class: forged\r\n\
         Connection: x-hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\0b\r\n2\r\n\xff\r\r\n0\r\n\r\n",
        |frame| {
            let mut block = BytesMut::new();
            write_header(&mut block, b"x-of", b"the answer");
            for (key, value) in [("content-length", "1"), ("Connection", "close"), ("x-envoy-a", "b")] {
                write_header(&mut block, key.as_bytes(), value.as_bytes());
            }
            write_header(&mut block, b"bad key", b"1");
            write_header(&mut block, b"split", b"a\r\nb: c");
            let class = Bytes::from_static(b"com.example.Answer");
            let headers = block.freeze();
            Some(bolt::Message { headers, class, ..content_of(frame, &frame.content()) })
        },
    );
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(call.content()[..], b"a\0b\xff\r"[..]);
    assert_eq!((call.class(), call.codec()), (&b"com.example.Request"[..], 12));
    assert_eq!(call.version(), Version::V2 { checksums: true });
    assert!(call.has_checksum());
    assert_eq!(call.timeout(), Some(Duration::from_secs(15)), "the route's");
    assert_eq!(call.service(), Some(SERVICE.as_bytes()));
    assert_eq!(call.method(), Some(&b"place"[..]));
    let headers = call.headers().unwrap();
    let all: Vec<&[u8]> =
        headers.clone().filter(|(key, _)| *key == b"service").map(|(_, value)| value).collect();
    assert_eq!(all, [SERVICE.as_bytes()]);
    assert_eq!(headers.get(b"http-method"), Some(&b"PUT"[..]));
    assert_eq!(headers.get(b"http-path"), Some(&b"/pl%61ce?urgent=1"[..]));
    assert_eq!(headers.get(b"x-tenant"), Some(&b"seven"[..]));
    for absent in [&b"host"[..], b"connection", b"x-hop", b"transfer-encoding", b"bolt-class"] {
        assert_eq!(headers.get(absent), None, "{}", absent.escape_ascii());
    }
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for line in [
        "x-of: the answer",
        "bolt-status: 0",
        "bolt-class: com.example.Answer",
        "content-type: application/x-hessian",
        "content-length: 5",
    ] {
        assert_eq!(answer.matches(&format!("{line}\r\n")).count(), 1, "{line} in {answer}");
    }
    for absent in ["content-length: 1\r\n", "close", "x-envoy-a", "bad key", "\r\nb: c"] {
        assert!(!answer.contains(absent), "{absent} in {answer}");
    }
}

#[test]
fn each_status_of_a_call_has_its_own_in_http() {
    let expected = [
        (Status::SUCCESS, 200),
        (Status::ERROR, 500),
        (Status::SERVER_EXCEPTION, 500),
        (Status::UNKNOWN, 500),
        (Status::SERVER_BUSY, 503),
        (Status::COMMUNICATION_ERROR, 503),
        (Status::NO_PROCESSOR, 404),
        (Status::TIMEOUT, 504),
        (Status::CLIENT_SEND_ERROR, 500),
        (Status::CODEC_EXCEPTION, 400),
        (Status::CONNECTION_CLOSED, 502),
        (Status::SERVER_SERIALIZE, 500),
        (Status::SERVER_DESERIALIZE, 400),
        (Status(77), 500),
    ];
    for (status, http) in expected {
        let (answer, _) = ask_bolt("GET /list HTTP/1.1\r\nHost: a\r\n\r\n", move |frame| {
            Some(bolt::Message { status, ..content_of(frame, b"why") })
        });
        assert!(answer.starts_with(&format!("HTTP/1.1 {http} ")), "{status}: {answer}");
        assert!(answer.contains(&format!("bolt-status: {}\r\n", status.0)), "{answer}");
        assert!(answer.ends_with("\r\n\r\nwhy"), "{answer}");
    }
}

#[test]
fn what_cannot_become_a_call_is_refused_and_never_sent() {
    let long = "x".repeat(MOST + 1);
    let fields = format!("X-Long: {}\r\n", "y".repeat(33_000));
    for (request, status) in [
        (format!("POST /put HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", MOST + 1), 413),
        (
            format!(
                "POST /put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n",
                long.len()
            ),
            413,
        ),
        (format!("GET /get HTTP/1.1\r\nHost: a\r\n{fields}\r\n"), 431),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 404),
        ("GET /two/segments HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 404),
        ("GET /bad%zz HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 404),
    ] {
        let (answer, calls) = ask_bolt(&request, |frame| Some(content_of(frame, b"")));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(calls.is_empty(), "{request}");
    }
    let whole = "x".repeat(MOST);
    let request = format!("POST /put HTTP/1.1\r\nHost: a\r\nContent-Length: {MOST}\r\n\r\n{whole}");
    let (answer, calls) = ask_bolt(&request, |frame| Some(content_of(frame, b"")));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(calls[0].content().len(), MOST);
}

#[test]
fn a_call_that_is_not_answered_and_a_server_that_is_not_there_are_told_in_http() {
    let request = "GET /list HTTP/1.1\r\nHost: a\r\n\r\n";
    let (answer, calls) = ask_bolt(request, |_| None);
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert_eq!(calls.len(), 1);
    let mut towards = TowardsBolt::new(1, Faults::none());
    let answer = towards.ask(request);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

#[test]
fn calls_become_http_requests_and_each_gets_its_own_answer() {
    for_each_seed(25, |seed| {
        let mut story = towards_http(seed, 0);
        http_origin(&mut story, Rc::default(), |_, body| {
            answer(200, "", body, body.len() % 2 == 0)
        });
        let endings = story.clients(5, 40);
        story.run(Duration::from_secs(600));
        assert_eq!(endings.borrow().len(), 200);
        for (id, ending) in endings.borrow().iter() {
            assert_eq!(*ending, Ending::Answered(Status::SUCCESS), "{id}");
        }
        assert_eq!(story.number("cluster.app.upstream_rq_active"), 0);
    });
}

#[test]
fn calls_and_their_http_requests_end_once_each_when_connections_are_cut() {
    for_each_seed(25, |seed| {
        let mut story = towards_http(seed, 2000);
        story.world.set_faults(Faults::harsh());
        http_origin(&mut story, Rc::default(), |_, body| {
            answer(200, "", body, body.len() % 2 == 0)
        });
        let endings = story.clients(4, 30);
        story.run(Duration::from_secs(3000));
        assert_eq!(endings.borrow().len(), 120);
        assert_eq!(story.number("http.rpc.downstream_rq_active"), 0);
        assert_eq!(story.world.machine::<Worker>(story.worker).streams(), 0);
    });
}

#[test]
fn a_call_becomes_path_fields_and_body() {
    let mut block = BytesMut::new();
    for (key, value) in [
        ("service", "com.example.Orders:1.0"),
        ("sofa_head_method_name", "place order"),
        ("X-Tenant", "seven"),
        ("content-length", "999"),
        ("Transfer-Encoding", "chunked"),
        ("connection", "close"),
        ("host", "forged"),
        ("x-envoy-internal", "true"),
        ("bolt-class", "forged"),
        ("split", "a\r\nb: c"),
    ] {
        write_header(&mut block, key.as_bytes(), value.as_bytes());
    }
    let call = bolt::Message {
        class: Bytes::from_static(b"com.example.Request"),
        headers: block.freeze(),
        content: Bytes::from_static(b"a\0\xff\r\n"),
        codec: 11,
        checksum: true,
        ..bolt::Message::request(Version::V2 { checksums: true }, 0xffff_fff0)
    };
    let (frames, requests) = ask_http(&call, |_, _| {
        let fields = "X-Of: the answer\r\nBolt-Class: com.example.Answer\r\nBolt-Codec: 9\r\nKeep-Alive: timeout=5\r\n";
        answer(201, fields, b"\0whole\0", true)
    });
    let [(head, body)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(body[..], call.content[..]);
    assert_eq!((head.method_bytes(), head.authority()), (&b"PUT"[..], &b"orders.test"[..]));
    assert_eq!(head.path(), b"/rpc/com.example.Orders:1.0/place%20order");
    let text =
        |name: &str| head.get_bytes(name.as_bytes()).map(|value| value.escape_ascii().to_string());
    assert_eq!(text("x-tenant").as_deref(), Some("seven"));
    assert_eq!(text("content-length").as_deref(), Some("5"));
    assert_eq!(text("bolt-class").as_deref(), Some("com.example.Request"));
    assert_eq!(text("bolt-codec").as_deref(), Some("11"));
    assert_eq!(text("content-type").as_deref(), Some("application/x-hessian"));
    for absent in ["transfer-encoding", "x-envoy-internal", "b"] {
        assert_eq!(text(absent), None, "{absent}");
    }
    let [frame] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((frame.id(), frame.status()), (0xffff_fff0, Some(Status::SUCCESS)));
    assert!(frame.has_checksum());
    assert_eq!((frame.class(), frame.codec()), (&b"com.example.Answer"[..], 9));
    assert_eq!(frame.content()[..], b"\0whole\0"[..]);
    let headers = frame.headers().unwrap();
    assert_eq!(headers.get(b"http-status"), Some(&b"201"[..]));
    assert_eq!(headers.get(b"x-of"), Some(&b"the answer"[..]));
    for absent in [&b"transfer-encoding"[..], b"keep-alive", b"bolt-class", b"content-length"] {
        assert_eq!(headers.get(absent), None, "{}", absent.escape_ascii());
    }
}

#[test]
fn each_status_of_http_has_its_own_in_bolt() {
    let expected = [
        (204, Status::SUCCESS),
        (302, Status::UNKNOWN),
        (400, Status::CODEC_EXCEPTION),
        (401, Status::SERVER_EXCEPTION),
        (403, Status::SERVER_EXCEPTION),
        (404, Status::NO_PROCESSOR),
        (429, Status::SERVER_BUSY),
        (500, Status::ERROR),
        (502, Status::CONNECTION_CLOSED),
        (503, Status::SERVER_BUSY),
        (504, Status::TIMEOUT),
    ];
    for (http, status) in expected {
        let (frames, _) = ask_http(&plain_call(0), move |_, _| {
            let body: &[u8] = if http == 204 { b"" } else { b"why" };
            answer(http, "", body, false)
        });
        let [frame] = &frames[..] else { panic!("{http}: {frames:?}") };
        assert_eq!(frame.status(), Some(status), "{http}");
        assert_eq!(frame.class(), b"", "{http}");
        let told = http.to_string();
        assert_eq!(frame.headers().unwrap().get(b"http-status"), Some(told.as_bytes()));
        assert_eq!(frame.content().len(), if http == 204 { 0 } else { 3 });
    }
}

#[test]
fn an_answer_that_no_frame_can_hold_or_that_breaks_off_is_an_error() {
    let long = format!("X-Long: {}\r\n", "y".repeat(33_000));
    let cases: [(Vec<u8>, Status); 5] = [
        (answer(200, "", &[b'x'; MOST + 1], true), Status::ERROR),
        (answer(200, "", &[b'x'; MOST + 1], false), Status::ERROR),
        (answer(200, &long, b"", false), Status::CODEC_EXCEPTION),
        (b"no HTTP at all\r\n\r\n".to_vec(), Status::CODEC_EXCEPTION),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec(), Status::TIMEOUT),
    ];
    for (bytes, status) in cases {
        let (frames, _) = ask_http(&plain_call(300), move |_, _| bytes.clone());
        let [frame] = &frames[..] else { panic!("{status}: {frames:?}") };
        assert_eq!(frame.status(), Some(status));
        assert_eq!(frame.content().len(), 0);
    }
    let (frames, _) = ask_http(&plain_call(0), |_, _| answer(200, "", &[b'x'; MOST], true));
    assert_eq!(frames[0].content().len(), MOST);
}

#[test]
fn bodies_that_are_collected_for_one_client_are_bounded_together() {
    let mut story = story_towards_http(1, Setting { max_held: 10_000, ..Setting::default() });
    http_origin(&mut story, Rc::default(), |head, _| {
        // The rest never comes where it is not asked to.
        let cut = usize::from(head.get_bytes(b"whole").is_none()) * 600;
        let mut bytes = answer(200, "", &[b'x'; 4600], false);
        bytes.truncate(bytes.len() - cut);
        bytes
    });
    let calls: Vec<u8> = (1..=3)
        .flat_map(|id| written(&bolt::Message { id, ..plain_call(2000) }).to_vec())
        .collect();
    let mut block = BytesMut::from(&plain_call(0).headers[..]);
    write_header(&mut block, b"whole", b"yes");
    let whole = written(&bolt::Message { headers: block.freeze(), ..plain_call(2000) });
    let (received, other) = (Rc::new(RefCell::new(Vec::new())), Rc::default());
    let (got, later) = (Rc::clone(&received), whole.clone());
    let mut open = None;
    story.world.add(Script::new(
        |orders: &mut Orders<Message>| orders.connect(address(BOLT)),
        move |input, orders: &mut Orders<Message>, now| match input {
            Input::Connected { connection, .. } => {
                open = Some(connection);
                orders.send(connection, calls.clone());
                orders.wake_at(now + Duration::from_secs(5));
            }
            Input::Timeout => orders.send(open.unwrap(), later.clone()),
            Input::Received { chunk, .. } => got.borrow_mut().extend_from_slice(&chunk),
            _ => {}
        },
    ));
    story.run(Duration::from_secs(1));
    let statuses =
        || -> Vec<Status> { frames(&received).iter().filter_map(bolt::Frame::status).collect() };
    assert_eq!(statuses(), [Status::ERROR], "two have room, and wait");
    assert_eq!(story.number("bolt.rpc.downstream_rq_held_overflow"), 1);
    // Another client has room of its own, and this one when the others are over.
    story.world.add(sender(BOLT, whole, &other));
    story.run(Duration::from_secs(10));
    assert_eq!(frames(&other)[0].status(), Some(Status::SUCCESS));
    assert_eq!(statuses()[1..], [Status::TIMEOUT, Status::TIMEOUT, Status::SUCCESS]);
}

#[test]
fn a_oneway_call_is_an_http_request_whose_answer_is_dropped() {
    let call = bolt::Message { kind: Kind::Oneway, ..plain_call(0) };
    let (frames, requests) = ask_http(&call, |_, _| answer(500, "", &[b'x'; MOST + 1], true));
    assert_eq!((frames.len(), requests.len()), (0, 1));
}

/// A worker whose HTTP route leads to a cluster that speaks Bolt.
struct TowardsBolt {
    world: World<Message>,
    worker: NodeId,
    registry: Arc<Registry>,
    random: Random,
    calls: Rc<RefCell<Vec<bolt::Frame>>>,
}

impl TowardsBolt {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut world = World::new(seed);
        world.set_faults(faults.clone());
        world.set_faults_to(origin_address(1), faults);
        let registry = Arc::<Registry>::default();
        let mut plan = Plan::new(1);
        plan.cluster.bolt = Some(Arc::new(BoltUpstream {
            connections_per_host: 1,
            max_in_flight: 4096,
            options: Options::default(),
            heartbeat: None,
        }));
        plan.adjust_forward = |forward| {
            forward.bridge = Some(Bridge::ToBolt(ToBolt {
                service: Some(SERVICE.into()),
                method: None,
                class: Bytes::from_static(b"com.example.Request"),
                codec: 12,
                version: Version::V2 { checksums: true },
                content_type: "application/x-hessian".into(),
                max_request: MOST,
            }));
        };
        let worker = add_counted_worker(&mut world, seed, plan, &registry);
        Self { world, worker, registry, random: Random::new(seed), calls: Rc::default() }
    }

    fn origin(
        &mut self,
        shuffles: bool,
        mut answer: impl FnMut(&bolt::Frame) -> Option<bolt::Message> + 'static,
    ) {
        let mut decoders: HashMap<ConnectionId, Decoder> = HashMap::new();
        let (calls, mut random) = (Rc::clone(&self.calls), Random::new(self.random.bits()));
        self.world.add(Script::new(
            |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
            move |input, orders: &mut Orders<Message>, _| match input {
                Input::Received { connection, chunk } => {
                    let decoder = decoders
                        .entry(connection)
                        .or_insert_with(|| Decoder::new(Options::default()));
                    decoder.receive(chunk);
                    let mut answers = Vec::new();
                    while let Some(frame) = decoder.poll().expect("the proxy speaks Bolt") {
                        answers.extend(answer(&frame).map(|message| written(&message)));
                        calls.borrow_mut().push(frame);
                    }
                    if shuffles {
                        random.shuffle(&mut answers);
                    }
                    answers.into_iter().for_each(|answer| orders.send(connection, answer));
                }
                Input::Ended { connection } => orders.close(connection, Close::Flush),
                _ => {}
            },
        ));
        self.world.run_for(Duration::from_millis(1));
    }

    fn clients(&mut self, count: usize, each: usize) -> HttpEndings {
        let endings = HttpEndings::default();
        for client in 0..count {
            let asks = scene::client::asks(&mut self.random, client, each, MOST);
            let asks: Vec<HttpAsk> = asks;
            self.world.add(scene::client::client(address(HTTP), asks, Rc::clone(&endings)));
        }
        endings
    }

    /// What a client gets for these bytes.
    fn ask(&mut self, request: impl AsRef<[u8]>) -> String {
        let received = Rc::new(RefCell::new(Vec::new()));
        self.world.add(sender(HTTP, Bytes::copy_from_slice(request.as_ref()), &received));
        self.world.run_for(Duration::from_secs(20));
        String::from_utf8_lossy(&received.borrow()).into_owned()
    }

    fn number(&self, name: &str) -> u64 {
        counter(&self.registry, name)
    }
}

/// What becomes of one request over HTTP, and which calls were made.
fn ask_bolt(
    request: impl AsRef<[u8]>,
    answer: impl FnMut(&bolt::Frame) -> Option<bolt::Message> + 'static,
) -> (String, Vec<bolt::Frame>) {
    let mut towards = TowardsBolt::new(1, Faults::none());
    towards.origin(false, answer);
    let answer = towards.ask(request);
    (answer, towards.calls.take())
}

fn content_of(frame: &bolt::Frame, content: &[u8]) -> bolt::Message {
    bolt::Message {
        content: Bytes::copy_from_slice(content),
        ..bolt::Message::response(frame.version(), frame.id(), Status::SUCCESS)
    }
}

/// What the scene's HTTP client wants to hear.
fn echo(frame: &bolt::Frame) -> Option<bolt::Message> {
    let headers = frame.headers().unwrap();
    let text = |key: &str| {
        String::from_utf8(headers.get(key.as_bytes()).unwrap_or_default().to_vec()).unwrap()
    };
    let (id, body) = (text("x-id"), text("x-body").parse().unwrap());
    assert_eq!(frame.content(), pattern(&id, body), "{id} has its own body");
    assert_eq!(frame.method(), Some(&b"thing"[..]));
    let mut block = BytesMut::new();
    write_header(&mut block, b"x-id", id.as_bytes());
    let content = pattern(&id, text("x-size").parse().unwrap());
    Some(bolt::Message { headers: block.freeze(), ..content_of(frame, &content) })
}

/// A worker whose Bolt route leads to a cluster that speaks HTTP.
fn towards_http(seed: u64, timeout_ms: u64) -> Story {
    story_towards_http(seed, Setting { timeout_ms, ..Setting::default() })
}

fn story_towards_http(seed: u64, setting: Setting) -> Story {
    let adjust = |forward: &mut Forward| {
        forward.bridge = Some(Bridge::ToHttp(ToHttp {
            method: "PUT".into(),
            host: Some("orders.test".into()),
            path_prefix: "/rpc".into(),
            content_type: "application/x-hessian".into(),
            class: Bytes::from_static(b"com.example.Default"),
            max_response: MOST,
        }));
    };
    Story::new(seed, Setting { adjust, speaks_http: true, ..setting })
}

type Requests = Rc<RefCell<Vec<(Head, Vec<u8>)>>>;

fn http_origin(
    story: &mut Story,
    requests: Requests,
    mut answer: impl FnMut(&Head, &[u8]) -> Vec<u8> + 'static,
) {
    let mut servers: HashMap<ConnectionId, (http1::Server, Option<Head>, Vec<u8>)> = HashMap::new();
    let mut heads = HeadPool::default();
    story.world.add(Script::new(
        |orders: &mut Orders<Message>| orders.listen(origin_address(1)),
        move |input, orders: &mut Orders<Message>, _| match input {
            Input::Received { connection, chunk } => {
                let (server, head, body) = servers
                    .entry(connection)
                    .or_insert_with(|| (http1::Server::new(Arc::default()), None, Vec::new()));
                server.receive(chunk);
                while let Some(event) = server.poll(&mut heads).expect("the proxy speaks HTTP") {
                    let ends = match event {
                        Event::Head { head: begun, end } => {
                            *head = Some(begun);
                            end
                        }
                        Event::Data(chunk) => {
                            body.extend_from_slice(&chunk);
                            false
                        }
                        _ => true,
                    };
                    if ends {
                        let (head, body) = (head.take().unwrap(), std::mem::take(body));
                        for piece in answer(&head, &body).chunks(700) {
                            orders.send(connection, Bytes::copy_from_slice(piece));
                        }
                        requests.borrow_mut().push((head, body));
                        // Only what makes it ready for the next request counts.
                        let mut out = Out::new();
                        let mut whole = Head::response(200);
                        whole.append_bytes(b"content-length", b"0");
                        server.encode_head(&whole, true, &mut out);
                        assert_eq!(server.next(), Next::KeepAlive);
                    }
                }
            }
            Input::Ended { connection } => {
                servers.remove(&connection);
                orders.close(connection, Close::Flush);
            }
            _ => {}
        },
    ));
    story.run(Duration::from_millis(1));
}

/// What becomes of one call, and which requests were made over HTTP.
fn ask_http(
    call: &bolt::Message,
    answer: impl FnMut(&Head, &[u8]) -> Vec<u8> + 'static,
) -> (Vec<bolt::Frame>, Vec<(Head, Vec<u8>)>) {
    let mut story = towards_http(1, 0);
    let requests = Requests::default();
    http_origin(&mut story, Rc::clone(&requests), answer);
    let received = Rc::new(RefCell::new(Vec::new()));
    story.world.add(sender(BOLT, written(call), &received));
    story.run(Duration::from_secs(20));
    (frames(&received), requests.take())
}

#[test]
fn a_name_is_one_segment_of_a_path_or_none() {
    let call = |method: &[u8]| {
        let mut block = BytesMut::new();
        write_header(&mut block, b"service", b"com.example.Orders:1.0");
        write_header(&mut block, b"method", method);
        bolt::Message { headers: block.freeze(), ..bolt::Message::request(Version::V1, 7) }
    };
    let odd = call("a/../b?c#d;e%2eü".as_bytes());
    let (frames, requests) = ask_http(&odd, |_, _| answer(200, "", b"", false));
    let [(head, _)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(head.path(), b"/rpc/com.example.Orders:1.0/a%2F..%2Fb%3Fc%23d%3Be%252e%C3%BC");
    assert_eq!(frames[0].status(), Some(Status::SUCCESS));
    for method in [&b"."[..], b".."] {
        let (frames, requests) = ask_http(&call(method), |_, _| answer(200, "", b"", false));
        assert!(requests.is_empty(), "{requests:?}");
        assert_eq!(frames[0].status(), Some(Status::NO_PROCESSOR));
    }
}

fn plain_call(timeout_ms: u64) -> bolt::Message {
    let mut block = BytesMut::new();
    write_header(&mut block, b"service", b"com.example.Orders:1.0");
    bolt::Message {
        headers: block.freeze(),
        content: Bytes::from_static(b"question"),
        timeout: (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms)),
        ..bolt::Message::request(Version::V1, 7)
    }
}

/// A response over HTTP.
fn answer(status: u16, fields: &str, body: &[u8], chunked: bool) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {status} Word\r\n{fields}").into_bytes();
    if status == 204 {
        out.extend_from_slice(b"\r\n");
    } else if chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        for piece in body.chunks(1000) {
            out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
    } else {
        out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
    }
    out
}
