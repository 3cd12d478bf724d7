//! A client with a cache, against a server that counts what it is asked.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use towpath::request::Handler;
use towpath::{Cache, Chunk, Client, Engine, Error, Failed, Report, Request, Response};

use crate::block_on::block_on;
use crate::coding::gzip;
use crate::server::{Server, answer, read_request};

/// Answers each request with what `respond` makes of its path, its text and its number: a status, fields and a body;
/// without one it hangs up.
fn server<F>(respond: F) -> (Server, Arc<Mutex<Vec<String>>>)
where
    F: Fn(&str, &str, usize) -> Option<(&'static str, String, Vec<u8>)> + Send + Sync + 'static,
{
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let server = Server::new(move |stream, _| {
        while let Some(request) = read_request(stream) {
            let number = {
                let mut log = log.lock().unwrap();
                log.push(request.clone());
                log.len()
            };
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let Some((status, fields, body)) = respond(&path, &request, number) else { return };
            answer(stream, status, &fields, &body);
        }
    });
    (server, seen)
}

fn ok(fields: &str, body: impl Into<Vec<u8>>) -> Option<(&'static str, String, Vec<u8>)> {
    Some(("200 OK", fields.to_owned(), body.into()))
}

/// Status, `age` (where it is there) and text, waited for in one of three ways.
fn ask(request: Request, how: usize) -> Result<(u16, bool, String), Error> {
    let of = |response: &Response| (response.status(), response.header("age").is_some());
    match how % 3 {
        0 => {
            let mut response = request.send()?;
            let (status, aged) = of(&response);
            Ok((status, aged, response.body().text(1 << 20)?))
        }
        1 => block_on(async {
            let mut response = request.send_async().await?;
            let (status, aged) = of(&response);
            let body = response.body().bytes_async(1 << 20).await?;
            Ok((status, aged, String::from_utf8(body.into()).unwrap()))
        }),
        _ => {
            let (tell, told) = mpsc::channel();
            request.send_with(Gather { head: None, body: Vec::new(), tell })?;
            let outcome = told.recv_timeout(PATIENCE).unwrap();
            assert!(told.recv().is_err(), "one end");
            outcome
        }
    }
}

struct Gather {
    head: Option<(u16, bool)>,
    body: Vec<u8>,
    tell: mpsc::Sender<Result<(u16, bool, String), Error>>,
}

impl Handler for Gather {
    fn on_head(&mut self, response: Response) {
        assert!(self.head.is_none());
        self.head = Some((response.status(), response.header("age").is_some()));
    }

    fn on_data(&mut self, chunk: Chunk) {
        assert!(!chunk.is_empty() && self.head.is_some());
        self.body.extend_from_slice(&chunk);
    }

    fn on_end(&mut self, outcome: Result<(), Error>, _: Option<&Report>) {
        let outcome = outcome.map(|()| {
            let (status, aged) = self.head.unwrap();
            (status, aged, String::from_utf8(std::mem::take(&mut self.body)).unwrap())
        });
        self.tell.send(outcome).unwrap();
    }
}

/// A client with a cache in memory, and the one in a folder.
fn caches(name: &str) -> Vec<(Cache, Option<PathBuf>)> {
    let folder = std::env::temp_dir().join(format!("towpath-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let on_disk = Cache::open(&folder, 1 << 20).unwrap();
    vec![(Cache::in_memory(1 << 20), None), (on_disk, Some(folder))]
}

fn client(cache: &Cache) -> Client {
    Engine::new().unwrap().client().cache(cache)
}

fn history(response: &Response) -> String {
    response.history().iter().map(|entry| entry.what.clone()).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_fresh_answer_is_used_whichever_way_is_waited() {
    for (cache, folder) in caches("fresh") {
        let (server, seen) = server(|_, _, number| {
            ok("Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n", format!("answer {number}"))
        });
        let client = client(&cache);
        for how in 0..3 {
            let path = format!("/{how}");
            let first = ask(client.get(&server.url(&path)), how).unwrap();
            cache.flush();
            for again in 0..3 {
                let then = ask(client.get(&server.url(&path)), again).unwrap();
                assert_eq!(then, (200, true, first.2.clone()));
            }
        }
        assert_eq!(seen.lock().unwrap().len(), 3);
        assert_eq!(cache.len(), 3);
        let mut response = client.get(&server.url("/0")).send().unwrap();
        assert!(history(&response).contains("fresh"), "{}", history(&response));
        assert_eq!(response.header("set-cookie"), None);
        assert_eq!(response.body().bytes(99).unwrap(), "answer 1");
        assert!(response.body().report().is_none(), "nothing was sent");
        let bypassing = ask(client.get(&server.url("/0")).no_cache(), 0).unwrap();
        assert_eq!(bypassing, (200, false, "answer 4".to_owned()));
        let asked = client.get(&server.url("/0")).header("cache-control", "no-cache");
        assert_eq!(ask(asked, 0).unwrap().2, "answer 5");
        assert_eq!(ask(client.get(&server.url("/0")), 0).unwrap().2, "answer 5", "it was kept");
        let only = |path: &str| {
            let request = client.get(&server.url(path)).header("cache-control", "only-if-cached");
            request.send().unwrap().status()
        };
        assert_eq!((only("/0"), only("/none")), (200, 504));
        cache.flush();
        folder.into_iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
    }
}

#[test]
fn an_old_answer_is_validated_and_one_that_changed_is_replaced() {
    for (cache, folder) in caches("validated") {
        let (server, seen) = server(|_, request, number| {
            let tag = if number <= 7 { "\"one\"" } else { "\"two\"" };
            if request.contains(&format!("if-none-match: {tag}\r\n")) {
                let fields = format!("ETag: {tag}\r\nX-Number: {number}\r\n");
                return Some(("304 Not Modified", fields, Vec::new()));
            }
            ok(&format!("Cache-Control: no-cache\r\nETag: {tag}\r\n"), format!("body {tag}"))
        });
        let client = client(&cache);
        let get = |how| ask(client.get(&server.url("/")), how).unwrap();
        assert_eq!(get(0), (200, false, "body \"one\"".to_owned()));
        for how in 0..5 {
            cache.flush();
            assert_eq!(get(how), (200, true, "body \"one\"".to_owned()), "{how}");
        }
        let mut response = client.get(&server.url("/")).send().unwrap();
        assert!(history(&response).ends_with("still holds (304)"), "{}", history(&response));
        assert_eq!(response.header("x-number"), Some("7"), "the head is the newer one");
        response.body().bytes(99).unwrap();
        let report = response.body().report().expect("the validation's");
        assert_eq!(report.record.status, 304);
        assert!(report.tries[0].reused, "its connection is kept");
        for how in 0..3 {
            assert_eq!(get(how).2, "body \"two\"", "{how}");
        }
        assert_eq!(seen.lock().unwrap().len(), 10);
        assert_eq!(cache.len(), 1);
        cache.flush();
        folder.into_iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
    }
}

#[test]
fn an_outage_is_bridged_where_that_is_allowed_and_validation_goes_on_after_it() {
    let (server, seen) = server(|path, request, number| match (path, number) {
        (_, 1 | 2) => {
            let more = if path == "/strict" { ", must-revalidate" } else { "" };
            ok(&format!("Cache-Control: max-age=0{more}\r\nETag: \"a\"\r\n"), "kept")
        }
        ("/busy", _) => Some(("503 Busy", String::new(), b"busy".to_vec())),
        (_, 3..=20) => None,
        _ if request.contains("if-none-match: \"a\"") => {
            Some(("304 Not Modified", String::new(), Vec::new()))
        }
        _ => None,
    });
    let cache = Cache::in_memory(1 << 20);
    let plain = client(&cache);
    let client = plain_with(&cache, Duration::from_secs(60));
    let get = |client: &Client, path: &str, how| {
        ask(client.get(&server.url(path)).retries(0).fail_at_rest(), how)
    };
    get(&client, "/", 0).unwrap();
    get(&client, "/strict", 0).unwrap();
    for how in 0..3 {
        assert_eq!(get(&client, "/", how).unwrap(), (200, true, "kept".to_owned()), "{how}");
        assert_eq!(get(&client, "/strict", how), Err(Failed::Disconnected.into()), "{how}");
        assert_eq!(get(&plain, "/", how), Err(Failed::Disconnected.into()), "{how}");
    }
    while seen.lock().unwrap().len() < 20 {
        let _ = get(&plain, "/other", 0);
    }
    let mut response = client.get(&server.url("/")).send().unwrap();
    assert!(history(&response).contains("(304)"), "{}", history(&response));
    assert_eq!(response.body().bytes(99).unwrap(), "kept");
    let asked = plain.get(&server.url("/")).header("cache-control", "max-stale=60");
    assert_eq!(asked.send().unwrap().into_body().bytes(99).unwrap(), "kept");
}

fn plain_with(cache: &Cache, stale: Duration) -> Client {
    client(&cache.clone().stale_if_error(stale))
}

#[test]
fn a_server_that_has_too_much_to_do_is_stood_in_for() {
    let (server, _) = server(|_, _, number| match number {
        1 => ok("Cache-Control: max-age=0, stale-if-error=60\r\nETag: \"a\"\r\n", "kept"),
        _ => Some(("500 Broken", String::new(), b"broken".to_vec())),
    });
    let client = client(&Cache::in_memory(1 << 20));
    for how in [0, 0, 1, 2] {
        let answer = ask(client.get(&server.url("/")).retries(0), how).unwrap();
        assert_eq!((answer.0, answer.2.as_str()), (200, "kept"), "{how}");
    }
}

#[test]
fn an_old_answer_is_used_while_a_new_one_is_asked_for_once() {
    let (server, seen) = server(|_, _, number| {
        let fields = "Cache-Control: max-age=0, stale-while-revalidate=60\r\nETag: \"a\"\r\n";
        // The second one takes its time, and no other is asked for meanwhile.
        if number == 2 {
            std::thread::sleep(Duration::from_millis(200));
        }
        ok(fields, number.to_string())
    });
    let client = client(&Cache::in_memory(1 << 20));
    let get = |how| ask(client.get(&server.url("/")), how).unwrap().2;
    assert_eq!(get(0), "1");
    let before = Instant::now();
    let old: Vec<String> = (0..3).map(get).collect();
    if before.elapsed() < Duration::from_millis(200) {
        assert_eq!(old, ["1", "1", "1"]);
        assert!(seen.lock().unwrap().len() <= 2);
    }
    while get(0) == "1" {
        assert!(before.elapsed() < PATIENCE, "the new one never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_changes_something_removes_what_was_kept() {
    let (server, seen) = server(|path, request, number| match request.split(' ').next() {
        Some("GET") => ok("Cache-Control: max-age=60\r\n", number.to_string()),
        _ if path == "/refused" => Some(("409 Conflict", String::new(), Vec::new())),
        _ => Some(("201 Created", "Location: /other\r\n".to_owned(), Vec::new())),
    });
    let client = client(&Cache::in_memory(1 << 20));
    let get = |path: &str| ask(client.get(&server.url(path)), 0).unwrap().2;
    let paths = ["/x", "/other", "/refused", "/third"];
    let first = paths.map(get);
    assert_eq!(paths.map(get), first);
    client.post(&server.url("/refused"), "x").send().unwrap();
    assert_eq!(paths.map(get), first, "nothing was changed");
    client.post(&server.url("/x"), "x").send().unwrap();
    let then = paths.map(get);
    assert!(then[0] != first[0] && then[1] != first[1] && then[2..] == first[2..], "{then:?}");
    let mut upload = client.request("PUT", &server.url("/third")).upload(None).unwrap();
    upload.write("x").unwrap();
    upload.finish().unwrap();
    assert_ne!(get("/third"), first[3]);
    assert_eq!(seen.lock().unwrap().len(), 10);
}

#[test]
fn codings_languages_and_redirects_are_kept_apart_and_whole() {
    let (server, seen) = server(|path, request, _| {
        let keep = "Cache-Control: max-age=60\r\nVary: Accept-Language, Accept-Encoding\r\n";
        if path == "/moved" {
            let fields = format!("{keep}Location: /there\r\n");
            return Some(("301 Moved", fields, Vec::new()));
        }
        let language = if request.contains("accept-language: de") { "hallo" } else { "hello" };
        if request.contains("gzip") {
            return ok(&format!("{keep}Content-Encoding: gzip\r\n"), gzip(language.as_bytes()));
        }
        ok(keep, language)
    });
    let client = client(&Cache::in_memory(1 << 20));
    for how in 0..6 {
        let get = || client.get(&server.url("/moved"));
        assert_eq!(ask(get(), how).unwrap().2, "hello");
        assert_eq!(ask(get().header("Accept-Language", "de"), how).unwrap().2, "hallo");
        assert_eq!(ask(get().no_decode(), how).unwrap().2, "hello");
    }
    assert_eq!(seen.lock().unwrap().len(), 6, "three kinds, and each is moved");
}

#[test]
fn what_is_cut_or_not_read_or_too_large_is_not_kept() {
    let server = Server::new(|stream, _| {
        use std::io::Write;
        while let Some(request) = read_request(stream) {
            let keep = "Cache-Control: max-age=60\r\n";
            match request.split(' ').nth(1).unwrap() {
                "/cut" => {
                    let head = format!("HTTP/1.1 200 OK\r\n{keep}Content-Length: 9\r\n\r\n");
                    let _ = stream.write_all(format!("{head}half").as_bytes());
                    return;
                }
                "/large" => answer(stream, "200 OK", keep, &[b'x'; 20_000]),
                "/chunked" => {
                    let head =
                        format!("HTTP/1.1 200 OK\r\n{keep}Transfer-Encoding: chunked\r\n\r\n");
                    let piece = format!("4e20\r\n{}\r\n0\r\n\r\n", "x".repeat(20_000));
                    let _ = stream.write_all(format!("{head}{piece}").as_bytes());
                }
                _ => answer(stream, "200 OK", keep, &[b'x'; 9_000]),
            }
        }
    });
    let cache = Cache::in_memory(80_000);
    let client = client(&cache);
    for how in 0..3 {
        let get = |path: &str| ask(client.get(&server.url(path)).retries(0), how);
        assert!(get("/cut").is_err());
        assert_eq!(get("/large").unwrap().2.len(), 20_000);
        assert_eq!(get("/chunked").unwrap().2.len(), 20_000);
        drop(client.get(&server.url("/unread")).send().unwrap());
        assert_eq!(cache.len(), 0, "{how}");
    }
    ask(client.get(&server.url("/")), 0).unwrap();
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_folder_answers_in_the_next_life_without_the_server() {
    let folder = std::env::temp_dir().join(format!("towpath-next-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let (server, _) = server(|_, _, _| ok("Cache-Control: max-age=60\r\n", "kept"));
    {
        let cache = Cache::open(&folder, 1 << 20).unwrap();
        ask(client(&cache).get(&server.url("/")), 0).unwrap();
        assert!(Cache::open(&folder, 1 << 20).is_err(), "one at a time");
        cache.flush();
    }
    let engine = Engine::new().unwrap();
    engine.network_changed("none", towpath::NetworkKind::Fixed, false).unwrap();
    let cache = Cache::open(&folder, 1 << 20).unwrap();
    let client = engine.client().cache(&cache);
    for how in 0..3 {
        assert_eq!(ask(client.get(&server.url("/")), how).unwrap(), (200, true, "kept".to_owned()));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

const PATIENCE: Duration = Duration::from_secs(30);
