//! Envoy `SubjectAltNameMatcher`.

use towpath_proto::tls::{AlternativeName, NameMatcher};

use super::StringMatcher;

/// Compares alternative names of one kind.
#[derive(Clone, Debug)]
pub struct AlternativeNameMatcher {
    kind: AlternativeNameKind,
    text: NameText,
}

/// `SubjectAltNameMatcher.SanType`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeNameKind {
    /// `EMAIL`.
    Email,
    /// `DNS`.
    Dns,
    /// `URI`.
    Uri,
    /// `IP_ADDRESS`.
    Ip,
    /// `OTHER_NAME`: the content octets of its object identifier.
    Other(Vec<u8>),
}

/// What a name must be.
#[derive(Clone, Debug)]
enum NameText {
    /// This domain name; a wildcard in the certificate may stand for its first label.
    Domain(String),
    Pattern(StringMatcher),
}

impl AlternativeNameMatcher {
    /// Names of this kind that match.
    #[must_use]
    pub const fn new(kind: AlternativeNameKind, matcher: StringMatcher) -> Self {
        Self { kind, text: NameText::Pattern(matcher) }
    }

    /// Domain names that stand for this one.
    #[must_use]
    pub fn domain(name: &str) -> Self {
        let text = NameText::Domain(name.to_ascii_lowercase());
        Self { kind: AlternativeNameKind::Dns, text }
    }
}

impl NameMatcher for AlternativeNameMatcher {
    fn matches(&self, name: &AlternativeName<'_>) -> bool {
        let is_of_kind = match (name, &self.kind) {
            (AlternativeName::Email(_), AlternativeNameKind::Email)
            | (AlternativeName::Dns(_), AlternativeNameKind::Dns)
            | (AlternativeName::Uri(_), AlternativeNameKind::Uri)
            | (AlternativeName::Ip(_), AlternativeNameKind::Ip) => true,
            (AlternativeName::Other { kind, .. }, AlternativeNameKind::Other(wanted)) => {
                kind == wanted
            }
            (
                AlternativeName::Email(_)
                | AlternativeName::Dns(_)
                | AlternativeName::Uri(_)
                | AlternativeName::Ip(_)
                | AlternativeName::Other { .. },
                _,
            ) => false,
        };
        if !is_of_kind {
            return false;
        }
        let value = &*name.text();
        match &self.text {
            NameText::Domain(domain) => stands_for(value, domain.as_bytes()),
            NameText::Pattern(matcher) => matcher.matches(value),
        }
    }
}

/// Whether a certificate's domain name stands for `domain`, which is in lower case (RFC 6125 §6.4.3, with the partial
/// wildcards that it leaves to us, as Envoy takes them).
fn stands_for(name: &[u8], domain: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    if name == domain {
        return true;
    }
    let (Some((first, rest)), Some((label, parent))) = (at_dot(&name), at_dot(domain)) else {
        return false;
    };
    let Some(star) = first.iter().position(|&byte| byte == b'*') else { return false };
    let (before, after) = (&first[..star], &first[star + 1..]);
    rest == parent
        && !rest.contains(&b'*')
        && !after.contains(&b'*')
        // A wildcard within an internationalised label would match part of its encoding.
        && !first.starts_with(b"xn--")
        && label.len() >= before.len() + after.len()
        && label.starts_with(before)
        && label.ends_with(after)
}

fn at_dot(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = name.iter().position(|&byte| byte == b'.')?;
    Some((&name[..dot], &name[dot + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_one_label() {
        let table = [
            ("a.test", "a.test", true),
            ("A.Test", "a.test", true),
            ("*.test", "a.test", true),
            ("*.test", "b.a.test", false),
            ("*.test", "test", false),
            ("*", "test", false),
            ("a*.test", "abc.test", true),
            ("a*c.test", "ac.test", true),
            ("ab*bc.test", "abc.test", false),
            ("*a*.test", "a.test", false),
            ("xn--*.test", "xn--a.test", false),
            ("*.*", "a.test", false),
            ("b.test", "a.test", false),
        ];
        for (name, domain, expected) in table {
            assert_eq!(stands_for(name.as_bytes(), domain.as_bytes()), expected, "{name} {domain}");
        }
    }

    #[test]
    fn only_names_of_the_kind_count() {
        let any = || StringMatcher::contains("a", false).unwrap();
        let names = [
            AlternativeName::Email(b"a"),
            AlternativeName::Dns(b"a"),
            AlternativeName::Uri(b"a"),
            AlternativeName::Ip("fe80::a".parse().unwrap()),
            AlternativeName::Other { kind: &[1, 2], tag: 12, value: b"a" },
        ];
        let kinds = [
            AlternativeNameKind::Email,
            AlternativeNameKind::Dns,
            AlternativeNameKind::Uri,
            AlternativeNameKind::Ip,
            AlternativeNameKind::Other(vec![1, 2]),
        ];
        for (kind, wanted) in kinds.into_iter().zip(0..) {
            let matcher = AlternativeNameMatcher::new(kind, any());
            for (name, index) in names.iter().zip(0..) {
                assert_eq!(matcher.matches(name), index == wanted, "{name:?}");
            }
        }
        let other = AlternativeNameKind::Other(vec![1, 3]);
        assert!(!AlternativeNameMatcher::new(other, any()).matches(&names[4]));
    }
}
