//! Opening sockets: binding, connecting, options, addresses.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

#[cfg(linux)]
use libc::{SO_BUF_LOCK, SO_MAX_PACING_RATE};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use towpath_proto::{
    Address, ConnectOptions, FlowLimit, IpVersion, Keepalive, ListenOptions, SocketOption,
    SocketState,
};

use crate::failure::RefusedOption;
use crate::sys;

/// A socket bound to `address` with every option of `options` that comes before `listen`.
///
/// `share_port` sets `SO_REUSEPORT`. A unix socket's file must not exist.
pub(crate) fn bind(
    address: &Address,
    options: &ListenOptions,
    share_port: bool,
) -> io::Result<Socket> {
    let socket = open(address, options.multipath)?;
    if let Some(ip) = address.ip() {
        socket.set_reuse_address(true)?;
        // Accepted sockets inherit it, as the next.
        if let Some(keepalive) = &options.keepalive {
            set_keepalive(&socket, keepalive)?;
        }
        // Accepted sockets inherit it on Linux and the BSDs: one call for all of them.
        socket.set_tcp_nodelay(true)?;
        if share_port {
            socket.set_reuse_port(true)?;
        }
        set_foreign_address_options(&socket, ip, options)?;
    }
    set_options(&socket, &options.socket_options, SocketState::PreBind)?;
    socket.bind(&to_system(address)?)?;
    set_options(&socket, &options.socket_options, SocketState::Bound)?;
    Ok(socket)
}

/// Starts listening on what [`bind`] made.
pub(crate) fn listen(socket: &Socket, options: &ListenOptions) -> io::Result<()> {
    // The kernel clamps to `net.core.somaxconn`.
    let backlog = if options.backlog == 0 { i32::MAX } else { clamp(options.backlog) };
    socket.listen(backlog)?;
    Ok(set_options(socket, &options.socket_options, SocketState::Listening)?)
}

/// Makes a listening socket deaf to clients that begin to connect. Handshakes that have begun are
/// finished. A client that is ignored asks again within a second, and meets the one that
/// listens there by then. Accepted sockets inherit it; nothing that comes on them begins a connection.
pub(crate) fn ignore_new(listener: &Socket) {
    #[cfg(linux)]
    {
        use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET};
        use socket2::SockFilter;

        /// Where a segment has its flags (RFC 9293 §3.1).
        const FLAGS: u32 = 13;
        const SYN: u32 = 2;
        const ACK: u32 = 16;
        #[expect(clippy::cast_possible_truncation, reason = "instructions have 16 bits")]
        const fn instruction(code: u32, jump: (u8, u8), value: u32) -> SockFilter {
            SockFilter::new(code as u16, jump.0, jump.1, value)
        }
        let program = [
            instruction(BPF_LD | BPF_B | BPF_ABS, (0, 0), FLAGS),
            instruction(BPF_ALU | BPF_AND | BPF_K, (0, 0), SYN | ACK),
            instruction(BPF_JMP | BPF_JEQ | BPF_K, (0, 1), SYN),
            instruction(BPF_RET | BPF_K, (0, 0), 0),
            instruction(BPF_RET | BPF_K, (0, 0), u32::MAX),
        ];
        // Where filters are not allowed, a client that comes at this moment may be lost.
        let _ = listener.attach_filter(&program);
    }
    #[cfg(not(linux))]
    let _ = listener;
}

/// A socket whose connect has begun; `true` when it has already ended well.
pub(crate) fn connect(address: &Address, options: &ConnectOptions) -> io::Result<(Socket, bool)> {
    let socket = open(address, false)?;
    if address.ip().is_some() {
        socket.set_tcp_nodelay(true)?;
        if let Some(keepalive) = &options.keepalive {
            set_keepalive(&socket, keepalive)?;
        }
        #[cfg(linux_kernel)]
        if let Some(least) = options.least_rto {
            let micros = u32::try_from(least.as_micros()).unwrap_or(u32::MAX);
            // Not every kernel knows it, and none needs it.
            let _ =
                sys::set_option(&socket, libc::IPPROTO_TCP, TCP_RTO_MIN_US, &micros.to_ne_bytes());
        }
    }
    set_options(&socket, &options.socket_options, SocketState::PreBind)
        .map_err(|refused| refused.error)?;
    if let (Some(source), Some(_)) = (options.source, address.ip()) {
        bind_source(&socket, source)?;
    }
    match socket.connect(&to_system(address)?) {
        Ok(()) => Ok((socket, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error),
    }
}

/// Where a connection was going to before netfilter redirected it (`SO_ORIGINAL_DST`, `IP6T_SO_ORIGINAL_DST`); none
/// where nothing keeps track of connections. One that was not redirected was going to `local`, and so it says.
pub(crate) fn original_destination(socket: &Socket, local: SocketAddr) -> Option<SocketAddr> {
    #[cfg(linux_kernel)]
    {
        let v4 = local.is_ipv4();
        let found = if v4 { socket.original_dst_v4() } else { socket.original_dst_v6() };
        found.ok()?.as_socket()
    }
    #[cfg(not(linux_kernel))]
    {
        let _ = (socket, local);
        None
    }
}

/// Bounds what a TCP connection has under way, where the kernel can take the bound back (Linux 5.15 for what comes).
pub(crate) fn limit_flow(socket: &Socket, limit: FlowLimit) {
    #[cfg(linux_kernel)]
    {
        let set =
            |level, name, value: u32| sys::set_option(socket, level, name, &value.to_ne_bytes());
        // What cannot be set is a bound that is not there.
        let _ = match limit {
            FlowLimit::Receive(Some(bytes)) => set(libc::SOL_SOCKET, SO_BUF_LOCK, 0)
                .and_then(|()| set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)),
            // The kernel sizes it again, and from what a new connection has.
            FlowLimit::Receive(None) => set(libc::SOL_SOCKET, libc::SO_RCVBUF, USUAL_BYTES / 2)
                .and_then(|()| set(libc::SOL_SOCKET, SO_BUF_LOCK, 0))
                .and_then(|()| set(libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, MOST_BYTES)),
            FlowLimit::Send(rate) => {
                set(libc::SOL_SOCKET, SO_MAX_PACING_RATE, rate.unwrap_or(u32::MAX))
            }
        };
    }
    #[cfg(not(linux_kernel))]
    let _ = (socket, limit);
}

/// From Linux's `include/uapi/linux/tcp.h`; the C library's headers have it later.
#[cfg(linux_kernel)]
const TCP_RTO_MIN_US: i32 = 45;
/// From Linux's `include/uapi/asm-generic/socket.h`; Android's C library has not these two.
#[cfg(target_os = "android")]
const SO_MAX_PACING_RATE: i32 = 47;
#[cfg(target_os = "android")]
const SO_BUF_LOCK: i32 = 72;
/// What Linux gives a new connection for what comes (`net.ipv4.tcp_rmem`), bytes; asked for by half of it.
#[cfg(linux_kernel)]
const USUAL_BYTES: u32 = 128 << 10;
/// More than a window can be before its scale is known to be used up.
#[cfg(linux_kernel)]
const MOST_BYTES: u32 = 16 << 20;

/// Both ends of a connection inside the process.
pub(crate) fn pair() -> io::Result<(Socket, Socket)> {
    let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((one, other))
}

/// Our address of a connected or listening socket.
pub(crate) fn local_address(socket: &Socket) -> io::Result<Address> {
    Ok(from_system(&socket.local_addr()?))
}

/// What the kernel calls an address, in our words.
pub(crate) fn from_system(address: &SockAddr) -> Address {
    if let Some(ip) = address.as_socket() {
        return Address::Ip(ip);
    }
    if let Some(path) = address.as_pathname() {
        return Address::Unix(Arc::from(path));
    }
    Address::Unix(Arc::from(Path::new(OsStr::from_bytes(&abstract_name(address)))))
}

/// That of a socket which has one; nothing for others.
#[cfg(linux_kernel)]
fn abstract_name(address: &SockAddr) -> Vec<u8> {
    address.as_abstract_namespace().map_or_else(Vec::new, |rest| [b"@", rest].concat())
}

#[cfg(not(linux_kernel))]
const fn abstract_name(_address: &SockAddr) -> Vec<u8> {
    Vec::new()
}

/// The file of a unix socket that has one.
pub(crate) fn file(address: &Address) -> Option<&Path> {
    match address {
        Address::Unix(path) if !is_abstract(path) => Some(path),
        Address::Unix(_) | Address::Ip(_) | Address::Internal(_) => None,
    }
}

fn open(address: &Address, multipath: bool) -> io::Result<Socket> {
    let transport = match multipath {
        true => multipath_tcp().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?,
        false => Protocol::TCP,
    };
    let (domain, protocol) = match address {
        Address::Ip(SocketAddr::V4(_)) => (Domain::IPV4, Some(transport)),
        Address::Ip(SocketAddr::V6(_)) => (Domain::IPV6, Some(transport)),
        Address::Unix(_) | Address::Internal(_) => (Domain::UNIX, None),
    };
    #[cfg(linux_kernel)]
    {
        Socket::new(domain, Type::STREAM.nonblocking(), protocol)
    }
    #[cfg(not(linux_kernel))]
    {
        let socket = Socket::new(domain, Type::STREAM, protocol)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

const fn multipath_tcp() -> Option<Protocol> {
    #[cfg(linux)]
    {
        Some(Protocol::MPTCP)
    }
    #[cfg(not(linux))]
    {
        None
    }
}

fn to_system(address: &Address) -> io::Result<SockAddr> {
    match address {
        Address::Ip(ip) => Ok(SockAddr::from(*ip)),
        Address::Internal(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        Address::Unix(path) if path.as_os_str().is_empty() => {
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        }
        Address::Unix(path) if is_abstract(path) => {
            // socket2 and the kernel want a leading NUL where people write `@`.
            let mut name = path.as_os_str().as_bytes().to_vec();
            name[0] = 0;
            SockAddr::unix(OsStr::from_bytes(&name))
        }
        Address::Unix(path) => SockAddr::unix(path),
    }
}

fn is_abstract(path: &Path) -> bool {
    path.as_os_str().as_bytes().first() == Some(&b'@')
}

fn set_foreign_address_options(
    socket: &Socket,
    ip: SocketAddr,
    options: &ListenOptions,
) -> io::Result<()> {
    let v4 = ip.is_ipv4();
    if !v4 {
        socket.set_only_v6(options.v6_only)?;
    }
    #[cfg(linux_kernel)]
    {
        let level = if v4 { libc::SOL_IP } else { libc::SOL_IPV6 };
        if options.freebind {
            let name = if v4 { libc::IP_FREEBIND } else { libc::IPV6_FREEBIND };
            set_option(socket, level, name, &1_i32.to_ne_bytes())?;
        }
        if options.transparent {
            let name = if v4 { libc::IP_TRANSPARENT } else { libc::IPV6_TRANSPARENT };
            set_option(socket, level, name, &1_i32.to_ne_bytes())?;
        }
    }
    #[cfg(not(linux_kernel))]
    if options.freebind || options.transparent {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    Ok(())
}

fn bind_source(socket: &Socket, source: SocketAddr) -> io::Result<()> {
    #[cfg(linux_kernel)]
    if source.port() == 0 {
        // ip(7): the port is chosen by `connect`, where only the whole four-tuple must be free.
        let one = 1_i32.to_ne_bytes();
        sys::set_option(socket, libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, &one)?;
    }
    socket.bind(&SockAddr::from(source))
}

fn set_keepalive(socket: &Socket, wanted: &Keepalive) -> io::Result<()> {
    let mut keepalive = TcpKeepalive::new();
    if let Some(time) = wanted.time {
        keepalive = keepalive.with_time(time);
    }
    if let Some(interval) = wanted.interval {
        keepalive = keepalive.with_interval(interval);
    }
    if let Some(probes) = wanted.probes {
        keepalive = keepalive.with_retries(probes);
    }
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

fn set_options(
    socket: &Socket,
    options: &[SocketOption],
    state: SocketState,
) -> Result<(), RefusedOption> {
    options
        .iter()
        .filter(|option| option.state == state && is_for(socket, option.only))
        .try_for_each(|option| set_option(socket, option.level, option.name, &option.value))
}

/// Whether an option is for a socket, by the version of IP that it is for.
fn is_for(socket: &Socket, only: Option<IpVersion>) -> bool {
    let domain = match only {
        None => return true,
        Some(IpVersion::V4) => Domain::IPV4,
        Some(IpVersion::V6) => Domain::IPV6,
    };
    socket.local_addr().is_ok_and(|local| local.domain() == domain)
}

fn set_option(socket: &Socket, level: i32, name: i32, value: &[u8]) -> Result<(), RefusedOption> {
    sys::set_option(socket, level, name, value).map_err(|error| RefusedOption {
        level,
        name,
        error,
    })
}

fn clamp(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abstract_names_survive_the_round_trip() {
        let address = Address::Unix(Arc::from(Path::new("@towpath/name")));
        assert_eq!(from_system(&to_system(&address).unwrap()), address);
        assert_eq!(file(&address), None);
    }

    #[test]
    fn paths_survive_the_round_trip() {
        let address = Address::Unix(Arc::from(Path::new("/run/towpath.sock")));
        assert_eq!(from_system(&to_system(&address).unwrap()), address);
        assert_eq!(file(&address), Some(Path::new("/run/towpath.sock")));
    }

    #[test]
    #[cfg(linux)]
    fn the_kernel_repeats_as_soon_as_it_is_told_to() {
        let repeats_after = |least_rto| {
            let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let address = Address::Ip(listener.local_addr().unwrap());
            let options = ConnectOptions { least_rto, ..ConnectOptions::default() };
            let (socket, _) = connect(&address, &options).unwrap();
            let _peer = listener.accept().unwrap();
            sys::tcp_info(&socket).unwrap().tcpi_rto
        };
        let asked = repeats_after(Some(std::time::Duration::from_millis(50)));
        let usual = repeats_after(None);
        let any = open(&Address::unspecified(), false).unwrap();
        let known =
            sys::set_option(&any, libc::IPPROTO_TCP, TCP_RTO_MIN_US, &50_000_u32.to_ne_bytes());
        assert!(usual >= 200_000, "{usual}");
        assert_eq!(asked < 100_000, known.is_ok(), "{asked}, {known:?}");
    }

    /// Of a socket that a client of such a listener is accepted on.
    fn accepted(options: &ListenOptions) -> Socket {
        let listener = bind(&Address::Ip(([127, 0, 0, 1], 0).into()), options, false).unwrap();
        listen(&listener, options).unwrap();
        listener.set_nonblocking(false).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        listener.accept().unwrap().0
    }

    #[test]
    #[cfg(linux)]
    fn clients_are_probed_where_the_listener_says_so() {
        let keepalive = Keepalive {
            time: Some(std::time::Duration::from_secs(70)),
            interval: Some(std::time::Duration::from_secs(7)),
            probes: Some(3),
        };
        let options = ListenOptions { keepalive: Some(keepalive), ..ListenOptions::default() };
        let socket = accepted(&options);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), 70);
        assert_eq!(socket.tcp_keepalive_interval().unwrap().as_secs(), 7);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert!(!accepted(&ListenOptions::default()).keepalive().unwrap());
    }

    #[test]
    #[cfg(linux)]
    fn several_paths_are_possible_where_the_listener_says_so() {
        if Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).is_err() {
            // Not every kernel knows it.
            return;
        }
        let options = ListenOptions { multipath: true, ..ListenOptions::default() };
        // A client with one path is served as ever.
        assert!(accepted(&options).peer_addr().is_ok());
        let listener = bind(&Address::Ip(([127, 0, 0, 1], 0).into()), &options, false).unwrap();
        assert_eq!(listener.protocol().unwrap(), Some(Protocol::MPTCP));
    }

    #[test]
    fn an_address_that_cannot_be_is_an_error() {
        let empty = Address::Unix(Arc::from(Path::new("")));
        assert!(to_system(&empty).is_err());
        let long = Address::Unix(Arc::from(Path::new(&"x".repeat(200))));
        assert!(to_system(&long).is_err());
    }
}
