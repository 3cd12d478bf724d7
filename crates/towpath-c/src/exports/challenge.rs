//! Challenges: what a server or a proxy asks for, and the app's answer.

use std::ffi::c_char;

use super::lend;
use crate::abi::{Bytes, Challenge, Code};
use crate::auth::{self, Answer};
use crate::failure::{Failure, Result, guard};
use crate::foreign::{borrow, put, text};

/// What stands behind a challenge, during the call that it is given to.
///
/// # Safety
/// `challenge` is null, or given to the callback that is under way and not changed.
unsafe fn own<'a>(challenge: *const Challenge) -> Result<&'a auth::Challenge> {
    // SAFETY: the caller's promise is the same.
    unsafe { borrow(borrow(challenge, "challenge")?.own, "challenge") }
}

/// # Safety
/// `value` is null or can be written.
unsafe fn give(found: Option<&str>, value: *mut Bytes) -> Result<()> {
    let found = found.ok_or_else(|| Failure::new(Code::Absent, "it does not say that"))?;
    // SAFETY: the caller's promise is the same.
    unsafe { put(value, lend(found.as_bytes()), "value") }
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_challenge_scheme(
    challenge: *const Challenge,
    index: u32,
    name: *mut Bytes,
) -> i32 {
    // SAFETY: the header's rules for challenges and results.
    guard(|| unsafe { give(own(challenge)?.scheme(index as usize), name) })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_challenge_parameter(
    challenge: *const Challenge,
    index: u32,
    name: *const c_char,
    value: *mut Bytes,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for challenges and texts.
        let (challenge, name) = unsafe { (own(challenge)?, text(name, "name")?) };
        let name = name.ok_or_else(|| Failure::argument("name is NULL"))?;
        // SAFETY: the header's rules for results.
        unsafe { give(challenge.parameter(index as usize, name), value) }
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_challenge_answer(
    challenge: *const Challenge,
    user: *const c_char,
    password: *const c_char,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for challenges and texts.
        let (challenge, user, password) =
            unsafe { (own(challenge)?, text(user, "user")?, text(password, "password")?) };
        let user = user.ok_or_else(|| Failure::argument("user is NULL"))?;
        let password = password.unwrap_or_default();
        challenge.answer(Answer::Password { user, password })
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_challenge_answer_field(
    challenge: *const Challenge,
    value: *const c_char,
) -> i32 {
    guard(|| {
        // SAFETY: the header's rules for challenges and texts.
        let (challenge, value) = unsafe { (own(challenge)?, text(value, "value")?) };
        let value = value.ok_or_else(|| Failure::argument("value is NULL"))?;
        challenge.answer(Answer::Field(value))
    })
}
