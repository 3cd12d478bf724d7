//! The admin endpoint's sockets: connections arrive, requests leave to a handler on the same thread, which is not the
//! control thread.
//!
//! A client that is slow, silent or many costs itself only: heads are bounded in size and time, a connection has
//! a longest life, and when [`MAX_CONNECTIONS`] are open the oldest one makes room for the next. When traffic has taken
//! all descriptors, clients are let in one after the other, each for one answer.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::{self, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::AbortHandle;

use super::counted::{CountedConnection, Counts};
use super::reply::ReplyBody;
use crate::log;

/// Connections that may be open at once.
pub const MAX_CONNECTIONS: usize = 100;
/// Longest wait for a request's head, between requests too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest life of a connection.
const MAX_LIFE: Duration = Duration::from_secs(600);
/// Largest request head.
const MAX_HEAD: usize = 60 * 1024;
/// After a failed accept (descriptors run out, say), so that the thread does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the admin endpoint listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// TCP.
    Ip(SocketAddr),
    /// A unix socket (`pipe`) and its permission bits, 0 for the umask's choice.
    Unix(PathBuf, u32),
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path, _) => path.display().fmt(f),
        }
    }
}

/// A bound admin socket.
#[derive(Debug)]
pub struct AdminSocket {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Tcp(net::TcpListener),
    Unix(unix::UnixListener, PathBuf),
}

/// The same, for the runtime that serves it.
enum Served {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What the access log says of a client.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) remote: String,
}

impl AdminSocket {
    /// Binds it.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind(address: &AdminAddress) -> io::Result<Self> {
        let kind = match address {
            AdminAddress::Ip(address) => {
                let listener = net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Kind::Tcp(listener)
            }
            AdminAddress::Unix(path, mode) => {
                let listener = bind_unix(path, *mode)?;
                listener.set_nonblocking(true)?;
                Kind::Unix(listener, path.clone())
            }
        };
        Ok(Self { kind })
    }

    /// The address with its real port, as `--admin-address-path` wants it.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.kind {
            Kind::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| String::new(), |address| address.to_string())
            }
            Kind::Unix(_, path) => path.display().to_string(),
        }
    }

    /// Accepts for ever. Must run inside a `LocalSet`.
    ///
    /// # Errors
    /// When the runtime does not take the socket.
    pub(crate) async fn serve<H, F>(self, counts: Arc<Counts>, handle: H) -> io::Result<()>
    where
        H: Fn(Request<Incoming>, Peer) -> F + Clone + 'static,
        F: Future<Output = Response<ReplyBody>> + 'static,
    {
        let socket = match self.kind {
            Kind::Tcp(listener) => Served::Tcp(TcpListener::from_std(listener)?),
            Kind::Unix(listener, _) => Served::Unix(UnixListener::from_std(listener)?),
        };
        let connections = Connections::default();
        let (reserve, mut is_given, mut is_told) = (Reserve::default(), false, false);
        loop {
            let is_short = std::mem::take(&mut is_given) || !reserve.fill();
            let accepted = match &socket {
                Served::Tcp(listener) => listener.accept().await.map(|(stream, peer)| {
                    // A failure here costs latency only.
                    let _ = stream.set_nodelay(true);
                    let peer = Peer { remote: peer.ip().to_string() };
                    connections.start(serve_one(stream, peer, &counts, &reserve, handle.clone()));
                }),
                Served::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                    let peer = Peer { remote: "-".into() };
                    connections.start(serve_one(stream, peer, &counts, &reserve, handle.clone()));
                }),
            };
            let Err(error) = accepted else {
                is_told &= is_short;
                continue;
            };
            if reserve.empty() {
                is_given = true;
                continue;
            }
            if !std::mem::replace(&mut is_told, true) {
                log!(Admin, Warning, "cannot accept: {error}");
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// A descriptor that is kept for a client of this endpoint: it is closed to let one in when there are no others, and
/// opened again when that one is gone.
#[derive(Clone, Default)]
struct Reserve(Rc<RefCell<Option<File>>>);

impl Reserve {
    /// Whether it is there.
    fn fill(&self) -> bool {
        let mut file = self.0.borrow_mut();
        if file.is_none() {
            *file = File::open("/dev/null").ok();
        }
        file.is_some()
    }

    /// Whether it was there.
    fn empty(&self) -> bool {
        self.0.borrow_mut().take().is_some()
    }

    fn is_empty(&self) -> bool {
        self.0.borrow().is_none()
    }
}

#[derive(Clone, Default)]
struct Connections(Rc<RefCell<VecDeque<AbortHandle>>>);

impl Connections {
    fn start(&self, connection: impl Future<Output = ()> + 'static) {
        let mut open = self.0.borrow_mut();
        open.retain(|task| !task.is_finished());
        if open.len() >= MAX_CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::task::spawn_local(connection).abort_handle());
    }
}

fn serve_one<S, H, F>(
    stream: S,
    peer: Peer,
    counts: &Arc<Counts>,
    reserve: &Reserve,
    handle: H,
) -> impl Future<Output = ()> + use<S, H, F>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    H: Fn(Request<Incoming>, Peer) -> F + 'static,
    F: Future<Output = Response<ReplyBody>> + 'static,
{
    let stream = CountedConnection::begin(stream, counts);
    let service = service_fn(move |request| {
        let response = handle(request, peer.clone());
        async move { Ok::<_, std::convert::Infallible>(response.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(!reserve.is_empty())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let reserve = reserve.clone();
    async move {
        match tokio::time::timeout(MAX_LIFE, connection).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(error)) => log!(Admin, Debug, "admin connection: {error}"),
        }
        reserve.fill();
    }
}

/// Binds a unix socket; a file that a dead process left behind is replaced.
fn bind_unix(path: &Path, mode: u32) -> io::Result<unix::UnixListener> {
    if let Some(name) = path.to_str().and_then(|path| path.strip_prefix('@')) {
        use std::os::linux::net::SocketAddrExt;
        return unix::UnixListener::bind_addr(&unix::SocketAddr::from_abstract_name(name)?);
    }
    let listener = match unix::UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
            std::fs::remove_file(path)?;
            unix::UnixListener::bind(path)?
        }
        other => other?,
    };
    if mode != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(listener)
}

fn is_stale(path: &Path) -> bool {
    unix::UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
