//! Well-known header names as small integers, so that the path compares bytes, not strings.
//!
//! A name is resolved once, while its line is parsed: three of its bytes and its length pick one
//! candidate from a table that the compiler fills, and one comparison of whole blocks decides. A hit
//! also proves that the name is a valid token, because every name in the table is one.

use crate::block;

/// Declares [`Name`], its spelling and its list in one place.
macro_rules! names {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// A well-known header name, or [`Name::Custom`] for all others.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Name {
            /// A name that is not in the list; its bytes are beside it.
            #[default]
            Custom = 0,
            $(#[doc = concat!("`", $text, "`")] $(#[$doc])* $variant,)+
        }

        impl Name {
            /// Every well-known name, in the order of its number; the first is [`Name::Custom`].
            pub const ALL: &[Self] = &[Self::Custom, $(Self::$variant,)+];

            /// The name in lower case; empty for [`Name::Custom`].
            #[must_use]
            #[inline]
            pub const fn as_str(self) -> &'static str {
                TEXTS[self as usize]
            }

            /// The name in lower case with what stands between it and its value (`host: `), padded, and its length.
            #[inline]
            pub(crate) const fn line_start(self) -> (&'static [u8; Self::LINE_START_ROOM], usize) {
                let (text, length) = &LINE_STARTS[self as usize];
                (text, *length as usize)
            }
        }

        const TEXTS: &[&str] = &["", $($text,)+];
        static LINE_STARTS: &[([u8; Name::LINE_START_ROOM], u8)] =
            &[padded(""), $(padded(concat!($text, ": ")),)+];
    };
}

// The first eleven are those that HTTP/1 itself acts upon: `Name::is_framing` is one comparison.
names! {
    Host = "host",
    Connection = "connection",
    ContentLength = "content-length",
    TransferEncoding = "transfer-encoding",
    Te = "te",
    Trailer = "trailer",
    Upgrade = "upgrade",
    Expect = "expect",
    KeepAlive = "keep-alive",
    ProxyConnection = "proxy-connection",
    Http2Settings = "http2-settings",
    Date = "date",
    Server = "server",
    Via = "via",
    UserAgent = "user-agent",
    Accept = "accept",
    AcceptEncoding = "accept-encoding",
    AcceptLanguage = "accept-language",
    Authorization = "authorization",
    CacheControl = "cache-control",
    Cookie = "cookie",
    ContentType = "content-type",
    ContentEncoding = "content-encoding",
    Etag = "etag",
    LastModified = "last-modified",
    Expires = "expires",
    IfNoneMatch = "if-none-match",
    IfModifiedSince = "if-modified-since",
    Location = "location",
    Origin = "origin",
    Range = "range",
    Referer = "referer",
    RetryAfter = "retry-after",
    SetCookie = "set-cookie",
    Vary = "vary",
    ProxyAuthenticate = "proxy-authenticate",
    ProxyAuthorization = "proxy-authorization",
    Forwarded = "forwarded",
    XForwardedFor = "x-forwarded-for",
    XForwardedProto = "x-forwarded-proto",
    XForwardedHost = "x-forwarded-host",
    XForwardedPort = "x-forwarded-port",
    XForwardedClientCert = "x-forwarded-client-cert",
    XRequestId = "x-request-id",
    XClientTraceId = "x-client-trace-id",
    Traceparent = "traceparent",
    Tracestate = "tracestate",
    Baggage = "baggage",
    XB3TraceId = "x-b3-traceid",
    XB3SpanId = "x-b3-spanid",
    XB3ParentSpanId = "x-b3-parentspanid",
    XB3Sampled = "x-b3-sampled",
    XB3Flags = "x-b3-flags",
    B3 = "b3",
    GrpcStatus = "grpc-status",
    GrpcMessage = "grpc-message",
    GrpcTimeout = "grpc-timeout",
    CdnLoop = "cdn-loop",
    XEnvoyAttemptCount = "x-envoy-attempt-count",
    XEnvoyDecoratorOperation = "x-envoy-decorator-operation",
    XEnvoyDegraded = "x-envoy-degraded",
    XEnvoyDownstreamServiceCluster = "x-envoy-downstream-service-cluster",
    XEnvoyDownstreamServiceNode = "x-envoy-downstream-service-node",
    XEnvoyExpectedRqTimeoutMs = "x-envoy-expected-rq-timeout-ms",
    XEnvoyExternalAddress = "x-envoy-external-address",
    XEnvoyForceTrace = "x-envoy-force-trace",
    XEnvoyHedgeOnPerTryTimeout = "x-envoy-hedge-on-per-try-timeout",
    XEnvoyImmediateHealthCheckFail = "x-envoy-immediate-health-check-fail",
    XEnvoyInternal = "x-envoy-internal",
    XEnvoyIpTags = "x-envoy-ip-tags",
    XEnvoyLocalOverloaded = "x-envoy-local-overloaded",
    XEnvoyMaxRetries = "x-envoy-max-retries",
    XEnvoyOriginalHost = "x-envoy-original-host",
    XEnvoyOriginalMethod = "x-envoy-original-method",
    XEnvoyOriginalPath = "x-envoy-original-path",
    XEnvoyOriginalUrl = "x-envoy-original-url",
    XEnvoyOverloaded = "x-envoy-overloaded",
    XEnvoyPeerMetadata = "x-envoy-peer-metadata",
    XEnvoyPeerMetadataId = "x-envoy-peer-metadata-id",
    XEnvoyRateLimited = "x-envoy-ratelimited",
    XEnvoyRetriableHeaderNames = "x-envoy-retriable-header-names",
    XEnvoyRetriableStatusCodes = "x-envoy-retriable-status-codes",
    XEnvoyRetryGrpcOn = "x-envoy-retry-grpc-on",
    XEnvoyRetryOn = "x-envoy-retry-on",
    XEnvoyUpstreamAltStatName = "x-envoy-upstream-alt-stat-name",
    XEnvoyUpstreamCanary = "x-envoy-upstream-canary",
    XEnvoyUpstreamHealthCheckedCluster = "x-envoy-upstream-healthchecked-cluster",
    XEnvoyUpstreamRqPerTryTimeoutMs = "x-envoy-upstream-rq-per-try-timeout-ms",
    XEnvoyUpstreamRqTimeoutAltResponse = "x-envoy-upstream-rq-timeout-alt-response",
    XEnvoyUpstreamRqTimeoutMs = "x-envoy-upstream-rq-timeout-ms",
    XEnvoyUpstreamServiceTime = "x-envoy-upstream-service-time",
    XEnvoyUpstreamStreamDurationMs = "x-envoy-upstream-stream-duration-ms",
    AcceptCharset = "accept-charset",
    AcceptRanges = "accept-ranges",
    AccessControlAllowOrigin = "access-control-allow-origin",
    Age = "age",
    Allow = "allow",
    ContentDisposition = "content-disposition",
    ContentLanguage = "content-language",
    ContentLocation = "content-location",
    ContentRange = "content-range",
    From = "from",
    IfMatch = "if-match",
    IfRange = "if-range",
    IfUnmodifiedSince = "if-unmodified-since",
    Link = "link",
    MaxForwards = "max-forwards",
    Refresh = "refresh",
    StrictTransportSecurity = "strict-transport-security",
    WwwAuthenticate = "www-authenticate",
}

/// A line's start with zeros behind it, and its length.
const fn padded(text: &str) -> ([u8; Name::LINE_START_ROOM], u8) {
    let mut room = [0; Name::LINE_START_ROOM];
    room.split_at_mut(text.len()).0.copy_from_slice(text.as_bytes());
    (room, text.len() as u8)
}

impl Name {
    /// What the start of any well-known name's line fits into.
    pub(crate) const LINE_START_ROOM: usize = 48;

    /// The well-known name that `bytes` spell in whatever case, or [`Name::Custom`].
    #[must_use]
    #[inline]
    pub fn resolve(bytes: &[u8]) -> Self {
        let mut window = [0; Self::LINE_START_ROOM];
        let Some(room) = window.get_mut(..bytes.len()) else { return Self::Custom };
        room.copy_from_slice(bytes);
        Self::resolve_within(&window, bytes.len())
    }

    /// As [`Name::resolve`], of the first `length` bytes of some.
    #[inline(always)]
    pub(crate) fn resolve_within<const N: usize>(bytes: &[u8; N], length: usize) -> Self {
        let Some(slot) = bytes.get(..length).and_then(slot_of) else { return Self::Custom };
        let name = TABLE[slot];
        let (start, start_length) = name.line_start();
        let blocks = bytes.as_chunks::<16>().0.iter().zip(start.as_chunks::<16>().0);
        let same = blocks.enumerate().fold(0, |same, (at, (block, text))| {
            same | u64::from(block::same_name(block, text)) << (16 * at)
        });
        // No name is as long as 64 bytes.
        let differs = !same & ((1 << length) - 1) != 0;
        if differs | (start_length != length + ": ".len()) { Self::Custom } else { name }
    }

    /// Its bit in a set that folds all names into 64.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << (self as u8 & 63)
    }

    /// Whether HTTP/1 framing or connection handling depends on this name.
    #[must_use]
    #[inline]
    pub(crate) const fn is_framing(self) -> bool {
        (self as u8).wrapping_sub(1) < Self::Http2Settings as u8
    }
}

/// The table slot of a name, or nothing for a length that no well-known name has.
#[inline]
const fn slot_of(bytes: &[u8]) -> Option<usize> {
    let length = bytes.len();
    if length < SHORTEST || length > LONGEST {
        return None;
    }
    let (middle, late, last) = (bytes[length / 2], bytes[length * 3 / 4], bytes[length - 1]);
    let key = ((middle | 0x20) as u32)
        | (((late | 0x20) as u32) << 8)
        | (((last | 0x20) as u32) << 16)
        | ((length as u32) << 24);
    Some((key.wrapping_mul(MULTIPLIER) >> (32 - TABLE_BITS)) as usize)
}

const SHORTEST: usize = 2;
const LONGEST: usize = 40;
const TABLE_BITS: u32 = 9;

/// Found by trying random odd numbers; [`table`] does not compile with one that makes two names collide.
const MULTIPLIER: u32 = 0x7d35_0737;

static TABLE: [Name; 1 << TABLE_BITS] = table();

const fn table() -> [Name; 1 << TABLE_BITS] {
    let mut table = [Name::Custom; 1 << TABLE_BITS];
    let mut index = 1;
    while index < TEXTS.len() {
        match slot_of(TEXTS[index].as_bytes()) {
            Some(slot) => {
                assert!(
                    matches!(table[slot], Name::Custom),
                    "two names share a slot: choose another MULTIPLIER"
                );
                table[slot] = Name::ALL[index];
            }
            None => panic!("a name is shorter or longer than the limits say"),
        }
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_every_case() {
        for &name in &Name::ALL[1..] {
            let lower = name.as_str();
            let mixed: String = (0..)
                .zip(lower.chars())
                .map(|(at, c)| if at % 3 == 0 { c.to_ascii_uppercase() } else { c })
                .collect();
            for text in [lower.to_owned(), lower.to_ascii_uppercase(), mixed] {
                assert_eq!(Name::resolve(text.as_bytes()), name, "{text}");
            }
        }
    }

    #[test]
    fn a_name_with_any_one_byte_changed_is_custom() {
        for &name in &Name::ALL[1..] {
            for at in 0..name.as_str().len() {
                for byte in 0..=u8::MAX {
                    let mut bytes = name.as_str().as_bytes().to_vec();
                    bytes[at] = byte;
                    let known = bytes.eq_ignore_ascii_case(name.as_str().as_bytes());
                    let found = Name::resolve(&bytes);
                    assert_eq!(found == name, known, "{}", bytes.escape_ascii());
                    // Some names differ in one byte only from another.
                    assert!(
                        known
                            || found == Name::Custom
                            || bytes.eq_ignore_ascii_case(found.as_str().as_bytes())
                    );
                }
            }
        }
    }

    #[test]
    fn lengths_beyond_the_table_are_custom() {
        for length in 0..100 {
            assert_eq!(Name::resolve(&vec![b'x'; length]), Name::Custom);
        }
    }

    #[test]
    fn framing_names_are_the_first_ones() {
        let framing: Vec<Name> =
            Name::ALL.iter().copied().filter(|name| name.is_framing()).collect();
        assert_eq!(framing, Name::ALL[1..12]);
        assert_eq!(framing.last(), Some(&Name::Http2Settings));
    }
}
