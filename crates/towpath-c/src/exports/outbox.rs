//! Outboxes.

use std::ffi::c_char;

use towpath::outbox::EntryId;

use super::{free, limit, request_wishes};
use crate::abi::{Code, OutboxOptions, RequestOptions};
use crate::engine::{Engine, not_in_callback};
use crate::failure::{Failure, Result, guard, guard_or};
use crate::foreign::{User, borrow, put, read, text};
use crate::outbox::{Outbox, Wishes};

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_outbox_open(
    engine: *const Engine,
    options: *const OutboxOptions,
    outbox: *mut *mut Outbox,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for results, handles, structures and texts.
        let (engine, options, path) = unsafe {
            put(outbox, std::ptr::null_mut(), "outbox")?;
            let options = read(options, "options")?;
            (borrow(engine, "engine")?, options, text(options.path, "path")?)
        };
        let wishes = Wishes {
            path: path.ok_or_else(|| Failure::argument("path is NULL"))?,
            on_end: options.on_end.map(|on_end| (on_end, User(options.user))),
            max_bytes: options.max_bytes,
            max_entries: options.max_entries,
            parallel: options.parallel,
            expires_after_s: options.expires_after_s,
            first_pause_ms: options.first_pause_ms,
            longest_pause_ms: options.longest_pause_ms,
            response_bytes: options.response_bytes,
        };
        let handle = Box::into_raw(Box::new(wishes.open(engine)?));
        // SAFETY: it could be written above.
        unsafe { put(outbox, handle, "outbox") }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_outbox_put(
    outbox: *const Outbox,
    request: *const RequestOptions,
    ordering_key: *const c_char,
    entry: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles, structures and texts.
        let (outbox, options, ordering_key) = unsafe {
            (
                borrow(outbox, "outbox")?,
                read(request, "request")?,
                text(ordering_key, "ordering_key")?,
            )
        };
        refuse_what_does_not_count(&options)?;
        let id = outbox.put(request_wishes(&options)?, ordering_key)?;
        if !entry.is_null() {
            // SAFETY: the header's rules for results.
            unsafe { put(entry, id.0, "entry") }?;
        }
        Ok(())
    })
}

/// What a request in a file cannot have.
fn refuse_what_does_not_count(options: &RequestOptions) -> Result<()> {
    let heard = options.on_event.is_some() || !options.queue.is_null() || !options.user.is_null();
    let treated = options.repeat != 0 || options.retries != 0 || options.wait_for_network != 0;
    let limited = options.fail_at_rest != 0 || options.unlimited != 0 || options.priority != 0;
    let follows = options.body_follows != 0 || options.content_length != 0;
    let asks = !options.auth_user.is_null() || !options.auth_password.is_null();
    if heard || treated || limited || follows || asks {
        return Err(Failure::argument("the request has options that an outbox does not take"));
    }
    Ok(())
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_outbox_remove(outbox: *const Outbox, entry: u64) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        let outbox = unsafe { borrow(outbox, "outbox") }?;
        if outbox.outbox.remove(EntryId(entry))? {
            return Ok(());
        }
        Err(Failure::new(Code::Absent, format!("there is no entry {entry}")))
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_outbox_count(outbox: *const Outbox) -> u64 {
    // SAFETY: the header's rules for handles.
    guard_or(0, || unsafe { outbox.as_ref() }.map_or(0, |outbox| outbox.outbox.len() as u64))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_outbox_wait(outbox: *const Outbox, timeout_ms: i32) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        let outbox = unsafe { borrow(outbox, "outbox") }?;
        not_in_callback("towpath_outbox_wait")?;
        if outbox.wait(limit(timeout_ms)) {
            return Ok(());
        }
        Err(Failure::new(Code::Absent, "it is not empty"))
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_outbox_free(outbox: *mut Outbox) -> i32 {
    // SAFETY: it came out of a box in `towpath_outbox_open`, and is given back once.
    guard(|| unsafe { free(outbox, "towpath_outbox_free") })
}
