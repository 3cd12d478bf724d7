//! The kinds of resources that a control plane gives.

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Of CDS.
    Cluster,
    /// Of EDS.
    Endpoints,
    /// Of LDS.
    Listener,
    /// Of RDS.
    Routes,
    /// Of SDS.
    Secret,
    /// Of RTDS.
    Runtime,
    /// Of ECDS.
    Extension,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::Cluster,
        Self::Endpoints,
        Self::Listener,
        Self::Routes,
        Self::Secret,
        Self::Runtime,
        Self::Extension,
    ];

    /// Whether it is asked for by name.
    #[must_use]
    pub const fn is_asked_for_by_name(self) -> bool {
        match self {
            Self::Endpoints | Self::Routes | Self::Secret | Self::Runtime | Self::Extension => true,
            Self::Cluster | Self::Listener => false,
        }
    }

    /// The field that has its name.
    pub(crate) const fn name_field(self) -> &'static str {
        match self {
            Self::Endpoints => "cluster_name",
            Self::Cluster
            | Self::Listener
            | Self::Routes
            | Self::Secret
            | Self::Runtime
            | Self::Extension => "name",
        }
    }

    /// The kind with this message.
    #[must_use]
    pub fn of_message(message: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.message() == message)
    }

    /// The full name of its message.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Cluster => "envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "envoy.config.listener.v3.Listener",
            Self::Routes => "envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Runtime => "envoy.service.runtime.v3.Runtime",
            Self::Extension => "envoy.config.core.v3.TypedExtensionConfig",
        }
    }
}
