//! String, header and query matchers, regular expressions and access-log filters.

use regex::bytes::Regex;
use towpath_engine::format::cel::Expression;
use towpath_engine::matcher::{
    Comparison, HeaderMatcher, HeaderTest, LogFilter, MatcherError, Operator, QueryMatcher,
    QueryTest, StringMatcher, full_regex, search_regex, substitution,
};
use towpath_engine::record::Flags;

use super::Converter;
use super::extension::LOG_FILTER;
use super::runtime::fraction;
use crate::message::{At, Field, Message, Value};

const EXPRESSION: &str = "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter";

/// Filters nest at most this deep.
const MAX_FILTER_DEPTH: usize = 32;

impl Converter<'_> {
    /// A list of `HeaderMatcher`s.
    pub(super) fn header_matchers(&mut self, message: &Message, name: &str) -> Vec<HeaderMatcher> {
        let matchers: Vec<_> = message.messages(name).collect();
        matchers.into_iter().filter_map(|matcher| self.header_matcher(matcher)).collect()
    }

    pub(super) fn header_matcher(&mut self, message: &Message) -> Option<HeaderMatcher> {
        let test = match message.oneof("header_match_specifier") {
            None => HeaderTest::Present(true),
            Some(field) => self.header_test(field)?,
        };
        let result = HeaderMatcher::new(message.text("name"), test);
        let matcher = self.matched(result, message.at("name"))?;
        Some(
            matcher
                .inverted(message.flag("invert_match"))
                .missing_as_empty(message.flag("treat_missing_header_as_empty")),
        )
    }

    fn header_test(&mut self, field: &Field) -> Option<HeaderTest> {
        let matcher = match (field.descriptor.name(), &field.value) {
            ("present_match", Value::Bool(present)) => return Some(HeaderTest::Present(*present)),
            ("range_match", Value::Message(range)) => {
                let bound = |name| {
                    range.get(name).map_or(0, |field| {
                        if let Value::Int(number) = field.value { number } else { 0 }
                    })
                };
                return Some(HeaderTest::Range { start: bound("start"), end: bound("end") });
            }
            ("string_match", Value::Message(message)) => self.string_matcher(message)?,
            ("safe_regex_match", Value::Message(message)) => self.regex_matcher(message)?,
            ("exact_match", Value::String(text)) => StringMatcher::exact(text, false),
            (name, Value::String(text)) => {
                let result = match name {
                    "prefix_match" => StringMatcher::prefix(text, false),
                    "suffix_match" => StringMatcher::suffix(text, false),
                    _ => StringMatcher::contains(text, false),
                };
                self.matched(result, &field.at)?
            }
            _ => return None,
        };
        Some(HeaderTest::Text(matcher))
    }

    /// A `StringMatcher`.
    pub(super) fn string_matcher(&mut self, message: &Message) -> Option<StringMatcher> {
        let ignore_case = message.flag("ignore_case");
        let field = message.oneof("match_pattern")?;
        let result = match (field.descriptor.name(), &field.value) {
            ("exact", Value::String(text)) => Ok(StringMatcher::exact(text, ignore_case)),
            ("prefix", Value::String(text)) => StringMatcher::prefix(text, ignore_case),
            ("suffix", Value::String(text)) => StringMatcher::suffix(text, ignore_case),
            ("contains", Value::String(text)) => StringMatcher::contains(text, ignore_case),
            ("safe_regex", Value::Message(regex)) => return self.regex_matcher(regex),
            _ => return None,
        };
        self.matched(result, &field.at)
    }

    fn regex_matcher(&mut self, message: &Message) -> Option<StringMatcher> {
        let result = StringMatcher::regex(message.text("regex"));
        self.matched(result, message.at("regex"))
    }

    /// A `RegexMatcher` for the whole text.
    pub(super) fn full_regex(&mut self, message: &Message) -> Option<Regex> {
        let result = full_regex(message.text("regex"));
        self.matched(result, message.at("regex"))
    }

    /// A `RegexMatchAndSubstitute`: what to look for, and what it becomes.
    pub(super) fn rewrite(&mut self, message: &Message) -> Option<(Regex, Vec<u8>)> {
        let pattern = message.message("pattern")?;
        let result = search_regex(pattern.text("regex"));
        let regex = self.matched(result, pattern.at("regex"))?;
        let result = substitution(message.text("substitution"), &regex);
        let bytes = self.matched(result, message.at("substitution"))?;
        Some((regex, bytes))
    }

    /// A list of `QueryParameterMatcher`s.
    pub(super) fn query_matchers(&mut self, message: &Message, name: &str) -> Vec<QueryMatcher> {
        let matchers: Vec<_> = message.messages(name).collect();
        matchers.into_iter().filter_map(|matcher| self.query_matcher(matcher)).collect()
    }

    fn query_matcher(&mut self, message: &Message) -> Option<QueryMatcher> {
        let test = match message.oneof("query_parameter_match_specifier").map(|field| &field.value)
        {
            Some(Value::Bool(present)) => QueryTest::Present(*present),
            Some(Value::Message(string)) => QueryTest::Text(self.string_matcher(string)?),
            _ => QueryTest::Present(true),
        };
        Some(QueryMatcher::new(message.text("name"), test))
    }

    /// An `AccessLogFilter`.
    pub(super) fn log_filter(&mut self, message: &Message) -> Option<LogFilter> {
        self.log_filter_at(message, 0)
    }

    fn log_filter_at(&mut self, message: &Message, depth: usize) -> Option<LogFilter> {
        let field = message.oneof("filter_specifier")?;
        let Value::Message(inner) = &field.value else { return None };
        if depth == MAX_FILTER_DEPTH {
            self.report.problem(&field.at, format!("filters nest deeper than {MAX_FILTER_DEPTH}"));
            return None;
        }
        Some(match field.descriptor.name() {
            "status_code_filter" => LogFilter::Status(self.comparison(inner)?),
            "duration_filter" => LogFilter::Duration(self.comparison(inner)?),
            "not_health_check_filter" => LogFilter::NotHealthCheck,
            "traceable_filter" => LogFilter::Traceable,
            "runtime_filter" => self.fraction_filter(inner),
            "and_filter" => LogFilter::And(self.log_filters(inner, depth)),
            "or_filter" => LogFilter::Or(self.log_filters(inner, depth)),
            "header_filter" => LogFilter::Header(self.header_matcher(inner.message("header")?)?),
            "response_flag_filter" => LogFilter::Flags(self.flags(inner)),
            "metadata_filter" => self.metadata_filter(inner)?,
            "grpc_status_filter" => grpc_filter(inner),
            "log_type_filter" => log_type_filter(inner),
            "extension_filter" => self.expression_filter(inner)?,
            _ => return None,
        })
    }

    fn metadata_filter(&mut self, filter: &Message) -> Option<LogFilter> {
        let matcher = match filter.message("matcher") {
            Some(matcher) => Some(self.metadata_matcher(matcher)?),
            None => None,
        };
        let others = filter.wrapped_flag("match_if_key_not_found").unwrap_or(true);
        Some(LogFilter::Metadata { matcher, others })
    }

    fn expression_filter(&mut self, holder: &Message) -> Option<LogFilter> {
        let (config, _) = self.extension(holder, LOG_FILTER, &[EXPRESSION])?;
        let at = config.at("expression");
        self.expression(config.text("expression"), at).map(LogFilter::Expression)
    }

    /// An expression in CEL.
    pub(super) fn expression(&mut self, text: &str, at: &At) -> Option<Expression> {
        match Expression::parse(text) {
            Ok(expression) => return Some(expression),
            Err(error) if error.is_unsupported => self.report.unsupported(at, error.to_string()),
            Err(error) => self.report.problem(at, error.to_string()),
        }
        None
    }

    fn log_filters(&mut self, message: &Message, depth: usize) -> Vec<LogFilter> {
        let filters: Vec<_> = message.messages("filters").collect();
        filters.into_iter().filter_map(|filter| self.log_filter_at(filter, depth + 1)).collect()
    }

    fn comparison(&mut self, filter: &Message) -> Option<Comparison> {
        let comparison = filter.message("comparison")?;
        let operator = match comparison.choice("op").as_str() {
            "GE" => Operator::GreaterOrEqual,
            "LE" => Operator::LessOrEqual,
            "NE" => Operator::NotEqual,
            _ => Operator::Equal,
        };
        let value = comparison.message("value").map_or(0, |value| self.runtime_number(value));
        Some(Comparison { operator, value })
    }

    fn fraction_filter(&mut self, filter: &Message) -> LogFilter {
        let default = filter.message("percent_sampled").map(fraction);
        let none = towpath_engine::snapshot::route::Fraction { numerator: 0, denominator: 100 };
        let fraction = self.fraction_of_key(filter.text("runtime_key")).or(default).unwrap_or(none);
        LogFilter::Fraction { fraction, independent: filter.flag("use_independent_randomness") }
    }

    fn flags(&mut self, filter: &Message) -> Flags {
        let mut flags = Flags::default();
        for (name, at) in filter.texts("flags") {
            match Flags::from_short(name) {
                Some(flag) => flags.set(flag),
                None => self.report.unsupported(at, format!("there is no response flag `{name}`")),
            }
        }
        flags
    }

    /// The value, or a problem at this place.
    pub(super) fn matched<T>(&mut self, result: Result<T, MatcherError>, at: &At) -> Option<T> {
        result.map_err(|error| self.report.problem(at, error.to_string())).ok()
    }
}

fn log_type_filter(message: &Message) -> LogFilter {
    let types = message.items("types").iter().filter_map(|item| match item.value {
        Value::Enum(number @ 0..32) => Some(1 << number),
        _ => None,
    });
    LogFilter::Type {
        types: types.fold(0, |all, one: u32| all | one),
        exclude: message.flag("exclude"),
    }
}

fn grpc_filter(message: &Message) -> LogFilter {
    let mut statuses = 0;
    for item in message.items("statuses") {
        if let Value::Enum(status @ 0..32) = item.value {
            statuses |= 1 << status;
        }
    }
    LogFilter::Grpc { statuses, exclude: message.flag("exclude") }
}
