//! Trace and span ids, as the W3C's `traceparent` carries them from process to process.
//!
//! A span that has fields called `trace_id` and `span_id` (and `parent_span_id`) belongs to a trace that `towpath
//! trace export` hands
//! on and `towpath trace collect` asks other processes for; what lies in it belongs to it too.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::num::{NonZeroU64, NonZeroU128};

use crate::value::Flow;

/// A span of a trace, as it is known to others: <https://www.w3.org/TR/trace-context/>.
///
/// ```
/// use towpath_trace::{Category, TraceContext, span};
///
/// # let incoming = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let caller = TraceContext::parse(incoming);
/// let here = caller.map_or_else(TraceContext::new, |caller| caller.child());
/// let _span = span!(
///     Category::REQUEST,
///     "request",
///     trace_id = here.trace_id().as_str(),
///     span_id = here.span_id().as_str(),
///     parent_span_id = caller.map(|caller| caller.span_id()).as_deref(),
/// );
/// let outgoing = here.to_string(); // the `traceparent` of requests that are made here
/// # assert!(outgoing.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && outgoing.ends_with("-01"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace: NonZeroU128,
    span: NonZeroU64,
    flags: u8,
}

/// The flag of `traceparent` that says that the caller may have recorded it.
const SAMPLED: u8 = 1;

impl TraceContext {
    /// A trace of its own, with ids that no other has.
    #[must_use]
    pub fn new() -> Self {
        let high = u128::from(random().get()) << 64;
        let trace = NonZeroU128::from(random()) | high;
        Self { trace, span: random(), flags: SAMPLED }
    }

    /// Reads a `traceparent`; `None` for what is none, which is to be treated as if nothing had come.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let bytes = header.as_bytes();
        let dashes = [2, 35, 52].iter().all(|&at| bytes.get(at) == Some(&b'-'));
        let version = bytes.get(..2)?;
        // Later versions may have more behind another dash.
        let whole = bytes.len() == 55
            || (bytes.len() > 55 && version != b"00" && bytes.get(55) == Some(&b'-'));
        if !dashes || !whole || version == b"ff" || !is_hex(version) {
            return None;
        }
        Some(Self {
            trace: NonZeroU128::new(number(bytes.get(3..35)?)?)?,
            span: NonZeroU64::new(u64::try_from(number(bytes.get(36..52)?)?).ok()?)?,
            flags: u8::try_from(number(bytes.get(53..55)?)?).ok()?,
        })
    }

    /// Another span of the same trace: of what is done here for the caller, or of a request that is made.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span: random(), ..*self }
    }

    /// Whether the caller says that it may have recorded the trace.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same, with what [`TraceContext::is_sampled`] is to answer.
    #[must_use]
    pub const fn with_sampled(self, sampled: bool) -> Self {
        let flags = if sampled { self.flags | SAMPLED } else { self.flags & !SAMPLED };
        Self { flags, ..self }
    }

    /// The number of the trace, in 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// The number of the span, in 16 hexadecimal digits.
    #[must_use]
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }

    /// Joins spans of several processes by an arrow: give it to that of the caller and that of the called.
    #[must_use]
    pub const fn flow(&self) -> Flow {
        Flow::through(self.span.get())
    }
}

impl Default for TraceContext {
    fn default() -> Self {
        Self::new()
    }
}

/// The value of `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, flags } = self;
        // Of the flags this version knows two.
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", flags & 0b11)
    }
}

/// The standard library's keys come from the system's source of randomness, and differ with each use.
fn random() -> NonZeroU64 {
    loop {
        let here = 0u8;
        let number =
            RandomState::new().hash_one((crate::clock::monotonic_ns(), &raw const here as usize));
        if let Some(number) = NonZeroU64::new(number) {
            return number;
        }
    }
}

fn is_hex(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Lower-case hexadecimal digits, as the specification wants them.
fn number(digits: &[u8]) -> Option<u128> {
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hex(digits))?;
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let made = TraceContext::new();
        assert_eq!(TraceContext::parse(&made.to_string()), Some(made));
        let child = made.child();
        assert_eq!(child.trace_id(), made.trace_id());
        assert_ne!(child.span_id(), made.span_id());
        assert!(!made.with_sampled(false).is_sampled());
        assert!(made.with_sampled(false).to_string().ends_with("-00"));
        let ids: std::collections::HashSet<String> =
            (0..1000).map(|_| TraceContext::new().trace_id()).collect();
        assert_eq!(ids.len(), 1000);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        let later = TraceContext::parse(&format!("cc-{ids}-ff-more")).unwrap();
        assert_eq!(later.to_string(), format!("00-{ids}-03"));
        assert_eq!(later.flow(), Flow::through(0x00f0_67aa_0ba9_02b7));
    }

    #[test]
    fn what_is_no_traceparent_is_refused() {
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        for header in [
            String::new(),
            format!("ff-{ids}-01"),
            format!("00-{ids}-01-more"),
            format!("cc-{ids}-01more"),
            format!("00-{ids}-0g"),
            format!("00-{}-01", ids.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16)),
            format!("00-{ids}"),
            format!("00_{ids}-01"),
            format!("0é-{ids}-01"),
        ] {
            assert_eq!(TraceContext::parse(&header), None, "{header}");
        }
    }
}
