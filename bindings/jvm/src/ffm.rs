//! The native methods by Java's Foreign Function & Memory API (JDK 22): one function for all of them, since what passes
//! is numbers and bytes.
//!
//! Java gives a [`Frame`] for each call, with what it says; what is answered lies in it when the call returns, and
//! stays until Java has it freed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;

use bytes::Bytes;
use towpath::{Engine, Error};

use crate::calls;
use crate::exchange::Exchange;
use crate::handle::{give, look, take};
use crate::socket::{Hub, Socket};

/// What a call says and what it is answered, as Java lays it out: 8 bytes each.
#[derive(Debug)]
#[repr(C)]
pub struct Frame {
    numbers: [i64; 9],
    /// Bytes of Java's, for the time of the call; null for none.
    first: *const u8,
    first_length: usize,
    second: *const u8,
    second_length: usize,
    /// Bytes for Java.
    answer: *const u8,
    answer_length: usize,
    /// Whose they are: for [`towpath_jvm_free`]; 0 where there are none.
    owner: i64,
}

/// A method's answer.
enum Answer {
    Number(i64),
    /// With as many as its number.
    Bytes(Bytes),
    /// Null in Java, or the end.
    Nothing,
}

/// Calls a method by its number. The answer is its own number, `NOTHING`, or `FAILED` where `answer` has the words of
/// the failure.
///
/// # Safety
/// `frame` is one that Java has filled, and alone uses. Its pointers point to as many bytes as it says. Its numbers
/// that stand for objects are such of the right kind, and Java's objects that have them are not collected meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towpath_jvm_call(method: i32, frame: *mut Frame) -> i64 {
    // SAFETY: by what the function wants of its caller.
    let frame = unsafe { &mut *frame };
    // SAFETY: the same; the bytes are not used when the call has returned.
    let (first, second) = unsafe {
        (bytes(frame.first, frame.first_length), bytes(frame.second, frame.second_length))
    };
    let numbers = frame.numbers;
    let called = catch_unwind(AssertUnwindSafe(|| call(method, numbers, first, second)));
    let (number, answer) = match called {
        Ok(Ok(Answer::Number(number))) => (number, Bytes::new()),
        Ok(Ok(Answer::Bytes(bytes))) => (i64::try_from(bytes.len()).unwrap_or(FAILED), bytes),
        Ok(Ok(Answer::Nothing)) => (NOTHING, Bytes::new()),
        Ok(Err(error)) => (FAILED, calls::words(&error).into_bytes().into()),
        Err(panic) => (FAILED, panicked(&*panic).into_bytes().into()),
    };
    if !answer.is_empty() {
        (frame.answer, frame.answer_length) = (answer.as_ptr(), answer.len());
        frame.owner = give(answer);
    }
    number
}

/// Frees what a call has answered.
#[unsafe(no_mangle)]
pub extern "C" fn towpath_jvm_free(owner: i64) {
    take::<Bytes>(owner);
}

fn call(
    method: i32,
    numbers: [i64; 9],
    first: Option<&[u8]>,
    second: Option<&[u8]>,
) -> Result<Answer, Error> {
    let [object, ..] = numbers;
    let engine = || look::<Engine>(object);
    let exchange = || look::<Exchange>(object);
    let hub = |number| look::<Arc<Hub>>(number);
    let socket = || look::<Socket>(object);
    let int = |index: usize| i32::try_from(numbers[index]).unwrap_or(-1);
    let text = first.unwrap_or_default();
    Ok(match method {
        ENGINE_START => {
            let roots = first.map(<[u8]>::to_vec);
            Answer::Number(give(calls::engine(roots, [int(0), int(1), int(2), int(3)])?))
        }
        ENGINE_FREE => {
            take::<Engine>(object);
            DONE
        }
        NETWORK_CHANGED => {
            calls::network_changed(&engine(), text, int(1) != 0, int(2) != 0)?;
            DONE
        }
        EXCHANGE_START => {
            let body = second.map(<[u8]>::to_vec);
            let limits = [int(2), int(3), int(4)];
            Answer::Number(give(calls::exchange(&engine(), text, body, numbers[1], limits)?))
        }
        WRITE => Answer::Number(exchange().write(text).into()),
        FINISH => {
            exchange().finish()?;
            DONE
        }
        HEAD => Answer::Bytes(exchange().head()?.into()),
        READ => match exchange().read(usize::try_from(numbers[1]).unwrap_or(0))? {
            Some(piece) => Answer::Bytes(piece),
            None => Answer::Nothing,
        },
        TRAILERS => Answer::Bytes(exchange().trailers().into()),
        REPORT => Answer::Bytes(exchange().report().unwrap_or_default().into()),
        CANCEL => {
            exchange().cancel();
            DONE
        }
        EXCHANGE_FREE => {
            take::<Exchange>(object);
            DONE
        }
        HUB_START => Answer::Number(give(Arc::new(Hub::default()))),
        HUB_TAKE => Answer::Bytes(calls::ready(&hub(object)).into()),
        HUB_RING => {
            hub(object).ring();
            DONE
        }
        SOCKET_START => {
            let limits = [int(3), int(4), int(5), int(6), int(7), int(8)];
            let (hub, token) = (hub(numbers[1]), numbers[2]);
            Answer::Number(give(calls::socket(&engine(), &hub, token, text, limits)?))
        }
        SOCKET_OPENED => match socket().opened()? {
            Some(head) => Answer::Bytes(head.into()),
            None => Answer::Nothing,
        },
        SOCKET_SEND => Answer::Number(calls::send(&socket(), int(1) != 0, text.to_vec())?.into()),
        SOCKET_RECEIVE => match calls::receive(&socket())? {
            Some(came) => Answer::Bytes(came.into()),
            None => Answer::Nothing,
        },
        SOCKET_WAITING => Answer::Number(i64::try_from(socket().waiting()).unwrap_or(i64::MAX)),
        SOCKET_CLOSE => {
            calls::close(&socket(), int(1), text)?;
            DONE
        }
        SOCKET_CANCEL => {
            socket().cancel();
            DONE
        }
        SOCKET_FREE => {
            take::<Socket>(object);
            DONE
        }
        _ => Answer::Nothing,
    })
}

/// Bytes of Java's.
///
/// # Safety
/// There are as many, unless the pointer is null, and they stay as they are.
const unsafe fn bytes<'a>(data: *const u8, length: usize) -> Option<&'a [u8]> {
    if data.is_null() {
        return None;
    }
    // SAFETY: by what the function wants of its caller.
    Some(unsafe { slice::from_raw_parts(data, length) })
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("engine\nit panicked: {}", words.unwrap_or_default())
}

// Methods by their numbers, as in Java's `Native`.
const ENGINE_START: i32 = 0;
const ENGINE_FREE: i32 = 1;
const NETWORK_CHANGED: i32 = 2;
const EXCHANGE_START: i32 = 3;
const WRITE: i32 = 4;
const FINISH: i32 = 5;
const HEAD: i32 = 6;
const READ: i32 = 7;
const TRAILERS: i32 = 8;
const REPORT: i32 = 9;
const CANCEL: i32 = 10;
const EXCHANGE_FREE: i32 = 11;
const HUB_START: i32 = 12;
const HUB_TAKE: i32 = 13;
const HUB_RING: i32 = 14;
const SOCKET_START: i32 = 15;
const SOCKET_OPENED: i32 = 16;
const SOCKET_SEND: i32 = 17;
const SOCKET_RECEIVE: i32 = 18;
const SOCKET_WAITING: i32 = 19;
const SOCKET_CLOSE: i32 = 20;
const SOCKET_CANCEL: i32 = 21;
const SOCKET_FREE: i32 = 22;
/// Of a method that answers nothing.
const DONE: Answer = Answer::Number(0);
/// There is none, or no more.
const NOTHING: i64 = -1;
const FAILED: i64 = -2;
