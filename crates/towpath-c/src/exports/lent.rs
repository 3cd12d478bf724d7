//! What the app lends: a thread, and its own resolver.

use std::ffi::c_char;
use std::net::IpAddr;

use super::{engine_options, engine_wishes};
use crate::abi::{Code, EngineOptions};
use crate::engine::{Engine, Question, Runner};
use crate::failure::{Failure, Result, guard, guard_or};
use crate::foreign::{array, borrow, put, text};

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_engine_lend(
    options: *const EngineOptions,
    engine: *mut *mut Engine,
    runner: *mut *mut Runner,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for results and structures.
        let options = unsafe {
            put(engine, std::ptr::null_mut(), "engine")?;
            put(runner, std::ptr::null_mut(), "runner")?;
            engine_options(options)?
        };
        let (lent, works) = engine_wishes(&options)?.lend()?;
        // SAFETY: both could be written above.
        unsafe {
            put(engine, Box::into_raw(Box::new(lent)), "engine")?;
            put(runner, Box::into_raw(Box::new(works)), "runner")
        }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_runner_turn(runner: *const Runner, timeout_ms: i32) -> i32 {
    // SAFETY: the header's rules for handles.
    guard(|| unsafe { borrow(runner, "runner") }?.work(Some(timeout_ms)))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_runner_run(runner: *const Runner) -> i32 {
    // SAFETY: the header's rules for handles.
    guard(|| unsafe { borrow(runner, "runner") }?.work(None))
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_runner_free(runner: *mut Runner) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for handles.
        let Some(open) = (unsafe { runner.as_ref() }) else { return Ok(()) };
        open.check("towpath_runner_free")?;
        // SAFETY: it came out of a box in `towpath_engine_lend`, and is given back once, on the thread that it belongs
        // to.
        drop(unsafe { Box::from_raw(runner) });
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_question_name(question: *const Question) -> *const c_char {
    // SAFETY: the header's rules for handles.
    guard_or(c"".as_ptr(), || {
        unsafe { question.as_ref() }.map_or(c"".as_ptr(), |question| question.name().as_ptr())
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_question_answer(
    question: *mut Question,
    outcome: i32,
    addresses: *const *const c_char,
    count: usize,
) -> i32 {
    guard(|| {
        if question.is_null() {
            return Err(Failure::argument("question is NULL"));
        }
        let told = if outcome == Code::Ok as i32 {
            // SAFETY: the header's rules for arrays and texts.
            let addresses = unsafe { array(addresses, count, "addresses") }?;
            Some(addresses.iter().map(|one| address(*one)).collect::<Result<_>>()?)
        } else {
            None
        };
        // SAFETY: it came out of a box in `Asked::ask`, and is given back once.
        unsafe { Box::from_raw(question) }.answer(told);
        Ok(())
    })
}

fn address(written: *const c_char) -> Result<IpAddr> {
    // SAFETY: the header's rules for texts.
    let written = unsafe { text(written, "an address") }?;
    let none = || Failure::argument(format!("{:?} is no address", written.unwrap_or_default()));
    written.and_then(|written| written.parse().ok()).ok_or_else(none)
}
