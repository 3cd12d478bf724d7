//! Server-sent events.

use super::{free, request_wishes};
use crate::abi::{RequestOptions, StreamOptions};
use crate::engine::Engine;
use crate::failure::{Failure, Result, guard};
use crate::foreign::{User, borrow, put, read, text};
use crate::stream::{Stream, Wishes};

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_stream_open(
    engine: *const Engine,
    request: *const RequestOptions,
    options: *const StreamOptions,
    stream: *mut *mut Stream,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for results, handles, structures and texts.
        let (engine, request, options, last_event_id) = unsafe {
            put(stream, std::ptr::null_mut(), "stream")?;
            let options = read(options, "options")?;
            let last_event_id = text(options.last_event_id, "last_event_id")?;
            (borrow(engine, "engine")?, read(request, "request")?, options, last_event_id)
        };
        refuse_what_does_not_count(&request)?;
        let on_event = options.on_event.ok_or_else(|| Failure::argument("on_event is NULL"))?;
        let wishes = Wishes {
            on_event: (on_event, User(options.user)),
            last_event_id: last_event_id.unwrap_or_default(),
            max_event_bytes: options.max_event_bytes,
        };
        let opened = wishes.open(engine, request_wishes(&request)?)?;
        let handle = Box::into_raw(Box::new(opened));
        // SAFETY: it could be written above.
        unsafe { put(stream, handle, "stream") }
    })
}

/// What a request that is sent again and again cannot have.
fn refuse_what_does_not_count(options: &RequestOptions) -> Result<()> {
    let heard = options.on_event.is_some() || !options.queue.is_null() || !options.user.is_null();
    if heard || options.body_follows != 0 {
        return Err(Failure::argument("the request has options that a stream does not take"));
    }
    Ok(())
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_stream_close(stream: *const Stream) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        unsafe { borrow(stream, "stream") }?.close();
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_stream_free(stream: *mut Stream) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles: null, or not given back yet.
        if let Some(stream) = unsafe { stream.as_ref() } {
            stream.may_be_freed()?;
        }
        // SAFETY: it came out of a box in `towpath_stream_open`, and is given back once.
        unsafe { free(stream, "towpath_stream_free") }
    })
}
