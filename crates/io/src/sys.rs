//! The only `unsafe` of this crate's readiness side: calls for which no safe wrapper exists.
#![expect(unsafe_code, reason = "each block names the invariant it relies on")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
#[cfg(linux)]
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use rustix::net::RecvFlags;
use towpath_proto::PathFacts;

/// Reads once from a socket, up to `most` bytes, into the spare capacity of `buffer`; `0` means the peer's FIN.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut BytesMut,
    most: usize,
) -> rustix::io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    let most = most.min(spare.len());
    let ((filled, _), _) = rustix::net::recv(socket, &mut spare[..most], RecvFlags::empty())?;
    let bytes = filled.len();
    // SAFETY: `filled` is the initialised front of the spare capacity, so that the first `bytes`
    // bytes after the length are initialised and inside the allocation.
    unsafe { buffer.advance_mut(bytes) };
    Ok(bytes)
}

/// Sets a raw socket option whose value is `value`'s bytes.
pub(crate) fn set_option(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: `value` is readable for `length` bytes during the call, and the kernel keeps no
    // pointer to it; the descriptor is borrowed, hence open.
    let result = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, value.as_ptr().cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the kernel knows of a TCP connection's path; none for other sockets.
#[cfg(linux)]
pub(crate) fn path_facts(socket: impl AsFd) -> Option<PathFacts> {
    // Without a window the peer has no room, and its kernel acknowledges probes: it is slow, not gone. With one, what
    // is not sent has no way there, as after the interface has lost its address.
    let unsent = |facts: &libc::tcp_info| match facts.tcpi_snd_wnd {
        0 => 0,
        _ => facts.tcpi_notsent_bytes,
    };
    tcp_info(socket).map(|facts| PathFacts {
        round_trip: Duration::from_micros(facts.tcpi_rtt.into()),
        unacknowledged: facts.tcpi_unacked.saturating_add(unsent(&facts)),
        since_ack: Duration::from_millis(facts.tcpi_last_ack_recv.into()),
        least_round_trip: Duration::from_micros(facts.tcpi_min_rtt.into()),
        acknowledged: facts.tcpi_bytes_acked,
        delivery_rate: facts.tcpi_delivery_rate,
    })
}

/// `TCP_INFO`; what an older kernel does not know is 0.
#[cfg(linux)]
pub(crate) fn tcp_info(socket: impl AsFd) -> Option<libc::tcp_info> {
    // SAFETY: `tcp_info` is made of integers only, for which all zeros is a value.
    let mut facts: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: the kernel writes at most `length` bytes into `facts`, which is that long, and keeps no pointer;
    // the descriptor is borrowed, hence open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut facts).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(facts)
}

/// Bytes written to a socket that the peer's kernel has not acknowledged.
#[cfg(linux)]
pub(crate) fn unacknowledged(socket: impl AsFd) -> u32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: for sockets the kernel answers `TIOCOUTQ` (`SIOCOUTQ`) by writing one `int` into `bytes` and keeps no
    // pointer; the descriptor is borrowed, hence open.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u32::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Elsewhere it does not say.
#[cfg(not(linux))]
pub(crate) const fn unacknowledged<S>(_socket: &S) -> u32 {
    0
}

/// Elsewhere it does not say.
#[cfg(not(linux))]
pub(crate) const fn path_facts<S>(_socket: &S) -> Option<PathFacts> {
    None
}

/// Sleeps of this thread end on time: Linux lets them be 50 µs longer otherwise.
pub(crate) fn wake_on_time() {
    // Where it is refused they are longer, and no harm is done.
    #[cfg(linux)]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
}

/// `SCHED_FIFO` for this thread.
#[cfg(linux)]
pub(crate) fn become_realtime(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the thread is the calling one, hence alive; `parameters` is read during the call, and no pointer kept.
    let error = unsafe {
        libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_FIFO, &raw const parameters)
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Elsewhere no thread asks for it.
#[cfg(not(linux))]
pub(crate) fn become_realtime(_priority: i32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Another niceness for this thread alone, which is `by` higher.
#[cfg(linux)]
pub(crate) fn give_way(by: i32) -> io::Result<()> {
    Ok(rustix::process::nice(by).map(drop)?)
}

/// Elsewhere it is the process that has one.
#[cfg(not(linux))]
pub(crate) fn give_way(_by: i32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// How long this thread's turns are, in nanoseconds, where its policy is to be fair; all else stays as it is.
#[cfg(linux)]
pub(crate) fn set_turn(nanoseconds: u64) -> io::Result<()> {
    let mut attributes = scheduling()?;
    if !matches!(attributes.sched_policy as libc::c_int, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    attributes.sched_runtime = nanoseconds;
    // SAFETY: thread 0 is the calling one; the kernel reads as many bytes of `attributes` as it says that it has, all
    // integers, and keeps no pointer.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Elsewhere the length cannot be set.
#[cfg(not(linux))]
pub(crate) fn set_turn(_nanoseconds: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// How this thread is scheduled.
#[cfg(linux)]
pub(crate) fn scheduling() -> io::Result<libc::sched_attr> {
    // SAFETY: `sched_attr` is made of integers only, for which all zeros is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let length = size_of::<libc::sched_attr>();
    // SAFETY: thread 0 is the calling one; the kernel writes at most `length` bytes into `attributes`, which is that
    // long, and keeps no pointer.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, length, 0) };
    if result == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Hands free pages of the C library's heap back to the kernel; elsewhere does nothing.
pub(crate) fn trim_heap() {
    // SAFETY: `malloc_trim` takes the allocator's own locks and touches free memory only.
    #[cfg(all(linux, target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Drops the pages of a private, read-only mapping of a file; the kernel reads those again that are still used.
///
/// Only [`crate::memory`] calls this, with ranges that the kernel itself listed as such mappings.
#[cfg(linux)]
pub(crate) fn drop_file_pages(start: usize, length: usize) {
    // SAFETY: the range is a whole mapping of a file without write permission, of which the kernel said just before
    // that no page differs from the file. So dropping them changes nothing that a program can see; the
    // addresses are not turned into references.
    unsafe {
        libc::madvise(std::ptr::without_provenance_mut(start), length, libc::MADV_DONTNEED);
    }
}
