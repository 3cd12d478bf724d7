//! Who speaks in a mesh: an app, as its sidecar tells it.

use std::collections::BTreeMap;

use crate::stream_info::{Struct, Value};

/// An app of a mesh. Its fields are empty where nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Workload {
    /// `NAME`: the instance.
    pub instance: Box<str>,
    /// `NAMESPACE`.
    pub namespace: Box<str>,
    /// `WORKLOAD_NAME`.
    pub name: Box<str>,
    /// `OWNER`: what the workload is; its words are those of Kubernetes.
    pub kind: Option<WorkloadKind>,
    /// `CLUSTER_ID`.
    pub cluster: Box<str>,
    /// `IDENTITY`.
    pub identity: Box<str>,
    /// The label `service.istio.io/canonical-name`.
    pub service: Box<str>,
    /// The label `service.istio.io/canonical-revision`.
    pub revision: Box<str>,
    /// The label `app.kubernetes.io/name`, else `app`.
    pub app: Box<str>,
    /// The label `app.kubernetes.io/version`, else `version`.
    pub version: Box<str>,
    /// `REGION`.
    pub region: Box<str>,
    /// `AVAILABILITY_ZONE`.
    pub zone: Box<str>,
}

/// What a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkloadKind {
    /// `pod`.
    Pod,
    /// `deployment`.
    Deployment,
    /// `job`.
    Job,
    /// `cronjob`.
    CronJob,
}

impl WorkloadKind {
    const ALL: [Self; 4] = [Self::Pod, Self::Deployment, Self::Job, Self::CronJob];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Deployment => "deployment",
            Self::Job => "job",
            Self::CronJob => "cronjob",
        }
    }

    /// That of an owner, which ends in its plural and the name of the workload.
    fn of_owner(owner: &str, name: &str) -> Option<Self> {
        let plural = owner.strip_suffix(name)?.strip_suffix('/')?.rsplit('/').next()?;
        Self::ALL.into_iter().find(|kind| plural.strip_suffix('s') == Some(kind.word()))
    }
}

impl Workload {
    /// Reads the metadata of a node, or what a peer tells of its own.
    #[must_use]
    pub fn of(metadata: &Struct) -> Self {
        let text = |key| text_of(metadata, key);
        let labels = match metadata.get(LABELS) {
            Some(Value::Struct(labels)) => labels,
            _ => &BTreeMap::new(),
        };
        let label = |keys: &[&str]| {
            let found = keys.iter().map(|key| text_of(labels, key)).find(|text| !text.is_empty());
            found.unwrap_or_default().into()
        };
        Self {
            instance: text(INSTANCE).into(),
            namespace: text(NAMESPACE).into(),
            name: text(NAME).into(),
            kind: WorkloadKind::of_owner(text(OWNER), text(NAME)),
            cluster: text(CLUSTER).into(),
            identity: text(IDENTITY).into(),
            service: label(&[CANONICAL_NAME]),
            revision: label(&[CANONICAL_REVISION]),
            app: label(&["app.kubernetes.io/name", APP]),
            version: label(&["app.kubernetes.io/version", VERSION]),
            region: text(REGION).into(),
            zone: text(ZONE).into(),
        }
    }

    /// Reads what a control plane says of an endpoint: `WORKLOAD;NAMESPACE;SERVICE;REVISION;CLUSTER`.
    #[must_use]
    pub fn of_endpoint(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split(';').collect();
        let [name, namespace, service, revision, cluster, ..] = parts[..] else { return None };
        Some(Self {
            name: name.into(),
            namespace: namespace.into(),
            service: service.into(),
            revision: revision.into(),
            cluster: cluster.into(),
            ..Self::default()
        })
    }
}

fn text_of<'a>(entries: &'a Struct, key: &str) -> &'a str {
    match entries.get(key) {
        Some(Value::String(text)) => text,
        _ => "",
    }
}

pub(super) const INSTANCE: &str = "NAME";
pub(super) const NAMESPACE: &str = "NAMESPACE";
pub(super) const NAME: &str = "WORKLOAD_NAME";
pub(super) const OWNER: &str = "OWNER";
pub(super) const CLUSTER: &str = "CLUSTER_ID";
pub(super) const IDENTITY: &str = "IDENTITY";
pub(super) const LABELS: &str = "LABELS";
pub(super) const REGION: &str = "REGION";
pub(super) const ZONE: &str = "AVAILABILITY_ZONE";
pub(super) const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
pub(super) const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";
pub(super) const APP: &str = "app";
pub(super) const VERSION: &str = "version";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_says_what_a_workload_is() {
        let of = |owner, name| WorkloadKind::of_owner(owner, name);
        let owner = "kubernetes://apis/apps/v1/namespaces/test/deployments/client";
        assert_eq!(of(owner, "client"), Some(WorkloadKind::Deployment));
        assert_eq!(of(owner, "other"), None);
        assert_eq!(of("", ""), None);
        assert_eq!(of("x/statefulsets/a", "a"), None);
    }
}
