//! Results in JSON.

use serde_json::Value;

use super::text::CUT_OFF;
use super::{Figures, Tool};

pub(super) fn read(text: &str) -> Option<Figures> {
    let value: Value =
        text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok())??;
    lab(&value)
        .or_else(|| fortio(&value))
        .or_else(|| vegeta(&value))
        .or_else(|| oha(&value))
        .or_else(|| k6(&value))
        .or_else(|| ghz(&value))
}

fn lab(value: &Value) -> Option<Figures> {
    let latency = value.get("latency_ns")?;
    let mut it = Figures::of(Tool::Lab);
    it.rate = number(value, "/achieved_rps");
    it.connections = number(value, "/connections");
    it.duration_s = number(value, "/duration_ns").map(|ns| ns / 1e9);
    it.requests = number(value, "/answered");
    it.errors = value
        .get("errors")?
        .as_object()
        .map(|errors| errors.values().filter_map(Value::as_f64).sum());
    it.mean_s = number(latency, "/mean").map(|ns| ns / 1e9);
    for (name, share) in
        [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p999", 99.9), ("max", 100.0)]
    {
        it.percentiles
            .extend(latency.get(name).and_then(Value::as_f64).map(|ns| (share, ns / 1e9)));
    }
    Some(it)
}

fn fortio(value: &Value) -> Option<Figures> {
    let histogram = value.get("DurationHistogram")?;
    let mut it = Figures::of(Tool::Fortio);
    it.rate = number(value, "/ActualQPS");
    it.connections = number(value, "/NumThreads");
    it.duration_s = number(value, "/ActualDuration").map(|ns| ns / 1e9);
    it.requests = number(histogram, "/Count");
    let codes = value.get("RetCodes")?.as_object()?;
    let failed = codes.iter().filter(|(code, _)| !code.starts_with(['1', '2', '3']));
    it.errors = Some(failed.filter_map(|(_, count)| count.as_f64()).sum());
    it.mean_s = number(histogram, "/Avg");
    for entry in histogram.get("Percentiles")?.as_array()? {
        it.percentiles.extend(number(entry, "/Percentile").zip(number(entry, "/Value")));
    }
    it.percentiles.extend(number(histogram, "/Max").map(|max| (100.0, max)));
    let bounds = |bucket: &Value| Some([number(bucket, "/Start")?, number(bucket, "/End")?]);
    let buckets = histogram.get("Data").and_then(Value::as_array);
    let buckets: Vec<_> = buckets.into_iter().flatten().filter_map(bounds).collect();
    it.note_guessed(&buckets);
    Some(it)
}

fn vegeta(value: &Value) -> Option<Figures> {
    let (latencies, requests) = (value.get("latencies")?, number(value, "/requests")?);
    let mut it = Figures::of(Tool::Vegeta);
    it.requests = Some(requests);
    it.rate = number(value, "/throughput");
    it.duration_s = number(value, "/duration")
        .zip(number(value, "/wait"))
        .map(|(attack, wait)| (attack + wait) / 1e9);
    it.errors = number(value, "/success").map(|share| (requests * (1.0 - share)).round());
    it.mean_s = number(latencies, "/mean").map(|ns| ns / 1e9);
    for (name, share) in
        [("/50th", 50.0), ("/90th", 90.0), ("/95th", 95.0), ("/99th", 99.0), ("/max", 100.0)]
    {
        it.percentiles.extend(number(latencies, name).map(|ns| (share, ns / 1e9)));
    }
    Some(it)
}

fn oha(value: &Value) -> Option<Figures> {
    let percentiles = value.get("latencyPercentiles")?.as_object()?;
    let mut it = Figures::of(Tool::Oha);
    it.rate = number(value, "/summary/requestsPerSec");
    it.duration_s = number(value, "/summary/total");
    it.mean_s = number(value, "/summary/average");
    let sum = |pointer: &str, keep: fn(&str) -> bool| {
        let counts = value.pointer(pointer).and_then(Value::as_object)?;
        Some(
            counts
                .iter()
                .filter(|(name, _)| keep(name))
                .filter_map(|(_, it)| it.as_f64())
                .sum::<f64>(),
        )
    };
    it.requests = sum("/statusCodeDistribution", |_| true);
    let refused =
        sum("/statusCodeDistribution", |code| code.starts_with(['4', '5'])).unwrap_or(0.0);
    it.errors = Some(refused + sum("/errorDistribution", |kind| kind != CUT_OFF).unwrap_or(0.0));
    for (name, seconds) in percentiles {
        let share = name.strip_prefix('p').and_then(|digits| digits.parse().ok());
        it.percentiles.extend(share.zip(seconds.as_f64()));
    }
    it.percentiles.extend(number(value, "/summary/slowest").map(|max| (100.0, max)));
    Some(it)
}

/// `--summary-export` has the values beside each other, `handleSummary` below `values`; times are milliseconds.
fn k6(value: &Value) -> Option<Figures> {
    let metric = |name: &str| {
        let it = value.get("metrics")?.get(name)?;
        Some(it.get("values").unwrap_or(it))
    };
    let (count, times) = (metric("http_reqs")?, metric("http_req_duration")?);
    let of = |it: &Value, name: &str| it.get(name).and_then(Value::as_f64);
    let mut it = Figures::of(Tool::K6);
    it.requests = of(count, "count");
    it.rate = of(count, "rate");
    it.duration_s = it.requests.zip(it.rate).map(|(count, rate)| count / rate);
    it.connections = metric("vus_max").and_then(|it| of(it, "max").or_else(|| of(it, "value")));
    // A rate whose "passes" are the requests that did fail.
    it.errors = metric("http_req_failed").and_then(|it| of(it, "passes"));
    it.mean_s = of(times, "avg").map(|ms| ms / 1e3);
    for (name, share) in
        [("med", 50.0), ("p(90)", 90.0), ("p(95)", 95.0), ("p(99)", 99.0), ("max", 100.0)]
    {
        it.percentiles.extend(of(times, name).map(|ms| (share, ms / 1e3)));
    }
    Some(it)
}

/// Times are nanoseconds, and of the calls alone that ended with `OK`.
fn ghz(value: &Value) -> Option<Figures> {
    let statuses = value.get("statusCodeDistribution")?.as_object()?;
    let mut it = Figures::of(Tool::Ghz);
    it.connections = number(value, "/options/concurrency");
    it.rate = number(value, "/rps");
    it.duration_s = number(value, "/total").map(|ns| ns / 1e9);
    it.requests = Some(number(value, "/count")?);
    let failed = statuses.iter().filter(|(status, _)| *status != "OK");
    it.errors = Some(failed.filter_map(|(_, count)| count.as_f64()).sum());
    it.mean_s = number(value, "/average").map(|ns| ns / 1e9);
    // Without a call that was answered there are none.
    for entry in value.get("latencyDistribution").and_then(Value::as_array).into_iter().flatten() {
        let latency = number(entry, "/latency").map(|ns| ns / 1e9);
        it.percentiles.extend(number(entry, "/percentage").zip(latency));
    }
    it.percentiles.extend(number(value, "/slowest").map(|ns| (100.0, ns / 1e9)));
    Some(it)
}

fn number(value: &Value, pointer: &str) -> Option<f64> {
    value.pointer(pointer).and_then(Value::as_f64)
}
