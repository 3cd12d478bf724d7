//! Frames as marks on the track of their connection, and its windows as counters, while a recording wants them:
//! category `protocol`, level `debug`.

use towpath_trace::{Category, Level, Track, Value, callsite, emit};

use super::connection::{Connection, Side};
use super::flow::{ReceiveWindow, SendWindow};
use super::frame::{FrameHeader, HEADER, PREFACE};

callsite!(TO_SERVER, Level::Debug, Category::PROTOCOL, "connection to a server", number);
callsite!(RECEIVED, Level::Debug, Category::PROTOCOL, "frame received", kind, stream, length);
callsite!(SENT, Level::Debug, Category::PROTOCOL, "frame sent", kind, stream, length);

/// Where a connection is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    track: Option<Track>,
    /// In the names of its counters.
    number: u64,
}

impl Connection {
    /// Shows its frames on `track`, and its windows as counters with this number in their names, while a recording
    /// wants that. Level `debug` of category `protocol`.
    pub fn show_on(&mut self, track: Track, number: u64) {
        self.shown = Shown { track: Some(track), number };
        // A track has the name of what is first on it, and of a client's connection that is its span.
        if self.side == Side::Client && TO_SERVER.enabled() {
            emit::async_mark(&TO_SERVER, track, [number.into()]);
        }
    }
}

impl Shown {
    #[inline]
    pub(super) fn received(&self, header: FrameHeader) {
        if RECEIVED.enabled() {
            self.mark(&RECEIVED, header);
        }
    }

    /// Frames were written, one behind the other; of the last perhaps the header alone.
    #[inline]
    pub(super) fn sent(&self, frames: &[u8]) {
        if SENT.enabled() {
            self.mark_all(frames);
        }
    }

    /// What either side may send now.
    #[inline]
    pub(super) fn windows(&self, ours: SendWindow, theirs: ReceiveWindow) {
        if SENT.enabled() {
            self.count("may send", ours.available() as u64);
            self.count("may receive", theirs.left().into());
        }
    }

    #[cold]
    fn mark_all(&self, frames: &[u8]) {
        let mut frames = frames.strip_prefix(PREFACE).unwrap_or(frames);
        while let Some(header) = frames.first_chunk().map(FrameHeader::read) {
            self.mark(&SENT, header);
            frames = frames.get(HEADER + header.length..).unwrap_or_default();
        }
    }

    #[cold]
    fn mark(&self, site: &'static towpath_trace::Callsite, header: FrameHeader) {
        let Some(track) = self.track else { return };
        let kind = header.kind.name();
        let values = [Value::Text(kind), header.stream.into(), (header.length as u64).into()];
        emit::async_mark(site, track, values);
    }

    #[cold]
    fn count(&self, what: &str, value: u64) {
        if self.track.is_some() {
            let name = format!("connection {} {what}", self.number);
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            emit::counter_named(Category::PROTOCOL, &name, value);
        }
    }
}
