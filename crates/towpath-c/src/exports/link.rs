//! Links.

use std::ffi::c_char;

use super::{free, limit};
use crate::abi::{Answer, AskOptions, Bytes, Code, LinkOptions, LinkState};
use crate::engine::Engine;
use crate::failure::{Failure, Result, guard, guard_or};
use crate::foreign::{User, array, borrow, put, read, text, write};
use crate::link::{Ask, Link, Push, Wishes};

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_link_open(
    engine: *const Engine,
    options: *const LinkOptions,
    link: *mut *mut Link,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for results, handles, structures and texts.
        let (engine, options, url) = unsafe {
            put(link, std::ptr::null_mut(), "link")?;
            let options = read(options, "options")?;
            (borrow(engine, "engine")?, options, text(options.url, "url")?)
        };
        let wishes = Wishes {
            url: url.ok_or_else(|| Failure::argument("url is NULL"))?,
            on_push: options.on_push.map(|on_push| (on_push, User(options.user))),
            beat_timeout_ms: options.beat_timeout_ms,
            connect_timeout_ms: options.connect_timeout_ms,
            first_pause_ms: options.first_pause_ms,
            longest_pause_ms: options.longest_pause_ms,
            max_asks: options.max_asks,
            max_bytes: options.max_bytes,
            max_frame: options.max_frame,
            shortest_silence_s: options.shortest_silence_s,
            first_silence_s: options.first_silence_s,
            longest_silence_s: options.longest_silence_s,
        };
        let handle = Box::into_raw(Box::new(wishes.open(engine)?));
        // SAFETY: it could be written above.
        unsafe { put(link, handle, "link") }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_link_ask(
    link: *const Link,
    options: *const AskOptions,
    ask: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and structures.
        let (link, wish) = unsafe { (borrow(link, "link")?, read_ask(options)?) };
        if wish.on_answer.is_none() {
            return Err(Failure::argument("on_answer is NULL"));
        }
        let number = link.ask(wish)?;
        if !ask.is_null() {
            // SAFETY: the header's rules for results.
            unsafe { put(ask, number, "ask") }?;
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_link_tell(link: *const Link, options: *const AskOptions) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and structures.
        let (link, wish) = unsafe { (borrow(link, "link")?, read_ask(options)?) };
        link.ask(Ask { oneway: true, ..wish }).map(drop)
    })
}

/// What is asked.
///
/// # Safety
/// `options` is null or a structure of the header's, which is not changed as long as the result is used.
unsafe fn read_ask<'a>(options: *const AskOptions) -> Result<Ask<'a>> {
    // SAFETY: the caller's promise is the same, and covers texts and arrays.
    unsafe {
        let options = read(options, "options")?;
        let fields = array(options.headers, options.header_count, "headers")?;
        let mut headers = Vec::with_capacity(fields.len());
        for field in fields {
            let name = text(field.name, "a header's name")?;
            let value = text(field.value, "a header's value")?;
            headers.push(
                name.zip(value)
                    .ok_or_else(|| Failure::argument("a header's name or value is NULL"))?,
            );
        }
        if options.reserved != 0 {
            return Err(Failure::argument("reserved is not 0"));
        }
        Ok(Ask {
            content: array(options.content, options.length, "content")?,
            class: text(options.class_name, "class_name")?.unwrap_or_default(),
            headers,
            on_answer: options.on_answer.map(|on_answer| (on_answer, User(options.user))),
            timeout_ms: options.timeout_ms,
            waits: options.waits != 0,
            codec: u8::try_from(options.codec)
                .map_err(|_| Failure::argument(format!("codec is {}", options.codec)))?,
            oneway: false,
        })
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_link_cancel(link: *const Link, ask: u64) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        if unsafe { borrow(link, "link") }?.cancel(ask) {
            return Ok(());
        }
        Err(Failure::new(Code::Absent, format!("there is no request {ask} under way")))
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_link_foreground(link: *const Link, in_foreground: i32) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        unsafe { borrow(link, "link") }?.set_foreground(in_foreground != 0);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_link_look(link: *const Link, state: *mut LinkState) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and structures.
        unsafe { write(state, &borrow(link, "link")?.state(), "state") }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_link_wait(
    link: *const Link,
    connected: i32,
    timeout_ms: i32,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        if unsafe { borrow(link, "link") }?.wait(connected != 0, limit(timeout_ms))? {
            return Ok(());
        }
        Err(Failure::new(Code::Absent, "it is not so"))
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_link_free(link: *mut Link) -> i32 {
    // SAFETY: it came out of a box in `towpath_link_open`, and is given back once.
    guard(|| unsafe { free(link, "towpath_link_free") })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_answer_header(
    answer: *const Answer,
    name: *const c_char,
    value: *mut Bytes,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and texts; what an answer points to is there during the call that it
        // is given to.
        let (answer, name) = unsafe { (borrow(answer, "answer")?, text(name, "name")?) };
        let name = name.ok_or_else(|| Failure::argument("name is NULL"))?;
        // SAFETY: it is null or the library's own, as the header forbids to change it; and the rules for results.
        unsafe { give(answer.own.as_ref().and_then(|own| own.header(name)), value) }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_push_content(push: *const Push, content: *mut Bytes) -> i32 {
    // SAFETY: the header's rules for handles and results.
    guard(|| unsafe { give(Some(borrow(push, "push")?.content()), content) })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_push_class(push: *const Push, class_name: *mut Bytes) -> i32 {
    // SAFETY: the header's rules for handles and results.
    guard(|| unsafe { give(Some(borrow(push, "push")?.class()), class_name) })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_push_header(
    push: *const Push,
    name: *const c_char,
    value: *mut Bytes,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and texts.
        let (push, name) = unsafe { (borrow(push, "push")?, text(name, "name")?) };
        let name = name.ok_or_else(|| Failure::argument("name is NULL"))?;
        // SAFETY: the header's rules for results.
        unsafe { give(push.header(name), value) }
    })
}

/// Puts bytes where the caller wants them, if there are any.
///
/// # Safety
/// `place` is null or can be written.
unsafe fn give(found: Option<&[u8]>, place: *mut Bytes) -> Result<()> {
    let found = found.ok_or_else(|| Failure::new(Code::Absent, "there is no such header"))?;
    let bytes = Bytes { data: found.as_ptr().cast(), length: found.len() };
    // SAFETY: the caller's promise is the same.
    unsafe { put(place, bytes, "the result") }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_push_wants_answer(push: *const Push) -> u32 {
    // SAFETY: the header's rules for handles.
    guard_or(0, || unsafe { push.as_ref() }.map_or(0, |push| (!push.is_oneway()).into()))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_push_answer(
    push: *mut Push,
    status: u32,
    content: *const u8,
    length: usize,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles and arrays.
        let content = unsafe {
            borrow(push, "push")?;
            array(content, length, "content")?
        };
        let status = u16::try_from(status)
            .map_err(|_| Failure::argument(format!("the status is {status}")))?;
        if status != 0 && !content.is_empty() {
            return Err(Failure::argument("only an answer of status 0 has content"));
        }
        // SAFETY: it came out of a box before `on_push`, and is given back once.
        unsafe { Box::from_raw(push) }.answer(status, content);
        Ok(())
    })
}
