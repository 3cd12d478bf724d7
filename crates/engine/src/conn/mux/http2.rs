//! HTTP/2 towards either: the codec, and what is counted of it.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "errors are many: few of them have a counter of their own"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_proto::head::HeadPool;
use towpath_proto::http2::{self, Code, Connection, Error};
use towpath_proto::{Instant, Out};
use towpath_trace::Track;

use super::{Arrival, Liveness, ONLY, Part};
use crate::snapshot::Http2 as Config;
use crate::stats::Http2Stats;

/// A connection that speaks HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2 {
    connection: Connection,
    stats: Arc<Http2Stats>,
    /// What a stream is told that is ended in the middle.
    code: Code,
    /// Streams under way, as they are counted.
    active: u32,
    /// Answers that are over for us, and wait for windows.
    flushing: Vec<Flushing>,
    /// When the peer was told that it should go elsewhere.
    told: Option<Instant>,
    /// Bytes received when it was last looked at.
    seen: u64,
    /// It was quiet then, and asked for a sign of life.
    asked: bool,
    /// How many streams such a server takes at once, until it says so itself.
    usual: u32,
}

/// An answer that is over for us and has not left yet.
#[derive(Clone, Copy, Debug)]
struct Flushing {
    number: u32,
    since: Instant,
    /// How long its client may take for it.
    whole: Duration,
}

impl Http2 {
    /// Towards a client.
    pub(crate) fn server(config: &Config, stats: Arc<Http2Stats>) -> Self {
        let connection = Connection::server(Arc::clone(&config.options));
        Self::new(connection, stats, Code::INTERNAL_ERROR)
    }

    /// Towards a server.
    pub(crate) fn client(config: &Config, stats: Arc<Http2Stats>) -> Self {
        let connection = Connection::client(Arc::clone(&config.options));
        Self::new(connection, stats, Code::CANCEL)
    }

    fn new(connection: Connection, stats: Arc<Http2Stats>, code: Code) -> Self {
        Self {
            connection,
            stats,
            code,
            active: 0,
            flushing: Vec::new(),
            told: None,
            seen: 0,
            asked: false,
            usual: u32::MAX,
        }
    }

    /// Shows its frames on a track.
    pub(crate) fn show_on(&mut self, track: Track, number: u64) {
        self.connection.show_on(track, number);
    }

    pub(crate) fn receive(&mut self, chunk: Bytes) {
        self.connection.receive(chunk);
    }

    /// What arrived next, and the number of its stream.
    pub(crate) fn poll(&mut self, heads: &mut HeadPool) -> Result<Option<(u32, Arrival)>, Error> {
        let polled = self.connection.poll(heads).inspect_err(|error| self.stats.count(*error))?;
        let Some((number, arrival)) = polled else {
            let unread = self.connection.take_unread();
            return Ok(unread.map(|unread| (ONLY, Arrival::Unread(unread))));
        };
        let arrival = match arrival {
            http2::Arrival::Part(event) => {
                if self.code == Code::INTERNAL_ERROR
                    && matches!(event, towpath_proto::Event::Head { .. })
                {
                    self.begin();
                }
                Arrival::Part(event)
            }
            http2::Arrival::Reset(code) => Arrival::Reset { no_error: code == Code::NO_ERROR },
            http2::Arrival::Refused => Arrival::Refused,
        };
        Ok(Some((number, arrival)))
    }

    /// After a piece of a body: whether it was the last, so that no end follows.
    pub(crate) fn take_end(&mut self) -> bool {
        self.connection.take_end()
    }

    fn begin(&mut self) {
        self.active += 1;
        self.stats.streams_active.inc();
    }

    /// Takes a part of a message. Bodies leave with [`Http2::flush`].
    pub(crate) fn send(&mut self, number: u32, part: Part<'_>, out: &mut Out) {
        match part {
            Part::Head(head, end) => self.connection.send_head(number, head, end, out),
            Part::Interim(head) => self.connection.send_informational(number, head, out),
            Part::Data(data) => self.connection.send_data(number, data),
            Part::Trailers(trailers) => self.connection.write_trailers(number, trailers, out),
            Part::End => self.connection.send_end(number),
        }
    }

    pub(crate) fn open(&mut self) -> Option<u32> {
        let number = self.connection.open()?;
        self.begin();
        Some(number)
    }

    /// A stream is over for us. What waits of an answer still goes out.
    pub(crate) fn release(&mut self, number: u32) {
        self.connection.release(number);
        if self.active > 0 {
            self.active -= 1;
            self.stats.streams_active.dec();
        }
    }

    /// RST_STREAM frames since frames were last handed out.
    pub(crate) fn resets_sent(&self) -> u32 {
        self.connection.resets_sent()
    }

    pub(crate) fn reset(&mut self, number: u32) {
        // RFC 9113 §8.5: what goes wrong behind a tunnel. Envoy says the same of any of its own resets.
        let is_broken = self.code == Code::INTERNAL_ERROR && self.connection.is_tunnel(number);
        let code = if is_broken { Code::CONNECT_ERROR } else { self.code };
        self.connection.reset(number, code);
    }

    /// Whether a server takes extended CONNECT; unknown until its SETTINGS have come.
    pub(crate) fn takes_upgrades(&self) -> Option<bool> {
        self.connection.is_open().then(|| self.connection.takes_extended_connect())
    }

    /// An answer that is over for us is to leave within so long, if it has not left.
    pub(crate) fn flush_within(&mut self, number: u32, whole: Duration, now: Instant) {
        if self.connection.is_released(number) {
            self.flushing.push(Flushing { number, since: now, whole });
        }
    }

    /// When the first of these answers is given up, after what `left` leaves of its time.
    pub(crate) fn flush_due(&self, left: impl Fn(Duration) -> Duration) -> Option<Instant> {
        self.flushing.iter().map(|it| it.since + left(it.whole)).min()
    }

    /// Gives up the answers that have had their time.
    pub(crate) fn reset_overdue(
        &mut self,
        left: impl Fn(Duration) -> Duration,
        now: Instant,
        out: &mut Out,
    ) {
        let is_over = |it: &mut Flushing| it.since + left(it.whole) <= now;
        for Flushing { number, .. } in self.flushing.extract_if(.., is_over) {
            if self.connection.give_up(number, self.code) {
                self.stats.tx_flush_timeout.inc();
            }
        }
        self.flush(out);
    }

    /// Ends answers that wait for windows and hold so much that they are `wanted`; no more than `most`. How many.
    pub(crate) fn reset_released(
        &mut self,
        most: usize,
        wanted: impl Fn(usize) -> bool,
        out: &mut Out,
    ) -> usize {
        let count = self.connection.reset_released(self.code, most, wanted);
        self.flush(out);
        count
    }

    pub(crate) fn take_unread(&mut self) -> Option<http2::Unread> {
        self.connection.take_unread()
    }

    pub(crate) fn rest(&mut self) {
        self.connection.rest();
    }

    pub(crate) fn is_amid_head(&self) -> bool {
        self.connection.is_amid_head()
    }

    pub(crate) fn lose(&mut self) {
        self.connection.lose();
    }

    pub(crate) fn widen(&mut self, stream_window: u32) {
        self.connection.widen(stream_window);
    }

    pub(crate) fn consumed(&mut self, number: u32) {
        self.connection.consumed(number);
    }

    /// Writes all that can leave.
    pub(crate) fn flush(&mut self, out: &mut Out) {
        self.connection.flush(out);
        if !self.flushing.is_empty() {
            self.flushing.retain(|it| self.connection.is_released(it.number));
        }
        let counts = self.connection.take_counts();
        if counts != http2::Counts::default() {
            self.stats.add(&counts);
        }
    }

    /// Whether there is nothing to flush.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connection.is_quiet()
    }

    pub(crate) fn take_opened(&mut self) -> Vec<u32> {
        self.connection.take_opened()
    }

    pub(crate) fn sent(&mut self, outstanding: usize) {
        self.connection.sent(outstanding);
    }

    /// Tells a client to send further requests elsewhere; false if it was told before.
    pub(crate) fn go_away(&mut self, now: Instant, out: &mut Out) -> bool {
        let told = self.connection.go_away_soon();
        if told {
            self.told = Some(now);
            self.flush(out);
        }
        told
    }

    /// Says that no further stream is taken: the connection ends.
    pub(crate) fn leave(&mut self, out: &mut Out) {
        self.connection.go_away(Code::NO_ERROR);
        self.flush(out);
    }

    /// Whether a client that was told has had the time to hear it.
    pub(crate) fn had_notice(&self, now: Instant) -> bool {
        self.connection.has_gone_away() || self.told.is_some_and(|told| now >= told + NOTICE)
    }

    /// Looks for a sign of life since the last look.
    pub(crate) fn check_liveness(&mut self, received: u64) -> Liveness {
        if received > std::mem::replace(&mut self.seen, received) {
            self.asked = false;
            return Liveness::Alive;
        }
        if std::mem::replace(&mut self.asked, true) {
            self.stats.keepalive_timeout.inc();
            return Liveness::Dead;
        }
        Liveness::Ask { missed: false }
    }

    /// Asks for a sign of life, unless it was asked and nothing has come since; whether it did.
    pub(crate) fn ask_ahead(&mut self, received: u64, out: &mut Out) -> bool {
        let has_heard = std::mem::replace(&mut self.seen, received) != received;
        if std::mem::replace(&mut self.asked, true) && !has_heard {
            return false;
        }
        self.ask(out);
        true
    }

    /// Asks for a sign of life.
    pub(crate) fn ask(&mut self, out: &mut Out) {
        self.connection.ask();
        self.flush(out);
    }

    pub(crate) fn capacity(&self) -> u32 {
        let capacity = self.connection.capacity();
        if self.connection.is_open() {
            return capacity;
        }
        let under_way = u32::try_from(self.connection.streams()).unwrap_or(u32::MAX);
        capacity.min(self.usual.saturating_sub(under_way))
    }

    /// Another connection to the same server took so many streams at once: what would be refused is not begun.
    pub(crate) fn expect_capacity(&mut self, usual: u32) {
        self.usual = usual.max(1);
    }

    /// How many bytes the frames were of the head that was read last, and its fields before they were compressed.
    pub(crate) fn head_read(&self) -> (usize, usize) {
        self.connection.head_read()
    }

    /// How many bytes the frames were of the head that was written last.
    pub(crate) fn head_written(&self) -> usize {
        self.connection.head_written()
    }

    /// GOAWAY frames that came.
    pub(crate) fn goaways_received(&self) -> u32 {
        self.connection.goaways_received()
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.connection.is_exhausted()
    }

    pub(crate) fn writable(&self, number: u32) -> usize {
        self.connection.writable(number)
    }

    pub(crate) fn buffered(&self) -> usize {
        self.connection.buffered()
    }

    /// Bytes of a stream that wait for a window.
    pub(crate) fn queued(&self, number: u32) -> usize {
        self.connection.queued(number)
    }

    /// The same of all streams.
    pub(crate) fn all_queued(&self) -> usize {
        self.connection.all_queued()
    }

    /// Whether answers wait for windows whose streams are over otherwise.
    pub(crate) fn has_unsent(&self) -> bool {
        self.connection.streams() > self.active as usize
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.stats.streams_active.sub(self.active.into());
    }
}

impl Http2Stats {
    fn add(&self, counts: &http2::Counts) {
        self.rx_reset.add(counts.resets_received.into());
        self.tx_reset.add(counts.resets_sent.into());
        self.header_overflow.add(counts.header_overflows.into());
        self.header_list_size_too_large.add(counts.heads_too_large.into());
        self.rx_messaging_error.add(counts.malformed.into());
        self.trailers.add(counts.trailers.into());
        self.goaway_sent.add(counts.goaways_sent.into());
        self.stream_refused_errors.add(counts.refused.into());
    }

    /// Counts why a connection is over.
    fn count(&self, error: Error) {
        match error {
            Error::EmptyFrames => self.inbound_empty_frames_flood.inc(),
            Error::PriorityFrames => self.inbound_priority_frames_flood.inc(),
            Error::WindowUpdates => self.inbound_window_update_frames_flood.inc(),
            Error::OutboundFrames => self.outbound_flood.inc(),
            Error::OutboundControlFrames => self.outbound_control_flood.inc(),
            Error::BlockTooLarge => self.header_overflow.inc(),
            _ => {}
        }
    }
}

/// How long a client has for the streams that it began before it knew.
const NOTICE: Duration = Duration::from_secs(1);
