//! `towpath demo`: origin, sidecar and client on this machine, and a receipt of what the sidecar costs.
//!
//! Origin and sidecar are processes of their own, so that the kernel tells their CPU time apart. Load goes straight
//! to the origin and through the sidecar in turns, a slice each, so that whatever else the machine does disturbs
//! both alike.

mod machine;
mod processes;
mod progress;
mod receipt;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use towpath_lab::load::{Arrivals, Outcome, Plan, run_observed};
use towpath_lab::meter::{Cost, Meter};

use processes::{Origin, Sidecar};
use progress::Progress;
use receipt::Receipt;

type Error = Box<dyn std::error::Error>;

/// The whole product in half a minute: origin, sidecar, client and a receipt
#[derive(Debug, Args)]
#[command(after_help = "Example: towpath demo --seconds 24 --report receipt.html")]
pub(crate) struct Demo {
    /// How long to measure, straight and through the sidecar together
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(4..=3600))]
    seconds: u64,
    /// Requests per second
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Connections of the client
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Write the receipt as a page too
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl Demo {
    /// Carries it out.
    pub(crate) fn run(&self) -> ExitCode {
        match self.measure() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("towpath: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn measure(&self) -> Result<(), Error> {
        let origin = Origin::start(BODY)?;
        let sidecar = Sidecar::start(&origin.address, WORKERS)?;
        let idle_memory = sidecar.memory()?;
        let progress = self.progress();
        let mut sides = [Side::new(&origin.address), Side::new(&sidecar.address)];
        let pairs = (self.seconds / (2 * SLICE.as_secs())).max(1);

        progress.set_message("warming up");
        for side in &sides {
            self.slice(side, WARM_UP, 0, &progress)?;
        }
        for pair in 0..pairs {
            // Every other pair starts with the other side, so that a drift does not favour one.
            for turn in 0..2 {
                let index = ((pair + turn) % 2) as usize;
                progress.set_message(["straight to the origin", "through the sidecar"][index]);
                let origin_meter = Meter::begin(&[origin.pid()])?;
                let sidecar_meter = Meter::begin(&[sidecar.pid()])?;
                let outcome = self.slice(&sides[index], SLICE, pair + 1, &progress)?;
                sides[index].slices.push(Slice {
                    outcome,
                    origin: origin_meter.cost(),
                    sidecar: sidecar_meter.cost_with_memory(),
                });
            }
        }
        progress.clear();
        let [straight, through] = sides.map(|side| side.slices);
        let receipt = Receipt::new(receipt::Run {
            rate: self.rate,
            connections: self.connections,
            workers: WORKERS,
            body: BODY,
            slice: SLICE,
            idle_memory,
            straight,
            through,
        });
        receipt::print(&receipt.text())?;
        if let Some(path) = &self.report {
            std::fs::write(path, report::page(&receipt))
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        sidecar.stop()
    }

    fn slice(
        &self,
        side: &Side,
        duration: Duration,
        seed: u64,
        progress: &Progress,
    ) -> Result<Outcome, Error> {
        let mut plan = Plan::new(format!("http://{}/", side.address).parse()?);
        plan.arrivals = Arrivals::Poisson { rate: self.rate.into() };
        plan.connections = usize::try_from(self.connections)?;
        plan.duration = duration;
        // The same seed for both sides of a pair: the same arrivals.
        plan.seed = seed;
        let before = progress.position();
        let mut observer = |glimpse: &towpath_lab::load::Progress| {
            progress.set_position(before + u64::try_from(glimpse.elapsed.as_millis()).unwrap_or(0));
        };
        let outcome = run_observed(&plan, Some(&mut observer))?;
        progress.set_position(before + u64::try_from(duration.as_millis())?);
        Ok(outcome)
    }

    fn progress(&self) -> Progress {
        let total = Duration::from_secs(self.seconds) + 2 * WARM_UP;
        Progress::new(u64::try_from(total.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A target and what was measured on it.
struct Side {
    address: String,
    slices: Vec<Slice>,
}

impl Side {
    fn new(address: &str) -> Self {
        Self { address: address.to_owned(), slices: Vec::new() }
    }
}

/// One slice.
struct Slice {
    outcome: Outcome,
    origin: Cost,
    sidecar: Cost,
}

/// Bytes in an answer.
const BODY: usize = 1024;
/// Workers of the sidecar: what Istio gives its sidecars.
const WORKERS: u32 = 2;
/// How long one side is measured before it is the other's turn.
const SLICE: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(1);
