//! Tunnels through proxies, between a connect and the handshake with the origin.
//!
//! A connection to a proxy belongs to its attempt until its origin can be asked through it: the race, its limits on
//! time and its memory are those of any other attempt.

use towpath_proto::proxy::{Progress, Refusal};
use towpath_proto::tls::Offer;
use towpath_proto::{AttemptId, Close, ConnectionId, Failure, Instant, Output};

use crate::conn::tls::{Handshakes, OpeningTunnel, Reached, Secured};
use crate::exchange::Exchange;
use crate::ids::{Closer, Protocol, ResetReason};
use crate::local::origin::Tunnel;

impl Exchange {
    /// Asks for a tunnel on a connection that the driver has made; gives it back if its origin is reached without.
    pub(crate) fn begin_tunnel(
        &mut self,
        id: AttemptId,
        connection: ConnectionId,
        reached: Reached,
        now: Instant,
    ) -> Result<(), Reached> {
        let Some(attempt) = self.upstreams.attempts.get(id).filter(|one| one.target.is_some())
        else {
            return Err(reached);
        };
        let origin = self.upstreams.app.origins.get(&attempt.pool_key.cluster);
        let Some(tunnel) = origin.and_then(|origin| origin.tunnel.as_deref()) else {
            return Err(reached);
        };
        self.conns.handshakes.clock.set(self.env.clock.since_1970(now));
        let layer = tunnel.tls.as_ref().map(|(client, name)| {
            client
                .connect_offering(Offer::Otherwise(&[b"http/1.1"]), name)
                .map_err(Refusal::Tls)
                .map(Box::new)
        });
        let begun = tunnel.handshake().and_then(|handshake| Ok((handshake, layer.transpose()?)));
        self.upstreams.attempts.secure(id, connection);
        match begun {
            Err(refusal) => self.refuse_tunnel(id, connection, refusal, now),
            Ok((handshake, layer)) => {
                let Reached { local, connected, .. } = reached;
                let mut opening = OpeningTunnel {
                    attempt: id,
                    handshake,
                    layer,
                    local,
                    connected,
                    outstanding: 0,
                };
                let output = opening.take_output();
                opening.outstanding = output.len();
                self.conns.handshakes.tunnels.insert(connection, opening);
                self.conns.send_records(connection, output, &mut self.env);
            }
        }
        Ok(())
    }

    /// Bytes of a connection that is no other's: of a proxy perhaps.
    pub(crate) fn on_tunnel_received(&mut self, id: ConnectionId, chunk: &[u8], now: Instant) {
        let Handshakes { tunnels, plain, .. } = &mut self.conns.handshakes;
        let Some(opening) = tunnels.get_mut(&id) else { return };
        let progress = opening.receive(chunk, plain);
        let output = opening.take_output();
        opening.outstanding += output.len();
        self.conns.send_records(id, output, &mut self.env);
        match progress {
            Ok(Progress::Waiting) => {}
            Ok(Progress::Open(early)) => self.end_tunnel(id, early, now),
            Err(refusal) => self.fail_tunnel(id, refusal, now),
        }
    }

    /// The tunnel is there: the origin is next.
    fn end_tunnel(&mut self, id: ConnectionId, early: Vec<u8>, now: Instant) {
        let Some(opening) = self.conns.handshakes.tunnels.remove(&id) else { return };
        let OpeningTunnel { attempt, layer, local, connected, outstanding, .. } = opening;
        if let Some(tunnel) = self.tunnel_of(attempt) {
            tunnel.challenges.clear();
        }
        let Some(made) = self.upstreams.attempts.get(attempt) else { return };
        let key = made.pool_key;
        let Some(cluster) = self.upstreams.clusters.get(key.cluster) else { return };
        // A server that speaks before it is asked: under TLS it does not, over HTTP/1 it would answer a request that it
        // has not seen.
        let speaks_first =
            cluster.tls_of(key).is_none() && cluster.protocol(key, false, None) == Protocol::Http2;
        if !early.is_empty() && !speaks_first {
            return self.refuse_tunnel(attempt, id, Refusal::Malformed, now);
        }
        let reached = Reached { local, connected, outstanding, below: layer };
        if let Err(Reached { local, connected, outstanding, below }) =
            self.begin_handshake(attempt, id, reached, now)
        {
            let secured = below.map(|layer| Secured { layer, connected, outstanding, since: None });
            self.establish(attempt, id, local, secured, now);
            self.receive_plain(id, early.into(), now);
        }
    }

    /// The proxy, or its end, said that there will be no tunnel.
    pub(crate) fn fail_tunnel(&mut self, id: ConnectionId, refusal: Refusal, now: Instant) {
        let Some(opening) = self.conns.handshakes.tunnels.remove(&id) else { return };
        if let Some(tunnel) = self.tunnel_of(opening.attempt) {
            tunnel.challenges = opening.handshake.challenges().to_vec();
        }
        self.refuse_tunnel(opening.attempt, id, refusal, now);
    }

    fn refuse_tunnel(
        &mut self,
        attempt: AttemptId,
        id: ConnectionId,
        refusal: Refusal,
        now: Instant,
    ) {
        if let Some(tunnel) = self.tunnel_of(attempt) {
            tunnel.refused = Some(refusal);
        }
        // An alert goes out first. A connection that is gone already is closed once more, which does no harm.
        self.conns.push(Output::Close { connection: id, how: Close::Flush }, &mut self.env);
        self.fail_connect(attempt, Closer::Remote, ResetReason::Connect(Failure::Denied), now);
    }

    /// How the origin is reached that an attempt is for, where that is through a proxy.
    fn tunnel_of(&mut self, attempt: AttemptId) -> Option<&mut Tunnel> {
        let cluster = self.upstreams.attempts.get(attempt)?.pool_key.cluster;
        self.upstreams.app.origins.get_mut(&cluster)?.tunnel.as_deref_mut()
    }
}
