//! Threads that do bulk work let workers, and all other ordinary threads, go first.
//!
//! Such are the threads of the admin endpoint, of discovery and of a reload: what they do takes up to a second, and no
//! request waits for it. They are nicer than the process, for good. A tenth of the share of a busy thread is theirs all
//! the same, so probes are answered and configurations arrive on a machine without an idle processor. They hold no lock
//! that a worker takes on a request's way.

use crate::log;

/// How much nicer such a thread is than the process: a tenth of another's share where processors are short.
pub(crate) const GIVES_WAY: i32 = 10;

/// Lets others go before this thread.
pub(crate) fn give_way() {
    // Where it cannot, it takes turns like all others.
    if let Err(error) = towpath_io::thread::give_way(GIVES_WAY) {
        log!(Main, Debug, "a thread for bulk work does not give way: {error}");
    }
}
