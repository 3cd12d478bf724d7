//! Values of expressions.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use towpath_proto::Head;

use crate::format::iso_8601;
use crate::json::{json_string, number_text};
use crate::stream_info::{self, JsonStyle, Struct};

/// What an expression, or a part of it, comes to.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `uint`.
    Uint(u64),
    /// `double`.
    Double(f64),
    /// `string`; what a peer sends need not be UTF-8.
    Text(Cow<'a, [u8]>),
    /// `bytes`.
    Bytes(Cow<'a, [u8]>),
    /// `duration`, in nanoseconds.
    Duration(i64),
    /// `timestamp`, in nanoseconds since 1970.
    Time(u64),
    /// `list`.
    List(Vec<Self>),
    /// The fields of a head, by name: empty where there is no head.
    Fields(Option<&'a Head>),
    /// `google.protobuf.Struct`.
    Struct(Cow<'a, Struct>),
    /// Envoy `config.core.v3.Metadata`, by its only field that is filled: `filter_metadata`.
    Metadata(Cow<'a, Struct>),
}

impl<'a> Value<'a> {
    /// A string.
    pub(super) fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text.as_bytes()))
    }

    /// A string of the configuration's or of a stream's metadata.
    pub(super) fn of(value: &'a stream_info::Value) -> Self {
        match value {
            stream_info::Value::Null => Self::Null,
            stream_info::Value::Bool(flag) => Self::Bool(*flag),
            stream_info::Value::Number(number) => Self::Double(*number),
            stream_info::Value::String(text) => Self::text(text),
            stream_info::Value::List(list) => Self::List(list.iter().map(Self::of).collect()),
            stream_info::Value::Struct(entries) => Self::Struct(Cow::Borrowed(entries)),
        }
    }

    fn owned(value: stream_info::Value) -> Self {
        match value {
            stream_info::Value::Null => Self::Null,
            stream_info::Value::Bool(flag) => Self::Bool(flag),
            stream_info::Value::Number(number) => Self::Double(number),
            stream_info::Value::String(text) => Self::Text(Cow::Owned(text.into_string().into())),
            stream_info::Value::List(list) => {
                Self::List(list.into_iter().map(Self::owned).collect())
            }
            stream_info::Value::Struct(entries) => Self::Struct(Cow::Owned(entries)),
        }
    }

    /// The value of a map at a key; none where it has no such key, or is no map.
    pub(super) fn at(self, key: &[u8]) -> Option<Self> {
        match self {
            Self::Fields(head) => field(head?, key),
            Self::Struct(entries) => {
                let key = std::str::from_utf8(key).ok()?;
                match entries {
                    Cow::Borrowed(entries) => entries.get(key).map(Self::of),
                    Cow::Owned(mut entries) => entries.remove(key).map(Self::owned),
                }
            }
            Self::Metadata(namespaces) => {
                (key == b"filter_metadata").then_some(Self::Struct(namespaces))
            }
            _ => None,
        }
    }

    /// Whether a map has this key; none where it is no map.
    pub(super) fn has(self, key: &[u8]) -> Option<bool> {
        match self {
            Self::Fields(_) | Self::Struct(_) => Some(self.at(key).is_some()),
            // Of a message: whether the field is filled.
            Self::Metadata(namespaces) => {
                (key == b"filter_metadata").then_some(!namespaces.is_empty())
            }
            _ => None,
        }
    }

    /// Equal, across the kinds of numbers too; values of different types are not.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Text(a), Self::Text(b)) | (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Struct(a), Self::Struct(b)) | (Self::Metadata(a), Self::Metadata(b)) => a == b,
            (Self::List(a), Self::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b))
            }
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }

    /// Their order; none where they have none.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) | (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Time(a), Self::Time(b)) => Some(a.cmp(b)),
            (Self::Double(a), other) => a.partial_cmp(&other.double()?),
            (_, Self::Double(b)) => self.double()?.partial_cmp(b),
            _ => Some(self.integer()?.cmp(&other.integer()?)),
        }
    }

    fn integer(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some((*number).into()),
            Self::Uint(number) => Some((*number).into()),
            _ => None,
        }
    }

    /// A number as one with a fraction.
    pub(super) fn double(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Uint(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            _ => None,
        }
    }

    /// `size()`: characters of a string, bytes, or entries.
    pub(super) fn size(&self) -> Option<usize> {
        Some(match self {
            Self::Text(text) => String::from_utf8_lossy(text).chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(list) => list.len(),
            Self::Fields(head) => head.map_or(0, Head::len),
            Self::Struct(entries) => entries.len(),
            _ => return None,
        })
    }

    /// Appends it as Envoy's `%CEL(…)%` does.
    pub(crate) fn print(&self, out: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        let _ = match self {
            Self::Null => out.write_all(b"NULL"),
            Self::Bool(flag) => write!(out, "{flag}"),
            Self::Int(number) => write!(out, "{number}"),
            Self::Uint(number) => write!(out, "{number}"),
            Self::Double(number) => out.write_all(six_digits(*number).as_bytes()),
            Self::Text(bytes) | Self::Bytes(bytes) => out.write_all(bytes),
            Self::Duration(nanos) => out.write_all(duration(*nanos).as_bytes()),
            Self::Time(nanos) => out.write_all(time(*nanos).as_bytes()),
            Self::List(_) => out.write_all(b"CelList value"),
            Self::Fields(_) | Self::Struct(_) | Self::Metadata(_) => out.write_all(b"CelMap value"),
        };
    }

    /// Appends it as JSON, as Envoy's `%TYPED_CEL(…)%` does; false for what has no such form.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>, max_length: Option<usize>) -> bool {
        match self {
            Self::Null => return false,
            Self::Bool(flag) => out.extend_from_slice(flag.to_string().as_bytes()),
            Self::Text(text) => {
                let length = max_length.map_or(text.len(), |length| length.min(text.len()));
                json_string(out, &text[..length]);
            }
            Self::Int(_) | Self::Uint(_) | Self::Double(_) => {
                let number = self.double().unwrap_or_default();
                out.extend_from_slice(number_text(number).as_bytes());
            }
            Self::Bytes(bytes) => json_string(out, STANDARD.encode(bytes).as_bytes()),
            Self::Duration(nanos) => json_string(out, seconds(*nanos).as_bytes()),
            Self::Time(nanos) => json_string(out, time(*nanos).as_bytes()),
            Self::Struct(entries) => stream_info::write_struct(out, entries, JsonStyle::Plain),
            Self::Metadata(namespaces) => {
                out.extend_from_slice(b"{");
                if !namespaces.is_empty() {
                    out.extend_from_slice(b"\"filterMetadata\":");
                    stream_info::write_struct(out, namespaces, JsonStyle::Plain);
                }
                out.extend_from_slice(b"}");
            }
            Self::List(list) => {
                out.push(b'[');
                for (number, value) in list.iter().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    if !value.write_json(out, None) {
                        out.extend_from_slice(b"null");
                    }
                }
                out.push(b']');
            }
            Self::Fields(head) => write_fields(out, *head),
        }
        true
    }
}

/// A head as an object, in the order of its names.
fn write_fields(out: &mut Vec<u8>, head: Option<&Head>) {
    let mut names: Vec<Vec<u8>> = head.map_or_else(Vec::new, |head| {
        let fields = head.iter().map(|field| field.name_bytes.to_ascii_lowercase());
        fields.chain(PSEUDO.iter().map(|name| name.to_vec())).collect()
    });
    names.sort_unstable();
    names.dedup();
    out.push(b'{');
    let start = out.len();
    for name in names {
        if let Some(Value::Text(value)) = head.and_then(|head| field(head, &name)) {
            if out.len() > start {
                out.push(b',');
            }
            json_string(out, &name);
            out.push(b':');
            json_string(out, &value);
        }
    }
    out.push(b'}');
}

const PSEUDO: &[&[u8]] = &[b":authority", b":method", b":path", b":scheme", b":status"];

/// All values of a field, joined by commas.
fn field<'a>(head: &'a Head, name: &[u8]) -> Option<Value<'a>> {
    let pseudo = match name {
        b":path" => Some(head.path()),
        b":method" => Some(head.method_bytes()),
        b":authority" | b"host" => Some(head.authority()),
        b":scheme" => Some(head.scheme()),
        b":status" if head.status() > 0 => {
            return Some(Value::Text(Cow::Owned(head.status().to_string().into())));
        }
        _ => None,
    };
    if let Some(value) = pseudo.filter(|value| !value.is_empty()) {
        return Some(Value::Text(Cow::Borrowed(value)));
    }
    let mut values = head
        .iter()
        .filter(|field| field.name_bytes.eq_ignore_ascii_case(name))
        .map(|field| field.value);
    let first = values.next()?;
    let mut all = Cow::Borrowed(first);
    for value in values {
        let all = all.to_mut();
        all.push(b',');
        all.extend_from_slice(value);
    }
    Some(Value::Text(all))
}

/// As C's `%g` has it: six digits, without zeros at the end.
fn six_digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return if number.is_nan() { "nan".to_owned() } else { number.to_string() };
    }
    let scientific = format!("{number:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        let places = usize::try_from(5 - exponent).unwrap_or(0);
        return trim(&format!("{number:.places$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), exponent.abs())
}

/// As Abseil's `FormatDuration` has it: `1h2m3.5s`, `2.5ms`, `0`.
fn duration(nanos: i64) -> String {
    let (sign, rest) = if nanos < 0 { ("-", nanos.unsigned_abs()) } else { ("", nanos as u64) };
    let part = |count: u64, unit: u64, name: &str| {
        let (whole, fraction) = (count / unit, count % unit);
        let width = unit.ilog10() as usize;
        let fraction = format!("{fraction:0width$}");
        let fraction = fraction.trim_end_matches('0');
        match (width, fraction) {
            (0, _) | (_, "") => format!("{whole}{name}"),
            _ => format!("{whole}.{fraction}{name}"),
        }
    };
    let text = match rest {
        0 => "0".to_owned(),
        1..1_000 => part(rest, 1, "ns"),
        1_000..1_000_000 => part(rest, 1_000, "us"),
        1_000_000..1_000_000_000 => part(rest, 1_000_000, "ms"),
        _ => {
            let seconds = rest / 1_000_000_000;
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let left = rest % 60_000_000_000;
            let mut text = String::new();
            if hours > 0 {
                text += &format!("{hours}h");
            }
            if minutes > 0 {
                text += &format!("{minutes}m");
            }
            if left > 0 {
                text += &part(left, 1_000_000_000, "s");
            }
            text
        }
    };
    format!("{sign}{text}")
}

/// A duration in protobuf's JSON: `1.500s`.
fn seconds(nanos: i64) -> String {
    let (whole, rest) =
        (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let sign = if nanos < 0 { "-" } else { "" };
    match rest {
        0 => format!("{sign}{whole}s"),
        _ if rest % 1_000_000 == 0 => format!("{sign}{whole}.{:03}s", rest / 1_000_000),
        _ if rest % 1_000 == 0 => format!("{sign}{whole}.{:06}s", rest / 1_000),
        _ => format!("{sign}{whole}.{rest:09}s"),
    }
}

/// RFC 3339 with as many digits of a second as there are.
fn time(nanos: u64) -> String {
    let mut text = Vec::new();
    iso_8601(&mut text, Duration::from_nanos(nanos));
    let text = String::from_utf8_lossy(&text);
    let seconds = text.split(['.', 'Z']).next().unwrap_or_default();
    let fraction = format!("{:09}", nanos % 1_000_000_000);
    match fraction.trim_end_matches('0') {
        "" => format!("{seconds}+00:00"),
        digits => format!("{seconds}.{digits}+00:00"),
    }
}
