//! Requests that name hosts of their cluster, in a header or in what filters have left. Envoy's policy `override_host`.
//!
//! Arrives: a stream, and what its cluster says of where hosts are named. Leaves: the pool of the next one of them, and
//! in the dynamic metadata which host was chosen.

use towpath_proto::Head;

use crate::exchange::lazy_head::LazyHead;
use crate::exchange::recorder::Recorder;
use crate::exchange::stream::Stream;
use crate::ids::{PoolClass, PoolKey};
use crate::snapshot::override_host::{HostSource, MetadataPath, OverrideHosts};
use crate::stream_info::{Struct, Value};
use crate::upstream::asked::AskedHosts;
use crate::upstream::cluster::ClusterState;
use crate::upstream::clusters::Clusters;

/// The pool of the next host that a stream names, where its cluster lets it.
#[cold]
pub(crate) fn asked_pool(
    stream: &mut Stream,
    cluster: &mut ClusterState,
    class: Option<PoolClass>,
) -> Option<PoolKey> {
    let mut asked = take_asked(stream);
    let picked = pick_asked(&mut asked, &stream.recorder, &stream.request, cluster, class?);
    keep_asked(stream, asked);
    picked
}

/// What a stream is known to name, to be put back by [`keep_asked`].
pub(crate) fn take_asked(stream: &mut Stream) -> Option<AskedHosts> {
    stream.retries.tried.as_deref_mut()?.asked.take()
}

pub(crate) fn keep_asked(stream: &mut Stream, asked: Option<AskedHosts>) {
    if asked.is_some() {
        stream.retries.tried.get_or_insert_default().asked = asked;
    }
}

/// The same for what a stream is known to name. That is read once, before its first attempt.
pub(crate) fn pick_asked(
    asked: &mut Option<AskedHosts>,
    recorder: &Recorder,
    request: &LazyHead,
    cluster: &mut ClusterState,
    class: PoolClass,
) -> Option<PoolKey> {
    let config = cluster.config.override_hosts.as_ref()?;
    let asked = asked.get_or_insert_with(|| named(recorder, request.present(), config));
    cluster.pick_asked(asked, class)
}

/// The hosts that a request names.
fn named(recorder: &Recorder, head: Option<&Head>, config: &OverrideHosts) -> AskedHosts {
    let lists: Vec<String> =
        config.sources.iter().filter_map(|source| list(recorder, head, source)).collect();
    AskedHosts::of(lists.iter().map(String::as_str))
}

/// What one source says.
fn list(recorder: &Recorder, head: Option<&Head>, source: &HostSource) -> Option<String> {
    match source {
        HostSource::Header(field) => {
            let text = |text: Option<&[u8]>| Some(String::from_utf8_lossy(text?).into_owned());
            field.first(head?, text)
        }
        HostSource::Metadata(place) => {
            let text = |value: Option<&Value>| match value {
                Some(Value::String(text)) => Some(text.to_string()),
                _ => None,
            };
            recorder.info()?.read_metadata(&place.namespace, &place.path, text)
        }
    }
}

/// Tells the dynamic metadata which host was chosen, where its cluster says so.
pub(crate) fn tell_choice(stream: &Stream, clusters: &Clusters, picked: Option<PoolKey>) {
    if let Some(cluster) = picked.and_then(|picked| clusters.get(picked.cluster)) {
        tell_chosen(stream, cluster, picked);
    }
}

/// The same, where the cluster is known.
#[inline]
pub(crate) fn tell_chosen(stream: &Stream, cluster: &ClusterState, picked: Option<PoolKey>) {
    if let Some(config) = &cluster.config.override_hosts {
        tell(stream, cluster, picked, config);
    }
}

#[cold]
fn tell(stream: &Stream, cluster: &ClusterState, picked: Option<PoolKey>, config: &OverrideHosts) {
    let pool = picked.and_then(|picked| cluster.pool(picked));
    let (Some(place), Some(pool), Some(info)) = (&config.selected, pool, stream.recorder.info())
    else {
        return;
    };
    let Some(said) = nested(place, Value::text(pool.address.to_string().as_bytes())) else {
        return;
    };
    // What is too much for one stream is not kept.
    let _ = info.add_metadata(&place.namespace, said);
}

/// A value at a place, in what its namespace is to have.
fn nested(place: &MetadataPath, value: Value) -> Option<Struct> {
    let within = |value, key: &str| Value::Struct(Struct::from([(Box::from(key), value)]));
    match place.path.iter().rev().map(|key| &**key).fold(value, within) {
        Value::Struct(said) => Some(said),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::List(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_at_the_end_of_its_path() {
        let place = MetadataPath { namespace: "n".into(), path: vec!["a".into(), "b".into()] };
        let said = Value::Struct(nested(&place, Value::text(b"c")).unwrap());
        assert_eq!(said.at(&place.path), Some(&Value::text(b"c")));
        let nowhere = MetadataPath { namespace: "n".into(), path: Vec::new() };
        assert_eq!(nested(&nowhere, Value::text(b"c")), None);
    }
}
