//! The listening sockets that several shards share.
//!
//! Every shard's machine asks for the same listeners, each at its own moment. The first to ask binds
//! the sockets of all, so that port 0 means one port for all of them and a failure is known once and
//! told to each. TCP with `SO_REUSEPORT` gets one socket for each shard; everything else is one
//! socket, duplicated. Sockets that a predecessor process handed over are used before new ones are
//! bound.
//!
//! A unix socket's file that nothing listens behind is replaced; ours is removed by the last shard
//! that lets go. All of this is the cold path: one lock around one table.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::Socket;
use towpath_proto::{Address, Failure, ListenOptions, ListenerId};

use crate::{failure, socket};

/// The registry; clones share it. One for all shards of a process.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Key, Entry>,
    inherited: HashMap<Address, Vec<Socket>>,
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
    /// What each shard has not taken yet.
    waiting: Vec<Vec<Socket>>,
    holders: HashSet<usize>,
    /// The one socket that all shards share, for a shard that lets go and asks again. `None` when
    /// each has its own: an open duplicate would go on collecting connections that are never accepted.
    shared: Option<Socket>,
    file: Option<File>,
}

/// A unix socket's file that we made, known by its inode so that another program's is not removed.
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

    /// Gives sockets that are bound and listening already, to be used by the first listener that asks
    /// for `address`, in place of new ones. They are spread over the shards in turn.
    ///
    /// # Errors
    /// When a socket cannot be made non-blocking.
    pub fn inherit(&self, address: Address, sockets: Vec<OwnedFd>) -> io::Result<()> {
        let sockets: Vec<Socket> = sockets.into_iter().map(Socket::from).collect();
        for socket in &sockets {
            socket.set_nonblocking(true)?;
        }
        self.lock().inherited.entry(address).or_default().extend(sockets);
        Ok(())
    }

    /// Drops the inherited sockets that no listener has asked for; how many they were.
    pub fn forget_inherited(&self) -> usize {
        self.lock().inherited.drain().map(|(_, sockets)| sockets.len()).sum()
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
        let inherited = table.inherited.remove(address).unwrap_or_default();
        match bind_all(shard.of, address, options, inherited) {
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

    /// A shard lets go of a listener; the last one removes it.
    pub(crate) fn release(&self, shard: Shard, listener: ListenerId, address: &Address) {
        let mut table = self.lock();
        let key = (listener, address.clone());
        let Some(Entry::Bound(bound)) = table.entries.get_mut(&key) else {
            return;
        };
        bound.holders.remove(&shard.index);
        if bound.holders.is_empty() {
            if let Some(file) = &bound.file {
                file.remove();
            }
            table.entries.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let metadata = fs::metadata(path).ok()?;
        Some(Self { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() })
    }

    fn remove(&self) {
        let ours = Self::of(&self.path)
            .is_some_and(|found| (found.device, found.inode) == (self.device, self.inode));
        if ours {
            // A file that cannot be removed is replaced by the next program that binds there.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bind_all(
    shards: usize,
    address: &Address,
    options: &ListenOptions,
    inherited: Vec<Socket>,
) -> io::Result<Bound> {
    let own_each = options.reuse_port && address.ip().is_some();
    let mut file = None;
    let mut sockets = inherited;
    if sockets.is_empty() {
        let first = bind_first(address, options, own_each)?;
        file = socket::file(address).and_then(File::of);
        socket::listen(&first, options)?;
        sockets.push(first);
    }
    let bound = socket::local_address(&sockets[0])?;
    let shared = if own_each { None } else { Some(sockets[0].try_clone()?) };
    while sockets.len() < shards {
        sockets.push(match &shared {
            Some(socket) => socket.try_clone()?,
            // A predecessor's socket may not allow a neighbour.
            None => bind_another(&bound, options).or_else(|_| sockets[0].try_clone())?,
        });
    }
    let mut waiting: Vec<Vec<Socket>> = (0..shards.max(1)).map(|_| Vec::new()).collect();
    for (index, socket) in sockets.into_iter().enumerate() {
        waiting[index % shards.max(1)].push(socket);
    }
    Ok(Bound { address: bound, waiting, holders: HashSet::new(), shared, file })
}

fn bind_another(address: &Address, options: &ListenOptions) -> io::Result<Socket> {
    let socket = socket::bind(address, options, true)?;
    socket::listen(&socket, options)?;
    Ok(socket)
}

fn bind_first(address: &Address, options: &ListenOptions, share_port: bool) -> io::Result<Socket> {
    let Some(path) = socket::file(address) else {
        return socket::bind(address, options, share_port);
    };
    let bound = match socket::bind(address, options, false) {
        Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) && is_stale(path) => {
            fs::remove_file(path)?;
            socket::bind(address, options, false)?
        }
        outcome => outcome?,
    };
    if options.mode != 0 {
        // Before `listen`: until then a connect is refused, whatever the umask left open.
        fs::set_permissions(path, fs::Permissions::from_mode(options.mode))?;
    }
    Ok(bound)
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
