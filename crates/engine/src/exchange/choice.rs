//! Which host takes a stream: the one that it asks for, or that the balancer of its cluster chooses.
//!
//! Arrives: a stream with its cluster. Leaves: the [`PoolKey`] of a host, noted in its record.

use std::net::SocketAddr;

use towpath_proto::{Address, Instant};

use crate::conn::Connections;
use crate::env::Env;
use crate::exchange::asked::{
    asked_pool, keep_asked, pick_asked, take_asked, tell_choice, tell_chosen,
};
use crate::exchange::clients::{asks, whom};
use crate::exchange::criteria::criteria_of;
use crate::exchange::names::wanted_by_request;
use crate::exchange::stream::Stream;
use crate::exchange::wanted::wanted_pool;
use crate::ids::{PoolClass, PoolKey};
use crate::names::{parts, sub_name};
use crate::route::{Hashed, cookie_value, request_hash};
use crate::snapshot::cluster::Discovery;
use crate::snapshot::override_host::MetadataPath;
use crate::snapshot::route::HashPolicy;
use crate::stream_info::{StreamInfo, Value};
use crate::upstream::aggregate::Aim;
use crate::upstream::cluster::ClusterState;
use crate::upstream::clusters::Clusters;

/// The pool of the host that its cluster chooses for a stream.
pub(crate) fn choose_host(
    stream: &mut Stream,
    conns: &Connections,
    clusters: &mut Clusters,
    env: &mut Env,
    now: Instant,
) -> Option<PoolKey> {
    let cluster = clusters.get_mut(stream.cluster)?;
    let version = stream.request.version();
    if let Some(wanted) = destination(stream, conns, cluster) {
        let class = class_of(stream, conns, cluster);
        if let Some(picked) = wanted_pool(stream, cluster, class) {
            return note_choice(stream, cluster, picked);
        }
        let picked = wanted.zip(class);
        let picked = picked.and_then(|(it, class)| cluster.pick_destination(it, class, env, now));
        return note_choice(stream, cluster, picked);
    }
    if cluster.has_subs {
        return choose_in_sub(stream, conns, clusters, env, now);
    }
    if cluster.aggregate.is_none() {
        return choose_own_host(stream, conns, cluster, env, now);
    }
    // An aggregate has no hosts that could be asked for.
    if stream.wanted_host().is_some_and(|wanted| wanted.strict) {
        return note_choice(stream, cluster, None);
    }
    let is_hashed = clusters.is_hashed(stream.cluster);
    let own = clusters.get(stream.cluster).map_or(&[][..], |cluster| &cluster.config.hash);
    let hash = host_hash(stream, conns, own, is_hashed);
    let random = hash.unwrap_or_else(|| env.random.next());
    let (id, priority) = (stream.cluster, stream.priority);
    let criteria = criteria_of(stream);
    let of = whom(stream, conns, clusters.tells_clients(id));
    let mut asked = take_asked(stream);
    let asks = asks(&stream.recorder, &stream.request, of);
    let mut aim = |cluster: &mut ClusterState| {
        let class = cluster.class_for(cluster.class(priority, version), &asks)?;
        let named = pick_asked(&mut asked, &stream.recorder, &stream.request, cluster, class);
        Some(named.map_or(Aim::Any(class), Aim::Named))
    };
    let avoided = stream.retries.avoided();
    let picked = clusters.pick(id, random, &mut aim, avoided, criteria.as_deref(), now);
    keep_asked(stream, asked);
    tell_choice(stream, clusters, picked);
    note_choice(stream, clusters.get(stream.cluster)?, picked)
}

/// The same in a cluster that has hosts of its own.
#[inline]
pub(crate) fn choose_own_host(
    stream: &mut Stream,
    conns: &Connections,
    cluster: &mut ClusterState,
    env: &mut Env,
    now: Instant,
) -> Option<PoolKey> {
    let class = class_of(stream, conns, cluster);
    if stream.filters.is_some()
        && let Some(picked) = wanted_pool(stream, cluster, class)
    {
        return note_choice(stream, cluster, picked);
    }
    if cluster.config.override_hosts.is_some()
        && let Some(picked) = asked_pool(stream, cluster, class)
    {
        tell_chosen(stream, cluster, Some(picked));
        return note_choice(stream, cluster, Some(picked));
    }
    let is_hashed = cluster.config.balancing.policy.is_hashed();
    let hash = host_hash(stream, conns, &cluster.config.hash, is_hashed);
    let random = hash.unwrap_or_else(|| env.random.next());
    let criteria = cluster.subsets.as_ref().and_then(|_| criteria_of(stream));
    let avoided = stream.retries.avoided();
    let picked =
        class.and_then(|class| cluster.pick(random, class, avoided, criteria.as_deref(), now));
    tell_chosen(stream, cluster, picked);
    note_choice(stream, cluster, picked)
}

/// The same in the cluster that was made for the name that a stream wants to go to. What is counted of the stream is
/// counted of the cluster that its route says.
#[cold]
fn choose_in_sub(
    stream: &mut Stream,
    conns: &Connections,
    clusters: &mut Clusters,
    env: &mut Env,
    now: Instant,
) -> Option<PoolKey> {
    let cluster = clusters.get(stream.cluster)?;
    let default_port = if cluster.config.tls.is_some() { 443 } else { 80 };
    let wanted = wanted_by_request(stream, true, default_port);
    if wanted.is_empty() {
        stream.retries.tried.get_or_insert_default().no_host = Some("empty_host_header");
    }
    stream.recorder.note(|record| {
        record.cluster.get_or_insert_with(|| cluster.config.name.clone());
    });
    // It has no hosts itself that could be asked for.
    let is_bound = stream.wanted_host().is_some_and(|wanted| wanted.strict);
    let (host, port) = parts(&wanted);
    let id = env.subs.get(stream.cluster, &sub_name(host, port)).filter(|_| !is_bound);
    let picked = id.and_then(|id| {
        let sub = clusters.get_mut(id)?;
        let class = class_of(stream, conns, sub)?;
        let is_hashed = sub.config.balancing.policy.is_hashed();
        let hash = host_hash(stream, conns, &sub.config.hash, is_hashed);
        let random = hash.unwrap_or_else(|| env.random.next());
        let avoided = stream.retries.avoided();
        Some((id, sub.pick(random, class, avoided, None, now)?))
    });
    let counted = picked.map_or(stream.cluster, |(id, _)| id);
    note_choice(stream, clusters.get(counted)?, picked.map(|(_, pool_key)| pool_key))
}

/// Which of a host's pools a stream takes; none where there are too many.
#[inline]
fn class_of(stream: &Stream, conns: &Connections, cluster: &mut ClusterState) -> Option<PoolClass> {
    let class = cluster.class(stream.priority, stream.request.version());
    let config = &cluster.config;
    let may_ask = config.proxy_headers.is_some()
        || config.pool_per_client
        || config.asked_names.is_some()
        || stream.context.listener.filters.binds_source
        || stream.recorder.mesh().is_some()
        || stream.recorder.info().is_some_and(StreamInfo::shares);
    if may_ask { asked_class(stream, conns, cluster, class) } else { Some(class) }
}

#[cold]
fn asked_class(
    stream: &Stream,
    conns: &Connections,
    cluster: &mut ClusterState,
    class: PoolClass,
) -> Option<PoolClass> {
    let of = whom(stream, conns, cluster.config.proxy_headers.is_some());
    cluster.class_for(class, &asks(&stream.recorder, &stream.request, of))
}

#[inline]
pub(crate) fn note_choice(
    stream: &mut Stream,
    cluster: &ClusterState,
    picked: Option<PoolKey>,
) -> Option<PoolKey> {
    stream.recorder.note(|record| {
        record.cluster.get_or_insert_with(|| cluster.config.name.clone());
    });
    stream.attempts = 1 + stream.retries.done;
    let Some(pool_key) = picked else {
        cluster.stats.upstream_cx_none_healthy.inc();
        return None;
    };
    if let Some(before) = stream.retries.pool_key.replace(pool_key) {
        stream.recorder.note_retry(cluster.pool(before).map(|pool| &pool.hostname));
    }
    if let Some(tried) = stream.retries.tried.as_deref_mut() {
        tried.hosts.push(pool_key);
    }
    Some(pool_key)
}

/// The hash that chooses the host of a stream, where its cluster goes by one.
#[inline(always)]
fn host_hash(
    stream: &mut Stream,
    conns: &Connections,
    own: &[HashPolicy],
    is_hashed: bool,
) -> Option<u64> {
    if is_hashed { hash_and_give(stream, conns, own) } else { None }
}

/// The hash of a stream's request: by its cluster's `own` policies, else by its route's. A cookie that its client is to
/// have is noted for the answer.
fn hash_and_give(stream: &mut Stream, conns: &Connections, own: &[HashPolicy]) -> Option<u64> {
    let mut given = Vec::new();
    let forward = stream.routed()?.forward()?;
    let policies = if own.is_empty() { &forward.hash } else { own };
    let hash = hash_of(stream, policies, |name, rest| {
        let connection = conns.table.get(stream.downstream.connection)?;
        let value = cookie_value(&connection.peer, &connection.local);
        given.push([name, b"=\"", &value, b"\"", rest].concat().into_boxed_slice());
        Some(value)
    });
    if !given.is_empty() {
        // Of each attempt anew: it is the same.
        stream.retries.tried.get_or_insert_default().cookies = given;
    }
    hash
}

/// The hash that policies make of a stream's request; `give` as in [`request_hash`].
pub(crate) fn hash_of(
    stream: &Stream,
    policies: &[HashPolicy],
    give: impl FnMut(&[u8], &[u8]) -> Option<[u8; 16]>,
) -> Option<u64> {
    let client = stream.recorder.record().downstream_remote.as_ref().and_then(Address::ip);
    let client = client.map(|client| client.ip());
    let head = stream.request.present()?;
    request_hash(policies, Hashed { head, client, info: stream.recorder.info() }, give)
}

/// The text at a place of a stream's dynamic metadata, or the first one of a list there.
fn metadata_text(stream: &Stream, place: &MetadataPath) -> Option<String> {
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => Some(text.to_string()),
        Some(Value::List(values)) => match values.first() {
            Some(Value::String(text)) => Some(text.to_string()),
            _ => None,
        },
        _ => None,
    };
    stream.recorder.info()?.read_metadata(&place.namespace, &place.path, text)
}

/// Where a stream wants to go by itself, if that decides in its cluster: where its header says, else where its client
/// was going before it was redirected.
pub(crate) fn destination(
    stream: &Stream,
    conns: &Connections,
    cluster: &ClusterState,
) -> Option<Option<SocketAddr>> {
    let Discovery::OriginalDestination(original) = &cluster.config.discovery else { return None };
    let read = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<SocketAddr>().ok();
    let of_metadata = original.metadata.as_ref().and_then(|place| {
        let text = metadata_text(stream, place)?;
        let address = read(text.as_bytes());
        if address.is_none() {
            cluster.stats.original_dst_host_invalid.inc();
        }
        address
    });
    let by_header = || {
        let header = original.header.as_ref()?;
        header.first(&stream.request, |text| {
            let address = text.map(read);
            if address == Some(None) {
                cluster.stats.original_dst_host_invalid.inc();
            }
            address?
        })
    };
    let mut wanted = of_metadata.or_else(by_header).or_else(|| {
        let connection = conns.table.get(stream.downstream.connection)?;
        connection.local.ip().filter(|_| connection.downstream().is_some_and(|it| it.is_restored()))
    });
    if let (Some(wanted), Some(port)) = (&mut wanted, original.port) {
        wanted.set_port(port);
    }
    Some(wanted)
}
