//! What the tests of this filter share, and which rule a request falls under.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;
use crate::matcher::Text;

pub(super) const HEADER: &str = r#"{"alg":"HS256"}"#;

/// A token with an invalid signature.
pub(super) fn unsigned(header: &str, payload: &str) -> String {
    format!("{}.{}.AA", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload))
}

/// A provider of local keys that takes tokens from where they usually stand.
pub(super) fn provider(issuer: &str) -> Provider {
    let mut provider = Provider::new(issuer, KeySource::Local(Arc::default()));
    provider.headers = vec![(HeaderName::new("authorization").unwrap(), b"Bearer "[..].into())];
    provider.parameters = vec![b"access_token"[..].into()];
    provider
}

#[test]
fn a_token_may_stand_only_where_its_issuer_has_it() {
    let mut one = provider("one");
    one.cookies = vec![b"t"[..].into()];
    let two = provider("two");
    let locations = locations::Locations::of([&one, &two]);
    let mut head = Head::request(b"GET", b"http", b"h", b"/?a=1&access_token=%71");
    head.append_bytes(b"authorization", b"Bearer x");
    head.append_bytes(b"authorization", b"Bearer y");
    head.append_bytes(b"cookie", b"t=\"z\"");
    let found = locations.find(&head);
    let texts: Vec<&[u8]> = found.iter().map(|found| &found.text[..]).collect();
    // Two fields of one name are one token, which is none.
    assert_eq!(texts, [&b"x,Bearer y"[..], b"q", b"z"]);
    let allowed: Vec<_> = found
        .iter()
        .map(|found| ["one", "two", "", "x"].map(|issuer| locations.allows(found.at, issuer)))
        .collect();
    let (both, first) = ([true, true, false, false], [true, false, false, false]);
    assert_eq!(allowed, [both, both, first]);
    for found in &found {
        locations.remove(found.at, &mut head);
    }
    assert_eq!(head.path(), b"/?a=1");
    assert_eq!(head.get(Name::Authorization), None);
    assert_eq!(head.get(Name::Cookie), Some(&b"t=\"z\""[..]));
}

#[test]
fn the_first_rule_that_matches_counts() {
    let rule = |path: &str, requirement| Rule {
        path: PathMatch::Prefix(Text::new(path, true)),
        headers: Vec::new(),
        query: Vec::new(),
        requirement,
    };
    let nothing = rule("/a", None);
    let something = rule("/", Some(Arc::new(Requirement::Nothing)));
    let head = |path: &[u8]| Head::request(b"GET", b"http", b"h", path);
    assert!(nothing.matches(&head(b"/a?b")) && something.matches(&head(b"/a?b")));
    assert!(!nothing.matches(&head(b"/b?/a")));
}

#[test]
fn a_preflight_has_an_origin_and_a_method() {
    let head = |method: &[u8], fields: &[(&[u8], &[u8])]| {
        let mut head = Head::request(method, b"http", b"h", b"/");
        for (name, value) in fields {
            head.append_bytes(name, value);
        }
        is_preflight(&head)
    };
    let origin = (&b"origin"[..], &b"http://a"[..]);
    let method = (&b"access-control-request-method"[..], &b"GET"[..]);
    assert!(head(b"OPTIONS", &[origin, method]));
    assert!(!head(b"GET", &[origin, method]));
    assert!(!head(b"OPTIONS", &[origin]) && !head(b"OPTIONS", &[method]));
}

#[test]
fn a_payload_nests_as_deep_as_the_limit_and_no_deeper() {
    for (levels, is_read) in [(99, true), (100, false), (10_000, false)] {
        let payload = format!(r#"{{"deep":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
        let token = token::Token::parse(unsigned(HEADER, &payload).as_bytes());
        let bad = token.err();
        assert_eq!(bad.is_none(), is_read, "{levels}");
        assert!(is_read || bad == Some(status::Status::PayloadBadJson), "{levels}");
    }
}

#[test]
fn a_token_of_many_claims_weighs_what_its_text_allows() {
    let claims: Vec<String> = (0..50_000).map(|n| format!(r#""c{n}":{n}"#)).collect();
    let text = unsigned(HEADER, &format!("{{{}}}", claims.join(",")));
    let token = token::Token::parse(text.as_bytes()).unwrap();
    assert_eq!(token.payload.len(), 50_000);
    assert!(token.weight() < text.len() * 20, "{} of {}", token.weight(), text.len());
}
