//! Listening sockets of one shard, and what is accepted from them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use towpath_proto::{
    Address, ConnectionId, Failure, Input, Instant, ListenOptions, ListenerId, Machine,
};

use crate::balance::{Accepted, Give, Group};
use crate::{failure, socket};

use super::connection::{Connection, Phase};
use super::{Driver, FIRST_LISTENER};

pub(super) struct Listener {
    pub(super) id: ListenerId,
    /// As the machine asked; the registry's key.
    pub(super) asked: Address,
    bound: Address,
    /// Accepted connections have the listener's own address: nothing to ask the kernel.
    exact: bool,
    pub(super) socket: Socket,
    options: Arc<ListenOptions>,
    /// Whom its connections are balanced with.
    pub(super) group: Option<Arc<Group>>,
    in_accepts: bool,
    /// Clients that connect wait in it.
    is_held: bool,
}

impl Listener {
    /// A connection from it, with its addresses; none if it is gone already.
    fn accepted(&self, socket: Socket, peer: Address) -> Option<Accepted> {
        let local = match self.exact {
            true => self.bound.clone(),
            false => socket::local_address(&socket).ok()?,
        };
        let original = match local.ip() {
            Some(ip) if self.options.original_destination => {
                let transparent = self.options.transparent.then_some(ip);
                socket::original_destination(&socket, ip).or(transparent)
            }
            Some(_) | None => None,
        };
        let group = self.group.clone();
        Some(Accepted { listener: self.id, group, socket, local, peer, original })
    }
}

/// What one `accept` came to.
enum Accept {
    Taken(Socket, Address),
    /// The peer went away while it waited, or a filter refused it: the next one.
    Skipped,
    /// None waits.
    Drained,
    /// No descriptors, no memory, or something that will not be better at once.
    Exhausted,
}

impl<M: Machine> Driver<M>
where
    M::Message: Send + 'static,
{
    pub(super) fn listen(
        &mut self,
        id: ListenerId,
        address: &Address,
        options: &Arc<ListenOptions>,
    ) -> Result<Address, Failure> {
        let has_socket = self.listeners.iter().flatten().any(|listener| listener.id == id);
        if has_socket || self.internal.values().any(|listener| *listener == id) {
            return Err(Failure::AddressInUse);
        }
        if let Some(name) = address.internal() {
            self.internal.insert(name.to_owned(), id);
            return Ok(address.clone());
        }
        let shard = self.shard();
        let (sockets, bound) = self.options.listeners.acquire(shard, id, address, options)?;
        let group = self.options.listeners.group(id, address);
        if let Some(group) = &group {
            let shared = Arc::clone(&self.shared);
            group.join(shard.index, Give::new(move |accepted| shared.hand_over(accepted)));
        }
        for socket in sockets {
            let listener = Listener {
                id,
                asked: address.clone(),
                exact: is_exact(&bound, options),
                bound: bound.clone(),
                socket,
                options: Arc::clone(options),
                group: group.clone(),
                in_accepts: false,
                is_held: false,
            };
            if let Err(error) = self.add_listener(listener) {
                self.unlisten(id);
                return Err(failure::of(&error));
            }
        }
        Ok(bound)
    }

    pub(super) fn add_listener(&mut self, listener: Listener) -> io::Result<()> {
        let free = self.listeners.iter().position(Option::is_none);
        let index = free.unwrap_or(self.listeners.len());
        self.poller.register_listener(&listener.socket, FIRST_LISTENER + index)?;
        if index == self.listeners.len() {
            self.listeners.push(None);
        }
        self.listeners[index] = Some(listener);
        Ok(())
    }

    /// Closing a listening socket resets the connections that wait in it, whose clients may have sent a request
    /// already: they are taken before.
    pub(super) fn unlisten(&mut self, id: ListenerId) {
        self.internal.retain(|_, listener| *listener != id);
        let shard = self.shard();
        for index in 0..self.listeners.len() {
            let taken = self.listeners[index].take_if(|listener| listener.id == id);
            let Some(listener) = taken else {
                continue;
            };
            // A duplicate elsewhere keeps the open file, and with it the registration, alive.
            let _ = self.poller.deregister(&listener.socket);
            let asked = listener.asked.clone();
            self.leave_group(&listener);
            // A client that got in between the last accept and the close would be lost: none begins to connect any
            // more, and handshakes that other cores are in the middle of are waited for.
            if listener.options.reuse_port && listener.bound.ip().is_some() {
                socket::ignore_new(&listener.socket);
                self.take_waiting(&listener);
                let begin = std::time::Instant::now();
                while begin.elapsed() < HANDSHAKE {
                    std::thread::yield_now();
                }
            }
            self.take_waiting(&listener);
            drop(listener);
            self.options.listeners.release(shard, id, &asked);
        }
    }

    /// No shard hands over any more, and what is on its way is taken.
    fn leave_group(&mut self, listener: &Listener) {
        let Some(group) = &listener.group else { return };
        group.leave(self.options.shard);
        let mut on_their_way = self.shared.take_handed(listener.id, &mut self.commands);
        for accepted in on_their_way.drain(..) {
            let input = self.admit(accepted);
            self.answers.extend(input);
        }
    }

    fn take_waiting(&mut self, listener: &Listener) {
        for _ in 0..MAX_WAITING {
            match accept(&listener.socket) {
                Accept::Taken(socket, peer) => {
                    let Some(accepted) = listener.accepted(socket, peer) else {
                        continue;
                    };
                    // The shards that are left of its group count it no more.
                    let input = self.admit(Accepted { group: None, ..accepted });
                    self.answers.extend(input);
                }
                Accept::Skipped => {}
                Accept::Drained | Accept::Exhausted => return,
            }
        }
    }

    /// Leaves sockets alone, or goes on with them: what came meanwhile was not told of twice.
    pub(super) fn hold(&mut self, id: ListenerId, is_held: bool) {
        for index in 0..self.listeners.len() {
            let Some(Some(listener)) = self.listeners.get_mut(index) else { continue };
            if listener.id == id && listener.is_held != is_held {
                listener.is_held = is_held;
                self.on_listener_ready(index);
            }
        }
    }

    pub(super) fn on_listener_ready(&mut self, index: usize) {
        if let Some(Some(listener)) = self.listeners.get_mut(index)
            && !listener.in_accepts
        {
            listener.in_accepts = true;
            self.accepts.push(index);
        }
    }

    pub(super) fn accept(&mut self, now: Instant) {
        if self.accepts.is_empty() {
            return;
        }
        std::mem::swap(&mut self.accepts, &mut self.slots);
        let mut slots = std::mem::take(&mut self.slots);
        for index in slots.drain(..) {
            self.accept_from(index, now);
        }
        self.slots = slots;
    }

    pub(super) fn accept_from(&mut self, index: usize, now: Instant) {
        let Some(Some(listener)) = self.listeners.get_mut(index) else {
            return;
        };
        listener.in_accepts = false;
        if listener.is_held {
            return;
        }
        let limit = listener.options.accepts_per_wake.clamp(1, self.options.max_accepts.max(1));
        for _ in 0..limit {
            let Some(Some(listener)) = self.listeners.get_mut(index) else {
                return;
            };
            match accept(&listener.socket) {
                Accept::Taken(socket, peer) => {
                    let Some(accepted) = listener.accepted(socket, peer) else {
                        continue;
                    };
                    let own = match accepted.group.clone() {
                        Some(group) => group.place(self.options.shard, accepted, now),
                        None => Some(accepted),
                    };
                    if let Some(own) = own {
                        self.begin(own, now);
                    }
                }
                Accept::Skipped => {}
                Accept::Drained => return,
                Accept::Exhausted => {
                    self.shared.counters.accepts_exhausted.add(1);
                    self.paused.push(index);
                    self.accept_again = now + self.options.accept_pause;
                    return;
                }
            }
        }
        self.on_listener_ready(index);
    }

    /// Tells the machine of a new connection.
    pub(super) fn begin(&mut self, accepted: Accepted, now: Instant) {
        if let Some(input) = self.admit(accepted) {
            self.tell(input, now);
        }
    }

    /// A new connection; none when the kernel has no room to watch it.
    pub(super) fn admit(&mut self, accepted: Accepted) -> Option<Input<M::Message>> {
        let Accepted { listener, group, socket, local, peer, original } = accepted;
        let connection = self.connections.insert(Connection::new(socket, Phase::Open));
        if let Some(group) = group {
            self.balanced.insert(connection.slot(), group);
        }
        if self.register(connection).is_err() {
            self.forget(connection);
            self.shared.counters.accepts_exhausted.add(1);
            return None;
        }
        self.shared.counters.accepts.add(1);
        Some(Input::Accepted { listener, connection, local, peer, original })
    }

    pub(super) fn register(&mut self, id: ConnectionId) -> io::Result<()> {
        match self.connections.find(id) {
            Some(connection) => self.poller.register(&connection.socket, id.slot()),
            None => Ok(()),
        }
    }
}

/// Connections taken from a socket that is being closed; no backlog is longer, and new ones keep coming meanwhile.
const MAX_WAITING: usize = 65_536;

/// How long another core may take over a handshake on this machine. Peers elsewhere take longer: who is in the middle
/// of it is reset, as one that comes too late.
const HANDSHAKE: Duration = Duration::from_micros(200);

fn is_exact(bound: &Address, options: &ListenOptions) -> bool {
    match bound {
        Address::Ip(ip) => !ip.ip().is_unspecified() && !options.transparent,
        Address::Unix(_) | Address::Internal(_) => true,
    }
}

fn accept(listener: &Socket) -> Accept {
    let error = match accept_non_blocking(listener) {
        Ok((socket, peer)) => return Accept::Taken(socket, peer),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Accept::Drained,
        Some(libc::ECONNABORTED | libc::ECONNRESET | libc::EPROTO | libc::EPERM | libc::EINTR) => {
            Accept::Skipped
        }
        Some(_) | None => Accept::Exhausted,
    }
}

fn accept_non_blocking(listener: &Socket) -> io::Result<(Socket, Address)> {
    #[cfg(linux_kernel)]
    let (socket, peer) = listener.accept4(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)?;
    #[cfg(not(linux_kernel))]
    let (socket, peer) = {
        let (socket, peer) = listener.accept()?;
        socket.set_nonblocking(true)?;
        (socket, peer)
    };
    Ok((socket, socket::from_system(&peer)))
}
