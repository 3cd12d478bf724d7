//! What streams hold: content that is kept for another attempt or collected, what waits for a window, and what waits to
//! leave their connections. Nothing is counted on a request's way: it is looked at when an overload manager that
//! resets streams asks.

use std::cmp::Reverse;

use towpath_proto::Instant;

use crate::conn::Connection;
use crate::conn::mux::Mux;
use crate::exchange::Exchange;
use crate::exchange::stream::{Stream, UpstreamState};
use crate::ids::{Kind, Leg, StreamIndex};
use crate::record::{Flags, details};
use crate::snapshot::overload::Track;

/// How many streams of a worker are reset at once, as in Envoy.
const MOST_AT_ONCE: usize = 50;

impl Exchange {
    /// Shows what is held, and resets the streams that hold most, if that is wanted: `level` says how much.
    #[cold]
    pub(super) fn look_at_memory(&mut self, level: Option<f64>, now: Instant) {
        let Some(overload) = &self.env.overload else { return };
        let Some(stats) = overload.high_memory.clone() else { return };
        let track = overload.track();
        stats.held_bytes.set(self.held_bytes());
        let Some(level) = level else { return };
        let lowest = Track::lowest(level);
        let count = self.reset_waiting_answers(track, lowest, now);
        stats.count.add(count as u64);
        let streams = self.largest(track, lowest);
        for (index, serial) in streams.into_iter().take(MOST_AT_ONCE - count) {
            if self.streams.get(index).is_none_or(|stream| stream.serial != serial) {
                continue;
            }
            stats.count.inc();
            if let Some(stream) = self.streams.get_mut(index) {
                stream.flags.set(Flags::OVERLOAD_MANAGER);
            }
            self.abandon(index, details::OVERLOAD, now);
        }
        stats.held_bytes.set(self.held_bytes());
    }

    /// Ends answers that wait for their clients' windows and whose streams are over otherwise: nothing will be logged
    /// of it. How many, which is no more than are reset at once.
    fn reset_waiting_answers(&mut self, track: Track, lowest: u32, now: Instant) -> usize {
        let is_large = |held: usize| track.class(held as u64).is_some_and(|class| class >= lowest);
        let waits = |it: &Connection| it.downstream().is_some() && it.mux.has_unsent();
        let connections = self.conns.table.slots.iter().flatten().filter(|it| waits(it));
        let ids: Vec<_> = connections.map(|connection| connection.id).collect();
        let mut count = 0;
        for id in ids {
            self.conns.encode_for(id, &mut self.env);
            let Some(connection) = self.conns.table.get_mut(id) else { continue };
            let Mux::Http2(http2) = &mut connection.mux else { continue };
            let most = MOST_AT_ONCE - count;
            count += http2.reset_released(most, is_large, &mut self.conns.out);
            self.end_if_through(id, now);
        }
        count
    }

    /// Clients' requests of these classes, with their serial numbers: those that hold most, first.
    fn largest(&self, track: Track, lowest: u32) -> Vec<(StreamIndex, u64)> {
        let mut found = Vec::new();
        for (slot, stream) in (0..).zip(&self.streams.slots) {
            let Some(stream) = stream.as_deref().filter(|it| matches!(it.kind, Kind::Http(_)))
            else {
                continue;
            };
            let held = self.held_for(stream);
            if let Some(class) = track.class(held).filter(|class| *class >= lowest) {
                found.push((Reverse((class, held)), StreamIndex(slot), stream.serial));
            }
        }
        found.sort_unstable_by_key(|(class, ..)| *class);
        found.into_iter().map(|(_, index, serial)| (index, serial)).collect()
    }

    /// What one stream holds, with its share of what its connections do.
    fn held_for(&self, stream: &Stream) -> u64 {
        let upstream = match stream.upstream {
            UpstreamState::Active(leg) => Some(leg),
            UpstreamState::None | UpstreamState::Pending(_) | UpstreamState::BackingOff => None,
        };
        let legs = [Some(stream.downstream), upstream].into_iter().flatten();
        let on_legs: usize = legs
            .filter_map(|Leg { connection, number }| {
                let connection = self.conns.table.get(connection)?;
                let streams = connection.streams.len().max(1) as usize;
                Some(connection.queued(number) + connection.held() / streams)
            })
            .sum();
        (stream.held() + on_legs) as u64
    }

    /// What all streams and connections hold.
    fn held_bytes(&self) -> u64 {
        let streams = self.streams.slots.iter().flatten().map(|stream| stream.held());
        let connections =
            self.conns.table.slots.iter().flatten().map(|it| it.held() + it.all_queued());
        streams.chain(connections).sum::<usize>() as u64
    }
}

impl Stream {
    /// Bytes that are kept of it beside its connections'.
    fn held(&self) -> usize {
        self.body.len() + self.filters.as_ref().map_or(0, |filters| filters.held())
    }
}

impl Connection {
    /// Bytes that wait to leave, and what has come and is not parsed.
    fn held(&self) -> usize {
        self.outstanding + self.mux.buffered()
    }

    /// Bytes of one stream that wait for a window.
    fn queued(&self, number: u32) -> usize {
        if let Mux::Http2(http2) = &self.mux { http2.queued(number) } else { 0 }
    }

    /// Bytes of all streams that wait for a window.
    fn all_queued(&self) -> usize {
        if let Mux::Http2(http2) = &self.mux { http2.all_queued() } else { 0 }
    }
}
