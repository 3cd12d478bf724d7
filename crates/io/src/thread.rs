//! How the kernel schedules this thread.

use std::io;

/// Lets this thread run before all ordinary ones (`SCHED_FIFO`), at a priority from 1 to 99.
///
/// # Errors
///
/// The system's: `EPERM` without the right to (`CAP_SYS_NICE`, or `RLIMIT_RTPRIO`), `EINVAL` for another priority,
/// `Unsupported` where there is no such policy.
pub fn become_realtime(priority: i32) -> io::Result<()> {
    crate::sys::become_realtime(priority)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_priority_that_does_not_exist_is_refused() {
        for priority in [0, 100, -1] {
            let error = become_realtime(priority).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{priority}");
        }
    }

    /// What `sched(7)` says of this thread: its policy is field 41 of `stat` (proc(5)).
    #[test]
    fn a_thread_that_may_runs_first() {
        let policy_and_priority = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, behind_name) = stat.rsplit_once(") ").unwrap();
            let fields: Vec<&str> = behind_name.split(' ').collect();
            (fields[41 - 3].to_owned(), fields[40 - 3].to_owned())
        };
        let before = policy_and_priority();
        let expected = match become_realtime(10) {
            Ok(()) => ("1".to_owned(), "10".to_owned()),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                before
            }
        };
        assert_eq!(policy_and_priority(), expected);
    }
}
