//! What files and servers say, for the fuzz target `client`; compiled for it alone. Each panics where something does
//! not hold.

/// A file that an outbox is opened with, as [`crate::outbox`] finds it after a crash.
pub fn check_outbox(bytes: &[u8]) {
    crate::outbox::log_fuzzing::check(bytes);
}

/// A file that an engine begins with.
pub fn check_memory(bytes: &[u8]) {
    crate::store::fuzzing::check(bytes);
}

/// What a link's server does, step by step.
pub fn check_link(bytes: &[u8]) {
    crate::link::fuzzing::check(bytes);
}
