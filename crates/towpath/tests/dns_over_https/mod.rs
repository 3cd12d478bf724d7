//! Names by DNS over HTTPS, from servers that keep to RFC 8484 and servers that do not.

mod lifetimes;
mod server;

use std::error::Error as _;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towpath::error::Cause;
use towpath::report::{Answerer, HttpsFault};
use towpath::{Builder, DnsOverHttps, Engine, Error, Tls};
use towpath_engine::local::message::{Error as Failed, Layer};
use towpath_proto::Failure;
use towpath_proto::tls::{Distrust, Fault};

use crate::authority::Authority;
use crate::server::{Server, answer as respond, read_request};
use server::{Asked, DNS, Doh, Say, answer, here, plain};

const HERE: &[IpAddr] = &[IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

/// A server of HTTP that is known by any name.
fn website() -> Server {
    Server::new(|stream, _| {
        while read_request(stream).is_some() {
            respond(stream, "200 OK", "", b"hello");
        }
    })
}

fn builder(authority: &Authority) -> Builder {
    Engine::builder().tls(Tls::new().roots(authority.issuer.pem()))
}

/// A server that says this, over HTTP/1.1, and an engine that asks it.
fn asking(say: impl Fn(&Asked) -> Say + Send + Sync + 'static) -> (Doh, Engine) {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "dns.test", &[], say);
    let engine = builder(&authority).dns_over_https(doh.options()).start().unwrap();
    (doh, engine)
}

fn get(engine: &Engine, name: &str, website: &Server) -> Result<Vec<Answerer>, Error> {
    let url = format!("http://{name}:{}/", website.address.port());
    let request = engine.client().get(&url).connect_timeout(Duration::from_secs(5));
    let mut response = request.send()?;
    assert_eq!(response.body().bytes(100).unwrap(), "hello");
    let report = response.body().report().unwrap();
    Ok(report.lookups.iter().map(|lookup| lookup.by).collect())
}

/// Why a name had no addresses, and how long that took to be told.
fn fault(error: &Error) -> HttpsFault {
    let Error::Failed(failed) = error else { panic!("{error}") };
    match failed.cause() {
        Some(Cause::DnsOverHttps(fault)) => fault,
        other => panic!("{error}: {other:?}"),
    }
}

#[test]
fn both_families_are_asked_for_over_connections_that_are_kept() {
    let (doh, engine) = asking(here);
    let website = website();
    for round in 0..3 {
        let by = get(&engine, &format!("app{round}.test"), &website).unwrap();
        assert_eq!(by, [Answerer::Https(None)]);
    }
    let asked = doh.asked.lock().unwrap().clone();
    let mut pairs: Vec<_> = asked.iter().map(|it| (it.name.clone(), it.is_four)).collect();
    pairs.sort();
    let expected =
        (0..3).flat_map(|round| [false, true].map(|four| (format!("app{round}.test"), four)));
    assert_eq!(pairs, expected.collect::<Vec<_>>());
    assert!(doh.connections() <= 2, "{}", doh.connections());
    let Asked { head, message, .. } = &asked[0];
    assert!(head.starts_with("POST /dns-query HTTP/1.1\r\n"), "{head}");
    for field in ["content-type: application/dns-message", "accept: application/dns-message"] {
        assert!(head.contains(&format!("{field}\r\n")), "{head}");
    }
    assert!(!head.contains("accept-encoding"), "{head}");
    // Its number is 0, and the server is to ask others.
    assert_eq!(message[..6], [0, 0, 1, 0, 0, 1]);
}

#[test]
fn by_get_the_same_question_has_the_same_url() {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "dns.test", &[], here);
    let website = website();
    for _ in 0..2 {
        let server = doh.options().by_get();
        let engine = builder(&authority).dns_over_https(server).start().unwrap();
        get(&engine, "www.example.test", &website).unwrap();
    }
    let mut heads: Vec<_> = doh.asked.lock().unwrap().iter().map(|it| it.head.clone()).collect();
    heads.sort();
    assert_eq!((&heads[0], &heads[2]), (&heads[1], &heads[3]));
    // RFC 8484 §4.1.1, with EDNS and another name: the message's number is 0.
    assert!(heads[0].starts_with("GET /dns-query?dns=AAABAAABAAAAAAABA3d3dw"), "{}", heads[0]);
    assert!(heads[0].contains("accept: application/dns-message\r\n"), "{}", heads[0]);
    assert!(!heads.iter().any(|head| head.contains("content-")));
    let url = format!("https://dns.test:{}/ask?who=me{{&dns}}", doh.address.port());
    let server = DnsOverHttps::new(&url).unwrap().addresses(HERE.to_vec()).by_get();
    let engine = builder(&authority).dns_over_https(server).start().unwrap();
    get(&engine, "other.test", &website).unwrap();
    let head = doh.asked.lock().unwrap().last().unwrap().head.clone();
    assert!(head.starts_with("GET /ask?who=me&dns=AAAB"), "{head}");
}

#[test]
#[cfg(feature = "http2")]
fn names_are_asked_for_by_get_over_http_2() {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "dns.test", &[b"h2"], here);
    let server = doh.options().by_get();
    let engine = builder(&authority).dns_over_https(server).start().unwrap();
    get(&engine, "app.test", &website()).unwrap();
    assert_eq!((doh.names(), doh.connections()), (vec!["app.test".to_owned(); 2], 1));
}

#[test]
fn the_timeline_and_the_report_say_who_answered() {
    let (_doh, engine) = asking(here);
    let website = website();
    let url = format!("http://app.test:{}/", website.address.port());
    let mut response = engine.client().get(&url).send().unwrap();
    response.body().bytes(100).unwrap();
    let report = response.body().report().unwrap();
    let told: Vec<String> =
        towpath::timeline::entries(report).into_iter().map(|entry| entry.what).collect();
    assert!(told.contains(&"1 address by DNS over HTTPS".to_owned()), "{told:?}");
    let json = towpath::report::to_json(report);
    assert!(json.contains("\"addresses\":1,\"by\":\"https\",\"failure\":null"), "{json}");
}

#[test]
#[cfg(feature = "http2")]
fn many_names_are_asked_for_over_one_connection_of_http_2() {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "dns.test", &[b"h2"], here);
    let engine = builder(&authority).dns_over_https(doh.options()).start().unwrap();
    let website = website();
    get(&engine, "first.test", &website).unwrap();
    std::thread::scope(|scope| {
        for number in 0..20 {
            let (engine, website) = (&engine, &website);
            scope.spawn(move || get(engine, &format!("app{number}.test"), website).unwrap());
        }
    });
    assert_eq!((doh.names().len(), doh.connections()), (42, 1));
}

#[test]
fn what_is_not_of_dns_and_the_server_s_own_name_are_the_system_s() {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "localhost", &[], here);
    let url = format!("https://localhost:{}/dns-query{{?dns}}", doh.address.port());
    let server = DnsOverHttps::new(&url).unwrap();
    let engine = builder(&authority).dns_over_https(server).start().unwrap();
    let website = website();
    for (name, by) in [("localhost", vec![Answerer::System]), ("127.0.0.1", vec![])] {
        assert_eq!(get(&engine, name, &website).unwrap(), by, "{name}");
    }
    assert_eq!(doh.names(), Vec::<String>::new());
    assert_eq!(get(&engine, "app.test", &website).unwrap(), [Answerer::Https(None)]);
    assert_eq!(doh.names(), ["app.test"; 2]);
}

#[test]
#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn a_server_whose_own_name_is_not_known_is_not_asked_for_it() {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "dns.test", &[], here);
    let (dns, asked) = plain(3, &[]);
    let url = format!("https://DNS.test.:{}/", doh.address.port());
    let server = DnsOverHttps::new(&url).unwrap();
    let engine = builder(&authority).dns_servers([dns]).dns_over_https(server).start().unwrap();
    let error = get(&engine, "app.test", &website()).unwrap_err();
    let why = HttpsFault::Request(Failed::Resolve(Failure::NoSuchName));
    assert_eq!(fault(&error), why);
    assert!(
        matches!(&error, Error::Failed(it) if it.why() == Failed::Resolve(Failure::Unreachable))
    );
    assert!(asked.load(Ordering::SeqCst) >= 2, "the system was");
    assert_eq!(doh.connections(), 0);
}

#[test]
fn a_name_that_does_not_exist_is_told_at_once() {
    let (doh, engine) = asking(|asked| Say::Answer(200, DNS, answer(&asked.message, 3, &[])));
    let error = get(&engine, "app.test", &website()).unwrap_err();
    assert!(
        matches!(&error, Error::Failed(it) if it.why() == Failed::Resolve(Failure::NoSuchName))
    );
    assert!(error.source().is_none(), "nothing went wrong");
    // One that has no addresses is like that.
    assert_eq!(doh.names().len(), 2);
    let (_doh, engine) = asking(|asked| Say::Answer(200, DNS, answer(&asked.message, 0, &[])));
    let error = get(&engine, "app.test", &website()).unwrap_err();
    assert!(
        matches!(&error, Error::Failed(it) if it.why() == Failed::Resolve(Failure::NoSuchName))
    );
}

#[test]
fn an_answer_that_is_none_ends_the_request_and_says_why() {
    let good = |asked: &Asked| answer(&asked.message, 0, HERE);
    type Bad = (fn(&Asked) -> Say, HttpsFault);
    let answers: [Bad; 10] = [
        (|_| Say::Answer(404, DNS, vec![]), HttpsFault::Status(404)),
        (|_| Say::Answer(302, DNS, vec![]), HttpsFault::Status(302)),
        (|_| Say::Answer(200, "text/html", b"<p>".to_vec()), HttpsFault::ContentType),
        (|_| Say::Endless, HttpsFault::TooLong),
        (|_| Say::Answer(200, DNS, vec![0; 65_536]), HttpsFault::TooLong),
        (|_| Say::Answer(200, DNS, vec![]), HttpsFault::Malformed),
        (|asked| Say::Answer(200, DNS, asked.message.clone()), HttpsFault::Malformed),
        (|asked| Say::Answer(200, DNS, answer(&asked.message, 1 << 9, &[])), HttpsFault::Truncated),
        (|asked| Say::Answer(200, DNS, answer(&asked.message, 5, &[])), HttpsFault::Code(5)),
        (
            |asked| {
                // Of another name.
                let mut other = answer(&asked.message, 0, HERE);
                other[13] ^= 1;
                Say::Answer(200, DNS, other)
            },
            HttpsFault::Malformed,
        ),
    ];
    let website = website();
    for (say, why) in answers {
        let (_doh, engine) = asking(say);
        let error = get(&engine, "app.test", &website).unwrap_err();
        assert_eq!(fault(&error), why);
        assert!(error.timed_out().is_none(), "{why:?}: nothing is waited for");
        let said = error.source().unwrap().to_string();
        assert!(said.starts_with("no addresses by DNS over HTTPS: "), "{said}");
    }
    // Good ones that are cut off anywhere, or damaged before their address.
    let (_doh, engine) = asking(move |asked| {
        let mut message = good(asked);
        let at = asked.number / 2;
        if asked.number % 2 == 0 {
            message.truncate(at % 50);
        } else {
            message[at % 28] ^= 0xff;
        }
        Say::Answer(200, "Application/DNS-Message; x=y", message)
    });
    for number in 0..60 {
        let url = format!("http://app{number}.test:1/");
        let limit = Duration::from_millis(40);
        assert!(engine.client().get(&url).connect_timeout(limit).retries(0).send().is_err());
    }
}

#[test]
fn a_server_that_cannot_tell_is_asked_again_after_a_pause() {
    let cannot = |asked: &Asked| match asked.name.as_str() {
        "failing.test" => Say::Answer(200, DNS, answer(&asked.message, 2, &[])),
        "busy.test" => Say::Answer(500, "text/plain", b"busy".to_vec()),
        _ if asked.number < 2 => Say::Answer(200, DNS, answer(&asked.message, 2, &[])),
        _ => here(asked),
    };
    let (doh, engine) = asking(cannot);
    let website = website();
    assert_eq!(get(&engine, "later.test", &website).unwrap().last(), Some(&Answerer::Https(None)));
    for (name, why) in
        [("failing.test", HttpsFault::Code(2)), ("busy.test", HttpsFault::Status(500))]
    {
        let before = doh.names().len();
        let url = format!("http://{name}:{}/", website.address.port());
        let began = Instant::now();
        let request = engine.client().get(&url).timeout(Duration::from_millis(1700));
        let error = request.send().unwrap_err();
        assert_eq!((fault(&error), error.timed_out()), (why, Some(Layer::Total)));
        assert!(began.elapsed() >= Duration::from_millis(1600));
        let asked = doh.names().len() - before;
        assert!((2..=6).contains(&asked), "{asked} questions for {name} in 1.7 s");
    }
}

#[test]
fn a_server_that_says_nothing_has_its_time_alone() {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "dns.test", &[], |_| Say::Silence);
    let server = doh.options().timeout(Duration::from_millis(300));
    let engine = builder(&authority).dns_over_https(server).start().unwrap();
    let url = "http://app.test:1/";
    let error = engine.client().get(url).timeout(Duration::from_millis(600)).send().unwrap_err();
    assert_eq!(fault(&error), HttpsFault::Request(Failed::TimedOut(Layer::Total)));
}

#[test]
fn a_family_without_an_answer_holds_the_other_up_for_a_moment() {
    for (lost_is_four, most) in
        [(false, Duration::from_millis(900)), (true, Duration::from_secs(4))]
    {
        let (_doh, engine) = asking(move |asked| match asked.is_four == lost_is_four {
            true => Say::Silence,
            false if asked.is_four => here(asked),
            false => Say::Answer(200, DNS, answer(&asked.message, 0, &["::1".parse().unwrap()])),
        });
        let began = Instant::now();
        let website = Server::new(|_, _| {});
        let url = format!("http://app.test:{}/", website.address.port());
        let ended = engine.client().get(&url).retries(0).timeout(Duration::from_secs(3)).send();
        let report = ended.as_ref().unwrap_err().report().unwrap();
        assert_eq!(report.lookups[0].outcome, Some(Ok(1)), "{lost_is_four}");
        let took = report.lookups[0].answered.unwrap() - report.lookups[0].asked;
        assert!(took < most, "{took:?}");
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_connection_that_breaks_is_no_failure_of_the_name() {
    let (doh, engine) = asking(|asked| if asked.number < 2 { Say::Hangup } else { here(asked) });
    assert_eq!(get(&engine, "app.test", &website()).unwrap(), [Answerer::Https(None)]);
    assert!(doh.connections() > 2);
}

#[test]
fn a_server_that_is_not_to_be_believed_is_not_asked() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let doh = Doh::new(&theirs, "dns.test", &[], here);
    let engine = builder(&ours).dns_over_https(doh.options()).start().unwrap();
    let error = get(&engine, "app.test", &website()).unwrap_err();
    let why = Failed::Tls(Fault::Certificate(Distrust::UnknownIssuer));
    assert_eq!(fault(&error), HttpsFault::Request(why));
    assert_eq!(doh.names(), Vec::<String>::new());
}

#[test]
#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn the_system_stands_in_where_that_is_wanted_alone() {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "dns.test", &[], |_| Say::Answer(403, "text/plain", vec![]));
    let (dns, asked) = plain(0, HERE);
    let website = website();
    let start = |server| builder(&authority).dns_servers([dns]).dns_over_https(server).start();
    let strict = start(doh.options()).unwrap();
    assert_eq!(fault(&get(&strict, "app.test", &website).unwrap_err()), HttpsFault::Status(403));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let lenient = start(doh.options().or_system()).unwrap();
    assert_eq!(get(&lenient, "app.test", &website).unwrap(), [Answerer::System]);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn an_app_that_is_asked_passes_on_what_it_does_not_know() {
    let authority = Authority::new("ours");
    let doh = Doh::new(&authority, "dns.test", &[], here);
    let engine = builder(&authority)
        .dns_over_https(doh.options())
        .questions(|question| match question.name() {
            "own.test" => question.answer(Ok(HERE.to_vec())),
            _ => question.pass_on(),
        })
        .start()
        .unwrap();
    let website = website();
    assert_eq!(get(&engine, "own.test", &website).unwrap(), [Answerer::App]);
    assert_eq!(get(&engine, "other.test", &website).unwrap(), [Answerer::Https(None)]);
    assert_eq!(doh.names(), ["other.test"; 2]);
    let engine = Engine::builder().questions(towpath::Question::pass_on).start().unwrap();
    assert_eq!(get(&engine, "localhost", &website).unwrap(), [Answerer::System]);
}

#[test]
fn links_ask_as_well() {
    let (doh, engine) = asking(here);
    let (sender, connected) = std::sync::mpsc::channel();
    let server = Server::new(move |_, _| sender.send(()).unwrap_or_default());
    let link = engine.link(&format!("tcp://link.test:{}", server.address.port())).open().unwrap();
    connected.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(doh.names(), ["link.test"; 2]);
    drop(link);
}

#[test]
fn a_url_that_cannot_be_asked_is_refused() {
    for url in ["http://dns.test/dns-query", "dns.test", "https://", "ftp://dns.test/"] {
        assert!(matches!(DnsOverHttps::new(url), Err(Error::Url(_))), "{url}");
    }
}
