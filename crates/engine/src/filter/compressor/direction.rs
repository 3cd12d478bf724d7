//! What of requests or of responses is compressed.

use towpath_proto::{Head, Name};

use crate::filter::coding::forbids_transform;
use crate::matcher::StringMatcher;

/// Envoy `Compressor.CommonDirectionConfig`.
#[derive(Clone, Debug)]
pub struct Direction {
    /// `enabled`.
    pub enabled: bool,
    /// `min_content_length`, in bytes.
    pub min_length: u32,
    /// `content_type`, or the default ones, and `content_type_matcher`.
    pub types: Vec<StringMatcher>,
}

impl Default for Direction {
    fn default() -> Self {
        let types = Self::exact_types(DEFAULT_TYPES.iter().copied());
        Self { enabled: true, min_length: DEFAULT_MIN_LENGTH, types }
    }
}

impl Direction {
    /// What matches these media types.
    pub fn exact_types<'a>(types: impl Iterator<Item = &'a str>) -> Vec<StringMatcher> {
        types.map(|text| StringMatcher::exact(text, true)).collect()
    }

    /// Whether content of this type is compressed; one that says no type is.
    pub(super) fn takes_type(&self, media_type: Option<&[u8]>) -> bool {
        media_type.is_none_or(|media_type| self.types.iter().any(|it| it.matches(media_type)))
    }

    /// Whether the content is long enough, or its length unknown.
    pub(super) fn takes_length(&self, head: &Head) -> bool {
        head.get(Name::ContentLength).is_none()
            || content_length(head).is_some_and(|length| length >= self.min_length.into())
    }
}

/// `content-length`, where it is a number.
pub(super) fn content_length(head: &Head) -> Option<u64> {
    let length = head.get(Name::ContentLength)?;
    std::str::from_utf8(length).ok()?.trim().parse().ok()
}

/// `content-type` without parameters.
pub(super) fn media_type(head: &Head) -> Option<&[u8]> {
    let value = head.get(Name::ContentType)?;
    Some(value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii())
}

/// Whether content may be coded: it is not yet, and no field forbids it.
pub(super) fn may_be_coded(head: &Head) -> bool {
    head.get(Name::ContentEncoding).is_none() && !forbids_transform(head)
}

/// Says that a response depends on `accept-encoding`.
pub(super) fn add_vary(head: &mut Head) {
    let Some(vary) = crate::filter::coding::list(head, Name::Vary) else {
        head.set(Name::Vary, ACCEPT_ENCODING);
        return;
    };
    if vary.split(|&byte| byte == b',').any(|member| member.trim_ascii() == ACCEPT_ENCODING) {
        return;
    }
    let vary = [&vary[..], b", ", ACCEPT_ENCODING].concat();
    head.set(Name::Vary, &vary);
}

/// A strong validator cannot stay where content is coded (RFC 9110 §8.8.1): it goes, or becomes a weak one.
pub(super) fn change_etag(head: &mut Head, weakens: bool) {
    let Some(etag) = head.get(Name::Etag) else { return };
    if etag.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"w/")) {
        return;
    }
    if weakens {
        let weak = [b"W/", etag].concat();
        head.set(Name::Etag, &weak);
    } else {
        head.remove(Name::Etag);
    }
}

const ACCEPT_ENCODING: &[u8] = b"Accept-Encoding";
/// Of Envoy.
const DEFAULT_MIN_LENGTH: u32 = 30;
/// Envoy's, with their synonyms.
const DEFAULT_TYPES: &[&str] = &[
    "text/html",
    "text/plain",
    "text/css",
    "application/javascript",
    "application/x-javascript",
    "text/javascript",
    "text/x-javascript",
    "text/ecmascript",
    "text/js",
    "text/jscript",
    "text/x-js",
    "application/ecmascript",
    "application/x-json",
    "application/xml",
    "application/json",
    "image/svg+xml",
    "text/xml",
    "application/xhtml+xml",
    "application/grpc-web",
    "application/grpc-web+proto",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_is_too_short_is_left_alone() {
        let direction = Direction::default();
        let mut head = Head::response(200);
        assert!(direction.takes_length(&head));
        for (length, wanted) in [("0", false), ("29", false), ("30", true), ("x", false)] {
            head.set(Name::ContentLength, length.as_bytes());
            assert_eq!(direction.takes_length(&head), wanted, "{length}");
        }
    }

    #[test]
    fn types_are_compared_without_parameters() {
        let direction = Direction::default();
        let mut head = Head::response(200);
        assert!(direction.takes_type(media_type(&head)));
        for (text, wanted) in [
            ("text/html", true),
            ("Text/HTML ; charset=x", true),
            ("image/png", false),
            ("", false),
        ] {
            head.set(Name::ContentType, text.as_bytes());
            assert_eq!(direction.takes_type(media_type(&head)), wanted, "{text}");
        }
    }

    #[test]
    fn a_strong_etag_goes_or_becomes_weak() {
        let cases = [
            ("\"a\"", None, "W/\"a\""),
            ("W/\"a\"", Some("W/\"a\""), "W/\"a\""),
            ("w/\"a\"", Some("w/\"a\""), "w/\"a\""),
            ("ab", None, "W/ab"),
        ];
        for (etag, kept, weak) in cases {
            let mut head = Head::response(200);
            head.set(Name::Etag, etag.as_bytes());
            change_etag(&mut head, false);
            assert_eq!(head.get(Name::Etag), kept.map(str::as_bytes), "{etag}");
            head.set(Name::Etag, etag.as_bytes());
            change_etag(&mut head, true);
            assert_eq!(head.get(Name::Etag), Some(weak.as_bytes()), "{etag}");
        }
    }

    #[test]
    fn vary_is_said_once() {
        let mut head = Head::response(200);
        for wanted in ["Accept-Encoding", "Accept-Encoding"] {
            add_vary(&mut head);
            assert_eq!(head.get(Name::Vary), Some(wanted.as_bytes()));
        }
        head.set(Name::Vary, b"origin");
        head.append(Name::Vary, b"cookie");
        add_vary(&mut head);
        let all: Vec<_> = head.values(Name::Vary).collect();
        assert_eq!(all, [b"origin,cookie, Accept-Encoding"]);
    }
}
