//! The checks.

use super::{Finding, Level, Row};
use crate::results;
use crate::stats::{littles_law, median, variation};

/// All checks over all rows, worst first within each line.
pub(super) fn all(rows: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in rows {
        findings.extend(littles(row));
        findings.extend(throughput(row));
        findings.extend(order(row));
        findings.extend(guessed(row));
        findings.extend(saturation(row));
        findings.extend(repeats(row));
        findings.extend(change(row));
        findings.extend(interval(row));
    }
    findings.extend(per_request(rows));
    findings.extend(total(rows));
    findings.extend(battery(rows));
    findings.extend(spread(rows));
    findings.extend(off_and_on(rows));
    findings.sort_by_key(|finding| finding.line);
    if rows.is_empty() {
        findings.push(Finding {
            level: Level::Warn,
            check: "read",
            line: 0,
            text: "no benchmark figures were recognised".to_owned(),
        });
    }
    findings
}

/// N = X · R.
fn littles(row: &Row) -> Option<Finding> {
    let (concurrency, rate, mean_s) = (row.concurrency?, row.rate?, row.mean_s?);
    let implied = littles_law(rate, mean_s);
    let off = implied / concurrency - 1.0;
    if off > 0.03 && row.may_have_streams {
        let text = format!(
            "{rate:.0}/s × {:.3} ms = {implied:.1} requests under way on {concurrency:.0} connections, {:.1} on each: \
            it \
             is not said how many streams (-m) each had",
            mean_s * 1e3,
            implied / concurrency
        );
        return Some(finding(Level::Note, "little's law", row, text));
    }
    let level = match off {
        _ if off.abs() <= 0.03 => Level::Pass,
        _ if off < 0.0 && row.may_be_paced => Level::Note,
        _ if row.is_corrected => Level::Warn,
        _ => Level::Fail,
    };
    let text = if level == Level::Note {
        format!(
            "{rate:.0}/s × {:.3} ms = {implied:.1} requests under way, of {concurrency:.0} that could be: \
             the others waited for their time, or for the load generator",
            mean_s * 1e3
        )
    } else if level == Level::Warn {
        format!(
            "{rate:.0}/s × {:.3} ms = {implied:.1} requests under way, of {concurrency:.0}: the mean holds latencies \
             that were added for requests that were never sent",
            mean_s * 1e3
        )
    } else if level == Level::Pass {
        format!(
            "{rate:.0}/s × {:.3} ms = {implied:.1} under way, of {concurrency:.0} ({:+.1} %)",
            mean_s * 1e3,
            off * 100.0
        )
    } else {
        format!(
            "{rate:.0}/s × {:.3} ms = {implied:.1} requests under way, but concurrency is {concurrency:.0} ({:+.1} %): \
             with this mean the rate \
             would be {:.0}/s",
            mean_s * 1e3,
            off * 100.0,
            concurrency / mean_s
        )
    };
    Some(finding(level, "little's law", row, text))
}

/// A rate is a count over a time.
fn throughput(row: &Row) -> Option<Finding> {
    let (rate, count, seconds) = (row.rate?, row.count?, row.duration_s?);
    let off = rate * seconds / count - 1.0;
    // Tools print the time with two digits, and count what comes after its end or not.
    (count > 0.0 && off.abs() > 0.1).then(|| {
        let text = format!(
            "{count:.0} requests in {seconds:.2} s are {:.0}/s, but the rate is {rate:.0}/s ({:+.1} %)",
            count / seconds,
            off * 100.0
        );
        finding(Level::Fail, "rate", row, text)
    })
}

/// Percentiles may not fall, and a mean may not exceed the maximum.
fn order(row: &Row) -> Option<Finding> {
    let mut sorted = row.percentiles.clone();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let falling = sorted.windows(2).find(|pair| pair[0].1 > pair[1].1);
    if let Some([lower, higher]) = falling {
        let text = format!(
            "p{} is {:.3} ms but p{} is {:.3} ms",
            lower.0,
            lower.1 * 1e3,
            higher.0,
            higher.1 * 1e3
        );
        return Some(finding(Level::Fail, "order", row, text));
    }
    let (mean, max) = (row.mean_s?, sorted.last().filter(|last| last.0 >= 100.0)?.1);
    (mean > max)
        .then(|| finding(Level::Fail, "order", row, "the mean exceeds the maximum".to_owned()))
}

/// A percentile that a tool interpolates within a wide bucket is the tool's guess.
fn guessed(row: &Row) -> Option<Finding> {
    let all: Vec<String> = row.guessed.iter().map(|it| results::show_guessed(*it)).collect();
    (!all.is_empty()).then(|| {
        let text = format!("guessed from a histogram's buckets: {}", all.join(", "));
        finding(Level::Warn, "resolution", row, text)
    })
}

/// At full CPU a closed loop measures its own queue.
fn saturation(row: &Row) -> Option<Finding> {
    let (cpus, _, concurrency) = (row.cpus?, row.rate?, row.concurrency?);
    let is_full = (0.95..=1.0).contains(&cpus);
    is_full.then(|| {
        let text = format!("CPU is full at concurrency {concurrency:.0}: the latency is the queue's, not the system's");
        finding(Level::Warn, "saturation", row, text)
    })
}

fn repeats(row: &Row) -> Option<Finding> {
    if row.repeats.len() < 3 {
        return None;
    }
    let (spread, middle) = (variation(&row.repeats), median(&row.repeats));
    (spread < 0.02).then(|| {
        let text = format!(
            "{} repeats around {middle} differ by {:.1} %: whatever the outcome depends on (phase, seed, cache) was \
             not varied",
            row.repeats.len(),
            spread * 100.0
        );
        finding(Level::Warn, "repeats", row, text)
    })
}

/// A change of CPU use means nothing without the change of work done.
fn change(row: &Row) -> Option<Finding> {
    let cpu = row.cpu_change?;
    let Some(rate) = row.rate_change else {
        let text = "CPU use is compared although the work done is not stated".to_owned();
        return Some(finding(Level::Warn, "per request", row, text));
    };
    let per_request = (1.0 + cpu / 100.0) / (1.0 + rate / 100.0);
    let text = format!(
        "CPU {cpu:+.0} % at {rate:+.0} % requests is {per_request:.2} × the CPU per request"
    );
    Some(finding(Level::Note, "per request", row, text))
}

fn interval(row: &Row) -> Option<Finding> {
    let [low, middle, high] = row.interval_s?;
    if low > middle || middle > high {
        return Some(finding(
            Level::Fail,
            "interval",
            row,
            "the interval does not contain the estimate".to_owned(),
        ));
    }
    let width = (high - low) / middle;
    let level = if width > 0.1 { Level::Warn } else { Level::Pass };
    let text = format!("{:.1} ns, interval ± {:.1} %", middle * 1e9, width * 50.0);
    Some(finding(level, "interval", row, text))
}

/// CPU per request, and against the other systems of the same case.
fn per_request(rows: &[Row]) -> Vec<Finding> {
    let cost = |row: &Row| Some(row.cpus? / row.rate? * 1e6);
    let costly: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((row, cost(row)?))).collect();
    let mut findings: Vec<Finding> = Vec::new();
    for (row, cost) in &costly {
        let others = costly.iter().filter(|(other, _)| {
            other.case == row.case && other.line == row.line && other.who != row.who
        });
        let against: Vec<String> =
            others.map(|(other, theirs)| format!("{:.2} × {}", cost / theirs, other.who)).collect();
        let against =
            if against.is_empty() { String::new() } else { format!(" ({})", against.join(", ")) };
        findings.push(finding(
            Level::Note,
            "per request",
            row,
            format!("{cost:.1} µs CPU per request{against}"),
        ));
    }
    findings
}

/// Mean times count is the total; without a count, rows of one table must imply the same one.
fn total(rows: &[Row]) -> Vec<Finding> {
    let implied: Vec<(&Row, f64)> =
        rows.iter().filter_map(|row| Some((row, row.total_s? / row.mean_s?))).collect();
    let counts: Vec<f64> = implied.iter().map(|(_, count)| *count).collect();
    let usual = median(&counts);
    let judge = |(row, count): &(&Row, f64)| {
        let expected = row.count.unwrap_or(usual);
        let off = count / expected - 1.0;
        let text = format!(
            "total ÷ mean = {count:.1} requests, elsewhere {expected:.0} ({:+.1} %)",
            off * 100.0
        );
        let level = if off.abs() <= 0.03 { Level::Pass } else { Level::Fail };
        finding(level, "total", row, text)
    };
    implied.iter().map(judge).collect()
}

/// A steady trickle keeps a cellular radio awake, whatever the library does.
fn battery(rows: &[Row]) -> Option<Finding> {
    let (row, _) = rows.iter().filter_map(|row| Some((row, row.battery?))).next()?;
    let text = "battery use is compared without an interval; if requests come more often than the radio's tail (about \
        11 s on LTE), the \
                radio never sleeps and no difference between libraries can show"
        .to_owned();
    Some(finding(Level::Warn, "battery", row, text))
}

/// Rows that are compared but carry no spread.
fn spread(rows: &[Row]) -> Option<Finding> {
    let bare = |row: &&Row| {
        let has_figures = row.rate.is_some()
            || row.mean_s.is_some()
            || row.cpus.is_some()
            || row.cpu_change.is_some();
        has_figures && !row.has_spread && row.repeats.is_empty()
    };
    let (first, count) = (rows.iter().find(bare)?, rows.iter().filter(bare).count());
    let rows = if count == 1 { "1 row carries".to_owned() } else { format!("{count} rows carry") };
    let text = format!(
        "{rows} no interval, deviation or number of runs: a difference cannot be told from noise"
    );
    Some(finding(Level::Warn, "spread", first, text))
}

/// A switched-off case that costs what the switched-on case costs was not switched.
fn off_and_on(rows: &[Row]) -> Vec<Finding> {
    let find = |name: &str| rows.iter().find(|row| row.case == name).and_then(|row| row.interval_s);
    let pairs = rows.iter().filter_map(|row| {
        let [_, off, _] = row.interval_s?;
        let on = find(&row.case.replace("_off", "_on")).filter(|_| row.case.contains("_off"))?[1];
        Some((row, on / off))
    });
    let judge = |(row, ratio): (&Row, f64)| {
        let (level, text) = if ratio < 1.2 {
            (Level::Fail, format!("on costs {ratio:.2} × off: was it on?"))
        } else {
            (Level::Pass, format!("on costs {ratio:.0} × off"))
        };
        finding(level, "off and on", row, text)
    };
    pairs.map(judge).collect()
}

fn finding(level: Level, check: &'static str, row: &Row, text: String) -> Finding {
    let name = match (row.case.as_str(), row.who.as_str()) {
        ("", "") => String::new(),
        (case, "") => format!("{case}: "),
        ("", who) => format!("{who}: "),
        (case, who) if case == who => format!("{who}: "),
        (case, who) => format!("{case}, {who}: "),
    };
    Finding { level, check, line: row.line, text: format!("{name}{text}") }
}
