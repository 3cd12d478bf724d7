//! Proxies that ask for credentials.

use std::sync::atomic::{AtomicUsize, Ordering};

use towpath::auth::{Challenge, Credentials};
use towpath::{Chunk, Client, Handler, Report, Response};

use super::*;
use crate::block_on::block_on;

fn client(engine: &Engine, proxy: &str) -> Client {
    engine.client().proxies(Proxies::all(Proxy::new(proxy).unwrap()))
}

fn mine(challenge: &Challenge) -> Option<Credentials> {
    let is_meant = challenge.is_of_proxy() && challenge.schemes()[0].name() == "Basic";
    is_meant.then(|| Credentials::password("user", "pass"))
}

/// Tells the status, the redirects before it and the end.
struct Told(mpsc::Sender<String>);

impl Handler for Told {
    fn on_head(&mut self, response: Response) {
        let before: Vec<u16> = response.redirects().iter().map(|it| it.status()).collect();
        self.0.send(format!("{} {before:?}", response.status())).unwrap();
    }

    fn on_data(&mut self, _: Chunk) {}

    fn on_end(&mut self, outcome: Result<(), Error>, _: Option<&Report>) {
        self.0.send(format!("{outcome:?}")).unwrap();
    }
}

#[test]
fn a_tunnel_is_asked_for_again_with_what_the_app_says() {
    let authority = Authority::new("ours");
    let origin = authority.serve("app.test");
    let plain = Tunnels::to(origin, None);
    let secured = Tunnels::to(origin, Some(&authority));
    for (tunnels, scheme) in [(&plain, "http"), (&secured, "https")] {
        let engine = engine(&authority);
        let proxy = format!("{scheme}://proxy.test:{}", tunnels.address.port());
        let port = tunnels.address.port();
        let known = client(&engine, &proxy).authenticate_proxy(move |challenge| {
            assert_eq!((challenge.host(), challenge.port()), ("proxy.test", port));
            assert_eq!(challenge.is_secure(), scheme == "https");
            assert!(!challenge.is_of("https://app.test/"));
            assert_eq!(challenge.attempt(), 0);
            mine(challenge)
        });
        let mut first = known.post("https://app.test/", "body").send().unwrap();
        assert_eq!(first.body().bytes(100).unwrap(), "secret");
        assert_eq!(first.redirects().len(), 1);
        let told = &first.redirects()[0];
        assert_eq!((told.status(), told.url()), (407, "https://app.test/"));
        assert_eq!(told.report().unwrap().proxy_challenges, ["Basic realm=x"]);
        let mut second = known.get("https://app.test/").send().unwrap();
        assert_eq!(second.body().bytes(100).unwrap(), "secret");
        assert_eq!(second.redirects().len(), 0, "it is said from the beginning");
        assert_eq!(tunnels.asked.lock().unwrap().len(), 2);
        assert!(!tunnels.asked.lock().unwrap()[0].contains("authorization"));
        let count = |name: &str| tunnels.last().matches(name).count();
        assert_eq!(count("proxy-authorization: Basic dXNlcjpwYXNz\r\n"), 1);
        // What the proxy's URL says is wrong, and is not said beside.
        let wrong = proxy.replace("://", "://user:wrong@");
        let wrong = client(&engine, &wrong).authenticate_proxy(mine);
        let answered = block_on(wrong.get("https://app.test/").send_async()).unwrap();
        assert_eq!((answered.status(), answered.redirects().len()), (200, 1));
        let (sender, heard) = mpsc::channel();
        let other = client(&engine, &proxy).authenticate_proxy(mine);
        other.get("https://app.test/").send_with(Told(sender)).unwrap();
        assert_eq!(heard.recv().unwrap(), "200 [407]");
        assert_eq!(heard.recv().unwrap(), "Ok(())");
    }
}

#[test]
fn a_tunnel_that_is_always_refused_is_asked_for_a_few_times() {
    let authority = Authority::new("ours");
    let tunnels = Tunnels::to(authority.serve("app.test"), None);
    let engine = engine(&authority);
    let client = client(&engine, &format!("http://proxy.test:{}", tunnels.address.port()));
    let asked = || std::mem::take(&mut *tunnels.asked.lock().unwrap()).len();
    let refused = Failed::Proxy(Refusal::Credentials);
    let wrong = client.authenticate_proxy(|_| Some(Credentials::password("a", "b")));
    assert_eq!(why(wrong.get("https://app.test/").send().unwrap_err()), refused);
    assert_eq!(asked(), 4);
    let other = client.authenticate_proxy(|_| Some(Credentials::bearer("x")));
    assert_eq!(why(other.get("https://app.test/").send().unwrap_err()), refused);
    assert_eq!(asked(), 4, "the app may know of more than it is asked for");
    let without = client.authenticate_proxy(|_| None);
    assert_eq!(why(without.get("https://app.test/").send().unwrap_err()), refused);
    assert_eq!(asked(), 1);
    let second = client.authenticate_proxy(|challenge| {
        let password = if challenge.attempt() < 2 { "wrong" } else { "pass" };
        Some(Credentials::password("user", password))
    });
    assert_eq!(second.get("https://app.test/").send().unwrap().redirects().len(), 3);
    let upload = without.request("PUT", "https://app.test/").upload(Some(0)).unwrap();
    assert_eq!(why(upload.finish().unwrap_err()), refused);
    // A mistake of the app's ends its request and no other.
    let (sender, heard) = mpsc::channel();
    let broken = client.authenticate_proxy(|_| panic!("the app's mistake"));
    broken.get("https://app.test/").send_with(Told(sender)).unwrap();
    assert_eq!(heard.recv().unwrap(), "Err(Handler)");
    assert!(second.get("https://app.test/").send().is_ok());
}

#[test]
fn what_is_forwarded_is_sent_again_with_what_the_app_says() {
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    let proxy = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            let proves = "proxy-authorization: Digest username=\"user\", realm=\"x\", nonce=\"n\", \
                uri=\"http://a.test/b?c\"";
            if request.contains("proxy-authorization: Basic dXNlcjpwYXNz\r\n")
                || request.contains(proves)
            {
                let body = request.split_once("\r\n\r\n").unwrap().1;
                answer(stream, "200 OK", "", format!("in {body}").as_bytes());
                continue;
            }
            asked.fetch_add(1, Ordering::SeqCst);
            let wants = if request.contains("/b?c") {
                "Proxy-Authenticate: Digest realm=\"x\", nonce=\"n\", qop=\"auth\"\r\n"
            } else {
                "Proxy-Authenticate: Basic realm=x\r\nWWW-Authenticate: Bearer\r\n"
            };
            answer(stream, "407 Who", wants, b"who?");
        }
    });
    let engine = Engine::new().unwrap();
    let address = format!("http://127.0.0.1:{}", proxy.address.port());
    let client = client(&engine, &address);
    let known = client
        .authenticate(|_| panic!("no server asks"))
        .authenticate_proxy(|_| Some(Credentials::password("user", "pass")));
    let mut first = known.post("http://a.test/", "body").send().unwrap();
    assert_eq!((first.status(), first.redirects()[0].status()), (200, 407));
    assert_eq!(first.body().text(9).unwrap(), "in body");
    assert_eq!(known.get("http://b.test/").send().unwrap().redirects().len(), 0);
    assert_eq!(count.load(Ordering::SeqCst), 1, "the second is not asked");
    let proved = client.authenticate_proxy(|_| Some(Credentials::password("user", "pass")));
    assert_eq!(proved.get("http://a.test/b?c").send().unwrap().status(), 200);
    assert_eq!(proved.get("http://a.test/").send().unwrap().redirects().len(), 1);
    let refused = client.authenticate_proxy(|_| None).get("http://a.test/").send().unwrap();
    assert_eq!((refused.status(), refused.into_body().text(9).unwrap()), (407, "who?".to_owned()));
    // A server that plays the proxy learns nothing.
    let direct = engine.client().authenticate_proxy(|_| panic!("no proxy asks"));
    assert_eq!(direct.get(&proxy.url("/")).send().unwrap().status(), 407);
}
