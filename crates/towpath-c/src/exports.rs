//! The header's functions, in its order. Each checks what it is given, does one thing, and lets no panic out.
//!
//! What they ask of the caller is in the header: handles that came from here and were not given back, texts that end,
//! arrays as long as they are said to be.
#![expect(
    unsafe_code,
    reason = "called by C; each block relies on what the header asks of the caller"
)]

pub mod challenge;
pub mod lent;
pub mod link;
pub mod outbox;
pub mod socket;
pub mod stream;

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath::{Chunk, NetworkKind};

use crate::abi::{Bytes, Code, EngineOptions, Event, Field, RequestOptions, VERSION};
use crate::auth;
use crate::engine::{self, Asked, Engine, not_in_callback};
use crate::failure::{Failure, Result, guard, guard_or, last, words};
use crate::foreign::{User, array, borrow, put, read, size, text, write};
use crate::kept;
use crate::queue::Queue;
use crate::request::{self, Listener, Request};

/// See the header.
#[unsafe(no_mangle)]
pub const extern "C" fn towpath_abi_version() -> u32 {
    VERSION
}

/// See the header.
#[unsafe(no_mangle)]
pub const extern "C" fn towpath_version() -> *const c_char {
    engine::version()
}

/// See the header.
#[unsafe(no_mangle)]
pub const extern "C" fn towpath_error_text(error: i32) -> *const c_char {
    words(error).as_ptr()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn towpath_last_error() -> *const c_char {
    guard_or(c"".as_ptr(), last)
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_engine_new(
    options: *const EngineOptions,
    engine: *mut *mut Engine,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for results.
        unsafe { put(engine, std::ptr::null_mut(), "engine") }?;
        // SAFETY: the header's rules for structures.
        let options = unsafe { engine_options(options) }?;
        let handle = Box::into_raw(Box::new(engine_wishes(&options)?.start()?));
        // SAFETY: it could be written above.
        unsafe { put(engine, handle, "engine") }
    })
}

/// The options, or those that stand for all defaults.
///
/// # Safety
/// `options` is null or a structure of the header's.
unsafe fn engine_options(options: *const EngineOptions) -> Result<EngineOptions> {
    if options.is_null() {
        return Ok(ALL_DEFAULTS);
    }
    // SAFETY: the caller's promise is the same.
    unsafe { read(options, "options") }
}

/// How long to wait: without end where it is negative.
fn limit(timeout_ms: i32) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

/// Takes a handle back, whose end may wait for the thread of callbacks. Nothing is done for null.
///
/// # Safety
/// It is null, or came out of a box and is given back once.
unsafe fn free<T>(handle: *mut T, function: &str) -> Result<()> {
    if handle.is_null() {
        return Ok(());
    }
    not_in_callback(function)?;
    // SAFETY: the caller's promise is the same.
    drop(unsafe { Box::from_raw(handle) });
    Ok(())
}

fn engine_wishes(options: &EngineOptions) -> Result<engine::Wishes<'_>> {
    if options.reserved != 0 {
        return Err(Failure::argument("reserved is not 0"));
    }
    let pins = options.pins.cast::<[u8; 32]>();
    // SAFETY: the header's rules for texts and arrays; they are used before the call returns.
    unsafe {
        Ok(engine::Wishes {
            memory_path: text(options.memory_path, "memory_path")?,
            roots_pem: text(options.roots_pem, "roots_pem")?,
            pins: array(pins, options.pin_count, "pins")?,
            chain_pem: text(options.identity_chain_pem, "identity_chain_pem")?,
            key_pem: text(options.identity_key_pem, "identity_key_pem")?,
            window_bytes: options.window_bytes,
            replay_bytes: options.replay_bytes,
            max_requests: options.max_requests,
            max_requests_per_origin: options.max_requests_per_origin,
            max_requests_under_way: options.max_requests_under_way,
            max_connections: options.max_connections,
            idle_timeout_ms: options.idle_timeout_ms,
            no_coalescing: options.no_coalescing != 0,
            max_rest_ms: options.max_rest_ms,
            max_flow_bytes: options.max_flow_bytes,
            flow_window_ms: options.flow_window_ms,
            max_identical: options.max_identical,
            identical_window_ms: options.identical_window_ms,
            asked: options
                .on_question
                .map(|on_question| Asked { on_question, user: User(options.question_user) }),
            challenged: auth::asked(options.on_challenge, options.challenge_user),
            watch_network: options.watch_network != 0,
            dns_servers: text(options.dns_servers, "dns_servers")?,
            system_resolver: options.system_resolver != 0,
            doh: engine::DohWishes {
                url: text(options.doh_url, "doh_url")?,
                addresses: text(options.doh_addresses, "doh_addresses")?,
                timeout_ms: options.doh_timeout_ms,
                or_system: options.doh_or_system != 0,
                by_get: options.doh_by_get != 0,
            },
            kept: kept::Wishes {
                cookies_path: text(options.cookies_path, "cookies_path")?,
                hsts_path: text(options.hsts_path, "hsts_path")?,
                cache_path: text(options.cache_path, "cache_path")?,
                cache_bytes: options.cache_bytes,
                cache_stale_s: options.cache_stale_s,
            },
            proxies: engine::ProxyWishes {
                proxy: text(options.proxy, "proxy")?,
                except: text(options.no_proxy, "no_proxy")?,
                from_environment: options.proxy_from_environment,
            },
        })
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_engine_free(engine: *mut Engine) -> i32 {
    guard(|| {
        if engine.is_null() {
            return Ok(());
        }
        not_in_callback("towpath_engine_free")?;
        // SAFETY: the header's rules for handles.
        unsafe { borrow(engine, "engine") }?.has_no_links()?;
        // SAFETY: it came out of a box in `towpath_engine_new`, and is given back once.
        drop(unsafe { Box::from_raw(engine) });
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_engine_network(
    engine: *mut Engine,
    label: *const c_char,
    kind: u32,
    online: i32,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and texts.
        let (engine, label) = unsafe { (borrow(engine, "engine")?, text(label, "label")?) };
        let kind = match kind {
            0 => NetworkKind::Fixed,
            1 => NetworkKind::Mobile,
            other => return Err(Failure::argument(format!("kind is {other}"))),
        };
        let label = label.ok_or_else(|| Failure::argument("label is NULL"))?;
        Ok(engine.engine.network_changed(label, kind, online != 0)?)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_engine_save(engine: *mut Engine, path: *const c_char) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and texts.
        let (engine, path) = unsafe { (borrow(engine, "engine")?, text(path, "path")?) };
        engine.not_on_its_thread("towpath_engine_save")?;
        let path = path.ok_or_else(|| Failure::argument("path is NULL"))?;
        Ok(engine.engine.save_memory(Path::new(path))?)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_engine_keep(engine: *const Engine) -> i32 {
    // SAFETY: the header's rules for handles.
    guard(|| unsafe { borrow(engine, "engine") }?.keep())
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_engine_wakeups(engine: *const Engine) -> u64 {
    guard_or(0, || {
        // SAFETY: the header's rules for handles.
        unsafe { engine.as_ref() }.map_or(0, |engine| engine.engine.wakeups())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_chunk_release(chunk: *mut Chunk) {
    guard_or((), || {
        if !chunk.is_null() {
            // SAFETY: it came out of a box in `Request::event`, and is given back once.
            drop(unsafe { Box::from_raw(chunk) });
        }
    });
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_queue_new(queue: *mut *const Queue) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for results.
        unsafe { put(queue, std::ptr::null(), "queue") }?;
        let handle = Arc::into_raw(Arc::new(Queue::new()?));
        // SAFETY: it could be written above.
        unsafe { put(queue, handle, "queue") }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_queue_next(
    queue: *const Queue,
    event: *mut Event,
    timeout_ms: i32,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        let queue = unsafe { borrow(queue, "queue") }?;
        // SAFETY: the header's rules for structures. Checked first: an event that was taken must not be lost.
        unsafe { size(event, "event") }?;
        if timeout_ms != 0 {
            not_in_callback("waiting for an event")?;
        }
        let taken = match queue.next(limit(timeout_ms)) {
            Some((request, told)) => request.event(told),
            None => NOTHING,
        };
        // SAFETY: the header's rules for structures.
        unsafe { write(event, &taken, "event") }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_queue_fd(queue: *const Queue) -> i32 {
    // SAFETY: the header's rules for handles.
    guard_or(-1, || unsafe { queue.as_ref() }.map_or(-1, Queue::descriptor))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_queue_free(queue: *const Queue) {
    guard_or((), || {
        if !queue.is_null() {
            // SAFETY: it came out of an `Arc` in `towpath_queue_new`, and is given back once.
            unsafe { Arc::from_raw(queue) }.close();
        }
    });
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_start(
    engine: *mut Engine,
    options: *const RequestOptions,
    request: *mut *const Request,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for results, handles and structures.
        let (engine, options) = unsafe {
            put(request, std::ptr::null(), "request")?;
            (borrow(engine, "engine")?, read(options, "options")?)
        };
        let wishes = request_wishes(&options)?;
        let started = Arc::new(Request::new(options.user, listener(&options)?));
        // The app's share is there before the first event.
        let handle = Arc::into_raw(Arc::clone(&started));
        // SAFETY: it could be written above.
        unsafe { put(request, handle, "request") }?;
        wishes.start(engine, &started).inspect_err(|_| {
            // SAFETY: the share of the app, which gets none; the place could be written above.
            unsafe {
                drop(Arc::from_raw(handle));
                request.write_unaligned(std::ptr::null());
            }
        })
    })
}

fn listener(options: &RequestOptions) -> Result<Listener> {
    match (options.on_event, options.queue.is_null()) {
        (Some(on_event), true) => Ok(Listener::Function(on_event)),
        (None, false) => {
            // SAFETY: it came out of an `Arc`, whose count is raised for the request's own share.
            let queue = unsafe {
                Arc::increment_strong_count(options.queue);
                Arc::from_raw(options.queue)
            };
            Ok(Listener::Queue(queue))
        }
        (Some(_), false) => Err(Failure::argument("on_event and queue are both set")),
        (None, true) => Err(Failure::argument("neither on_event nor queue is set")),
    }
}

fn request_wishes(options: &RequestOptions) -> Result<request::Wishes<'_>> {
    if options.reserved != 0 {
        return Err(Failure::argument("reserved is not 0"));
    }
    // SAFETY: the header's rules for texts and arrays; they are used before the call returns.
    unsafe {
        let fields: &[Field] = array(options.fields, options.field_count, "fields")?;
        let pair = |field: &Field| {
            let name = text(field.name, "a field's name")?;
            let value = text(field.value, "a field's value")?;
            name.zip(value).ok_or_else(|| Failure::argument("a field's name or value is NULL"))
        };
        Ok(request::Wishes {
            url: text(options.url, "url")?.ok_or_else(|| Failure::argument("url is NULL"))?,
            method: text(options.method, "method")?,
            fields: fields.iter().map(pair).collect::<Result<_>>()?,
            body: array(options.body, options.body_length, "body")?,
            body_follows: options.body_follows != 0,
            content_length: options.content_length,
            repeat: options.repeat,
            idempotency_key: text(options.idempotency_key, "idempotency_key")?,
            timeout_ms: options.timeout_ms,
            first_byte_timeout_ms: options.first_byte_timeout_ms,
            gap_timeout_ms: options.gap_timeout_ms,
            retries: options.retries,
            wait_for_network: options.wait_for_network != 0,
            fail_at_rest: options.fail_at_rest != 0,
            unlimited: options.unlimited != 0,
            priority: options.priority,
            no_resume: options.no_resume != 0,
            hedge: options.hedge != 0,
            attempt_timeout_ms: options.attempt_timeout_ms,
            answer_timeout_ms: options.answer_timeout_ms,
            redirects: options.redirects,
            decode: options.decode != 0,
            auth_user: text(options.auth_user, "auth_user")?,
            auth_password: text(options.auth_password, "auth_password")?,
            http_versions: options.http_versions,
        })
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_write(
    request: *const Request,
    data: *const u8,
    length: usize,
    taken: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for results, handles and arrays.
        let (request, data) = unsafe {
            put(taken, 0, "taken")?;
            (borrow(request, "request")?, array(data, length, "data")?)
        };
        let sent = request.sender()?.write(data)?;
        // SAFETY: it could be written above.
        unsafe { put(taken, sent, "taken") }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_finish(request: *const Request) -> i32 {
    // SAFETY: the header's rules for handles.
    guard(|| Ok(unsafe { borrow(request, "request") }?.sender()?.finish()?))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_cancel(request: *const Request) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        unsafe { borrow(request, "request") }?.sender()?.cancel();
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_status(request: *const Request) -> u32 {
    // SAFETY: the header's rules for handles.
    guard_or(0, || unsafe { request.as_ref() }.map_or(0, Request::status))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_http_version(request: *const Request) -> *const c_char {
    // SAFETY: the header's rules for handles.
    let version = || unsafe { request.as_ref() }.map_or(c"", Request::http_version);
    guard_or(c"".as_ptr(), || version().as_ptr())
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_field(
    request: *const Request,
    place: u32,
    index: usize,
    name: *mut Bytes,
    value: *mut Bytes,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        let request = unsafe { borrow(request, "request") }?;
        let trailers = match place {
            0 => false,
            1 => true,
            other => return Err(Failure::argument(format!("where is {other}"))),
        };
        let field = request.field(trailers, index)?;
        for (bytes, to) in [(field.0, name), (field.1, value)] {
            if !to.is_null() {
                // SAFETY: the header's rules for results.
                unsafe { put(to, lend(bytes), "it") }?;
            }
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_header(
    request: *const Request,
    name: *const c_char,
    value: *mut Bytes,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and texts.
        let (request, name) = unsafe { (borrow(request, "request")?, text(name, "name")?) };
        let name = name.ok_or_else(|| Failure::argument("name is NULL"))?;
        // SAFETY: the header's rules for results.
        unsafe { put(value, lend(request.header(name)?), "value") }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_record(request: *const Request, json: *mut Bytes) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        let record = unsafe { borrow(request, "request") }?.record()?;
        // SAFETY: the header's rules for results.
        unsafe { put(json, lend(record.to_bytes()), "json") }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_request_free(request: *const Request) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        let Some(open) = (unsafe { request.as_ref() }) else { return Ok(()) };
        open.close()?;
        // SAFETY: the app's share, which came out of an `Arc` in `towpath_request_start` and is given back once.
        drop(unsafe { Arc::from_raw(request) });
        Ok(())
    })
}

const fn lend(bytes: &[u8]) -> Bytes {
    Bytes { data: bytes.as_ptr().cast(), length: bytes.len() }
}

/// Engine options of which nothing is set.
const ALL_DEFAULTS: EngineOptions = EngineOptions {
    size: size_of::<EngineOptions>(),
    memory_path: std::ptr::null(),
    roots_pem: std::ptr::null(),
    pins: std::ptr::null(),
    pin_count: 0,
    identity_chain_pem: std::ptr::null(),
    identity_key_pem: std::ptr::null(),
    window_bytes: 0,
    replay_bytes: 0,
    max_requests: 0,
    max_connections: 0,
    idle_timeout_ms: 0,
    max_rest_ms: 0,
    max_flow_bytes: 0,
    flow_window_ms: 0,
    max_identical: 0,
    identical_window_ms: 0,
    on_question: None,
    question_user: std::ptr::null_mut(),
    watch_network: 0,
    dns_servers: std::ptr::null(),
    system_resolver: 0,
    reserved: 0,
    cookies_path: std::ptr::null(),
    hsts_path: std::ptr::null(),
    cache_path: std::ptr::null(),
    cache_bytes: 0,
    cache_stale_s: 0,
    proxy_from_environment: 0,
    proxy: std::ptr::null(),
    no_proxy: std::ptr::null(),
    no_coalescing: 0,
    max_requests_per_origin: 0,
    doh_url: std::ptr::null(),
    doh_addresses: std::ptr::null(),
    doh_timeout_ms: 0,
    doh_or_system: 0,
    on_challenge: None,
    challenge_user: std::ptr::null_mut(),
    max_requests_under_way: 0,
    doh_by_get: 0,
};

/// An event that did not come.
const NOTHING: Event = Event {
    size: 0,
    kind: 0,
    error: Code::Ok as i32,
    request: std::ptr::null(),
    user: std::ptr::null_mut::<c_void>(),
    chunk: std::ptr::null_mut(),
    data: std::ptr::null(),
    length: 0,
    text: c"".as_ptr(),
};
