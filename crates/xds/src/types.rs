//! The kinds of resources.

/// A kind of resource, by the service that discovers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// CDS.
    Cluster,
    /// EDS.
    Endpoints,
    /// LDS.
    Listener,
    /// RDS.
    Routes,
    /// SDS.
    Secret,
    /// ECDS.
    Extension,
    /// RTDS.
    Runtime,
}

impl Type {
    /// All of them, in the order in which Envoy's control planes send them: make before break.
    pub const ALL: [Self; 7] = [
        Self::Cluster,
        Self::Endpoints,
        Self::Listener,
        Self::Routes,
        Self::Secret,
        Self::Extension,
        Self::Runtime,
    ];

    /// The full name of its message.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Cluster => "envoy.config.cluster.v3.Cluster",
            Self::Endpoints => "envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "envoy.config.listener.v3.Listener",
            Self::Routes => "envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Extension => "envoy.config.core.v3.TypedExtensionConfig",
            Self::Runtime => "envoy.service.runtime.v3.Runtime",
        }
    }

    /// What stands in `type_url`.
    #[must_use]
    pub fn url(self) -> String {
        format!("{URL}{}", self.message())
    }

    /// The kind that a `type_url` says.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        let (_, name) = url.rsplit_once('/')?;
        Self::of_message(name)
    }

    /// The kind with this message.
    #[must_use]
    pub fn of_message(message: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.message() == message)
    }

    /// The field of its message that has a resource's name.
    #[must_use]
    pub const fn name_field(self) -> &'static str {
        match self {
            Self::Endpoints => "cluster_name",
            Self::Cluster
            | Self::Listener
            | Self::Routes
            | Self::Secret
            | Self::Extension
            | Self::Runtime => "name",
        }
    }

    /// Whether resources of it are asked for by name.
    #[must_use]
    pub const fn is_asked_for_by_name(self) -> bool {
        !self.is_whole()
    }

    /// Whether a response in the state of the world holds all there is of the kind, so that what is missing in it is
    /// gone.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    /// The gRPC service and methods for a stream of this kind alone: state of the world, delta.
    #[must_use]
    pub const fn methods(self) -> [&'static str; 2] {
        match self {
            Self::Cluster => [
                "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
                "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
            ],
            Self::Endpoints => [
                "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints",
                "/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints",
            ],
            Self::Listener => [
                "/envoy.service.listener.v3.ListenerDiscoveryService/StreamListeners",
                "/envoy.service.listener.v3.ListenerDiscoveryService/DeltaListeners",
            ],
            Self::Routes => [
                "/envoy.service.route.v3.RouteDiscoveryService/StreamRoutes",
                "/envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes",
            ],
            Self::Secret => [
                "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets",
                "/envoy.service.secret.v3.SecretDiscoveryService/DeltaSecrets",
            ],
            Self::Extension => [
                "/envoy.service.extension.v3.ExtensionConfigDiscoveryService/StreamExtensionConfigs",
                "/envoy.service.extension.v3.ExtensionConfigDiscoveryService/DeltaExtensionConfigs",
            ],
            Self::Runtime => [
                "/envoy.service.runtime.v3.RuntimeDiscoveryService/StreamRuntime",
                "/envoy.service.runtime.v3.RuntimeDiscoveryService/DeltaRuntime",
            ],
        }
    }
}

/// The methods of the aggregated service: state of the world, delta.
pub const AGGREGATED: [&str; 2] = [
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
];
const URL: &str = "type.googleapis.com/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_their_kinds() {
        for kind in Type::ALL {
            assert_eq!(Type::of_url(&kind.url()), Some(kind));
        }
        assert_eq!(Type::of_url("envoy.config.cluster.v3.Cluster"), None);
        assert_eq!(Type::of_url("type.googleapis.com/a.B"), None);
    }
}
