//! What Java keeps as a number: a pointer to an object here.
//!
//! Java's half makes each number once, uses it only while the Java object that has it can be reached, and gives it
//! back once, by a `Cleaner`: after that nothing of Java's can name it.

use std::sync::Arc;

use jni::sys::jlong;

/// A number for Java.
pub(crate) fn give<T>(object: T) -> jlong {
    Arc::into_raw(Arc::new(object)) as jlong
}

/// What a number stands for, held as long as the answer lives.
pub(crate) fn look<T>(number: jlong) -> Arc<T> {
    let object = number as *const T;
    // SAFETY: `number` came from `give` with the same type, and is not taken back while Java's object that has it is
    // in use, by what the module promises; so it points to an `Arc`'s object with at least one count, to which
    // another is added.
    unsafe {
        Arc::increment_strong_count(object);
        Arc::from_raw(object)
    }
}

/// Takes a number back.
pub(crate) fn take<T>(number: jlong) {
    // SAFETY: `number` came from `give` with the same type, and Java's `Cleaner` gives it back once.
    drop(unsafe { Arc::from_raw(number as *const T) });
}
