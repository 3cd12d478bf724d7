//! Mars STN's benchmark: short connections on lossy, slow and interrupted networks.

mod client;
mod optimum;
mod outage;

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use towpath_sim::link::{Conditions, Loss, Profile, Timeline};

use self::client::{Attempts, Client, Job};
use self::optimum::optimum;
use self::outage::{Outage, State};
use super::{Options, Replay, Samples};
use crate::address::Address;
use crate::link::{Link, SynSchedule, Tuning};
use crate::origin::{Origin, spawn};
use crate::random::Random;

/// One measurement on a link of its own.
struct Cell {
    table: &'static str,
    case: String,
    client: Client,
    down: Conditions,
    up: Conditions,
    outage: Option<Outage>,
    request: usize,
    response: usize,
    successes: u32,
    budget: Duration,
    seed: u64,
}

pub(super) fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> io::Result<Replay> {
    let mut notes = vec![
        "Every request is a connection of its own, as in the original, but for those with one engine or one client, \
         who keep connections where nothing else is said. Loss \
         is each way. Outages begin before the first attempt and end at a \
         random moment within a second after the named length, because the repetition schedule of connection attempts \
         makes the outcome depend \
         on the phase. The sizes of the third and fourth table are inferred from the published times (64 and 120 KiB); \
         the published figures are \
         Android's, Mars beside Towpath and OkHttp beside OkHttp. The kernel's rows are plain sockets under both \
         phones' schedules; \
         'staggered' opens another connection every four seconds, which is Mars's published strategy, made of plain \
         sockets. The fifth table is \
         not the original's: the link goes while a client waits for an answer that takes the server 0.4 s, while its \
         connection is idle, or in a \
         response of 256 KiB at 2 Mbit/s, from a server that has ranges; 0.4 s for another answer and some 0.3 s for \
         what is missing of the \
         response are in the figures. The optimum of the third and fourth is the link's arithmetic: one round trip to \
         connect, the bytes at the \
         link's rate, an initial window of ten segments that doubles with each round trip."
            .to_owned(),
    ];
    let clients = Client::all(options, &mut notes);
    let mut cells = cells(options, &clients);
    cells.retain(|cell| options.tables.is_empty() || options.tables.contains(&number(cell.table)));
    let count = cells.len();
    progress(&format!("{count} measurements, {AT_ONCE} at a time"));
    let samples = Mutex::new(Samples::new(options.seed));
    let queue = Mutex::new(cells.into_iter());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(count) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().ok().and_then(|mut queue| queue.next());
                    let Some(cell) = next else { return };
                    match cell.measure() {
                        Ok(attempts) => {
                            if let Ok(mut samples) = samples.lock() {
                                cell.record(&attempts, &mut samples);
                            }
                        }
                        Err(error) => {
                            if let Ok(mut failures) = failures.lock() {
                                failures.push(format!(
                                    "{}, {}, {}: {error}.",
                                    cell.table,
                                    cell.case,
                                    cell.client.name()
                                ));
                            }
                        }
                    }
                }
            });
        }
    });
    notes.extend(failures.into_inner().unwrap_or_default());
    let mut samples = samples.into_inner().map_err(|_| io::Error::other("a measurement failed"))?;
    samples.originals = &[("towpath", "Mars"), ("okhttp", "OkHttp"), ("staggered", "Mars on iOS")];
    publish(&mut samples);
    summarise(&mut samples);
    let mut rows = samples.into_rows();
    rows.sort_by(|a, b| a.table.cmp(&b.table));
    Ok(Replay { rows, notes, made: None })
}

/// Longest first, so that nothing long starts last.
fn cells(options: &Options, clients: &[Client]) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut random = Random::new(options.seed);
    let quick = options.is_quick;
    let outages: &[u64] = if quick { &[5, 10, 15, 20] } else { &[5, 10, 15, 20, 25, 30, 35] };
    let blank = |table, case: String, client: &Client, seed| Cell {
        table,
        case,
        client: client.clone(),
        down: Conditions::default(),
        up: Conditions::default(),
        outage: None,
        request: 0,
        response: 100,
        successes: 1,
        budget: Duration::from_secs(110),
        seed,
    };
    let (shared, clients): (Vec<&Client>, Vec<&Client>) =
        clients.iter().partition(|client| client.is_shared());
    let one_shot: Vec<&Client> =
        clients.iter().copied().filter(|client| **client != Client::Staggered).collect();
    let rounds = if quick { 1 } else { 10 };
    for (length, round) in
        outages.iter().rev().flat_map(|length| (0..rounds).map(move |round| (length, round)))
    {
        let length_s = Duration::from_secs(*length);
        for state in State::ALL {
            // Its phase decides between two attempts of a client.
            let length = length_s + Duration::from_secs_f64(random.uniform());
            let outage = Outage { state, length };
            if quick && state != State::Connect && length_s != QUICK_OUTAGE {
                continue;
            }
            for client in if state == State::Connect { &clients } else { &one_shot } {
                let seconds = length_s.as_secs();
                let (table, case) = if state == State::Connect {
                    (OUTAGES, format!("{seconds} s without a link"))
                } else {
                    (INTERRUPTIONS, format!("{}, {seconds} s", state.name()))
                };
                cells.push(Cell {
                    down: state.conditions(),
                    up: state.conditions(),
                    outage: Some(outage),
                    response: state.response(),
                    ..blank(table, case, client, options.seed + round)
                });
            }
        }
    }
    let (count, budget) = if quick { (10, 25) } else { (500, 3600) };
    let fixed: Vec<&Client> = one_shot.iter().chain(&shared).copied().collect();
    for percent in [50u32, 30, 20, 10] {
        for client in &fixed {
            let loss = Conditions {
                loss: Loss::Bernoulli(f64::from(percent) / 100.0),
                delay: Duration::from_millis(20),
                ..Conditions::default()
            };
            cells.push(Cell {
                down: loss.clone(),
                up: loss,
                successes: count,
                budget: Duration::from_secs(budget),
                ..blank(LOSSES, format!("{percent} % loss"), client, options.seed)
            });
        }
    }
    for (name, profile) in [("2G", "edge"), ("3G", "3g")] {
        let Some(profile) = Profile::find(profile) else { continue };
        let networked = |table, case, client: &Client| Cell {
            down: profile.down(),
            up: profile.up(),
            ..blank(table, case, client, options.seed)
        };
        for client in &fixed {
            cells.push(Cell {
                successes: count,
                budget: Duration::from_secs(budget),
                ..networked(LOSSES, name.to_owned(), client)
            });
        }
        for client in fixed.iter().filter(|client| client.connects_anew()) {
            for kibibytes in SIZES {
                let case = format!("{name}, {kibibytes} KiB");
                let successes = if quick { 3 } else { 50 };
                let size = kibibytes * 1024;
                let budget = Duration::from_secs(if quick { 40 } else { 1200 });
                cells.push(Cell {
                    request: size,
                    successes,
                    budget,
                    ..networked(REQUESTS, case.clone(), client)
                });
                cells.push(Cell {
                    response: size,
                    successes,
                    budget,
                    ..networked(RESPONSES, case, client)
                });
            }
        }
    }
    cells
}

impl Cell {
    fn measure(&self) -> io::Result<Attempts> {
        let syn_schedule = if self.client == Client::KernelClassic {
            SynSchedule::Classic
        } else {
            SynSchedule::Linear
        };
        let link = Link::open(&Tuning { syn_schedule, ..Tuning::default() })?;
        let mut origin =
            Origin::http(Address::Tcp(([10, 77, 0, 2], client::PORT).into()), self.response);
        origin.has_ranges = true;
        let state = self.outage.map(|outage| outage.state);
        origin.delay = state.map_or(Duration::ZERO, State::delay);
        let _server = link.far().run(move || spawn(&origin))?;
        let ready = self.client.prepare(
            &link,
            Job {
                request: self.request,
                successes: self.successes,
                budget: self.budget,
                spacing: state.and_then(State::spacing),
            },
        )?;
        let timeline = self.outage.map_or_else(Timeline::default, Outage::timeline);
        link.follow(&self.down, &self.up, &timeline, self.seed, false);
        ready.go(&link)
    }

    fn record(&self, attempts: &Attempts, samples: &mut Samples) {
        let (who, table) = (self.client.name(), self.table);
        let mut add =
            |metric, unit, value| samples.add(table, &self.case, who, metric, unit, value);
        let successes = f64::from(attempts.successes);
        if let Some(outage) = self.outage {
            let has_finished = attempts.successes > 0;
            let finished = if has_finished { attempts.total.as_secs_f64() } else { f64::NAN };
            add("finished", "s", finished);
            let after = finished - outage.ends().as_secs_f64();
            add("after_recovery", "s", after.max(0.0));
            add("succeeded", "of 1", f64::from(u8::from(has_finished)));
            let every = format!("{}, every length", outage.state.name());
            samples.add(table, &every, who, "after_recovery_all", "s", after.max(0.0));
            return;
        }
        let time = attempts.total.as_secs_f64() / successes;
        add("time_per_success", "s", time);
        if [REQUESTS, RESPONSES].contains(&table)
            && let Some(least) = optimum(&self.up, &self.down, self.request, self.response)
        {
            add("time_over_optimum", "times", time / least.as_secs_f64());
        }
        add("attempts_per_success", "", f64::from(attempts.attempts) / successes);
        add("successes", "requests", successes);
    }
}

/// The 90th percentile and the worst of all outages, whatever their length.
fn summarise(samples: &mut Samples) {
    for state in State::ALL {
        let table = if state == State::Connect { OUTAGES } else { INTERRUPTIONS };
        let case = format!("{}, every length", state.name());
        for who in samples.subjects(table, &case) {
            let mut values = samples.take(table, &case, &who, "after_recovery_all");
            values.sort_by(f64::total_cmp);
            let (Some(worst), count) = (values.last().copied(), values.len()) else { continue };
            let p90 = values[(count * 9).div_ceil(10).saturating_sub(1)];
            samples.add(table, &case, &who, "after_recovery_p90", "s", p90);
            samples.add(table, &case, &who, "after_recovery_worst", "s", worst);
            samples.add(table, &case, &who, "recovered", "outages", count as f64);
        }
    }
}

/// The figures that the original's text holds; its other results are pictures.
fn publish(samples: &mut Samples) {
    // Mars and OkHttp on Android, mean seconds.
    for (table, figures) in [
        (
            REQUESTS,
            [
                ("3G, 64 KiB", 2.28, 2.26),
                ("2G, 64 KiB", 5.3, 5.64),
                ("3G, 120 KiB", 3.94, 3.9),
                ("2G, 120 KiB", 7.78, 7.78),
            ],
        ),
        (
            RESPONSES,
            [
                ("3G, 64 KiB", 2.34, 2.2),
                ("2G, 64 KiB", 5.36, 5.68),
                ("3G, 120 KiB", 3.16, 3.0),
                ("2G, 120 KiB", 7.14, 7.24),
            ],
        ),
    ] {
        for (case, mars, okhttp) in figures {
            samples.publish(table, case, "towpath", "time_per_success", "s", mars);
            samples.publish(table, case, "okhttp", "time_per_success", "s", okhttp);
        }
    }
    // How much earlier Mars was than its control on iOS (whose schedule is linear): set beside the same
    // difference between plain sockets.
    for (length, lead) in [(5, 1.0), (10, 0.0), (15, 3.07), (20, 14.1), (25, 8.09), (30, 3.96)] {
        let case = format!("{length} s without a link");
        let first = |samples: &Samples, who: &str| {
            samples.of(OUTAGES, &case, who, "finished").first().copied()
        };
        let lead_here = first(samples, Client::KernelLinear.name())
            .zip(first(samples, Client::Staggered.name()));
        if let Some((plain, staggered)) = lead_here {
            samples.add(
                OUTAGES,
                &case,
                "staggered",
                "lead_over_one_socket",
                "s",
                plain - staggered,
            );
            samples.publish(OUTAGES, &case, "staggered", "lead_over_one_socket", "s", lead);
        }
    }
}

/// The digit that a table's title begins with.
fn number(table: &str) -> u32 {
    table.chars().next().and_then(|digit| digit.to_digit(10)).unwrap_or_default()
}

const LOSSES: &str = "1. Time and attempts for each success on a fixed network";
const OUTAGES: &str = "2. Outage, then recovery";
const REQUESTS: &str = "3. Request sizes";
const RESPONSES: &str = "4. Response sizes";
const INTERRUPTIONS: &str = "5. Outage in the middle";
/// The only one in the middle of something that a quick run has.
const QUICK_OUTAGE: Duration = Duration::from_secs(10);
const SIZES: [usize; 2] = [64, 120];
/// Links in use at the same time; they are idle nearly always.
const AT_ONCE: usize = 64;
