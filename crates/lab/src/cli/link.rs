//! `towpath lab link`.

mod account;
mod control;
mod record;

use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use towpath_proto::time::Instant as LinkInstant;
use towpath_sim::link::{Aqm, Change, Conditions, Loss, PROFILES, Profile, Rate, Timeline, Trace};

use super::units::{parse_milliseconds, parse_seconds, parse_size, show_ns};
use crate::link::{self, Backend, Report, SynSchedule, Traffic, Tuning};
use account::Happening;
use control::Control;
use record::Record;

/// Run a command behind an emulated network
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
The command runs in the near network namespace, each --far command in the far one. TOWPATH_NEAR and
TOWPATH_FAR hold their addresses (TOWPATH_NEAR6 and TOWPATH_FAR6 for IPv6). Values apply to each direction;
DOWN/UP sets them apart. The exit code is the command's, 127 where there is no such command.

Example: towpath lab link --profile 3g --outage 2s+5s --far 'towpath lab origin --listen $TOWPATH_FAR:80' -- \\
             curl -sv http://10.77.0.2/")]
pub struct Link {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// A named network; see --list-profiles
    #[arg(long, value_name = "NAME", value_parser = parse_profile)]
    profile: Option<&'static Profile>,
    /// Packets lost, in percent
    #[arg(long, value_name = "P", value_parser = parse_both_percent)]
    loss: Option<Both<f64>>,
    /// Let losses come in bursts of N packets on average
    #[arg(long, value_name = "N", requires = "loss")]
    burst: Option<f64>,
    /// Losses of a good and a bad state: P/R[/BAD[/GOOD]], in percent: to turn bad after a packet, to turn good again,
    /// to lose a packet in the bad state (100) and in the good one (0)
    #[arg(long, value_name = "P/R", value_parser = parse_gilbert_elliott, conflicts_with_all = ["loss", "burst"])]
    gilbert_elliott: Option<Loss>,
    /// Manage the queue before it is full: `codel[:TARGET/INTERVAL]` (RFC 8289; 5ms/100ms) or `pie[:TARGET]` (RFC 8033;
    /// 15ms)
    #[arg(long, value_name = "AQM", value_parser = parse_aqm)]
    aqm: Option<Aqm>,
    /// Let the managed queue mark packets rather than drop them (RFC 3168), and both ends' TCP ask for that
    #[arg(long, requires = "aqm")]
    ecn: bool,
    /// Let packets overtake each other by their --jitter
    #[arg(long, requires = "jitter")]
    jitter_reorders: bool,
    /// Take changes while the command runs, as lines on a Unix socket: "set delay=50ms loss=2", "profile edge",
    /// "outage 3s", "show"
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Travelling time in ms unless a unit is given
    #[arg(long, value_name = "D", value_parser = parse_both_delay)]
    delay: Option<Both<Duration>>,
    /// Up to how much more, drawn evenly. Packets keep their order: where they follow each other more closely than D,
    /// each waits for the slowest before it, and the mean is above half of D
    #[arg(long, value_name = "D", value_parser = parse_both_delay)]
    jitter: Option<Both<Duration>>,
    /// Bits per second: 780kbit, 10mbit, 780kbit/330kbit
    #[arg(long, value_name = "R", value_parser = parse_both_rate)]
    rate: Option<Both<f64>>,
    /// Deliver at the opportunities in a file of mahimahi's format: FILE or DOWN,UP
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    trace: Option<String>,
    /// What may wait for the rate: packets of 1500 bytes, or bytes with a unit (64k)
    #[arg(long, value_name = "N", value_parser = parse_queue)]
    queue: Option<u64>,
    /// Packets held back by a quarter of the delay (by the jitter, or 1 ms, if that is more), in percent; only those
    /// that follow sooner overtake them
    #[arg(long, value_name = "P", value_parser = parse_both_percent)]
    reorder: Option<Both<f64>>,
    /// Packets that arrive twice, in percent
    #[arg(long, value_name = "P", value_parser = parse_both_percent)]
    duplicate: Option<Both<f64>>,
    /// No link from START on for LENGTH, in seconds unless units are given; may be repeated
    #[arg(long, value_name = "START+LENGTH", value_parser = parse_outage)]
    outage: Vec<(Duration, Duration)>,
    /// From START on, another profile; may be repeated
    #[arg(long, value_name = "START:PROFILE", value_parser = parse_change)]
    change: Vec<(Duration, &'static Profile)>,
    /// Which packets are lost: the same seed loses the same packet numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this shell command in the far namespace; may be repeated
    #[arg(long, value_name = "COMMAND")]
    far: Vec<String>,
    /// TCP congestion control of both ends
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// When connection attempts are repeated
    #[arg(long, value_enum, default_value = "linear")]
    syn: Syn,
    /// Largest packet
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u16).range(1280..9001))]
    mtu: u16,
    /// How packets are taken from the kernel; TUN where there is one unless given
    #[arg(long, value_enum)]
    backend: Option<BackendName>,
    /// Skip the second of self-measurement before the command
    #[arg(long)]
    no_calibration: bool,
    /// Write what happened with schema 1; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write every packet as CSV
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write a page: the wire, what a radio would have spent, counts
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// List the named networks and end
    #[arg(long)]
    list_profiles: bool,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "list_profiles")]
    command: Vec<String>,
}

/// What is done without a link.
#[derive(Debug, Subcommand)]
enum Instead {
    /// Measure a real path, and print the options that emulate it
    Record(Record),
}

/// A value for each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Both<T> {
    down: T,
    up: T,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Syn {
    /// 1, 3, 7, 15, 31 s
    Classic,
    /// 1, 2, 3, 4, 5, 7, 11 s
    Linear,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BackendName {
    Tun,
    Packet,
}

impl Link {
    pub(super) fn run(self) -> super::Outcome {
        if self.list_profiles {
            super::print(&list_profiles());
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(Instead::Record(record)) = self.instead {
            return record.run();
        }
        let (down, up) = self.conditions()?;
        let timeline = self.timeline();
        link::become_root_of_a_user_namespace()?;
        let tuning = self.tuning();
        let mut link = link::Link::open(&tuning)?;
        if !self.no_calibration {
            link.calibrate()?;
        }
        let mut far = Far::default();
        for command in &self.far {
            far.start(&link, command)?;
        }
        far.await_listener(&link);
        let is_logged = self.log.is_some() || self.report.is_some();
        link.follow(&down, &up, &timeline, self.seed, is_logged);
        let started = Instant::now();
        let control =
            self.control.as_deref().map(|path| Control::open(path, &down, &up)).transpose()?;
        let is_over = AtomicBool::new(false);
        let (ended, taken) = std::thread::scope(|scope| {
            let serving =
                control.map(|control| scope.spawn(|| control.serve(&link, started, &is_over)));
            // A failure is told when the thread is, too.
            let ended = self.run_near(&link).map_err(|error| error.to_string());
            is_over.store(true, Ordering::Relaxed);
            (ended, serving.and_then(|thread| thread.join().ok()).unwrap_or_default())
        });
        let status = match ended? {
            Ok(status) => status,
            Err(error) => {
                eprintln!("towpath: cannot run {}: {error}", self.command[0]);
                return Ok(code_of_missing(&error).into());
            }
        };
        let (report, duration) = (link.report(), started.elapsed());
        let happened = self.happened(taken, duration);
        drop(far);
        if let Some(path) = &self.log {
            std::fs::write(path, report.packets_csv())
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        if let Some(path) = &self.report {
            let page =
                report.to_page(&self.circumstances(duration, &happened, &tuning, &down, &up));
            super::write_text(path, &page.to_html())?;
        }
        if let Some(path) = &self.json {
            super::write_result(
                path,
                "link",
                self.report_json(&report, &happened, &tuning, &down, &up, status),
            )?;
        }
        super::terminal::tell_aside(&summary(&report, &happened, &tuning));
        Ok(exit_code(status))
    }

    /// The command's end; the inner error is that it could not be run at all.
    fn run_near(
        &self,
        link: &link::Link,
    ) -> Result<std::io::Result<ExitStatus>, Box<dyn std::error::Error>> {
        let words = self.command.clone();
        let spawned = link
            .near()
            .run(move || with_addresses(Command::new(&words[0]).args(&words[1..])).spawn());
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => return Ok(Err(error)),
        };
        // The terminal sends its signals to the command too; this process stays to clean up.
        let (until, forwarding) = forward_signals(Pid::from_raw(child.id() as i32))?;
        let status = child.wait();
        drop(until);
        let _ = forwarding.join();
        Ok(Ok(status?))
    }

    fn conditions(&self) -> Result<(Conditions, Conditions), Box<dyn std::error::Error>> {
        let (mut down, mut up) =
            self.profile.map_or_else(Default::default, |profile| (profile.down(), profile.up()));
        let traces = self.trace.as_deref().map(read_traces).transpose()?;
        for (conditions, is_down) in [(&mut down, true), (&mut up, false)] {
            if let Some(loss) = self.loss {
                let share = loss.pick(is_down);
                conditions.loss = match self.burst {
                    _ if share == 0.0 => Loss::None,
                    Some(burst) => Loss::bursts(share, burst),
                    None => Loss::Bernoulli(share),
                };
            }
            conditions.loss = self.gilbert_elliott.unwrap_or(conditions.loss);
            conditions.aqm = self.aqm.unwrap_or(conditions.aqm);
            conditions.ecn = self.ecn;
            conditions.jitter_reorders = self.jitter_reorders;
            if let Some(delay) = self.delay {
                conditions.delay = delay.pick(is_down);
            }
            if let Some(jitter) = self.jitter {
                conditions.jitter = jitter.pick(is_down);
            }
            if let Some(rate) = self.rate {
                conditions.rate = Rate::BitsPerSecond(rate.pick(is_down));
            }
            if let Some(traces) = &traces {
                conditions.rate =
                    Rate::Trace(Arc::clone(if is_down { &traces.down } else { &traces.up }));
            }
            conditions.queue_bytes = self.queue.or(conditions.queue_bytes);
            conditions.reorder =
                self.reorder.map_or(conditions.reorder, |share| share.pick(is_down));
            conditions.duplicate =
                self.duplicate.map_or(conditions.duplicate, |share| share.pick(is_down));
        }
        let may_get_a_rate = self.control.is_some() || !self.change.is_empty();
        let has_rate = !matches!((&down.rate, &up.rate), (Rate::Unlimited, Rate::Unlimited));
        if (self.aqm.is_some() || self.queue.is_some()) && !has_rate && !may_get_a_rate {
            let words = "without --rate, --trace or a --profile with a rate nothing ever waits in the queue";
            return Err(super::usage(words.to_owned()));
        }
        Ok((down, up))
    }

    fn timeline(&self) -> Timeline {
        let timeline = self.outage.iter().fold(Timeline::default(), |timeline, (start, length)| {
            timeline.with_outage(*start, *length)
        });
        self.change.iter().fold(timeline, |timeline, (start, profile)| {
            timeline.with_change(Change {
                at: LinkInstant::ZERO + *start,
                down: profile.down(),
                up: profile.up(),
            })
        })
    }

    fn tuning(&self) -> Tuning {
        Tuning {
            backend: self.backend.map(|backend| match backend {
                BackendName::Tun => Backend::Tun,
                BackendName::Packet => Backend::PacketSocket,
            }),
            congestion_control: self.congestion.clone(),
            syn_schedule: match self.syn {
                Syn::Classic => SynSchedule::Classic,
                Syn::Linear => SynSchedule::Linear,
            },
            mtu: self.mtu,
            ecn: self.ecn,
        }
    }
}

impl<T: Copy> Both<T> {
    fn pick(self, is_down: bool) -> T {
        if is_down { self.down } else { self.up }
    }
}

/// Commands of the far namespace; they end when this is dropped.
#[derive(Default)]
struct Far(Vec<Child>);

impl Far {
    fn start(
        &mut self,
        link: &link::Link,
        command: &str,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let words = command.to_owned();
        let child = link.far().run(move || {
            // A process group of its own, so that what the shell starts ends with it.
            with_addresses(Command::new("sh").args(["-c", &words])).process_group(0).spawn()
        });
        self.0.push(child.map_err(|error| format!("cannot run '{command}': {error}"))?);
        Ok(())
    }

    /// Waits until something listens, so that the command does not come too early.
    fn await_listener(&mut self, link: &link::Link) {
        let deadline = Instant::now() + Duration::from_secs(3);
        while !self.0.is_empty() && Instant::now() < deadline && !link.far().has_listener() {
            std::thread::sleep(Duration::from_millis(10));
            if self.0.iter_mut().any(|child| child.try_wait().is_ok_and(|status| status.is_some()))
            {
                return;
            }
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        for child in &self.0 {
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
        }
        let deadline = Instant::now() + Duration::from_millis(500);
        for child in &mut self.0 {
            while Instant::now() < deadline && child.try_wait().is_ok_and(|status| status.is_none())
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

fn with_addresses(command: &mut Command) -> &mut Command {
    command
        .env("TOWPATH_NEAR", link::NEAR)
        .env("TOWPATH_FAR", link::FAR)
        .env("TOWPATH_NEAR6", link::NEAR6)
        .env("TOWPATH_FAR6", link::FAR6)
}

/// As a shell has it: 127 where there is no such command, 126 where it may not be run.
fn code_of_missing(error: &std::io::Error) -> u8 {
    if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
}

/// From now on SIGINT and SIGTERM to this process become SIGTERM to the command, until the sender is dropped.
fn forward_signals(
    command: Pid,
) -> std::io::Result<(oneshot::Sender<()>, std::thread::JoinHandle<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let listen = |kind| {
        let _inside = runtime.enter();
        signal(kind)
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let (until, mut is_over) = oneshot::channel();
    let forwarding = std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = &mut is_over => return,
                }
                let _ = nix::sys::signal::kill(command, Signal::SIGTERM);
            }
        });
    });
    Ok((until, forwarding))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    // As a shell has it: 128 and the signal's number.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(code as u8)
}

fn summary(report: &Report, happened: &[Happening], tuning: &Tuning) -> String {
    let mut text = format!(
        "link: {}, {}, SYN {}{}\n",
        report.backend,
        tuning.congestion_control,
        tuning.syn_schedule.describe(),
        if report.is_realtime { ", real-time" } else { "" }
    );
    if let Some(calibration) = &report.calibration {
        let _ = writeln!(
            text,
            "  calibration  adds {} to a round trip (p50), delay error {} (p90), loss {:.1} % for 10 %",
            show_ns(calibration.null_rtt_ns.p50 as f64),
            show_ns(calibration.delay_error_ns.p90 as f64),
            calibration.loss * 100.0
        );
    }
    for (name, traffic) in [("up", &report.up), ("down", &report.down)] {
        let _ = writeln!(text, "  {name:<11}  {}", traffic_line(traffic));
    }
    for it in happened {
        let at = it.at.as_secs_f64();
        let _ = writeln!(text, "  changed      after {at:.1} s: {}", it.what);
    }
    for warning in report.warnings() {
        let _ = writeln!(text, "  warning      {warning}");
    }
    text
}

fn traffic_line(traffic: &Traffic) -> String {
    format!(
        "{} packets, {} lost, {} queue full, {}{} in outage, {} bytes delivered, late by {} (p99)",
        traffic.packets,
        traffic.lost,
        traffic.queue_full,
        managed(traffic),
        traffic.outage,
        traffic.delivered_bytes,
        show_ns(traffic.lateness.quantile(0.99) as f64)
    )
}

/// What a managed queue did; nothing where there is none.
fn managed(traffic: &Traffic) -> String {
    match (traffic.managed, traffic.marked) {
        (0, 0) => String::new(),
        (dropped, marked) => format!("{dropped} dropped and {marked} marked by the queue, "),
    }
}

fn conditions_json(conditions: &Conditions) -> Value {
    let rate = match &conditions.rate {
        Rate::Unlimited => Value::Null,
        Rate::BitsPerSecond(rate) => json!(rate),
        Rate::Trace(trace) => json!({ "trace_mean": trace.mean_bits_per_second() }),
    };
    json!({
        "loss": conditions.loss.share(),
        "rate_bits_per_s": rate,
        "queue_bytes": conditions.queue_limit(),
        "delay_ns": conditions.delay.as_nanos() as u64,
        "jitter_ns": conditions.jitter.as_nanos() as u64,
        "jitter_reorders": conditions.jitter_reorders,
        "aqm": aqm_words(conditions.aqm),
        "ecn": conditions.ecn,
        "reorder": conditions.reorder,
        "duplicate": conditions.duplicate,
    })
}

/// `780 kbit/s, 50 ms, 2 % lost`.
fn conditions_words(conditions: &Conditions) -> String {
    let bits = |rate: f64| match rate {
        large if large >= 1e7 => format!("{} Mbit/s", large / 1e6),
        small => format!("{} kbit/s", (small / 1e2).round() / 1e1),
    };
    let mut words = match &conditions.rate {
        Rate::Unlimited => "any rate".to_owned(),
        Rate::BitsPerSecond(rate) => bits(*rate),
        Rate::Trace(trace) => {
            format!("a trace of {} on average", bits(trace.mean_bits_per_second()))
        }
    };
    if matches!(conditions.aqm, Aqm::CoDel { .. } | Aqm::Pie { .. }) {
        let marks = if conditions.ecn { " with marks" } else { "" };
        words += &format!(" behind {}{marks}", aqm_words(conditions.aqm));
    }
    let is_some = |time: Duration| !time.is_zero();
    words += &match (is_some(conditions.delay), is_some(conditions.jitter)) {
        (false, false) => ", no delay".to_owned(),
        (true, false) => format!(", {:?}", conditions.delay),
        (_, true) => {
            format!(", {:?} to {:?}", conditions.delay, conditions.delay + conditions.jitter)
        }
    };
    for (share, what) in [
        (conditions.loss.share(), "lost"),
        (conditions.reorder, "held back"),
        (conditions.duplicate, "twice"),
    ] {
        if share > 0.0 {
            words += &format!(", {} % {what}", (share * 1e5).round() / 1e3);
        }
    }
    words
}

fn aqm_words(aqm: Aqm) -> String {
    match aqm {
        Aqm::TailDrop => "tail-drop".to_owned(),
        Aqm::CoDel { target, interval } => format!("codel:{target:?}/{interval:?}"),
        Aqm::Pie { target } => format!("pie:{target:?}"),
    }
}

/// `codel`, `codel:5ms/100ms`, `pie`, `pie:15ms`.
fn parse_aqm(text: &str) -> Result<Aqm, String> {
    let above_zero = |text: &str| match parse_milliseconds(text)? {
        Duration::ZERO => Err("a target and an interval are above zero".to_owned()),
        some => Ok(some),
    };
    match text.split_once(':') {
        None if text == "codel" => Ok(Aqm::CODEL),
        None if text == "pie" => Ok(Aqm::PIE),
        Some(("codel", times)) => {
            let (target, interval) = times.split_once('/').ok_or("codel has TARGET/INTERVAL")?;
            Ok(Aqm::CoDel { target: above_zero(target)?, interval: above_zero(interval)? })
        }
        Some(("pie", target)) => Ok(Aqm::Pie { target: above_zero(target)? }),
        None | Some(_) => Err(format!("'{text}' is neither codel nor pie")),
    }
}

fn parse_gilbert_elliott(text: &str) -> Result<Loss, String> {
    let percent = |text: &str| match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        Ok(_) | Err(_) => Err(format!("'{text}' is not a percentage")),
    };
    let shares: Vec<f64> = text.split('/').map(percent).collect::<Result<_, _>>()?;
    match shares[..] {
        [to_bad, to_good, ref rest @ ..] if rest.len() <= 2 => Ok(Loss::GilbertElliott {
            to_bad,
            to_good,
            bad_loss: rest.first().copied().unwrap_or(1.0),
            good_loss: rest.get(1).copied().unwrap_or(0.0),
        }),
        _ => Err("it is P/R, P/R/BAD or P/R/BAD/GOOD".to_owned()),
    }
}

fn list_profiles() -> String {
    let mut text =
        format!("{:<12} {:>21} {:>17} {:>9}  source\n", "name", "down/up", "delay", "loss");
    for profile in PROFILES {
        let (down, up) = (profile.down(), profile.up());
        let rate = |conditions: &Conditions| match &conditions.rate {
            Rate::Unlimited => "-".to_owned(),
            Rate::BitsPerSecond(rate) => format!("{:.0}k", rate / 1000.0),
            Rate::Trace(trace) => format!("~{:.0}k", trace.mean_bits_per_second() / 1000.0),
        };
        let _ = writeln!(
            text,
            "{:<12} {:>21} {:>17} {:>9}  {}",
            profile.name,
            format!("{}/{}", rate(&down), rate(&up)),
            format!("{:?}/{:?}", down.delay, up.delay),
            format!("{}/{}%", down.loss.share() * 100.0, up.loss.share() * 100.0),
            profile.source
        );
    }
    text
}

fn read_traces(words: &str) -> Result<Both<Arc<Trace>>, Box<dyn std::error::Error>> {
    let read = |path: &str| -> Result<Arc<Trace>, Box<dyn std::error::Error>> {
        let text =
            std::fs::read_to_string(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
        Ok(Arc::new(Trace::parse(&text).map_err(|error| format!("{path}: {error}"))?))
    };
    match words.split_once(',') {
        Some((down, up)) => Ok(Both { down: read(down)?, up: read(up)? }),
        None => {
            let trace = read(words)?;
            Ok(Both { down: Arc::clone(&trace), up: trace })
        }
    }
}

fn parse_profile(name: &str) -> Result<&'static Profile, String> {
    Profile::find(name).ok_or_else(|| {
        let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        format!("no such profile; there are {}", names.join(", "))
    })
}

fn parse_both<T: Copy>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Both<T>, String> {
    match text.split_once('/') {
        Some((down, up)) => Ok(Both { down: parse(down)?, up: parse(up)? }),
        None => parse(text).map(|value| Both { down: value, up: value }),
    }
}

fn parse_both_percent(text: &str) -> Result<Both<f64>, String> {
    parse_both(text, |text| match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        Ok(_) | Err(_) => Err(format!("'{text}' is not a percentage")),
    })
}

fn parse_both_delay(text: &str) -> Result<Both<Duration>, String> {
    parse_both(text, parse_milliseconds)
}

fn parse_both_rate(text: &str) -> Result<Both<f64>, String> {
    parse_both(text, |text| {
        let lower = text.trim().to_lowercase();
        let end = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
        let (number, unit) = lower.split_at(end);
        let factor = match unit {
            "" | "bit" | "bps" | "bit/s" => 1.0,
            "k" | "kbit" | "kbps" | "kbit/s" => 1e3,
            "m" | "mbit" | "mbps" | "mbit/s" => 1e6,
            "g" | "gbit" | "gbps" | "gbit/s" => 1e9,
            _ => return Err(format!("'{unit}' is no unit of rate; use kbit, mbit or gbit")),
        };
        match number.parse::<f64>() {
            Ok(value) if value > 0.0 => Ok(value * factor),
            Ok(_) | Err(_) => Err(format!("'{text}' is not a rate above zero")),
        }
    })
}

fn parse_queue(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(packets) if packets <= 1_000_000 => Ok(packets * 1500),
        Ok(_) => Err("more than a million packets".to_owned()),
        Err(_) => parse_size(text).map(|bytes| bytes as u64),
    }
}

fn parse_outage(text: &str) -> Result<(Duration, Duration), String> {
    let (start, length) = text.split_once('+').ok_or("an outage is START+LENGTH, as in 2s+5s")?;
    Ok((parse_seconds(start)?, parse_seconds(length)?))
}

fn parse_change(text: &str) -> Result<(Duration, &'static Profile), String> {
    let (start, profile) =
        text.split_once(':').ok_or("a change is START:PROFILE, as in 10s:edge")?;
    Ok((parse_seconds(start)?, parse_profile(profile)?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        link: Link,
    }

    #[test]
    fn signals_to_us_end_the_command() {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            let (until, forwarding) = forward_signals(Pid::from_raw(child.id() as i32)).unwrap();
            nix::sys::signal::kill(Pid::this(), signal).unwrap();
            let status = child.wait().unwrap();
            assert_eq!(status.signal(), Some(Signal::SIGTERM as i32), "{signal}");
            drop(until);
            forwarding.join().unwrap();
        }
    }

    #[test]
    fn conditions_are_told_in_words_without_what_is_not_there() {
        let mut conditions = Conditions::default();
        assert_eq!(conditions_words(&conditions), "any rate, no delay");
        conditions.rate = Rate::BitsPerSecond(780e3);
        conditions.delay = Duration::from_millis(50);
        conditions.loss = Loss::Bernoulli(0.005);
        assert_eq!(conditions_words(&conditions), "780 kbit/s, 50ms, 0.5 % lost");
        (conditions.rate, conditions.jitter) =
            (Rate::BitsPerSecond(2.5e7), Duration::from_millis(30));
        (conditions.duplicate, conditions.aqm) = (0.2, parse_aqm("codel").unwrap());
        assert_eq!(
            conditions_words(&conditions),
            "25 Mbit/s behind codel:5ms/100ms, 50ms to 80ms, 0.5 % lost, 20 % twice"
        );
    }

    #[test]
    fn a_queue_without_a_rate_is_refused() {
        let refused = |words: &[&str]| {
            let words = ["link"].iter().chain(words).chain(&["--", "true"]);
            let it = <Words as clap::Parser>::try_parse_from(words).unwrap();
            it.link.conditions().is_err()
        };
        assert!(refused(&["--aqm", "codel"]) && refused(&["--queue", "10", "--delay", "5"]));
        assert!(!refused(&["--aqm", "codel", "--rate", "1mbit"]));
        assert!(!refused(&["--aqm", "pie", "--profile", "3g"]));
        assert!(!refused(&["--queue", "10", "--control", "/tmp/link"]), "a rate may come later");
    }

    #[test]
    fn values_may_differ_by_direction() {
        assert_eq!(parse_both_rate("780kbit/330kbit"), Ok(Both { down: 780e3, up: 330e3 }));
        assert_eq!(parse_both_rate("10mbit"), Ok(Both { down: 10e6, up: 10e6 }));
        assert_eq!(parse_both_percent("5/0%"), Ok(Both { down: 0.05, up: 0.0 }));
        assert_eq!(
            parse_both_delay("20/20ms"),
            Ok(Both { down: Duration::from_millis(20), up: Duration::from_millis(20) })
        );
        assert_eq!(
            parse_outage("2s+500ms"),
            Ok((Duration::from_secs(2), Duration::from_millis(500)))
        );
        assert_eq!(parse_aqm("codel"), Ok(Aqm::CODEL));
        assert_eq!(parse_aqm("pie:15ms"), Ok(Aqm::PIE));
        assert!(
            ["red", "codel:5ms", "pie:0", "codel:5/0"].iter().all(|text| parse_aqm(text).is_err())
        );
        let bursts =
            Loss::GilbertElliott { to_bad: 0.01, to_good: 0.25, good_loss: 0.0, bad_loss: 0.5 };
        assert_eq!(parse_gilbert_elliott("1/25/50"), Ok(bursts));
        assert!(
            ["1", "1/2/3/4/5", "1/200"].iter().all(|text| parse_gilbert_elliott(text).is_err())
        );
        assert_eq!(parse_queue("10"), Ok(15_000));
        assert_eq!(parse_queue("64k"), Ok(65_536));
        assert!(
            parse_both_percent("101").is_err()
                && parse_both_rate("0").is_err()
                && parse_outage("5").is_err()
        );
        assert!(parse_profile("nowhere").is_err_and(|text| text.contains("3g")));
    }
}
