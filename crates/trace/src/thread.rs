//! What the system knows of a thread, threads of our own that take no signals, and the end of the program.

#![cfg_attr(
    any(unix, windows),
    expect(unsafe_code, reason = "numbers, names and signal masks of threads are system calls")
)]

use std::io;
use std::thread::{Builder, JoinHandle};

/// The number the system gives the calling thread; `None` where it gives none.
#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
pub(crate) fn number() -> Option<u32> {
    // SAFETY: the call takes nothing and cannot fail. Not from `/proc`, which a sandbox may lack.
    u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).ok()
}

#[cfg(all(target_vendor = "apple", not(miri)))]
pub(crate) fn number() -> Option<u32> {
    let mut number = 0;
    // SAFETY: 0 stands for the calling thread; the pointer is to a live number.
    let failed = unsafe { libc::pthread_threadid_np(0, &raw mut number) };
    u32::try_from(number).ok().filter(|_| failed == 0)
}

#[cfg(all(target_os = "freebsd", not(miri)))]
pub(crate) fn number() -> Option<u32> {
    // SAFETY: the call takes nothing and cannot fail.
    u32::try_from(unsafe { libc::pthread_getthreadid_np() }).ok()
}

#[cfg(all(windows, not(miri)))]
pub(crate) fn number() -> Option<u32> {
    // SAFETY: kernel32 has this function under this signature; it takes nothing and cannot fail.
    unsafe extern "system" {
        safe fn GetCurrentThreadId() -> u32;
    }
    Some(GetCurrentThreadId())
}

#[cfg(not(all(
    any(
        target_os = "linux",
        target_os = "android",
        target_vendor = "apple",
        target_os = "freebsd",
        windows
    ),
    not(miri)
)))]
pub(crate) fn number() -> Option<u32> {
    None
}

/// The name of the calling thread: as Rust knows it, else as the system does.
pub(crate) fn name() -> String {
    std::thread::current().name().map_or_else(system_name, str::to_owned)
}

#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
fn system_name() -> String {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, a NUL among them.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(not(all(any(target_os = "linux", target_os = "android"), not(miri))))]
fn system_name() -> String {
    String::new()
}

/// A thread of our own. It blocks the signals of the program, which expects them on threads it knows: one that reads
/// `SIGTERM` from a `signalfd` has blocked it on those alone.
pub(crate) fn spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    #[cfg(all(unix, not(miri)))]
    let _blocked = Blocked::all();
    Builder::new().name("towpath-trace".to_owned()).spawn(work)
}

/// While it lives the calling thread takes no signals, and threads that it makes never will.
#[cfg(all(unix, not(miri)))]
struct Blocked {
    before: libc::sigset_t,
}

#[cfg(all(unix, not(miri)))]
impl Blocked {
    fn all() -> Self {
        // SAFETY: a set of signals is plain numbers, which `sigfillset` overwrites.
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: the pointers are to live sets; the signals are known ones. What a thread's own fault raises is not
        // blocked, since Rust's handler says where a stack overflowed.
        unsafe {
            libc::sigfillset(&raw mut all);
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
                libc::sigdelset(&raw mut all, fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        }
        Self { before }
    }
}

#[cfg(all(unix, not(miri)))]
impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the pointer is to the set that `all` was given.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// Has `run` called when the program ends by `exit`, or by leaving `main`.
#[cfg(all(unix, not(miri)))]
pub(crate) fn at_exit(run: extern "C" fn()) {
    // SAFETY: the function lives for ever; where there is no room for it, the program ends without it.
    unsafe { libc::atexit(run) };
}

#[cfg(not(all(unix, not(miri))))]
pub(crate) fn at_exit(_run: extern "C" fn()) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_live_at_once_have_numbers_of_their_own() {
        let meet = std::sync::Arc::new(std::sync::Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let meet = meet.clone();
                let work = move || {
                    meet.wait();
                    let number = number();
                    meet.wait();
                    number
                };
                spawn(work).unwrap()
            })
            .collect();
        let mut numbers: Vec<_> =
            threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        numbers.retain(Option::is_some);
        let given = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), given);
        #[cfg(all(target_os = "linux", not(miri)))]
        assert_eq!(given, 8);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_thread_that_rust_has_no_name_for_has_the_systems() {
        let unnamed = std::thread::spawn(|| {
            std::fs::write("/proc/thread-self/comm", "from-c").unwrap();
            name()
        });
        assert_eq!(unnamed.join().unwrap(), "from-c");
    }
}
