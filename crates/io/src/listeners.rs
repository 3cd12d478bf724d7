//! The listening sockets that several shards share.
//!
//! Every shard's machine asks for the same listeners, each at its own moment. The first to ask binds
//! the sockets of all, so that port 0 means one port for all of them and a failure is known once and
//! told to each. TCP with `SO_REUSEPORT` gets one socket for each shard; everything else is one
//! socket, duplicated. An address can be bound before any shard asks for it ([`Listeners::prepare`]).
//!
//! A unix socket's file that nothing listens behind is replaced; ours is removed by the last shard
//! that lets go. All of this is the cold path: one lock around one table.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::Socket;
use towpath_proto::{Address, Balance, Failure, ListenOptions, ListenerId};

use crate::balance::Group;
use crate::{failure, socket};

/// The registry; clones share it. One for all shards of a process.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Key, Entry>,
    offered: Vec<Prepared>,
}

/// An address that is bound before a shard asks for it. Nothing listens there yet, but for a listener that has the same
/// socket.
#[derive(Debug)]
pub struct Prepared {
    address: Address,
    options: ListenOptions,
    first: First,
}

/// The first socket of an address, bound.
#[derive(Debug)]
struct First {
    socket: Socket,
    file: Option<File>,
}

type Key = (ListenerId, Address);

/// Which shard of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) of: usize,
}

#[derive(Debug)]
enum Entry {
    Bound(Bound),
    /// No shard could bind; `told` are the shards that know.
    Failed {
        failure: Failure,
        told: HashSet<usize>,
    },
}

#[derive(Debug)]
struct Bound {
    address: Address,
    options: ListenOptions,
    /// What each shard has not taken yet.
    waiting: Vec<Vec<Socket>>,
    holders: HashSet<usize>,
    /// The one socket that all shards share, for a shard that lets go and asks again. `None` when
    /// each has its own: an open duplicate would go on collecting connections that are never accepted.
    shared: Option<Socket>,
    file: Option<File>,
    /// Where connections are balanced.
    group: Option<Arc<Group>>,
}

/// A unix socket's file that we made, removed when this is dropped; known by its inode, so that another program's is
/// not.
#[derive(Debug)]
struct File {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Listeners {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Binds an address ahead of the shards, so that it is known whether that can be done before anything depends on
    /// it.
    ///
    /// A listener that has an address to itself (a unix socket, or TCP without `SO_REUSEPORT`) may give it to another
    /// one with the same options: both have the same socket.
    ///
    /// # Errors
    /// As binding it for a shard would fail. That an option for a listening socket is refused is not known yet.
    pub fn prepare(&self, address: &Address, options: &ListenOptions) -> Result<Prepared, Failure> {
        let held = self.lock().held(address, options).map(Socket::try_clone);
        let first = match held {
            Some(socket) => socket.map(|socket| First { socket, file: None }),
            None => bind_first(address, options),
        };
        let first = first.map_err(|error| failure::of(&error))?;
        Ok(Prepared { address: address.clone(), options: options.clone(), first })
    }

    /// Lets the next listeners that ask for these addresses with the same options have them. What was offered before
    /// and not asked for is given up.
    pub fn offer(&self, mut prepared: Vec<Prepared>) {
        let mut table = self.lock();
        for Prepared { address, first, .. } in &mut prepared {
            if first.file.is_none() {
                first.file = table.take_file(address);
            }
        }
        table.offered = prepared;
    }

    /// A shard's own sockets for a listener, and the address they are bound to.
    pub(crate) fn acquire(
        &self,
        shard: Shard,
        listener: ListenerId,
        address: &Address,
        options: &ListenOptions,
    ) -> Result<(Vec<Socket>, Address), Failure> {
        let mut table = self.lock();
        let key = (listener, address.clone());
        match table.entries.get_mut(&key) {
            Some(Entry::Bound(bound)) => return bound.take(shard, options),
            Some(Entry::Failed { failure, told }) => {
                // A shard that knows already and asks again wants a new attempt.
                let news = told.insert(shard.index);
                if news {
                    return Err(*failure);
                }
            }
            None => {}
        }
        let first =
            table.take_offer(address, options).map_or_else(|| bind_first(address, options), Ok);
        match first.and_then(|first| listen_all(shard.of, first, options)) {
            Ok(mut bound) => {
                let answer = bound.take(shard, options);
                table.entries.insert(key, Entry::Bound(bound));
                answer
            }
            Err(error) => {
                let failure = failure::of(&error);
                let told = HashSet::from([shard.index]);
                table.entries.insert(key, Entry::Failed { failure, told });
                Err(failure)
            }
        }
    }

    /// Among whom the connections of a listener are balanced, if they are.
    pub(crate) fn group(&self, listener: ListenerId, address: &Address) -> Option<Arc<Group>> {
        match self.lock().entries.get(&(listener, address.clone()))? {
            Entry::Bound(bound) => bound.group.clone(),
            Entry::Failed { .. } => None,
        }
    }

    /// A shard lets go of a listener; the last one removes it.
    pub(crate) fn release(&self, shard: Shard, listener: ListenerId, address: &Address) {
        let mut table = self.lock();
        let key = (listener, address.clone());
        let Some(Entry::Bound(bound)) = table.entries.get_mut(&key) else {
            return;
        };
        bound.holders.remove(&shard.index);
        if bound.holders.is_empty() {
            table.entries.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The one socket of a listener that could be that of another.
    fn held(&self, address: &Address, options: &ListenOptions) -> Option<&Socket> {
        if address.ip().is_some_and(|ip| ip.port() == 0) {
            return None;
        }
        self.bound(address).find(|bound| same_socket(&bound.options, options))?.shared.as_ref()
    }

    fn bound(&self, address: &Address) -> impl Iterator<Item = &Bound> {
        self.entries.iter().filter(move |((_, asked), _)| asked == address).filter_map(
            |(_, entry)| match entry {
                Entry::Bound(bound) => Some(bound),
                Entry::Failed { .. } => None,
            },
        )
    }

    fn take_file(&mut self, address: &Address) -> Option<File> {
        self.entries.iter_mut().filter(|((_, asked), _)| asked == address).find_map(|(_, entry)| {
            match entry {
                Entry::Bound(bound) => bound.file.take(),
                Entry::Failed { .. } => None,
            }
        })
    }

    fn take_offer(&mut self, address: &Address, options: &ListenOptions) -> Option<First> {
        let at =
            self.offered.iter().position(|it| it.address == *address && it.options == *options);
        at.map(|at| self.offered.swap_remove(at).first)
    }
}

/// Whether a socket with the one's options has the other's, but for what can be set on one that listens.
fn same_socket(one: &ListenOptions, other: &ListenOptions) -> bool {
    let bound = |options: &ListenOptions| ListenOptions {
        backlog: 0,
        accepts_per_wake: 0,
        original_destination: false,
        balance: Balance::Kernel,
        ..options.clone()
    };
    bound(one) == bound(other)
}

impl Bound {
    fn take(
        &mut self,
        shard: Shard,
        options: &ListenOptions,
    ) -> Result<(Vec<Socket>, Address), Failure> {
        let mut sockets = self.waiting.get_mut(shard.index).map(std::mem::take).unwrap_or_default();
        if sockets.is_empty() {
            let another = match &self.shared {
                Some(socket) => socket.try_clone(),
                None => bind_another(&self.address, options),
            };
            sockets.push(another.map_err(|error| failure::of(&error))?);
        }
        self.holders.insert(shard.index);
        Ok((sockets, self.address.clone()))
    }
}

impl File {
    fn of(path: &Path) -> Option<Self> {
        let (device, inode) = identity(path)?;
        Some(Self { path: path.to_owned(), device, inode })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if identity(&self.path) == Some((self.device, self.inode)) {
            // A file that cannot be removed is replaced by the next program that binds there.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn listen_all(shards: usize, first: First, options: &ListenOptions) -> io::Result<Bound> {
    let First { socket, file } = first;
    socket::listen(&socket, options)?;
    let address = socket::local_address(&socket)?;
    let own_each = options.reuse_port && address.ip().is_some();
    let shared = if own_each { None } else { Some(socket.try_clone()?) };
    let mut waiting = vec![vec![socket]];
    while waiting.len() < shards {
        waiting.push(vec![match &shared {
            Some(socket) => socket.try_clone()?,
            None => bind_another(&address, options)?,
        }]);
    }
    let options = options.clone();
    let group = (options.balance == Balance::Exact).then(|| Arc::new(Group::new(shards)));
    Ok(Bound { address, options, waiting, holders: HashSet::new(), shared, file, group })
}

fn bind_another(address: &Address, options: &ListenOptions) -> io::Result<Socket> {
    let socket = socket::bind(address, options, true)?;
    socket::listen(&socket, options)?;
    Ok(socket)
}

fn bind_first(address: &Address, options: &ListenOptions) -> io::Result<First> {
    let Some(path) = socket::file(address) else {
        let socket = socket::bind(address, options, options.reuse_port)?;
        return Ok(First { socket, file: None });
    };
    let socket = match socket::bind(address, options, false) {
        Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) && is_stale(path) => {
            fs::remove_file(path)?;
            socket::bind(address, options, false)?
        }
        outcome => outcome?,
    };
    let file = File::of(path);
    if options.mode != 0 {
        // Before `listen`: until then a connect is refused, whatever the umask left open.
        fs::set_permissions(path, fs::Permissions::from_mode(options.mode))?;
    }
    Ok(First { socket, file })
}

/// A socket's file behind which nothing listens.
fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.raw_os_error() == Some(libc::ECONNREFUSED))
}

#[cfg(test)]
mod tests;
