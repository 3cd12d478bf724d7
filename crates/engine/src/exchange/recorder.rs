//! What access logs, formats and spans may ask of a stream, kept only where one of them is there to ask.
//!
//! Arrives: notes of what happens to the stream. Leaves: a [`Record`], to which [`Stream::complete_record`] adds what
//! every stream knows of itself.

use std::sync::Arc;

use towpath_proto::head::{Head, Method, Version};
use towpath_proto::{Address, Instant, Out, http1};
use towpath_trace::Stamp;

use crate::conn::Connection;
use crate::conn::mux::Mux;
use crate::conn::spans::SpanState;
use crate::exchange::attempt_log::AttemptLog;
use crate::exchange::measured::Measured;
use crate::exchange::stream::{Progress, Stream};
use crate::matcher::Known;
use crate::mesh::StreamMesh;
use crate::record::{Attempted, HeaderBytes, Heads, Record, UpstreamTls};
use crate::stream_info::StreamInfo;
use crate::tracer::{Attempt, Span, Traced};

/// The record of a stream and where its spans go, if something reads them.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Option<Box<Recording>>);

/// What is kept of a stream that is logged or traced.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) record: Record,
    /// What the connections had carried when the stream came to them.
    pub(crate) wire: Wire,
    /// The response's trailers.
    pub(crate) trailers: Option<Head>,
    /// What filters have left of it.
    pub(crate) info: StreamInfo,
    /// What is known of its place in a mesh.
    pub(crate) mesh: StreamMesh,
    /// Where its spans go, if it is traced.
    pub(crate) span: Option<SpanState>,
    /// Its spans in distributed tracing.
    pub(crate) traced: Option<Traced>,
    /// The attempt under way, where attempts are logged.
    pub(crate) attempt_log: Option<Box<AttemptLog>>,
    /// The attempt under way, where attempts are measured.
    pub(crate) measured: Option<Box<Measured>>,
}

/// What the connections had carried when the stream came to them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wire {
    pub(crate) downstream_received: u64,
    pub(crate) downstream_sent: u64,
    pub(crate) upstream_sent: u64,
}

/// What the record of a stream says of one attempt alone.
#[derive(Debug, Default)]
pub(crate) struct AttemptRecord {
    /// What its connection had carried when the stream came to it.
    sent: u64,
    connection: u64,
    protocol: Option<Version>,
    host: Option<Address>,
    remote: Option<Box<Address>>,
    local: Option<Address>,
    tls: Option<UpstreamTls>,
    last_sent: Option<Instant>,
    span: Option<Attempt>,
    log: Option<Box<AttemptLog>>,
    measured: Option<Box<Measured>>,
}

/// What the record of a stream that takes the place of another begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    wire: Wire,
    bytes_received: u64,
    head: HeaderBytes,
}

impl Recording {
    /// Adds a head: what it took on the wire, and before it was compressed.
    fn count(&mut self, of: Heads, wire: u64, plain: u64) {
        let bytes = &mut self.record.headers[of as usize];
        bytes.wire += wire;
        bytes.plain += plain;
    }
}

/// `GET /path HTTP/1.1 CRLF`
fn request_line_bytes(head: &Head) -> usize {
    let target = match head.path() {
        _ if head.method() == Method::Connect => head.authority().len(),
        b"" => 1,
        path => path.len(),
    };
    head.method_bytes().len() + target + "  HTTP/1.1\r\n".len()
}

impl Recorder {
    /// One whose facts are wanted.
    #[cold]
    pub(crate) fn recording() -> Self {
        Self(Some(Box::default()))
    }

    /// Begins anew for another stream, in the memory of the one before; answers where its facts go, if they are
    /// `wanted`.
    pub(crate) fn begin(&mut self, wanted: bool) -> Option<&mut Recording> {
        match &mut self.0 {
            _ if !wanted => self.0 = None,
            Some(recording) => **recording = Recording::default(),
            None => self.0 = Some(Box::default()),
        }
        self.0.as_deref_mut()
    }

    /// Whether nothing asks.
    pub(crate) const fn is_off(&self) -> bool {
        self.0.is_none()
    }

    /// Notes something, where it is read.
    #[inline]
    pub(crate) fn note(&mut self, note: impl FnOnce(&mut Record)) {
        if let Some(recording) = &mut self.0 {
            note(&mut recording.record);
        }
    }

    /// A route was looked for, from this moment on where it is asked how long that takes.
    pub(crate) fn note_lookup(&mut self, since: Option<Stamp>) {
        self.note(|record| {
            record.route_lookups += 1;
            let took = since.and_then(|since| Stamp::now_monotonic().since(since));
            if let Some(took) = took {
                record.route_lookup_time =
                    Some(record.route_lookup_time.unwrap_or_default() + took);
            }
        });
    }

    pub(crate) fn recording_mut(&mut self) -> Option<&mut Recording> {
        self.0.as_deref_mut()
    }

    /// The record; an empty one where none is kept.
    pub(crate) fn record(&self) -> &Record {
        const NOTHING: &Record = &Record::new();
        self.0.as_ref().map_or(NOTHING, |recording| &recording.record)
    }

    /// What routes ask about beside the request's head.
    #[inline]
    pub(crate) fn known(&self) -> Known<'_> {
        let Some(recording) = &self.0 else { return Known::default() };
        Known { info: self.info(), tls: recording.record.downstream_tls.as_deref() }
    }

    /// Moves the record to a place where none is.
    pub(crate) fn move_record(&mut self, to: &mut Record) {
        if let Some(recording) = &mut self.0 {
            std::mem::swap(&mut recording.record, to);
        }
    }

    /// Lets go of the response's trailers and of what filters have left.
    pub(crate) fn drop_contents(&mut self) {
        if let Some(recording) = &mut self.0 {
            recording.trailers = None;
            recording.info = StreamInfo::default();
            recording.mesh = StreamMesh::default();
            recording.traced = None;
            recording.attempt_log = None;
            recording.measured = None;
        }
    }

    pub(crate) fn trailers(&self) -> Option<&Head> {
        self.0.as_ref()?.trailers.as_ref()
    }

    /// What filters have left, where the stream is recorded.
    pub(crate) fn info(&self) -> Option<&StreamInfo> {
        self.0.as_ref().map(|recording| &recording.info)
    }

    /// Its trace and its own span, where it is traced.
    pub(crate) fn trace(&self) -> Option<(u128, u64)> {
        let ids = self.request_span()?.ids;
        Some((ids.trace, ids.span))
    }

    /// The span of the request itself, where it has one.
    pub(super) fn request_span(&self) -> Option<&Span> {
        self.0.as_ref()?.traced.as_ref()?.span.as_ref()
    }

    /// What is known of its place in a mesh, where the stream is recorded.
    pub(crate) fn mesh(&self) -> Option<&StreamMesh> {
        self.0.as_ref().map(|recording| &recording.mesh)
    }

    /// Whether spans are made of it.
    #[inline]
    pub(crate) fn is_followed(&self) -> bool {
        self.0.as_ref().is_some_and(|it| it.span.is_some() || it.traced.is_some())
    }

    /// Whether its attempts are followed too.
    #[inline]
    pub(crate) fn follows_attempts(&self) -> bool {
        self.0.as_ref().is_some_and(|it| {
            it.span.is_some() || it.traced.as_ref().is_some_and(|it| it.has_attempts)
        })
    }

    /// Whether an attempt under way has a span, is to be logged, or is measured.
    #[inline]
    pub(crate) fn has_attempt(&self) -> bool {
        self.0.as_ref().is_some_and(|it| {
            it.attempt_log.is_some()
                || it.measured.is_some()
                || it.traced.as_ref().is_some_and(|it| it.attempt.is_some())
        })
    }

    /// The attempt under way, where attempts are logged.
    #[inline]
    pub(crate) fn attempt_log(&self) -> Option<&AttemptLog> {
        self.0.as_ref()?.attempt_log.as_deref()
    }

    #[inline]
    pub(crate) fn span(&self) -> Option<&SpanState> {
        self.0.as_ref()?.span.as_ref()
    }

    #[inline]
    pub(crate) fn span_mut(&mut self) -> Option<&mut SpanState> {
        self.0.as_mut()?.span.as_mut()
    }
}

impl Recorder {
    /// Counts a response that is given up for another attempt; of the last one its head tells.
    pub(crate) fn count_given_up(&mut self, head: &Head) {
        if let Some(recording) = &mut self.0 {
            let length = head.received_bytes();
            recording.count(Heads::UpstreamReceived, length, length);
        }
    }

    /// Counts a head that has just come in frames.
    #[cold]
    pub(crate) fn count_framed(&mut self, of: Heads, mux: &Mux) {
        if let (Some(recording), Some((wire, plain))) = (&mut self.0, mux.framed_head_read()) {
            recording.count(of, wire as u64, plain as u64);
        }
    }

    /// This proxy ends both connections, for a reason in Envoy's words.
    pub(crate) fn note_local_close(&mut self, reason: &'static str) {
        self.note(|record| {
            (record.local_close, record.upstream_local_close) = (reason, reason);
        });
    }

    /// What a stream in the place of this one knows of its request from the start.
    pub(crate) fn carried(&self) -> Option<Carried> {
        self.0.as_deref().map(|it| Carried {
            wire: it.wire,
            bytes_received: it.record.bytes_received,
            head: it.record.headers[Heads::DownstreamReceived as usize],
        })
    }

    /// Begins with what is known of the request.
    pub(crate) fn carry(&mut self, carried: Option<Carried>) {
        if let (Some(recording), Some(carried)) = (&mut self.0, carried) {
            recording.wire.downstream_received = carried.wire.downstream_received;
            recording.wire.downstream_sent = carried.wire.downstream_sent;
            recording.record.bytes_received = carried.bytes_received;
            recording.record.headers[Heads::DownstreamReceived as usize] = carried.head;
        }
    }

    /// What is being encoded before a head, where heads are counted.
    #[inline]
    pub(crate) fn before_head(&self, out: &Out) -> Option<usize> {
        self.0.as_ref().map(|_| out.len())
    }

    /// Counts a head that was encoded behind so much else.
    #[cold]
    pub(crate) fn count_sent(
        &mut self,
        of: Heads,
        head: &Head,
        mux: &Mux,
        before: usize,
        out: &Out,
    ) {
        let Some(recording) = &mut self.0 else { return };
        match mux.framed_head() {
            Some(bytes) => recording.count(of, bytes as u64, head.byte_size() as u64),
            None => {
                let first_line = match of {
                    Heads::UpstreamSent | Heads::UpstreamReceived => request_line_bytes(head),
                    Heads::DownstreamSent | Heads::DownstreamReceived => {
                        http1::status_line_bytes(head.status())
                    }
                };
                let all = out.len().saturating_sub(before + first_line + "\r\n".len());
                recording.count(of, all as u64, all as u64);
            }
        }
    }

    /// Takes out what is known of the latest attempt alone. Its host's name stays, to be listed when another is chosen.
    pub(super) fn keep_attempt(&mut self) -> Option<Box<AttemptRecord>> {
        self.0.as_ref()?;
        let mut kept = Box::<AttemptRecord>::default();
        self.swap_attempt(&mut kept);
        self.note(|record| {
            record.upstream_host.clone_from(&kept.host);
            record.upstream_connection = kept.connection;
        });
        Some(kept)
    }

    /// Changes what is known of the latest attempt with what is known of an earlier one.
    pub(super) fn swap_attempt(&mut self, other: &mut AttemptRecord) {
        let Some(recording) = self.0.as_deref_mut() else { return };
        let Recording { record, wire, traced, attempt_log, measured, .. } = recording;
        std::mem::swap(&mut wire.upstream_sent, &mut other.sent);
        std::mem::swap(&mut record.upstream_connection, &mut other.connection);
        std::mem::swap(&mut record.upstream_protocol, &mut other.protocol);
        std::mem::swap(&mut record.upstream_host, &mut other.host);
        std::mem::swap(&mut record.upstream_remote, &mut other.remote);
        std::mem::swap(&mut record.upstream_local, &mut other.local);
        std::mem::swap(&mut record.upstream_tls, &mut other.tls);
        std::mem::swap(&mut record.upstream_last_sent, &mut other.last_sent);
        std::mem::swap(attempt_log, &mut other.log);
        std::mem::swap(measured, &mut other.measured);
        if let Some(traced) = traced {
            std::mem::swap(&mut traced.attempt, &mut other.span);
        }
    }

    /// The latest attempt was listed as one before another, which is `other`: they change places in the list.
    pub(super) fn exchange_attempted(&mut self, other: Option<&AttemptRecord>) {
        let Some(Recording { record, .. }) = self.0.as_deref_mut() else { return };
        let connection = record.upstream_connection;
        let listed = record.attempted.as_deref_mut().into_iter().flatten();
        let found = listed.rev().find(|it| it.connection == connection);
        if let (Some(listed), Some(other)) = (found, other)
            && let Some(host) = &other.host
        {
            (listed.host, listed.connection) = (host.clone(), other.connection);
        }
    }

    /// Another host is chosen; the one before it has this name.
    pub(crate) fn note_retry(&mut self, hostname: Option<&Arc<str>>) {
        self.note(|record| {
            record.upstream_remote = None;
            let Some(host) = record.upstream_host.take() else { return };
            let connection = std::mem::take(&mut record.upstream_connection);
            let hostname = hostname.map_or_else(|| Arc::from(""), Arc::clone);
            record.attempted.get_or_insert_default().push(Attempted { host, hostname, connection });
        });
    }
}

impl Stream {
    /// It goes upstream on a connection: what its record knows of that.
    pub(crate) fn begin_attempt(&mut self, connection: &Connection, now: Instant) {
        self.times.upstream_first_sent = Some(now);
        if self.is_unanswered() {
            self.times.upstream_first_received = None;
        }
        self.retries.received_before = connection.bytes_received;
        let Some(Recording { record, wire, .. }) = self.recorder.recording_mut() else { return };
        wire.upstream_sent = connection.encoded;
        record.upstream_content_start = None;
        record.upstream_connection = connection.upstream().map_or(0, |upstream| upstream.serial);
        let is_http2 = connection.mux.is_http2();
        let version = if is_http2 { Version::Http2 } else { Version::Http11 };
        record.upstream_protocol = record.protocol.map(|_| version);
        record.upstream_host = Some(connection.peer.clone());
        let names = connection.upstream().and_then(|upstream| upstream.names.as_deref());
        record.upstream_remote = names.and_then(|names| names.remote.clone());
        record.upstream_local = Some(connection.local.clone());
        record.upstream_tls = connection.tls.as_deref().and_then(UpstreamTls::of);
        if let (Some(tls), Some(upstream)) = (&mut record.upstream_tls, connection.upstream()) {
            tls.names.clone_from(&upstream.names);
        }
        if self.request_end == Progress::Ended {
            record.upstream_last_sent = Some(now);
        }
    }

    /// Adds what an attempt weighed on its connection, which has `received` and `sent` so much altogether.
    pub(crate) fn weigh_attempt(&mut self, received: u64, sent: u64) {
        let before = self.retries.received_before;
        if let Some(Recording { record, wire, .. }) = self.recorder.recording_mut() {
            record.upstream_wire_received += received - before;
            record.upstream_wire_sent += sent - wire.upstream_sent;
        }
    }

    /// Adds to the record what every stream knows of itself.
    pub(crate) fn complete_record(&mut self) {
        let Some(Recording { record, .. }) = self.recorder.recording_mut() else { return };
        record.start = self.times.start;
        record.request_end = self.times.request_end;
        record.upstream_first_sent = self.times.upstream_first_sent;
        record.upstream_first_received = self.times.upstream_first_received;
        record.status = self.status;
        record.flags = self.flags;
        record.attempts = self.attempts;
        record.stream = self.serial;
        record.health_check = self.is_health_check;
    }
}
