//! The client library for the JVM: the native methods of `io.towpath.Native`, whose Java half is in `java`.
//!
//! | Module | What it holds |
//! |---|---|
//! | `bytes` | bytes as Java has them |
//! | `exchange` | one request and its response, whose calls block |
//! | `handle` | what Java keeps as numbers |
//! | `socket` | WebSocket: calls that never wait, and the hub that tells which sockets go on |
//!
//! A thread of Java's that waits here is one that waits in native code: it holds up neither safepoints nor the
//! collector. The engine's thread never calls into the JVM. Texts pass as bytes, so that nothing here depends on
//! Java's strings.

mod bytes;
mod exchange;
mod handle;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use jni::errors::ThrowRuntimeExAndDefault;
use jni::objects::{JByteArray, JClass};
use jni::strings::JNIString;
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned, jni_mangle, jni_str};
use towpath::websocket::Message;
use towpath::{Engine, Error, HttpVersions, Request, Settings, Tls};
use towpath_exchange::kind::kind;

use crate::bytes::{signed, signed_mut};
use crate::exchange::Exchange;
use crate::socket::{Hub, Received, Socket};

/// What a call into the JVM comes to: its error is thrown already, or is the JVM's own.
type Result<T> = jni::errors::Result<T>;

/// Starts an engine. `settings` are numbers in the order of Java's `Settings`; where one is negative the default holds.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn engine_start<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    roots: JByteArray<'local>,
    max_connections: jint,
    max_calls: jint,
    max_calls_per_origin: jint,
    window_bytes: jint,
) -> jlong {
    env.with_env(|env| -> Result<jlong> {
        let mut settings = Settings::default();
        let set = |value: jint, setting: &mut usize| {
            *setting = usize::try_from(value).unwrap_or(*setting);
        };
        set(max_connections, &mut settings.max_connections);
        set(max_calls, &mut settings.max_calls);
        set(window_bytes, &mut settings.window_bytes);
        let mut tls = Tls::new();
        if !roots.is_null() {
            tls = tls.roots(env.convert_byte_array(&roots)?);
        }
        let most = usize::try_from(max_calls_per_origin).unwrap_or(0);
        let builder = Engine::builder().settings(settings).tls(tls).max_calls_per_origin(most);
        match builder.start() {
            Ok(engine) => Ok(handle::give(engine)),
            Err(error) => throw(env, &error),
        }
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// Gives an engine back: it ends with the last request on it.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn engine_free<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
    engine: jlong,
) {
    handle::take::<Engine>(engine);
}

/// What network there is, in place of what the kernel tells.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn network_changed<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    engine: jlong,
    label: JByteArray<'local>,
    mobile: jboolean,
    online: jboolean,
) {
    env.with_env(|env| -> Result<()> {
        let label = env.convert_byte_array(&label)?;
        let kind = if mobile { towpath::NetworkKind::Mobile } else { towpath::NetworkKind::Fixed };
        let engine = handle::look::<Engine>(engine);
        let changed = engine.network_changed(&String::from_utf8_lossy(&label), kind, online);
        changed.or_else(|error| throw(env, &error))
    })
    .resolve::<ThrowRuntimeExAndDefault>();
}

/// Sends a request. `head` is method, URL and fields (`name:value`), a line each. Without `body` one follows if
/// `length` is not -2: of so many bytes, or of an unknown number (-1). Times are ms, 0 for none.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn exchange_start<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    engine: jlong,
    head: JByteArray<'local>,
    body: JByteArray<'local>,
    length: jlong,
    connect_ms: jint,
    read_ms: jint,
    retries: jint,
) -> jlong {
    env.with_env(|env| -> Result<jlong> {
        let head = env.convert_byte_array(&head)?;
        let request = match request(&handle::look::<Engine>(engine), &head) {
            Ok(request) => limited(request, connect_ms, read_ms, retries),
            Err(error) => return throw(env, &error),
        };
        let started = if !body.is_null() {
            Exchange::asking(request.body(env.convert_byte_array(&body)?))
        } else if length == NO_BODY {
            Exchange::asking(request)
        } else {
            Exchange::uploading(request, u64::try_from(length).ok())
        };
        started.map(handle::give).or_else(|error| throw(env, &error))
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// Sends a piece of the body: false when no more is wanted.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn write<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    exchange: jlong,
    bytes: JByteArray<'local>,
    offset: jint,
    length: jint,
) -> jboolean {
    env.with_env(|env| -> Result<jboolean> {
        let mut piece = vec![0; usize::try_from(length).unwrap_or(0)];
        bytes.get_region(env, offset, signed_mut(&mut piece))?;
        Ok(handle::look::<Exchange>(exchange).write(&piece))
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// Ends the body.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn finish<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    exchange: jlong,
) {
    env.with_env(|env| -> Result<()> {
        handle::look::<Exchange>(exchange).finish().or_else(|error| throw(env, &error))
    })
    .resolve::<ThrowRuntimeExAndDefault>();
}

/// The response's status and its fields, a line each.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn head<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    exchange: jlong,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<JByteArray<'local>> {
        match handle::look::<Exchange>(exchange).head() {
            Ok(head) => env.byte_array_from_slice(&head),
            Err(error) => throw(env, &error),
        }
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// Reads at most so many bytes of the response's body, and answers how many; -1 after the last.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn read<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    exchange: jlong,
    bytes: JByteArray<'local>,
    length: jint,
) -> jint {
    env.with_env(|env| -> Result<jint> {
        let most = usize::try_from(length).unwrap_or(0);
        match handle::look::<Exchange>(exchange).read(most) {
            Ok(None) => Ok(-1),
            Ok(Some(piece)) => {
                bytes.set_region(env, 0, signed(&piece))?;
                Ok(jint::try_from(piece.len()).unwrap_or(length))
            }
            Err(error) => throw(env, &error),
        }
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// The fields after the body, a line each, once it has ended.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn trailers<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    exchange: jlong,
) -> JByteArray<'local> {
    env.with_env(|env| env.byte_array_from_slice(&handle::look::<Exchange>(exchange).trailers()))
        .resolve::<ThrowRuntimeExAndDefault>()
}

/// What happened to the request as JSON, once it is over; empty before.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn report<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    exchange: jlong,
) -> JByteArray<'local> {
    env.with_env(|env| {
        let report = handle::look::<Exchange>(exchange).report().unwrap_or_default();
        env.byte_array_from_slice(report.as_bytes())
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// Gives the request up, unless it has ended.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn cancel<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
    exchange: jlong,
) {
    handle::look::<Exchange>(exchange).cancel();
}

/// Gives an exchange back, and the request up, unless it has ended.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn exchange_free<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
    exchange: jlong,
) {
    handle::take::<Exchange>(exchange);
}

/// What sockets tell of themselves by.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn hub_start<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> jlong {
    handle::give(Arc::new(Hub::default()))
}

/// Waits for sockets that go on, and answers their tokens: 8 bytes each, the last one first.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn hub_take<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    hub: jlong,
) -> JByteArray<'local> {
    env.with_env(|env| {
        let tokens = handle::look::<Arc<Hub>>(hub).take();
        let bytes: Vec<u8> = tokens.into_iter().flat_map(jlong::to_le_bytes).collect();
        env.byte_array_from_slice(&bytes)
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// Ends a wait for sockets.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn hub_ring<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
    hub: jlong,
) {
    handle::look::<Arc<Hub>>(hub).ring();
}

/// Begins to open a WebSocket; the hub tells of it by `token`. `head` is that of a request, times are ms.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn socket_start<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    engine: jlong,
    hub: jlong,
    token: jlong,
    head: JByteArray<'local>,
    connect_ms: jint,
    read_ms: jint,
    retries: jint,
    redirects: jint,
    ping_ms: jint,
    close_ms: jint,
) -> jlong {
    env.with_env(|env| -> Result<jlong> {
        let head = env.convert_byte_array(&head)?;
        let engine = handle::look::<Engine>(engine);
        let hub = Arc::clone(&*handle::look::<Arc<Hub>>(hub));
        let started = request(&engine, &head).and_then(|request| {
            let request = limited(request, connect_ms, read_ms, retries)
                .redirects(usize::try_from(redirects).unwrap_or(0));
            Socket::start(request, &subprotocols(&head), (ping_ms, close_ms), hub, token)
        });
        started.map(handle::give).or_else(|error| throw(env, &error))
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// The fields of the server's answer, a line each; null while it is not open.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn socket_opened<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    socket: jlong,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<JByteArray<'local>> {
        match handle::look::<Socket>(socket).opened() {
            Ok(Some(head)) => env.byte_array_from_slice(&head),
            Ok(None) => Ok(JByteArray::null()),
            Err(error) => throw(env, &error),
        }
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// Sends a message: false where there is no room for it yet.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn socket_send<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    socket: jlong,
    is_text: jboolean,
    bytes: JByteArray<'local>,
) -> jboolean {
    env.with_env(|env| -> Result<jboolean> {
        let bytes = env.convert_byte_array(&bytes)?;
        let message = if is_text {
            Message::from(String::from_utf8_lossy(&bytes).into_owned())
        } else {
            Message::from(bytes)
        };
        handle::look::<Socket>(socket).send(&message).or_else(|error| throw(env, &error))
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// What has come: a text behind `t`, bytes behind `b`, the server's close behind `c` as its code (two bytes, the last
/// one first) and reason; null where nothing has.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn socket_receive<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    socket: jlong,
) -> JByteArray<'local> {
    env.with_env(|env| -> Result<JByteArray<'local>> {
        let came = match handle::look::<Socket>(socket).receive() {
            Ok(None) => return Ok(JByteArray::null()),
            Ok(Some(Received::Message(message))) => {
                let kind: &[u8] = if message.as_text().is_some() { b"t" } else { b"b" };
                [kind, message.bytes()].concat()
            }
            Ok(Some(Received::Close(code, reason))) => {
                [b"c", &code.to_le_bytes()[..], reason.as_bytes()].concat()
            }
            Err(error) => return throw(env, &error),
        };
        env.byte_array_from_slice(&came)
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// Bytes of messages that the network has not taken.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn socket_waiting<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
    socket: jlong,
) -> jlong {
    jlong::try_from(handle::look::<Socket>(socket).waiting()).unwrap_or(jlong::MAX)
}

/// Begins to close it.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn socket_close<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    socket: jlong,
    code: jint,
    reason: JByteArray<'local>,
) {
    env.with_env(|env| -> Result<()> {
        let reason = env.convert_byte_array(&reason)?;
        let code = u16::try_from(code).unwrap_or(0);
        let closed = handle::look::<Socket>(socket).close(code, &String::from_utf8_lossy(&reason));
        closed.or_else(|error| throw(env, &error))
    })
    .resolve::<ThrowRuntimeExAndDefault>();
}

/// Gives it up.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn socket_cancel<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
    socket: jlong,
) {
    handle::look::<Socket>(socket).cancel();
}

/// Gives a socket back.
#[jni_mangle("io.towpath.Native")]
pub extern "system" fn socket_free<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
    socket: jlong,
) {
    handle::take::<Socket>(socket);
}

/// The subprotocols that a head's lines ask for.
fn subprotocols(head: &[u8]) -> Vec<String> {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().skip(2).filter_map(|line| line.split_once(':'));
    let wanted = fields.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-protocol"));
    let names = wanted.flat_map(|(_, value)| value.split(','));
    names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn request(engine: &Engine, head: &[u8]) -> std::result::Result<Request, Error> {
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
fn limited(request: Request, connect_ms: jint, read_ms: jint, retries: jint) -> Request {
    let limit = |ms: jint| match u64::try_from(ms) {
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

/// Throws Java's `Failure`, with the kind before the text.
fn throw<T>(env: &mut Env<'_>, error: &Error) -> Result<T> {
    let why = error.to_string();
    let status =
        if let Error::Status(status) = error { format!(" {status}") } else { String::new() };
    let text = JNIString::from(format!("{}{status}\n{why}", kind(error)));
    env.throw_new(jni_str!("io/towpath/Failure"), text)?;
    Err(jni::errors::Error::JavaException)
}

/// A length that says that no body follows.
const NO_BODY: jlong = -2;
/// A year.
const NO_LIMIT: Duration = Duration::from_secs(365 * 86_400);
