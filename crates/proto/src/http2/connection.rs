//! One connection of either role: what it is made of, and what its user asks of it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::Arrival;
use super::budget::Budget;
use super::error::{Code, Error};
use super::flow::{ReceiveWindow, SendWindow, StreamWindow};
use super::frame::{self, Kind, PREFACE};
use super::hpack::{Decoder, Encoder};
use super::input::Input;
use super::known::KnownBlock;
use super::options::Options;
use super::settings::{self, INITIAL_WINDOW, Settings};
use super::stream::{Gone, Progress, Stream, Streams};
use super::traces::Shown;

/// A connection with many streams.
///
/// Each stream has a small number ([`Connection::open`], [`Connection::poll`]) that is used again when the stream was
/// [released](Connection::release).
#[derive(Debug)]
pub struct Connection {
    pub(super) side: Side,
    pub(super) opening: Opening,
    pub(super) options: Arc<Options>,
    pub(super) input: Input,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    /// A header block whose end has not come.
    pub(super) block: Option<Box<Block>>,
    /// The DATA frame that is being received.
    pub(super) body: Option<Body>,
    pub(super) streams: Streams,
    /// What the peer has said about itself.
    pub(super) peer: Settings,
    /// The latest stream that the peer began (of a server), or we did.
    pub(super) last_id: u32,
    /// What arrived and was not reported yet.
    pub(super) events: VecDeque<(u32, Arrival)>,
    /// Frames that answer something, or say something about the connection; they leave before all others.
    pub(super) control: BytesMut,
    pub(super) send_window: SendWindow,
    pub(super) receive_window: ReceiveWindow,
    /// What each stream's window is to be: that of the options, or more.
    pub(super) stream_window: u32,
    /// Streams that have something to send, in turn.
    pub(super) ready: VecDeque<u32>,
    /// The stream whose turn the connection's window has cut short, and what is left of that.
    pub(super) cut: Option<(u32, u16)>,
    /// Streams that have room again.
    pub(super) opened: Vec<u32>,
    /// All may have, and something to send.
    pub(super) all_opened: bool,
    pub(super) all_ready: bool,
    /// No stream's window has grown beyond it.
    pub(super) widest: StreamWindow,
    pub(super) budget: Budget,
    pub(super) going: Going,
    /// Why the peer goes away, of the last GOAWAY that came.
    pub(super) peer_left: Option<Code>,
    /// GOAWAY frames that came.
    pub(super) goaways_received: u32,
    /// Frames of the header block that is read.
    pub(super) block_frames: u32,
    /// Blocks that came before: of heads, and of trailers.
    pub(super) known: [KnownBlock; 2],
    /// Bytes of the frames of the header block that was read last, and of its fields before they were compressed.
    pub(super) block_read: (usize, usize),
    /// Bytes of the frames of the header block that was written last.
    pub(super) block_written: usize,
    pub(super) failed: Option<Error>,
    pub(super) lost: bool,
    pub(super) ping: Ping,
    pub(super) counts: Counts,
    /// Requests that were refused while their heads were read, and of which nothing was told yet, by [`Unread`].
    pub(super) unread: [u32; 4],
    pub(super) shown: Shown,
}

/// Why a request was refused whose head was read: no stream begins with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The head is larger than [`Options::max_head_bytes`].
    TooLarge,
    /// It has more fields than [`Options::max_fields`].
    TooManyFields,
    /// It is malformed (RFC 9113 §8.1.1).
    Malformed,
    /// A name has an underscore, and [`Options::underscores`] refuses such.
    Underscore,
}

impl Unread {
    /// Envoy's words for it.
    #[must_use]
    pub const fn details(self) -> &'static str {
        match self {
            Self::TooLarge => "http2.header_list_size_too_large",
            Self::TooManyFields => "http2.too_many_headers",
            Self::Malformed => "http2.violation.of.messaging.rule",
            Self::Underscore => "http2.unexpected_underscore",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// What must come before everything else (RFC 9113 §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    Preface,
    Settings,
    Done,
}

/// A header block that is being received.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    pub(super) bytes: BytesMut,
    pub(super) frames: u32,
}

/// Where the content of a DATA frame goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) id: u32,
    pub(super) end_stream: bool,
}

/// How far going away is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    Not,
    /// We have said that we will; streams that are on their way are taken (RFC 9113 §6.8).
    Soon,
    /// We have said which is our last, or the peer has said which is its last.
    Last(u32),
}

/// A PING of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ping {
    None,
    /// Whether the peer is there.
    Asked,
}

/// What happened since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// RST_STREAM frames that came.
    pub resets_received: u32,
    /// RST_STREAM frames that were written.
    pub resets_sent: u32,
    /// Heads that had too many fields.
    pub header_overflows: u32,
    /// Heads that were too large.
    pub heads_too_large: u32,
    /// Messages that were malformed.
    pub malformed: u32,
    /// Trailer sections that came from a client.
    pub trailers: u32,
    /// GOAWAY frames that were written, but for the first of two (Envoy `goaway_sent`).
    pub goaways_sent: u32,
    /// Streams that were refused because there were too many.
    pub refused: u32,
}

impl Connection {
    /// Towards a client.
    #[must_use]
    pub fn server(options: Arc<Options>) -> Self {
        Self::new(Side::Server, options)
    }

    /// Towards a server.
    #[must_use]
    pub fn client(options: Arc<Options>) -> Self {
        Self::new(Side::Client, options)
    }

    fn new(side: Side, options: Arc<Options>) -> Self {
        let mut control = BytesMut::new();
        if side == Side::Client {
            control.extend_from_slice(PREFACE);
        }
        settings::put(&mut control, &options, side == Side::Server);
        let opening = match side {
            Side::Client => Opening::Settings,
            Side::Server => Opening::Preface,
        };
        let peer = Settings::default();
        Self {
            side,
            opening,
            input: Input::default(),
            // RFC 9113 §6.5.2: until the peer has taken our SETTINGS its table has this size.
            decoder: Decoder::new(peer.header_table_size),
            encoder: Encoder::new(options.header_table_size),
            block: None,
            body: None,
            streams: Streams::default(),
            peer,
            last_id: 0,
            events: VecDeque::new(),
            control,
            send_window: SendWindow::new(INITIAL_WINDOW),
            receive_window: ReceiveWindow::new(options.connection_window.max(INITIAL_WINDOW)),
            stream_window: options.stream_window,
            ready: VecDeque::new(),
            cut: None,
            opened: Vec::new(),
            all_opened: false,
            all_ready: false,
            widest: StreamWindow::default(),
            budget: Budget::default(),
            going: Going::Not,
            peer_left: None,
            goaways_received: 0,
            block_frames: 0,
            known: [const { KnownBlock::new() }; 2],
            block_read: (0, 0),
            block_written: 0,
            failed: None,
            lost: false,
            ping: Ping::None,
            counts: Counts::default(),
            unread: [0; 4],
            shown: Shown::default(),
            options,
        }
    }

    /// Takes what arrived.
    pub fn receive(&mut self, chunk: Bytes) {
        if self.failed.is_none() {
            self.input.receive(chunk);
        }
    }

    /// A number for a stream of ours; none if there is no [capacity](Self::capacity) for it.
    pub fn open(&mut self) -> Option<u32> {
        if self.capacity() == 0 {
            return None;
        }
        self.last_id = if self.last_id == 0 { 1 } else { self.last_id + 2 };
        Some(self.begin(self.last_id, Progress::Head))
    }

    pub(super) fn begin(&mut self, id: u32, receiving: Progress) -> u32 {
        self.budget.stream_began();
        self.streams.insert(Stream::new(id, receiving, self.options.stream_window))
    }

    /// What was received for a stream has a place: its peer may send as much again.
    pub fn consumed(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(number) else { return };
        let held = stream.receive_window.held();
        if held == 0 {
            return;
        }
        stream.receive_window.release(held);
        if stream.receiving == Progress::Body
            && let Some(more) = stream.receive_window.grant(self.stream_window)
        {
            let id = stream.id;
            frame::put_window_update(&mut self.control, id, more);
            self.budget.frame_sent();
        }
        self.give_back(held);
    }

    /// Lets so many bytes of each stream come before they have a place, from the next time on that some have one: at
    /// most 2³¹ - 1. It does not become less.
    pub fn widen(&mut self, stream_window: u32) {
        self.stream_window = stream_window.min(frame::MASK).max(self.stream_window);
    }

    /// So many bytes that came have a place, or are dropped: the connection's window opens again.
    pub(super) fn give_back(&mut self, bytes: u32) {
        self.receive_window.release(bytes);
        if let Some(more) = self.receive_window.grant(self.options.connection_window) {
            frame::put_window_update(&mut self.control, 0, more);
            self.budget.frame_sent();
        }
    }

    /// Ends a stream in the middle. Nothing more is reported for it; its number stays until it is released.
    pub fn reset(&mut self, number: u32, code: Code) {
        let Some(stream) = self.streams.get_mut(number).filter(|stream| !stream.reset) else {
            return;
        };
        let is_over = (stream.receiving, stream.sending) == (Progress::Ended, Progress::Ended);
        let (id, is_idle) =
            (stream.id, self.side == Side::Client && stream.sending == Progress::Head);
        stream.cut();
        // The peer knows nothing of a stream whose head was not sent, and nothing is open of one that has ended.
        if !is_over && !is_idle {
            self.put_reset(id, code);
        }
    }

    /// The connection is gone: nothing is said any more.
    pub fn lose(&mut self) {
        self.lost = true;
    }

    /// RST_STREAM frames since the counts were last taken.
    #[must_use]
    pub fn resets_sent(&self) -> u32 {
        self.counts.resets_sent
    }

    pub(super) fn put_reset(&mut self, id: u32, code: Code) {
        if self.lost {
            return;
        }
        frame::put_reset(&mut self.control, id, code);
        self.budget.answer();
        self.counts.resets_sent += 1;
        self.streams.remember(id, Gone::ResetByUs);
    }

    /// Its user is through with a stream. What waits to be sent still goes out, by a server; where the peer has not
    /// ended, it is told that no more is read.
    pub fn release(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(number) else { return };
        stream.released = true;
        let says_all = self.side == Side::Server && stream.ending;
        if !stream.reset && stream.sending != Progress::Ended && !says_all {
            self.reset(number, Code::CANCEL);
        }
        self.remove_if_over(number);
    }

    /// Whether a stream was released and still has something to say.
    #[must_use]
    pub fn is_released(&self, number: u32) -> bool {
        self.streams.get(number).is_some_and(|stream| stream.released && !stream.reset)
    }

    /// Ends a stream that was released and still has something to say: its peer does not open its windows. Whether it
    /// was one.
    pub fn give_up(&mut self, number: u32, code: Code) -> bool {
        let is_waiting = self.is_released(number);
        if is_waiting {
            self.reset(number, code);
            self.remove_if_over(number);
        }
        is_waiting
    }

    /// Ends streams that were released and of which so many bytes wait for a window that they are `wanted`; no more
    /// than `most`. How many.
    pub fn reset_released(
        &mut self,
        code: Code,
        most: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> usize {
        let waiting = self.streams.iter_mut().filter(|(_, it)| it.released && !it.reset);
        let waiting = waiting.filter(|(_, stream)| wanted(stream.queued));
        let numbers: Vec<u32> = waiting.map(|(number, _)| number).take(most).collect();
        for &number in &numbers {
            self.reset(number, code);
            self.remove_if_over(number);
        }
        numbers.len()
    }

    /// Forgets a stream that was released once it has said all.
    pub(super) fn remove_if_over(&mut self, number: u32) {
        let Some(stream) = self.streams.get(number) else { return };
        if !stream.released || stream.sending != Progress::Ended {
            return;
        }
        let (id, was_reset) = (stream.id, stream.reset);
        let held = stream.receive_window.held();
        let lacks_end_alone = self.side == Side::Server && stream.expected == Some(0);
        if !was_reset && stream.receiving != Progress::Ended && lacks_end_alone {
            // Nothing but the request's end is on its way, which needs no answer; some clients have it in a frame of
            // its own, and take a reset before that for a failure.
            self.streams.remember(id, Gone::ResetByUs);
            self.budget.stream_ended();
        } else if !was_reset && stream.receiving != Progress::Ended {
            // RFC 9113 §8.1: the answer is whole, and the remainder of the request is of no use.
            let code = match self.side {
                Side::Server => Code::NO_ERROR,
                Side::Client => Code::CANCEL,
            };
            self.put_reset(id, code);
        } else if !was_reset {
            self.streams.remember(id, Gone::Closed);
            self.budget.stream_ended();
        }
        self.streams.remove(number);
        self.give_back(held);
    }

    /// Says that this end will go away: streams that are on their way are still taken, until the peer knows.
    /// Answers false if that was said before.
    pub fn go_away_soon(&mut self) -> bool {
        if self.going != Going::Not || self.side == Side::Client || self.failed.is_some() {
            return false;
        }
        self.going = Going::Soon;
        frame::put_go_away(&mut self.control, frame::MASK, Code::NO_ERROR);
        self.budget.frame_sent();
        frame::put_ping(&mut self.control, 0, GRACEFUL);
        self.budget.frame_sent();
        true
    }

    /// Says that this end goes away: no stream is taken any more.
    pub fn go_away(&mut self, code: Code) {
        if self.failed.is_some()
            || (self.side == Side::Server && matches!(self.going, Going::Last(_)))
        {
            return;
        }
        let last = match self.side {
            Side::Server => self.last_id,
            Side::Client => 0,
        };
        self.going = Going::Last(last);
        self.put_go_away(last, code);
    }

    pub(super) fn put_go_away(&mut self, last: u32, code: Code) {
        frame::put_go_away(&mut self.control, last, code);
        self.budget.frame_sent();
        self.counts.goaways_sent += 1;
    }

    /// Asks the peer for a sign of life; false if it was asked before and has not answered.
    pub fn ask(&mut self) -> bool {
        if self.ping == Ping::Asked {
            return false;
        }
        self.ping = Ping::Asked;
        frame::put_ping(&mut self.control, 0, LIVENESS);
        self.budget.frame_sent();
        true
    }

    /// All that was written but so many bytes has left.
    pub fn sent(&mut self, outstanding: usize) {
        self.budget.sent(outstanding);
    }

    /// Gives back memory that only traffic needs; without streams. What the peer's next blocks refer to stays, what
    /// ours would is told anew.
    pub fn rest(&mut self) {
        if self.streams.len() > 0 || self.has_output() {
            return;
        }
        self.decoder.shrink();
        self.known.iter_mut().for_each(KnownBlock::forget);
        self.encoder.forget();
        self.streams.shrink();
        self.events.shrink_to_fit();
        self.ready.shrink_to_fit();
        self.opened.shrink_to_fit();
        self.control = BytesMut::new();
    }

    /// What happened since this was last asked.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// The next request that was refused while its head was read; its client is told by what is flushed.
    pub fn take_unread(&mut self) -> Option<Unread> {
        let why = [Unread::TooLarge, Unread::TooManyFields, Unread::Malformed, Unread::Underscore];
        let (left, why) = self.unread.iter_mut().zip(why).find(|(left, _)| **left > 0)?;
        *left -= 1;
        Some(why)
    }

    /// Streams that had no room and have some again.
    pub fn take_opened(&mut self) -> Vec<u32> {
        if std::mem::take(&mut self.all_opened) {
            self.opened.clear();
            return self.streams.numbers().collect();
        }
        std::mem::take(&mut self.opened)
    }

    /// How many streams may begin now.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        if self.side == Side::Server || self.is_exhausted() {
            return 0;
        }
        let most = self.peer.max_concurrent_streams.min(self.options.max_concurrent_streams);
        most.saturating_sub(u32::try_from(self.streams.len()).unwrap_or(u32::MAX))
    }

    /// Whether no stream will begin here again.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.going != Going::Not || self.failed.is_some() || self.last_id >= LAST_ID
    }

    /// Whether the last stream is said.
    #[must_use]
    pub fn has_gone_away(&self) -> bool {
        matches!(self.going, Going::Last(_))
    }

    /// How many bytes the frames were of the head that was reported last, and its names and values before they were
    /// compressed.
    #[must_use]
    pub fn head_read(&self) -> (usize, usize) {
        self.block_read
    }

    /// How many bytes the frames were of the head that was written last.
    #[must_use]
    pub fn head_written(&self) -> usize {
        self.block_written
    }

    /// GOAWAY frames that came.
    #[must_use]
    pub fn goaways_received(&self) -> u32 {
        self.goaways_received
    }

    /// Why the peer goes away, if it said so.
    #[must_use]
    pub fn peer_left(&self) -> Option<Code> {
        self.peer_left
    }

    /// Whether a PING of ours was not answered yet.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.ping == Ping::Asked
    }

    /// Whether the peer offers extended CONNECT (RFC 8441 §3).
    #[must_use]
    pub fn takes_extended_connect(&self) -> bool {
        self.peer.connect_protocol
    }

    /// Whether a stream is a CONNECT of either kind.
    #[must_use]
    pub fn is_tunnel(&self, number: u32) -> bool {
        self.streams.get(number).is_some_and(|stream| stream.tunnel)
    }

    /// Whether the peer's SETTINGS have come: what it takes is known.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.opening == Opening::Done
    }

    /// Bytes that may still be given for a stream: what its window and the connection's leave, less what waits.
    #[must_use]
    pub fn writable(&self, number: u32) -> usize {
        let Some(stream) = self.streams.get(number).filter(|stream| !stream.reset) else {
            // Nothing is held up by what is dropped.
            return usize::MAX;
        };
        let window = stream.send_window.available(self.peer.initial_window);
        window.min(self.send_window.available()).saturating_sub(stream.queued)
    }

    /// Bytes that were given for a stream and wait for a window.
    #[must_use]
    pub fn queued(&self, number: u32) -> usize {
        self.streams.get(number).map_or(0, |stream| stream.queued)
    }

    /// Bytes of all streams that wait for a window.
    #[must_use]
    pub fn all_queued(&self) -> usize {
        self.streams.iter().map(|stream| stream.queued).sum()
    }

    /// Bytes that were received and not understood.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.input.buffered() + self.block.as_ref().map_or(0, |block| block.bytes.len())
    }

    /// Whether a header block, or the frame that begins one, has come in part.
    #[must_use]
    pub fn is_amid_head(&self) -> bool {
        self.block.is_some() || self.input.is_amid_headers()
    }

    /// Whether something waits to be written by [`Connection::flush`].
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.control.is_empty() || !self.ready.is_empty() || self.all_ready
    }

    /// Whether [`Connection::flush`] has nothing to do, no stream has room again and nothing was counted.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        !self.has_output()
            && self.opened.is_empty()
            && !self.all_opened
            && self.counts == Counts::default()
    }

    /// Streams that there are, those included that only wait to be sent.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// What arrived is not the protocol, and the peer is told so.
    #[cold]
    pub(super) fn fail(&mut self, error: Error) -> Error {
        let last = if self.side == Side::Server { self.last_id } else { 0 };
        self.put_go_away(last, error.code());
        self.failed = Some(error);
        self.input.clear();
        self.block = None;
        error
    }
}

/// The PING behind a first GOAWAY: with its answer the peer is known to have heard.
pub(super) const GRACEFUL: [u8; 8] = *b"shutdown";
/// The PING that asks for a sign of life.
pub(super) const LIVENESS: [u8; 8] = *b"liveness";
/// The last number that a stream of a client can have.
const LAST_ID: u32 = (1 << 31) - 1;

/// Needed where frames are told apart by what they are for.
pub(super) const fn is_of_stream(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Data | Kind::Headers | Kind::Priority | Kind::Reset | Kind::Push | Kind::Continuation
    )
}
