//! From the operating system's error numbers to the machine's [`Failure`].

use std::io;

use towpath_proto::Failure;

pub(crate) fn of(error: &io::Error) -> Failure {
    error.raw_os_error().map_or(Failure::Unsupported, of_code)
}

pub(crate) fn of_code(code: i32) -> Failure {
    match code {
        // A unix socket's missing file means that nobody listens there.
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
