//! The server on one processor and the generators on the others: where both may run anywhere, the scheduler moves a
//! generator of several threads to the server's processor, and one of a single thread seldom.

use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::meter::Meter;

/// Puts all of them back when it is dropped.
pub(super) struct Apart {
    /// The processors of each before; without a number: of this thread.
    before: Vec<(Option<Pid>, CpuSet)>,
}

impl Apart {
    /// Keeps these processes and their descendants on the first processor that they may use, and this thread, and what
    /// it starts from here on, off it.
    pub(super) fn put(pids: &[u32]) -> io::Result<Self> {
        let family = Meter::begin(pids).map_err(io::Error::other)?.family();
        let mut apart = Self { before: Vec::new() };
        let (mut server, mut others) = (CpuSet::new(), sched_getaffinity(None)?);
        let of_server = sched_getaffinity(pids.first().and_then(|pid| number(*pid)))?;
        let Some(first) = (0..CpuSet::MAX_CPU).find(|at| of_server.is_set(*at)) else {
            return Err(io::Error::other("the server may use no processor"));
        };
        server.set(first);
        others.unset(first);
        if others.count() == 0 {
            return Err(io::Error::other("server and generators need a processor each"));
        }
        for thread in family.iter().flat_map(|pid| threads(*pid)) {
            apart.keep(Some(thread), &server)?;
        }
        apart.keep(None, &others)?;
        Ok(apart)
    }

    fn keep(&mut self, who: Option<Pid>, on: &CpuSet) -> io::Result<()> {
        let before = sched_getaffinity(who)?;
        sched_setaffinity(who, on)?;
        self.before.push((who, before));
        Ok(())
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        for (who, before) in &self.before {
            // A program that has ended needs no processor.
            let _ = sched_setaffinity(*who, before);
        }
    }
}

fn threads(pid: u32) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| number(name.to_str()?.parse().ok()?)).collect()
}

fn number(pid: u32) -> Option<Pid> {
    Pid::from_raw(pid.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_processor_of_its_own_while_it_is_asked() {
        let mut server = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = number(server.id());
        let (own, its) = (sched_getaffinity(None).unwrap(), sched_getaffinity(pid).unwrap());
        let apart = Apart::put(&[server.id()]);
        if own.count() < 2 {
            assert!(apart.is_err());
        } else {
            let apart = apart.unwrap();
            let of_child =
                std::process::Command::new("sleep").arg("60").spawn().map(|mut child| {
                    let affinity = sched_getaffinity(number(child.id())).unwrap();
                    child.kill().and_then(|()| child.wait()).unwrap();
                    affinity
                });
            let (ours, theirs) =
                (sched_getaffinity(None).unwrap(), sched_getaffinity(pid).unwrap());
            assert_eq!((theirs.count(), ours.count()), (1, own.count() - 1));
            assert!((0..CpuSet::MAX_CPU).all(|at| !(ours.is_set(at) && theirs.is_set(at))));
            assert_eq!(of_child.unwrap(), ours, "what is started is apart too");
            drop(apart);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), own);
        assert_eq!(sched_getaffinity(pid).unwrap(), its);
        server.kill().unwrap();
        server.wait().unwrap();
    }
}
