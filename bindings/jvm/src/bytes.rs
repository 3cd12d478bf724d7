//! Bytes as Java has them, which are signed.

use jni::sys::jbyte;

/// The same bytes, for Java.
pub(crate) const fn signed(bytes: &[u8]) -> &[jbyte] {
    // SAFETY: `u8` and `i8` have the same size and alignment, every pattern of bits is a value of both, and the
    // lifetime stays.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

/// Room for bytes of Java's.
pub(crate) const fn signed_mut(bytes: &mut [u8]) -> &mut [jbyte] {
    // SAFETY: as in `signed`; the only reference is handed on.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
}
