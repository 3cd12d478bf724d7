//! What few routes ask of a request beside its path and its headers.

use towpath_proto::Head;

use super::{FilterStateMatcher, MetadataMatcher, StringMatcher};
use crate::cookie::first_cookie;
use crate::record::DownstreamTls;
use crate::stream_info::StreamInfo;

/// Envoy `CookieMatcher`: compares the first cookie of a name.
#[derive(Clone, Debug)]
pub struct CookieMatcher {
    /// `name`.
    pub name: Box<[u8]>,
    /// `string_match`: of its value, without quotes around it.
    pub test: StringMatcher,
    /// `invert_match`; then a request without the cookie matches, too.
    pub invert: bool,
}

impl CookieMatcher {
    /// Whether a request matches.
    #[must_use]
    pub fn matches(&self, head: &Head) -> bool {
        let value = first_cookie(head, &self.name);
        value.is_some_and(|value| self.test.matches(value)) != self.invert
    }
}

/// Envoy `TlsContextMatchOptions`: what is asked of the client's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateMatch {
    /// `presented`: it has shown one, or has not.
    pub presented: Option<bool>,
    /// `validated`: its session began with one that was found good, or did not.
    pub validated: Option<bool>,
}

impl CertificateMatch {
    /// Whether a client matches; one without TLS has no certificate.
    #[must_use]
    pub fn matches(&self, tls: Option<&DownstreamTls>) -> bool {
        let presented = tls.is_some_and(|tls| tls.peer.is_some());
        let validated = tls.is_some_and(|tls| tls.is_validated);
        self.presented.is_none_or(|wanted| wanted == presented)
            && self.validated.is_none_or(|wanted| wanted == validated)
    }
}

/// The tests of a route that few have; each must hold.
#[derive(Clone, Debug, Default)]
pub struct RareTests {
    /// `cookies`.
    pub cookies: Vec<CookieMatcher>,
    /// `tls_context`.
    pub certificate: CertificateMatch,
    /// `dynamic_metadata`.
    pub metadata: Vec<MetadataMatcher>,
    /// `filter_state`.
    pub state: Vec<FilterStateMatcher>,
}

/// What is known of a request beside its head.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// What filters have left.
    pub info: Option<&'a StreamInfo>,
    /// How its client speaks; `None` is plain text, or not recorded.
    pub tls: Option<&'a DownstreamTls>,
}

impl RareTests {
    /// Whether nothing is asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
            && self.certificate == CertificateMatch::default()
            && self.metadata.is_empty()
            && self.state.is_empty()
    }

    /// Whether more is asked about than the request's head.
    #[must_use]
    pub fn read_record(&self) -> bool {
        self.certificate != CertificateMatch::default()
            || !self.metadata.is_empty()
            || !self.state.is_empty()
    }

    /// Whether a request passes.
    #[must_use]
    pub fn pass(&self, head: &Head, known: Known<'_>) -> bool {
        self.cookies.iter().all(|matcher| matcher.matches(head))
            && self.certificate.matches(known.tls)
            && self.metadata.iter().all(|matcher| matcher.matches(known.info))
            && self.state.iter().all(|matcher| matcher.matches(known.info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ShownCertificate;

    #[test]
    fn the_first_cookie_of_a_name_counts() {
        let head = |cookies: &[&str]| {
            let mut head = Head::request(b"GET", b"http", b"h", b"/");
            for cookie in cookies {
                head.append_bytes(b"cookie", cookie.as_bytes());
            }
            head
        };
        let matcher = |value: &str, invert| CookieMatcher {
            name: (*b"a").into(),
            test: StringMatcher::exact(value, false),
            invert,
        };
        for (cookies, value, takes) in [
            (&["b=2; a=1", "a=3"][..], "1", true),
            (&["b=2; a=1", "a=3"], "3", false),
            (&["b=2", " a=\"3\";c"], "3", true),
            (&["a="], "", true),
            (&["a"], "", false),
            (&[], "", false),
        ] {
            assert_eq!(matcher(value, false).matches(&head(cookies)), takes, "{cookies:?}");
            assert_eq!(matcher(value, true).matches(&head(cookies)), !takes, "{cookies:?}");
        }
    }

    #[test]
    fn a_client_without_tls_has_shown_nothing() {
        let shown = |is_validated| DownstreamTls {
            peer: Some(ShownCertificate::default()),
            is_validated,
            ..DownstreamTls::default()
        };
        let wants = |presented, validated| CertificateMatch { presented, validated };
        assert!(wants(None, None).matches(None));
        assert!(wants(Some(false), Some(false)).matches(None));
        assert!(!wants(Some(true), None).matches(None));
        assert!(wants(Some(true), Some(false)).matches(Some(&shown(false))));
        assert!(!wants(None, Some(true)).matches(Some(&shown(false))));
        assert!(wants(Some(true), Some(true)).matches(Some(&shown(true))));
    }
}
