//! Istio's `metadata_exchange` of HTTP: sidecars tell each other in headers who they are, and take those out again.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::Head;

use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, Release, RequestView, ResponseFilter,
    ResponseView, StreamFilter,
};
use crate::format::Facts;
use crate::mesh::{Peers, StreamMesh};

/// Istio `io.istio.http.peer_metadata.Config`.
#[derive(Clone, Debug)]
pub struct PeerMetadata {
    /// The id of this proxy's node.
    pub id: Arc<str>,
    /// Who this proxy is, as [`Workload::header`](crate::mesh::Workload::header) has it.
    pub own: Arc<str>,
    /// `downstream_discovery` by `istio_headers`: what requests say is taken out of them.
    pub reads_requests: bool,
    /// `upstream_discovery`: the same of responses.
    pub reads_responses: bool,
    /// `upstream_propagation`: requests say which workload they come from.
    pub tells_upstream: Option<Tells>,
    /// `downstream_propagation`: clients that told are told.
    pub tells_downstream: Option<Tells>,
}

/// To whom something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tells {
    /// `skip_external_clusters`: not to those outside of the mesh.
    pub skips_external: bool,
}

impl Tells {
    fn applies(self, facts: &Facts<'_>) -> bool {
        if self.skips_external && facts.cluster == "PassthroughCluster" {
            return false;
        }
        facts.mesh.is_none_or(|mesh| !(mesh.keeps_quiet || self.skips_external && mesh.external))
    }
}

impl FilterConfig for PeerMetadata {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { config: Rc::new(self.clone()), peers: RefCell::default() })
    }

    fn reads_record(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance {
    config: Rc<PeerMetadata>,
    peers: RefCell<Peers>,
}

impl Instance {
    /// Takes what a peer says out of a head.
    fn take(&self, head: &mut Head, mesh: Option<&StreamMesh>, side: Side) -> Said {
        let said =
            Said { id: head.get_bytes(PEER_ID).is_some(), peer: head.get_bytes(PEER).is_some() };
        let told = head.get_bytes(PEER).filter(|told| !told.is_empty());
        if let (Some(told), Some(mesh)) = (told, mesh) {
            let id = head.get_bytes(PEER_ID).unwrap_or_default();
            if let Some(peer) = self.peers.borrow_mut().read(id, told) {
                let found = mesh.found();
                let place = match side {
                    Side::Downstream => &found.downstream,
                    Side::Upstream => &found.upstream,
                };
                // The first says it.
                let _ = place.set(peer);
            }
        }
        head.remove_bytes(PEER_ID);
        head.remove_bytes(PEER);
        said
    }
}

/// Whose peer says who it is.
#[derive(Clone, Copy, Debug)]
enum Side {
    Downstream,
    Upstream,
}

/// What a peer has said.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    id: bool,
    peer: bool,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let (config, facts) = (&self.config, request.facts);
        let mut said = Said::default();
        if config.reads_requests {
            said = self.take(request.head, facts.found, Side::Downstream);
        }
        if config.tells_upstream.is_some_and(|tells| tells.applies(facts)) {
            request.head.set_bytes(PEER_ID, config.id.as_bytes());
            request.head.set_bytes(PEER, config.own.as_bytes());
        }
        if config.tells_downstream.is_none() || !(said.id || said.peer) {
            return OnRequest::Pass;
        }
        OnRequest::Watch(Box::new(Answering { config: Rc::clone(config), said }))
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }
}

impl ResponseFilter for Instance {
    fn on_response(&self, response: &mut ResponseView<'_>) {
        if self.config.reads_responses {
            self.take(response.head, response.facts.found, Side::Upstream);
        }
    }
}

/// A request whose client told who it is, and hears who we are.
#[derive(Debug)]
struct Answering {
    config: Rc<PeerMetadata>,
    said: Said,
}

impl StreamFilter for Answering {
    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        if self.config.reads_responses {
            response.head.remove_bytes(PEER_ID);
            response.head.remove_bytes(PEER);
        }
        if self.config.tells_downstream.is_some_and(|tells| tells.applies(response.facts)) {
            if self.said.id {
                response.head.set_bytes(PEER_ID, self.config.id.as_bytes());
            }
            if self.said.peer {
                response.head.set_bytes(PEER, self.config.own.as_bytes());
            }
        }
        Release::Now
    }
}

const PEER: &[u8] = b"x-envoy-peer-metadata";
const PEER_ID: &[u8] = b"x-envoy-peer-metadata-id";
