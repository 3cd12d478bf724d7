//! What the native methods do, whether JNI or the Foreign Function & Memory API calls them.

use std::sync::Arc;
use std::time::Duration;

use towpath::websocket::Message;
use towpath::{Engine, Error, HttpVersions, NetworkKind, Request, Settings, Tls};
use towpath_exchange::kind::kind;

use crate::exchange::Exchange;
use crate::socket::{Hub, Received, Socket};

/// Starts an engine. Where a number is negative the default holds.
pub(crate) fn engine(
    roots: Option<Vec<u8>>,
    [max_connections, max_calls, max_calls_per_origin, window_bytes]: [i32; 4],
) -> Result<Engine, Error> {
    let mut settings = Settings::default();
    let set = |value: i32, setting: &mut usize| {
        *setting = usize::try_from(value).unwrap_or(*setting);
    };
    set(max_connections, &mut settings.max_connections);
    set(max_calls, &mut settings.max_calls);
    set(window_bytes, &mut settings.window_bytes);
    let tls = roots.into_iter().fold(Tls::new(), Tls::roots);
    let most = usize::try_from(max_calls_per_origin).unwrap_or(0);
    Engine::builder().settings(settings).tls(tls).max_calls_per_origin(most).start()
}

pub(crate) fn network_changed(
    engine: &Engine,
    label: &[u8],
    mobile: bool,
    online: bool,
) -> Result<(), Error> {
    let kind = if mobile { NetworkKind::Mobile } else { NetworkKind::Fixed };
    engine.network_changed(&String::from_utf8_lossy(label), kind, online)
}

/// Sends a request. `head` is method, URL and fields (`name:value`), a line each. Without `body` one follows if
/// `length` is not -2: of so many bytes, or of an unknown number (-1). Times are ms, 0 for none.
pub(crate) fn exchange(
    engine: &Engine,
    head: &[u8],
    body: Option<Vec<u8>>,
    length: i64,
    [connect_ms, read_ms, retries]: [i32; 3],
) -> Result<Exchange, Error> {
    let request = limited(request(engine, head)?, connect_ms, read_ms, retries);
    match body {
        Some(body) => Exchange::asking(request.body(body)),
        None if length == NO_BODY => Exchange::asking(request),
        None => Exchange::uploading(request, u64::try_from(length).ok()),
    }
}

/// The tokens of sockets that go on: 8 bytes each, the last one first. It waits for some.
pub(crate) fn ready(hub: &Hub) -> Vec<u8> {
    hub.take().into_iter().flat_map(i64::to_le_bytes).collect()
}

/// Begins to open a WebSocket; the hub tells of it by `token`. `head` is that of a request, times are ms.
pub(crate) fn socket(
    engine: &Engine,
    hub: &Arc<Hub>,
    token: i64,
    head: &[u8],
    [connect_ms, read_ms, retries, redirects, ping_ms, close_ms]: [i32; 6],
) -> Result<Socket, Error> {
    let request = limited(request(engine, head)?, connect_ms, read_ms, retries);
    let request = request.redirects(usize::try_from(redirects).unwrap_or(0));
    Socket::start(request, &subprotocols(head), (ping_ms, close_ms), Arc::clone(hub), token)
}

/// Sends a message: false where there is no room for it yet.
pub(crate) fn send(socket: &Socket, is_text: bool, bytes: Vec<u8>) -> Result<bool, Error> {
    socket.send(&match is_text {
        true => Message::from(String::from_utf8_lossy(&bytes).into_owned()),
        false => Message::from(bytes),
    })
}

/// What has come: a text behind `t`, bytes behind `b`, the server's close behind `c` as its code (two bytes, the last
/// one first) and reason; none where nothing has.
pub(crate) fn receive(socket: &Socket) -> Result<Option<Vec<u8>>, Error> {
    Ok(socket.receive()?.map(|came| match came {
        Received::Message(message) => {
            let kind: &[u8] = if message.as_text().is_some() { b"t" } else { b"b" };
            [kind, message.bytes()].concat()
        }
        Received::Close(code, reason) => {
            [b"c", &code.to_le_bytes()[..], reason.as_bytes()].concat()
        }
    }))
}

pub(crate) fn close(socket: &Socket, code: i32, reason: &[u8]) -> Result<(), Error> {
    socket.close(u16::try_from(code).unwrap_or(0), &String::from_utf8_lossy(reason))
}

/// An error for Java's `Failure`: its kind, and its words in the next line.
pub(crate) fn words(error: &Error) -> String {
    let status =
        if let Error::Status(status) = error { format!(" {status}") } else { String::new() };
    format!("{}{status}\n{error}", kind(error))
}

/// The subprotocols that a head's lines ask for.
fn subprotocols(head: &[u8]) -> Vec<String> {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().skip(2).filter_map(|line| line.split_once(':'));
    let wanted = fields.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-protocol"));
    let names = wanted.flat_map(|(_, value)| value.split(','));
    names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn request(engine: &Engine, head: &[u8]) -> Result<Request, Error> {
    let head =
        std::str::from_utf8(head).map_err(|_| Error::NotAToken("a field's value".to_owned()))?;
    let mut lines = head.split('\n');
    let (method, url) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut request = engine.client().request(method, url).redirects(0).no_decode();
    // What OkHttp is told.
    request = request.http_versions(HttpVersions::Http1);
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        request = request.header(name, value);
    }
    Ok(request)
}

/// As OkHttp means it: until there is a connection, and between any two signs of life after that. 0 is no limit.
fn limited(request: Request, connect_ms: i32, read_ms: i32, retries: i32) -> Request {
    let limit = |ms: i32| match u64::try_from(ms) {
        Ok(0) | Err(_) => NO_LIMIT,
        Ok(ms) => Duration::from_millis(ms),
    };
    let (connect, read) = (limit(connect_ms), limit(read_ms));
    let request = match u32::try_from(retries) {
        Ok(retries) => request.retries(retries),
        Err(_) => request,
    };
    request
        .connect_timeout(connect)
        .answer_timeout(read)
        // The caller's word counts, not what the engine has learned of the server.
        .first_byte_timeout(2 * read)
        .attempt_timeout(2 * read)
        .gap_timeout(read)
}

/// A length that says that no body follows.
const NO_BODY: i64 = -2;
/// A year.
const NO_LIMIT: Duration = Duration::from_secs(365 * 86_400);
