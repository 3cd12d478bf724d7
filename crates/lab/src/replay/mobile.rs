//! Envoy Mobile's analysis: a request every 200 ms, control against variant; CPU, memory, battery.

use std::io;
use std::time::{Duration, Instant};

use towpath_sim::link::{Profile, Timeline};

use super::okhttp::{Compiled, Task};
use super::{Options, Replay, Samples, shuffle};
use crate::energy::{LTE, UMTS, WIFI};
use crate::experiment::{Program, Running};
use crate::link::{FAR, Link, Tuning};
use crate::meter::Meter;
use crate::origin::{Origin, spawn};
use crate::random::Random;

pub(super) fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> io::Result<Replay> {
    let (rounds, seconds) = if options.is_quick { (3, 8) } else { (8, 30) };
    let link = Link::open(&Tuning::default())?;
    let origin = link.far().run(|| {
        spawn(&Origin::http(crate::address::Address::Tcp(([10, 77, 0, 2], PORT).into()), 1024))
    })?;
    let mut samples = Samples::new(options.seed);
    samples.originals = &[("towpath", "Envoy Mobile"), ("okhttp", "its control")];
    let mut notes = vec![
        "One request every 200 ms on one connection over the LTE profile, after two seconds of warm-up. Battery is \
         modelled from the packets \
         with a 2012 LTE handset's radio, never measured: with gaps below the radio's tail it cannot tell libraries \
         apart, which is what the \
         original's equal battery figures show. The published figures are Android's: Envoy Mobile beside Towpath, its \
         control beside OkHttp; of CPU it gives the share, which five requests a second share."
            .to_owned(),
    ];
    let okhttp = Compiled::new(options.peers.okhttp.as_deref());
    let mut subjects = subjects(options, &okhttp, seconds, &mut notes);
    let mut random = Random::new(options.seed);
    for round in 0..rounds {
        shuffle(&mut subjects, &mut random);
        for (who, program) in &subjects {
            progress(&format!("round {} of {rounds}, {who}", round + 1));
            measure(&link, who, program, seconds, options.seed, &mut samples)?;
        }
    }
    drop(origin);
    for (who, cpu, memory, battery) in [("towpath", 5.16, 109.0, 0.2), ("okhttp", 2.94, 52.0, 0.23)]
    {
        samples.publish(TABLE, CASE, who, "cpu", "% of a CPU", cpu);
        let per_request = cpu / 100.0 / REQUESTS_PER_SECOND * 1e6;
        samples.publish(TABLE, CASE, who, "cpu_per_request", "µs", per_request);
        samples.publish(TABLE, CASE, who, "memory", "MiB", memory);
        samples.publish(TABLE, CASE, who, "battery_lte_modelled", "% per minute", battery);
    }
    Ok(Replay { rows: samples.into_rows(), notes, made: None })
}

fn subjects(
    options: &Options,
    okhttp: &Result<Compiled, String>,
    seconds: u64,
    notes: &mut Vec<String>,
) -> Vec<(&'static str, Program)> {
    let url = format!("http://{FAR}:{PORT}/");
    let count = (seconds + WARM_UP_S + 5) * 5;
    let program = |name: &str, command: Vec<String>| Program {
        name: name.to_owned(),
        role: "client".to_owned(),
        command,
        ..Program::default()
    };
    let mut subjects = Vec::new();
    match &options.peers.curl {
        Some(curl) => {
            let words = [
                &curl.display().to_string(),
                "-s",
                "-o",
                "/dev/null",
                "--rate",
                "5/s",
                &format!("{url}[1-{count}]"),
            ];
            subjects.push(("curl", program("curl", words.map(str::to_owned).into())));
        }
        None => notes.push("curl was not found; set TOWPATH_CURL.".to_owned()),
    }
    match okhttp {
        Ok(okhttp) => {
            let task = Task {
                url: url.clone(),
                successes: count as u32,
                interval_ms: 200,
                timeout_ms: 10_000,
                body: 0,
                is_fresh: false,
                budget_ms: count * 200,
                waits: false,
            };
            subjects.push(("okhttp", program("okhttp", okhttp.command(&task))));
        }
        Err(error) => notes.push(format!("OkHttp was not measured: {error}.")),
    }
    match &options.peers.variant {
        Some(variant) => {
            let fill = |word: &str| {
                word.replace("{url}", &url)
                    .replace("{count}", &count.to_string())
                    .replace("{interval_ms}", "200")
            };
            subjects.push((
                "towpath",
                program("towpath", variant.split_whitespace().map(fill).collect()),
            ));
        }
        None => {
            let words = ["get", "--count", &count.to_string(), "--interval-ms", "200", &url];
            let towpath = options.peers.towpath.display().to_string();
            let command = std::iter::once(towpath).chain(words.map(str::to_owned)).collect();
            subjects.push(("towpath", program("towpath", command)));
        }
    }
    subjects
}

fn measure(
    link: &Link,
    who: &str,
    program: &Program,
    seconds: u64,
    seed: u64,
    samples: &mut Samples,
) -> io::Result<()> {
    let Some(profile) = Profile::find("lte") else {
        return Err(io::Error::other("there is no LTE profile"));
    };
    link.follow(&profile.down(), &profile.up(), &Timeline::default(), seed, false);
    let running = Running::launch(std::slice::from_ref(program), Some(link.near()))?;
    std::thread::sleep(Duration::from_secs(WARM_UP_S));
    // The radio is judged from here on too: conditions begin anew under the running client.
    link.follow(&profile.down(), &profile.up(), &Timeline::default(), seed, true);
    let meter = Meter::begin(&running.pids("client")).map_err(io::Error::other)?;
    let started = Instant::now();
    std::thread::sleep(Duration::from_secs(seconds));
    let (cost, elapsed) = (meter.cost_with_memory(), started.elapsed());
    let packets = link.report().packets();
    let requests = seconds as f64 * 5.0;
    samples.add(
        TABLE,
        CASE,
        who,
        "cpu",
        "% of a CPU",
        cost.cpu_ns as f64 / elapsed.as_nanos() as f64 * 100.0,
    );
    samples.add(TABLE, CASE, who, "cpu_per_request", "µs", cost.cpu_ns as f64 / requests / 1e3);
    samples.add(TABLE, CASE, who, "memory", "MiB", cost.rss_bytes as f64 / 1_048_576.0);
    samples.add(
        TABLE,
        CASE,
        who,
        "memory_proportional",
        "MiB",
        cost.pss_bytes as f64 / 1_048_576.0,
    );
    samples.add(TABLE, CASE, who, "packets", "per request", packets.len() as f64 / requests);
    let radios = [
        (LTE, "battery_lte_modelled"),
        (UMTS, "battery_3g_modelled"),
        (WIFI, "battery_wifi_modelled"),
    ];
    for (radio, metric) in radios {
        // Five small requests a second are within every radio's reach; of others nothing could be said.
        let Ok(energy) = radio.model(&packets, elapsed) else { continue };
        samples.add(TABLE, CASE, who, metric, "% per minute", energy.battery_percent_per_minute);
        if radio == LTE {
            let scale = energy.battery_percent_per_minute / energy.joules;
            samples.add(
                TABLE,
                CASE,
                who,
                "battery_lte_modelled_low",
                "% per minute",
                energy.low_joules * scale,
            );
            samples.add(
                TABLE,
                CASE,
                who,
                "battery_lte_modelled_high",
                "% per minute",
                energy.high_joules * scale,
            );
        }
    }
    Ok(())
}

const TABLE: &str = "CPU, memory and modelled battery";
const CASE: &str = "one request every 200 ms";
const REQUESTS_PER_SECOND: f64 = 5.0;
const PORT: u16 = 8080;
const WARM_UP_S: u64 = 2;
