//! How the kernel schedules this thread.

use std::io;
use std::time::Duration;

/// Lets this thread run before all ordinary ones (`SCHED_FIFO`), at a priority from 1 to 99.
///
/// # Errors
///
/// The system's: `EPERM` without the right to (`CAP_SYS_NICE`, or `RLIMIT_RTPRIO`), `EINVAL` for another priority,
/// `Unsupported` where there is no such policy.
pub fn become_realtime(priority: i32) -> io::Result<()> {
    crate::sys::become_realtime(priority)
}

/// Lets ordinary threads go before this one: its niceness rises by so much. It does not fall again.
///
/// What such a thread holds locked, others wait for until it runs: it is to hold nothing that they want in a hurry.
///
/// # Errors
///
/// `Unsupported` where a thread has no niceness of its own.
pub fn give_way(by: i32) -> io::Result<()> {
    crate::sys::give_way(by)
}

/// Asks for turns of this length, 0.1 to 100 ms: a thread with shorter ones gets no more of the processor, but takes it
/// sooner from one with longer ones when it has something to do (Linux 6.12; an earlier one ignores it).
///
/// # Errors
///
/// The system's; `Unsupported` where there are no such turns, as for threads that run before all ordinary ones.
pub fn take_turns_of(length: Duration) -> io::Result<()> {
    crate::sys::set_turn(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(all(test, linux))]
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

    #[test]
    fn a_thread_that_gives_way_is_nicer_than_its_process() {
        let nice = || crate::sys::scheduling().unwrap().sched_nice;
        let before = nice();
        let of_thread = std::thread::spawn(move || {
            give_way(3).unwrap();
            nice()
        });
        assert_eq!(of_thread.join().unwrap(), (before + 3).min(19));
        assert_eq!(nice(), before, "of another thread");
    }

    #[test]
    fn turns_are_as_long_as_was_asked_for_and_nothing_else_changes() {
        let outcome = std::thread::spawn(|| {
            give_way(1).unwrap();
            let before = crate::sys::scheduling().unwrap();
            take_turns_of(Duration::from_micros(200)).unwrap();
            (before, crate::sys::scheduling().unwrap())
        });
        let (before, after) = outcome.join().unwrap();
        assert_eq!(
            (after.sched_policy, after.sched_nice),
            (before.sched_policy, before.sched_nice)
        );
        // An earlier kernel keeps none.
        assert!([0, 200_000].contains(&after.sched_runtime), "{}", after.sched_runtime);
    }
}
