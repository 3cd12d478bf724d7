//! Requests that are made of more than bytes, and responses that are read as more.

use serde_json::{Value, json};
use towpath::form::Form;
use towpath::{Engine, Error};

use crate::block_on::block_on;
use crate::server::{Server, answer, read_request};

/// Says what it was asked.
fn echo() -> Server {
    Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            let status = if request.starts_with("GET /gone") { "410 Gone" } else { "200 OK" };
            answer(stream, status, "", request.as_bytes());
        }
    })
}

fn asked(request: towpath::Request) -> String {
    request.send().unwrap().body().text(1 << 16).unwrap()
}

#[test]
fn queries_forms_and_names_are_written_as_servers_read_them() {
    let (server, engine) = (echo(), Engine::new().unwrap());
    let client = engine.client();
    let query = client.get(&server.url("/x?a=1")).query([("b c", "d&e")]).query([("f", "")]);
    assert!(asked(query).starts_with("GET /x?a=1&b+c=d%26e&f= HTTP/1.1\r\n"));
    let form = asked(client.request("POST", &server.url("/")).form([("a", "b c")]));
    assert!(form.contains("\r\ncontent-type: application/x-www-form-urlencoded\r\n"), "{form}");
    assert!(form.contains("\r\ncontent-length: 5\r\n") && form.ends_with("\r\n\r\na=b+c"));
    let parts = Form::new().text("a", "b").file("f", "f.txt", "text/plain", "content");
    let multipart = asked(client.request("POST", &server.url("/")).multipart(&parts));
    assert!(multipart.contains("\r\ncontent-type: multipart/form-data; boundary=towpath-"));
    assert!(
        multipart.contains("filename=\"f.txt\"\r\ncontent-type: text/plain\r\n\r\ncontent\r\n")
    );
    let basic =
        asked(client.get(&server.url("/")).bearer_auth("t").basic_auth("Aladdin", "open sesame"));
    assert!(basic.contains("\r\nauthorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n"), "{basic}");
    assert!(!basic.contains("Bearer"));
    assert!(
        asked(client.get(&server.url("/")).bearer_auth("t"))
            .contains("\r\nauthorization: Bearer t\r\n")
    );
}

#[test]
fn json_goes_up_and_comes_down() {
    let server = Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            assert!(head.contains("content-type: application/json"), "{head}");
            answer(stream, "200 OK", "", body.as_bytes());
        }
    });
    let engine = Engine::new().unwrap();
    let value = json!({ "name": "towpath", "many": [1, 2] });
    let post = || engine.client().request("POST", &server.url("/")).json(&value);
    assert_eq!(post().send().unwrap().body().json::<Value>(1 << 10).unwrap(), value);
    let mut response = block_on(post().send_async()).unwrap();
    assert_eq!(block_on(response.body().json_async::<Value>(1 << 10)).unwrap(), value);
    let other = post().send().unwrap().body().json::<u32>(1 << 10);
    assert!(matches!(other, Err(Error::Json(_))), "{other:?}");
    let broken = engine.client().get(&server.url("/")).json(&Unwritable).send().unwrap_err();
    assert!(matches!(broken, Error::Upload(_)), "{broken:?}");
}

/// Has no JSON: a map whose names are not texts.
struct Unwritable;

impl serde::Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([([1], 2)])
    }
}

#[test]
fn a_status_can_be_an_error() {
    let (server, engine) = (echo(), Engine::new().unwrap());
    let get = |path| engine.client().get(&server.url(path)).send().unwrap().error_for_status();
    assert_eq!(get("/").unwrap().status(), 200);
    assert_eq!(get("/gone").unwrap_err(), Error::Status(410));
}
