//! Answers that name another place, followed in each way of waiting.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use towpath::request::Handler;
use towpath::{Chunk, Engine, Error, Layer, Report, Response};

use crate::block_on::block_on;
use crate::server::{Server, answer, read_head};

type Seen = Arc<Mutex<Vec<String>>>;

/// Sends `/from` to `to`, and tells of all else what it was asked for.
fn server(to: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) -> (Server, Seen) {
    let seen = Seen::default();
    let theirs = Arc::clone(&seen);
    let server = Server::new(move |stream, _| {
        while let Some(head) = read_head(stream) {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            theirs.lock().unwrap().push(head);
            match to(&path) {
                Some((status, place)) => {
                    let field = format!("Location: {place}\r\n");
                    answer(stream, &format!("{status} There"), &field, b"look there");
                }
                None => answer(stream, "200 OK", "", format!("this is {path}").as_bytes()),
            }
        }
    });
    (server, seen)
}

fn twice() -> (Server, Seen) {
    server(|path| match path {
        "/from" => Some((302, "between?a=b".to_owned())),
        "/between?a=b" => Some((307, "../to".to_owned())),
        _ => None,
    })
}

#[test]
fn it_is_followed_whichever_way_is_waited() {
    let (server, seen) = twice();
    let engine = Engine::new().unwrap();
    let get = || engine.client().get(&server.url("/from"));
    let check = |mut response: Response| {
        assert_eq!(response.status(), 200);
        let hops: Vec<(u16, String)> =
            response.redirects().iter().map(|one| (one.status(), one.url().to_owned())).collect();
        let places = [(302, server.url("/between?a=b")), (307, server.url("/to"))];
        assert_eq!(hops, places);
        let report = response.redirects()[0].report().unwrap();
        assert_eq!(report.record.status, 302);
        assert_eq!(response.body().bytes(100).unwrap(), "this is /to");
    };
    check(get().send().unwrap());
    check(block_on(get().send_async()).unwrap());
    assert_eq!(seen.lock().unwrap().len(), 6);
    assert_eq!(
        server.connections(),
        1,
        "the answers are read, so that their connection is used again"
    );
    let none = get().redirects(0).send().unwrap();
    assert_eq!((none.status(), none.header("location")), (302, Some("between?a=b")));
}

/// Tells what a handler hears.
struct Told(mpsc::Sender<String>);

impl Handler for Told {
    fn on_head(&mut self, response: Response) {
        let redirects = response.redirects().len();
        let _ = self.0.send(format!("head {} after {redirects}", response.status()));
    }

    fn on_data(&mut self, chunk: Chunk) {
        let _ = self.0.send(String::from_utf8(chunk.to_vec()).unwrap());
    }

    fn on_end(&mut self, outcome: Result<(), Error>, report: Option<&Report>) {
        let _ = self.0.send(format!("end {:?} {}", outcome.is_ok(), report.is_some()));
    }
}

#[test]
fn a_handler_hears_of_the_last_answer_alone() {
    let (server, _) = twice();
    let engine = Engine::new().unwrap();
    let (tell, told) = mpsc::channel();
    engine.client().get(&server.url("/from")).send_with(Told(tell)).unwrap();
    let all: Vec<String> = told.iter().collect();
    assert_eq!(all, ["head 200 after 2", "this is /to", "end true true"]);
}

#[test]
fn a_handler_s_request_is_given_up_wherever_it_is() {
    let (tell_hop, hop) = mpsc::channel();
    let tell_hop = Mutex::new(tell_hop);
    let server = Server::new(move |stream, _| {
        while let Some(head) = read_head(stream) {
            if head.starts_with("GET /from") {
                answer(stream, "302 There", "Location: /hangs\r\n", b"");
            } else {
                tell_hop.lock().unwrap().send(()).unwrap();
            }
        }
    });
    let engine = Engine::new().unwrap();
    let (tell, told) = mpsc::channel();
    let canceller = engine.client().get(&server.url("/from")).send_with(Told(tell)).unwrap();
    hop.recv_timeout(PATIENCE).unwrap();
    canceller.cancel();
    let all: Vec<String> = told.iter().collect();
    assert_eq!(all, ["end false true"]);
}

#[test]
fn loops_have_an_end_and_so_has_the_time() {
    let (server, seen) = server(|path| Some((302, format!("{path}x"))));
    let engine = Engine::new().unwrap();
    let get = || engine.client().get(&server.url("/"));
    let error = get().redirects(5).send().unwrap_err();
    assert!(matches!(error, Error::Redirect(_)), "{error:?}");
    assert_eq!(seen.lock().unwrap().len(), 6);
    let slow = Server::new(|stream, _| {
        while read_head(stream).is_some() {
            std::thread::sleep(Duration::from_millis(60));
            answer(stream, "302 There", "Location: /again\r\n", b"");
        }
    });
    let limited = engine.client().get(&slow.url("/")).timeout(Duration::from_millis(200));
    assert_eq!(limited.send().unwrap_err().timed_out(), Some(Layer::Total));
}

#[test]
fn another_origin_learns_no_secrets_and_a_post_becomes_a_get() {
    let (there, seen) = server(|_| None);
    let place = there.url("/there");
    let (here, _) = server(move |_| Some((303, place.clone())));
    let engine = Engine::new().unwrap();
    let request = engine.client().post(&here.url("/"), "a body");
    let request =
        request.header("Authorization", "Basic eA==").header("Cookie", "a=b").header("X-Own", "1");
    assert_eq!(request.send().unwrap().status(), 200);
    let head = seen.lock().unwrap()[0].to_ascii_lowercase();
    assert!(head.starts_with("get /there http/1.1\r\n"), "{head}");
    for secret in ["authorization", "cookie", "content-length"] {
        assert!(!head.contains(secret), "{secret} in {head}");
    }
    assert!(head.contains("x-own: 1\r\n"), "{head}");
}

const PATIENCE: Duration = Duration::from_secs(30);
