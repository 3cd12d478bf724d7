//! What a mesh knows of those who speak in it: Istio's workloads, as sidecars tell each other of them and count by
//! them.
//!
//! Arrives: what a control plane says of a cluster and its hosts, and what a peer says of itself. Leaves: the same, for
//! filters to read. What is told, and how, is as in Envoy's `contrib/istio`.

mod telemetry;
#[cfg(feature = "serving")]
mod told;
mod workload;

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

pub use telemetry::{IstioMetric, Reporter, Telemetry};
#[cfg(feature = "serving")]
pub(crate) use told::Peers;
pub use workload::{Workload, WorkloadKind};

/// What a control plane says of a cluster in its metadata, under `istio`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshCluster {
    /// `services`: the first.
    pub service: Option<Service>,
    /// `alpn_override: "false"`: its connections offer what its TLS says.
    pub keeps_alpn: bool,
    /// `external`: it is outside of the mesh.
    pub external: bool,
    /// `disable_mx`: nothing is told there of the client.
    pub keeps_quiet: bool,
}

/// A service of a mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// `host`.
    pub host: Box<str>,
    /// `name`, or the first part of its host.
    pub name: Box<str>,
    /// `namespace`.
    pub namespace: Box<str>,
}

/// Istio `metadata_exchange` of opaque bytes: sidecars tell each other who they are before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greetings {
    /// `protocol`: on connections on which this was negotiated (RFC 7301).
    pub protocol: Box<str>,
    /// What this proxy says of itself.
    pub own: Arc<[u8]>,
}

/// The protocols that a request's connection offers in its handshake, in place of those of the cluster's TLS, by what
/// is spoken to the cluster. Istio `alpn.v2alpha1.FilterConfig`; an empty list replaces nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlpnOverride {
    /// `HTTP11`.
    pub http1: Protocols,
    /// `HTTP2`.
    pub http2: Protocols,
}

/// Names of protocols, best first.
pub type Protocols = Arc<[Box<[u8]>]>;

/// What is found out of a stream's place in a mesh. It takes memory once something is.
#[derive(Debug, Default)]
pub struct StreamMesh(OnceCell<Box<Found>>);

/// The same, once there is something. What filters find is set once.
#[derive(Debug, Default)]
pub struct Found {
    /// Who the client says that it is.
    pub downstream: OnceCell<Arc<Workload>>,
    /// Who the host says that it is.
    pub upstream: OnceCell<Arc<Workload>>,
    /// What its connection offers.
    pub alpn: OnceCell<Arc<AlpnOverride>>,
    /// How far the bytes of a connection have been told.
    pub told: Cell<Told>,
}

/// How far a connection of opaque bytes has been told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// That it is there.
    pub is_opened: bool,
    /// Bytes to its client.
    pub sent: u64,
    /// Bytes from its client.
    pub received: u64,
}

impl StreamMesh {
    /// What was found, if anything was.
    #[must_use]
    #[inline]
    pub fn get(&self) -> Option<&Found> {
        self.0.get().map(|found| &**found)
    }

    /// Where what is found is kept.
    pub fn found(&self) -> &Found {
        self.0.get_or_init(Box::default)
    }
}

/// What came is not what a sidecar says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoGreeting;

/// What a greeting begins with.
pub(crate) const GREETING_MAGIC: u32 = 0x3D23_0467;

#[cfg(not(feature = "serving"))]
impl Workload {
    /// No client connects that would say it.
    pub(crate) const fn from_greeting(_any: &[u8]) -> Result<Option<Self>, NoGreeting> {
        Err(NoGreeting)
    }
}
