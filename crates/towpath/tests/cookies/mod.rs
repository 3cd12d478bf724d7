//! A client with a jar of cookies.

use towpath::cookies::Jar;
use towpath::request::Handler;
use towpath::{Chunk, Engine, Error, Report, Response};

use crate::block_on::block_on;
use crate::server::{Server, answer, read_request};

/// Sets a cookie at `/set`, and sends from `/to` there; says which it was sent.
fn server() -> Server {
    Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            let cookie = request.lines().find_map(|line| line.strip_prefix("cookie: "));
            let cookie = cookie.unwrap_or("none").to_owned();
            let path = request.split(' ').nth(1).unwrap();
            let (status, fields) = match path {
                "/set" => ("200 OK", "Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2; Max-Age=60\r\n"),
                "/to" => ("302 Found", "Location: /set\r\nSet-Cookie: way=3; Path=/\r\n"),
                _ => ("200 OK", ""),
            };
            answer(stream, status, fields, cookie.as_bytes());
        }
    })
}

#[test]
fn what_a_server_sets_is_sent_whichever_way_is_waited() {
    let (server, engine, jar) = (server(), Engine::new().unwrap(), Jar::new());
    let client = engine.client().cookies(&jar);
    let sent = |path: &str| client.get(&server.url(path)).send().unwrap().body().text(99).unwrap();
    assert_eq!(sent("/to"), "way=3", "the redirect's own cookie is sent to where it leads");
    assert_eq!(sent("/"), "way=3; a=1; b=2");
    let own = client.get(&server.url("/")).header("Cookie", "own=1").send().unwrap();
    assert_eq!(own.into_body().text(99).unwrap(), "own=1");
    let bare = engine.client().get(&server.url("/")).send().unwrap().body().text(99).unwrap();
    assert_eq!(bare, "none", "another client has no jar");
    jar.clear();
    let mut response = block_on(client.get(&server.url("/set")).send_async()).unwrap();
    assert_eq!(block_on(response.body().bytes_async(99)).unwrap(), "none");
    assert_eq!(jar.len(), 2);
    jar.clear();
    client.request("PUT", &server.url("/set")).upload(Some(0)).unwrap().finish().unwrap();
    assert_eq!(jar.len(), 2);
    jar.clear();
    let (done, end) = std::sync::mpsc::channel();
    client.get(&server.url("/set")).send_with(Done(done)).unwrap();
    end.recv().unwrap();
    assert_eq!(jar.len(), 2);
}

struct Done(std::sync::mpsc::Sender<()>);

impl Handler for Done {
    fn on_head(&mut self, _: Response) {}
    fn on_data(&mut self, _: Chunk) {}
    fn on_end(&mut self, outcome: Result<(), Error>, _: Option<&Report>) {
        outcome.unwrap();
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_client_s_own_fields_are_sent_where_the_request_has_none() {
    let server = Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            answer(stream, "200 OK", "", request.as_bytes());
        }
    });
    let client = Engine::new().unwrap().client().header("User-Agent", "app/1");
    let sent = |request: towpath::Request| request.send().unwrap().body().text(9999).unwrap();
    assert!(sent(client.get(&server.url("/"))).contains("user-agent: app/1\r\n"));
    let own = sent(client.get(&server.url("/")).header("user-agent", "own"));
    assert!(own.contains("user-agent: own\r\n") && !own.contains("app/1"), "{own}");
}
