//! `towpath get` as a user at a terminal, or a script, sees it.
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;

/// Answers every request with this.
fn serve(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            read_head(&mut stream);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

/// One head with its empty line, or what came of it. It may come in any number of pieces.
fn read_head(stream: &mut impl Read) -> Vec<u8> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
        head.push(byte[0]);
    }
    head
}

/// One head and the body whose length it names.
fn read_request(stream: &mut impl Read) -> Vec<u8> {
    let mut request = read_head(stream);
    let head = text(&request).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    if stream.read_exact(&mut body).is_ok() {
        request.extend(body);
    }
    request
}

fn get(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_towpath")).arg("get").args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_body_goes_out_and_the_timeline_beside_it() {
    let address = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let output = get(&["--timeline", "-v", &format!("http://{address}/")]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "hello".to_owned()));
    let told = text(&output.stderr);
    for part in ["attempt 1: connect to", "attempt 1: connected", "response begins: 200", "< 200"] {
        assert!(told.contains(part), "{part:?} in {told}");
    }
}

#[test]
fn how_much_came_can_be_told() {
    let address = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let output = get(&["-#", &format!("http://{address}/")]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "hello".to_owned()));
    let told = text(&output.stderr);
    assert!(told.starts_with(&format!("{} 100 %        5 B", "#".repeat(26))), "{told:?}");
    assert_eq!(told.lines().count(), 1, "no terminal, no redrawing: {told:?}");
    // Half of what was promised.
    let address = serve("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhello");
    let output = get(&["--progress-bar", "--no-resume", &format!("http://{address}/")]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("  50 %        5 B"), "{}", text(&output.stderr));
}

#[test]
fn a_report_is_json() {
    let address = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let output = get(&["--json", &format!("http://{address}/")]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    assert_eq!((&report["status"], &report["body_bytes"]), (&200.into(), &5.into()));
    assert_eq!(report["attempts"][0]["outcome"], "connected");
}

#[test]
fn redirects_are_followed_where_that_is_asked_for() {
    let there = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let answer =
        format!("HTTP/1.1 302 Found\r\nLocation: http://{there}/x\r\nContent-Length: 0\r\n\r\n");
    let url = format!("http://{}/", serve(Box::leak(answer.into_boxed_str())));
    let plain = get(&[&url]);
    assert_eq!((plain.status.code(), plain.stdout.len()), (Some(0), 0));
    let output = get(&["-L", "--timeline", &url]);
    assert_eq!(text(&output.stdout), "hello", "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(&format!("302: go on at http://{there}/x")));
    let none = get(&["-L", "--max-redirs", "0", &url]);
    assert_eq!(none.stdout.len(), 0);
    let output = get(&["-L", "--json", &url]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["redirects"][0]["status"], 302);
}

#[test]
fn proxies_are_those_that_are_named_or_those_of_the_environment() {
    let address = echo();
    let proxy = format!("http://{address}");
    let words = ["-x", &proxy, "-U", "u:p", "--proxy-header", "X-Own: 1", "http://a.test/b"];
    let named = text(&get(&words).stdout);
    assert!(named.starts_with("GET http://a.test/b HTTP/1.1\r\n"), "{named}");
    assert!(named.contains("proxy-authorization: Basic dTpw\r\n"), "{named}");
    assert!(named.contains("x-own: 1\r\n"), "{named}");
    let of_environment = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.env("http_proxy", &proxy).env("no_proxy", "b.test");
        command.arg("get").args(words).output().unwrap()
    };
    let there = of_environment(&["--timeline", "http://a.test/c"]);
    assert!(text(&there.stdout).starts_with("GET http://a.test/c HTTP/1.1\r\n"));
    assert!(text(&there.stderr).contains("through the proxy http://"), "{there:?}");
    let direct = format!("http://{address}/d");
    for words in [&["-x", "", &*direct][..], &["--noproxy", "127.0.0.1", &*direct]] {
        let plain = text(&of_environment(words).stdout);
        assert!(plain.starts_with("GET /d HTTP/1.1\r\n"), "{plain}");
    }
    let refused = get(&["-x", "pac+http://a.test", "http://a.test/"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("PAC scripts are not run"), "{refused:?}");
}

/// Answers every request with itself, and a cookie.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read_request(&mut stream);
            let fields =
                format!("Set-Cookie: new=1; Max-Age=60\r\nContent-Length: {}", request.len());
            let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            let _ = stream.write_all(&[head.as_bytes(), &request].concat());
        }
    });
    address
}

#[test]
fn names_and_values_are_sent_as_curl_sends_them() {
    let url = format!("http://{}/?a=1", echo());
    let sent = |words: &[&str]| text(&get(&[words, &[&url]].concat()).stdout);
    let form = sent(&["--data-urlencode", "a=b c", "--data-urlencode", "d=&"]);
    assert!(form.starts_with("POST ") && form.ends_with("\r\n\r\na=b+c&d=%26"), "{form}");
    assert!(sent(&["--url-query", "b=c d"]).starts_with("GET /?a=1&b=c+d "));
    let file = std::env::temp_dir().join(format!("towpath-get-{}.txt", std::process::id()));
    std::fs::write(&file, "content").unwrap();
    let parts = sent(&["-F", "a=b", "-F", &format!("f=@{}", file.display())]);
    assert!(parts.contains("name=\"f\"; filename=\"towpath-get-"), "{parts}");
    assert!(parts.contains("\r\n\r\ncontent\r\n--towpath-"), "{parts}");
    assert!(sent(&["-u", "Aladdin:open sesame"]).contains("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    assert!(sent(&["--oauth2-bearer", "t"]).contains("authorization: Bearer t\r\n"));
    assert!(sent(&["-b", "x=y"]).contains("cookie: x=y\r\n"));
    let jar = file.with_extension("jar");
    let path = jar.display().to_string();
    assert!(!sent(&["-c", &path]).contains("cookie: "));
    assert!(sent(&["-b", &path, "-c", &path]).contains("cookie: new=1\r\n"));
    std::fs::remove_file(&file).and_then(|()| std::fs::remove_file(&jar)).unwrap();
    assert_eq!(get(&["-F", "nothing", &url]).status.code(), Some(2));
}

#[test]
fn responses_are_kept_over_several_lives_and_that_is_told() {
    let url = format!(
        "http://{}/",
        serve("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",)
    );
    let folder = std::env::temp_dir().join(format!("towpath-get-cache-{}", std::process::id()));
    let cached =
        |more: &[&str]| get(&[&["--cache", folder.to_str().unwrap()], more, &[&url]].concat());
    let report =
        |output: Output| -> serde_json::Value { serde_json::from_slice(&output.stdout).unwrap() };
    assert_eq!(report(cached(&["--json"]))["attempts"][0]["outcome"], "connected");
    let second = report(cached(&["--json"]));
    assert_eq!((&second["attempts"], &second["body_bytes"]), (&serde_json::Value::Null, &5.into()));
    assert!(second["history"][0]["what"].as_str().unwrap().contains("fresh"), "{second}");
    let told = cached(&["--timeline"]);
    assert!(text(&told.stderr).contains("cache: a fresh answer"), "{}", text(&told.stderr));
    assert_eq!(text(&told.stdout), "hello");
    let asked = report(cached(&["--json", "-H", "Cache-Control: no-cache"]));
    assert_eq!(asked["attempts"][0]["outcome"], "connected");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(get(&["--cache", "/dev/null/none", &url]).status.code(), Some(2));
}

#[test]
fn events_are_lines() {
    let stream =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 7\ndata: a\ndata: b\n\n";
    let url = format!("http://{}/", serve(stream));
    // The server ends it after each event.
    let output = get(&["--events", "2", "--timeline", &url]);
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let event = serde_json::json!({ "name": "message", "id": "7", "data": "a\nb" });
    assert_eq!((output.status.code(), lines), (Some(0), vec![event; 2]));
    assert!(text(&output.stderr).contains("events: again in 1.0 s: the server ended it"));
    let plain = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let refused = get(&["--events", "0", &format!("http://{plain}/")]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(3), 0));
}

#[test]
fn messages_are_lines() {
    let origin = towpath_lab::origin::Origin::websocket("127.0.0.1:0".parse().unwrap());
    let origin = towpath_lab::origin::spawn(&origin).unwrap();
    let url = format!("ws://{}/chat", origin.address());
    let output = get(&["--messages", "1", "-d", "hello wörld", "--timeline", &url]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "hello wörld\n".to_owned()));
    for told in ["WebSocket: open", "WebSocket: the server closes with 1000"] {
        assert!(text(&output.stderr).contains(told), "{}", text(&output.stderr));
    }
    let file = std::env::temp_dir().join(format!("towpath-message-{}", std::process::id()));
    std::fs::write(&file, [0xff, 0]).unwrap();
    let output = get(&["--messages", "1", "-d", &format!("@{}", file.display()), &url]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "base64:/wA=\n".to_owned()));
    let plain = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let refused = get(&["--messages", "0", &format!("ws://{plain}/")]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(3), 0));
    assert!(text(&refused.stderr).contains("the server answered 200"), "{}", text(&refused.stderr));
}

#[test]
fn credentials_are_sent_once_the_server_asks_for_them() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = text(&read_head(&mut stream));
            let digest = "authorization: Digest username=\"user\"";
            let fields = if request.contains(digest) {
                "HTTP/1.1 200 OK\r\n"
            } else {
                "HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=x, Digest realm=x, nonce=n, qop=auth\r\n"
            };
            let head =
                format!("{fields}Connection: close\r\nContent-Length: {}\r\n\r\n", request.len());
            let _ = stream.write_all(format!("{head}{request}").as_bytes());
        }
    });
    let output = get(&["--anyauth", "-u", "user:secret", "--timeline", &url]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let sent = text(&output.stdout);
    assert!(
        sent.contains("qop=auth") && !sent.contains("Basic"),
        "the best that is offered: {sent}"
    );
    assert!(text(&output.stderr).contains("* 401: go on at"), "{}", text(&output.stderr));
    assert_eq!(
        get(&["-u", "user:secret", &url]).status.code(),
        Some(1),
        "Basic at once, and refused"
    );
    assert_eq!(get(&["--anyauth", &url]).status.code(), Some(2), "whose?");
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    // Nothing listens there, and nothing else can be given it: a connection has it.
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let refused = connected.local_addr().unwrap();
    let gone = serve("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}/", silent.local_addr().unwrap());
    let code = |words: &[&str]| get(words).status.code();
    assert_eq!(code(&[&format!("http://{gone}/")]), Some(1));
    assert_eq!(code(&["ftp://example.org/"]), Some(2));
    assert_eq!(code(&["-H", "no colon", &silent_url]), Some(2));
    assert_eq!(code(&[&format!("http://{refused}/")]), Some(3));
    assert_eq!(code(&["--max-time", "0.2", &silent_url]), Some(4));
}

#[test]
fn the_way_to_the_server_can_be_given() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["app.test".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let folder = std::env::temp_dir().join(format!("towpath-get-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (roots, memory) = (folder.join("roots.pem"), folder.join("memory"));
    std::fs::write(&roots, certificate.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let port = serve_secretly(config.into()).port();
    let (url, there) = (format!("https://app.test:{port}/"), format!("app.test:{port}:127.0.0.1"));
    let (roots, memory) = (roots.to_str().unwrap(), memory.to_str().unwrap());
    let way = ["--resolve", &there, "--cacert", roots, "--memory", memory, "--retries", "0", &url];
    let output = get(&way);
    assert_eq!(text(&output.stdout), "secret", "{}", text(&output.stderr));
    assert!(std::fs::read_to_string(memory).unwrap().contains(&format!("127.0.0.1:{port} 1 0")));
    let file = folder.join("body");
    let written = get(&[&["-o", file.to_str().unwrap()], &way[..]].concat());
    assert_eq!((written.status.code(), written.stdout.len()), (Some(0), 0));
    assert_eq!(std::fs::read(&file).unwrap(), b"secret");
    let code = |more: &[&str]| get(&[more, &way[..]].concat()).status.code();
    let other = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    assert_eq!(code(&["--pinnedpubkey", other]), Some(3));
    assert_eq!(code(&["--pinnedpubkey", "sha256//AAAA"]), Some(2));
    assert_eq!(code(&["--cert", roots]), Some(2), "a certificate has a key");
    assert_eq!(code(&["--resolve", "app.test:127.0.0.1"]), Some(2));
    let hosts = folder.join("hosts");
    std::fs::write(&hosts, "app.test \"unlimited\"\n").unwrap();
    let plain = format!("http://app.test:{port}/");
    let way = ["--resolve", &there, "--cacert", roots, "--retries", "0", &plain];
    assert_eq!(get(&way).status.code(), Some(3), "it speaks TLS alone");
    let output = get(&[&["--timeline", "--hsts", hosts.to_str().unwrap()], &way[..]].concat());
    assert_eq!(text(&output.stdout), "secret", "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("HSTS: https in place of http"));
    assert!(std::fs::read_to_string(&hosts).unwrap().contains("app.test \"9999"));
    let unknown = get(&["--resolve", &there, "--retries", "0", &url]);
    assert_eq!(unknown.status.code(), Some(3), "the platform does not believe it");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn names_can_be_asked_for_over_https() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["dns.test".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let roots = std::env::temp_dir().join(format!("towpath-doh-{}.pem", std::process::id()));
    std::fs::write(&roots, certificate.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let doh = format!("https://dns.test:{}/dns-query", serve_names(config.into()).port());
    let port = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").port();
    let url = |name: &str| format!("http://{name}:{port}/");
    let by = ["--doh-url", &doh, "--doh-addresses", "127.0.0.1", "--cacert"];
    let ask = |more: &[&str]| get(&[&by[..], &[roots.to_str().unwrap()], more].concat());
    let output = ask(&["--timeline", &url("app.test")]);
    let told = text(&output.stderr);
    assert_eq!(text(&output.stdout), "hello", "{told}");
    assert!(told.contains("1 address by DNS over HTTPS"), "{told}");
    let output = ask(&["--json", &url("app.test")]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lookups"][0]["by"], "https");
    let given = format!("none.test:{port}:127.0.0.1");
    assert_eq!(text(&ask(&["--resolve", &given, &url("none.test")]).stdout), "hello");
    let output = ask(&[&url("none.test")]);
    assert_eq!(output.status.code(), Some(3));
    let why = "no addresses by DNS over HTTPS: the server does not want to tell (REFUSED)";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    assert_eq!(text(&ask(&[&url("localhost")]).stdout), "hello", "the system knows it");
    let code = |words: &[&str]| get(words).status.code();
    assert_eq!(code(&["--doh-url", "http://dns.test/", &url("app.test")]), Some(2));
    assert_eq!(code(&["--doh-or-system", &url("app.test")]), Some(2), "there is nothing to fail");
    std::fs::remove_file(&roots).unwrap();
}

/// Tells by DNS over HTTPS that every name is this machine, but refuses `none.test`.
fn serve_names(config: Arc<rustls::ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let request = read_request(&mut stream);
            let begin = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0) + 4;
            let Some(question) = request.get(begin..).filter(|it| it.len() > 17) else { continue };
            let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
            let (is_four, refused) = (question[end - 3] == 1, &question[13..17] == b"none");
            let flags = [0x81, if refused { 0x85 } else { 0x80 }];
            let count = [0, u8::from(is_four && !refused), 0, 0, 0, 0];
            let head = [&question[..2], &flags, &[0, 1], &count, &question[12..end]].concat();
            let address = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1];
            let record = if count[1] == 1 { &address[..] } else { &[] };
            let answer = [&head, record].concat();
            let fields = "Content-Type: application/dns-message\r\nConnection: close";
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n\r\n", answer.len());
            let _ = stream.write_all(&[head.as_bytes(), &answer].concat());
        }
    });
    address
}

/// Answers one request on each connection, under TLS.
fn serve_secretly(config: Arc<rustls::ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            read_head(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret");
        }
    });
    address
}

#[test]
fn how_a_request_is_treated_can_be_said() {
    let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n";
    let url = format!("http://{}/", serve(busy));
    let rests = get(&["--count", "2", "--fail-at-rest", &url]);
    assert_eq!(rests.status.code(), Some(3), "{}", text(&rests.stderr));
    assert!(text(&rests.stderr).contains("left alone"), "{}", text(&rests.stderr));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}/", silent.local_addr().unwrap());
    let late = get(&["--first-byte-timeout", "0.1", "--retry", "0", &silent_url]);
    assert_eq!(late.status.code(), Some(4));
    assert!(text(&late.stderr).contains("first byte"), "{}", text(&late.stderr));
    let address = serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let url = format!("http://{address}/");
    let all =
        ["--priority", "high", "--hedge", "--no-resume", "--gap-timeout", "9", "--repeat", "never"];
    let output = get(&[&all[..], &["--json", &url]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["status"], &report["priority"]), (&200.into(), &"high".into()));
    assert_eq!(get(&["--priority", "highest", &url]).status.code(), Some(2));
    assert_eq!(get(&["--repeat", "never", "--idempotency-key", "k", &url]).status.code(), Some(2));
    // This machine is reached whatever the network.
    assert_eq!(get(&["--wait-for-network", &url]).status.code(), Some(0));
}

/// Stopped as a user's terminal stops a program, or Android an app that it keeps in memory.
#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_came_while_the_process_was_stopped_is_heard() {
    use rustix::process::{Pid, Signal, kill_process};

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let words = ["get", "--first-byte-timeout", "2", "--retries", "0", "-X", "POST", &url];
    let child = Command::new(env!("CARGO_BIN_EXE_towpath"))
        .args(words)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let mut stream = listener.accept().unwrap().0;
    assert!(!read_head(&mut stream).is_empty());
    kill_process(pid, Signal::STOP).unwrap();
    let stat = format!("/proc/{}/task", child.id());
    let is_stopped = || {
        let mut threads = std::fs::read_dir(&stat).unwrap();
        threads.all(|thread| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        })
    };
    while !is_stopped() {
        std::thread::yield_now();
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    // Its time for the first byte passes.
    std::thread::sleep(std::time::Duration::from_millis(2300));
    kill_process(pid, Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "hello", "{}", text(&output.stderr));
}
