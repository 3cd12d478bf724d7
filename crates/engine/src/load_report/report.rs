//! Reports of load as answers have them (ORCA): `endpoint-load-metrics` with `TEXT`, `JSON` or `BIN`, and
//! `endpoint-load-metrics-bin`.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use towpath_proto::Head;

use crate::stream_info::{Value, read_json};

/// `xds.data.orca.v3.OrcaLoadReport`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LoadReport {
    /// 0 to 1 and beyond.
    #[prost(double, tag = "1")]
    pub(crate) cpu_utilization: f64,
    #[prost(double, tag = "2")]
    pub(crate) mem_utilization: f64,
    /// Ignored by servers.
    #[prost(uint64, tag = "3")]
    pub(crate) rps: u64,
    #[prost(btree_map = "string, double", tag = "4")]
    pub(crate) request_cost: BTreeMap<String, f64>,
    #[prost(btree_map = "string, double", tag = "5")]
    pub(crate) utilization: BTreeMap<String, f64>,
    /// Requests in a second.
    #[prost(double, tag = "6")]
    pub(crate) rps_fractional: f64,
    /// Failures in a second.
    #[prost(double, tag = "7")]
    pub(crate) eps: f64,
    #[prost(btree_map = "string, double", tag = "8")]
    pub(crate) named_metrics: BTreeMap<String, f64>,
    #[prost(double, tag = "9")]
    pub(crate) application_utilization: f64,
}

impl LoadReport {
    /// The report in the head, or the trailers, of an answer, if there is one and it can be read.
    pub(crate) fn read(head: &Head) -> Option<Self> {
        if let Some(text) = head.get_bytes(BINARY) {
            return binary(text);
        }
        let text = head.get_bytes(PLAIN)?;
        if let Some(text) = text.strip_prefix(b"BIN ") {
            return binary(text);
        }
        match text.strip_prefix(b"TEXT ") {
            Some(text) => listed(std::str::from_utf8(text).ok()?),
            None => json(text.strip_prefix(b"JSON ")?),
        }
    }

    /// The greatest of some metrics by their names, at least 0.
    pub(super) fn greatest(&self, names: &[Box<str>]) -> f64 {
        names.iter().fold(0.0, |most, name| self.metric(name).fold(most, f64::max))
    }

    /// What a name stands for; `MAP.*` for all of a map.
    fn metric<'a>(&'a self, name: &'a str) -> impl Iterator<Item = f64> + 'a {
        let one = match name {
            "cpu_utilization" => Some(self.cpu_utilization),
            "mem_utilization" => Some(self.mem_utilization),
            "application_utilization" => Some(self.application_utilization),
            "eps" => Some(self.eps),
            "rps_fractional" => Some(self.rps_fractional),
            _ => None,
        };
        let maps = [
            ("named_metrics.", &self.named_metrics),
            ("utilization.", &self.utilization),
            ("request_cost.", &self.request_cost),
        ];
        let found =
            maps.into_iter().find_map(|(map, values)| Some((name.strip_prefix(map)?, values)));
        let those = found.into_iter().flat_map(|(key, values)| {
            values.iter().filter(move |(it, _)| key == "*" || *it == key).map(|(_, value)| *value)
        });
        one.into_iter().chain(those)
    }
}

fn binary(text: &[u8]) -> Option<LoadReport> {
    let bytes = STANDARD.decode(text).ok().filter(|bytes| !bytes.is_empty())?;
    LoadReport::decode(&*bytes).ok()
}

/// `NAME=VALUE` or `NAME:VALUE`, with commas between them; each name once.
fn listed(text: &str) -> Option<LoadReport> {
    let mut report = LoadReport::default();
    let mut seen = BTreeSet::new();
    for entry in text.split(',').map(str::trim_ascii).filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once(['=', ':'])?;
        if !seen.insert(name) {
            return None;
        }
        let value: f64 = value.trim_ascii().parse().ok()?;
        if !(value >= 0.0 && value.is_finite()) {
            return None;
        }
        set(&mut report, name, value)?;
    }
    Some(report)
}

/// Takes a value in; nothing where there is no such metric in a list.
fn set(report: &mut LoadReport, name: &str, value: f64) -> Option<()> {
    let maps =
        [("utilization.", &mut report.utilization), ("named_metrics.", &mut report.named_metrics)];
    for (map, values) in maps {
        if let Some(key) = name.strip_prefix(map) {
            values.insert(Some(key).filter(|key| !key.is_empty())?.to_owned(), value);
            return Some(());
        }
    }
    *number(report, name)? = value;
    Some(())
}

/// The place of a metric that is a number.
fn number<'a>(report: &'a mut LoadReport, name: &str) -> Option<&'a mut f64> {
    Some(match name {
        "cpu_utilization" => &mut report.cpu_utilization,
        "mem_utilization" => &mut report.mem_utilization,
        "application_utilization" => &mut report.application_utilization,
        "eps" => &mut report.eps,
        "rps_fractional" => &mut report.rps_fractional,
        _ => return None,
    })
}

/// The message in JSON, with either spelling of its fields and no others.
fn json(text: &[u8]) -> Option<LoadReport> {
    let mut report = LoadReport::default();
    for (name, value) in read_json(text)? {
        let name = snake(&name);
        let map = match &*name {
            "request_cost" => &mut report.request_cost,
            "utilization" => &mut report.utilization,
            "named_metrics" => &mut report.named_metrics,
            "rps" => {
                json_number(&value)?;
                continue;
            }
            _ => {
                let place = number(&mut report, &name)?;
                if value != Value::Null {
                    *place = json_number(&value)?;
                }
                continue;
            }
        };
        match value {
            Value::Null => {}
            Value::Struct(entries) => {
                for (key, value) in entries {
                    map.insert(key.into(), json_number(&value)?);
                }
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::List(_) => return None,
        }
    }
    Some(report)
}

/// A number of the JSON of Protobuf, which may be a string.
fn json_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            text => text.parse().ok().filter(|number: &f64| number.is_finite()),
        },
        Value::Null | Value::Bool(_) | Value::Struct(_) | Value::List(_) => None,
    }
}

/// `cpuUtilization` as `cpu_utilization`; what is no name of JSON stays.
fn snake(name: &str) -> String {
    let mut all = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            all.push('_');
        }
        all.push(letter.to_ascii_lowercase());
    }
    all
}

const PLAIN: &[u8] = b"endpoint-load-metrics";
const BINARY: &[u8] = b"endpoint-load-metrics-bin";
