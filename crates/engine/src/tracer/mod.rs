//! Spans of requests and of their attempts: whether there are any, who they are, and what is told of them.
//!
//! Arrives: a request's head, the configuration, and in the end what became of the stream. Leaves: fields for the
//! server, and [`Finished`] spans for a [`Reporter`](report::Reporter).

pub(crate) mod context;
mod otlp;
pub(crate) mod phases;
pub(crate) mod report;
pub(crate) mod tags;

mod zipkin;

use std::borrow::Cow;
use std::sync::Arc;

use towpath_proto::{Head, Instant, Name};

use self::context::{Ids, Said};
use self::tags::Tags;
use crate::fraction::Fraction;
use crate::random::Random;
use crate::snapshot::tracing::{
    Decorator, Dialect, OpenTelemetry, Provider, Sampler, Sampling, Tracing, Zipkin,
};
use crate::stats::{Counter, TracingStats};

pub(crate) use self::tags::{
    CallEnd, Outcome, RequestTags, grpc_tags, http_tags, request_tags, try_tags,
};

/// Why a request is traced, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It has no id, or its share is not taken.
    NotTraceable,
    /// `x-client-trace-id`.
    Client,
    /// `x-envoy-force-trace`.
    Forced,
    /// The random share.
    Sampled,
}

impl Reason {
    pub(crate) fn traces(self) -> bool {
        self != Self::NotTraceable
    }

    pub(crate) const fn counter(self, stats: &TracingStats) -> &Counter {
        match self {
            Self::NotTraceable => &stats.not_traceable,
            Self::Client => &stats.client_enabled,
            Self::Forced => &stats.service_forced,
            Self::Sampled => &stats.random_sampling,
        }
    }

    /// Where a UUID has its version, Envoy says in request ids why they are traced.
    const fn of_digit(digit: u8) -> Self {
        match digit {
            b'9' => Self::Sampled,
            b'a' => Self::Forced,
            b'b' => Self::Client,
            _ => Self::NotTraceable,
        }
    }

    const fn digit(self) -> u8 {
        match self {
            Self::NotTraceable => b'4',
            Self::Client => b'b',
            Self::Forced => b'a',
            Self::Sampled => b'9',
        }
    }
}

/// Decides whether a request is traced, and says so in its id.
pub(crate) fn decide(
    tracing: &Tracing,
    sampling: Sampling,
    head: &mut Head,
    random: &mut Random,
) -> Reason {
    if !tracing.draws_by_id {
        return Reason::Sampled;
    }
    let Some(id) = head.get(Name::XRequestId) else { return Reason::NotTraceable };
    let Some(drawn) = id.first_chunk().and_then(number_of_digits) else {
        return Reason::NotTraceable;
    };
    let drawn = u64::from(drawn) % 10_000;
    let is_uuid = id.len() == UUID_LENGTH;
    let before = if is_uuid { Reason::of_digit(id[REASON_AT]) } else { Reason::NotTraceable };
    let mut reason = before;
    if reason == Reason::NotTraceable {
        let is_client = head.get(Name::XClientTraceId).is_some();
        reason = if is_client && sampling.client.takes(random.next()) {
            Reason::Client
        } else if head.get(Name::XEnvoyForceTrace).is_some() {
            Reason::Forced
        } else if sampling.random.takes(drawn) {
            Reason::Sampled
        } else {
            Reason::NotTraceable
        };
    }
    if !sampling.overall.takes(drawn) {
        reason = Reason::NotTraceable;
    }
    if reason != before && is_uuid && tracing.packs_reason {
        let mut packed = [0; UUID_LENGTH];
        packed.copy_from_slice(head.get(Name::XRequestId).unwrap_or_default());
        packed[REASON_AT] = reason.digit();
        head.set_array(Name::XRequestId, &packed);
    }
    reason
}

/// The number that eight hexadecimal digits are.
fn number_of_digits(digits: &[u8; 8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | char::from(*digit).to_digit(16)?))
}

const UUID_LENGTH: usize = 36;
/// Where a UUID has its version.
const REASON_AT: usize = 14;

/// What a stream keeps of its tracing.
#[derive(Debug)]
pub(crate) struct Traced {
    /// Of the request; none where it came with what cannot be read, or where no collector is told.
    pub(crate) span: Option<Span>,
    /// Of the attempt under way.
    pub(crate) attempt: Option<Attempt>,
    /// What the route calls it, where the client is told.
    pub(crate) decorated: Option<Arc<str>>,
    /// Why it is traced, or not, which counts with its answer.
    pub(crate) reason: Reason,
    /// Attempts have spans of their own, or phases.
    pub(crate) has_attempts: bool,
    /// When its first and its last attempt began, where phases have spans.
    pub(crate) attempted: Option<(Instant, Instant)>,
}

/// The span of an attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) span: Span,
    pub(crate) start: Instant,
    /// Retries before it.
    pub(crate) retries: u32,
    /// It has a connection.
    pub(crate) connected: bool,
}

/// Whose side a span tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Server,
    Client,
    /// Neither: what happens within this proxy.
    Internal,
}

/// A span under way.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) ids: Ids,
    pub(crate) sampled: bool,
    /// Whether it is sampled was decided here.
    pub(crate) is_own_decision: bool,
    pub(crate) kind: SpanKind,
    /// Its parent is of another process.
    pub(crate) has_remote_parent: bool,
    /// The server is told in `b3`.
    single: bool,
    /// `tracestate`, as it came.
    state: Box<[u8]>,
    /// Its name, where it is sampled.
    pub(crate) name: Cow<'static, [u8]>,
}

/// A span that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) span: Span,
    /// Since 1970, in nanoseconds.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) tags: Tags,
    /// When what happened, since 1970 in nanoseconds.
    pub(crate) events: Vec<(u64, &'static str)>,
}

impl Finished {
    /// About how many bytes it holds.
    fn weight(&self) -> usize {
        size_of::<Self>()
            + self.span.name.len()
            + self.span.state.len()
            + self.tags.weight()
            + self.events.len() * size_of::<(u64, &str)>()
    }
}

/// Begins the span of a request.
pub(crate) fn begin(
    tracing: &Tracing,
    provider: &Provider,
    reason: Reason,
    head: &Head,
    random: &mut Random,
) -> Option<Span> {
    let mut span = match &provider.dialect {
        Dialect::Zipkin(zipkin) => begin_zipkin(tracing, zipkin, reason, head, random),
        Dialect::OpenTelemetry(otel) => begin_otel(otel, reason, head, random),
    }?;
    let is_client = tracing.is_egress && !tracing.spawns_upstream;
    span.kind = if is_client { SpanKind::Client } else { SpanKind::Server };
    span.name_after(tracing, provider, head);
    Some(span)
}

fn begin_zipkin(
    tracing: &Tracing,
    zipkin: &Zipkin,
    reason: Reason,
    head: &Head,
    random: &mut Random,
) -> Option<Span> {
    let mut span = Span::of(Ids::default(), reason.traces());
    span.single = head.get(Name::B3).is_some();
    match context::read_b3(head, zipkin.with_w3c) {
        Said::Malformed => return None,
        Said::Nothing(said) => {
            let id = random.next();
            let high = if zipkin.long_ids { random.next() } else { 0 };
            span.ids =
                Ids { trace: (u128::from(high) << 64) | u128::from(id), span: id, parent: 0 };
            span.is_own_decision = said.is_none();
            span.sampled = said.unwrap_or(span.sampled);
        }
        Said::Parent(ids, said) => {
            let is_client = tracing.is_egress && !tracing.spawns_upstream;
            let shares = zipkin.shares && !is_client;
            span.ids = if shares { ids } else { ids.below(random) };
            span.is_own_decision = false;
            span.sampled = said.unwrap_or(span.sampled);
        }
    }
    Some(span)
}

fn begin_otel(
    otel: &OpenTelemetry,
    reason: Reason,
    head: &Head,
    random: &mut Random,
) -> Option<Span> {
    let (ids, said) = match context::read_w3c(head) {
        Said::Malformed => return None,
        Said::Nothing(_) => {
            let trace = (u128::from(random.next()) << 64) | u128::from(random.next());
            (Ids { trace, span: random.next(), parent: 0 }, None)
        }
        Said::Parent(ids, said) => (ids.below(random), said),
    };
    let draws = |sampler: &Sampler| samples(sampler, ids.trace, said);
    let sampled = otel.sampler.as_ref().map_or_else(|| said.unwrap_or(true), draws);
    let mut span = Span::of(ids, reason.traces() && sampled);
    span.is_own_decision = said.is_none() && otel.sampler.is_none();
    span.has_remote_parent = said.is_some();
    if said.is_some() {
        span.state = head.get(Name::Tracestate).unwrap_or_default().into();
    }
    Some(span)
}

fn samples(sampler: &Sampler, trace: u128, parent: Option<bool>) -> bool {
    match sampler {
        Sampler::AlwaysOn => true,
        // As Envoy has it: the first eight bytes in the order of the machine.
        Sampler::Ratio(fraction) => {
            let first = ((trace >> 64) as u64).swap_bytes();
            fraction.numerator > 0 && fraction.takes(first)
        }
        Sampler::Parent(otherwise) => parent.unwrap_or_else(|| samples(otherwise, trace, parent)),
    }
}

impl Span {
    fn of(ids: Ids, sampled: bool) -> Self {
        Self {
            ids,
            sampled,
            is_own_decision: true,
            kind: SpanKind::Server,
            has_remote_parent: false,
            single: false,
            state: Box::default(),
            name: Cow::Borrowed(&[]),
        }
    }

    /// Names it as its tracer does, where nothing else has named it.
    pub(crate) fn name_after(&mut self, tracing: &Tracing, provider: &Provider, head: &Head) {
        if !(self.sampled && self.name.is_empty()) {
            return;
        }
        self.name = match (&provider.dialect, tracing.is_egress) {
            (Dialect::Zipkin(_), _) => head.authority().to_vec().into(),
            (Dialect::OpenTelemetry(_), false) => b"ingress".into(),
            (Dialect::OpenTelemetry(_), true) => [b"egress ", head.authority()].concat().into(),
        };
    }

    fn state(&self) -> &[u8] {
        &self.state
    }

    /// That of an attempt of the request, or of another request for its sake.
    pub(crate) fn child(&self, name: Cow<'static, [u8]>, random: &mut Random) -> Self {
        let ids = self.ids.below(random);
        Self { ids, kind: SpanKind::Client, has_remote_parent: false, name, ..self.clone() }
    }

    /// That of a phase of it.
    pub(crate) fn phase(&self, name: &'static str, random: &mut Random) -> Self {
        let name = Cow::Borrowed(name.as_bytes());
        Self { kind: SpanKind::Internal, ..self.child(name, random) }
    }

    /// Tells a server who it is.
    pub(crate) fn inject(&self, dialect: &Dialect, head: &mut Head) {
        match dialect {
            Dialect::Zipkin(zipkin) => {
                context::write_b3(head, self.ids, self.sampled, self.single);
                if zipkin.with_w3c {
                    context::write_w3c(head, self.ids, self.sampled);
                }
            }
            Dialect::OpenTelemetry(_) => {
                context::write_w3c(head, self.ids, self.sampled);
                head.set(Name::Tracestate, &self.state);
            }
        }
    }
}

/// Lets the names that a route and the other side have for the request take effect on its span, and tells the other
/// side. Answers what the client is told with the response.
pub(crate) fn decorate(
    tracing: &Tracing,
    decorator: Option<&Decorator>,
    span: Option<&mut Span>,
    head: &mut Head,
) -> Option<Arc<str>> {
    let mut told = decorator.filter(|it| it.propagates && !it.operation.is_empty());
    let mut name = decorator.map(|it| it.operation.as_bytes().to_vec());
    if tracing.is_egress {
        if let Some(decorator) = told.take() {
            head.set(Name::XEnvoyDecoratorOperation, decorator.operation.as_bytes());
        }
    } else if let Some(said) = head.get(Name::XEnvoyDecoratorOperation) {
        if !said.is_empty() {
            name = Some(said.to_vec());
            told = None;
        }
        head.remove(Name::XEnvoyDecoratorOperation);
    }
    if let (Some(span), Some(name)) = (span.filter(|span| span.sampled), name) {
        span.name = name.into();
    }
    told.map(|decorator| Arc::clone(&decorator.operation))
}

impl Sampling {
    /// All requests.
    pub const ALL: Self = {
        let all = Fraction { numerator: 100, denominator: 100 };
        Self { client: all, random: all, overall: all }
    };
}

#[cfg(test)]
mod tests;
