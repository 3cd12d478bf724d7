//! What C hands over, checked as far as it can be: null, sizes, text. The rest is the caller's promise, which the
//! header states.
#![expect(unsafe_code, reason = "pointers of C; each block names whose promise it relies on")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::time::Duration;

use crate::abi::{
    Answer, AskOptions, EngineOptions, Event, LinkOptions, LinkState, OutboxOptions,
    RequestOptions, SocketOptions, StreamOptions,
};
use crate::failure::{Failure, Result};

/// What an option wishes: 0 stands for its default.
pub(crate) const fn or(wish: u32, usual: u32) -> u32 {
    if wish == 0 { usual } else { wish }
}

/// The same of milliseconds.
pub(crate) const fn ms(wish: u32, usual: u32) -> Duration {
    Duration::from_millis(or(wish, usual) as u64)
}

/// A structure that begins with its size and grows at its end.
///
/// # Safety
/// Made of integers, pointers and optional functions only, so that all zeros is a value; `size: usize` comes first.
pub(crate) unsafe trait Grows: Copy {
    /// How long it was in its first version: no caller has a shorter one.
    const FIRST: usize;
}

// SAFETY: integers, pointers and an optional function, the size first.
unsafe impl Grows for EngineOptions {
    const FIRST: usize = offset_of!(Self, on_question);
}
// SAFETY: as above.
unsafe impl Grows for OutboxOptions {
    const FIRST: usize = size_of::<Self>();
}
// SAFETY: as above.
unsafe impl Grows for RequestOptions {
    const FIRST: usize = offset_of!(Self, hedge);
}
// SAFETY: as above.
unsafe impl Grows for LinkOptions {
    const FIRST: usize = size_of::<Self>();
}
// SAFETY: as above.
unsafe impl Grows for SocketOptions {
    const FIRST: usize = size_of::<Self>();
}
// SAFETY: as above.
unsafe impl Grows for StreamOptions {
    const FIRST: usize = size_of::<Self>();
}
// SAFETY: as above.
unsafe impl Grows for AskOptions {
    const FIRST: usize = size_of::<Self>();
}
// SAFETY: as above.
unsafe impl Grows for Answer {
    const FIRST: usize = size_of::<Self>();
}
// SAFETY: as above.
unsafe impl Grows for LinkState {
    const FIRST: usize = size_of::<Self>();
}
// SAFETY: as above.
unsafe impl Grows for Event {
    const FIRST: usize = size_of::<Self>();
}

/// Longer than any structure will be: a caller that says so has not set the size.
const LARGEST: usize = 4096;

/// Reads a structure of the caller's size. What this library does not know must be zero.
///
/// # Safety
/// `from` is null or points to a structure that can be read for the size at its beginning.
pub(crate) unsafe fn read<T: Grows>(from: *const T, what: &str) -> Result<T> {
    // SAFETY: the caller's promise is the same.
    let theirs = unsafe { size(from, what) }?;
    let mut value = MaybeUninit::<T>::zeroed();
    let known = theirs.min(size_of::<T>());
    // SAFETY: `from` can be read for `theirs` bytes; `value` holds at least `known`, and is not shared.
    let beyond = unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known);
        std::slice::from_raw_parts(from.cast::<u8>().add(known), theirs - known)
    };
    if beyond.iter().any(|&byte| byte != 0) {
        return Err(Failure::argument(format!(
            "{what} has fields that this library does not know"
        )));
    }
    // SAFETY: `Grows` promises that zeros and whatever the caller wrote make a value.
    Ok(unsafe { value.assume_init() })
}

/// Writes a structure as far as the caller knows it; its size stays, and what the caller knows beyond is zeroed.
///
/// # Safety
/// `to` is null or points to a structure that can be read and written for the size at its beginning.
pub(crate) unsafe fn write<T: Grows>(to: *mut T, value: &T, what: &str) -> Result<()> {
    // SAFETY: the caller's promise is the same.
    let theirs = unsafe { size(to, what) }?;
    let known = theirs.min(size_of::<T>());
    let header = size_of::<usize>();
    // SAFETY: both can be accessed for `known` bytes and `to` for `theirs`; `value` is ours, so that they do not
    // overlap.
    unsafe {
        let (from, to) = (std::ptr::from_ref(value).cast::<u8>(), to.cast::<u8>());
        std::ptr::copy_nonoverlapping(from.add(header), to.add(header), known - header);
        std::ptr::write_bytes(to.add(known), 0, theirs - known);
    }
    Ok(())
}

/// The size that a caller's structure says it has.
///
/// # Safety
/// `of` is null or can be read for a `size_t`.
pub(crate) unsafe fn size<T: Grows>(of: *const T, what: &str) -> Result<usize> {
    if of.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: it is not null, and the caller promises a `size_t` there; it need not be aligned.
    let theirs = unsafe { of.cast::<usize>().read_unaligned() };
    if (T::FIRST..=LARGEST).contains(&theirs) {
        Ok(theirs)
    } else {
        Err(Failure::argument(format!("{what} says that it has {theirs} bytes")))
    }
}

/// A handle, borrowed for one call.
///
/// # Safety
/// `handle` is null or came from this library and is not given back while it is used.
pub(crate) unsafe fn borrow<'a, T>(handle: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::argument(format!("{what} is NULL")))
}

/// A text, if there is one.
///
/// # Safety
/// `text` is null or ends with a NUL, and does not change during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not null; the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8")))?;
    Ok(Some(text))
}

/// An array; empty where it is null and has no elements.
///
/// # Safety
/// `first` is null or begins `count` elements that do not change during the call.
pub(crate) unsafe fn array<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() {
        return Err(Failure::argument(format!("{what} is NULL or not aligned")));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::argument(format!("{what} cannot have {count} elements")));
    }
    // SAFETY: not null, aligned, and no longer than anything can be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Somewhere to put a result.
///
/// # Safety
/// `place` is null or can be written.
pub(crate) unsafe fn put<T>(place: *mut T, value: T, what: &str) -> Result<()> {
    if place.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: not null, and the caller promises the rest; what was there is plain and needs no end.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// The app's own pointer, which is only handed back.
pub(crate) struct User(pub(crate) *mut c_void);

// SAFETY: it is not followed here; the header says on which threads the app gets it back.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Longer {
        event: Event,
        more: [u8; 8],
    }

    fn longer(size: usize, more: u8) -> Longer {
        // SAFETY: integers and pointers, for which all zeros is a value.
        let mut event: Event = unsafe { std::mem::zeroed() };
        (event.size, event.length) = (size, 7);
        Longer { event, more: [more; 8] }
    }

    fn read_longer(size: usize, more: u8) -> Result<usize> {
        let longer = longer(size, more);
        // SAFETY: the sizes below are those of the structure, or refused before they are used.
        unsafe { read((&raw const longer).cast::<Event>(), "it") }.map(|event| event.length)
    }

    #[test]
    fn a_structure_of_another_version_is_read_as_far_as_it_is_known() {
        let (own, more) = (size_of::<Event>(), size_of::<Longer>());
        assert_eq!(read_longer(own, 1), Ok(7));
        assert_eq!(read_longer(more, 0), Ok(7));
        assert!(read_longer(more, 1).is_err(), "it wants something that is not known");
        for size in [0, 8, own - 1, LARGEST + 1, usize::MAX] {
            assert!(read_longer(size, 0).is_err(), "{size}");
        }
    }

    #[test]
    fn a_structure_of_another_version_is_written_as_far_as_the_caller_knows_it() {
        let mut theirs = longer(size_of::<Longer>(), 9);
        let mut ours = longer(size_of::<Event>(), 0).event;
        ours.length = 11;
        // SAFETY: the size is that of the structure.
        unsafe { write((&raw mut theirs).cast::<Event>(), &ours, "it") }.unwrap();
        assert_eq!((theirs.event.size, theirs.event.length), (size_of::<Longer>(), 11));
        assert_eq!(theirs.more, [0; 8]);
    }

    #[test]
    fn null_is_refused_where_something_must_be() {
        // SAFETY: null is among what each of them takes.
        unsafe {
            assert!(read::<Event>(std::ptr::null(), "it").is_err());
            assert!(borrow::<Event>(std::ptr::null(), "it").is_err());
            assert!(put::<u32>(std::ptr::null_mut(), 1, "it").is_err());
            assert!(array::<u32>(std::ptr::null(), 1, "it").is_err());
            assert_eq!(array::<u32>(std::ptr::null(), 0, "it"), Ok(&[][..]));
            assert_eq!(text(std::ptr::null(), "it"), Ok(None));
            assert!(text(c"\xff".as_ptr(), "it").is_err());
        }
    }

    #[test]
    fn an_array_is_no_longer_than_memory_and_aligned() {
        let four = [1_u32; 4];
        // SAFETY: what is not refused is the array above.
        unsafe {
            assert_eq!(array(four.as_ptr(), 4, "it").unwrap().len(), 4);
            assert!(array(four.as_ptr(), usize::MAX, "it").is_err());
            assert!(array(four.as_ptr().byte_add(1), 1, "it").is_err());
        }
    }
}
