//! Who a span is, as requests say it: B3 in one field or in several, and W3C's trace context.
//!
//! Arrives: a request's head. Leaves: what it says of its trace; or a head that says who its sender's span is.

use towpath_proto::{Head, Name};

use crate::random::Random;

/// Who a span is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    /// 0 means none.
    pub(crate) parent: u64,
}

/// What a request says of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Not where it is from; perhaps whether it is to be traced.
    Nothing(Option<bool>),
    /// The span that it comes from, and whether that is traced.
    Parent(Ids, Option<bool>),
    /// What cannot be read: the request is passed on as it is and has no span.
    Malformed,
}

impl Ids {
    /// A span below this one.
    pub(crate) fn below(self, random: &mut Random) -> Self {
        Self { trace: self.trace, span: random.next(), parent: self.span }
    }
}

/// The fields of B3; where there are none and `with_w3c` is set, `traceparent`.
pub(crate) fn read_b3(head: &Head, with_w3c: bool) -> Said {
    if let Some(single) = head.get(Name::B3) {
        return read_single(single);
    }
    let sampled = head.get(Name::XB3Sampled).map(|said| matches!(said, b"1" | b"true"));
    let (trace, span) = (head.get(Name::XB3TraceId), head.get(Name::XB3SpanId));
    let (Some(trace), Some(span)) = (trace, span) else {
        return match read_w3c(head) {
            Said::Parent(ids, said) if with_w3c && sampled.is_none() => Said::Parent(ids, said),
            Said::Parent(..) | Said::Nothing(_) | Said::Malformed => Said::Nothing(sampled),
        };
    };
    let parent = head.get(Name::XB3ParentSpanId).filter(|parent| !parent.is_empty());
    let parent = parent.map_or(Some(0), id);
    match (trace_id(trace), id(span), parent) {
        (Some(trace), Some(span), Some(parent)) => {
            Said::Parent(Ids { trace, span, parent }, sampled)
        }
        _ => Said::Malformed,
    }
}

/// `{trace}-{span}-{sampled}-{parent}`, of which the last two may be missing; or the third alone.
fn read_single(value: &[u8]) -> Said {
    if let [flag] = value {
        return flag_of(*flag).map_or(Said::Malformed, |sampled| Said::Nothing(Some(sampled)));
    }
    let mut parts = value.split(|&byte| byte == b'-');
    let trace = parts.next().filter(|trace| matches!(trace.len(), 16 | 32)).and_then(trace_id);
    let mut full_id = || match parts.next() {
        Some(part) if part.len() == 16 => Some(id(part)),
        Some(_) => Some(None),
        None => None,
    };
    let span = full_id().flatten();
    let (Some(trace), Some(span)) = (trace, span) else { return Said::Malformed };
    let Some(flag) = parts.next() else {
        return Said::Parent(Ids { trace, span, parent: 0 }, None);
    };
    let sampled = if let [flag] = flag { flag_of(*flag) } else { None };
    let parent = match parts.next() {
        None => Some(0),
        Some(part) if part.len() == 16 => id(part),
        Some(_) => None,
    };
    match (sampled, parent, parts.next()) {
        (Some(sampled), Some(parent), None) => {
            Said::Parent(Ids { trace, span, parent }, Some(sampled))
        }
        _ => Said::Malformed,
    }
}

const fn flag_of(flag: u8) -> Option<bool> {
    match flag {
        b'0' => Some(false),
        b'1' | b'd' => Some(true),
        _ => None,
    }
}

/// `traceparent` (Trace Context §3.2). A version that is not known is read as the one that is.
pub(crate) fn read_w3c(head: &Head) -> Said {
    let Some(value) = head.get(Name::Traceparent) else { return Said::Nothing(None) };
    let parts: Vec<&[u8]> = value.split(|&byte| byte == b'-').collect();
    let [version, trace, span, flags] = parts[..] else { return Said::Malformed };
    if [version.len(), trace.len(), span.len(), flags.len()] != [2, 32, 16, 2] {
        return Said::Malformed;
    }
    match (hex(version), hex(trace), id(span), hex(flags)) {
        (Some(_), Some(trace), Some(span), Some(flags)) if trace != 0 && span != 0 => {
            Said::Parent(Ids { trace, span, parent: 0 }, Some(flags & 1 == 1))
        }
        _ => Said::Malformed,
    }
}

/// Says in B3's fields who the sender is, in the one or in several.
pub(crate) fn write_b3(head: &mut Head, ids: Ids, sampled: bool, single: bool) {
    let mut text = Text::default();
    let flag = if sampled { b"1" } else { b"0" };
    if single {
        text.trace(ids.trace);
        text.dash().id(ids.span);
        text.dash().push(flag);
        if ids.parent != 0 {
            text.dash().id(ids.parent);
        }
        head.set(Name::B3, text.bytes());
        return;
    }
    text.trace(ids.trace);
    head.set(Name::XB3TraceId, text.bytes());
    head.set_array(Name::XB3SpanId, &digits(ids.span));
    if ids.parent != 0 {
        head.set_array(Name::XB3ParentSpanId, &digits(ids.parent));
    }
    head.set(Name::XB3Sampled, flag);
}

/// Says in `traceparent` who the sender is.
pub(crate) fn write_w3c(head: &mut Head, ids: Ids, sampled: bool) {
    let mut value = *b"00-00000000000000000000000000000000-0000000000000000-00";
    value[3..19].copy_from_slice(&digits((ids.trace >> 64) as u64));
    value[19..35].copy_from_slice(&digits(ids.trace as u64));
    value[36..52].copy_from_slice(&digits(ids.span));
    value[54] = if sampled { b'1' } else { b'0' };
    head.set_array(Name::Traceparent, &value);
}

/// A trace's id as text: 32 digits, or 16 where the first half is 0.
pub(crate) fn trace_text(trace: u128) -> Vec<u8> {
    let mut text = Text::default();
    text.trace(trace);
    text.bytes().to_vec()
}

/// Room for `b3`'s longest value.
#[derive(Debug)]
struct Text {
    bytes: [u8; 68],
    length: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; 68], length: 0 }
    }
}

impl Text {
    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        }
    }

    fn trace(&mut self, trace: u128) {
        let high = (trace >> 64) as u64;
        if high != 0 {
            self.id(high);
        }
        self.id(trace as u64);
    }

    fn id(&mut self, id: u64) {
        self.push(&digits(id));
    }

    fn dash(&mut self) -> &mut Self {
        self.push(b"-");
        self
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// An id as text.
pub(crate) fn digits(id: u64) -> [u8; 16] {
    crate::random::hex(id)
}

fn trace_id(text: &[u8]) -> Option<u128> {
    if text.len() == 32 { hex(text) } else { id(text).map(u128::from) }
}

fn id(text: &[u8]) -> Option<u64> {
    hex(text).filter(|_| text.len() <= 16).and_then(|id| u64::try_from(id).ok())
}

fn hex(text: &[u8]) -> Option<u128> {
    if text.is_empty() || text.len() > 32 || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x80f1_98ee_5634_3ba8_64fe_8b2a_57d3_eff7;
    const SPAN: u64 = 0xe457_b5a2_e4d8_6bd1;
    const PARENT: u64 = 0x05e3_ac9a_4f6e_3b90;

    fn head(fields: &[(Name, &[u8])]) -> Head {
        let mut head = Head::request(b"GET", b"http", b"a", b"/");
        fields.iter().for_each(|(name, value)| {
            head.append(*name, value);
        });
        head
    }

    fn single(value: &[u8]) -> Said {
        read_b3(&head(&[(Name::B3, value)]), false)
    }

    #[test]
    fn one_field_of_b3_says_all() {
        let short = Ids { trace: TRACE & u128::from(u64::MAX), span: SPAN, parent: 0 };
        let long = Ids { trace: TRACE, span: SPAN, parent: PARENT };
        let values: [(&[u8], Said); 6] = [
            (
                b"80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90",
                Said::Parent(long, Some(true)),
            ),
            (b"64fe8b2a57d3eff7-e457b5a2e4d86bd1-d", Said::Parent(short, Some(true))),
            (b"64fe8b2a57d3eff7-e457b5a2e4d86bd1-0", Said::Parent(short, Some(false))),
            (b"64fe8b2a57d3eff7-e457b5a2e4d86bd1", Said::Parent(short, None)),
            (b"0", Said::Nothing(Some(false))),
            (b"d", Said::Nothing(Some(true))),
        ];
        for (value, wanted) in values {
            assert_eq!(single(value), wanted, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn what_is_no_b3_is_malformed() {
        let values: [&[u8]; 11] = [
            b"",
            b"x",
            b"zz",
            b"64fe8b2a57d3eff7",
            b"64fe8b2a57d3eff7-",
            b"64fe8b2a57d3effg-e457b5a2e4d86bd1",
            b"64fe8b2a57d3eff7-e457b5a2e4d86bd1-",
            b"64fe8b2a57d3eff7-e457b5a2e4d86bd1-2",
            b"64fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3",
            b"64fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90-",
            b"64fe8b2a57d3eff7-+457b5a2e4d86bd1-1",
        ];
        for value in values {
            assert_eq!(single(value), Said::Malformed, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn several_fields_of_b3_are_one_context() {
        let all = [
            (Name::XB3TraceId, &b"80f198ee56343ba864fe8b2a57d3eff7"[..]),
            (Name::XB3SpanId, b"e457b5a2e4d86bd1"),
            (Name::XB3ParentSpanId, b"05e3ac9a4f6e3b90"),
            (Name::XB3Sampled, b"0"),
        ];
        let ids = Ids { trace: TRACE, span: SPAN, parent: PARENT };
        assert_eq!(read_b3(&head(&all), false), Said::Parent(ids, Some(false)));
        assert_eq!(read_b3(&head(&all[3..]), false), Said::Nothing(Some(false)));
        assert_eq!(read_b3(&head(&all[..1]), false), Said::Nothing(None));
        let bad = [(Name::XB3TraceId, &b"xyz"[..]), (Name::XB3SpanId, b"1")];
        assert_eq!(read_b3(&head(&bad), false), Said::Malformed);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (trace, parent, sampled, is_single) in [
            (TRACE, PARENT, true, true),
            (7, 0, false, true),
            (TRACE, 0, true, false),
            (1, 2, false, false),
        ] {
            let ids = Ids { trace, span: SPAN, parent };
            let mut head = head(&[]);
            write_b3(&mut head, ids, sampled, is_single);
            assert_eq!(read_b3(&head, false), Said::Parent(ids, Some(sampled)));
            write_w3c(&mut head, ids, sampled);
            let ids = Ids { parent: 0, ..ids };
            assert_eq!(read_w3c(&head), Said::Parent(ids, Some(sampled)));
        }
    }

    #[test]
    fn a_traceparent_has_four_parts_of_their_lengths() {
        let malformed: [&[u8]; 8] = [
            b"",
            b"bad",
            b"00-80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1",
            b"00-80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-01-",
            b"00-00000000000000000000000000000000-e457b5a2e4d86bd1-01",
            b"00-80f198ee56343ba864fe8b2a57d3eff7-0000000000000000-01",
            b"00-80f198ee56343ba864fe8b2a57d3effg-e457b5a2e4d86bd1-01",
            b"0-80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd11-01",
        ];
        for value in malformed {
            let said = read_w3c(&head(&[(Name::Traceparent, value)]));
            assert_eq!(said, Said::Malformed, "{}", value.escape_ascii());
        }
        let other = b"cc-80F198EE56343BA864FE8B2A57D3EFF7-e457b5a2e4d86bd1-02";
        let ids = Ids { trace: TRACE, span: SPAN, parent: 0 };
        let said = read_w3c(&head(&[(Name::Traceparent, other)]));
        assert_eq!(said, Said::Parent(ids, Some(false)));
    }
}
