//! Requests that wait for an origin: what is found out about it, and what that means for them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use towpath_proto::proxy::Refusal;
use towpath_proto::{AttemptId, Close, Failure, Instant, QueryId};

use crate::client::race::{Outlook, Race};
use crate::env::TimerSlot;
use crate::exchange::Exchange;
use crate::exchange::stream::UpstreamState;
use crate::ids::{PoolKey, ResetReason};
use crate::local::StandbyReason;
use crate::local::message::{Error, NetworkChange, Options, Origin, Proxy, ProxyProtocol};
use crate::local::origin::{
    ASK_AGAIN, LEAST_FRESH, LONGEST_DENIAL, MOST_ADDRESSES, MOST_FRESH, MOST_ORIGINS, Names,
    OriginState,
};
use crate::local::report::{Answerer, AttemptOutcome};
use crate::snapshot::ClusterId;

impl Exchange {
    /// The cluster of an origin, made if need be; `None` when there are too many that are in use.
    pub(crate) fn origin(
        &mut self,
        key: &Origin,
        options: &Options,
        now: Instant,
    ) -> Option<ClusterId> {
        let dialled = options
            .proxy
            .as_ref()
            .map_or_else(|| key.clone(), |proxy| proxy.dialled(key.transport));
        let forwards = |proxy: &&Arc<Proxy>| proxy.protocol == ProxyProtocol::Forward;
        // A proxy that forwards is like an origin.
        let (key, proxy) = match options.proxy.as_ref() {
            proxy if proxy.as_ref().is_some_and(forwards) => (&dialled, None),
            proxy => (key, proxy),
        };
        let http = options.http;
        let name = (key.clone(), http, proxy.cloned());
        if let Some(id) = self.upstreams.app.names.get(&name) {
            return Some(*id);
        }
        if self.upstreams.app.origins.len() >= MOST_ORIGINS && !self.forget_origin(now) {
            return None;
        }
        let clock = &self.conns.handshakes.clock;
        let tunnel = match proxy {
            Some(proxy) => Some(Box::new(self.upstreams.app.tunnel(key, proxy, clock)?)),
            None => None,
        };
        let id = self.upstreams.add_cluster(
            self.upstreams.app.origin_cluster(key, http),
            &mut self.conns,
            &mut self.env,
            now,
        );
        let mut race = Race::new(self.upstreams.app.settings.race);
        race.set_online(self.upstreams.app.reaches(&dialled));
        self.upstreams.app.names.insert(name, id);
        let state = OriginState { tunnel, ..OriginState::new(&dialled, race) };
        self.upstreams.app.origins.insert(id, state);
        self.upstreams.app.recall_addresses(id, now);
        Some(id)
    }

    /// Makes room for an origin: one that nothing hangs on is forgotten.
    pub(crate) fn forget_origin(&mut self, now: Instant) -> bool {
        let unused = self.upstreams.app.origins.iter().find(|(id, origin)| {
            let pool = self.upstreams.clusters.pool(PoolKey { cluster: **id, pool: 0 });
            let is_free = pool.is_none_or(|pool| pool.connections == 0 && pool.pending.is_empty());
            is_free && origin.race.running() == 0 && !self.is_asked(**id)
        });
        let Some(id) = unused.map(|(id, _)| *id) else { return false };
        self.upstreams.app.names.retain(|_, named| *named != id);
        self.upstreams.app.origins.remove(&id);
        self.upstreams.app.queries.retain(|_, asked| *asked != id);
        self.env.timers.clear(TimerSlot::Cluster(id.0).number());
        self.retire_cluster(id, now);
        true
    }

    /// An attempt came to nothing.
    pub(crate) fn on_race_lost(
        &mut self,
        id: ClusterId,
        attempt: AttemptId,
        reason: ResetReason,
        now: Instant,
    ) {
        let Some(origin) = self.upstreams.app.origins.get_mut(&id) else { return };
        let refusal = origin.tunnel.as_mut().and_then(|tunnel| tunnel.refused.take());
        // A handshake that fails is an answer: the same peer will answer the same.
        let (failure, outcome, error) = if let ResetReason::Tls(fault) = reason {
            (Failure::Denied, AttemptOutcome::Tls(fault), Some(Error::Tls(fault)))
        } else if let Some(refusal) = refusal {
            (of_refusal(refusal), AttemptOutcome::Proxy(refusal), Some(Error::Proxy(refusal)))
        } else {
            let failure = reason.failure();
            (failure, AttemptOutcome::Failed(failure), None)
        };
        origin.note_end(attempt.0, outcome, now);
        let took = origin.took(attempt.0);
        if let Some(address) = origin.race.failed(attempt.0, failure, now)
            && !is_ours(reason, took)
            && !refusal.is_some_and(speaks)
        {
            self.upstreams.app.memory.failed(address, now);
        }
        if failure == Failure::Exhausted {
            self.upstreams.close_oldest_idle(&mut self.conns, &mut self.env, now);
        }
        self.fail_if_refused(id, error, now);
        self.upstreams.advance_origin(id, &mut self.conns, &mut self.env, now);
    }

    /// Ends the wait where all addresses have refused, unless others may be on their way: old answers are not the last
    /// word.
    pub(crate) fn fail_if_refused(&mut self, id: ClusterId, error: Option<Error>, now: Instant) {
        let Some(origin) = self.upstreams.app.origins.get(&id) else { return };
        let asks = match origin.names {
            Names::Name { asking, .. } => asking.is_some(),
            Names::Literal => false,
        };
        match origin.race.outlook() {
            Outlook::Refused(failure) if !asks => {
                let error = error.unwrap_or(Error::Connect(failure));
                self.fail_waiting_calls(id, error, now);
            }
            Outlook::Refused(_) | Outlook::Open => {}
        }
    }

    /// No request that waits for this origin can be helped.
    pub(crate) fn fail_waiting_calls(&mut self, id: ClusterId, error: Error, now: Instant) {
        for index in self.upstreams.waiting_for(id) {
            match self.streams.get(index).map(|stream| stream.upstream) {
                // It is on a connection that may still answer.
                Some(UpstreamState::Active(_)) => self.withdraw_standby(index),
                Some(UpstreamState::Pending(_)) => self.fail_call(index, error, now),
                Some(UpstreamState::None | UpstreamState::BackingOff) | None => {}
            }
        }
    }

    /// The resolver answered.
    pub(crate) fn on_resolved(
        &mut self,
        query: QueryId,
        outcome: Result<Vec<IpAddr>, Failure>,
        lifetime: Option<Duration>,
        by: Answerer,
        now: Instant,
    ) {
        if self.upstreams.app.on_find_resolved(query, &outcome, &mut self.env, now) {
            return;
        }
        let Some(id) = self.upstreams.app.queries.remove(&query) else { return };
        let Some(origin) = self.upstreams.app.origins.get_mut(&id) else { return };
        let outcome = match outcome {
            Ok(found) if found.is_empty() => Err(Failure::NoSuchName),
            Ok(mut found) => {
                found.truncate(MOST_ADDRESSES);
                Ok(found)
            }
            Err(failure) => Err(failure),
        };
        if let Some(lookup) = origin.lookups.back_mut() {
            lookup.answered = Some(now);
            lookup.outcome = Some(outcome.as_ref().map(Vec::len).map_err(|failure| *failure));
            lookup.by = by;
        }
        match outcome {
            Ok(found) => {
                origin.take_addresses(&found);
                let network = self.upstreams.app.memory.network();
                self.upstreams.app.answers.learn(network, &origin.key.host, &found, now);
                let fresh_for = self.upstreams.app.settings.fresh_for;
                let fresh =
                    now + lifetime.map_or(fresh_for, |it| it.clamp(LEAST_FRESH, MOST_FRESH));
                let (asking, again) = (None, Instant::ZERO);
                let fresh = Some(fresh);
                origin.names = Names::Name { fresh, asking, again, is_denied: false };
                self.upstreams.app.order_candidates(id, now);
                self.share_with_waiting(id, now);
            }
            Err(failure) => {
                let unknown = origin.addresses.is_empty();
                let denied = lifetime.filter(|_| failure == Failure::NoSuchName);
                let pause = denied.map_or(ASK_AGAIN, |it| it.clamp(ASK_AGAIN, LONGEST_DENIAL));
                let again = now + pause;
                let is_denied = denied.is_some();
                origin.names = Names::Name { fresh: None, asking: None, again, is_denied };
                // A name that does not exist is an answer; a resolver that cannot be reached may be later.
                let is_final = matches!(by, Answerer::Https(Some(fault)) if fault.is_final());
                if unknown && (failure == Failure::NoSuchName || is_final) {
                    self.fail_waiting_calls(id, Error::Resolve(failure), now);
                }
            }
        }
        self.fail_if_refused(id, None, now);
        self.upstreams.advance_origin(id, &mut self.conns, &mut self.env, now);
    }

    /// The platform says what has become of the network.
    pub(crate) fn on_network_change(&mut self, change: NetworkChange, now: Instant) {
        let same = **self.upstreams.app.memory.network() == *change.label;
        if same {
            self.upstreams.app.memory.forgive();
        } else {
            self.upstreams.app.memory.set_network(&change.label);
        }
        self.upstreams.app.kind = change.kind;
        self.upstreams.app.online = change.online;
        self.upstreams.app.spares_loopback = change.spares_loopback;
        let mut ids: Vec<ClusterId> = self.upstreams.app.origins.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if self.upstreams.keep_exempt_origin(id, &mut self.conns, &mut self.env, now) {
                continue;
            }
            if let Some(origin) = self.upstreams.app.origins.get_mut(&id) {
                origin.race.set_online(change.online);
                if let Names::Name { fresh, again, is_denied, .. } = &mut origin.names {
                    (*fresh, *again, *is_denied) = (None, Instant::ZERO, false);
                }
            }
            self.upstreams.app.recall_addresses(id, now);
            if !change.online {
                self.fail_calls_that_do_not_wait(id, now);
            }
            self.drain_origin(id, now);
            self.upstreams.app.order_candidates(id, now);
            self.upstreams.advance_origin(id, &mut self.conns, &mut self.env, now);
        }
    }

    pub(crate) fn fail_calls_that_do_not_wait(&mut self, id: ClusterId, now: Instant) {
        for index in self.upstreams.waiting_for(id) {
            let waits = self.call(index).is_some_and(|call| call.options.waits);
            let is_pending = self
                .streams
                .get(index)
                .is_some_and(|stream| matches!(stream.upstream, UpstreamState::Pending(_)));
            if is_pending && !waits {
                self.fail_call(index, Error::Offline, now);
            }
        }
    }

    /// Connections of the network before are not used for anything new; what is on them may finish, or move to a
    /// connection of the new one, whichever is first.
    pub(crate) fn drain_origin(&mut self, id: ClusterId, now: Instant) {
        for connection in self.conns.table.ids() {
            let Some(state) = self.conns.table.get_mut(connection) else { continue };
            let streams = state.streams.all();
            let Some(upstream) = state.upstream_mut() else { continue };
            if upstream.pool_key.cluster != id {
                continue;
            }
            upstream.retired = true;
            if streams.is_empty() {
                let Self { upstreams, conns, env, .. } = self;
                upstreams.close_upstream(connection, Close::Flush, conns, env, now);
            }
            self.move_streams(connection, StandbyReason::Stuck, now);
        }
    }
}

/// Whether an attempt failed of this device, not of the address: our own kernel refuses at once, without a packet
/// sent.
fn is_ours(reason: ResetReason, took: Option<Duration>) -> bool {
    let ResetReason::Connect(failure) = reason else { return false };
    match failure {
        Failure::Exhausted | Failure::AddressInUse | Failure::AddressNotAvailable => true,
        Failure::Unreachable | Failure::Denied => took.is_some_and(|took| took < ASKED),
        Failure::Refused
        | Failure::Reset
        | Failure::TimedOut
        | Failure::NoSuchName
        | Failure::Unsupported
        | Failure::SocketOption { .. }
        | Failure::Os(_)
        | _ => false,
    }
}

/// What a proxy's refusal says of waiting: where the origin cannot be reached from there, it may be later.
const fn of_refusal(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Ended => Failure::Reset,
        Refusal::Status(504) | Refusal::Socks(3 | 4 | 6) => Failure::Unreachable,
        Refusal::Status(_)
        | Refusal::Socks(_)
        | Refusal::Credentials
        | Refusal::Malformed
        | Refusal::Tls(_)
        | Refusal::TooLong
        | _ => Failure::Denied,
    }
}

/// Whether a proxy that refuses speaks its protocol, so that its address is not to blame.
const fn speaks(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::Status(_) | Refusal::Socks(_) | Refusal::Credentials)
}

/// Less than a round trip to any server.
const ASKED: Duration = Duration::from_millis(1);
