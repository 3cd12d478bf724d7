//! The header, the library and programs in C that use them, held against each other.
//!
//! Programs are compiled by the system's compiler, and by clang where `cargo xtask peers` has installed it; each
//! against the shared and the static library, plain and under AddressSanitizer and UndefinedBehaviorSanitizer.
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

#[path = "../../towpath/tests/authority/mod.rs"]
mod authority;
mod bolt;
#[expect(dead_code, reason = "shared with tests that want more of it")]
#[path = "../../towpath/tests/server/mod.rs"]
mod server;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::mem::offset_of;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use authority::Authority;
use server::{Server, answer, read_head, read_request};
use towpath_c::abi::{
    Answer, AskOptions, Bytes, Challenge, EngineOptions, Event, Field, LinkOptions, LinkState,
    OutboxEnd, OutboxOptions, RequestOptions, SocketEvent, SocketOptions, StreamEvent,
    StreamOptions, VERSION,
};
use towpath_proto::websocket::{Frames, Item, Opcode, Sender, accept, frame};

#[test]
fn the_header_declares_what_the_library_exports() {
    let header = fs::read_to_string(include_folder().join("towpath.h")).unwrap();
    let declared: BTreeSet<&str> =
        header.lines().filter(|line| !line.starts_with(" *")).filter_map(declared).collect();
    let Some(nm) = tool("nm") else { return };
    let listing =
        run(Command::new(nm).args(["--dynamic", "--defined-only"]).arg(library().join(SHARED)));
    let listing = String::from_utf8(listing.stdout).unwrap();
    let exported: BTreeSet<&str> =
        listing.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(declared, exported);
    assert!(declared.len() > 15, "{declared:?}");
}

#[test]
fn the_header_has_the_library_s_structures_and_numbers() {
    let Some(compiler) = tool("cc") else { return };
    let mut source = String::from("#include <towpath.h>\n");
    let mut hold = |what: String, value: u64| {
        source.push_str(&format!("_Static_assert({what} == {value}ull, \"{what}\");\n"));
    };
    macro_rules! same {
        ($c:literal, $rust:ty, $($field:ident),*) => {
            hold(format!("sizeof({})", $c), size_of::<$rust>() as u64);
            $(hold(
                format!("offsetof({}, {})", $c, stringify!($field)),
                offset_of!($rust, $field) as u64,
            );)*
        };
    }
    same!("towpath_bytes", Bytes, data, length);
    same!("towpath_field", Field, name, value);
    same!("towpath_event", Event, size, kind, error, request, user, chunk, data, length, text);
    same!("towpath_engine_options", EngineOptions, size, memory_path, roots_pem, pins, pin_count);
    same!("towpath_engine_options", EngineOptions, identity_chain_pem, identity_key_pem);
    same!("towpath_engine_options", EngineOptions, window_bytes, replay_bytes, max_requests);
    same!("towpath_engine_options", EngineOptions, max_connections, idle_timeout_ms, max_rest_ms);
    same!("towpath_engine_options", EngineOptions, max_flow_bytes, flow_window_ms);
    same!("towpath_engine_options", EngineOptions, max_identical, identical_window_ms);
    same!("towpath_engine_options", EngineOptions, on_question, question_user, watch_network);
    same!("towpath_engine_options", EngineOptions, dns_servers, system_resolver, reserved);
    same!("towpath_engine_options", EngineOptions, cookies_path, hsts_path, cache_path);
    same!("towpath_engine_options", EngineOptions, cache_bytes, cache_stale_s);
    same!("towpath_engine_options", EngineOptions, proxy_from_environment, proxy, no_proxy);
    same!("towpath_engine_options", EngineOptions, no_coalescing, doh_url);
    same!("towpath_engine_options", EngineOptions, max_requests_per_origin);
    same!("towpath_engine_options", EngineOptions, doh_addresses, doh_timeout_ms, doh_or_system);
    same!("towpath_engine_options", EngineOptions, on_challenge, challenge_user);
    same!("towpath_engine_options", EngineOptions, max_requests_under_way, doh_by_get);
    same!("towpath_challenge", Challenge, size, user, host, own, port, is_of_proxy, is_secure);
    same!("towpath_challenge", Challenge, attempt);
    same!("towpath_outbox_options", OutboxOptions, size, path, on_end, user, max_bytes);
    same!("towpath_outbox_options", OutboxOptions, max_entries, parallel, expires_after_s);
    same!("towpath_outbox_options", OutboxOptions, first_pause_ms, longest_pause_ms);
    same!("towpath_outbox_options", OutboxOptions, response_bytes);
    same!("towpath_outbox_end", OutboxEnd, size, entry, user, key, body, body_length, outcome);
    same!("towpath_outbox_end", OutboxEnd, status, whole);
    same!("towpath_request_options", RequestOptions, size, url, method, fields, field_count);
    same!("towpath_request_options", RequestOptions, on_event, queue, user, body, body_length);
    same!("towpath_request_options", RequestOptions, body_follows, repeat, content_length);
    same!("towpath_request_options", RequestOptions, idempotency_key, timeout_ms);
    same!("towpath_request_options", RequestOptions, first_byte_timeout_ms, gap_timeout_ms);
    same!("towpath_request_options", RequestOptions, retries, wait_for_network, fail_at_rest);
    same!("towpath_request_options", RequestOptions, unlimited, priority, no_resume);
    same!("towpath_request_options", RequestOptions, hedge, attempt_timeout_ms, answer_timeout_ms);
    same!("towpath_request_options", RequestOptions, redirects, decode, auth_user, auth_password);
    same!("towpath_request_options", RequestOptions, http_versions, reserved);
    same!("towpath_link_options", LinkOptions, size, url, on_push, user, beat_timeout_ms);
    same!("towpath_link_options", LinkOptions, connect_timeout_ms, first_pause_ms);
    same!("towpath_link_options", LinkOptions, longest_pause_ms, max_asks, max_bytes, max_frame);
    same!("towpath_link_options", LinkOptions, shortest_silence_s, first_silence_s);
    same!("towpath_link_options", LinkOptions, longest_silence_s);
    same!("towpath_answer", Answer, size, user, class_name, content, length, text, own, error);
    same!("towpath_answer", Answer, status);
    same!("towpath_ask_options", AskOptions, size, content, length, class_name, headers);
    same!("towpath_ask_options", AskOptions, header_count, on_answer, user, timeout_ms, waits);
    same!("towpath_ask_options", AskOptions, codec, reserved);
    same!("towpath_link_state", LinkState, size, connections, heartbeats, wakeups, interval_ms);
    same!("towpath_link_state", LinkState, connected, failure);
    same!("towpath_socket_event", SocketEvent, size, user, data, length, text, kind, error);
    same!("towpath_socket_event", SocketEvent, is_text, close_code, status);
    same!("towpath_socket_options", SocketOptions, size, on_event, user, subprotocols);
    same!("towpath_socket_options", SocketOptions, max_message_bytes, ping_interval_ms);
    same!("towpath_socket_options", SocketOptions, pong_timeout_ms, close_timeout_ms);
    same!("towpath_socket_options", SocketOptions, no_compression);
    same!("towpath_stream_event", StreamEvent, size, user, name, data, id, text, kind, error);
    same!("towpath_stream_event", StreamEvent, status, reserved);
    same!("towpath_stream_options", StreamOptions, size, on_event, user, last_event_id);
    same!("towpath_stream_options", StreamOptions, max_event_bytes);
    for (name, kind) in STREAM_EVENTS {
        hold(format!("TOWPATH_STREAM_{name}"), u64::from(*kind));
    }
    for (name, kind) in SOCKET_EVENTS {
        hold(format!("TOWPATH_SOCKET_{name}"), u64::from(*kind));
    }
    for (name, code) in CODES {
        hold(format!("TOWPATH_ERROR_{name}"), *code as u64);
    }
    for (name, kind) in EVENTS {
        hold(format!("TOWPATH_EVENT_{name}"), u64::from(*kind));
    }
    hold("TOWPATH_OUTCOME_ANSWERED".to_owned(), towpath_c::abi::outcome::ANSWERED.into());
    hold("TOWPATH_OUTCOME_EXPIRED".to_owned(), towpath_c::abi::outcome::EXPIRED.into());
    hold("TOWPATH_ABI_VERSION".to_owned(), VERSION.into());
    hold("TOWPATH_NONE".to_owned(), towpath_c::abi::NONE.into());
    hold("TOWPATH_LENGTH_UNKNOWN".to_owned(), towpath_c::abi::LENGTH_UNKNOWN);
    let file = scratch("layout").join("layout.c");
    fs::write(&file, source).unwrap();
    run(Command::new(&compiler).args(STRICT).arg("-fsyntax-only").arg(include()).arg(&file));
    // C++ has to take it too.
    if let Some(compiler) = tool("c++") {
        let header = include_folder().join("towpath.h");
        let strict = ["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
        run(Command::new(compiler).args(strict).arg("-fsyntax-only").arg(header));
    }
}

#[test]
fn programs_of_the_system_s_compiler_keep_every_promise() {
    let Some(compiler) = tool("cc") else { return };
    try_all(&compiler, "cc");
}

#[test]
#[ignore = "needs clang: cargo xtask peers clang, then TOWPATH_PEERS=target/peers/bin"]
fn programs_of_clang_keep_every_promise() {
    let folder = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
    try_all(&Path::new(&folder).join("clang"), "clang");
}

/// For Swift and Objective-C, which import the header by its module map.
#[test]
#[ignore = "needs clang: cargo xtask peers clang, then TOWPATH_PEERS=target/peers/bin"]
fn the_header_is_a_module_for_objective_c() {
    let folder = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
    let scratch = scratch("module");
    let program = scratch.join("module.m");
    fs::write(&program, "@import CTowpath;\nuint32_t v(void) { return towpath_abi_version(); }\n")
        .unwrap();
    let map = include_folder().join("module.modulemap");
    run(Command::new(Path::new(&folder).join("clang"))
        .args(["-x", "objective-c", "-fmodules", "-Wall", "-Werror", "-fsyntax-only"])
        .arg(format!("-fmodules-cache-path={}", scratch.join("cache").display()))
        .arg(format!("-fmodule-map-file={}", map.display()))
        .arg(program));
}

/// Every program, in every way of building it.
fn try_all(compiler: &Path, name: &str) {
    let origin = origin();
    let authority = Authority::new("ours");
    let secure =
        SecureOrigin { address: authority.serve("127.0.0.1"), roots_pem: authority.issuer.pem() };
    for sanitized in [false, true] {
        for link in [Link::Shared, Link::Static] {
            let folder = scratch(&format!("{name}-{link:?}-{sanitized}"));
            let build = |source: &Path| compile(compiler, source, link, sanitized, &folder);
            promises(&build(&tests_folder().join("abi.c")), &origin, &authority);
            // A static program takes seconds to link, and these show nothing of linking that the first does not.
            if let Link::Shared = link {
                get(&build(&examples_folder().join("get.c")), &origin, &secure, &folder);
                poll(&build(&examples_folder().join("poll.c")), &origin, &folder);
            }
        }
    }
}

fn promises(program: &Path, origin: &Server, authority: &Authority) {
    let outbox = program.with_extension(format!("outbox-{}", std::process::id()));
    let doh = format!("https://dns.test:{}/dns-query", serve_names(authority).port());
    let mut command = Command::new(program);
    command.arg(origin.url("")).arg(&outbox).arg(bolt::serve());
    let output = run(command.arg(doh).arg(authority.issuer.pem()));
    fs::remove_file(&outbox).unwrap();
    for ending in ["cookies", "hsts"] {
        fs::remove_file(format!("{}.{ending}", outbox.display())).unwrap();
    }
    fs::remove_dir_all(format!("{}.cache", outbox.display())).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "every promise holds\n");
}

fn get(program: &Path, origin: &Server, secure: &SecureOrigin, folder: &Path) {
    let output = run(Command::new(program).arg(origin.url("/trailers")));
    assert_eq!(output.stdout, b"hello");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("status 200, type 'text/plain'\nrecord: {\"schema\":1,"), "{told}");
    let roots = folder.join("roots.pem");
    fs::write(&roots, &secure.roots_pem).unwrap();
    let url = format!("https://{}/", secure.address);
    let output = run(Command::new(program).arg(&url).env("SSL_CERT_FILE", roots));
    assert_eq!(output.stdout, b"secret");
    // Nothing listens there, and nothing else can be given it: a connection has it.
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let closed = connected.local_addr().unwrap();
    let refused = Command::new(program).arg(format!("http://{closed}/")).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.starts_with("failed: cannot connect"), "{told}");
    let unusable = Command::new(program).arg("nonsense").output().unwrap();
    assert_eq!(unusable.status.code(), Some(1));
}

fn poll(program: &Path, origin: &Server, folder: &Path) {
    let (small, large) = (folder.join("small"), folder.join("large"));
    fs::write(&small, "x").unwrap();
    fs::write(&large, vec![b'y'; 1 << 20]).unwrap();
    let output =
        run(Command::new(program).arg(origin.url("/length")).args([&small, &large, &small]));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.matches(": status 200").count(), 3, "{said}");
    let missing = folder.join("missing");
    let failed = Command::new(program).arg(origin.url("/length")).arg(missing).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
}

#[derive(Clone, Copy, Debug)]
enum Link {
    Shared,
    Static,
}

fn compile(compiler: &Path, source: &Path, link: Link, sanitized: bool, folder: &Path) -> PathBuf {
    let program = folder.join(source.file_stem().unwrap());
    let mut command = Command::new(compiler);
    command.args(STRICT).args(["-g", "-O1"]).arg(include()).arg(source).arg("-o").arg(&program);
    if sanitized {
        command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]);
    }
    let library = library();
    match link {
        Link::Static => {
            command.arg(library.join("libtowpath_c.a")).args(SYSTEM_LIBRARIES);
        }
        Link::Shared => {
            // The name that it gives itself, which is how programs find it.
            let named = folder.join("libtowpath_c.so.1");
            let _ = fs::remove_file(&named);
            std::os::unix::fs::symlink(library.join(SHARED), &named).unwrap();
            command.arg(&named).arg(format!("-Wl,-rpath,{}", folder.display())).arg("-lpthread");
        }
    }
    run(&mut command);
    program
}

/// What `/…` answers is what the programs in C expect.
fn origin() -> Server {
    Server::new(|stream, _| {
        while let Some(request) = read_request(stream) {
            serve(stream, request.split(' ').nth(1).unwrap_or_default(), &request);
        }
    })
}

fn serve(stream: &mut TcpStream, path: &str, request: &str) {
    match path {
        "/trailers" => {
            let head = "HTTP/1.1 200 OK\r\nX-Case: kept\r\nContent-Type: text/plain\r\nTransfer-Encoding: \
                chunked\r\n\r\n";
            let _ = stream
                .write_all(format!("{head}5\r\nhello\r\n0\r\nX-Sum: 5d41\r\n\r\n").as_bytes());
        }
        "/big" => answer(stream, "200 OK", "", &vec![b'b'; 4 << 20]),
        "/length" => {
            let body = request.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
            answer(stream, "200 OK", "", body.to_string().as_bytes());
        }
        "/moved" => answer(stream, "302 Found", "Location: /coded\r\n", b"elsewhere"),
        "/loop" => answer(stream, "302 Found", "Location: /loop\r\n", b""),
        "/coded" if request.contains("gzip") => {
            answer(stream, "200 OK", "Content-Encoding: gzip\r\n", HELLO_IN_GZIP);
        }
        "/damaged" => answer(stream, "200 OK", "Content-Encoding: gzip\r\n", b"not gzip"),
        "/cookie" => {
            let sent = request.lines().find_map(|line| line.strip_prefix("cookie: "));
            let fields = "Set-Cookie: a=1; Max-Age=60\r\n";
            answer(stream, "200 OK", fields, sent.unwrap_or("none").as_bytes());
        }
        "/kept" => {
            static ASKED: AtomicUsize = AtomicUsize::new(0);
            let number = ASKED.fetch_add(1, Ordering::Relaxed).to_string();
            answer(stream, "200 OK", "Cache-Control: max-age=60\r\n", number.as_bytes());
        }
        "/private" if request.contains("authorization: Basic dXNlcjpzZWNyZXQ=\r\n") => {
            answer(stream, "200 OK", "", b"welcome");
        }
        "/token" if request.contains("authorization: Bearer abc\r\n") => {
            answer(stream, "200 OK", "", b"token");
        }
        "/token" => {
            let schemes = "WWW-Authenticate: Basic realm=x, Bearer realm=\"the \\\"realm\\\"\", scope=all\r\n";
            answer(stream, "401 Who", schemes, b"");
        }
        _ if path.starts_with("http://") => forward(stream, request),
        "/private" => answer(stream, "401 Who", "WWW-Authenticate: Basic realm=x\r\n", b""),
        "/half" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            let _ = read_head(stream);
        }
        "/socket" => talk(stream, request),
        "/events" => tell_events(stream, request),
        "/never" => {
            let _ = read_head(stream);
        }
        _ => answer(stream, "200 OK", "", b"hello"),
    }
}

/// Tells by DNS over HTTPS that every name is this machine, but denies those that begin with `none`.
fn serve_names(authority: &Authority) -> SocketAddr {
    let config = authority.config("dns.test");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
            std::thread::spawn(move || while tell_name(&mut stream).is_some() {});
        }
    });
    address
}

fn tell_name(stream: &mut (impl Read + Write)) -> Option<()> {
    let head = read_head(stream)?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let mut question = vec![0; length.parse().ok()?];
    stream.read_exact(&mut question).ok()?;
    let end = 12 + question[12..].iter().position(|byte| *byte == 0)? + 5;
    let denied = question[13..17] == *b"none";
    let count = u8::from(question[end - 3] == 1 && !denied);
    let flags = [0x81, if denied { 0x83 } else { 0x80 }];
    let begin =
        [&question[..2], &flags, &[0, 1, 0, count, 0, 0, 0, 0], &question[12..end]].concat();
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1];
    let answer = [&begin, &record[..usize::from(count) * record.len()]].concat();
    let fields =
        format!("content-type: application/dns-message\r\ncontent-length: {}", answer.len());
    let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), &answer].concat()).ok()?;
    stream.flush().ok()
}

/// As a proxy does, that wants to know who asks.
fn forward(stream: &mut TcpStream, request: &str) {
    if request.contains("proxy-authorization: Basic dXNlcjpzZWNyZXQ=\r\n") {
        return answer(stream, "200 OK", "", b"forwarded");
    }
    answer(stream, "407 Who", "Proxy-Authenticate: Basic realm=proxy\r\n", b"");
}

/// Cuts the connection in the second event; and has no more behind that.
fn tell_events(stream: &mut TcpStream, request: &str) {
    const TYPE: &str = "Content-Type: text/event-stream\r\n";
    match request.lines().find_map(|line| line.strip_prefix("last-event-id: ")) {
        None => {
            let head = format!("HTTP/1.1 200 OK\r\n{TYPE}Content-Length: 99\r\n\r\n");
            let events = "retry: 10\nid: 1\ndata: one\ndata: line\n\nid: 2\ndata: tw";
            let _ = stream.write_all(format!("{head}{events}").as_bytes());
            let _ = stream.shutdown(Shutdown::Both);
        }
        Some("1") => {
            let event = "id: 2\nevent: own\ndata: two\n\n";
            answer(stream, "200 OK", TYPE, event.as_bytes());
        }
        Some("2") => answer(stream, "204 Enough", "", b""),
        Some("endless") => {
            let head = format!("HTTP/1.1 200 OK\r\n{TYPE}\r\n");
            let _ = stream.write_all(format!("{head}data: here\n\n").as_bytes());
            let _ = read_head(stream);
        }
        Some(_) => answer(stream, "404 None", "", b""),
    }
}

/// Sends messages of a WebSocket back, and closes after one that says so.
fn talk(stream: &mut TcpStream, request: &str) {
    let key = request.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    let accept = String::from_utf8(accept(key.as_bytes()).to_vec()).unwrap();
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Protocol: chat\r\n";
    let _ = stream.write_all(format!("{head}Sec-WebSocket-Accept: {accept}\r\n\r\n").as_bytes());
    let (mut frames, mut message) = (Frames::of(Sender::Client), Vec::new());
    let mut bytes = vec![0; 65_536];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        let mut rest = &bytes[..count];
        while let Some(item) = frames.next(&mut rest).unwrap() {
            let answer = match item {
                Item::Begin(..) => {
                    message.clear();
                    continue;
                }
                Item::Piece(piece) => {
                    message.extend_from_slice(piece);
                    continue;
                }
                Item::End(_) if message == b"close" => {
                    frame(Opcode::Close, b"\x0f\xa1enough", None)
                }
                Item::End(opcode) => frame(opcode, &message, None),
                Item::Control(Opcode::Close, payload) => {
                    let _ = stream.write_all(&frame(Opcode::Close, payload, None));
                    return;
                }
                Item::Control(..) => continue,
            };
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

/// A member whose one block is stored (RFC 1951 §3.2.4).
const HELLO_IN_GZIP: &[u8] =
    b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\x05\0\xfa\xffhello\x86\xa6\x10\x36\x05\0\0\0";

struct SecureOrigin {
    address: SocketAddr,
    roots_pem: String,
}

/// The function that a line of the header declares.
fn declared(line: &str) -> Option<&str> {
    let (before, _) = line.split_once('(')?;
    let name = before.rsplit([' ', '*']).next()?;
    let starts = !line.starts_with([' ', '#', '/', '}']);
    (starts && name.starts_with("towpath_")).then_some(name)
}

/// Runs to its end, which has to be a good one.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{told}", output.status);
    output
}

/// A program of this machine. Where it is missing the test is left out, but not in CI.
fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|it| it.exists());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "there is no {name} in PATH");
        eprintln!("left out, there is no {name} in PATH");
    }
    found
}

/// Where cargo has put the library beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    assert!(folder.join(SHARED).exists(), "no {SHARED} in {}", folder.display());
    folder.to_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("towpath-c-{name}"));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn include_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/c")
}

fn include() -> String {
    format!("-I{}", include_folder().display())
}

fn examples_folder() -> PathBuf {
    include_folder().join("examples")
}

fn tests_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

const SHARED: &str = "libtowpath_c.so";
const STRICT: [&str; 6] =
    ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
const SYSTEM_LIBRARIES: [&str; 5] = ["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"];

const EVENTS: &[(&str, u32)] = {
    use towpath_c::abi::event;
    &[
        ("NONE", 0),
        ("HEAD", event::HEAD),
        ("DATA", event::DATA),
        ("TRAILERS", event::TRAILERS),
        ("ROOM", event::ROOM),
        ("END", event::END),
    ]
};

const SOCKET_EVENTS: &[(&str, u32)] = {
    use towpath_c::abi::socket_event;
    &[
        ("OPEN", socket_event::OPEN),
        ("MESSAGE", socket_event::MESSAGE),
        ("ROOM", socket_event::ROOM),
        ("END", socket_event::END),
    ]
};

const STREAM_EVENTS: &[(&str, u32)] = {
    use towpath_c::abi::stream_event;
    &[
        ("OPEN", stream_event::OPEN),
        ("EVENT", stream_event::EVENT),
        ("BREAK", stream_event::BREAK),
        ("END", stream_event::END),
    ]
};

const CODES: &[(&str, towpath_c::abi::Code)] = {
    use towpath_c::abi::Code;
    &[
        ("ARGUMENT", Code::Argument),
        ("URL", Code::Url),
        ("TOKEN", Code::Token),
        ("BODY", Code::Body),
        ("STATE", Code::State),
        ("ABSENT", Code::Absent),
        ("TLS_SETUP", Code::TlsSetup),
        ("RESOURCE", Code::Resource),
        ("STOPPED", Code::Stopped),
        ("INTERNAL", Code::Internal),
        ("CANCELLED", Code::Cancelled),
        ("OFFLINE", Code::Offline),
        ("RESOLVE", Code::Resolve),
        ("CONNECT", Code::Connect),
        ("TLS", Code::Tls),
        ("FIRST_BYTE_TIMEOUT", Code::FirstByteTimeout),
        ("GAP_TIMEOUT", Code::GapTimeout),
        ("ATTEMPT_TIMEOUT", Code::AttemptTimeout),
        ("TOTAL_TIMEOUT", Code::TotalTimeout),
        ("DISCONNECTED", Code::Disconnected),
        ("PROTOCOL", Code::Protocol),
        ("OVERFLOW", Code::Overflow),
        ("OTHER", Code::Other),
        ("RESTING", Code::Resting),
        ("IDENTICAL_LIMIT", Code::IdenticalLimit),
        ("FLOW_LIMIT", Code::FlowLimit),
        ("NOT_CONNECTED", Code::NotConnected),
        ("DECODING", Code::Decoding),
        ("PROXY", Code::Proxy),
        ("WEBSOCKET", Code::WebSocket),
        ("EVENTS", Code::Events),
    ]
};
