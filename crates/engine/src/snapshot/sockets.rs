//! What differs among the transport sockets of a cluster.

use std::sync::Arc;

/// What some transport sockets of a cluster have.
#[derive(Debug, PartialEq, Eq)]
pub struct OfSockets<T: ?Sized> {
    /// That of `transport_socket`.
    pub all: Option<Arc<T>>,
    /// Those of `transport_socket_matches`, in order.
    pub some: Vec<Option<Arc<T>>>,
}

impl<T: ?Sized> OfSockets<T> {
    /// That of the endpoints with this socket.
    #[must_use]
    pub fn of(&self, socket: Option<u16>) -> Option<&T> {
        match socket {
            Some(socket) => self.some.get(usize::from(socket))?.as_deref(),
            None => self.all.as_deref(),
        }
    }
}

impl<T: ?Sized> Clone for OfSockets<T> {
    fn clone(&self) -> Self {
        Self { all: self.all.clone(), some: self.some.clone() }
    }
}
