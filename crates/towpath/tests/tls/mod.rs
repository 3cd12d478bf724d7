//! The library against TLS servers on loopback.

use std::io::Write;
use std::net::{IpAddr, TcpListener};
use std::time::Duration;

use towpath::{Engine, Error, Tls};
use towpath_engine::local::message::Error as Failed;
use towpath_proto::Failure;
use towpath_proto::tls::{Distrust, Fault};

use crate::authority::Authority;

fn engine(tls: Tls) -> Engine {
    let loopback = |_: &str| Ok::<_, Failure>(vec![IpAddr::from([127, 0, 0, 1])]);
    Engine::builder().tls(tls).resolver(loopback).start().unwrap()
}

fn refused(engine: &Engine, url: &str) -> Failed {
    let error = engine.client().get(url).send().unwrap_err();
    // A refusal does not wait: else it is a limit on time that passed.
    let Error::Failed(failed) = error else { panic!("{error}") };
    failed.why()
}

#[test]
fn a_server_that_is_trusted_answers_on_a_connection_that_is_kept() {
    let authority = Authority::new("ours");
    let address = authority.serve("app.test");
    let engine = engine(Tls::new().roots(authority.issuer.pem()));
    let url = format!("https://app.test:{}/", address.port());
    for round in 0..3 {
        let mut response = engine.client().get(&url).send().unwrap();
        assert_eq!(response.body().bytes(100).unwrap(), "secret");
        let report = response.body().report().unwrap();
        assert_eq!(report.tries[0].reused, round > 0);
    }
}

#[test]
fn a_server_that_is_not_trusted_is_refused_and_the_reason_is_told() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let address = theirs.serve("app.test");
    let engine = engine(Tls::new().roots(ours.issuer.pem()));
    let why = refused(&engine, &format!("https://app.test:{}/", address.port()));
    assert_eq!(why, Failed::Tls(Fault::Certificate(Distrust::UnknownIssuer)));
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new("ours");
    let address = authority.serve("other.test");
    let engine = engine(Tls::new().roots(authority.issuer.pem()));
    let why = refused(&engine, &format!("https://app.test:{}/", address.port()));
    assert_eq!(why, Failed::Tls(Fault::Certificate(Distrust::Name)));
}

#[test]
fn a_key_that_is_not_pinned_is_refused() {
    let authority = Authority::new("ours");
    let address = authority.serve("app.test");
    let engine = engine(Tls::new().roots(authority.issuer.pem()).pin([7; 32]));
    let why = refused(&engine, &format!("https://app.test:{}/", address.port()));
    assert_eq!(why, Failed::Tls(Fault::Certificate(Distrust::Pin)));
}

#[test]
fn a_server_without_tls_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            // Until the client hangs up: what is not read would end the connection with a reset.
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    let engine = engine(Tls::new().roots(Authority::new("ours").issuer.pem()));
    let why = refused(&engine, &format!("https://app.test:{port}/"));
    assert_eq!(why, Failed::Tls(Fault::NotTls));
    let broken = Engine::builder().tls(Tls::new().roots("no certificate")).start().unwrap();
    let failed = broken.client().get(&format!("https://127.0.0.1:{port}/")).send();
    assert!(matches!(failed, Err(Error::Tls(_))));
}
