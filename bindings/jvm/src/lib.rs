//! The client library for the JVM: the native methods of `io.towpath.Native`, whose Java half is in `java`. Here they
//! are by JNI, for JDK 17 on; [`ffm`] has them by the Foreign Function & Memory API, for JDK 22 on.
//!
//! | Module | What it holds |
//! |---|---|
//! | `bytes` | bytes as Java has them |
//! | `calls` | what the methods do, by either way |
//! | `ffm` | one function for all methods, by Java's Foreign Function & Memory API |
//! | `exchange` | one request and its response, whose calls block |
//! | `handle` | what Java keeps as numbers |
//! | `socket` | WebSocket: calls that never wait, and the hub that tells which sockets go on |
//!
//! A thread of Java's that waits here is one that waits in native code: it holds up neither safepoints nor the
//! collector. The engine's thread never calls into the JVM. Texts pass as bytes, so that nothing here depends on
//! Java's strings.

mod bytes;
mod calls;
mod exchange;
pub mod ffm;
mod handle;
mod socket;

use std::sync::Arc;

use jni::errors::ThrowRuntimeExAndDefault;
use jni::objects::{JByteArray, JClass};
use jni::strings::JNIString;
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned, jni_mangle, jni_str};
use towpath::{Engine, Error};

use crate::bytes::{signed, signed_mut};
use crate::exchange::Exchange;
use crate::socket::{Hub, Socket};

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
        let roots = match roots.is_null() {
            true => None,
            false => Some(env.convert_byte_array(&roots)?),
        };
        let numbers = [max_connections, max_calls, max_calls_per_origin, window_bytes];
        let started = calls::engine(roots, numbers);
        started.map(handle::give).or_else(|error| throw(env, &error))
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
        let engine = handle::look::<Engine>(engine);
        let changed = calls::network_changed(&engine, &label, mobile, online);
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
        let body = match body.is_null() {
            true => None,
            false => Some(env.convert_byte_array(&body)?),
        };
        let engine = handle::look::<Engine>(engine);
        let started = calls::exchange(&engine, &head, body, length, [connect_ms, read_ms, retries]);
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
    env.with_env(|env| env.byte_array_from_slice(&calls::ready(&handle::look::<Arc<Hub>>(hub))))
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
        let hub = handle::look::<Arc<Hub>>(hub);
        let numbers = [connect_ms, read_ms, retries, redirects, ping_ms, close_ms];
        let started = calls::socket(&engine, &hub, token, &head, numbers);
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
        let sent = calls::send(&handle::look::<Socket>(socket), is_text, bytes);
        sent.or_else(|error| throw(env, &error))
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
        match calls::receive(&handle::look::<Socket>(socket)) {
            Ok(Some(came)) => env.byte_array_from_slice(&came),
            Ok(None) => Ok(JByteArray::null()),
            Err(error) => throw(env, &error),
        }
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
        let closed = calls::close(&handle::look::<Socket>(socket), code, &reason);
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

/// Throws Java's `Failure`, with the kind before the text.
fn throw<T>(env: &mut Env<'_>, error: &Error) -> Result<T> {
    let text = JNIString::from(calls::words(error));
    env.throw_new(jni_str!("io/towpath/Failure"), text)?;
    Err(jni::errors::Error::JavaException)
}
