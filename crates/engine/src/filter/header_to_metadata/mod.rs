//! `envoy.filters.http.header_to_metadata`: what headers and cookies say becomes dynamic metadata.

mod stats;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use towpath_proto::Head;

use self::stats::HeaderToMetadataStats;
use super::{
    ByPrefix, FilterConfig, FilterScope, HttpFilter, OnRequest, RequestView, ResponseFilter,
    ResponseView, RouteConfig,
};
use crate::cookie::cookie;
use crate::expression::Regex;
use crate::field::Field;
use crate::stats::{Counter, FilterNames};
use crate::stream_info::{StreamInfo, Struct, Value};

/// Envoy `header_to_metadata.v3.Config`, of a chain or of a route.
#[derive(Clone, Debug)]
pub struct HeaderToMetadata(pub Arc<Rules>);

/// What it says.
#[derive(Debug)]
pub struct Rules {
    /// `request_rules`.
    pub request: Vec<Rule>,
    /// `response_rules`.
    pub response: Vec<Rule>,
    /// `stat_prefix`: without one nothing is counted.
    pub stat_prefix: Option<Arc<str>>,
}

/// Envoy `Config.Rule`.
#[derive(Debug)]
pub struct Rule {
    /// What is looked at.
    pub source: Source,
    /// `on_header_present`.
    pub present: Option<Entry>,
    /// `on_header_missing`.
    pub missing: Option<Entry>,
}

/// Where a rule takes its value from.
#[derive(Debug)]
pub enum Source {
    /// `header`: all of its values, with commas between them.
    Header {
        /// Which.
        field: Field,
        /// `remove`.
        removes: bool,
    },
    /// `cookie`.
    Cookie(Box<[u8]>),
}

/// Envoy `Config.KeyValuePair`.
#[derive(Debug)]
pub struct Entry {
    /// `metadata_namespace`.
    pub namespace: Box<str>,
    /// `key`.
    pub key: Box<str>,
    /// `value` and `regex_value_rewrite`.
    pub becomes: Becomes,
    /// `type: NUMBER`; otherwise it stays text.
    pub is_number: bool,
    /// `encode: BASE64`.
    pub is_base64: bool,
}

/// What a value is turned into first.
#[derive(Debug)]
pub enum Becomes {
    /// It stays.
    Itself,
    /// Another in its place.
    Text(Box<[u8]>),
    /// What a pattern finds in it is replaced.
    Rewritten(Regex, Box<[u8]>),
}

impl RouteConfig for HeaderToMetadata {}

impl FilterConfig for HeaderToMetadata {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let stats = ByPrefix::new(scope.clone(), |prefix| {
            FilterNames::new("http_header_to_metadata", "http_filter_name")
                .part("towpath_header_to_metadata_prefix", prefix)
        });
        if let Some(prefix) = &self.0.stat_prefix {
            stats.of(prefix);
        }
        Rc::new(Instance { config: self.clone(), stats })
    }

    fn reads_record(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance {
    config: HeaderToMetadata,
    stats: ByPrefix<HeaderToMetadataStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let HeaderToMetadata(rules) = request.route.first().unwrap_or(&self.config);
        if let Some(info) = request.facts.info {
            let stats = self.stats(rules);
            let stats = stats.as_deref().map(|all| Stats {
                processed: &all.request_rules_processed,
                added: &all.request_metadata_added,
                missing: &all.request_header_not_found,
                all,
            });
            apply(&rules.request, request.head, info, stats);
        }
        OnRequest::Pass
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }
}

impl ResponseFilter for Instance {
    fn on_response(&self, response: &mut ResponseView<'_>) {
        let HeaderToMetadata(rules) = response.route.first().unwrap_or(&self.config);
        if let Some(info) = response.facts.info {
            let stats = self.stats(rules);
            let stats = stats.as_deref().map(|all| Stats {
                processed: &all.response_rules_processed,
                added: &all.response_metadata_added,
                missing: &all.response_header_not_found,
                all,
            });
            apply(&rules.response, response.head, info, stats);
        }
    }
}

impl Instance {
    fn stats(&self, rules: &Rules) -> Option<Arc<HeaderToMetadataStats>> {
        rules.stat_prefix.as_ref().map(|prefix| self.stats.of(prefix))
    }
}

/// The counters of one way.
#[derive(Clone, Copy, Debug)]
struct Stats<'a> {
    processed: &'a Counter,
    added: &'a Counter,
    missing: &'a Counter,
    all: &'a HeaderToMetadataStats,
}

fn apply(rules: &[Rule], head: &mut Head, info: &StreamInfo, stats: Option<Stats<'_>>) {
    let mut found: BTreeMap<&str, Struct> = BTreeMap::new();
    let count = |which: fn(Stats<'_>) -> &Counter| {
        if let Some(stats) = stats {
            which(stats).inc();
        }
    };
    for rule in rules {
        let value = rule.source.take(head);
        count(|stats| stats.processed);
        let (value, entry) = match (value, &rule.present, &rule.missing) {
            (Some(value), Some(entry), _) => (value, entry),
            (None, _, Some(entry)) => {
                count(|stats| stats.missing);
                (Vec::new(), entry)
            }
            (Some(_), None, _) | (None, _, None) => continue,
        };
        match entry.value(value) {
            Ok(value) => {
                count(|stats| stats.added);
                found.entry(&entry.namespace).or_default().insert(entry.key.clone(), value);
            }
            Err(Unusable::Empty | Unusable::NoNumber) => {}
            Err(Unusable::RewrittenToNothing) => {
                count(|stats| &stats.all.regex_substitution_failed)
            }
            Err(Unusable::TooLong) => count(|stats| &stats.all.header_value_too_long),
            Err(Unusable::NotBase64) => count(|stats| &stats.all.base64_decode_failed),
        }
    }
    for (namespace, entries) in found {
        // What is too much for one stream is left out.
        let _ = info.add_metadata(namespace, entries);
    }
}

impl Source {
    fn take(&self, head: &mut Head) -> Option<Vec<u8>> {
        match self {
            Self::Cookie(name) => cookie(head, name).map(<[u8]>::to_vec),
            Self::Header { field, removes } => {
                let mut all: Option<Vec<u8>> = None;
                field.each(head, |value| match &mut all {
                    None => all = Some(value.to_vec()),
                    Some(all) => {
                        all.push(b',');
                        all.extend_from_slice(value);
                    }
                });
                if let (true, Field::Header(name)) = (removes, field) {
                    head.remove_named(name);
                }
                all
            }
        }
    }
}

/// Why a value leaves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unusable {
    Empty,
    RewrittenToNothing,
    TooLong,
    NotBase64,
    NoNumber,
}

impl Entry {
    fn value(&self, value: Vec<u8>) -> Result<Value, Unusable> {
        let was_empty = value.is_empty();
        let mut value = match &self.becomes {
            Becomes::Itself => value,
            Becomes::Text(text) => text.to_vec(),
            Becomes::Rewritten(pattern, by) => pattern.replace_all(&value, &**by).into_owned(),
        };
        if value.is_empty() {
            return Err(if was_empty { Unusable::Empty } else { Unusable::RewrittenToNothing });
        }
        if value.len() >= TOO_LONG {
            return Err(Unusable::TooLong);
        }
        if self.is_base64 {
            value = decoded(&value).ok_or(Unusable::NotBase64)?;
        }
        if !self.is_number {
            return Ok(Value::text(&value));
        }
        let number =
            std::str::from_utf8(value.trim_ascii()).ok().and_then(|text| text.parse().ok());
        number.map(Value::Number).ok_or(Unusable::NoNumber)
    }
}

/// With or without its padding.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, NO_PAD);
    let shorter = |text: &mut &[u8]| *text = text.strip_suffix(b"=").unwrap_or(text);
    let mut text = text;
    shorter(&mut text);
    shorter(&mut text);
    BASE64.decode(text).ok().filter(|bytes| !bytes.is_empty())
}

/// Values of so many bytes are left out.
const TOO_LONG: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(becomes: Becomes, is_number: bool, is_base64: bool) -> Entry {
        Entry { namespace: "n".into(), key: "k".into(), becomes, is_number, is_base64 }
    }

    #[test]
    fn a_value_is_rewritten_decoded_and_read() {
        let is = |entry: &Entry, text: &str| entry.value(text.as_bytes().to_vec());
        let itself = entry(Becomes::Itself, false, false);
        assert_eq!(is(&itself, "a"), Ok(Value::text(b"a")));
        assert_eq!(is(&itself, ""), Err(Unusable::Empty));
        assert_eq!(is(&itself, &"a".repeat(TOO_LONG - 1)).map(|_| ()), Ok(()));
        assert_eq!(is(&itself, &"a".repeat(TOO_LONG)), Err(Unusable::TooLong));
        let number = entry(Becomes::Itself, true, false);
        assert_eq!(is(&number, " 1.5e1 "), Ok(Value::Number(15.0)));
        assert_eq!(is(&number, "one"), Err(Unusable::NoNumber));
        let rewritten = |by: &[u8]| {
            entry(Becomes::Rewritten(Regex::new("[0-9]+").unwrap(), by.into()), false, false)
        };
        assert_eq!(is(&rewritten(b"<$0>"), "a12b3"), Ok(Value::text(b"a<12>b<3>")));
        assert_eq!(is(&rewritten(b""), "12"), Err(Unusable::RewrittenToNothing));
    }

    #[test]
    fn base64_comes_with_padding_or_without() {
        for (text, wanted) in [
            ("YQ==", Some("a")),
            ("YQ=", Some("a")),
            ("YQ", Some("a")),
            ("YWI", Some("ab")),
            ("YWJj", Some("abc")),
            ("YR", None),
            ("Y", None),
            ("YQ===", None),
            ("Y-==", None),
            ("=", None),
        ] {
            assert_eq!(decoded(text.as_bytes()).as_deref(), wanted.map(str::as_bytes), "{text}");
        }
    }
}
