//! A client that asks hosts under TLS alone which want it.

use std::net::IpAddr;

use towpath::hsts::Hosts;
use towpath::{Client, Engine, Response, Tls};
use towpath_proto::Failure;

use crate::authority::Authority;
use crate::block_on::block_on;
use crate::server::{Server, answer, read_request};

fn client(authority: &Authority, hosts: &Hosts) -> Client {
    let loopback = |_: &str| Ok::<_, Failure>(vec![IpAddr::from([127, 0, 0, 1])]);
    let tls = Tls::new().roots(authority.issuer.pem());
    Engine::builder().tls(tls).resolver(loopback).start().unwrap().client().hsts(hosts)
}

fn told(response: &Response) -> bool {
    response.history().iter().any(|entry| entry.what == "HSTS: https in place of http")
}

#[test]
fn what_a_host_says_once_holds_for_requests_and_redirects() {
    let (authority, hosts) = (Authority::new("ours"), Hosts::new());
    let port = authority.serve("app.test").port();
    let client = client(&authority, &hosts);
    let (plain, secure) = (format!("http://app.test:{port}/"), format!("https://app.test:{port}/"));
    let unknown = client.get(&plain).retries(0).send();
    assert!(unknown.is_err(), "it speaks TLS alone");
    let mut first = client.get(&secure).send().unwrap();
    assert_eq!((first.body().bytes(99).unwrap(), told(&first)), ("secret".into(), false));
    assert!(hosts.contains("app.test"));
    let mut then = client.get(&plain).send().unwrap();
    assert_eq!((then.body().bytes(99).unwrap(), told(&then)), ("secret".into(), true));
    let mut then = block_on(client.get(&plain).send_async()).unwrap();
    assert_eq!(block_on(then.body().bytes_async(99)).unwrap(), "secret");
    let upload = client.request("PUT", &plain).upload(Some(0)).unwrap().finish().unwrap();
    assert!(told(&upload));
    let elsewhere = Server::new(move |stream, _| {
        while read_request(stream).is_some() {
            let fields = format!("Strict-Transport-Security: max-age=9\r\nLocation: {plain}\r\n");
            answer(stream, "302 There", &fields, b"");
        }
    });
    let from = elsewhere.url("/").replace("127.0.0.1", "other.test");
    let mut followed = client.get(&from).send().unwrap();
    assert_eq!(followed.body().bytes(99).unwrap(), "secret");
    assert_eq!(followed.redirects()[0].url(), secure);
    assert!(!hosts.contains("other.test"), "what is said without TLS does not count");
}
