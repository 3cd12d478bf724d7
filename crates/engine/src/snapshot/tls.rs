//! TLS towards the hosts of a cluster, and towards clients.

use std::sync::Arc;

use towpath_proto::tls::{ClientTemplate, ServerName, ServerTemplate};

/// How the hosts of a cluster are spoken to under TLS. Envoy `UpstreamTlsContext`, compiled.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// Versions, trust, certificate: see [`towpath_proto::tls::ClientSettings`]. `None` while a secret that it needs is
    /// not there: no connection is made then.
    pub template: Option<ClientTemplate>,
    /// A digest of all but secrets that are replaced while they serve: connections outlive those. Without one no two
    /// are alike.
    pub shape: Option<u64>,
    /// Which name is asked for.
    pub name: AskedName,
    /// What is shown of it.
    pub certificates: Certificates,
}

/// The certificates of a TLS context, for `/certs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The first of those that are trusted.
    pub trusted: Vec<ShownCertificate>,
    /// Those that are shown to peers, without what leads to a root.
    pub own: Vec<ShownCertificate>,
    /// What Envoy's `ssl.certificate.<name>.…` calls these: a secret's name, or one made of a digest.
    pub own_names: Vec<Arc<str>>,
    /// The same of what is trusted.
    pub trusted_name: Arc<str>,
}

impl Certificates {
    /// All of them with their names.
    pub fn named(&self) -> impl Iterator<Item = (&Arc<str>, &ShownCertificate)> {
        let trusted = self.trusted.first().map(|first| (&self.trusted_name, first));
        self.own_names.iter().zip(&self.own).chain(trusted)
    }
}

/// A certificate, and where it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownCertificate {
    /// A file's name; empty for one that stands in the configuration.
    pub path: Arc<str>,
    /// DER.
    pub der: Arc<[u8]>,
}

/// How the clients of a filter chain are spoken to under TLS. Envoy `DownstreamTlsContext`, compiled.
#[derive(Clone, Debug)]
pub struct DownstreamTls {
    /// Versions, certificates, trust: see [`towpath_proto::tls::ServerSettings`]. `None` while a secret that it needs
    /// is not there: connections are closed then.
    pub template: Option<ServerTemplate>,
    /// What is shown of it.
    pub certificates: Certificates,
}

impl UpstreamTls {
    /// Whether connections are made as for another, whatever its secrets are.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.shape.is_some() && self.shape == other.shape
    }
}

/// The name by which a server is asked for: it is sent as SNI, and what
/// [`Names::Server`](towpath_proto::tls::Names::Server) compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedName {
    /// This one. Envoy `sni`; without it, [`ServerName::unnamed`].
    Fixed(ServerName),
    /// The endpoint's `hostname`, or this one where it has none that can be sent. Envoy `auto_host_sni`.
    OfHost(ServerName),
}

impl AskedName {
    /// The name for a host.
    #[must_use]
    pub fn of(&self, hostname: &Arc<str>) -> ServerName {
        match self {
            Self::Fixed(name) => name.clone(),
            Self::OfHost(other) => ServerName::of_host(hostname).unwrap_or_else(|| other.clone()),
        }
    }
}
