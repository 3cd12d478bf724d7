//! Who sidecars say in headers that they are.

use std::sync::Arc;

use towpath_engine::filter::peer_metadata::{PeerMetadata, Tells};

use super::Known;
use crate::convert::Converter;
use crate::message::{Message, Value};
use crate::support::Entry;

const CONFIG: &str = "io.istio.http.peer_metadata.Config";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    convert: |converter, config| Some(Arc::new(read(converter, config))),
    by_route: None,
    support: SUPPORT,
};

fn read(converter: &mut Converter<'_>, config: &Message) -> PeerMetadata {
    let node = Arc::clone(&converter.mesh_node);
    PeerMetadata {
        id: Arc::from(node.id.as_str()),
        own: Arc::from(node.located.header()),
        reads_requests: discovers(config, "downstream_discovery"),
        reads_responses: discovers(config, "upstream_discovery"),
        tells_upstream: tells(config, "upstream_propagation"),
        tells_downstream: tells(config, "downstream_propagation"),
    }
}

/// Whether one of the methods is by headers; the others find no peer where there is no list of workloads.
fn discovers(config: &Message, name: &str) -> bool {
    config.messages(name).any(|method| method.has("istio_headers"))
}

fn tells(config: &Message, name: &str) -> Option<Tells> {
    let headers = config.messages(name).find_map(|method| method.get("istio_headers"))?;
    let Value::Message(headers) = &headers.value else { return None };
    Some(Tells { skips_external: headers.flag("skip_external_clusters") })
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: CONFIG,
        honoured: &[
            "downstream_discovery",
            "upstream_discovery",
            "downstream_propagation",
            "upstream_propagation",
        ],
        harmless: &[(
            "shared_with_upstream",
            "listeners inside the process are not told who a peer is",
        )],
        changes: &[("additional_labels", "only the standard labels are told")],
    },
    Entry {
        message: "io.istio.http.peer_metadata.DiscoveryMethod",
        honoured: &["istio_headers"],
        harmless: &[(
            "workload_discovery",
            "finds no peer without a list of workloads, whose bootstrap extension is not there",
        )],
        changes: &[
            ("baggage", "who a peer is is not read from baggage"),
            ("upstream_filter_state", "upstream filters leave no filter state"),
        ],
    },
    Entry {
        message: "io.istio.http.peer_metadata.PropagationMethod",
        honoured: &["istio_headers"],
        harmless: &[],
        changes: &[("baggage", "baggage is not made")],
    },
    Entry {
        message: "io.istio.http.peer_metadata.IstioHeaders",
        honoured: &["skip_external_clusters"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "io.istio.http.peer_metadata.WorkloadDiscovery",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "io.istio.http.peer_metadata.Baggage",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "io.istio.http.peer_metadata.UpstreamFilterState",
        honoured: &[],
        harmless: &[],
        changes: &[],
    },
];
