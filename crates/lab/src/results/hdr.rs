//! HdrHistogram interval logs, as the Java implementation's `HistogramLogWriter` writes them.
//!
//! Values are taken for nanoseconds, which is what these logs hold by convention. Where several series are tagged, the
//! one called `latency` counts, else the first.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use super::{Figures, Tool};

pub(super) fn read(text: &str) -> Option<Figures> {
    let is_log = text.starts_with('#') || text.starts_with("\"StartTimestamp\"");
    if !is_log || !text.contains(",HIST") {
        return None;
    }
    let mut series: Option<(String, Histogram<u64>, f64)> = None;
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let LogEntry::Interval(interval) = entry.ok()? else { continue };
        let tag = interval.tag().map_or_else(String::new, |tag| tag.as_str().to_owned());
        let is_wanted = series.as_ref().is_none_or(|(name, _, _)| *name == tag || tag == "latency");
        if !is_wanted {
            continue;
        }
        let bytes = STANDARD.decode(interval.encoded_histogram()).ok()?;
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
        let seconds = interval.duration().as_secs_f64();
        match &mut series {
            Some((name, sum, duration_s)) if *name == tag => {
                sum.add(histogram).ok()?;
                *duration_s += seconds;
            }
            _ => series = Some((tag, histogram, seconds)),
        }
    }
    let (_, histogram, duration_s) = series?;
    let mut it = Figures::of(Tool::HdrLog);
    it.requests = Some(histogram.len() as f64);
    it.duration_s = (duration_s > 0.0).then_some(duration_s);
    it.rate = it.duration_s.map(|seconds| histogram.len() as f64 / seconds);
    it.mean_s = Some(histogram.mean() / 1e9);
    for share in [50.0, 90.0, 95.0, 99.0, 99.9] {
        it.percentiles.push((share, histogram.value_at_percentile(share) as f64 / 1e9));
    }
    it.percentiles.push((100.0, histogram.max() as f64 / 1e9));
    Some(it)
}
