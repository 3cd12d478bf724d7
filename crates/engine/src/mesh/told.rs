//! Workloads as sidecars tell each other of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message as _;

use super::workload::{
    APP, CANONICAL_NAME, CANONICAL_REVISION, CLUSTER, IDENTITY, INSTANCE, LABELS, NAME, NAMESPACE,
    OWNER, REGION, VERSION, Workload, ZONE,
};
use super::{GREETING_MAGIC, NoGreeting};
use crate::protobuf;
use crate::stream_info::{Struct, Value};

impl Workload {
    /// What is told of it.
    fn to_struct(&self) -> Struct {
        let text = |text: &str| Value::String(text.into());
        let filled = |pairs: &[(&str, &str)]| -> Struct {
            let filled = pairs.iter().filter(|(_, value)| !value.is_empty());
            filled.map(|(key, value)| ((*key).into(), text(value))).collect()
        };
        let mut all = filled(&[
            (INSTANCE, &self.instance),
            (NAMESPACE, &self.namespace),
            (NAME, &self.name),
            (CLUSTER, &self.cluster),
            (IDENTITY, &self.identity),
            (REGION, &self.region),
            (ZONE, &self.zone),
        ]);
        let labels = filled(&[
            (CANONICAL_NAME, &self.service),
            (CANONICAL_REVISION, &self.revision),
            (APP, &self.app),
            (VERSION, &self.version),
        ]);
        all.insert(LABELS.into(), Value::Struct(labels));
        if let Some(kind) = self.kind {
            let (kind, namespace, name) = (kind.word(), &self.namespace, &self.name);
            let owner = format!("kubernetes://apis/apps/v1/namespaces/{namespace}/{kind}s/{name}");
            all.insert(OWNER.into(), Value::String(owner.into()));
        }
        all
    }

    /// What `x-envoy-peer-metadata` says of it: a `google.protobuf.Struct` in base64.
    #[must_use]
    pub fn header(&self) -> String {
        BASE64.encode(protobuf::Struct::of(&self.to_struct()).encode_to_vec())
    }

    /// Reads such a header.
    #[must_use]
    pub fn from_header(value: &[u8]) -> Option<Self> {
        let bytes = BASE64.decode(value).ok()?;
        Some(Self::of(&protobuf::Struct::decode(&*bytes).ok()?.into_values()))
    }

    /// What a sidecar says of it on a connection of opaque bytes: how long it is, and a `google.protobuf.Any` of a
    /// `Struct` of both headers.
    #[must_use]
    pub fn greeting(&self, id: &str) -> Vec<u8> {
        let mut both = Struct::new();
        both.insert(PEER.into(), Value::Struct(self.to_struct()));
        if !id.is_empty() {
            both.insert(PEER_ID.into(), Value::String(id.into()));
        }
        let value = protobuf::Struct::of(&both).encode_to_vec();
        let any = Any { type_url: STRUCT_URL.to_owned(), value }.encode_to_vec();
        let mut greeting = GREETING_MAGIC.to_be_bytes().to_vec();
        greeting.extend(u32::try_from(any.len()).unwrap_or(u32::MAX).to_be_bytes());
        greeting.extend(any);
        greeting
    }

    /// Reads what follows the length of a greeting; `None` where it names no workload.
    ///
    /// # Errors
    /// When it is no greeting.
    pub fn from_greeting(any: &[u8]) -> Result<Option<Self>, NoGreeting> {
        let any = Any::decode(any).map_err(|_| NoGreeting)?;
        if any.type_url.rsplit('/').next() != STRUCT_URL.rsplit('/').next() {
            return Err(NoGreeting);
        }
        let both = protobuf::Struct::decode(&*any.value).map_err(|_| NoGreeting)?.into_values();
        Ok(match both.get(PEER) {
            Some(Value::Struct(told)) => Some(Self::of(told)),
            _ => None,
        })
    }
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The peers that a worker knows, by the ids that they tell: most requests come from few.
#[derive(Debug, Default)]
pub(crate) struct Peers(BTreeMap<Box<[u8]>, Arc<Workload>>);

impl Peers {
    /// Reads the headers of a peer.
    pub(crate) fn read(&mut self, id: &[u8], told: &[u8]) -> Option<Arc<Workload>> {
        if id.is_empty() {
            return Workload::from_header(told).map(Arc::new);
        }
        if let Some(known) = self.0.get(id) {
            return Some(Arc::clone(known));
        }
        let peer = Arc::new(Workload::from_header(told)?);
        if self.0.len() >= MOST_PEERS {
            self.0.clear();
        }
        self.0.insert(id.into(), Arc::clone(&peer));
        Some(peer)
    }
}

/// Envoy `max_peer_cache_size`.
const MOST_PEERS: usize = 500;

/// Written with padding, read with or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

const STRUCT_URL: &str = "type.googleapis.com/google.protobuf.Struct";
const PEER: &str = "x-envoy-peer-metadata";
const PEER_ID: &str = "x-envoy-peer-metadata-id";

#[cfg(test)]
mod tests {
    use super::super::WorkloadKind;
    use super::*;

    fn client() -> Workload {
        Workload {
            instance: "client-0".into(),
            namespace: "test".into(),
            name: "client".into(),
            kind: Some(WorkloadKind::Deployment),
            cluster: "Kubernetes".into(),
            service: "client".into(),
            revision: "v1".into(),
            app: "client".into(),
            version: "v1".into(),
            ..Workload::default()
        }
    }

    #[test]
    fn what_is_told_is_read_again() {
        let told = client();
        assert_eq!(Workload::from_header(told.header().as_bytes()), Some(told.clone()));
        let bare = told.header().trim_end_matches('=').to_owned();
        assert_eq!(Workload::from_header(bare.as_bytes()), Some(told.clone()));
        let greeting = told.greeting("sidecar~1");
        assert_eq!(greeting[..4], 0x3D23_0467_u32.to_be_bytes());
        assert_eq!(greeting[4..8], u32::to_be_bytes(greeting.len() as u32 - 8));
        assert_eq!(Workload::from_greeting(&greeting[8..]), Ok(Some(told)));
    }

    #[test]
    fn what_is_no_workload_is_none() {
        assert_eq!(Workload::from_header(b"!!"), None);
        assert_eq!(Workload::from_header(b"/////w=="), None);
        assert_eq!(Workload::from_greeting(b"\xff"), Err(NoGreeting));
        assert_eq!(Workload::of_endpoint("a;b;c"), None);
        let endpoint = Workload::of_endpoint("server1;test;echo;v1;Kubernetes").unwrap();
        assert_eq!((&*endpoint.name, &*endpoint.service), ("server1", "echo"));
    }

    #[test]
    fn peers_are_known_by_their_ids() {
        let mut peers = Peers::default();
        let header = client().header();
        let first = peers.read(b"id", header.as_bytes()).unwrap();
        assert!(Arc::ptr_eq(&first, &peers.read(b"id", b"not looked at").unwrap()));
        assert_eq!(peers.read(b"other", b"!"), None);
        for id in 0..2 * MOST_PEERS {
            peers.read(id.to_string().as_bytes(), header.as_bytes());
            assert!(peers.0.len() <= MOST_PEERS);
        }
    }
}
