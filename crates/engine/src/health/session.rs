//! One host under check: its connection, the check under way, and what its checks came to.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use towpath_proto::Out;
use towpath_proto::tls::{Fault, Layer};
use towpath_proto::{Address, AttemptId, ConnectionId};

use super::probe::{Dialogue, Outcome};
use super::status::HostStatus;
use crate::snapshot::ClusterId;
use crate::snapshot::cluster::Endpoint;
use crate::snapshot::health::{CheckAnswers, HealthCheck};
use crate::stats::{HealthCheckStats, SocketMatchStats};
use crate::stream_info::FilterMetadata;

/// How the hosts of a cluster are asked, and what is counted of it.
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) config: Arc<HealthCheck>,
    pub(super) stats: Arc<HealthCheckStats>,
}

/// One host under check.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) cluster: ClusterId,
    pub(super) checks: Arc<Checks>,
    /// The endpoint's address.
    pub(super) host: Address,
    /// Where it is asked.
    pub(super) target: Address,
    pub(super) hostname: Arc<str>,
    /// Which of the cluster's sockets it is spoken to by, in place of the one of all others.
    pub(super) socket: Option<u16>,
    /// Where it is counted that it was chosen for checks alone, and so for each connection anew.
    pub(super) matched: Option<Arc<SocketMatchStats>>,
    /// What HTTP checks name as their host.
    pub(super) authority: Arc<str>,
    /// `region/zone/sub_zone`.
    pub(super) locality: Arc<str>,
    pub(super) filter_metadata: FilterMetadata,
    pub(super) status: HostStatus,
    pub(super) stage: Stage,
    /// The HTTP status that its last check was answered with; 0 where there was none.
    pub(super) answered: u16,
}

/// How far a session is.
///
/// ```text
/// Resting ──► Connecting ──► Securing ──► Asking ──► Resting
///    └───────────────(kept connection)──────┘
/// ```
#[derive(Debug)]
pub(super) enum Stage {
    /// It waits for the next check, with a connection if one was kept.
    Resting(Option<Line>),
    Connecting(AttemptId),
    /// The handshake is under way.
    Securing(Line),
    Asking(Line),
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) id: ConnectionId,
    pub(super) tls: Option<Box<Layer>>,
    pub(super) dialogue: Dialogue,
}

impl Stage {
    pub(super) const fn line(&self) -> Option<&Line> {
        match self {
            Self::Resting(line) => line.as_ref(),
            Self::Connecting(_) => None,
            Self::Securing(line) | Self::Asking(line) => Some(line),
        }
    }

    pub(super) const fn line_mut(&mut self) -> Option<&mut Line> {
        match self {
            Self::Resting(line) => line.as_mut(),
            Self::Connecting(_) => None,
            Self::Securing(line) | Self::Asking(line) => Some(line),
        }
    }
}

impl Line {
    /// Opens what arrived; answers plain bytes, and whether the connection is of further use.
    pub(super) fn open(&mut self, chunk: Bytes) -> (Bytes, Result<(), Fault>) {
        let Some(layer) = &mut self.tls else { return (chunk, Ok(())) };
        let mut plain = BytesMut::new();
        let received = layer.receive(&chunk, &mut plain);
        (plain.freeze(), received)
    }

    /// What goes out, as bytes for the driver: records of TLS's own first.
    pub(super) fn seal(&mut self, out: &mut Out) -> Vec<Bytes> {
        let Some(layer) = &mut self.tls else { return out.drain().collect() };
        let mut sealed = BytesMut::from(&layer.take_output()[..]);
        for chunk in out.drain() {
            // One that cannot be sealed is not answered, and the check's timeout says so.
            let _ = layer.seal(&chunk, &mut sealed);
        }
        if sealed.is_empty() { Vec::new() } else { vec![sealed.freeze()] }
    }
}

/// The HTTP status that a check came to; 0 where no answer came, or one of another protocol.
pub(super) fn answered(stage: &Stage, outcome: Outcome) -> u16 {
    match outcome {
        Outcome::Broken | Outcome::TimedOut => 0,
        Outcome::Success { .. } | Outcome::Refused | Outcome::Retriable => {
            stage.line().map_or(0, |line| line.dialogue.http_status())
        }
    }
}

/// The HTTP statuses that hosts answered with, where they did.
pub(super) fn statuses<'a>(sessions: impl Iterator<Item = &'a Session>) -> Arc<CheckAnswers> {
    let told = sessions.filter(|session| session.answered != 0);
    Arc::new(told.map(|session| (session.host.clone(), session.answered)).collect())
}

/// Where a host is asked.
pub(super) fn target(endpoint: &Endpoint) -> Address {
    let check = endpoint.check.as_ref();
    let address = check.and_then(|check| check.address.as_ref()).unwrap_or(&endpoint.address);
    match (address, check.and_then(|check| check.port)) {
        (Address::Ip(ip), Some(port)) => Address::Ip(SocketAddr::new(ip.ip(), port)),
        (Address::Ip(_) | Address::Unix(_) | Address::Internal(_), _) => address.clone(),
    }
}

/// By which of its cluster's sockets a host is asked.
pub(super) fn socket(endpoint: &Endpoint) -> Option<u16> {
    endpoint.check.as_ref().and_then(|check| check.socket).unwrap_or(endpoint.socket)
}
