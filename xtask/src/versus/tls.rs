//! The jobs under TLS that HTTP alone does not have: handshakes, and what an idle connection holds.

use std::time::Duration;

use crate::shell::Result;

use super::configs::Kind;
use super::jobs::{Scene, add, column, turns};
use super::load;
use super::report::Report;
use super::{Plan, Programs};

/// A whole handshake for each request.
pub(super) fn handshakes(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let scene = Scene::start(plan, programs, Kind::Tls)?;
    let columns = [
        column("CPU µs each", "cpu_us_per_handshake", 1),
        column("user", "user_us_per_handshake", 1),
        column("each CPU-s", "handshakes_per_cpu_second", 0),
        column("each s", "handshakes_per_second", 0),
        column("p99 µs", "p99_us", 0),
    ];
    let mut rows = scene.rows(columns.len());
    let asks = load::Asks { kind: Kind::Tls, connections: 16, seconds: plan.seconds, closes: true };
    for round in 0..=plan.rounds {
        for (running, row) in turns(round, &scene.running, &mut rows) {
            let before = running.process.cpu();
            let closed = load::wrk(&programs.wrk, running.port, asks)
                .map_err(|error| format!("{}: {error}", running.name))?;
            let cpu = running.process.cpu().since(before);
            let each = |ns: f64| ns / 1000.0 / closed.requests as f64;
            let (total, user) = (each(cpu.total_ns as f64), each(cpu.user_ns()));
            if round > 0 {
                add(row, [total, user, 1e6 / total, closed.per_second, closed.p99_us]);
            }
        }
    }
    let title = format!(
        "tls-new: a connection with a whole handshake of TLS 1.3 (ECDSA, P-256) for each 1 KB answer, 16 at once, \
         {} rounds of {} s",
        plan.rounds, plan.seconds
    );
    report.table(&title, "tls-new", &columns, &rows);
    Ok(())
}

/// Memory of connections that do next to nothing, under TLS and without.
pub(super) fn idle(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let columns = [
        column("B more", "bytes_more_than_plain", 0),
        column("B/conn", "bytes_per_connection", 0),
        column("plain", "plain_bytes_per_connection", 0),
    ];
    let connections = plan.idle_connections / 5;
    let mut each: Vec<Vec<f64>> = Vec::new();
    let mut rows = Vec::new();
    for kind in [Kind::Http, Kind::Tls] {
        let scene = Scene::start(plan, programs, kind)?;
        let running = scene.running.iter().filter(|running| running.name != "floor");
        let mut of_kind = Vec::new();
        for running in running {
            std::thread::sleep(Duration::from_millis(300));
            let idle = running.process.resident_bytes();
            let held = load::keep(&programs.lab, kind, running, connections)
                .map_err(|error| format!("{}: {error}", running.name))?;
            std::thread::sleep(Duration::from_secs(2));
            let full = running.process.resident_bytes();
            drop(held);
            of_kind.push((full as f64 - idle as f64) / connections as f64);
        }
        each.push(of_kind);
        rows = scene.rows(columns.len());
    }
    let (plain, secure) = (&each[0], &each[1]);
    for ((row, secure), plain) in rows.iter_mut().zip(secure).zip(plain) {
        add(row, [secure - plain, *secure, *plain]);
    }
    let title =
        format!("memory (PSS): {connections} connections of HTTP/1.1, under TLS and without");
    report.table(&title, "tls-idle", &columns, &rows);
    Ok(())
}
