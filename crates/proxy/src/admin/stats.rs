//! `/stats` and `/stats/prometheus`: read from the workers' own memory, made while they are sent.

use bytes::Bytes;
use hyper::StatusCode;
use regex::bytes::Regex;
use towpath_engine::stats::{Kind, Query as Wanted, Shape};

use super::query::Query;
use super::reply::{JSON, PLAIN, Reply};
use crate::control::Control;

/// `/stats` in the format that is asked for.
pub(super) fn stats(control: &Control, query: &Query) -> Reply {
    let wanted = match wanted(query) {
        Ok(wanted) => wanted,
        Err(reply) => return reply,
    };
    let format = query.first("format").unwrap_or_default();
    if format == "prometheus" {
        return prometheus(control, query);
    }
    // Quantiles in text and JSON: the other shapes are not there.
    if let Some(refusal) = refuse_buckets(query, &["summary", "none"]) {
        return refusal;
    }
    control.asked_for_stats();
    let reading = control.read_stats();
    match format {
        "" | "text" => Reply::streamed(PLAIN, reading.text(wanted).map(Bytes::from)),
        "json" => Reply::streamed(JSON, reading.json(wanted).map(Bytes::from)),
        _ => Reply::refused(
            StatusCode::BAD_REQUEST,
            "usage: /stats?format=(json|prometheus|text)\n\n",
        ),
    }
}

/// `/stats/prometheus`.
pub(super) fn prometheus(control: &Control, query: &Query) -> Reply {
    if let Some(refusal) = refuse_buckets(query, &["cumulative", "summary", "none"]) {
        return refusal;
    }
    match wanted(query) {
        Ok(wanted) => {
            control.asked_for_stats();
            Reply::streamed(PLAIN, control.read_stats().prometheus(wanted).map(Bytes::from))
        }
        Err(reply) => reply,
    }
}

/// Refuses every `histogram_buckets` but those that are shown.
fn refuse_buckets(query: &Query, shown: &[&str]) -> Option<Reply> {
    let asked = query
        .first("histogram_buckets")
        .filter(|asked| !asked.is_empty() && !shown.contains(asked))?;
    let why =
        format!("histogram_buckets={asked} is not supported here, only {}\n", shown.join(" and "));
    Some(Reply::refused(StatusCode::BAD_REQUEST, why))
}

fn wanted(query: &Query) -> Result<Wanted, Reply> {
    let refused = |why: String| Reply::refused(StatusCode::BAD_REQUEST, why);
    let kind = match query.first("type") {
        None | Some("All") => None,
        Some("Counters") => Some(Kind::Counters),
        Some("Gauges") => Some(Kind::Gauges),
        Some("Histograms") => Some(Kind::Histograms),
        Some("TextReadouts") => Some(Kind::TextReadouts),
        Some(_) => return Err(refused("invalid &type= param".into())),
    };
    let only_hidden = match query.first("hidden") {
        None | Some("" | "include" | "exclude") => false,
        Some("only") => true,
        Some(_) => return Err(refused("usage: /stats?hidden=(include|only|exclude)\n\n".into())),
    };
    // None is hidden.
    let filter = if only_hidden { Some(NO_NAME) } else { query.first("filter") };
    let filter = filter
        .filter(|filter| !filter.is_empty())
        .map(Regex::new)
        .transpose()
        .map_err(|error| refused(format!("Invalid re2 regex: {error}")))?;
    Ok(Wanted {
        used_only: query.has("usedonly"),
        filter,
        invert: query.has("invert_filter") && !only_hidden,
        kind,
        shape: match query.first("histogram_buckets") {
            Some("summary" | "none") => Shape::Summary,
            _ => Shape::Cumulative,
        },
    })
}

/// An expression that no name matches.
const NO_NAME: &str = r"[^\s\S]";
