//! The jobs over HTTP/2: many small requests, one stream on each connection, one large answer, calls of gRPC, and
//! connections that are held.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::shell::Result;

use super::configs::Kind;
use super::h2_abuse::{self, ATTACKS};
use super::jobs::{Origin, Scene, add, column, turns};
use super::load;
use super::report::Report;
use super::{Plan, Programs};

/// 32 streams on each of 8 connections.
const MANY: load::Streams = load::Streams { connections: 8, each: 32 };

/// As many 1 KB answers as come through.
pub(super) fn closed_loop(
    plan: &Plan,
    programs: &Programs,
    kind: Kind,
    report: &mut Report,
) -> Result<()> {
    let scene = Scene::start(plan, programs, kind)?;
    let columns = [
        column("CPU µs/req", "cpu_us_per_request", 2),
        column("user", "user_us_per_request", 2),
        column("system", "system_us_per_request", 2),
        column("req/CPU-s", "requests_per_cpu_second", 0),
        column("req/s", "requests_per_second", 0),
        column("mean µs", "mean_us", 0),
        column("MiB", "memory_mib", 1),
    ];
    let mut rows = scene.rows(columns.len());
    for round in 0..=plan.rounds {
        for (running, row) in turns(round, &scene.running, &mut rows) {
            let before = running.process.cpu();
            let run = if kind == Kind::Grpc {
                load::grpc(programs, running.port, MANY, plan.seconds, &scene.folder)
            } else {
                load::h2load(programs, kind, running.port, MANY, plan.seconds)
            };
            let run = run.map_err(|error| format!("{}: {error}", running.name))?;
            let cpu = running.process.cpu().since(before);
            // The first round warms up.
            if round > 0 {
                let requests = run.requests as f64;
                let total = cpu.total_ns as f64 / 1000.0 / requests;
                let user = cpu.user_ns() / 1000.0 / requests;
                let memory = running.process.resident_bytes() as f64 / f64::from(1 << 20);
                let rates = (1e6 / total, run.per_second);
                add(row, [total, user, total - user, rates.0, rates.1, run.mean_us, memory]);
            }
        }
    }
    let title = format!(
        "{}: {}, {} connections × {} streams, {} rounds of {} s",
        kind.name(),
        if kind == Kind::Grpc { "calls of 100 bytes" } else { "1 KB answers" },
        MANY.connections,
        MANY.each,
        plan.rounds,
        plan.seconds
    );
    report.table(&title, kind.name(), &columns, &rows);
    Ok(())
}

/// One request at a time on each of 64 connections, beside the same in HTTP/1.1.
pub(super) fn one_stream(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let scenes = [Kind::H2ToH1, Kind::Http].map(|kind| Scene::start(plan, programs, kind));
    let [h2, h1] = scenes;
    let (h2, h1) = (h2?, h1?);
    let columns = [
        column("CPU µs/req", "cpu_us_per_request", 2),
        column("of HTTP/1.1", "http1_cpu_us_per_request", 2),
        column("ratio", "cpu_over_http1", 3),
        column("mean µs", "mean_us", 0),
        column("of HTTP/1.1", "http1_mean_us", 0),
    ];
    let mut rows = h2.rows(columns.len());
    let streams = load::Streams { connections: 64, each: 1 };
    for round in 0..=plan.rounds {
        for (running, row) in turns(round, &h2.running, &mut rows) {
            let mut figures = Vec::new();
            let beside = h1.running.iter().find(|it| it.name == running.name);
            for (kind, running) in [(Kind::H2ToH1, Some(running)), (Kind::Http, beside)] {
                let Some(running) = running else { continue };
                let before = running.process.cpu();
                let run = load::h2load(programs, kind, running.port, streams, plan.seconds)
                    .map_err(|error| format!("{}: {error}", running.name))?;
                let cpu = running.process.cpu().since(before).total_ns as f64 / 1000.0;
                figures.push((cpu / run.requests as f64, run.mean_us));
            }
            if let ([h2, h1], true) = (&figures[..], round > 0) {
                add(row, [h2.0, h1.0, h2.0 / h1.0, h2.1, h1.1]);
            }
        }
    }
    let title = format!(
        "h2-1: 1 KB answers, 64 connections with one stream each and with HTTP/1.1, {} rounds of {} s",
        plan.rounds, plan.seconds
    );
    report.table(&title, "h2-1", &columns, &rows);
    Ok(())
}

/// One large answer through one stream.
pub(super) fn large(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let scene = Scene::start(plan, programs, Kind::H2ToH1)?;
    let columns = [
        column("CPU ms/GiB", "cpu_ms_per_gib", 0),
        column("user", "user_ms_per_gib", 0),
        column("GiB/s", "gib_per_second", 2),
        column("MiB", "memory_mib", 1),
    ];
    let mut rows = scene.rows(columns.len());
    let gib = plan.stream_bytes as f64 / f64::from(1 << 30);
    for round in 0..plan.rounds {
        for (running, row) in turns(round, &scene.running, &mut rows) {
            let before = running.process.cpu();
            let seconds = load::h2_drain(programs, running.port, plan.stream_bytes)
                .map_err(|error| format!("{}: {error}", running.name))?;
            let cpu = running.process.cpu().since(before);
            let memory = running.process.resident_bytes() as f64 / f64::from(1 << 20);
            let (total, user) = (cpu.total_ns as f64 / 1e6, cpu.user_ns() / 1e6);
            add(row, [total / gib, user / gib, gib / seconds, memory]);
        }
    }
    let title = format!("h2-large: {gib} GiB through one stream, {} rounds", plan.rounds);
    report.table(&title, "h2-large", &columns, &rows);
    Ok(())
}

/// Memory: idle connections of HTTP/2, and connections with streams that are not answered yet.
pub(super) fn held(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let columns = [
        column("B/conn", "bytes_per_connection", 0),
        column("idle MiB", "idle_mib", 1),
        column("held MiB", "held_mib", 1),
        column("more MiB", "more_mib", 1),
        column("B/stream", "bytes_per_stream", 0),
    ];
    let mib = f64::from(1 << 20);
    let slow = (plan.idle_connections / 10, 100);
    for (name, connections, streams) in
        [("h2-idle", plan.idle_connections, 0), ("h2-slow", slow.0, slow.1)]
    {
        let origin = if streams > 0 { Origin::Silent } else { Origin::Nginx };
        let scene = Scene::start_before(plan, programs, Kind::H2ToH2, origin)?;
        let mut rows = scene.rows(columns.len());
        for (running, row) in scene.running.iter().zip(&mut rows) {
            std::thread::sleep(Duration::from_millis(300));
            let idle = running.process.resident_bytes() as f64;
            match load::hold_streams(running.port, connections, streams) {
                Ok(_held) => {
                    std::thread::sleep(Duration::from_millis(500));
                    let full = running.process.resident_bytes() as f64;
                    let more = full - idle;
                    let each = more / connections as f64;
                    let of_stream = if streams > 0 { each / streams as f64 } else { f64::NAN };
                    add(row, [each, idle / mib, full / mib, more / mib, of_stream]);
                }
                Err(error) => println!("  {}: {error}", running.name),
            }
        }
        let title = if streams == 0 {
            format!("memory (PSS): {connections} idle connections of HTTP/2")
        } else {
            format!("memory (PSS): {connections} connections × {streams} streams that wait")
        };
        report.table(&title, name, &columns, &rows);
    }
    Ok(())
}

/// What each attack costs each proxy, and how it ends: each proxy is a fresh one for each attack.
pub(super) fn abuse(plan: &Plan, programs: &Programs, report: &mut Report) -> Result<()> {
    let columns = [
        column("CPU ms", "cpu_ms", 0),
        column("more MiB", "more_mib", 1),
        column("GOAWAY", "goaway_code", 0),
        column("closed", "closed", 0),
        column("said", "times", 0),
    ];
    for attack in &ATTACKS {
        let scene = Scene::start(plan, programs, Kind::H2ToH1)?;
        let mut rows = scene.rows(columns.len());
        for (running, row) in scene.running.iter().zip(&mut rows) {
            let (cpu, memory) = (running.process.cpu(), running.process.resident_bytes() as f64);
            let seen = h2_abuse::run(attack, (Ipv4Addr::LOCALHOST, running.port).into())
                .map_err(|error| format!("{}, {}: {error}", running.name, attack.name))?;
            // What is still to come of it comes.
            std::thread::sleep(Duration::from_secs(if attack.stays { 2 } else { 1 }));
            let cpu = running.process.cpu().since(cpu).total_ns as f64 / 1e6;
            let more = running.process.resident_bytes() as f64 - memory;
            let code = seen.go_away.map_or(f64::NAN, f64::from);
            let (closed, times) = (f64::from(u8::from(seen.is_closed)), f64::from(seen.times));
            add(row, [cpu, more / f64::from(1 << 20), code, closed, times]);
            drop(seen.stream);
        }
        let title = format!("attack {}: on one connection, {} times", attack.name, attack.times);
        report.table(&title, &format!("h2-abuse-{}", attack.name), &columns, &rows);
    }
    Ok(())
}
