//! Where a peer listens: TCP or Unix sockets, and what to ask for there.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use serde::{Deserialize, Serialize};

/// A place to connect to or to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// `127.0.0.1:8080`, `[::1]:8080`
    Tcp(SocketAddr),
    /// `unix:/run/app.sock`; `unix:@name` is in Linux's abstract namespace.
    Unix(PathBuf),
}

/// An address and the request to make there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Where to connect.
    pub address: Address,
    /// The `Host` header.
    pub authority: String,
    /// The request target, beginning with `/`.
    pub path: String,
    /// Whether it was `https` or `wss`.
    pub is_tls: bool,
    /// Whether it was `ws` or `wss`.
    pub is_websocket: bool,
}

/// Text that names no usable address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The scheme is none of those.
    #[error(
        "'{0}': only http, https, ws or wss ://HOST:PORT/PATH, tcp://HOST:PORT, HOST:PORT and unix:PATH are understood"
    )]
    Scheme(String),
    /// The host has no address.
    #[error("'{0}': {1}")]
    Resolve(String, String),
    /// A Unix path that does not fit a socket address.
    #[error("'{0}' is not a usable Unix socket path")]
    UnixPath(String),
}

impl Address {
    /// Connects without blocking: an in-progress connection is a success that becomes writable later.
    pub(crate) fn connect(&self) -> rustix::io::Result<OwnedFd> {
        let socket = self.socket()?;
        let result = match self {
            Self::Tcp(address) => {
                sockopt::set_tcp_nodelay(&socket, true)?;
                net::connect(&socket, address)
            }
            Self::Unix(path) => net::connect(&socket, &unix_name(path)?),
        };
        match result {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error),
        }
    }

    /// Binds and listens; a stale Unix socket file is replaced.
    pub(crate) fn listen(&self) -> rustix::io::Result<OwnedFd> {
        let socket = self.socket()?;
        match self {
            Self::Tcp(address) => {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                net::bind(&socket, address)?;
            }
            Self::Unix(path) => {
                if is_stale_socket(path) {
                    // A failure shows itself in the bind that follows.
                    let _ = std::fs::remove_file(path);
                }
                net::bind(&socket, &unix_name(path)?)?;
            }
        }
        net::listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// The address a listening socket really has: port 0 is replaced by the kernel's choice.
    pub(crate) fn of_listener(&self, socket: &OwnedFd) -> Self {
        match self {
            Self::Tcp(_) => net::getsockname(socket)
                .ok()
                .and_then(|name| SocketAddr::try_from(name).ok())
                .map_or_else(|| self.clone(), Self::Tcp),
            Self::Unix(_) => self.clone(),
        }
    }

    fn socket(&self) -> rustix::io::Result<OwnedFd> {
        let family = match self {
            Self::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Self::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Self::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        net::socket_with(family, SocketType::STREAM, flags, None)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return match unix_name(&path) {
                Ok(_) if !path.as_os_str().is_empty() => Ok(Self::Unix(path)),
                Ok(_) | Err(_) => Err(AddressError::UnixPath(text.to_owned())),
            };
        }
        let text = text.strip_prefix("tcp://").unwrap_or(text);
        if text.contains("://") {
            return Err(AddressError::Scheme(text.to_owned()));
        }
        let resolve = |why: &str| AddressError::Resolve(text.to_owned(), why.to_owned());
        text.to_socket_addrs()
            .map_err(|error| resolve(&error.to_string()))?
            .next()
            .map(Self::Tcp)
            .ok_or_else(|| resolve("no address"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Target {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let schemes = [
            ("http://", false, false),
            ("https://", true, false),
            ("ws://", false, true),
            ("wss://", true, true),
        ];
        let of = |(scheme, is_tls, is_websocket)| {
            Some((text.strip_prefix(scheme)?, is_tls, is_websocket))
        };
        let Some((rest, is_tls, is_websocket)) = schemes.into_iter().find_map(of) else {
            let address = Address::from_str(text)?;
            let authority = match &address {
                Address::Tcp(_) => text.strip_prefix("tcp://").unwrap_or(text).to_owned(),
                Address::Unix(_) => "localhost".to_owned(),
            };
            return Ok(Self { authority, ..Self::from(address) });
        };
        let port = if is_tls { 443 } else { 80 };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let has_port =
            authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port {
            Address::from_str(authority)?
        } else {
            Address::from_str(&format!("{authority}:{port}"))?
        };
        let path = match path.split('#').next().unwrap_or_default() {
            "" => "/".to_owned(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_owned(),
        };
        Ok(Self { address, authority: authority.to_owned(), path, is_tls, is_websocket })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            // By the name it was given.
            Address::Tcp(_) => write!(f, "{}{}", self.authority, self.path),
            Address::Unix(_) => write!(f, "{}{}", self.address, self.path),
        }
    }
}

impl From<Address> for Target {
    fn from(address: Address) -> Self {
        let authority = match &address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(_) => "localhost".to_owned(),
        };
        Self { address, authority, path: "/".to_owned(), is_tls: false, is_websocket: false }
    }
}

fn unix_name(path: &std::path::Path) -> rustix::io::Result<SocketAddrUnix> {
    match path.to_str().and_then(|text| text.strip_prefix('@')) {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => SocketAddrUnix::new(path),
    }
}

fn is_stale_socket(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    is_socket && std::os::unix::net::UnixStream::connect(path).is_err()
}

const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_every_form() {
        let target: Target = "http://127.0.0.1:81/a?b#c".parse().unwrap();
        assert_eq!(target.address, Address::Tcp("127.0.0.1:81".parse().unwrap()));
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("127.0.0.1:81", "/a?b"));
        let target: Target = "http://127.0.0.1?x".parse().unwrap();
        assert_eq!(
            (target.address.to_string().as_str(), target.path.as_str()),
            ("127.0.0.1:80", "/?x")
        );
        for (text, is_tls, is_websocket, port) in [
            ("https://127.0.0.1/", true, false, 443),
            ("ws://127.0.0.1/", false, true, 80),
            ("wss://127.0.0.1/", true, true, 443),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.is_tls, target.is_websocket), (is_tls, is_websocket), "{text}");
            assert_eq!(target.address.to_string(), format!("127.0.0.1:{port}"));
        }
        let target: Target = "http://[::1]".parse().unwrap();
        assert_eq!(target.address.to_string(), "[::1]:80");
        let target: Target = "tcp://127.0.0.1:9".parse().unwrap();
        assert_eq!(target.authority, "127.0.0.1:9");
        let target: Target = "unix:/tmp/a.sock".parse().unwrap();
        assert_eq!(target.address, Address::Unix("/tmp/a.sock".into()));
    }

    #[test]
    fn refuses_what_it_cannot_reach() {
        assert!(matches!("ftp://x/".parse::<Target>(), Err(AddressError::Scheme(_))));
        assert!(matches!("unix:".parse::<Target>(), Err(AddressError::UnixPath(_))));
        assert!(matches!("127.0.0.1".parse::<Target>(), Err(AddressError::Resolve(..))));
        let long = format!("unix:/{}", "x".repeat(200));
        assert!(matches!(long.parse::<Address>(), Err(AddressError::UnixPath(_))));
    }
}
