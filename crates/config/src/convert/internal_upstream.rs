//! Transport sockets towards listeners of this process: what they pass along.

use std::sync::Arc;

use towpath_engine::snapshot::passing::{MetadataOf, PassedMetadata, Passing};
use towpath_engine::snapshot::sockets::OfSockets;

use super::Converter;
use super::proxy_protocol::UPSTREAM_PROXY;
use super::tls::INTERNAL_UPSTREAM;
use crate::message::Message;

impl Converter<'_> {
    /// What connections of a cluster to listeners of this process take along.
    pub(super) fn passing(&mut self, cluster: &Message) -> Option<Box<Passing>> {
        of_sockets(cluster, |socket| self.passed_by(socket))
    }

    /// That of a transport socket, wherever it stands among those that are within each other.
    fn passed_by(&mut self, socket: Option<&Message>) -> Option<Arc<[PassedMetadata]>> {
        let (any, _) = socket?.any("typed_config")?;
        let config = any.message.as_ref()?;
        if any.name == UPSTREAM_PROXY {
            return self.passed_by(config.message("transport_socket"));
        }
        if any.name != INTERNAL_UPSTREAM {
            return None;
        }
        let sources = config.messages("passthrough_metadata");
        Some(sources.filter_map(|source| self.passed(source)).collect())
    }

    fn passed(&mut self, source: &Message) -> Option<PassedMetadata> {
        let kind = source.message("kind");
        let of = match kind {
            Some(kind) if kind.has("host") => MetadataOf::Host,
            Some(kind) if kind.has("cluster") => MetadataOf::Cluster,
            _ => {
                let text = "a connection takes along metadata of its `host` or `cluster`";
                self.report.problem(source.at("kind"), text);
                return None;
            }
        };
        Some(PassedMetadata { of, namespace: source.text("name").into() })
    }
}

/// What the transport sockets of a cluster have of a kind, where one has it.
pub(super) fn of_sockets<T: ?Sized>(
    cluster: &Message,
    mut read: impl FnMut(Option<&Message>) -> Option<Arc<T>>,
) -> Option<Box<OfSockets<T>>> {
    let all = read(cluster.message("transport_socket"));
    let matches = cluster.messages("transport_socket_matches");
    let some: Vec<_> = matches.map(|one| read(one.message("transport_socket"))).collect();
    let has_some = all.is_some() || some.iter().any(Option::is_some);
    has_some.then(|| Box::new(OfSockets { all, some }))
}
