//! Spans on their way to a collector: some leave together, and what a slow collector holds up is limited.
//!
//! Arrives: finished spans, and what came of reports. Leaves: [`Callout`]s. No stream waits for their answers.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use towpath_proto::{Head, Instant, Name};

use super::{Finished, otlp, zipkin};
use crate::filter::{Answer, Callout, Failed};
use crate::format::Facts;
use crate::grpc;
use crate::header_ops::{Scratch, Subject};
use crate::record::Record;
use crate::snapshot::tracing::{Collector, Dialect, Provider};
use crate::stats::{OpenTelemetryStats, Registry, Scope, ZipkinStats};

/// The spans of one worker for one collector.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(crate) provider: Arc<Provider>,
    stats: Stats,
    waiting: Vec<Finished>,
    /// What waits or is on its way.
    held: Load,
    /// When what waits leaves at the latest.
    pub(crate) due: Option<Instant>,
}

/// Its counters.
#[derive(Clone, Debug)]
pub(crate) enum Stats {
    Zipkin(Arc<ZipkinStats>),
    OpenTelemetry(Arc<OpenTelemetryStats>),
}

/// How many spans a report has, and about how many bytes they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) spans: usize,
    pub(crate) bytes: usize,
}

/// What becomes of spans after another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// They leave now.
    Leave,
    /// They leave at that time at the latest.
    Wait(Instant),
    /// It was too much.
    Dropped,
}

impl Stats {
    pub(crate) fn of(dialect: &Dialect, registry: &Registry, worker: u32) -> Self {
        match dialect {
            Dialect::Zipkin(_) => Self::Zipkin(registry.set(worker, Scope::Zipkin)),
            Dialect::OpenTelemetry(_) => {
                Self::OpenTelemetry(registry.set(worker, Scope::OpenTelemetry))
            }
        }
    }
}

impl Reporter {
    pub(crate) fn new(provider: Arc<Provider>, stats: Stats) -> Self {
        Self { provider, stats, waiting: Vec::new(), held: Load::default(), due: None }
    }

    /// Whether nothing waits, and nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.held == Load::default()
    }

    pub(crate) fn add(&mut self, span: Finished, now: Instant) -> Next {
        let bytes = self.held.bytes + span.weight();
        if self.held.spans >= self.provider.most_waiting || bytes > MOST_BYTES {
            match &self.stats {
                Stats::Zipkin(stats) => stats.spans_dropped.inc(),
                Stats::OpenTelemetry(stats) => stats.spans_dropped.inc(),
            }
            return Next::Dropped;
        }
        self.held = Load { spans: self.held.spans + 1, bytes };
        self.waiting.push(span);
        if self.waiting.len() >= self.provider.batch {
            return Next::Leave;
        }
        Next::Wait(*self.due.get_or_insert(now + self.provider.interval))
    }

    /// The time for what waits has come.
    pub(crate) fn count_timer(&self) {
        match &self.stats {
            Stats::Zipkin(stats) => stats.timer_flushed.inc(),
            Stats::OpenTelemetry(stats) => stats.timer_flushed.inc(),
        }
    }

    /// What leaves together, or all that waits, as a request to the collector.
    pub(crate) fn take(
        &mut self,
        all: bool,
        service: &str,
        scratch: &mut Scratch,
    ) -> Option<(Callout, Load)> {
        let most = if all { usize::MAX } else { self.provider.batch.max(1) };
        let spans: Vec<Finished> = self.waiting.drain(..most.min(self.waiting.len())).collect();
        if self.waiting.is_empty() {
            self.due = None;
        }
        if spans.is_empty() {
            return None;
        }
        let load =
            Load { spans: spans.len(), bytes: spans.iter().map(Finished::weight).sum::<usize>() };
        let (content_type, body): (&[u8], _) = match &self.provider.dialect {
            Dialect::Zipkin(config) => {
                let kind: &[u8] =
                    if config.is_binary { b"application/x-protobuf" } else { b"application/json" };
                (kind, zipkin::write(&spans, service, config))
            }
            Dialect::OpenTelemetry(config) => {
                (b"application/x-protobuf", otlp::write(&spans, config))
            }
        };
        match &self.stats {
            Stats::Zipkin(stats) => stats.spans_sent.add(load.spans as u64),
            Stats::OpenTelemetry(stats) => stats.spans_sent.add(load.spans as u64),
        }
        Some((request(&self.provider.collector, content_type, body, scratch), load))
    }

    /// A report is over.
    pub(crate) fn end(&mut self, load: Load, answer: &Answer) {
        self.held.spans = self.held.spans.saturating_sub(load.spans);
        self.held.bytes = self.held.bytes.saturating_sub(load.bytes);
        let Stats::Zipkin(stats) = &self.stats else { return };
        match answer {
            Answer::Response { head, .. } if head.status() == 202 => stats.reports_sent.inc(),
            Answer::Response { .. } => stats.reports_dropped.inc(),
            Answer::Failed(Failed::NoCluster) => stats.reports_skipped_no_cluster.inc(),
            Answer::Failed(_) => stats.reports_failed.inc(),
        }
    }
}

/// What tells a collector something: a request to it, or a call.
pub(crate) fn request(
    to: &Collector,
    content_type: &[u8],
    body: Vec<u8>,
    scratch: &mut Scratch,
) -> Callout {
    let mut head = Head::request(b"POST", b"http", to.authority.as_bytes(), to.path.as_bytes());
    let mut body = Bytes::from(body);
    if to.is_grpc {
        head.set(Name::Te, b"trailers");
        head.set(Name::ContentType, b"application/grpc");
        body = framed(&body);
    } else {
        head.set(Name::ContentType, content_type);
    }
    let record = Record::default();
    let facts = Facts::new(&record, Instant::ZERO);
    to.headers.apply(&mut head, Subject::Request, &facts, scratch);
    if !to.skip_envoy_headers {
        head.set(Name::XEnvoyInternal, b"true");
        // As Envoy has it, a call says nothing of its time.
        if !to.is_grpc {
            let ms = u64::try_from(to.timeout.as_millis()).unwrap_or(u64::MAX);
            head.set_number(Name::XEnvoyExpectedRqTimeoutMs, ms);
        }
    }
    Callout {
        cluster: Arc::clone(&to.cluster),
        head,
        body,
        timeout: to.timeout,
        max_bytes: MOST_ANSWER,
        joint: None,
        retry: to.retry.clone(),
        span: None,
    }
}

/// A message as gRPC frames it.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// Whether a server has taken what it was told.
pub(crate) fn is_taken(answer: &Answer, is_grpc: bool) -> bool {
    let Answer::Response { head, trailers, .. } = answer else { return false };
    let status = || trailers.as_ref().and_then(grpc::status_of).or_else(|| grpc::status_of(head));
    if is_grpc {
        head.status() == 200 && status() == Some(0)
    } else {
        (200..300).contains(&head.status())
    }
}

/// Bytes of spans that wait or are on their way.
const MOST_BYTES: usize = 4 << 20;
/// What a collector may have to say.
const MOST_ANSWER: usize = 64 << 10;
