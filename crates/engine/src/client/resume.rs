//! Whether a response that broke off can go on where it stopped, on another connection.
//!
//! Arrives: the heads of the request and of its response, how much came of the body, and the head of the answer to the
//! request for the rest. Leaves: the fields that ask for the rest, and whether the answer is exactly that.
//!
//! Only a strong validator promises that what comes later belongs to the same bytes (RFC 9110 §8.8.1), so nothing goes
//! on without one: GET, 200, a strong `etag`, a known length. `if-range` lets the server send everything anew where its
//! content has changed (§13.1.5); then the response is not joined.

use towpath_proto::head::{Head, Method};
use towpath_proto::name::Name;

/// A response that can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumable {
    etag: Vec<u8>,
    encoding: Option<Vec<u8>>,
    /// Bytes of the whole body.
    total: u64,
}

impl Resumable {
    /// What has to be known of a response; `None` if it cannot go on.
    #[must_use]
    pub fn of(request: &Head, response: &Head) -> Option<Self> {
        let asks_for_all =
            request.get(Name::Range).is_none() && request.get_bytes(IF_RANGE).is_none();
        let refuses = response
            .get_bytes(b"accept-ranges")
            .is_some_and(|ranges| ranges.trim_ascii().eq_ignore_ascii_case(b"none"));
        let is_plain = request.method() == Method::Get
            && response.status() == 200
            && response.get(Name::TransferEncoding).is_none();
        if !asks_for_all || refuses || !is_plain {
            return None;
        }
        let etag = response.get(Name::Etag).filter(|etag| is_strong(etag))?;
        let total = number(response.get(Name::ContentLength)?).filter(|total| *total > 0)?;
        let encoding = response.get(Name::ContentEncoding).map(<[u8]>::to_vec);
        Some(Self { etag: etag.to_vec(), encoding, total })
    }

    /// Bytes of the whole body.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Makes of the request one for all that is behind the first `received` bytes.
    pub fn ask(&self, request: &mut Head, received: u64) {
        request.set(Name::Range, format!("bytes={received}-").as_bytes());
        request.set_bytes(IF_RANGE, &self.etag);
    }

    /// Whether a response is all that is behind the first `received` bytes, of the same content in the same coding.
    #[must_use]
    pub fn continues(&self, response: &Head, received: u64) -> bool {
        let encoding = response.get(Name::ContentEncoding);
        let length = response.get(Name::ContentLength).and_then(number);
        response.status() == 206
            && received < self.total
            && response.get_bytes(b"content-range").and_then(range)
                == Some((received, self.total - 1, self.total))
            && response.get(Name::Etag) == Some(&*self.etag)
            // Others than the validators may be left out where `if-range` was sent (RFC 9110 §15.3.7).
            && (encoding.is_none() || encoding == self.encoding.as_deref())
            && response.get(Name::TransferEncoding).is_none()
            && length == self.total.checked_sub(received)
    }
}

/// An entity tag in quotes, and not a weak one (RFC 9110 §8.8.3).
fn is_strong(etag: &[u8]) -> bool {
    let inside = etag.strip_prefix(b"\"").and_then(|etag| etag.strip_suffix(b"\""));
    inside.is_some_and(|inside| !inside.contains(&b'"'))
}

/// `bytes 0-9/10`: first, last and length (RFC 9110 §14.4).
fn range(value: &[u8]) -> Option<(u64, u64, u64)> {
    let value = value.trim_ascii();
    let (unit, value) = value.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes ") {
        return None;
    }
    let dash = value.iter().position(|&byte| byte == b'-')?;
    let slash = value.iter().position(|&byte| byte == b'/').filter(|slash| *slash > dash)?;
    Some((number(&value[..dash])?, number(&value[dash + 1..slash])?, number(&value[slash + 1..])?))
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

const IF_RANGE: &[u8] = b"if-range";

#[cfg(test)]
mod tests {
    use super::*;

    fn get() -> Head {
        Head::request(b"GET", b"http", b"a.test", b"/")
    }

    fn response(status: u16, fields: &[(&str, &str)]) -> Head {
        let mut head = Head::response(status);
        for (name, value) in fields {
            assert!(head.append_bytes(name.as_bytes(), value.as_bytes()));
        }
        head
    }

    const WHOLE: [(&str, &str); 2] = [("etag", "\"v1\""), ("content-length", "1000")];

    fn resumable() -> Resumable {
        Resumable::of(&get(), &response(200, &WHOLE)).unwrap()
    }

    fn rest() -> Vec<(&'static str, &'static str)> {
        vec![("etag", "\"v1\""), ("content-length", "600"), ("content-range", "bytes 400-999/1000")]
    }

    #[test]
    fn the_rest_is_asked_for_on_the_condition_that_nothing_has_changed() {
        let mut request = get();
        resumable().ask(&mut request, 400);
        assert_eq!(request.get(Name::Range), Some(b"bytes=400-".as_slice()));
        assert_eq!(request.get_bytes(b"if-range"), Some(b"\"v1\"".as_slice()));
        resumable().ask(&mut request, 500);
        assert_eq!(request.get(Name::Range), Some(b"bytes=500-".as_slice()));
        assert!(resumable().continues(&response(206, &rest()), 400));
    }

    #[test]
    fn without_a_strong_validator_and_a_length_nothing_goes_on() {
        let of = |fields: &[(&str, &str)]| Resumable::of(&get(), &response(200, fields));
        let length = ("content-length", "1000");
        assert_eq!(of(&[length]), None);
        assert_eq!(of(&[("etag", "W/\"v1\""), length]), None);
        assert_eq!(of(&[("etag", "v1"), length]), None);
        assert_eq!(of(&[("etag", "\"a\"b\""), length]), None);
        assert_eq!(of(&[("etag", "\""), length]), None);
        assert_eq!(of(&[("etag", "\"v1\"")]), None);
        assert_eq!(of(&[("etag", "\"v1\""), ("content-length", "0")]), None);
        assert_eq!(of(&[("etag", "\"v1\""), length, ("accept-ranges", "None")]), None);
        assert!(of(&[("etag", "\"v1\""), length, ("accept-ranges", "bytes")]).is_some());
    }

    #[test]
    fn only_a_whole_answer_to_a_plain_get_goes_on() {
        let whole = response(200, &WHOLE);
        let mut ranged = get();
        ranged.append_bytes(b"range", b"bytes=0-");
        assert_eq!(Resumable::of(&ranged, &whole), None);
        assert_eq!(Resumable::of(&Head::request(b"POST", b"http", b"a", b"/"), &whole), None);
        assert_eq!(Resumable::of(&get(), &response(206, &WHOLE)), None);
    }

    #[test]
    fn anything_but_exactly_the_rest_is_not_joined() {
        let with = |name: &str, value: &'static str| {
            let fields = rest().into_iter();
            let changed: Vec<(&str, &str)> = fields
                .map(|(field, old)| if field == name { (field, value) } else { (field, old) })
                .collect();
            resumable().continues(&response(206, &changed), 400)
        };
        assert!(with("none", ""));
        assert!(!with("etag", "\"v2\""));
        assert!(!with("content-length", "599"));
        for range in [
            "bytes 399-999/1000",
            "bytes 400-998/1000",
            "bytes 400-999/1001",
            "bytes 400-999/*",
            "bytes */1000",
            "lines 400-999/1000",
            "bytes 400/1000-999",
            "bytes 4",
            "",
        ] {
            assert!(!with("content-range", range), "{range}");
        }
        assert!(!resumable().continues(&response(200, &rest()), 400));
        let none = [("etag", "\"v1\""), ("content-range", "bytes 1000-999/1000")];
        let with_length = [&none[..], &[("content-length", "0")]].concat();
        assert!(
            !resumable().continues(&response(206, &with_length), 1000),
            "nothing is behind the end"
        );
        let mut coded = rest();
        coded.push(("content-encoding", "gzip"));
        assert!(!resumable().continues(&response(206, &coded), 400));
        assert!(!resumable().continues(&response(206, &rest()[..2]), 400));
        assert!(!resumable().continues(&response(206, &rest()[1..]), 400));
    }
}
