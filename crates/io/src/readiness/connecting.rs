//! Connects: begun without blocking, finished when the socket turns writable.

use std::io;
use std::sync::Arc;

use towpath_proto::{
    Address, AttemptId, ConnectOptions, ConnectionId, Failure, Input, Instant, Machine,
};

use crate::balance::Accepted;
use crate::{failure, socket};

use super::Driver;
use super::connection::{Connection, Phase};
use super::poller::Readiness;

impl<M: Machine> Driver<M>
where
    M::Message: Send + 'static,
{
    pub(super) fn connect(
        &mut self,
        attempt: AttemptId,
        address: &Address,
        options: &ConnectOptions,
    ) {
        self.shared.counters.connects.add(1);
        let outcome = self.begin_connect(attempt, address, options);
        if let Err(error) = outcome {
            // With our own address given it is that one; otherwise no port was left.
            let exhausted =
                error.raw_os_error() == Some(libc::EADDRNOTAVAIL) && options.source.is_none();
            let failure = if exhausted { Failure::Exhausted } else { failure::of(&error) };
            self.answers.push(Input::ConnectFailed { attempt, failure });
        }
    }

    pub(super) fn begin_connect(
        &mut self,
        attempt: AttemptId,
        address: &Address,
        options: &ConnectOptions,
    ) -> io::Result<()> {
        if let Some(name) = address.internal() {
            return self.connect_inside(attempt, name, address);
        }
        let (socket, done) = socket::connect(address, options)?;
        let local = if done { Some(socket::local_address(&socket)?) } else { None };
        let phase = if done { Phase::Open } else { Phase::Connecting(attempt) };
        let id = self.connections.insert(Connection::new(socket, phase));
        if let Err(error) = self.register(id) {
            self.connections.remove(id.slot());
            return Err(error);
        }
        match local {
            Some(local) => {
                self.answers.push(Input::Connected { attempt, connection: id, local });
            }
            None => {
                self.attempts.insert(attempt, id);
            }
        }
        Ok(())
    }

    /// Connects to a listener of this shard that has no socket.
    fn connect_inside(
        &mut self,
        attempt: AttemptId,
        name: &str,
        address: &Address,
    ) -> io::Result<()> {
        let refused = || io::Error::from_raw_os_error(libc::ECONNREFUSED);
        let listener = *self.internal.get(name).ok_or_else(refused)?;
        let (socket, far) = socket::pair()?;
        let id = self.connections.insert(Connection::new(socket, Phase::Open));
        if let Err(error) = self.register(id) {
            self.connections.remove(id.slot());
            return Err(error);
        }
        let peer = Address::Internal(Arc::from(CLIENT));
        let accepted = Accepted {
            listener,
            group: None,
            socket: far,
            local: address.clone(),
            peer: peer.clone(),
            original: None,
        };
        self.answers.push(Input::Connected { attempt, connection: id, local: peer });
        let accepted = self.admit(accepted);
        if let Some(Input::Accepted { connection: far, .. }) = accepted {
            self.pairs.extend([(id, far), (far, id)]);
        }
        self.answers.extend(accepted);
        Ok(())
    }

    pub(super) fn cancel_connect(&mut self, attempt: AttemptId) {
        if let Some(id) = self.attempts.remove(&attempt) {
            self.connections.remove(id.slot());
            return;
        }
        // Ended at once, in the same round, and the machine has not been told yet.
        let mut taken_back = None;
        self.answers.retain(|answer| match answer {
            Input::Connected { attempt: other, connection, .. } if *other == attempt => {
                taken_back = Some(*connection);
                false
            }
            Input::ConnectFailed { attempt: other, .. } => *other != attempt,
            Input::Connected { .. }
            | Input::Listening { .. }
            | Input::Accepted { .. }
            | Input::Received { .. }
            | Input::Sent { .. }
            | Input::Ended { .. }
            | Input::Closed { .. }
            | Input::Resolved { .. }
            | Input::Inspected { .. }
            | Input::Message(_)
            | Input::Timeout => true,
        });
        if let Some(id) = taken_back {
            self.remove(id);
        }
    }

    pub(super) fn on_connect_ready(
        &mut self,
        attempt: AttemptId,
        id: ConnectionId,
        event: Readiness,
        now: Instant,
    ) {
        let Some(connection) = self.connections.find(id) else {
            return;
        };
        if let Some(failure) = connection.take_error() {
            return self.connect_failed(attempt, id, failure, now);
        }
        if !event.writable {
            return;
        }
        match connected(connection) {
            Ok(local) => {
                connection.phase = Phase::Open;
                connection.readable = event.readable || event.hung_up;
                connection.hung_up = event.hung_up;
                if connection.readable {
                    connection.in_reads = true;
                    self.reads.push(id.slot());
                }
                self.attempts.remove(&attempt);
                self.tell(Input::Connected { attempt, connection: id, local }, now);
            }
            Err(failure) => self.connect_failed(attempt, id, failure, now),
        }
    }

    pub(super) fn connect_failed(
        &mut self,
        attempt: AttemptId,
        id: ConnectionId,
        failure: Failure,
        now: Instant,
    ) {
        self.attempts.remove(&attempt);
        self.connections.remove(id.slot());
        self.tell(Input::ConnectFailed { attempt, failure }, now);
    }
}

/// What a client inside the process is called, as in Envoy.
const CLIENT: &str = "internal_client_address/";

/// Our address of a connection that the kernel says is up.
fn connected(connection: &Connection) -> Result<Address, Failure> {
    let local = socket::local_address(&connection.socket).map_err(|error| failure::of(&error))?;
    // A connect to a free port of our own host can find itself at the other end.
    if let (Some(ours), Ok(theirs)) = (local.ip(), connection.socket.peer_addr())
        && theirs.as_socket() == Some(ours)
    {
        return Err(Failure::Refused);
    }
    Ok(local)
}
