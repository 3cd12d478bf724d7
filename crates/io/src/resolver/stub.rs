//! Asks DNS servers for the addresses of a name: both families apart and at once (RFC 8305 §3), several servers one
//! soon after the other, each with sockets of its own.
//!
//! Arrives: a name and a [`Config`]. Leaves: its addresses as soon as both families have answered, or one has and
//! the other had its time. It blocks, for [`LONGEST`] at most. `getaddrinfo` waits 5 s for a server that is dead, or
//! for the answer of a family that a router drops.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_proto::Failure;

use super::config::Config;
use super::message::{DATAGRAM_BYTES, Kind, Reply, encode_name, parse, question};
use super::order::sort;
use super::patience::{Known, LONGEST, patience};

/// The resolver, and what it has learned of servers.
#[derive(Debug, Default)]
pub(super) struct Stub {
    /// The one that answered last: it is asked first.
    best: Mutex<Option<SocketAddr>>,
}

/// Why there are no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The servers say that there are none.
    NoSuchName,
    /// The servers cannot tell.
    Failed,
    /// They did not answer, or cannot be reached.
    Silent(Failure),
    /// We may not ask: sockets are refused.
    Forbidden,
}

/// One name that is asked for.
struct Asking<'a> {
    name: &'a [u8],
    servers: Vec<SocketAddr>,
    /// Questions that are out.
    open: Vec<Open>,
    families: [Family; 2],
    /// The next server, by how many were asked.
    next: usize,
    /// The last error of a socket.
    error: Option<io::Error>,
}

/// A question that is out to one server.
struct Open {
    socket: UdpSocket,
    server: SocketAddr,
    kind: Kind,
    id: u16,
    edns: bool,
}

/// What is known of one family.
struct Family {
    kind: Kind,
    found: Option<Vec<IpAddr>>,
    /// Servers that could not tell.
    failed: Vec<SocketAddr>,
    no_such_name: bool,
    /// How long what is known may be kept.
    lifetime: Option<Duration>,
}

impl Stub {
    /// The addresses of a name, the best first; and how long they, or that there are none, may be kept.
    pub(super) fn resolve(
        &self,
        name: &str,
        config: &Config,
    ) -> (Result<Vec<IpAddr>, Why>, Option<Duration>) {
        let Some(name) = encode_name(name) else { return (Err(Why::NoSuchName), None) };
        let best = *self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let best = best.filter(|best| config.servers.contains(best));
        let mut servers = Vec::new();
        for server in best.iter().chain(&config.servers) {
            if !servers.contains(server) {
                servers.push(*server);
            }
        }
        let mut asking = Asking::new(&name, servers);
        let answered = asking.run();
        if answered.is_some() {
            *self.best.lock().unwrap_or_else(PoisonError::into_inner) = answered;
        }
        asking.outcome()
    }
}

impl<'a> Asking<'a> {
    fn new(name: &'a [u8], servers: Vec<SocketAddr>) -> Self {
        let families = [Kind::Aaaa, Kind::A].map(|kind| {
            let (found, failed, no_such_name, lifetime) = (None, Vec::new(), false, None);
            Family { kind, found, failed, no_such_name, lifetime }
        });
        Self { name, servers, open: Vec::new(), families, next: 0, error: None }
    }

    /// Asks until enough is known, or time is up. Who answered first.
    fn run(&mut self) -> Option<SocketAddr> {
        let mut until = Instant::now() + LONGEST;
        let mut again = Instant::now();
        let (mut answered, mut known) = (None, false);
        loop {
            let now = Instant::now();
            if self.is_done() || now >= until {
                return answered;
            }
            if now >= again {
                again = now + self.ask_next();
                continue;
            }
            for (question, bytes) in self.wait(again.min(until) - now) {
                let server = self.open[question].server;
                if self.take(question, &bytes) {
                    answered.get_or_insert(server);
                } else {
                    // The next server is asked at once.
                    again = again.min(now);
                }
            }
            self.close_answered();
            if !known && let Some(patience) = self.patience() {
                known = true;
                until = until.min(Instant::now() + patience);
            }
        }
    }

    /// How long the second family may take, once the first has addresses.
    fn patience(&self) -> Option<Duration> {
        let [six, four] = self.families.each_ref().map(|family| {
            let has = family.found.as_ref().is_some_and(|found| !found.is_empty());
            if family.no_such_name { Known::Denied } else { Known::of(has) }
        });
        patience(six, four)
    }

    fn is_done(&self) -> bool {
        let all = self.servers.len();
        self.families.iter().all(|family| family.is_known() || family.failed.len() >= all)
    }

    /// Asks the next server for all that is not known; how long to wait before the one after it is asked.
    fn ask_next(&mut self) -> Duration {
        let server = self.servers[self.next % self.servers.len()];
        let is_first_round = self.next < self.servers.len();
        self.next += 1;
        // A question that was lost is asked by the same socket: an answer to either will do.
        let out: Vec<Kind> =
            self.open.iter().filter(|open| open.server == server).map(|open| open.kind).collect();
        let mut sent = false;
        for open in self.open.iter_mut().filter(|open| open.server == server) {
            sent |= note(open.send(self.name), &mut self.error);
        }
        for family in &mut self.families {
            let is_wanted = !family.is_known() && !family.failed.contains(&server);
            if !is_wanted || out.contains(&family.kind) {
                continue;
            }
            match Open::new(server, family.kind, self.name) {
                Ok(open) => {
                    self.open.push(open);
                    sent = true;
                }
                Err(error) => {
                    family.failed.push(server);
                    self.error = Some(error);
                }
            }
        }
        match (sent, is_first_round && self.next < self.servers.len()) {
            (false, true) => Duration::ZERO,
            (true, true) => NEXT_SERVER,
            (_, false) => ASK_AGAIN.div_f64(self.servers.len() as f64),
        }
    }

    /// What comes within this time, and to which questions.
    fn wait(&mut self, limit: Duration) -> Vec<(usize, Vec<u8>)> {
        let sockets = self.open.iter().map(|open| PollFd::new(&open.socket, PollFlags::IN));
        let mut sockets: Vec<_> = sockets.collect();
        let limit = Timespec::try_from(limit).ok();
        if !matches!(poll(&mut sockets, limit.as_ref()), Ok(1..)) {
            return Vec::new();
        }
        let ready: Vec<bool> = sockets.iter().map(|socket| !socket.revents().is_empty()).collect();
        let mut came = Vec::new();
        let mut buffer = [0; DATAGRAM_BYTES as usize];
        for (number, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            match self.open[number].socket.recv(&mut buffer) {
                Ok(length) => came.push((number, buffer[..length].to_vec())),
                // No server listens there: as if it had said that it cannot tell.
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    let (server, kind) = (self.open[number].server, self.open[number].kind);
                    self.family(kind).fail(server);
                    self.error = Some(error);
                    came.push((number, Vec::new()));
                }
                Err(_) => {}
            }
        }
        came
    }

    /// A datagram came to a question. Whether it answers it.
    fn take(&mut self, number: usize, bytes: &[u8]) -> bool {
        let name = self.name;
        let open = &mut self.open[number];
        let (server, kind, id) = (open.server, open.kind, open.id);
        let reply = match parse(bytes, id, name, kind) {
            Some(Reply::Malformed) if open.edns => {
                open.edns = false;
                let sent = open.send(name);
                return note(sent, &mut self.error);
            }
            Some(Reply::Truncated) => ask_by_tcp(server, id, name, kind, open.edns),
            other => other,
        };
        let family = self.family(kind);
        match reply {
            Some(Reply::Addresses(found, lifetime)) => {
                // A server may know one that another does not; the first that has some is believed.
                if family.found.is_none() {
                    (family.found, family.lifetime) = (Some(found), lifetime);
                }
                true
            }
            Some(Reply::NoSuchName(lifetime)) => {
                (family.no_such_name, family.lifetime) = (true, lifetime);
                true
            }
            Some(Reply::Failed | Reply::Malformed | Reply::Truncated) => {
                family.fail(server);
                false
            }
            // Forged or damaged: the answer may still come. An error of the socket is noted already.
            None => !bytes.is_empty(),
        }
    }

    fn family(&mut self, kind: Kind) -> &mut Family {
        match kind {
            Kind::Aaaa => &mut self.families[0],
            Kind::A => &mut self.families[1],
        }
    }

    fn close_answered(&mut self) {
        let Self { open, families, .. } = self;
        open.retain(|open| {
            let mut of_kind = families.iter().filter(|family| family.kind == open.kind);
            of_kind.all(|family| !family.is_known() && !family.failed.contains(&open.server))
        });
    }

    fn outcome(self) -> (Result<Vec<IpAddr>, Why>, Option<Duration>) {
        let lifetime = self.families.iter().filter_map(|family| family.lifetime).min();
        (self.found(), lifetime)
    }

    fn found(self) -> Result<Vec<IpAddr>, Why> {
        let all = self.servers.len();
        let is_silent = |family: &Family| !family.is_known() && family.failed.len() < all;
        let is_silent = self.families.iter().any(is_silent);
        let denied = self.families.iter().any(|family| family.no_such_name);
        let both = self.families.iter().all(|family| family.found.is_some());
        let mut found: Vec<IpAddr> =
            self.families.into_iter().filter_map(|family| family.found).flatten().collect();
        if !found.is_empty() {
            sort(&mut found);
            return Ok(found);
        }
        if denied || both {
            return Err(Why::NoSuchName);
        }
        match self.error {
            Some(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Why::Forbidden),
            Some(error) if !is_silent => Err(Why::Silent(crate::failure::of(&error))),
            _ if is_silent => Err(Why::Silent(Failure::TimedOut)),
            _ => Err(Why::Failed),
        }
    }
}

impl Family {
    const fn is_known(&self) -> bool {
        self.found.is_some() || self.no_such_name
    }

    fn fail(&mut self, server: SocketAddr) {
        if !self.failed.contains(&server) {
            self.failed.push(server);
        }
    }
}

impl Open {
    /// A question from a port of its own, which a forger has to guess.
    fn new(server: SocketAddr, kind: Kind, name: &[u8]) -> io::Result<Self> {
        let local = match server {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(local)?;
        socket.set_nonblocking(true)?;
        socket.connect(server)?;
        // The keys of a map are random, and so is what they make of nothing.
        let [low, high, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
        let id = u16::from_ne_bytes([low, high]);
        let mut this = Self { socket, server, kind, id, edns: true };
        this.send(name)?;
        Ok(this)
    }

    fn send(&mut self, name: &[u8]) -> io::Result<()> {
        let question = question(self.id, name, self.kind, self.edns);
        self.socket.send(&question).map(drop)
    }
}

/// Whether it went well; an error is kept.
fn note(sent: io::Result<()>, error: &mut Option<io::Error>) -> bool {
    match sent {
        Ok(()) => true,
        Err(why) => {
            *error = Some(why);
            false
        }
    }
}

/// The same question where answers may be long (RFC 7766).
fn ask_by_tcp(server: SocketAddr, id: u16, name: &[u8], kind: Kind, edns: bool) -> Option<Reply> {
    let ask = || -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&server, LONGEST_TCP)?;
        stream.set_read_timeout(Some(LONGEST_TCP))?;
        stream.set_write_timeout(Some(LONGEST_TCP))?;
        let question = question(id, name, kind, edns);
        let length = u16::try_from(question.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), question.as_slice()].concat())?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    };
    Some(ask().ok().and_then(|answer| parse(&answer, id, name, kind)).unwrap_or(Reply::Failed))
}

/// From a question to a server to the first to the next.
const NEXT_SERVER: Duration = Duration::from_millis(300);
/// From a question to the next to the same server.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const LONGEST_TCP: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
