//! What an app puts between itself and the network.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use towpath::intercept::{Before, Interceptor};
use towpath::request::Handler;
use towpath::{Cache, Chunk, Engine, Error, Report, Request, Response};

use crate::block_on::block_on;
use crate::coding::gzip;
use crate::server::{Server, answer, read_request};

/// Notes what passes, under a name.
#[derive(Clone)]
struct Noting(&'static str, Arc<Mutex<Vec<String>>>);

impl Noting {
    fn note(&self, what: &str) {
        self.1.lock().unwrap().push(format!("{} {what}", self.0));
    }
}

impl Interceptor for Noting {
    fn before(&self, request: Request) -> Result<Before, Error> {
        let url = request.url()?;
        let path = url.splitn(4, '/').nth(3).unwrap();
        self.note(&format!("{} /{path}", request.method()));
        let is_complete = request.headers().any(|(name, _)| name == "accept-encoding");
        if is_complete {
            self.note("sees what the library says");
        }
        Ok(Before::Send(request.header("x-by", self.0)))
    }

    fn after(&self, _: &Request, response: &mut Response) -> Result<(), Error> {
        let coding = response.header("content-encoding").unwrap_or("plain").to_owned();
        self.note(&format!("{} {coding}", response.status()));
        response.set_header("x-seen", self.0)
    }
}

/// Does one thing for each path.
struct Doing;

impl Interceptor for Doing {
    fn before(&self, request: Request) -> Result<Before, Error> {
        match request.url()?.rsplit('/').next() {
            Some("answered") => {
                let fields = [("Content-Type", "text/plain"), ("X-A", "1"), ("X-A", "2")];
                Ok(Before::Answer(Response::local(203, fields, "from here")?))
            }
            Some("refused") => Err(Error::Status(451)),
            Some("panic") => panic!("this panic is a part of the test"),
            Some("elsewhere") => {
                let url = request.url()?.replace("elsewhere", "there");
                Ok(Before::Send(request.with_url(&url).remove_header("x-secret")))
            }
            _ => Ok(Before::Send(request)),
        }
    }

    fn after(&self, request: &Request, response: &mut Response) -> Result<(), Error> {
        if request.url()?.ends_with("/replaced") {
            assert_eq!(response.status(), 200);
            *response = Response::local(206, [], "in its place")?;
        }
        if request.url()?.ends_with("/late") {
            return Err(Error::Status(response.status()));
        }
        response.remove_header("x-hidden");
        Ok(())
    }
}

fn server() -> (Server, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let server = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            log.lock().unwrap().push(request.clone());
            let fields = "Cache-Control: max-age=60\r\nX-Hidden: yes\r\n";
            match request.split(' ').nth(1).unwrap() {
                "/moved" => answer(stream, "302 There", "Location: /coded\r\n", b""),
                "/coded" => {
                    let fields = format!("{fields}Content-Encoding: gzip\r\n");
                    answer(stream, "200 OK", &fields, &gzip(b"plain text"));
                }
                _ => answer(stream, "200 OK", fields, b"from there"),
            }
        }
    });
    (server, seen)
}

/// What came, waited for in one of three ways: status, `x-hidden` and text.
fn ask(request: Request, how: usize) -> Result<(u16, Option<String>, String), Error> {
    let of = |it: &Response| (it.status(), it.header("x-hidden").map(str::to_owned));
    match how {
        0 => {
            let mut response = request.send()?;
            let (status, hidden) = of(&response);
            Ok((status, hidden, response.body().text(999)?))
        }
        1 => block_on(async {
            let mut response = request.send_async().await?;
            let (status, hidden) = of(&response);
            let body = response.body().bytes_async(999).await?;
            Ok((status, hidden, String::from_utf8(body.into()).unwrap()))
        }),
        _ => {
            let (tell, told) = mpsc::channel();
            request.send_with(Gather(None, String::new(), tell))?;
            told.recv_timeout(Duration::from_secs(30)).unwrap()
        }
    }
}

type Told = Result<(u16, Option<String>, String), Error>;
struct Gather(Option<(u16, Option<String>)>, String, mpsc::Sender<Told>);

impl Handler for Gather {
    fn on_head(&mut self, response: Response) {
        self.0 = Some((response.status(), response.header("x-hidden").map(str::to_owned)));
    }

    fn on_data(&mut self, chunk: Chunk) {
        self.1.push_str(std::str::from_utf8(&chunk).unwrap());
    }

    fn on_end(&mut self, outcome: Result<(), Error>, _: Option<&Report>) {
        let text = std::mem::take(&mut self.1);
        let told = outcome.map(|()| {
            let (status, hidden) = self.0.take().unwrap();
            (status, hidden, text)
        });
        self.2.send(told).unwrap();
    }
}

#[test]
fn both_places_are_asked_in_their_order_and_answers_in_the_other() {
    let (server, seen) = server();
    let noted = Arc::new(Mutex::new(Vec::new()));
    let noting = |name| Noting(name, Arc::clone(&noted));
    for how in 0..3 {
        noted.lock().unwrap().clear();
        let client = Engine::new().unwrap().client().cache(&Cache::in_memory(1 << 20));
        let client = client.intercept(noting("first")).intercept(noting("second"));
        let client = client.intercept_network(noting("network"));
        let get = || ask(client.get(&server.url("/moved")), how).unwrap();
        assert_eq!(get().2, "plain text");
        assert_eq!(
            noted.lock().unwrap().drain(..).collect::<Vec<_>>(),
            [
                "first GET /moved",
                "second GET /moved",
                "network GET /moved",
                "network sees what the library says",
                "network 302 plain",
                "network GET /coded",
                "network sees what the library says",
                "network 200 gzip",
                "second 200 plain",
                "first 200 plain",
            ]
        );
        assert_eq!(get().2, "plain text");
        let again = noted.lock().unwrap();
        assert!(again.contains(&"first 200 plain".to_owned()));
        assert!(!again.contains(&"network GET /coded".to_owned()), "it is in the cache: {again:?}");
    }
    let sent = seen.lock().unwrap();
    assert!(sent[0].contains("x-by: first\r\nx-by: second\r\n"), "{}", sent[0]);
    assert!(sent[0].contains("x-by: network\r\n"));
}

#[test]
fn they_answer_change_replace_and_refuse() {
    for place in ["app", "network"] {
        let (server, seen) = server();
        let client = Engine::new().unwrap().client();
        let client = match place {
            "app" => client.intercept(Doing),
            _ => client.intercept_network(Doing),
        };
        for how in 0..3 {
            let get = |path: &str| ask(client.get(&server.url(path)).header("X-Secret", "s"), how);
            assert_eq!(get("/answered").unwrap(), (203, None, "from here".to_owned()), "{place}");
            assert_eq!(get("/replaced").unwrap(), (206, None, "in its place".to_owned()));
            assert_eq!(get("/plain").unwrap(), (200, None, "from there".to_owned()));
            assert_eq!(get("/elsewhere").unwrap().2, "from there");
            assert_eq!(get("/refused"), Err(Error::Status(451)));
            assert_eq!(get("/late"), Err(Error::Status(200)));
            assert_eq!(get("/panic"), Err(Error::Handler));
        }
        let seen = seen.lock().unwrap();
        let of = |path: &str| seen.iter().filter(|it| it.contains(&format!(" {path} "))).count();
        assert_eq!((of("/answered"), of("/refused"), of("/there"), of("/late")), (0, 0, 3, 3));
        assert!(seen.iter().all(|it| it.contains("x-secret") != it.contains(" /there ")));
        drop(seen);
        let local = client.get(&server.url("/answered")).send().unwrap();
        assert!(local.history()[0].what.contains("an interceptor answers"));
        assert_eq!(local.headers().filter(|(name, _)| *name == b"x-a").count(), 2);
        let upload = client.request("PUT", &server.url("/plain")).upload(Some(1)).map(|mut it| {
            it.write("x").unwrap();
            it.finish().unwrap()
        });
        assert_eq!(upload.unwrap().header("x-hidden"), None);
        let upload = client.request("PUT", &server.url("/answered")).upload(None);
        assert!(matches!(upload, Err(Error::Upload(_))));
    }
    assert!(Response::local(99, [], "").is_err());
    assert!(Response::local(200, [("no token", "x")], "").is_err());
    let split = Response::local(200, [("x", "a\r\nb: c")], "").unwrap();
    assert_eq!((split.header("x"), split.header("b")), (Some("a  b: c"), None));
}

#[test]
fn progress_is_told_in_the_bytes_that_come() {
    let (server, _) = server();
    let client = Engine::new().unwrap().client();
    let mut response = client.get(&server.url("/coded")).send().unwrap();
    let coded = gzip(b"plain text").len() as u64;
    assert_eq!((response.body().expected(), response.body().received()), (Some(coded), 0));
    response.body().bytes(99).unwrap();
    assert_eq!(response.body().received(), coded);
}
