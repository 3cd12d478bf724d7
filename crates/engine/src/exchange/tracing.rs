//! Distributed tracing of requests: a span for each, and for its attempts, and their way to the collector.
//!
//! Arrives: a request that has its route, its attempts, and its end. Leaves: fields for the server, and reports, which
//! are [callouts](crate::exchange::callout) whose answers no stream waits for.

use std::sync::Arc;

use towpath_proto::Instant;
use towpath_proto::name::Name;

use crate::conn::context::HttpContext;
use crate::env::{TimerSlot, Work};
use crate::exchange::Exchange;
use crate::exchange::callout::Asker;
use crate::exchange::log::{Setting, facts};
use crate::exchange::retry::flag_of;
use crate::exchange::stream::{Pass, Stream};
use crate::filter::Answer;
use crate::format::Facts;
use crate::free_slot;
use crate::ids::{ResetReason, StreamIndex};
use crate::record::Record;
use crate::snapshot::tracing::{Provider, RouteTracing, Tracing};
use crate::snapshot::{Http, Node};
use crate::tracer::phases::{Phase, of_attempt, of_request};
use crate::tracer::report::{Load, Next, Reporter, Stats};
use crate::tracer::tags::Tags;
use crate::tracer::{
    Attempt, Finished, Outcome, Reason, RequestTags, Span, Traced, begin, decide, decorate,
    request_tags, try_tags,
};

/// The reporters of a worker, each in its place for as long as anything is on its way.
#[derive(Debug, Default)]
pub(crate) struct Reporters(Vec<Option<Reporter>>);

impl Reporters {
    /// The place of a provider's reporter. Those of configurations that are gone are let go of.
    fn place(&mut self, provider: &Arc<Provider>, stats: &Stats) -> usize {
        let is_of = |slot: &Option<Reporter>| {
            slot.as_ref().is_some_and(|it| Arc::ptr_eq(&it.provider, provider))
        };
        if let Some(at) = self.0.iter().position(is_of) {
            return at;
        }
        for slot in &mut self.0 {
            slot.take_if(|it| it.is_idle() && Arc::strong_count(&it.provider) == 1);
        }
        let fresh = Reporter::new(Arc::clone(provider), stats.clone());
        free_slot::put(&mut self.0, fresh)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut Reporter> {
        self.0.get_mut(at)?.as_mut()
    }

    fn due(&self) -> Option<Instant> {
        self.0.iter().flatten().filter_map(|it| it.due).min()
    }
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryEnd {
    /// Its answer is through.
    Answered,
    /// It is given up here.
    Given,
    /// It was reset.
    Reset(ResetReason),
}

impl Stream {
    fn traced_mut(&mut self) -> Option<&mut Traced> {
        self.recorder.recording_mut()?.traced.as_mut()
    }

    /// An attempt has its connection: the server is told the span's id.
    pub(crate) fn tell_trace(&mut self) {
        let context = self.context.clone();
        let tracing = context.http().and_then(|http| http.config.tracing.as_ref());
        let Some(tracing) = tracing else { return };
        let Some(recording) = self.recorder.recording_mut() else { return };
        let Some(traced) = &mut recording.traced else { return };
        let span = match &mut traced.attempt {
            Some(attempt) => {
                attempt.connected = true;
                Some(&attempt.span)
            }
            None => traced.span.as_ref(),
        };
        if let (Some(span), Some(provider), false) = (span, &tracing.provider, tracing.silent) {
            span.inject(&provider.dialect, &mut self.request);
        }
    }

    fn route_tracing(&self) -> Option<&RouteTracing> {
        self.routed()?.route.tracing.as_deref()
    }
}

impl Exchange {
    /// Begins the span of a request that has its route.
    pub(crate) fn begin_tracing(&mut self, index: StreamIndex, http: &Http, pass: Pass) {
        let Some(tracing) = &http.tracing else { return };
        let Some(stream) = self.streams.get_mut(index) else { return };
        let random = &mut self.env.random;
        let sampling = stream.route_tracing().and_then(|it| it.sampling);
        let sampling = sampling.unwrap_or(tracing.sampling);
        let reason = match pass {
            Pass::First => decide(tracing, sampling, &mut stream.request, random),
            // As in Envoy, a request is not decided about again.
            Pass::Redirected => Reason::NotTraceable,
        };
        let mut span = tracing
            .provider
            .as_ref()
            .and_then(|provider| begin(tracing, provider, reason, &stream.request, random));
        let mut head = stream.request.take();
        let decorator = stream.route_tracing().and_then(|it| it.decorator.as_ref());
        let decorated = decorate(tracing, decorator, span.as_mut(), &mut head);
        stream.request.put(head, &mut self.env.heads);
        stream.recorder.note(|record| record.traceable = reason.traces());
        let has_attempts = has_attempt_spans(http, stream) || tracing.phases;
        if let Some(recording) = stream.recorder.recording_mut() {
            let attempt = None;
            recording.traced =
                Some(Traced { span, attempt, decorated, reason, has_attempts, attempted: None });
        }
    }

    /// Decides anew whether a request is traced that has another route now.
    pub(crate) fn retrace(&mut self, index: StreamIndex, http: &HttpContext) {
        let (Some(tracing), Some(stream)) = (&http.config.tracing, self.streams.get_mut(index))
        else {
            return;
        };
        let sampling = stream.route_tracing().and_then(|it| it.sampling);
        let sampling = sampling.unwrap_or(tracing.sampling);
        let reason = decide(tracing, sampling, &mut stream.request, &mut self.env.random);
        stream.recorder.note(|record| record.traceable = reason.traces());
        let Some(recording) = stream.recorder.recording_mut() else { return };
        let Some(traced) = recording.traced.as_mut() else { return };
        traced.reason = reason;
        let span = traced.span.as_mut();
        if let (Some(span), Some(provider)) = (span, &tracing.provider)
            && span.is_own_decision
        {
            span.sampled = reason.traces();
            span.name_after(tracing, provider, &stream.request);
        }
    }

    /// An attempt of a request begins: where attempts have spans, it gets one.
    pub(crate) fn begin_try_span(&mut self, index: StreamIndex, now: Instant) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let context = stream.context.clone();
        let Some(http) = context.http() else { return };
        let Some(tracing) = &http.config.tracing else { return };
        if tracing.phases
            && let Some(traced) = stream.traced_mut()
        {
            traced.attempted = Some((traced.attempted.map_or(now, |(first, _)| first), now));
        }
        if !has_attempt_spans(&http.config, stream) {
            return;
        }
        let cluster = self.upstreams.clusters.get(stream.cluster);
        let cluster = cluster.map(|cluster| Arc::clone(&cluster.config.stat_name));
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let operation = stream.route_tracing().and_then(|it| it.upstream_operation.as_ref());
        let mut name = Vec::new();
        if let Some(operation) = operation.or(tracing.upstream_operation.as_ref()) {
            operation.write(&mut name, &facts(stream, None, setting, now));
        }
        let retries = stream.retries.done;
        let Some(traced) = stream.traced_mut() else { return };
        let (Some(span), None) = (&traced.span, &traced.attempt) else { return };
        if name.is_empty() {
            name = format!("router {} egress", cluster.as_deref().unwrap_or_default()).into_bytes();
        }
        let span = span.child(name.into(), &mut self.env.random);
        traced.attempt = Some(Attempt { span, start: now, retries, connected: false });
    }

    /// An attempt is over, if it has a span, is to be logged or is measured.
    pub(crate) fn end_try_span(&mut self, index: StreamIndex, end: TryEnd, now: Instant) {
        let attempts = self.streams.get_mut(index).is_some_and(|it| it.recorder.has_attempt());
        if attempts && let Some(mut stream) = self.streams.close(index) {
            stream.end_measuring(end, now);
            self.finish_try(&mut stream, end, now);
            self.log_attempt(&mut stream, end, now);
            self.streams.put_back(index, stream);
        }
    }

    fn finish_try(&mut self, stream: &mut Stream, end: TryEnd, now: Instant) {
        let Some(attempt) = stream.traced_mut().and_then(|traced| traced.attempt.take()) else {
            return;
        };
        if !attempt.span.sampled {
            return;
        }
        let context = stream.context.clone();
        let Some(http) = context.http() else { return };
        stream.complete_record();
        let reason = match end {
            TryEnd::Reset(
                ResetReason::PerTryTimeout
                | ResetReason::PerTryIdleTimeout
                | ResetReason::MaxStreamDuration,
            ) => None,
            TryEnd::Reset(reason) => Some(reason),
            TryEnd::Answered | TryEnd::Given => None,
        };
        let flag = reason.and_then(flag_of).and_then(|flag| flag.short_names().next());
        let outcome = Outcome {
            retries: attempt.retries,
            connected: attempt.connected,
            status: if stream.local_reply { 0 } else { stream.response_status() },
            canceled: reason.is_none() && end != TryEnd::Answered,
            failed: reason.map(|reason| (reason.reset().reason(), flag.unwrap_or("-"))),
        };
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let facts = facts(stream, None, setting, now);
        let Some(of) = tags_of(&facts, http, stream, &self.snapshot.node) else { return };
        let tags = try_tags(&of, outcome);
        let events = events(&facts, http, true);
        let start_ns = since_1970(&facts, attempt.start);
        let phases = match has_phases(http) {
            true => of_attempt(facts.record, attempt.start, now),
            false => Vec::new(),
        };
        let finished = Finished {
            span: attempt.span,
            start_ns,
            end_ns: since_1970(&facts, now),
            tags,
            events,
        };
        self.report_phases(http, &finished.span, phases, now);
        self.report(http, finished, now);
    }

    fn report_phases(&mut self, http: &HttpContext, of: &Span, phases: Vec<Phase>, now: Instant) {
        let since_1970 = self.env.clock.epoch_unix_ns;
        for (name, from, to) in phases {
            let span = of.phase(name, &mut self.env.random);
            let [start_ns, end_ns] = [from, to].map(|at| since_1970.saturating_add(at.as_nanos()));
            let (mut tags, events) = (Tags::default(), Vec::new());
            tags.add("component", b"proxy");
            self.report(http, Finished { span, start_ns, end_ns, tags, events }, now);
        }
    }

    /// A stream is over: so are its spans.
    pub(crate) fn end_tracing(&mut self, stream: &mut Stream, now: Instant) {
        let context = stream.context.clone();
        let Some(http) = context.http() else { return };
        let end = if stream.is_complete() { TryEnd::Answered } else { TryEnd::Given };
        self.finish_try(stream, end, now);
        let traced = stream.recorder.recording_mut().and_then(|it| it.traced.take());
        // As in Envoy, one that is never answered is not counted, and a check of health is not traced.
        let is_check = stream.is_health_check;
        if stream.status != 0 {
            let reason = traced.as_ref().filter(|_| !is_check).map(|it| it.reason);
            reason.unwrap_or(Reason::NotTraceable).counter(&http.tracing_stats).inc();
        }
        let Some(traced) = traced else { return };
        let Some(mut span) = traced.span.filter(|span| span.sampled && !is_check) else { return };
        let setting = Setting { clusters: &self.upstreams.clusters, clock: &self.env.clock };
        let mut facts = facts(stream, None, setting, now);
        facts.response = (stream.status != 0).then_some(&stream.response);
        let Some(of) = tags_of(&facts, http, stream, &self.snapshot.node) else { return };
        let tags = request_tags(&of);
        let events = events(&facts, http, false);
        let operation = stream.route_tracing().and_then(|it| it.operation.as_ref());
        let of_manager = http.config.tracing.as_ref().and_then(|it| it.operation.as_ref());
        if let Some(operation) = operation.or(of_manager) {
            let mut name = Vec::new();
            operation.write(&mut name, &facts);
            if !name.is_empty() {
                span.name = name.into();
            }
        }
        let start_ns = since_1970(&facts, facts.record.start);
        let mut phases = Vec::new();
        if has_phases(http) {
            let (first, last) = traced.attempted.unzip();
            phases = of_request(facts.record, first, now);
            // Where attempts have spans, theirs are below those.
            let last = last.filter(|_| !has_attempt_spans(&http.config, stream));
            phases.extend(last.into_iter().flat_map(|since| of_attempt(facts.record, since, now)));
        }
        let finished = Finished { span, start_ns, end_ns: since_1970(&facts, now), tags, events };
        self.report_phases(http, &finished.span, phases, now);
        self.report(http, finished, now);
    }

    pub(super) fn report(&mut self, http: &HttpContext, span: Finished, now: Instant) {
        let provider = http.config.tracing.as_ref().and_then(|it| it.provider.as_ref());
        let stats = http.tracer_stats.as_ref();
        let (Some(provider), Some(stats)) = (provider, stats) else { return };
        let at = self.reporters.place(provider, stats);
        let Some(reporter) = self.reporters.get_mut(at) else { return };
        match reporter.add(span, now) {
            Next::Leave => self.env.work.push_back(Work::Report(at)),
            Next::Wait(_) => self.set_report_timer(),
            Next::Dropped => {}
        }
    }

    fn set_report_timer(&mut self) {
        let slot = TimerSlot::Reports.number();
        match self.reporters.due() {
            Some(due) => self.env.timers.set(slot, due),
            None => self.env.timers.clear(slot),
        }
    }

    /// The time for spans that wait has come.
    pub(crate) fn on_report_timer(&mut self, now: Instant) {
        for at in 0..self.reporters.0.len() {
            let Some(reporter) = self.reporters.get_mut(at) else { continue };
            if reporter.due.is_some_and(|due| due <= now) {
                reporter.count_timer();
                self.send_report(at, true, now);
            }
        }
        self.set_report_timer();
    }

    /// Sends all that waits, to every collector.
    pub(crate) fn send_all_reports(&mut self, now: Instant) {
        for at in 0..self.reporters.0.len() {
            self.send_report(at, true, now);
        }
        self.set_report_timer();
    }

    /// Sends what leaves together, or all that waits.
    pub(crate) fn send_report(&mut self, at: usize, all: bool, now: Instant) {
        let Some(reporter) = self.reporters.get_mut(at) else { return };
        let service = &self.snapshot.node.cluster;
        if let Some((callout, load)) = reporter.take(all, service, &mut self.env.scratch) {
            self.call_out(Asker::Reporter { at, load }, callout, now);
        }
    }

    /// A report is over.
    pub(crate) fn end_report(&mut self, at: usize, load: Load, answer: &Answer) {
        if let Some(reporter) = self.reporters.get_mut(at) {
            reporter.end(load, answer);
        }
    }

    /// Says in a response how its request is called: to a client what the route calls it. What a server said ends here.
    pub(crate) fn decorate_response(&mut self, index: StreamIndex, tracing: &Tracing) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let said = stream.response.get(Name::XEnvoyDecoratorOperation).map(<[u8]>::to_vec);
        let Some(traced) = stream.traced_mut() else { return };
        if !tracing.is_egress {
            if let Some(operation) = traced.decorated.take() {
                stream.response.set(Name::XEnvoyDecoratorOperation, operation.as_bytes());
            }
        } else if let Some(said) = said {
            if let (Some(span), false) = (&mut traced.span, said.is_empty()) {
                span.name = said.into();
            }
            stream.response.remove(Name::XEnvoyDecoratorOperation);
        }
    }
}

/// Whether phases have spans.
fn has_phases(http: &HttpContext) -> bool {
    http.config.tracing.as_ref().is_some_and(|tracing| tracing.phases)
}

/// Whether attempts have spans of their own.
fn has_attempt_spans(http: &Http, stream: &Stream) -> bool {
    let router = &http.chain(stream.chain).router;
    let spawns = |tracing: &Tracing| tracing.spawns_upstream || router.starts_child_span;
    http.tracing.as_ref().is_some_and(spawns)
}

fn tags_of<'a>(
    facts: &'a Facts<'a>,
    http: &'a HttpContext,
    stream: &'a Stream,
    node: &'a Node,
) -> Option<RequestTags<'a>> {
    let tracing = http.config.tracing.as_ref()?;
    let of_route = stream.route_tracing().map_or(&[][..], |route| &route.tags);
    Some(RequestTags { facts, node, max_path: tracing.max_path, custom: [&tracing.tags, of_route] })
}

/// When what happened, where the configuration wants to know.
fn events(facts: &Facts<'_>, http: &HttpContext, of_try: bool) -> Vec<(u64, &'static str)> {
    if !http.config.tracing.as_ref().is_some_and(|tracing| tracing.verbose) {
        return Vec::new();
    }
    let record: &Record = facts.record;
    let all = [
        (record.request_end.filter(|_| !of_try), "last_downstream_rx_byte_received"),
        (record.upstream_first_sent, "first_upstream_tx_byte_sent"),
        (record.upstream_last_sent, "last_upstream_tx_byte_sent"),
        (record.upstream_first_received, "first_upstream_rx_byte_received"),
        (record.upstream_last_received, "last_upstream_rx_byte_received"),
        (record.response_start.filter(|_| !of_try), "first_downstream_tx_byte_sent"),
        (record.response_end.filter(|_| !of_try), "last_downstream_tx_byte_sent"),
    ];
    let known = all.into_iter().filter_map(|(at, what)| Some((at?, what)));
    known.map(|(at, what)| (since_1970(facts, at), what)).collect()
}

pub(super) fn since_1970(facts: &Facts<'_>, at: Instant) -> u64 {
    facts.epoch_unix_ns.saturating_add(at.as_nanos())
}
