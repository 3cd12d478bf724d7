//! The labels of Istio's metrics.

use std::sync::Arc;

use crate::format::Facts;
use crate::mesh::{MeshCluster, Reporter, StreamMesh, Workload};

/// What is known of a stream and of its ends when it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    pub(super) facts: &'a Facts<'a>,
    /// Who the client says that it is.
    downstream: Option<&'a Workload>,
    /// Who the host says that it is.
    upstream: Option<&'a Workload>,
    /// Who a control plane says that the host is.
    endpoint: Option<&'a Workload>,
}

impl<'a> Ends<'a> {
    pub(crate) fn of(facts: &'a Facts<'a>) -> Self {
        let found = facts.found.and_then(StreamMesh::get);
        Self {
            facts,
            downstream: found.and_then(|found| found.downstream.get()).map(|it| &**it),
            upstream: found.and_then(|found| found.upstream.get()).map(|it| &**it),
            endpoint: facts.endpoint,
        }
    }
}

/// The service that a stream goes to.
#[derive(Clone, Copy, Debug, Default)]
struct Destination<'a> {
    host: &'a str,
    name: &'a str,
    namespace: &'a str,
}

/// All that labels are made of, but for what is alike for a whole process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parties<'a> {
    reporter: Reporter,
    peer: Option<&'a Workload>,
    /// Behind a gateway.
    behind: Option<&'a Workload>,
    peer_principal: &'a str,
    own_principal: &'a str,
    destination: Destination<'a>,
    /// Whether both ends have shown certificates, where that is known.
    pub(crate) is_mutual: Option<bool>,
}

impl<'a> Parties<'a> {
    pub(crate) fn of(reporter: Reporter, ends: Ends<'a>, falls_back_to_host: bool) -> Self {
        let (peer_principal, own_principal) = principals(reporter, ends);
        let is_client = reporter == Reporter::Client;
        let has_both = !peer_principal.is_empty() && !own_principal.is_empty();
        let peer = if is_client { ends.upstream.or(ends.endpoint) } else { ends.downstream };
        Self {
            reporter,
            peer,
            behind: ends.upstream.filter(|_| reporter == Reporter::Gateway),
            peer_principal,
            own_principal,
            destination: destination(ends.facts, falls_back_to_host),
            is_mutual: (!is_client).then_some(has_both),
        }
    }

    /// Appends what tells these from others, each with its length before it.
    pub(crate) fn write_key(&self, out: &mut Vec<u8>) {
        for workload in [self.peer, self.behind] {
            let fields = workload.map(|it| {
                [&it.name, &it.namespace, &it.cluster, &it.identity].map(|field| &**field)
            });
            let labels = workload
                .map(|it| [&it.service, &it.revision, &it.app, &it.version].map(|field| &**field));
            fields.iter().chain(&labels).flatten().for_each(|field| write_part(out, field));
            out.push(u8::from(workload.is_some()));
        }
        let Destination { host, name, namespace } = self.destination;
        for part in [self.peer_principal, self.own_principal, host, name, namespace] {
            write_part(out, part);
        }
    }

    /// The labels of the two ends, in Envoy's order.
    pub(crate) fn labels(&self, own: &Workload) -> Vec<(&'static str, Arc<str>)> {
        let reporter = match self.reporter {
            Reporter::Client => "source",
            Reporter::Server => "destination",
            Reporter::Gateway => "waypoint",
        };
        let mut labels = vec![("reporter", Arc::from(reporter))];
        if self.reporter == Reporter::Client {
            self.add_source(own, own.namespace.as_ref(), self.own_principal, &mut labels);
            self.add_destination(
                self.peer,
                self.peer_namespace(),
                self.peer_principal,
                &mut labels,
            );
            return labels;
        }
        let unknown = Workload::default();
        let peer = self.peer.unwrap_or(&unknown);
        self.add_source(peer, self.peer_namespace(), self.peer_principal, &mut labels);
        if self.reporter == Reporter::Gateway {
            let identity = self.behind.map_or("", |behind| &behind.identity);
            let namespace = self.behind.map_or("", |behind| &behind.namespace);
            self.add_destination(self.behind, namespace, identity, &mut labels);
        } else {
            self.add_destination(Some(own), &own.namespace, self.own_principal, &mut labels);
        }
        labels
    }

    /// Where a certificate says it, that counts.
    fn peer_namespace(&self) -> &'a str {
        let of_certificate = namespace_of(self.peer_principal).filter(|it| !it.is_empty());
        of_certificate.or_else(|| Some(&*self.peer?.namespace)).unwrap_or_default()
    }

    /// What is not known is `unknown`, of a peer; what this proxy does not know of itself is left empty.
    fn known(&self, text: &str, is_own: bool, fallback: &'static str) -> Arc<str> {
        Arc::from(if text.is_empty() && !is_own { fallback } else { text })
    }

    fn add_source(
        &self,
        who: &Workload,
        namespace: &str,
        principal: &str,
        labels: &mut Vec<(&'static str, Arc<str>)>,
    ) {
        let is_own = self.reporter == Reporter::Client;
        let told = |text: &str| self.known(text, is_own, UNKNOWN);
        labels.extend([
            ("source_workload", told(&who.name)),
            ("source_canonical_service", told(&who.service)),
            ("source_canonical_revision", self.known(&who.revision, is_own, LATEST)),
            ("source_workload_namespace", told(namespace)),
            ("source_principal", self.known(principal, false, UNKNOWN)),
            ("source_app", told(&who.app)),
            ("source_version", told(&who.version)),
            ("source_cluster", told(&who.cluster)),
        ]);
    }

    fn add_destination(
        &self,
        who: Option<&Workload>,
        namespace: &str,
        principal: &str,
        labels: &mut Vec<(&'static str, Arc<str>)>,
    ) {
        let is_own = self.reporter == Reporter::Server;
        let unknown = Workload::default();
        let who = who.unwrap_or(&unknown);
        let told = |text: &str| self.known(text, is_own, UNKNOWN);
        let Destination { host, name, namespace: of_service } = self.destination;
        // This proxy's own service stands for one that nothing names.
        let service = |text: &str| {
            let text = if text.is_empty() && is_own { &who.service } else { text };
            self.known(text, is_own, UNKNOWN)
        };
        let latest = if self.reporter == Reporter::Gateway { UNKNOWN } else { LATEST };
        let service_namespace = match self.reporter {
            Reporter::Client if of_service.is_empty() => namespace,
            Reporter::Client | Reporter::Gateway => of_service,
            Reporter::Server => namespace,
        };
        labels.extend([
            ("destination_workload", told(&who.name)),
            ("destination_workload_namespace", told(namespace)),
            ("destination_principal", self.known(principal, false, UNKNOWN)),
            ("destination_app", told(&who.app)),
            ("destination_version", told(&who.version)),
            ("destination_service", service(host)),
            ("destination_canonical_service", told(&who.service)),
            ("destination_canonical_revision", self.known(&who.revision, is_own, latest)),
            ("destination_service_name", service(name)),
            ("destination_service_namespace", told(service_namespace)),
            ("destination_cluster", told(&who.cluster)),
        ]);
    }
}

fn write_part(out: &mut Vec<u8>, part: &str) {
    out.extend_from_slice(&part.len().to_le_bytes());
    out.extend_from_slice(part.as_bytes());
}

/// Who the peer is, and who we are to it, by the certificates that were shown: the first URI of each.
fn principals<'a>(reporter: Reporter, ends: Ends<'a>) -> (&'a str, &'a str) {
    let record = ends.facts.record;
    let text = |name: Option<&'a Box<[u8]>>| {
        name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
    };
    if reporter != Reporter::Client {
        let Some(tls) = record.downstream_tls.as_deref() else { return ("", "") };
        let of = |shown: &'a Option<crate::record::ShownCertificate>| {
            text(shown.as_ref().and_then(|shown| shown.uris.first()))
        };
        return (of(&tls.peer), of(&tls.own));
    }
    let names = record.upstream_tls.as_ref().and_then(|tls| tls.names.as_deref());
    let peer = names.map_or("", |names| &names.peer);
    // What the host says counts only where its certificate says nothing.
    let peer = if peer.is_empty() { ends.upstream.map_or("", |it| &it.identity) } else { peer };
    (peer, names.map_or("", |names| &names.own))
}

/// The namespace in `spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT`.
fn namespace_of(principal: &str) -> Option<&str> {
    let (_, rest) = principal.split_once("/ns/")?;
    Some(rest.split('/').next().unwrap_or_default())
}

/// The service that a stream goes to: as its cluster says; where that says nothing, as its request does, if that is
/// wanted.
fn destination<'a>(facts: &Facts<'a>, falls_back_to_host: bool) -> Destination<'a> {
    let host = facts.request.filter(|_| falls_back_to_host).map(|head| head.authority());
    let host = host.and_then(|host| std::str::from_utf8(host).ok()).unwrap_or_default();
    let mut found = Destination { host, name: host, namespace: "" };
    match facts.route {
        "block_all" => found.name = "BlackHoleCluster",
        "allow_any" => found.name = "PassthroughCluster",
        _ if CATCH_ALL.contains(&facts.cluster) => found.name = facts.cluster,
        _ => {
            if let Some(MeshCluster { service: Some(service), .. }) = facts.mesh {
                found.name = &service.name;
                found.namespace = &service.namespace;
                if !service.host.is_empty() {
                    found.host = &service.host;
                }
            }
        }
    }
    found
}

/// Clusters that take what belongs to no service.
const CATCH_ALL: [&str; 5] = [
    "BlackHoleCluster",
    "PassthroughCluster",
    "InboundPassthroughCluster",
    "InboundPassthroughClusterIpv4",
    "InboundPassthroughClusterIpv6",
];

const UNKNOWN: &str = "unknown";
const LATEST: &str = "latest";

#[cfg(test)]
mod tests {
    use towpath_proto::{Head, Instant};

    use super::*;
    use crate::mesh::Service;
    use crate::record::Record;

    fn label(parties: &Parties<'_>, name: &str) -> String {
        let own = Workload { name: "me".into(), service: "mine".into(), ..Workload::default() };
        let labels = parties.labels(&own);
        labels.iter().find(|(known, _)| *known == name).unwrap().1.to_string()
    }

    #[test]
    fn what_is_not_known_falls_back() {
        let (record, head) =
            (Record::default(), Head::request(b"GET", b"http", b"a.test:80", b"/"));
        let mut facts = Facts::new(&record, Instant::ZERO);
        facts.request = Some(&head);
        let of = |facts: &Facts<'_>, reporter, by_host| {
            let parties = Parties::of(reporter, Ends::of(facts), by_host);
            ["source_workload", "destination_workload", "destination_canonical_revision"]
                .into_iter()
                .chain(["destination_service", "destination_service_name", "source_app"])
                .map(|name| label(&parties, name))
                .collect::<Vec<_>>()
        };
        let unknown = "unknown";
        let client = of(&facts, Reporter::Client, false);
        assert_eq!(client, ["me", unknown, "latest", unknown, unknown, ""]);
        // What the request calls its host, where that is wanted; a server stands for itself.
        let client = of(&facts, Reporter::Client, true);
        assert_eq!(client, ["me", unknown, "latest", "a.test:80", "a.test:80", ""]);
        let server = of(&facts, Reporter::Server, false);
        assert_eq!(server, [unknown, "me", "", "mine", "mine", unknown]);
        let gateway = of(&facts, Reporter::Gateway, false);
        assert_eq!(gateway, [unknown, unknown, unknown, unknown, unknown, unknown]);
        facts.route = "block_all";
        assert_eq!(of(&facts, Reporter::Client, true)[3..5], ["a.test:80", "BlackHoleCluster"]);
        (facts.route, facts.cluster) = ("", "PassthroughCluster");
        assert_eq!(of(&facts, Reporter::Client, false)[3..5], [unknown, "PassthroughCluster"]);
        // What a control plane says of the cluster and of the endpoint.
        let service = Service { host: "e.test".into(), name: "e".into(), namespace: "n".into() };
        let mesh = MeshCluster { service: Some(service), ..MeshCluster::default() };
        let endpoint = Workload::of_endpoint("w;n;c;v7;k").unwrap();
        (facts.cluster, facts.mesh, facts.endpoint) = ("c", Some(&mesh), Some(&endpoint));
        let client = of(&facts, Reporter::Client, true);
        assert_eq!(client, ["me", "w", "v7", "e.test", "e", ""]);
    }

    #[test]
    fn a_namespace_stands_in_a_principal() {
        assert_eq!(namespace_of("spiffe://cluster.local/ns/test/sa/client"), Some("test"));
        assert_eq!(namespace_of("spiffe://cluster.local/ns/test"), Some("test"));
        assert_eq!(namespace_of("spiffe://cluster.local/sa/client"), None);
    }
}
