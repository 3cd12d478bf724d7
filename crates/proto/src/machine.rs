//! What a driver tells a machine, and what a machine asks of a driver.
//!
//! The contract, for both sides:
//!
//! - A driver hands over everything that one wake-up brought (any number of [`Machine::handle`]), then
//!   calls [`Machine::poll`] until it answers [`Output::Wait`] or [`Output::Idle`], and only then writes
//!   each touched connection once, in the order of its [`Output::Send`]s.
//! - Chunks are owned. A driver keeps them until the kernel has taken them.
//! - Every connection ends with exactly one [`Input::Closed`] or with the machine's own [`Output::Close`]
//!   of any kind but [`Close::Half`], whichever comes first; after that its id is dead: a
//!   driver sends nothing more for it and ignores what the machine still asks for it.
//! - Every [`Output::Connect`] is answered by exactly one of [`Input::Connected`], [`Input::ConnectFailed`],
//!   unless it was taken back by [`Output::CancelConnect`], after which it is answered by none.
//! - What a machine has not been polled about is bounded: from one connection no more than its read limit
//!   ([`Output::ReadLimit`]) is received between two polls. So a machine that stops reading a connection when the other
//!   side's queue is full holds at most that queue and one read limit, whatever the peers do. A limit that grows is
//!   lifted to the driver's own bound (512 KiB) while the machine reads on, and falls back when it stops.
//! - Every [`Output::Inspect`] of a live connection is answered by one [`Input::Inspected`].
//! - [`Input::Sent`] counts every byte that left the driver's queue into the kernel, so that a machine
//!   knows what is outstanding.
//! - `now` never goes backwards.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::time::Instant;

/// A state machine that a driver runs: events and time in, wishes and a deadline out.
pub trait Machine {
    /// What passes between the machine and the threads around it.
    type Message;

    /// Takes one event. Nothing leaves the machine before [`Machine::poll`] is called.
    fn handle(&mut self, input: Input<Self::Message>, now: Instant);

    /// The next wish. [`Output::Wait`] or [`Output::Idle`] ends a round.
    fn poll(&mut self, now: Instant) -> Output<Self::Message>;
}

/// What a driver tells a machine.
#[derive(Debug)]
pub enum Input<M> {
    /// The answer to [`Output::Listen`]: the address that is bound, or why it is not.
    Listening {
        /// Which listener.
        listener: ListenerId,
        /// The bound address with its real port.
        outcome: Result<Address, Failure>,
    },
    /// A peer connected.
    Accepted {
        /// The listener that took it.
        listener: ListenerId,
        /// Its new id.
        connection: ConnectionId,
        /// The address it was accepted on.
        local: Address,
        /// Where it comes from.
        peer: Address,
        /// Where it was going to before it was redirected, where [`ListenOptions::original_destination`] asks and the
        /// kernel knows.
        original: Option<SocketAddr>,
    },
    /// A connect finished well.
    Connected {
        /// Which [`Output::Connect`].
        attempt: AttemptId,
        /// The new connection.
        connection: ConnectionId,
        /// The address that the kernel chose for our side.
        local: Address,
    },
    /// A connect failed.
    ConnectFailed {
        /// Which [`Output::Connect`].
        attempt: AttemptId,
        /// Why.
        failure: Failure,
    },
    /// Bytes arrived; never empty.
    Received {
        /// From where.
        connection: ConnectionId,
        /// What came.
        chunk: Bytes,
    },
    /// Bytes left for the kernel.
    Sent {
        /// On which connection.
        connection: ConnectionId,
        /// How many.
        bytes: usize,
    },
    /// The peer will send nothing more (TCP FIN). The other direction stays open.
    Ended {
        /// Which connection.
        connection: ConnectionId,
    },
    /// The connection is gone and its id is dead.
    Closed {
        /// Which connection.
        connection: ConnectionId,
        /// What ended it.
        failure: Failure,
    },
    /// The answer to [`Output::Resolve`].
    Resolved {
        /// Which query.
        query: QueryId,
        /// The addresses, in the resolver's order.
        outcome: Result<Vec<IpAddr>, Failure>,
        /// How long they, or that there are none, may be kept, where the resolver says that.
        lifetime: Option<Duration>,
    },
    /// The answer to [`Output::Inspect`].
    Inspected {
        /// Of which connection.
        connection: ConnectionId,
        /// What the kernel knows of its path; none where it does not say.
        facts: Option<PathFacts>,
    },
    /// A message from another thread.
    Message(M),
    /// The deadline of the last [`Output::Wait`] has passed.
    Timeout,
}

/// What a machine asks of a driver.
#[derive(Debug)]
pub enum Output<M> {
    /// Open a listening socket; answered by [`Input::Listening`].
    Listen {
        /// The machine's id for it.
        listener: ListenerId,
        /// Where. Port 0 lets the kernel choose.
        address: Address,
        /// How.
        options: Arc<ListenOptions>,
    },
    /// Close a listening socket. Connections it took live on; those that wait in it are accepted first.
    Unlisten {
        /// Which.
        listener: ListenerId,
    },
    /// Leave a listening socket alone, so that clients that connect wait in it, or go on accepting.
    Hold {
        /// Which.
        listener: ListenerId,
        /// Whether clients that connect wait.
        is_held: bool,
    },
    /// Open a connection; answered by [`Input::Connected`] or [`Input::ConnectFailed`].
    Connect {
        /// The machine's id for the attempt, never used twice.
        attempt: AttemptId,
        /// Where to.
        address: Address,
        /// How.
        options: Arc<ConnectOptions>,
    },
    /// Give up an attempt; it is not answered.
    CancelConnect {
        /// Which.
        attempt: AttemptId,
    },
    /// Queue bytes for a connection. They are written at the end of the round.
    Send {
        /// Which connection.
        connection: ConnectionId,
        /// The bytes; never empty.
        chunk: Bytes,
    },
    /// Write what is queued for a connection now, so that what is queued later travels in packets of its own. A driver
    /// may leave it until the end of the round.
    Push {
        /// Which connection.
        connection: ConnectionId,
    },
    /// Start or stop reading. A new connection is read.
    ReadInterest {
        /// Which connection.
        connection: ConnectionId,
        /// On or off.
        interest: ReadInterest,
    },
    /// Bound what is received from a connection before the machine is polled again. Drivers have bounds of their own,
    /// which a larger one does not lift, and may read up to 4 KiB where less is asked for.
    ReadLimit {
        /// Which connection.
        connection: ConnectionId,
        /// How many bytes.
        bytes: usize,
        /// The driver may go beyond it where much came and the machine never stopped reading for long.
        grows: bool,
    },
    /// End a connection, or our direction of it.
    Close {
        /// Which connection.
        connection: ConnectionId,
        /// In which way.
        how: Close,
    },
    /// Ask for the addresses of a name; answered by [`Input::Resolved`].
    Resolve {
        /// The machine's id for the question.
        query: QueryId,
        /// The name.
        name: String,
    },
    /// Bound what a connection has under way. A driver that cannot leaves it as it is.
    LimitFlow {
        /// Which connection.
        connection: ConnectionId,
        /// The direction, and how much.
        limit: FlowLimit,
    },
    /// Ask what the kernel knows of a connection's path; answered by [`Input::Inspected`] unless the connection ends
    /// first.
    Inspect {
        /// Which connection.
        connection: ConnectionId,
    },
    /// A message to another thread.
    Message(M),
    /// Nothing more until something arrives or this instant passes.
    Wait(Instant),
    /// Nothing more until something arrives.
    Idle,
}

/// What a kernel knows of a connection's path (Linux: `TCP_INFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// The smoothed round-trip time.
    pub round_trip: Duration,
    /// What was sent and not acknowledged yet, or could not be sent though the peer has room for it: 0 for nothing,
    /// otherwise segments or bytes, as the kernel counts.
    pub unacknowledged: u32,
    /// How long ago the peer's kernel last acknowledged anything.
    pub since_ack: Duration,
    /// The shortest round trip that was ever measured; zero where the kernel does not say.
    pub least_round_trip: Duration,
    /// Bytes that the peer's kernel has acknowledged so far.
    pub acknowledged: u64,
    /// Bytes per second that arrived there lately; 0 where the kernel does not say.
    pub delivery_rate: u64,
}

/// A bound on what a connection has under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowLimit {
    /// The peer may have about so many bytes under way to us; `None`: as many as the kernel thinks right.
    Receive(Option<u32>),
    /// Send no more bytes per second; `None`: as many as congestion control lets.
    Send(Option<u32>),
}

/// Whether a connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadInterest {
    /// Bytes are read as they come.
    On,
    /// Bytes stay in the kernel, so that the peer's window closes. `Ended` is not reported either;
    /// a reset is.
    Off,
}

/// How to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// Write what is queued, then close. No further input comes for it.
    Flush,
    /// Write what is queued, then send FIN. Reading goes on.
    Half,
    /// Write what is queued, wait until the peer's kernel has acknowledged it, then reset the connection. No further
    /// input comes for it. It is reset sooner where that takes too long.
    FlushReset,
    /// Drop what is queued and close, without waiting for the peer; what the kernel has taken is still delivered. The
    /// peer sees a reset where something was queued, or where it sent what was not read. No further input comes for it.
    Now,
    /// Drop what is queued and reset the connection. No further input comes for it.
    Abort,
}

/// Why something in the outside world did not work or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Nothing listens there (`ECONNREFUSED`).
    Refused,
    /// The peer reset the connection (`ECONNRESET`, `EPIPE`).
    Reset,
    /// The kernel gave up waiting (`ETIMEDOUT`).
    TimedOut,
    /// No route, or the network is down (`EHOSTUNREACH`, `ENETUNREACH`, …).
    Unreachable,
    /// The address is taken (`EADDRINUSE`).
    AddressInUse,
    /// The address is not ours, or not valid (`EADDRNOTAVAIL`, `EINVAL`).
    AddressNotAvailable,
    /// Not allowed (`EACCES`, `EPERM`).
    Denied,
    /// Out of descriptors, memory or ports (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`, `EAGAIN`).
    Exhausted,
    /// The name does not exist.
    NoSuchName,
    /// This driver cannot do it (a unix socket on a platform without them, say).
    Unsupported,
    /// The kernel does not set an option that a listening socket is to have.
    SocketOption {
        /// `setsockopt` level.
        level: i32,
        /// `setsockopt` name.
        name: i32,
        /// The operating system's error.
        code: i32,
    },
    /// Another operating-system error, by its number.
    Os(i32),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::Reset => f.write_str("connection reset by peer"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Unreachable => f.write_str("network unreachable"),
            Self::AddressInUse => f.write_str("address already in use"),
            Self::AddressNotAvailable => f.write_str("address not available"),
            Self::Denied => f.write_str("permission denied"),
            Self::Exhausted => f.write_str("out of descriptors, memory or ports"),
            Self::NoSuchName => f.write_str("no such name"),
            Self::Unsupported => f.write_str("not supported by this driver"),
            Self::SocketOption { level, name, code } => {
                write!(f, "socket option {level}/{name}: operating system error {code}")
            }
            Self::Os(code) => write!(f, "operating system error {code}"),
        }
    }
}

impl std::error::Error for Failure {}

/// A stream address: IP and port, a unix socket, or a listener inside the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// TCP.
    Ip(SocketAddr),
    /// A unix socket by path; a leading `@` means Linux's abstract namespace. Empty for an unnamed peer.
    Unix(Arc<Path>),
    /// A listener of this machine that has no socket: its name, `/`, and what a cluster calls it there (Envoy
    /// `EnvoyInternalAddress`). What connects to it is accepted by the driver of the same machine.
    Internal(Arc<str>),
}

impl Address {
    /// The IP address and port, if it is one.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) | Self::Internal(_) => None,
        }
    }

    /// The name of a listener inside the process, if it is one.
    #[must_use]
    pub fn internal(&self) -> Option<&str> {
        match self {
            Self::Internal(address) => address.split('/').next(),
            Self::Ip(_) | Self::Unix(_) => None,
        }
    }

    /// An address that says nothing: `0.0.0.0:0`.
    #[must_use]
    pub const fn unspecified() -> Self {
        Self::Ip(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
            Self::Internal(address) => write!(f, "envoy://{address}"),
        }
    }
}

/// How to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Pending connections that the kernel may hold. Envoy `Listener.tcp_backlog_size`; 0 means the system's maximum.
    pub backlog: u32,
    /// One socket for each shard (`SO_REUSEPORT`), so that the kernel spreads connections. TCP only.
    pub reuse_port: bool,
    /// Bind before the address exists (`IP_FREEBIND`).
    pub freebind: bool,
    /// Accept for foreign addresses (`IP_TRANSPARENT`; needs a privilege).
    pub transparent: bool,
    /// Ask of each connection where it was going to before it was redirected (`SO_ORIGINAL_DST`, or the local address
    /// of a transparent socket).
    pub original_destination: bool,
    /// An IPv6 wildcard takes IPv4 too when false.
    pub v6_only: bool,
    /// Permission bits of a unix socket's file; 0 leaves the umask's choice.
    pub mode: u32,
    /// Further options, set before `bind` or after `listen`.
    pub socket_options: Vec<SocketOption>,
    /// Probes on quiet connections (`SO_KEEPALIVE`). TCP only. Envoy `Listener.tcp_keepalive`.
    pub keepalive: Option<Keepalive>,
    /// Clients may use several paths at once (RFC 8684). TCP only. Envoy `Listener.enable_mptcp`.
    pub multipath: bool,
    /// Connections to accept in one wake-up. Envoy `max_connections_to_accept_per_socket_event`.
    pub accepts_per_wake: u32,
    /// Which shard has a connection.
    pub balance: Balance,
}

/// Which of a listener's shards has an accepted connection. Envoy `Listener.connection_balance_config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The one that the kernel gives it to.
    #[default]
    Kernel,
    /// The one that has the fewest of the listener's connections; of several the one that was less busy of late. Envoy
    /// `exact_balance`. A driver with one shard has nothing to choose.
    Exact,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 0,
            reuse_port: true,
            freebind: false,
            transparent: false,
            original_destination: false,
            v6_only: true,
            mode: 0,
            socket_options: Vec::new(),
            keepalive: None,
            multipath: false,
            accepts_per_wake: u32::MAX,
            balance: Balance::Kernel,
        }
    }
}

/// How to connect. Nagle's algorithm is always off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Our own address, if it matters.
    pub source: Option<SocketAddr>,
    /// TCP keep-alive, if wanted.
    pub keepalive: Option<Keepalive>,
    /// Further options, set before `connect`.
    pub socket_options: Vec<SocketOption>,
    /// What the kernel adds to a round trip at least before it sends again what was not acknowledged (RFC 6298 has a
    /// second, Linux 200 ms); `None`, and where the kernel gives no choice (Linux before 6.15): its own.
    pub least_rto: Option<Duration>,
}

/// TCP keep-alive; `None` leaves the system's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub time: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Probes without an answer until the connection is dead.
    pub probes: Option<u32>,
}

/// One raw socket option, as Envoy's `SocketOption` means it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOption {
    /// `setsockopt` level.
    pub level: i32,
    /// `setsockopt` name.
    pub name: i32,
    /// The value's bytes: an `i32` in native order, or a buffer.
    pub value: Vec<u8>,
    /// When to set it.
    pub state: SocketState,
    /// It is for sockets of this version of IP alone. Envoy `ip_version`.
    pub only: Option<IpVersion>,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// When a [`SocketOption`] is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketState {
    /// Before `bind` or `connect`.
    PreBind,
    /// After `bind`, before `listen`.
    Bound,
    /// After `listen`.
    Listening,
}

/// A connection, named by the driver: a dense slot and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    slot: u32,
    generation: u32,
}

impl ConnectionId {
    /// The id of the `generation`th user of `slot`.
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// A small dense number, reused after the connection ended.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }

    /// Which user of the slot this is.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

/// A listener, named by the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// A connect attempt, named by the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId(pub u64);

/// A name query, named by the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryId(pub u64);
