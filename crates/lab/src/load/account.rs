//! What a run counted and what it cost: readings at both ends of the measured time, and the outcome.

use super::outcome::{EntryOutcome, Errors, GeneratorCost, Outcome, TargetCost};
use super::series::Series;
use super::{Entry, LoadError, Plan};
use crate::histogram::Nanoseconds;
use crate::meter::{self, Cost, Meter, MeterError, NoiseMeter};

/// What the loop counts.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) reconnects: u64,
    pub(super) waited: u64,
    pub(super) errors: Errors,
    pub(super) latency: Nanoseconds,
    pub(super) service: Nanoseconds,
    pub(super) lateness: Nanoseconds,
    pub(super) series: Series,
    pub(super) entries: Vec<EntryOutcome>,
}

/// Readings at both ends of the measured time.
pub(super) struct Account<'p> {
    plan: &'p Plan,
    begin: Option<Begin>,
    end: Option<End>,
}

struct Begin {
    meter: Meter,
    payers: Vec<(String, Meter)>,
    noise: NoiseMeter,
    cpu_ns: u64,
    times_us: (u64, u64),
    wait_ns: u64,
}

struct End {
    target: Cost,
    payers: Vec<(String, Cost)>,
    answered: u64,
    connections: usize,
    generator: GeneratorCost,
}

impl Tally {
    pub(super) fn new(plan: &Plan) -> Self {
        let entry = |it: &Entry| EntryOutcome { name: it.name.clone(), ..EntryOutcome::default() };
        let entries = plan.mix.iter().map(entry).collect();
        Self { series: Series::new(plan.duration), entries, ..Self::default() }
    }
}

impl<'p> Account<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self { plan, begin: None, end: None }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begin.is_some()
    }

    /// Reads the meters at the beginning of the measured time.
    pub(super) fn begin(&mut self) -> Result<(), LoadError> {
        let payer = |(name, pids): &(String, Vec<u32>)| Ok((name.clone(), Meter::begin(pids)?));
        self.begin = Some(Begin {
            meter: Meter::begin(&self.plan.pids)?,
            payers: self.plan.payers.iter().map(payer).collect::<Result<_, MeterError>>()?,
            noise: NoiseMeter::begin(),
            cpu_ns: meter::thread_cpu_ns(),
            times_us: meter::thread_times_us(),
            wait_ns: meter::thread_run_queue_wait_ns(),
        });
        Ok(())
    }

    /// Reads them at its end; the generator's own first, because reading the others is work too.
    pub(super) fn end(&mut self, answered: u64, connections: usize) {
        let Some(begin) = &self.begin else { return };
        let cpu_ns = meter::thread_cpu_ns() - begin.cpu_ns;
        let (user_us, system_us) = meter::thread_times_us();
        let times_us =
            (user_us.saturating_sub(begin.times_us.0), system_us.saturating_sub(begin.times_us.1));
        let (user_ns, system_ns) = meter::split(cpu_ns, times_us);
        let generator = GeneratorCost {
            cpu_ns,
            user_ns,
            system_ns,
            cpu_fraction: cpu_ns as f64 / self.plan.duration.as_nanos() as f64,
            run_queue_wait_ns: meter::thread_run_queue_wait_ns().saturating_sub(begin.wait_ns),
            send_lateness: Nanoseconds::new(),
        };
        let payer = |(name, meter): &(String, Meter)| (name.clone(), meter.cost_with_memory());
        self.end = Some(End {
            target: begin.meter.cost_with_memory(),
            payers: begin.payers.iter().map(payer).collect(),
            answered,
            connections,
            generator,
        });
    }

    /// Readings and counts together.
    pub(super) fn finish(self, tally: Tally) -> Outcome {
        let Self { plan, begin, end } = self;
        let noise = begin.as_ref().map(|begin| begin.noise.noise()).unwrap_or_default();
        let target = end.as_ref().filter(|_| !plan.pids.is_empty()).map(|end| TargetCost {
            cost: end.target,
            answered: end.answered,
            syscalls_per_request: None,
        });
        let payers = end.as_ref().map(|end| end.payers.clone()).unwrap_or_default();
        let connections = end.as_ref().map_or(0, |end| end.connections);
        let mut generator = end.map(|end| end.generator).unwrap_or_default();
        generator.send_lateness = tally.lateness;
        Outcome {
            intended_rps: plan.intended_rps(),
            duration: plan.duration,
            sent: tally.sent,
            answered: tally.answered,
            errors: tally.errors,
            connections,
            connections_wanted: plan.connections,
            reconnects: tally.reconnects,
            waited_for_connection: tally.waited,
            arrivals: plan.arrivals.name(),
            series: tally.series,
            latency: tally.latency,
            service: tally.service,
            target,
            payers,
            generator,
            noise,
            entries: tally.entries,
            agents: Vec::new(),
            warnings: Vec::new(),
        }
    }
}
