//! Which streams leave a line in the access log. Envoy `config.accesslog.v3.AccessLogFilter`.

use towpath_proto::{Head, Name};

use super::{HeaderMatcher, MetadataMatcher};
use crate::format::Facts;
use crate::format::cel::Expression;
use crate::fraction::Fraction;
use crate::grpc;
use crate::record::Flags;

/// A predicate on a finished stream.
#[derive(Clone, Debug)]
pub enum LogFilter {
    /// `status_code_filter`; a stream without a status counts as 0.
    Status(Comparison),
    /// `duration_filter`, in milliseconds.
    Duration(Comparison),
    /// `not_health_check_filter`.
    NotHealthCheck,
    /// `traceable_filter`.
    Traceable,
    /// `runtime_filter` with its default share.
    Fraction {
        /// The share of streams.
        fraction: Fraction,
        /// `use_independent_randomness`: dice, not the request id, decide.
        independent: bool,
    },
    /// `and_filter`.
    And(Vec<Self>),
    /// `or_filter`.
    Or(Vec<Self>),
    /// `header_filter`, on the request.
    Header(HeaderMatcher),
    /// `response_flag_filter`: any of these, or any at all when the set is empty.
    Flags(Flags),
    /// `metadata_filter`.
    Metadata {
        /// What is wanted of a stream's dynamic metadata that have the value at all.
        matcher: Option<MetadataMatcher>,
        /// `match_if_key_not_found`: whether the others pass.
        others: bool,
    },
    /// `log_type_filter`.
    Type {
        /// Bit *n* stands for the type with the number *n* in Envoy's `AccessLogType`.
        types: u32,
        /// All others.
        exclude: bool,
    },
    /// `extension_filter` with an `ExpressionFilter`.
    Expression(Expression),
    /// `grpc_status_filter`.
    Grpc {
        /// Bit *n* stands for status *n*.
        statuses: u32,
        /// All others.
        exclude: bool,
    },
}

/// Envoy `ComparisonFilter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// How.
    pub operator: Operator,
    /// With what. `value.default_value`.
    pub value: u32,
}

/// Envoy `ComparisonFilter.Op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `EQ`.
    Equal,
    /// `GE`.
    GreaterOrEqual,
    /// `LE`.
    LessOrEqual,
    /// `NE`.
    NotEqual,
}

impl Comparison {
    /// Whether `number` compares as wanted.
    #[must_use]
    pub fn holds(self, number: u64) -> bool {
        let value = u64::from(self.value);
        match self.operator {
            Operator::Equal => number == value,
            Operator::GreaterOrEqual => number >= value,
            Operator::LessOrEqual => number <= value,
            Operator::NotEqual => number != value,
        }
    }
}

impl LogFilter {
    /// Whether the stream passes. `random` decides shares where no request id does.
    #[must_use]
    pub fn matches(&self, facts: &Facts<'_>, random: u64) -> bool {
        let Facts { record, request, .. } = *facts;
        match self {
            Self::Status(comparison) => comparison.holds(u64::from(record.status)),
            Self::Duration(comparison) => {
                let end = record.end.unwrap_or(facts.now);
                comparison.holds(milliseconds(end.since(record.start)))
            }
            Self::NotHealthCheck => !record.health_check,
            Self::Traceable => record.traceable,
            Self::Fraction { fraction, independent } => {
                let id = if *independent { None } else { request.and_then(request_number) };
                fraction.takes(id.unwrap_or(random))
            }
            Self::And(all) => all.iter().all(|filter| filter.matches(facts, random)),
            Self::Or(any) => any.iter().any(|filter| filter.matches(facts, random)),
            Self::Header(matcher) => request.is_some_and(|head| matcher.matches(head)),
            Self::Flags(wanted) if wanted.is_empty() => !record.flags.is_empty(),
            Self::Flags(wanted) => record.flags.has(*wanted),
            Self::Metadata { matcher, others } => {
                let found = matcher.as_ref().and_then(|it| it.finds(facts.info));
                found.unwrap_or(*others)
            }
            Self::Type { types, exclude } => {
                (types & (1 << facts.log_type_number()) != 0) != *exclude
            }
            Self::Expression(expression) => expression.holds(facts),
            Self::Grpc { statuses, exclude } => {
                let status = facts.grpc_status().unwrap_or_else(|| grpc::UNKNOWN.into());
                let bit = u32::try_from(status).ok().and_then(|status| 1_u32.checked_shl(status));
                bit.is_some_and(|bit| statuses & bit != 0) != *exclude
            }
        }
    }
}

fn milliseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The number in the first eight digits of a UUID request id, which every hop of a call shares.
fn request_number(head: &Head) -> Option<u64> {
    let id = head.get(Name::XRequestId)?;
    let digits = std::str::from_utf8(id.get(..8).filter(|_| id.len() == 36)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use towpath_proto::Instant;

    use super::*;
    use crate::matcher::{HeaderTest, StringMatcher};
    use crate::record::Record;

    fn record() -> Record {
        Record {
            start: Instant::from_nanos(1_000_000),
            end: Some(Instant::from_nanos(31_999_999)),
            status: 503,
            flags: Flags::UPSTREAM_CONNECTION_FAILURE,
            ..Record::default()
        }
    }

    fn passes(filter: &LogFilter, record: &Record, request: Option<&Head>, random: u64) -> bool {
        let facts = Facts { request, ..Facts::new(record, Instant::FAR_FUTURE) };
        filter.matches(&facts, random)
    }

    #[test]
    fn numbers_are_compared() {
        use Operator::{Equal, GreaterOrEqual, LessOrEqual, NotEqual};
        for (operator, [below, same, above]) in [
            (Equal, [false, true, false]),
            (GreaterOrEqual, [false, true, true]),
            (LessOrEqual, [true, true, false]),
            (NotEqual, [true, false, true]),
        ] {
            let comparison = Comparison { operator, value: 30 };
            assert_eq!([29, 30, 31].map(|n| comparison.holds(n)), [below, same, above]);
        }
        let duration = |value| LogFilter::Duration(Comparison { operator: Equal, value });
        assert!(passes(&duration(30), &record(), None, 0));
        assert!(!passes(&duration(31), &record(), None, 0));
        let status = LogFilter::Status(Comparison { operator: GreaterOrEqual, value: 500 });
        assert!(passes(&status, &record(), None, 0));
        assert!(!passes(&status, &Record::default(), None, 0));
    }

    #[test]
    fn flags_health_checks_and_combinations() {
        let any = LogFilter::Flags(Flags::NONE);
        let retries = LogFilter::Flags(Flags::UPSTREAM_RETRY_LIMIT_EXCEEDED);
        assert!(passes(&any, &record(), None, 0));
        assert!(!passes(&any, &Record::default(), None, 0));
        assert!(!passes(&retries, &record(), None, 0));
        assert!(passes(&LogFilter::Or(vec![retries.clone(), any.clone()]), &record(), None, 0));
        assert!(!passes(&LogFilter::And(vec![retries, any]), &record(), None, 0));
        let check = Record { health_check: true, ..record() };
        assert!(!passes(&LogFilter::NotHealthCheck, &check, None, 0));
        assert!(passes(&LogFilter::NotHealthCheck, &record(), None, 0));
        assert!(!passes(&LogFilter::Traceable, &record(), None, 0));
    }

    #[test]
    fn headers_are_the_requests() {
        let test = HeaderTest::Text(StringMatcher::exact("1", false));
        let filter = LogFilter::Header(HeaderMatcher::new("a", test).unwrap());
        let mut head = Head::request(b"GET", b"http", b"h", b"/");
        assert!(!passes(&filter, &record(), None, 0));
        assert!(!passes(&filter, &record(), Some(&head), 0));
        head.append_bytes(b"a", b"1");
        assert!(passes(&filter, &record(), Some(&head), 0));
    }

    #[test]
    fn a_share_is_decided_by_the_request_id_if_there_is_one() {
        let fraction = Fraction { numerator: 50, denominator: 100 };
        let by_id = LogFilter::Fraction { fraction, independent: false };
        let by_dice = LogFilter::Fraction { fraction, independent: true };
        let mut head = Head::request(b"GET", b"http", b"h", b"/");
        head.append(Name::XRequestId, b"00000031-0000-4000-8000-000000000000");
        for random in [0, 49, 50, 99] {
            // 0x31 is 49.
            assert!(passes(&by_id, &record(), Some(&head), random));
            assert_eq!(passes(&by_dice, &record(), Some(&head), random), random < 50);
            assert_eq!(passes(&by_id, &record(), None, random), random < 50);
        }
    }

    #[test]
    fn grpc_statuses_come_from_trailers_or_stand_for_the_http_status() {
        let unavailable = LogFilter::Grpc { statuses: 1 << 14, exclude: false };
        assert!(passes(&unavailable, &record(), None, 0));
        let (record, mut trailers) = (record(), Head::default());
        trailers.append(Name::GrpcStatus, b"5");
        let facts = Facts { trailers: Some(&trailers), ..Facts::new(&record, Instant::ZERO) };
        assert!(!unavailable.matches(&facts, 0));
        assert!(LogFilter::Grpc { statuses: 1 << 14, exclude: true }.matches(&facts, 0));
        assert!(LogFilter::Grpc { statuses: 1 << 5, exclude: false }.matches(&facts, 0));
    }
}
