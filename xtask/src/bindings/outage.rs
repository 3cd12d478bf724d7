//! One outage through the library itself and through its bindings: a connection is wanted while there is no link for
//! 20 s, and what counts is how long after the link's return there is an answer. That is the library's work, so that a
//! binding must not be later than it by more than [`MOST`], on average over the rounds.
//!
//! Each run has a link of its own (`towpath lab link`, in network namespaces), several at a time. The moment at which
//! the link returns lies differently to the attempts in each round, and is the same for all clients of a round. What a
//! program takes to start is over long before then, and what it takes to end is not counted.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use super::{fetch, folder, install, java, program};
use crate::shell::{Result, cargo, output, run as run_command, target};

/// Who asks.
#[derive(Clone)]
struct Client {
    name: &'static str,
    /// A line of shell that asks for `$URL` and then prints the time, in s.
    line: String,
}

/// `[--quick]`.
pub(super) fn run(options: &[&str]) -> Result<()> {
    let rounds = match options {
        [] => 12,
        ["--quick"] => 4,
        _ => return Err("usage: cargo xtask bindings outage [--quick]".into()),
    };
    run_command(cargo().args(["build", "--quiet", "--package", "towpath-cli"]))?;
    let towpath = target().join("debug/towpath");
    let clients = clients(&towpath)?;
    let runs: Vec<(usize, usize)> = (0..rounds)
        .flat_map(|round| (0..clients.len()).map(move |client| (round, client)))
        .collect();
    println!("{} runs of {} s, {AT_ONCE} at a time", runs.len(), OUTAGE.as_secs());
    let (queue, times) =
        (Mutex::new(runs.into_iter()), Mutex::new(vec![Vec::new(); clients.len()]));
    let work = || -> std::result::Result<(), String> {
        loop {
            let next = queue.lock().map_err(|_| "another run failed")?.next();
            let Some((round, client)) = next else { return Ok(()) };
            // Evenly over a second, within which several attempts lie.
            let outage = OUTAGE + Duration::from_secs(1) * round as u32 / rounds as u32;
            let after = measure(&towpath, &clients[client], outage)
                .map_err(|error| format!("{}: {error}", clients[client].name))?;
            times.lock().map_err(|_| "another run failed")?[client].push(after);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => Err("a run failed".to_owned()),
        })
    })?;
    let times = times.into_inner().map_err(|_| "a run failed")?;
    report(&clients, &times)
}

fn clients(towpath: &Path) -> Result<Vec<Client>> {
    fetch()?;
    install("dev")?;
    let class_path = java("dev", "debug")?;
    Ok(vec![
        Client {
            name: "library",
            line: format!("{} get --output /dev/null $URL && date +%s.%N", towpath.display()),
        },
        Client {
            name: "Python",
            line: format!(
                "{} {}/bench/fetch.py $URL",
                program("python").display(),
                folder().display()
            ),
        },
        Client { name: "JVM", line: format!("java -cp {class_path} io.towpath.Fetch $URL") },
    ])
}

/// How many seconds after the link's return there was an answer.
fn measure(towpath: &Path, client: &Client, outage: Duration) -> Result<f64> {
    let outage_s = outage.as_secs_f64();
    let told = output(
        Command::new(towpath)
            .args(["lab", "link", "--no-calibration", "--delay", "20ms"])
            .args(["--outage", &format!("0s+{outage_s}s")])
            .args(["--far", &format!("{} lab origin --listen $TOWPATH_FAR:80", towpath.display())])
            .args(["--", "sh", "-c"])
            .arg(format!("date +%s.%N; URL=http://$TOWPATH_FAR/; {}", client.line)),
    )?;
    let mut moments = told.lines().filter_map(|line| line.trim().parse::<f64>().ok());
    let (Some(began), Some(ended)) = (moments.next(), moments.next()) else {
        return Err(format!("it told no times: {told}").into());
    };
    Ok(ended - began - outage_s)
}

fn report(clients: &[Client], times: &[Vec<f64>]) -> Result<()> {
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
    let own = mean(&times[0]);
    println!(
        "s from the link's return to the answer: mean, worst, and the mean beside the library's"
    );
    let mut late = Vec::new();
    for (client, times) in clients.iter().zip(times) {
        let worst = times.iter().copied().fold(f64::MIN, f64::max);
        let beside = mean(times) - own;
        println!("{:8} {:6.3} {worst:6.3} {beside:+6.3}", client.name, mean(times));
        if beside > MOST {
            late.push(client.name);
        }
    }
    if late.is_empty() {
        return Ok(());
    }
    Err(format!("later than the library by more than {MOST} s: {}", late.join(", ")).into())
}

const OUTAGE: Duration = Duration::from_secs(20);
/// Runs wait nearly all of their time.
const AT_ONCE: usize = 12;
/// In s.
const MOST: f64 = 0.1;
