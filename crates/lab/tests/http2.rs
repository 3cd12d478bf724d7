//! What the generator counts over HTTP/2 is what the server served, and why the remainder failed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use towpath_lab::address::{Address, Target};
use towpath_lab::knee;
use towpath_lab::load::tls::{Tls, Trusted};
use towpath_lab::load::{Arrivals, Entry, LoadError, Plan, Protocol, Request, run};
use towpath_lab::origin::{Origin, Running, spawn};
use towpath_proto::http2::{Arrival, Code, Connection, Options};
use towpath_proto::{Event, Head, HeadPool, Out};

fn local() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

/// One request, 400 ms long, on four connections with eight streams each.
fn plan(target: Target) -> Plan {
    let mut plan = Plan::new(target);
    plan.protocol = Protocol::Http2;
    plan.duration = Duration::from_millis(400);
    (plan.connections, plan.in_flight) = (4, 8);
    plan.timeout = Duration::from_secs(30);
    plan
}

fn plan_for(server: &Running) -> Plan {
    plan(server.address().clone().into())
}

#[test]
fn every_arrival_process_sends_what_it_intends() {
    let rate = 1000.0;
    let starts = (0..400).map(Duration::from_millis).collect();
    for (arrivals, expected) in [
        (Arrivals::Paced { rate }, 400..=400),
        (Arrivals::Poisson { rate }, 320..=480),
        (Arrivals::Bunched { rate, size: 8 }, 400..=400),
        (Arrivals::Ticked { rate, tick: Duration::from_millis(3) }, 397..=400),
        (Arrivals::Recorded { starts }, 400..=400),
        (Arrivals::PerConnection { per_connection_rate: 250.0 }, 400..=400),
        (Arrivals::ClosedCapped { per_connection_rate: 250.0 }, 32..=404),
        (Arrivals::Closed, 32..=u64::MAX),
    ] {
        let server = spawn(&Origin::http(local(), 100)).unwrap();
        let mut plan = plan_for(&server);
        (plan.arrivals, plan.threads) = (arrivals, 2);
        let outcome = run(&plan).unwrap();
        assert_eq!(outcome.errors.total(), 0, "{}: {:?}", outcome.arrivals, outcome.errors);
        assert!(expected.contains(&outcome.sent), "{}: {}", outcome.arrivals, outcome.sent);
        // No request was made beside them.
        assert_eq!(server.served(), outcome.sent, "{}", outcome.arrivals);
        assert_eq!(outcome.latency.count(), outcome.sent);
        assert_eq!(outcome.connections, 4);
    }
    let server = spawn(&Origin::http(local(), 0)).unwrap();
    let refused = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan_for(&server);
        change(&mut plan);
        matches!(run(&plan), Err(LoadError::Plan(_)))
    };
    assert!(refused(&|plan| plan.in_flight = 0));
    assert!(refused(&|plan| plan.in_flight = 1025));
    assert!(refused(&|plan| plan.keep_alive = false));
    assert!(refused(&|plan| plan.request.headers.push(("a b".to_owned(), String::new()))));
}

/// One connection that is slow must not hold up the schedules of the others, and what waits for room on it is not the
/// generator's lateness.
#[test]
fn connections_keep_their_own_schedules_and_catch_up() {
    let ok = Head::response(200);
    let numbers = Arc::new(AtomicU32::new(0));
    let target = scripted(move |codec, number, count, out| {
        let connection = match count {
            1 => numbers.fetch_add(1, Ordering::Relaxed),
            _ => u32::MAX,
        };
        if connection == 0 {
            std::thread::sleep(Duration::from_millis(200));
        }
        codec.send_head(number, &ok, true, out);
        codec.release(number);
    });
    let mut plan = plan(target);
    (plan.connections, plan.in_flight) = (4, 2);
    plan.arrivals = Arrivals::PerConnection { per_connection_rate: 100.0 };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.sent, outcome.errors.total()), (160, 0), "{:?}", outcome.errors);
    // Two were under way on the slow connection and some 18 waited for room; the others' were answered at once.
    assert!(
        (10..=40).contains(&outcome.waited_for_connection),
        "{}",
        outcome.waited_for_connection
    );
    assert!(outcome.latency.quantile(1.0) >= 190_000_000);
    assert!(
        outcome.generator.send_lateness.quantile(0.9) < 100_000_000,
        "they wait for the server"
    );
}

#[test]
fn several_requests_are_drawn_filled_in_and_judged() {
    let entry = |name: &str, weight, path: &str, body: &str| Entry {
        name: name.to_owned(),
        weight,
        path: Some(path.to_owned()),
        request: Request { body: body.as_bytes().to_vec(), ..Request::default() },
        ..Entry::default()
    };
    let mut item = entry("item", 3, "/items/{number}?of={random:7-9}", "");
    item.request.headers.push(("X-Who".to_owned(), "{line}".to_owned()));
    item.lines = vec!["anna".to_owned(), "bo".to_owned()];
    item.check.contains = Some(b"found /items/".to_vec());
    let mut order = entry("order", 1, "/orders", "{\"id\": {number}}");
    (order.check.status, order.check.contains) = (Some(201), Some(b"none".to_vec()));
    let (told, heard) = std::sync::mpsc::channel();
    let target = answering(move |head| {
        told.send(head.clone()).unwrap();
        let path = String::from_utf8_lossy(head.path()).into_owned();
        let status = if path.starts_with("/orders") { 201 } else { 200 };
        (status, format!("found {path}").into_bytes())
    });
    let mut plan = plan(target);
    (plan.mix, plan.arrivals) = (vec![item, order], Arrivals::Paced { rate: 500.0 });
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.sent, 200);
    let [item, order] = &outcome.entries[..] else { panic!("two entries") };
    let answered = item.latency.count();
    assert!((120..=180).contains(&answered) && item.errors == 0, "{answered}");
    // Answered with the right status and without the words that were wanted.
    assert_eq!((order.errors, order.latency.count()), (200 - answered, 0));
    assert_eq!(outcome.errors.of("check"), order.errors, "{:?}", outcome.errors);
    let heads: Vec<Head> = heard.try_iter().collect();
    let mut numbers = std::collections::HashSet::new();
    for head in &heads {
        let path = std::str::from_utf8(head.path()).unwrap();
        let Some(rest) = path.strip_prefix("/items/") else {
            assert_eq!((head.method_bytes(), path), (&b"POST"[..], "/orders"));
            // {"id": N} with one to three digits.
            let length = head.get_bytes(b"content-length").unwrap();
            assert!([&b"9"[..], b"10", b"11"].contains(&length), "{length:?}");
            continue;
        };
        let (number, of) = rest.split_once("?of=").unwrap();
        assert!(numbers.insert(number.parse::<u32>().unwrap()) && ["7", "8", "9"].contains(&of));
        assert!([&b"anna"[..], b"bo"].contains(&head.get_bytes(b"x-who").unwrap()));
    }
    assert_eq!((heads.len(), numbers.len()), (200, answered as usize));
}

#[test]
fn a_knee_is_sought_with_several_streams_on_each_connection() {
    let server = spawn(&Origin::http(local(), 100)).unwrap();
    let mut plan = plan_for(&server);
    (plan.duration, plan.arrivals) = (Duration::from_millis(50), Arrivals::Paced { rate: 100.0 });
    let search = knee::Search {
        plan,
        percentile: 0.5,
        objective: Duration::from_secs(20),
        from: 100.0,
        to: 200.0,
        precision: 0.5,
    };
    let found = knee::search(&search, &mut |_| {}).unwrap();
    assert_eq!((found.rate, found.broken), (Some(200.0), None));
    let in_flight: Vec<f64> = found.sweep.iter().map(|(in_flight, _)| *in_flight).collect();
    assert_eq!(in_flight, [8.0, 16.0, 32.0, 64.0]);
}

#[test]
fn bodies_larger_than_any_window_go_both_ways() {
    // The generator's window is 64 MiB, a stream's at the origin too; each lets 16 KiB go before it says so.
    let server = spawn(&Origin::http(local(), 5 << 20)).unwrap();
    let mut plan = plan_for(&server);
    plan.request.body = vec![b'x'; 3 << 20];
    (plan.connections, plan.in_flight) = (1, 3);
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.errors.total(), 0, "{:?}", outcome.errors);
    assert!(outcome.sent > 0 && server.served() == outcome.sent);
}

#[test]
fn answers_that_are_held_back_hold_up_no_other_stream() {
    let delay = Duration::from_millis(50);
    let server = spawn(&Origin { delay, ..Origin::http(local(), 10) }).unwrap();
    let mut plan = plan_for(&server);
    (plan.connections, plan.in_flight) = (1, 40);
    plan.arrivals = Arrivals::Paced { rate: 400.0 };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.sent, outcome.errors.total()), (160, 0), "{:?}", outcome.errors);
    // One after the other they would take eight seconds.
    assert!(outcome.latency.quantile(0.0) >= 49_000_000);
    assert!(outcome.latency.quantile(0.5) < 2_000_000_000, "{}", outcome.latency.quantile(0.5));
}

#[test]
fn a_service_asks_another_before_it_answers_a_stream() {
    let behind = spawn(&Origin::http(local(), 10)).unwrap();
    let next = vec![Target::from(behind.address().clone())];
    let server = spawn(&Origin { next, ..Origin::http(local(), 10) }).unwrap();
    let mut plan = plan_for(&server);
    plan.arrivals = Arrivals::Paced { rate: 200.0 };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.sent, outcome.errors.total()), (80, 0), "{:?}", outcome.errors);
    assert_eq!(behind.served(), 80);
}

#[test]
fn both_protocols_are_chosen_under_tls() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem().into_bytes(), made.signing_key.serialize_pem());
    let tls = Some((chain.clone(), key.into_bytes()));
    let server = spawn(&Origin { tls, ..Origin::http(local(), 40_000) }).unwrap();
    for protocol in [Protocol::Http2, Protocol::Http1] {
        let before = server.served();
        let mut plan = plan_for(&server);
        (plan.protocol, plan.target.is_tls) = (protocol, true);
        plan.in_flight = if protocol == Protocol::Http2 { 8 } else { 1 };
        let trusted = Trusted::Roots(chain.clone());
        plan.tls = Some(Tls::new("localhost", &trusted, false, protocol).unwrap());
        plan.arrivals = Arrivals::Paced { rate: 200.0 };
        let outcome = run(&plan).unwrap();
        assert_eq!((outcome.sent, outcome.errors.total()), (80, 0), "{:?}", outcome.errors);
        assert_eq!(server.served() - before, 80);
    }
}

#[test]
fn a_server_of_tls_that_offers_no_http_2_is_told_apart() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![made.cert.der().clone()],
            made.signing_key.serialize_der().try_into().unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let address = listen(move |stream| {
        let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        // It answers nothing but the handshake.
        let _ = rustls::StreamOwned::new(connection, stream).read(&mut [0; 100]);
    });
    let mut plan = plan(Address::Tcp(address).into());
    plan.tls = Some(Tls::new("localhost", &Trusted::All, false, Protocol::Http2).unwrap());
    let error = run(&plan).unwrap_err().to_string();
    assert!(error.contains("the server does not offer h2 by ALPN"), "{error}");
}

#[test]
fn calls_of_grpc_are_judged_by_their_own_status() {
    let server = spawn(&Origin::http(local(), 100)).unwrap();
    let mut plan = plan_for(&server);
    plan.request.body = b"\x0a\x05world".to_vec();
    plan.request.make_grpc();
    assert_eq!(plan.request.body, b"\0\0\0\0\x07\x0a\x05world");
    plan.target.path = "/helloworld.Greeter/SayHello".to_owned();
    plan.arrivals = Arrivals::Paced { rate: 200.0 };
    let outcome = run(&plan).unwrap();
    assert_eq!((outcome.latency.count(), outcome.errors.total()), (80, 0), "{:?}", outcome.errors);

    let busy = spawn(&Origin { grpc_status: 8, ..Origin::http(local(), 100) }).unwrap();
    plan.target = Target { path: plan.target.path.clone(), ..busy.address().clone().into() };
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.errors.of("grpc RESOURCE_EXHAUSTED"), 80, "{:?}", outcome.errors);

    for (fields, kind) in [
        (&[("grpc-status", "14")][..], "grpc UNAVAILABLE"),
        (&[("grpc-status", "99")][..], "grpc other"),
        (&[][..], "grpc without status"),
    ] {
        // With the head alone, as a server that did not come to its message (trailers-only).
        let mut head = Head::response(200);
        head.append_bytes(b"content-type", b"application/grpc");
        fields.iter().for_each(|(name, value)| {
            head.append_bytes(name.as_bytes(), value.as_bytes());
        });
        plan.target = scripted(move |codec, number, _, out| {
            codec.send_head(number, &head, true, out);
            codec.release(number);
        });
        let outcome = run(&plan).unwrap();
        assert_eq!(outcome.errors.of(kind), 80, "{kind}: {:?}", outcome.errors);
        assert_eq!((outcome.sent, outcome.latency.count()), (80, 0));
    }
}

#[test]
fn lost_requests_are_counted_by_what_the_server_said() {
    let ok = Head::response(200);
    let answer = move |codec: &mut Connection, number, out: &mut Out| {
        codec.send_head(number, &ok, true, out);
        codec.release(number);
    };
    let always = answer.clone();
    let refusing = scripted(move |codec, number, count, out| {
        if count.is_multiple_of(4) {
            codec.reset(number, Code::REFUSED_STREAM);
            codec.release(number);
        } else {
            always(codec, number, out);
        }
    });
    let mut plan = plan(refusing);
    plan.connections = 1;
    plan.arrivals = Arrivals::Paced { rate: 400.0 };
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.errors.of("reset REFUSED_STREAM"), 40, "{:?}", outcome.errors);
    assert_eq!((outcome.latency.count(), outcome.errors.total()), (120, 40));

    // A server that leaves in good order costs no request: the next ones go on another connection.
    let always = answer.clone();
    plan.target = scripted(move |codec, number, count, out| {
        if count == 10 {
            codec.go_away(Code::NO_ERROR);
        }
        always(codec, number, out);
    });
    (plan.in_flight, plan.arrivals) = (1, Arrivals::Closed);
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.errors.total(), 0, "{:?}", outcome.errors);
    assert!(outcome.reconnects > 0 && outcome.reconnects <= outcome.sent / 10);

    // One that leaves without answering says why.
    plan.target = scripted(move |codec, number, count, out| {
        if count < 10 {
            answer(codec, number, out);
        } else {
            codec.go_away(Code::ENHANCE_YOUR_CALM);
        }
    });
    let outcome = run(&plan).unwrap();
    assert!(outcome.errors.of("goaway ENHANCE_YOUR_CALM") > 0, "{:?}", outcome.errors);
    assert_eq!(outcome.errors.total(), outcome.errors.of("goaway ENHANCE_YOUR_CALM"));
}

#[test]
fn what_a_server_never_answers_is_given_up_and_the_stream_with_it() {
    let silent = scripted(|_, _, _, _| {});
    let mut plan = plan(silent);
    (plan.connections, plan.in_flight) = (1, 2);
    (plan.timeout, plan.duration) = (Duration::from_millis(50), Duration::from_secs(1));
    let outcome = run(&plan).unwrap();
    // The places of those that are given up are used again.
    assert!(outcome.errors.of("timeout") >= 4, "{:?}", outcome.errors);
    assert_eq!((outcome.answered, outcome.connections), (0, 1));

    // A server that speaks HTTP/1.1 alone is found out before the start.
    let address = listen(|mut stream| {
        let _ = stream.read(&mut [0; 100]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    plan.target = Address::Tcp(address).into();
    let said = run(&plan).unwrap_err().to_string();
    assert!(said.ends_with("the server does not speak HTTP/2"), "{said}");
    // So is one that accepts connections and closes them.
    plan.target = Address::Tcp(listen(|mut stream| drop(stream.read(&mut [0; 100])))).into();
    let said = run(&plan).unwrap_err().to_string();
    assert!(said.ends_with("the server closed the connection"), "{said}");
}

/// Serves each connection on a thread of its own.
fn listen(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream.unwrap()));
        }
    });
    address
}

/// A server of HTTP/2 that answers each request with the status and the content that this makes of its head.
fn answering(answer: impl Fn(&Head) -> (u16, Vec<u8>) + Clone + Send + 'static) -> Target {
    scripted_by_head(move |codec, number, (_, head), out| {
        let (status, content) = answer(head);
        codec.send_head(number, &Head::response(status), false, out);
        codec.send_data(number, Bytes::from(content));
        codec.send_end(number);
        codec.release(number);
    })
}

/// A server of HTTP/2 that does this with each request, counted on its connection from 1.
fn scripted(each: impl Fn(&mut Connection, u32, u32, &mut Out) + Clone + Send + 'static) -> Target {
    scripted_by_head(move |codec, number, (count, _), out| each(codec, number, count, out))
}

/// A server of HTTP/2 that does this with the head of each request, counted on its connection from 1. One that goes
/// away with streams that are not answered closes behind it.
fn scripted_by_head(
    each: impl Fn(&mut Connection, u32, (u32, &Head), &mut Out) + Clone + Send + 'static,
) -> Target {
    Address::Tcp(listen(move |mut stream| {
        let options = Options { max_early_resets: u32::MAX - 1, ..Options::default() };
        let mut codec = Connection::server(Arc::new(options));
        let (mut heads, mut out, mut count) = (HeadPool::new(8), Out::new(), 0);
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            codec.receive(Bytes::copy_from_slice(&chunk[..length]));
            while let Ok(Some((number, arrival))) = codec.poll(&mut heads) {
                match arrival {
                    Arrival::Part(Event::Head { head, .. }) => {
                        count += 1;
                        each(&mut codec, number, (count, &head), &mut out);
                    }
                    Arrival::Reset(_) => codec.release(number),
                    Arrival::Part(_) | Arrival::Refused => {}
                }
            }
            codec.flush(&mut out);
            let bytes = out.drain().collect::<Vec<_>>().concat();
            codec.sent(0);
            let is_left = codec.has_gone_away() && codec.streams() > 0;
            if stream.write_all(&bytes).is_err() || is_left {
                return;
            }
        }
    }))
    .into()
}
