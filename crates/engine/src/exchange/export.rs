//! Messages of this program for servers: each a request, or one of a call that goes on.
//!
//! Arrives: a message of the control thread, or entries of a log. Leaves: pieces of a callout's request. A server that
//! takes nothing holds up no more than a window; what comes then is dropped, and counted.

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::Instant;

use crate::exchange::Exchange;
use crate::exchange::callout::Asker;
use crate::exchange::forward::{Item, keep};
use crate::exchange::stream::UpstreamState;
use crate::filter::{Answer, Failed};
use crate::free_slot;
use crate::snapshot::export::Exporter;
use crate::stats::{ExportStats, Registry, Scope};
use crate::tracer::report::{framed, is_taken, request};

/// The servers that are told something for the control thread.
#[derive(Debug, Default)]
pub(crate) struct Exports(Vec<Option<Export>>);

#[derive(Debug)]
struct Export {
    to: Arc<Exporter>,
    stats: Arc<ExportStats>,
    /// The call that goes on.
    call: Option<u64>,
    /// Bytes of requests that are on their way.
    held: usize,
}

impl Exports {
    fn place(&mut self, to: &Arc<Exporter>, registry: &Registry, worker: u32) -> usize {
        let is_of = |slot: &Option<Export>| slot.as_ref().is_some_and(|it| Arc::ptr_eq(&it.to, to));
        if let Some(at) = self.0.iter().position(is_of) {
            return at;
        }
        let stats = registry.set(worker, Scope::Exports);
        let fresh = Export { to: Arc::clone(to), stats, call: None, held: 0 };
        free_slot::put(&mut self.0, fresh)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut Export> {
        self.0.get_mut(at)?.as_mut()
    }

    /// The calls that go on.
    pub(crate) fn calls(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flatten().filter_map(|it| it.call)
    }
}

impl Exchange {
    /// Tells a server something.
    pub(crate) fn export(&mut self, to: &Arc<Exporter>, message: &Bytes, now: Instant) {
        let at = self.exports.place(to, &self.env.registry, self.env.index);
        let Some(export) = self.exports.get_mut(at) else { return };
        let (stats, call) = (Arc::clone(&export.stats), export.call);
        if let Some(call) = call {
            let is_sent = self.send_message(call, framed(message), now);
            let counter = if is_sent { &stats.messages_sent } else { &stats.messages_dropped };
            return counter.inc();
        }
        if export.held >= MOST_BYTES {
            return stats.messages_dropped.inc();
        }
        let kind = b"application/x-protobuf";
        match &to.opening {
            Some(opening) => {
                let first = [opening, &message[..]].concat();
                let callout = request(&to.collector, kind, first, &mut self.env.scratch);
                let call = self.begin_call(Asker::Exporter { at, bytes: 0 }, callout, now);
                let goes_on = self.callouts.stream_of(call).is_some();
                if goes_on { &stats.messages_sent } else { &stats.messages_dropped }.inc();
                if let Some(export) = self.exports.get_mut(at) {
                    export.call = Some(call);
                }
            }
            None => {
                let bytes = message.len();
                export.held += bytes;
                let callout = request(&to.collector, kind, message.to_vec(), &mut self.env.scratch);
                self.call_out(Asker::Exporter { at, bytes }, callout, now);
            }
        }
    }

    /// A request is answered, or a call is over.
    pub(crate) fn end_export(&mut self, at: usize, bytes: usize, answer: &Answer) {
        let Some(export) = self.exports.get_mut(at) else { return };
        if export.to.opening.is_some() {
            // Another one may go on already.
            export.call.take_if(|call| self.callouts.stream_of(*call).is_none());
            return;
        }
        export.held = export.held.saturating_sub(bytes);
        let stats = &export.stats;
        let is_taken = is_taken(answer, export.to.collector.is_grpc);
        if is_taken { &stats.messages_sent } else { &stats.messages_dropped }.inc();
    }

    /// Sends another message of a call that goes on. False if there is no room for it.
    pub(crate) fn send_message(&mut self, serial: u64, message: Bytes, now: Instant) -> bool {
        self.has_room_for_message(serial) && self.say(serial, message, now)
    }

    /// The same whether there is room for it or not. False if the call is over.
    pub(crate) fn say(&mut self, serial: u64, message: Bytes, now: Instant) -> bool {
        let Some(stream) = self.callouts.stream_of(serial).and_then(|it| self.streams.get_mut(it))
        else {
            return false;
        };
        match stream.upstream {
            UpstreamState::Active(leg) => {
                let length = message.len() as u64;
                stream.recorder.note(|record| record.upstream_bytes_sent += length);
                let item = Item::Data(message);
                // Without it the call is not the same, and is not tried again.
                keep(stream, &item, false);
                self.write(leg, item, now);
            }
            UpstreamState::None | UpstreamState::Pending(_) | UpstreamState::BackingOff => {
                stream.body.push(message);
            }
        }
        true
    }

    /// Whether a call that goes on takes another message.
    pub(crate) fn has_room_for_message(&self, serial: u64) -> bool {
        let stream = self.callouts.stream_of(serial).and_then(|index| self.streams.get(index));
        stream.is_some_and(|stream| match stream.upstream {
            UpstreamState::Active(leg) => self.conns.has_room(leg),
            UpstreamState::None | UpstreamState::Pending(_) | UpstreamState::BackingOff => {
                stream.body.len() < MOST_BYTES
            }
        })
    }

    /// Ends calls to clusters that are gone: what is said next begins another one.
    pub(crate) fn end_lost_calls(&mut self, now: Instant) {
        let exports = self.exports.calls().map(|serial| (serial, true));
        let calls: Vec<_> = exports.chain(self.env.logs.entries.calls()).collect();
        for (serial, is_wanted) in calls {
            let Some(index) = self.callouts.stream_of(serial) else { continue };
            let cluster = self.streams.get(index).map(|stream| stream.cluster);
            if !is_wanted
                || cluster.is_none_or(|cluster| {
                    self.snapshot.clusters.get(cluster.0 as usize).is_none_or(Option::is_none)
                })
            {
                self.fail_callout(index, Failed::NoCluster, now);
            }
        }
    }
}

/// Bytes that wait for a connection, or of requests that are on their way.
const MOST_BYTES: usize = 4 << 20;
