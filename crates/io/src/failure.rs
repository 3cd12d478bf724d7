//! From the operating system's error numbers to the machine's [`Failure`].

use std::error::Error;
use std::fmt;
use std::io;

use towpath_proto::Failure;

pub(crate) fn of(error: &io::Error) -> Failure {
    if let Some(refused) = error.get_ref().and_then(|inner| inner.downcast_ref::<RefusedOption>()) {
        return refused.failure();
    }
    error.raw_os_error().map_or(Failure::Unsupported, of_code)
}

/// An option that the kernel does not set, inside an [`io::Error`] on its way to [`of`].
#[derive(Debug)]
pub(crate) struct RefusedOption {
    pub(crate) level: i32,
    pub(crate) name: i32,
    pub(crate) error: io::Error,
}

impl RefusedOption {
    fn failure(&self) -> Failure {
        let Self { level, name, error } = self;
        error.raw_os_error().map_or(Failure::Unsupported, |code| Failure::SocketOption {
            level: *level,
            name: *name,
            code,
        })
    }
}

impl From<RefusedOption> for io::Error {
    fn from(refused: RefusedOption) -> Self {
        Self::new(refused.error.kind(), refused)
    }
}

impl fmt::Display for RefusedOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket option {}/{} is refused", self.level, self.name)
    }
}

impl Error for RefusedOption {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

pub(crate) fn of_code(code: i32) -> Failure {
    match code {
        // A unix socket's missing file means that nothing listens there.
        libc::ECONNREFUSED | libc::ENOENT => Failure::Refused,
        libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED => Failure::Reset,
        libc::ETIMEDOUT => Failure::TimedOut,
        libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::EHOSTDOWN => {
            Failure::Unreachable
        }
        libc::EADDRINUSE => Failure::AddressInUse,
        libc::EADDRNOTAVAIL | libc::EINVAL | libc::ENAMETOOLONG => Failure::AddressNotAvailable,
        libc::EACCES | libc::EPERM => Failure::Denied,
        libc::EMFILE
        | libc::ENFILE
        | libc::ENOBUFS
        | libc::ENOMEM
        | libc::EAGAIN
        | libc::ENOSPC => Failure::Exhausted,
        libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT => Failure::Unsupported,
        code => Failure::Os(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers_have_names_and_others_keep_theirs() {
        assert_eq!(of_code(libc::ECONNREFUSED), Failure::Refused);
        assert_eq!(of_code(libc::EPIPE), Failure::Reset);
        assert_eq!(of_code(libc::EMFILE), Failure::Exhausted);
        assert_eq!(of_code(libc::EPROTO), Failure::Os(libc::EPROTO));
        assert_eq!(of(&io::Error::other("no number")), Failure::Unsupported);
    }
}
