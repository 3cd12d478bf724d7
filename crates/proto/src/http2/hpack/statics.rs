//! The table that all have (RFC 7541 Appendix A).

use super::field::{FieldName, Pseudo};
use crate::name::Name;

/// The fields in the order of their index, the first of which is 1.
pub(super) static FIELDS: [(FieldName<'static>, &[u8]); 61] = [
    (pseudo(Pseudo::Authority), b""),
    (pseudo(Pseudo::Method), b"GET"),
    (pseudo(Pseudo::Method), b"POST"),
    (pseudo(Pseudo::Path), b"/"),
    (pseudo(Pseudo::Path), b"/index.html"),
    (pseudo(Pseudo::Scheme), b"http"),
    (pseudo(Pseudo::Scheme), b"https"),
    (pseudo(Pseudo::Status), b"200"),
    (pseudo(Pseudo::Status), b"204"),
    (pseudo(Pseudo::Status), b"206"),
    (pseudo(Pseudo::Status), b"304"),
    (pseudo(Pseudo::Status), b"400"),
    (pseudo(Pseudo::Status), b"404"),
    (pseudo(Pseudo::Status), b"500"),
    (known(Name::AcceptCharset), b""),
    (known(Name::AcceptEncoding), b"gzip, deflate"),
    (known(Name::AcceptLanguage), b""),
    (known(Name::AcceptRanges), b""),
    (known(Name::Accept), b""),
    (known(Name::AccessControlAllowOrigin), b""),
    (known(Name::Age), b""),
    (known(Name::Allow), b""),
    (known(Name::Authorization), b""),
    (known(Name::CacheControl), b""),
    (known(Name::ContentDisposition), b""),
    (known(Name::ContentEncoding), b""),
    (known(Name::ContentLanguage), b""),
    (known(Name::ContentLength), b""),
    (known(Name::ContentLocation), b""),
    (known(Name::ContentRange), b""),
    (known(Name::ContentType), b""),
    (known(Name::Cookie), b""),
    (known(Name::Date), b""),
    (known(Name::Etag), b""),
    (known(Name::Expect), b""),
    (known(Name::Expires), b""),
    (known(Name::From), b""),
    (known(Name::Host), b""),
    (known(Name::IfMatch), b""),
    (known(Name::IfModifiedSince), b""),
    (known(Name::IfNoneMatch), b""),
    (known(Name::IfRange), b""),
    (known(Name::IfUnmodifiedSince), b""),
    (known(Name::LastModified), b""),
    (known(Name::Link), b""),
    (known(Name::Location), b""),
    (known(Name::MaxForwards), b""),
    (known(Name::ProxyAuthenticate), b""),
    (known(Name::ProxyAuthorization), b""),
    (known(Name::Range), b""),
    (known(Name::Referer), b""),
    (known(Name::Refresh), b""),
    (known(Name::RetryAfter), b""),
    (known(Name::Server), b""),
    (known(Name::SetCookie), b""),
    (known(Name::StrictTransportSecurity), b""),
    (known(Name::TransferEncoding), b""),
    (known(Name::UserAgent), b""),
    (known(Name::Vary), b""),
    (known(Name::Via), b""),
    (known(Name::WwwAuthenticate), b""),
];

/// The name of the field with that index.
#[inline]
pub(super) fn name(index: u32) -> Option<FieldName<'static>> {
    field(index).map(|(name, _)| name)
}

/// The field with that index.
#[inline]
pub(super) fn field(index: u32) -> Option<(FieldName<'static>, &'static [u8])> {
    FIELDS.get((index as usize).wrapping_sub(1)).copied()
}

/// What the table has of a field: its index, and that of the first field of its name.
#[inline]
pub(super) fn find(name: FieldName<'_>, value: &[u8]) -> (Option<u32>, Option<u32>) {
    let range = match name {
        FieldName::Known(name) => RANGES_OF_NAMES[name as usize],
        FieldName::Pseudo(pseudo) => RANGES_OF_PSEUDOS[pseudo as usize],
        FieldName::Other(_) => return (None, None),
    };
    let (first, end) = (u32::from(range.0), u32::from(range.1));
    let index = (first..end).find(|index| FIELDS[*index as usize - 1].1 == value);
    (index, (first < end).then_some(first))
}

/// For each well-known name the index of its first field, and the one behind its last.
static RANGES_OF_NAMES: [(u8, u8); Name::ALL.len()] = {
    let mut ranges = [(0, 0); _];
    let mut index = 1;
    while index <= FIELDS.len() {
        if let FieldName::Known(name) = FIELDS[index - 1].0 {
            ranges[name as usize] = widened(ranges[name as usize], index as u8);
        }
        index += 1;
    }
    ranges
};

/// The same for pseudo-fields.
static RANGES_OF_PSEUDOS: [(u8, u8); Pseudo::ALL.len()] = {
    let mut ranges = [(0, 0); _];
    let mut index = 1;
    while index <= FIELDS.len() {
        if let FieldName::Pseudo(pseudo) = FIELDS[index - 1].0 {
            ranges[pseudo as usize] = widened(ranges[pseudo as usize], index as u8);
        }
        index += 1;
    }
    ranges
};

/// A range with one index more.
const fn widened(range: (u8, u8), index: u8) -> (u8, u8) {
    (if range.1 == 0 { index } else { range.0 }, index + 1)
}

const fn known(name: Name) -> FieldName<'static> {
    FieldName::Known(name)
}

const fn pseudo(pseudo: Pseudo) -> FieldName<'static> {
    FieldName::Pseudo(pseudo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_resolved() {
        for (name, _) in FIELDS {
            assert!(!matches!(name, FieldName::Other(_)));
            assert_eq!(FieldName::resolve(name.as_bytes()), name);
        }
    }

    #[test]
    fn every_field_is_found() {
        for (index, &(name, value)) in (1..).zip(&FIELDS) {
            let first = FIELDS.iter().position(|field| field.0 == name).unwrap() as u32 + 1;
            assert_eq!(find(name, value), (Some(index), Some(first)));
            assert_eq!(find(name, b"another"), (None, Some(first)));
        }
        assert_eq!(find(FieldName::Known(Name::Traceparent), b"a"), (None, None));
        assert_eq!(find(FieldName::Pseudo(Pseudo::Protocol), b"a"), (None, None));
        assert_eq!(find(FieldName::Other(b"a"), b"a"), (None, None));
    }
}
