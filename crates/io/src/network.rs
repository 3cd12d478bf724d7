//! What network there is, as the kernel tells it: interfaces, addresses and default routes (rtnetlink(7), RFC 3549).
//!
//! Arrives: the kernel's word that one of them changed. Leaves: a [`Picture`] of all of them, asked for anew, once it
//! has been quiet for a moment. Between changes nothing wakes up. Linux only: elsewhere [`Watcher::open`] fails.

#[cfg(linux)]
mod message;

use std::io;
use std::net::IpAddr;
#[cfg(linux)]
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
#[cfg(linux)]
use std::time::{Duration, Instant};

#[cfg(linux)]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(linux)]
use rustix::net::netlink::SocketAddrNetlink;
#[cfg(linux)]
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

/// What there is at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Interfaces.
    pub links: Vec<Link>,
    /// Their addresses that can be used beyond this machine and its links.
    pub addresses: Vec<LinkAddress>,
    /// Routes to everywhere.
    pub routes: Vec<DefaultRoute>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name, as `wlan0`.
    pub name: String,
    /// It is up, and its carrier as well.
    pub running: bool,
    /// It leads to this machine only.
    pub loopback: bool,
}

/// An address of an interface: of global scope, and not found to be another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The interface's number.
    pub link: u32,
    /// The address.
    pub ip: IpAddr,
}

/// A route to everywhere, of any table but that of local addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// The interface's number.
    pub link: u32,
    /// Of IPv6, not of IPv4.
    pub six: bool,
    /// The router, where there is one.
    pub gateway: Option<IpAddr>,
    /// Lower ones are preferred.
    pub metric: u32,
}

/// Hears of changes.
#[derive(Debug)]
pub struct Watcher {
    #[cfg(linux)]
    changes: OwnedFd,
    #[cfg(linux)]
    stopped: UnixStream,
}

/// Ends the watching when it is dropped.
#[derive(Debug)]
pub struct Stop {
    _open: UnixStream,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Something may have changed.
    Changed,
    /// The [`Stop`] was dropped.
    Stopped,
}

#[cfg(not(linux))]
impl Watcher {
    /// Elsewhere the platform has other ways to tell.
    ///
    /// # Errors
    /// Always.
    pub fn open() -> io::Result<(Self, Stop)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Never asked.
    ///
    /// # Errors
    /// Always.
    pub fn wait(&self) -> io::Result<Woken> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Never asked.
    ///
    /// # Errors
    /// Always.
    pub fn picture(&self) -> io::Result<Picture> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(linux)]
impl Watcher {
    /// Watches the network namespace of this thread.
    ///
    /// # Errors
    /// When the system does not let us: in a sandbox, or without descriptors.
    pub fn open() -> io::Result<(Self, Stop)> {
        let (stopped, open) = UnixStream::pair()?;
        let changes = connect(SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
        bind(&changes, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok((Self { changes, stopped }, Stop { _open: open }))
    }

    /// Sleeps until something may have changed, and it has been quiet since for a moment.
    ///
    /// # Errors
    /// When the system's calls fail, which they do not for reasons of the network.
    pub fn wait(&self) -> io::Result<Woken> {
        if self.poll(None)? == Some(Woken::Stopped) {
            return Ok(Woken::Stopped);
        }
        let began = Instant::now();
        loop {
            self.drain()?;
            let left = LONGEST_STIR.saturating_sub(began.elapsed());
            match self.poll(Some(left.min(QUIET)))? {
                Some(Woken::Stopped) => return Ok(Woken::Stopped),
                Some(Woken::Changed) if !left.is_zero() => {}
                Some(Woken::Changed) | None => return Ok(Woken::Changed),
            }
        }
    }

    /// What there is.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn picture(&self) -> io::Result<Picture> {
        let mut picture = Picture::default();
        for question in [message::LINKS, message::ADDRESSES, message::ROUTES] {
            dump(question, &mut picture)?;
        }
        Ok(picture)
    }

    fn poll(&self, limit: Option<Duration>) -> io::Result<Option<Woken>> {
        let mut ready =
            [PollFd::new(&self.changes, PollFlags::IN), PollFd::new(&self.stopped, PollFlags::IN)];
        let limit = limit.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        loop {
            match poll(&mut ready, limit.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        let [changes, stopped] = ready;
        if !stopped.revents().is_empty() {
            return Ok(Some(Woken::Stopped));
        }
        Ok((!changes.revents().is_empty()).then_some(Woken::Changed))
    }

    /// Throws away what the kernel has said: what counts is what there is in the end.
    fn drain(&self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match recv(&self.changes, &mut buffer, RecvFlags::DONTWAIT) {
                // Some of it was lost: no matter.
                Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Asks for everything of one kind.
#[cfg(linux)]
fn dump(question: u16, picture: &mut Picture) -> io::Result<()> {
    let socket = connect(SocketFlags::CLOEXEC)?;
    send(&socket, &message::request(question), SendFlags::empty())?;
    let mut buffer = vec![0; ANSWER_BYTES];
    loop {
        let (length, _) = match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        match message::read(&buffer[..length], picture) {
            message::Progress::More if length > 0 => {}
            message::Progress::More | message::Progress::Done => return Ok(()),
            message::Progress::Failed(code) => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

#[cfg(linux)]
fn connect(flags: SocketFlags) -> io::Result<OwnedFd> {
    // `NETLINK_ROUTE` is protocol 0, which is the default.
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?)
}

/// Links, and both families' addresses and routes: `RTMGRP_LINK`, `_IPV4_IFADDR`, `_IPV4_ROUTE`, `_IPV6_IFADDR`,
/// `_IPV6_ROUTE`.
#[cfg(linux)]
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// How long nothing more has changed before a change is told …
#[cfg(linux)]
const QUIET: Duration = Duration::from_millis(100);
/// … or for how long it has been changing.
#[cfg(linux)]
const LONGEST_STIR: Duration = Duration::from_millis(400);
/// The kernel fills no more than this at a time.
#[cfg(linux)]
const ANSWER_BYTES: usize = 32 * 1024;

#[cfg(all(test, linux))]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback_interface() {
        let (watcher, stop) = Watcher::open().unwrap();
        let picture = watcher.picture().unwrap();
        let loopback = picture.links.iter().find(|link| link.loopback).unwrap();
        assert_eq!((loopback.name.as_str(), loopback.index), ("lo", 1));
        assert!(picture.addresses.iter().all(|address| !address.ip.is_loopback()));
        drop(stop);
        while watcher.wait().unwrap() != Woken::Stopped {}
    }
}
