//! Summaries meant for people.

use super::{Figures, Tool};
use crate::number::{self, Number};

pub(super) fn read(text: &str) -> Option<Figures> {
    wrk(text)
        .or_else(|| h2load(text))
        .or_else(|| vegeta(text))
        .or_else(|| k6(text))
        .or_else(|| fortio(text))
        .or_else(|| hey_or_oha(text))
}

/// wrk, and wrk2, which adds an HdrHistogram's spectrum.
fn wrk(text: &str) -> Option<Figures> {
    let rate = number_after(text, "Requests/sec:")?;
    let threads = text.lines().find(|line| line.contains(" threads and "))?;
    let is_wrk2 = text.contains("HdrHistogram") || text.contains("Thread calibration");
    let mut it = Figures::of(if is_wrk2 { Tool::Wrk2 } else { Tool::Wrk });
    it.rate = Some(rate);
    it.connections = threads.split(" and ").nth(1).and_then(number::first).map(|it| it.value);
    let done = text.lines().find(|line| line.contains(" requests in "))?;
    let (count, rest) = done.split_once(" requests in ")?;
    it.requests = count.trim().parse().ok();
    it.duration_s = rest.split(',').next().and_then(number::go_seconds);
    let errors = |label: &str| line_after(text, label).map(sum_of_numbers);
    it.errors = match (errors("Socket errors:"), errors("Non-2xx or 3xx responses:")) {
        (None, None) => Some(0.0),
        (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
    };
    // Under "Thread Stats": average, deviation, maximum, share within one deviation.
    let stats: Vec<&str> = line_after(text, "Latency ")?.split_whitespace().collect();
    it.mean_s = stats.first().and_then(|cell| number::go_seconds(cell));
    it.percentiles
        .extend(stats.get(2).and_then(|cell| number::go_seconds(cell)).map(|max| (100.0, max)));
    for line in text.lines() {
        let mut cells = line.split_whitespace();
        if let (Some(share), Some(value), None) = (cells.next(), cells.next(), cells.next())
            && let Some(share) = share.strip_suffix('%').and_then(|share| share.parse().ok())
            && let Some(seconds) = number::go_seconds(value)
        {
            it.percentiles.push((share, seconds));
        }
    }
    // The spectrum's maximum is finer than the one of the threads, which comes first.
    it.percentiles.reverse();
    Some(it)
}

fn h2load(text: &str) -> Option<Figures> {
    let done = line_after(text, "finished in ")?;
    let counts = line_after(text, "requests: ")?;
    let mut it = Figures::of(Tool::H2load);
    it.duration_s = done.split(',').next().and_then(number::go_seconds);
    it.rate = done.split(',').nth(1).and_then(number::rate);
    let count = |word: &str| {
        let piece = counts.split(',').find(|piece| piece.trim_end().ends_with(word))?;
        number::first(piece).map(|it| it.value)
    };
    it.requests = count(" done");
    it.errors = Some(count(" failed")? + count(" timeout").unwrap_or(0.0));
    let clients: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with("spawning thread"))
        .filter_map(|line| number::first(line.split_once(": ")?.1).map(|it| it.value))
        .collect();
    it.connections = (!clients.is_empty()).then(|| clients.iter().sum());
    // Minimum, maximum, mean, deviation, share within one deviation.
    let times: Vec<&str> = line_after(text, "time for request:")?.split_whitespace().collect();
    it.percentiles
        .extend(times.get(1).and_then(|cell| number::go_seconds(cell)).map(|max| (100.0, max)));
    it.mean_s = times.get(2).and_then(|cell| number::go_seconds(cell));
    Some(it)
}

/// Each line names its columns in brackets: `Latencies [min, mean, 50, 90, 95, 99, max]  …`.
fn vegeta(text: &str) -> Option<Figures> {
    let column = |label: &str, name: &str| {
        let (names, values) =
            line_after(text, label)?.trim_start().strip_prefix('[')?.split_once(']')?;
        let at = names.split(',').position(|it| it.trim() == name)?;
        values.split(',').nth(at).map(str::trim)
    };
    let mut it = Figures::of(Tool::Vegeta);
    it.requests = Some(column("Requests ", "total")?.parse().ok()?);
    it.rate = column("Requests ", "throughput").and_then(number::rate);
    it.duration_s = column("Duration ", "total").and_then(number::go_seconds);
    it.mean_s = column("Latencies ", "mean").and_then(number::go_seconds);
    let success = column("Success ", "ratio").and_then(number::first).map(|it| it.value / 100.0);
    it.errors = it.requests.zip(success).map(|(count, share)| (count * (1.0 - share)).round());
    for (name, share) in [("50", 50.0), ("90", 90.0), ("95", 95.0), ("99", 99.0), ("max", 100.0)] {
        let value = column("Latencies ", name).and_then(number::go_seconds);
        it.percentiles.extend(value.map(|seconds| (share, seconds)));
    }
    Some(it)
}

/// `http_req_duration..............: avg=1.2ms min=… med=… max=… p(90)=… p(95)=…`
fn k6(text: &str) -> Option<Figures> {
    let metric = |name: &str| {
        let line = text.lines().map(str::trim_start).find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches('.').strip_prefix(':')?.trim())
    };
    let count: Vec<&str> = metric("http_reqs")?.split_whitespace().collect();
    let times = metric("http_req_duration")?;
    let time = |name: &str| {
        times.split_whitespace().find_map(|word| number::go_seconds(word.strip_prefix(name)?))
    };
    let mut it = Figures::of(Tool::K6);
    it.requests = count.first().and_then(|cell| cell.parse().ok());
    it.rate = count.get(1).and_then(|cell| number::rate(cell));
    it.duration_s = it.requests.zip(it.rate).map(|(count, rate)| count / rate);
    it.connections = metric("vus_max").and_then(number::first).map(|it| it.value);
    it.mean_s = time("avg=");
    // "0.00%  0 out of 1234" or, of older versions, "0.00%  ✓ 0  ✗ 1234".
    it.errors = metric("http_req_failed")
        .and_then(|cells| number::first(cells.split_once('%')?.1).map(|it| it.value));
    for (name, share) in
        [("med=", 50.0), ("p(90)=", 90.0), ("p(95)=", 95.0), ("p(99)=", 99.0), ("max=", 100.0)]
    {
        it.percentiles.extend(time(name).map(|seconds| (share, seconds)));
    }
    Some(it)
}

/// Seconds everywhere. With `-quiet` the buckets and the time are left out.
fn fortio(text: &str) -> Option<Figures> {
    let times = line_after(text, "Aggregated Function Time :")?;
    let done = line_after(text, "All done ")?;
    let of = |name: &str| {
        let (_, value) = times.split_once(name)?;
        value.split_whitespace().next()?.parse::<f64>().ok()
    };
    let mut it = Figures::of(Tool::Fortio);
    it.requests = Some(of("count ")?);
    it.mean_s = of("avg ");
    it.rate = number::rate(done.rsplit(',').next()?);
    it.duration_s = line_after(text, "Ended after ").and_then(number::go_seconds);
    it.duration_s = it.duration_s.or_else(|| Some(it.requests? / it.rate?));
    it.connections = line_after(text, "Sockets used:")
        .and_then(|cells| number::first(cells.split_once("would be")?.1))
        .map(|it| it.value);
    it.errors = line_after(text, "Error cases :").map(|cells| {
        let count = cells.trim_start().strip_prefix("count ").and_then(number::first);
        count.map_or(0.0, |it| it.value)
    });
    let after = text.lines().skip_while(|line| !line.starts_with("Aggregated Function Time :"));
    let mut buckets = Vec::new();
    for line in after.skip(1).take_while(|line| line.starts_with(['#', '>'])) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        match cells[..] {
            ["#", "target", share, seconds] => {
                let share = share.trim_end_matches('%').parse().ok();
                it.percentiles.extend(share.zip(seconds.parse().ok()));
            }
            [_, low, "<=", high, ..] => {
                buckets.extend(low.parse().ok().zip(high.parse().ok()).map(<[f64; 2]>::from));
            }
            _ => {}
        }
    }
    it.percentiles.extend(of("max ").map(|max| (100.0, max)));
    if buckets.is_empty() {
        buckets.extend(of("min ").map(|min| [min, FORTIO_FIRST]));
    }
    it.note_guessed(&buckets);
    Some(it)
}

/// Where fortio's first bucket ends unless its `-r` says otherwise, in seconds.
const FORTIO_FIRST: f64 = 0.001;

/// oha prints what hey does, with shares of success, units of its own and other words.
fn hey_or_oha(text: &str) -> Option<Figures> {
    let rate = number_after(text, "Requests/sec:")?;
    let mean = line_after(text, "Average:")?;
    let is_oha = text.contains("Success rate:");
    let mut it = Figures::of(if is_oha { Tool::Oha } else { Tool::Hey });
    it.rate = Some(rate);
    it.mean_s = number::go_seconds(mean);
    it.duration_s = line_after(text, "Total:").and_then(number::go_seconds);
    it.percentiles
        .extend(line_after(text, "Slowest:").and_then(number::go_seconds).map(|max| (100.0, max)));
    let (mut answered, mut failed, mut lost) = (0.0, 0.0, 0.0);
    let mut section = "";
    for line in text.lines() {
        let trimmed = line.trim();
        if !line.starts_with(' ') && trimmed.ends_with(':') {
            section = trimmed;
        }
        if let Some((share, value)) = trimmed.split_once("% in ")
            && let (Ok(share), Some(seconds)) = (share.parse(), number::go_seconds(value))
        {
            it.percentiles.push((share, seconds));
        }
        let Some((label, rest)) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        else {
            continue;
        };
        let (label, rest) = (label.trim(), rest.trim());
        if section.starts_with("Status code") {
            let count = number::first(rest).map_or(0.0, |it| it.value);
            answered += count;
            failed += if label.starts_with(['4', '5']) { count } else { 0.0 };
        } else if section.starts_with("Error") && rest != CUT_OFF {
            lost += label.parse().unwrap_or(0.0);
        }
    }
    it.requests = Some(answered);
    it.errors = Some(failed + lost);
    Some(it)
}

/// What oha calls requests that were under way at its end, which it does not count as failures either.
pub(super) const CUT_OFF: &str = "aborted due to deadline";

/// What follows the label on the first line that begins with it.
fn line_after<'t>(text: &'t str, label: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(label))
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    line_after(text, label).and_then(number::first).map(|it| it.value)
}

fn sum_of_numbers(text: &str) -> f64 {
    let mut rest = text;
    let mut sum = 0.0;
    while let Some(Number { value, rest: next, .. }) = number::first(rest) {
        sum += value;
        rest = next;
    }
    sum
}
