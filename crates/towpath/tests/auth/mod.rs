//! A server that asks for credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use towpath::Engine;
use towpath::auth::{Challenge, Credentials};

use crate::block_on::block_on;
use crate::server::{Server, answer, read_request};

/// Lets those in who say this, and counts whom it asks.
fn guarded(asks: &'static str, wants: &'static str) -> (Server, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            if request.contains(&format!("authorization: {wants}")) {
                let body = request.split_once("\r\n\r\n").unwrap().1;
                answer(stream, "200 OK", "", format!("in{body}").as_bytes());
            } else {
                count.fetch_add(1, Ordering::SeqCst);
                answer(
                    stream,
                    "401 Unauthorized",
                    &format!("WWW-Authenticate: {asks}\r\n"),
                    b"who?",
                );
            }
        }
    });
    (server, asked)
}

fn mine(challenge: &Challenge) -> Option<Credentials> {
    (challenge.host() == "127.0.0.1").then(|| Credentials::password("Aladdin", "open sesame"))
}

#[test]
fn credentials_are_sent_when_they_are_asked_for() {
    let (server, asked) = guarded("Basic realm=\"x\"", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n");
    let engine = Engine::new().unwrap();
    let client = engine.client().authenticate(mine);
    let mut response = client.post(&server.url("/"), "body").send().unwrap();
    assert_eq!((response.status(), response.body().text(9).unwrap()), (200, "inbody".to_owned()));
    assert_eq!(response.redirects().len(), 1);
    assert_eq!(
        (response.redirects()[0].status(), response.redirects()[0].report().is_some()),
        (401, true)
    );
    assert_eq!(block_on(client.get(&server.url("/")).send_async()).unwrap().status(), 200);
    assert_eq!(asked.load(Ordering::SeqCst), 2, "it is asked each time");
    assert_eq!(engine.client().get(&server.url("/")).send().unwrap().status(), 401);
    let elsewhere = client.authenticate(|challenge| {
        assert!(!challenge.is_of("https://127.0.0.1/") && !challenge.is_of("nonsense"));
        challenge.is_of("http://127.0.0.1/").then(|| Credentials::bearer("x"))
    });
    assert_eq!(elsewhere.get(&server.url("/")).send().unwrap().status(), 401, "another port");
    let unknown = engine.client().authenticate(|_| None).get(&server.url("/")).send().unwrap();
    assert_eq!((unknown.status(), unknown.into_body().text(9).unwrap()), (401, "who?".to_owned()));
    let upload = client.request("PUT", &server.url("/")).upload(Some(0)).unwrap();
    assert_eq!(upload.finish().unwrap().status(), 401, "what is gone cannot be sent again");
}

#[test]
fn a_wrong_answer_is_not_given_for_ever() {
    let (server, asked) = guarded("Bearer realm=\"x\"", "Bearer right\r\n");
    let client = Engine::new().unwrap().client();
    let wrong = client.authenticate(|_| Some(Credentials::bearer("wrong")));
    assert_eq!(wrong.get(&server.url("/")).send().unwrap().status(), 401);
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    let second = client.authenticate(|challenge| {
        Some(Credentials::bearer(if challenge.attempt() == 0 { "old" } else { "right" }))
    });
    assert_eq!(second.get(&server.url("/")).send().unwrap().status(), 200);
    let other = client.authenticate(|_| Some(Credentials::password("a", "b")));
    assert_eq!(
        other.get(&server.url("/")).send().unwrap().status(),
        401,
        "Bearer takes no password"
    );
}

#[test]
fn a_password_is_proved_where_the_server_offers_that() {
    let asks = "Basic realm=\"x\", Digest realm=\"x\", nonce=\"n\", qop=\"auth\", algorithm=MD5, \
                Digest realm=\"x\", nonce=\"n\", qop=\"auth\", algorithm=SHA-256";
    let (server, _) =
        guarded(asks, "Digest username=\"Aladdin\", realm=\"x\", nonce=\"n\", uri=\"/a?b\"");
    let client = Engine::new().unwrap().client().authenticate(mine);
    assert_eq!(client.get(&server.url("/a?b")).send().unwrap().status(), 200);
}
