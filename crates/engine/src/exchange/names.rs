//! Streams that go where they say, by a name whose address is not known yet.
//!
//! Arrives: a stream at a filter or on its way to its cluster, and news of names. Leaves: the stream on its way, or an
//! answer. No one waits for the control thread: a stream that has to wait has a place in a queue, which it gives up
//! when it ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::{Close, Instant};

use crate::conn::Connection;
use crate::exchange::Exchange;
use crate::exchange::choice::note_choice;
use crate::exchange::clients::{asks, whom, whom_of_tcp};
use crate::exchange::stream::{Routed, Stream};
use crate::exchange::subs;
use crate::exchange::wanted::wanted_pool;
use crate::filter::{Reply, Resolve};
use crate::ids::{Kind, PoolClass, PoolKey, ResetReason, StreamIndex};
use crate::message::FromWorker;
use crate::names::{
    Lookup, NameEvent, NameFault, NameNews, NameQuestion, SubTicket, Ticket, Waiter, with_port,
};
use crate::network_filter::sni_dynamic_forward_proxy::SniForward;
use crate::record::{Flags, details};
use crate::snapshot::ClusterId;
use crate::upstream::protocol::Asks;

/// What became of a request at the filter.
#[derive(Debug)]
pub(crate) enum AtFilter {
    /// It goes on.
    GoesOn,
    /// It is to wait.
    Waits(Box<Waits>),
    /// It is answered.
    Answer(Reply),
}

/// A request that a filter holds up, with its place in the queue.
#[derive(Debug)]
pub(crate) enum Waits {
    /// Until a name is known.
    Name { cache: Arc<str>, host: Arc<str>, _ticket: Ticket },
    /// Until a cluster is made, but not for longer.
    Sub { within: Duration, _ticket: SubTicket },
}

/// Where a stream goes.
enum Place {
    At(Arc<str>, SocketAddr),
    /// It waits for the name.
    Waits,
    /// Nowhere, and why.
    Nowhere(&'static str),
}

impl Exchange {
    /// Takes the DNS caches of a snapshot.
    pub(crate) fn take_dns_caches(&self) {
        self.env.names.update(&self.snapshot.dns_caches, &self.env.registry, self.env.index);
    }

    /// Something became of a name.
    pub(crate) fn on_name(&mut self, news: &NameNews, now: Instant) {
        let waiters = self.env.names.take(news);
        let address = match &news.event {
            NameEvent::Resolved(resolved) => resolved.address.ok(),
            NameEvent::Gone | NameEvent::Full => None,
        };
        let is_gone = matches!(news.event, NameEvent::Gone);
        let mut gone = Vec::new();
        for cluster in self.upstreams.clusters.slots.iter_mut().flatten() {
            if cluster.dns_cache() != Some(&news.cache) {
                continue;
            }
            if let Some(address) = address {
                cluster.take_named(&news.host, address);
            } else if is_gone {
                let id = cluster.id;
                let pools = cluster.drop_named(&news.host).into_iter();
                gone.extend(pools.map(|pool| PoolKey { cluster: id, pool }));
            }
        }
        for pool in gone {
            self.retire_pool(pool, now);
        }
        let is_full = matches!(news.event, NameEvent::Full);
        for waiter in waiters {
            self.go_on_named(waiter, is_full, now);
        }
    }

    /// A stream need not wait any more.
    fn go_on_named(&mut self, waiter: Waiter, is_full: bool, now: Instant) {
        let Waiter { stream: index, serial, place } = waiter;
        let index = StreamIndex(index);
        let Some(stream) = self.streams.get_mut(index).filter(|it| it.serial == serial) else {
            return;
        };
        if let Some(tried) = &mut stream.retries.tried {
            tried.name = None;
        }
        match (place, stream.kind, is_full) {
            (Some(_), Kind::Tcp(_), true) => self.close_tcp(index, Close::Flush, now),
            (Some(_), Kind::Tcp(_), false) => self.route_tcp(index, now),
            (Some(place), _, _) => self.go_on_resolved(index, place, is_full, now),
            (None, Kind::Tcp(_), false) => self.place_stream(index, now),
            (None, _, false) => self.place_named(index, true, now),
            (None, _, true) => self.miss_named(index, FULL, true, now),
        }
    }

    /// A filter wants the name to be known that a request wants to go to.
    pub(super) fn resolve_for_filter(
        &mut self,
        index: StreamIndex,
        place: usize,
        wish: Resolve,
        now: Instant,
    ) -> AtFilter {
        let Some(stream) = self.streams.get_mut(index) else { return AtFilter::GoesOn };
        let context = stream.context.clone();
        let forward = stream.route.and_then(|route| Routed::of(&context, route)?.forward());
        if forward.is_none() {
            return AtFilter::GoesOn;
        }
        let cluster = self.upstreams.clusters.get(stream.cluster);
        let Some(cluster) = cluster.filter(|it| it.named.is_some() || it.has_subs) else {
            return AtFilter::GoesOn;
        };
        if let Some(host) = wish.host.as_ref().filter(|host| !host.is_empty())
            && let Some(head) = stream.request.present_mut()
        {
            head.set_authority(host);
        }
        let default_port = if cluster.config.tls.is_some() { 443 } else { 80 };
        if cluster.has_subs {
            return self.find_sub(index, place, &wish, default_port, now);
        }
        let host = wanted_by_request(stream, wish.by_state, default_port);
        if host.is_empty() {
            return AtFilter::Answer(Reply::new(400, b"Empty host header", "empty_host_header"));
        }
        let (serial, stream) = (stream.serial, index.0);
        let waiter = Waiter { stream, serial, place: Some(place) };
        match self.env.names.look_up(&wish.cache, &host, waiter) {
            Lookup::Known(resolved) => match resolved.address {
                Ok(_) => AtFilter::GoesOn,
                Err(fault) => AtFilter::Answer(unresolved(fault)),
            },
            Lookup::Wait { ticket, is_new } => {
                let host: Arc<str> = Arc::from(host);
                self.ask_for(&wish.cache, &host, is_new);
                AtFilter::Waits(Box::new(Waits::Name { cache: wish.cache, host, _ticket: ticket }))
            }
            Lookup::Full => AtFilter::Answer(full()),
            Lookup::Overflow => AtFilter::Answer(overflow()),
            Lookup::Unknown => AtFilter::GoesOn,
        }
    }

    /// What is to be said of that for which a request has waited.
    pub(super) fn resolved(&self, waits: &Waits, is_full: bool) -> Option<Reply> {
        match (waits, is_full) {
            (Waits::Name { .. }, true) => Some(full()),
            (Waits::Name { cache, host, .. }, false) => {
                self.env.names.get(cache, host)?.address.err().map(unresolved)
            }
            (Waits::Sub { .. }, true) => Some(subs::full()),
            (Waits::Sub { .. }, false) => None,
        }
    }

    /// The filter `sni_dynamic_forward_proxy` wants the name to be known that a client asks for. False if the stream
    /// does not go on yet.
    pub(super) fn resolve_for_sni(
        &mut self,
        index: StreamIndex,
        forward: &SniForward,
        now: Instant,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let client = self.conns.table.get(stream.downstream.connection);
        let Some(host) = wanted_by_client(client, forward.port) else { return true };
        let waiter = Waiter { stream: index.0, serial: stream.serial, place: Some(0) };
        match self.env.names.look_up(&forward.cache, &host, waiter) {
            Lookup::Known(_) | Lookup::Unknown => true,
            Lookup::Wait { ticket, is_new } => {
                stream.retries.tried.get_or_insert_default().name = Some(Box::new(ticket));
                self.ask_for(&forward.cache, &Arc::from(host), is_new);
                false
            }
            Lookup::Full | Lookup::Overflow => {
                self.close_tcp(index, Close::Flush, now);
                false
            }
        }
    }

    /// Sends a request to the host that it names, for which it `has_waited` or not.
    pub(super) fn place_named(&mut self, index: StreamIndex, has_waited: bool, now: Instant) {
        let place = self.find_named(index, now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(cluster) = self.upstreams.clusters.get_mut(stream.cluster) else { return };
        let class = cluster.class(stream.priority, stream.request.version());
        let of = whom(stream, &self.conns, cluster.config.proxy_headers.is_some());
        let class = cluster.class_for(class, &asks(&stream.recorder, &stream.request, of));
        let wanted =
            stream.filters.is_some().then(|| wanted_pool(stream, cluster, class)).flatten();
        let picked = match (wanted, place) {
            (Some(wanted), _) => wanted,
            (None, Place::At(host, address)) => {
                class.and_then(|class| cluster.pick_named(&host, address, class))
            }
            (None, Place::Waits) => return,
            (None, Place::Nowhere(details)) => {
                return self.miss_named(index, details, has_waited, now);
            }
        };
        match note_choice(stream, cluster, picked) {
            Some(pool_key) => self.place_on(index, pool_key, now),
            None => self.reset_upstream(index, ResetReason::NoHost, now),
        }
    }

    /// The same of a TCP connection; the name is that which its client asks for by TLS.
    pub(super) fn place_tcp_named(&mut self, index: StreamIndex, id: ClusterId, now: Instant) {
        let place = self.find_named(index, now);
        let Some(stream) = self.streams.get(index) else { return };
        let asks = Asks::of_client(whom_of_tcp(stream, &self.conns));
        let picked = match place {
            Place::At(host, address) => self.upstreams.clusters.get_mut(id).and_then(|cluster| {
                let class = cluster.class_for(PoolClass::default(), &asks)?;
                cluster.pick_named(&host, address, class)
            }),
            Place::Waits => return,
            Place::Nowhere(_) => None,
        };
        self.connect_tcp(index, id, picked, now);
    }

    /// A request has nowhere to go. As in Envoy, one that has waited is not counted.
    fn miss_named(
        &mut self,
        index: StreamIndex,
        details: &'static str,
        has_waited: bool,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if let Kind::Tcp(_) = stream.kind {
            let id = stream.cluster;
            return self.connect_tcp(index, id, None, now);
        }
        stream.retries.tried.get_or_insert_default().no_host = Some(details);
        let Some(cluster) = self.upstreams.clusters.get(stream.cluster) else { return };
        if has_waited {
            let name = &cluster.config.name;
            stream.recorder.note(|record| record.cluster = Some(Arc::clone(name)));
            stream.attempts = 1 + stream.retries.done;
        } else {
            note_choice(stream, cluster, None);
        }
        self.reset_upstream(index, ResetReason::NoHost, now);
    }

    /// Where a stream wants to go by its own word, if that is known.
    fn find_named(&mut self, index: StreamIndex, now: Instant) -> Place {
        let nowhere = Place::Nowhere(details::NO_HEALTHY_UPSTREAM);
        let Some(stream) = self.streams.get_mut(index) else { return nowhere };
        let cluster = self.upstreams.clusters.get(stream.cluster);
        let Some((cluster, cache)) = cluster.and_then(|it| Some((it, it.dns_cache()?.clone())))
        else {
            return nowhere;
        };
        let mut port = if cluster.config.tls.is_some() { 443 } else { 80 };
        let host = if let Kind::Tcp(_) = stream.kind {
            let client = self.conns.table.get(stream.downstream.connection);
            if let Some(forward) = stream.context.filters.forward() {
                port = forward.port;
            }
            wanted_by_client(client, port).unwrap_or_default()
        } else {
            wanted_by_request(stream, true, port)
        };
        if host.is_empty() || host.starts_with(':') {
            return nowhere;
        }
        let waiter = Waiter { stream: index.0, serial: stream.serial, place: None };
        // What is known needs no place in a queue.
        let known = self.env.names.get(&cache, &host).map(Lookup::Known);
        match known.unwrap_or_else(|| self.env.names.look_up(&cache, &host, waiter)) {
            Lookup::Known(resolved) => match resolved.address {
                Ok(address) => {
                    let time = self.env.clock.since_1970(now).as_millis();
                    resolved.touch(u64::try_from(time).unwrap_or(u64::MAX));
                    Place::At(Arc::from(host), address)
                }
                Err(fault) => Place::Nowhere(NameFault::details(fault)),
            },
            Lookup::Wait { ticket, is_new } => {
                stream.retries.tried.get_or_insert_default().name = Some(Box::new(ticket));
                self.ask_for(&cache, &Arc::from(host), is_new);
                Place::Waits
            }
            Lookup::Full => Place::Nowhere(FULL),
            Lookup::Overflow => Place::Nowhere(OVERFLOW),
            Lookup::Unknown => nowhere,
        }
    }

    fn ask_for(&mut self, cache: &Arc<str>, host: &Arc<str>, is_new: bool) {
        if is_new {
            let question = NameQuestion { cache: Arc::clone(cache), host: Arc::clone(host) };
            self.env.tell(FromWorker::Name(question));
        }
    }
}

/// Where a request wants to go (`HOST:PORT`): where other filters say, if they may, else where it says itself.
pub(super) fn wanted_by_request(stream: &Stream, by_state: bool, default_port: u16) -> String {
    let (host, port) = if by_state { wanted_by_state(stream) } else { (None, None) };
    let (host, port) = (host.unwrap_or_else(|| authority_of(stream)), port.unwrap_or(default_port));
    if host.is_empty() { host } else { with_port(&host, port) }
}

/// The host and the port that other filters say.
pub(super) fn wanted_by_state(stream: &Stream) -> (Option<String>, Option<u16>) {
    let info = stream.recorder.info().filter(|info| !info.is_empty());
    let state = |name: &str| {
        info.and_then(|info| {
            info.read_state(name, |object| {
                object.and_then(|it| String::from_utf8(it.value.to_vec()).ok())
            })
        })
    };
    let port = state(PORT).and_then(|port| port.parse().ok());
    (state(HOST), port.filter(|port| *port != 0))
}

/// The host that a request names itself.
pub(super) fn authority_of(stream: &Stream) -> String {
    let head = stream.request.present();
    let host = head.map(|head| String::from_utf8_lossy(head.authority()).into_owned());
    host.unwrap_or_default()
}

/// The same of a connection of opaque bytes: where its filter state says, else what its hello asks for.
pub(super) fn wanted_by_client(client: Option<&Connection>, default_port: u16) -> Option<String> {
    let downstream = client?.downstream()?;
    let state = |name: &str| std::str::from_utf8(&downstream.state(name)?.value).ok();
    let host = state(HOST).or_else(|| downstream.server_name().map(|name| &**name));
    let port = state(PORT).and_then(|port| port.parse().ok()).filter(|port| *port != 0);
    let host = host.filter(|host| !host.is_empty())?;
    Some(with_port(host, port.unwrap_or(default_port)))
}

/// Objects of the filter state that say where a stream wants to go.
const HOST: &str = "envoy.upstream.dynamic_host";
const PORT: &str = "envoy.upstream.dynamic_port";

/// What is said of a name that has no address.
fn unresolved(fault: NameFault) -> Reply {
    let mut reply = Reply::new(503, b"DNS resolution failure", fault.details());
    reply.flags.set(Flags::DNS_RESOLUTION_FAILED);
    reply
}

/// What is said where there are too many names.
fn full() -> Reply {
    Reply::new(503, b"DNS cache overflow", FULL)
}

/// What is said where too many requests wait.
fn overflow() -> Reply {
    let details = "dynamic_forward_proxy_pending_request_overflow";
    Reply::new(503, b"Dynamic forward proxy pending request overflow", details)
}

/// `%RESPONSE_CODE_DETAILS%` where there are too many names.
const FULL: &str = "dns_cache_overflow";
/// The same of a request that is on its way to its cluster, where too many wait.
const OVERFLOW: &str = "dns_cache_pending_requests_overflow";
