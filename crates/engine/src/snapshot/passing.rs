//! What connections to listeners of this process take along.

use super::sockets::OfSockets;

/// Envoy `InternalUpstreamTransport.passthrough_metadata` of a cluster's transport sockets.
pub type Passing = OfSockets<[PassedMetadata]>;

/// Metadata that the listener's connections begin with. The filter state that is shared goes along in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedMetadata {
    /// Whose they are.
    pub of: MetadataOf,
    /// Their namespace.
    pub namespace: Box<str>,
}

/// Envoy `type.metadata.v3.MetadataKind`, as far as a connection to a host has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataOf {
    /// `host`.
    Host,
    /// `cluster`.
    Cluster,
}
