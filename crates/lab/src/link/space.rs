//! A network namespace with a thread in it.
//!
//! Namespaces belong to threads: what this thread opens, starts and spawns lives in its namespace, and the
//! namespace lives as long as anything in it.

use std::io;
use std::process::Command;
use std::sync::mpsc;

use nix::sched::{CloneFlags, unshare};

/// A namespace of its own, reached by sending work to its thread.
#[derive(Debug)]
pub struct Space {
    jobs: mpsc::Sender<Job>,
    tid: u32,
}

type Job = Box<dyn FnOnce() + Send>;

impl Space {
    /// A new namespace with nothing in it but a loopback device.
    pub(super) fn new(name: &'static str) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let entered = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
            let failed = entered.is_err();
            let _ = ready
                .send(entered.map(|()| rustix::thread::gettid().as_raw_nonzero().get() as u32));
            if failed {
                return;
            }
            for job in inbox {
                job();
            }
        })?;
        let tid =
            is_ready.recv().map_err(|_| io::Error::other("the namespace's thread ended"))??;
        let space = Self { jobs, tid };
        space.ip("link set lo up")?;
        Ok(space)
    }

    /// Does something in the namespace, on its thread. Threads started there stay in the namespace.
    ///
    /// # Panics
    ///
    /// When `job` does.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::sync_channel(1);
        let job = Box::new(move || {
            let _ = done.send(job());
        });
        self.jobs.send(job).expect("the thread runs as long as its sender lives");
        result.recv().expect("the job did not panic")
    }

    /// The thread's id, by which other namespaces name this one.
    pub(super) fn tid(&self) -> u32 {
        self.tid
    }

    /// Runs iproute2's `ip` with these words.
    pub(super) fn ip(&self, words: &str) -> io::Result<()> {
        let words = words.to_owned();
        self.run(move || {
            let output =
                Command::new("ip").args(words.split_whitespace()).output().map_err(|error| {
                    io::Error::new(
                        error.kind(),
                        format!("cannot run ip, which package iproute2 provides: {error}"),
                    )
                })?;
            if output.status.success() {
                return Ok(());
            }
            let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(io::Error::other(format!("ip {words}: {complaint}")))
        })
    }

    /// Sets a kernel parameter of the namespace, as in `net/ipv4/tcp_syn_retries`.
    pub(super) fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let (path, value) = (format!("/proc/sys/{name}"), value.to_owned());
        self.run(move || {
            std::fs::write(&path, value)
                .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
        })
    }

    /// Packets that the kernel dropped on the way into or out of `device`.
    pub(super) fn hidden_drops(&self, device: &'static str) -> u64 {
        let text =
            self.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default());
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))
            .unwrap_or_default();
        let numbers: Vec<u64> =
            line.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        numbers.get(3).copied().unwrap_or(0) + numbers.get(11).copied().unwrap_or(0)
    }

    /// Whether anything listens on a TCP port in the namespace.
    pub fn has_listener(&self) -> bool {
        self.run(|| {
            ["tcp", "tcp6"].iter().any(|table| {
                let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}"))
                    .unwrap_or_default();
                text.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some("0A"))
            })
        })
    }
}

/// Enters a user namespace in which the caller is root, so that network namespaces may be made without
/// privilege. Must be called while the process has one thread; does nothing for root.
pub fn become_root_of_a_user_namespace() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| {
        io::Error::other(format!("neither root nor allowed to make a user namespace ({error})"))
    })?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
