//! WebSocket.

use std::ffi::c_char;

use super::{free, request_wishes};
use crate::abi::{RequestOptions, SocketOptions};
use crate::engine::Engine;
use crate::failure::{Failure, Result, guard};
use crate::foreign::{User, array, borrow, put, read, text};
use crate::socket::{Socket, Wishes};

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_socket_open(
    engine: *const Engine,
    request: *const RequestOptions,
    options: *const SocketOptions,
    socket: *mut *mut Socket,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for results, handles, structures and texts.
        let (engine, request, options, subprotocols) = unsafe {
            put(socket, std::ptr::null_mut(), "socket")?;
            let options = read(options, "options")?;
            let subprotocols = text(options.subprotocols, "subprotocols")?;
            (borrow(engine, "engine")?, read(request, "request")?, options, subprotocols)
        };
        refuse_what_does_not_count(&request)?;
        let on_event = options.on_event.ok_or_else(|| Failure::argument("on_event is NULL"))?;
        let wishes = Wishes {
            on_event: (on_event, User(options.user)),
            subprotocols: subprotocols.unwrap_or_default(),
            max_message_bytes: options.max_message_bytes,
            ping_interval_ms: options.ping_interval_ms,
            pong_timeout_ms: options.pong_timeout_ms,
            close_timeout_ms: options.close_timeout_ms,
            no_compression: options.no_compression != 0,
        };
        let opened = wishes.open(engine, request_wishes(&request)?)?;
        let handle = Box::into_raw(Box::new(opened));
        // SAFETY: it could be written above.
        unsafe { put(socket, handle, "socket") }
    })
}

/// What a request that becomes a connection cannot have.
fn refuse_what_does_not_count(options: &RequestOptions) -> Result<()> {
    let heard = options.on_event.is_some() || !options.queue.is_null() || !options.user.is_null();
    let has_body = options.body_length != 0 || options.body_follows != 0;
    if heard || has_body || !options.method.is_null() {
        return Err(Failure::argument("the request has options that a WebSocket does not take"));
    }
    Ok(())
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_socket_send(
    socket: *const Socket,
    is_text: u32,
    data: *const u8,
    length: usize,
    sent: *mut u32,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and arrays.
        let (socket, data) = unsafe { (borrow(socket, "socket")?, array(data, length, "data")?) };
        let is_sent = socket.send(is_text != 0, data, sent.is_null())?;
        if sent.is_null() {
            return Ok(());
        }
        // SAFETY: the header's rules for results.
        unsafe { put(sent, is_sent.into(), "sent") }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_socket_close(
    socket: *const Socket,
    code: u32,
    reason: *const c_char,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and texts.
        let (socket, reason) = unsafe { (borrow(socket, "socket")?, text(reason, "reason")?) };
        let code = u16::try_from(code).map_err(|_| Failure::argument(format!("code is {code}")))?;
        socket.close(code, reason.unwrap_or_default())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_socket_free(socket: *mut Socket) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles: null, or not given back yet.
        if let Some(socket) = unsafe { socket.as_ref() } {
            socket.may_be_freed()?;
        }
        // SAFETY: it came out of a box in `towpath_socket_open`, and is given back once.
        unsafe { free(socket, "towpath_socket_free") }
    })
}
