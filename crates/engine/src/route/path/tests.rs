//! What Envoy 1.40 made of these paths.

use super::*;

const KEEP: PathRules =
    PathRules { normalize: false, merge_slashes: false, escaped_slashes: EscapedSlashes::Keep };

/// `307 ` before the path is a redirect to it, `400` a rejection.
fn check(rules: PathRules, cases: &[(&str, &str)]) {
    for (path, wanted) in cases {
        let mut out = b"old".to_vec();
        let outcome = rules.sanitize(path.as_bytes(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let said = match outcome {
            Sanitized::Unchanged => (*path).to_owned(),
            Sanitized::Changed => text,
            Sanitized::Redirect => format!("307 {text}"),
            Sanitized::Rejected => "400".to_owned(),
        };
        assert_eq!(said, *wanted, "{path}");
    }
}

#[test]
fn normalized() {
    let rules = PathRules { normalize: true, ..KEEP };
    let cases = [
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/../a", "/a"),
        ("/a/b/..", "/a/"),
        ("/a/b/../", "/a/"),
        ("/a/.", "/a/"),
        ("/.", "/"),
        ("/..", "/"),
        ("/a//b", "/a//b"),
        ("//a", "//a"),
        ("/a/%2e%2e/b", "/b"),
        ("/a/%2E/b", "/a/b"),
        ("/%41%7e%2d%5f%30", "/A~-_0"),
        ("/a%2fb", "/a%2fb"),
        ("/a%5cb", "/a%5cb"),
        ("/a\\b", "/a/b"),
        ("/%zz", "/%zz"),
        ("/a%2", "/a%2"),
        ("/%", "/%"),
        ("/a%00", "400"),
        ("/%c3%a9", "/%c3%a9"),
        ("/%E9", "/%E9"),
        ("/a%20b", "/a%20b"),
        ("/a\"b<c>d^e`f{g}h|i", "/a%22b%3Cc%3Ed%5Ee%60f%7Bg%7Dh%7Ci"),
        ("/a;b=c", "/a;b=c"),
        ("/a?x=/../y", "/a?x=/../y"),
        ("/a/..?b//c", "/?b//c"),
        ("/a//?b", "/a//?b"),
        ("/~u!$&'()*+,=:@", "/~u!$&'()*+,=:@"),
        ("/[x]", "/[x]"),
        ("/a%3fb", "/a%3fb"),
        ("/a%23b", "/a%23b"),
        ("/a/...", "/a/..."),
        ("/a/.../b", "/a/.../b"),
        ("/a/..b", "/a/..b"),
        ("/a/b/./../c", "/a/c"),
        ("/A%C3%A9", "/A%C3%A9"),
        ("/a/%2e", "/a/"),
        ("/a/.%2e/b", "/b"),
        ("/a/%2e%2e", "/"),
        ("/%2f..%2fb", "/%2f..%2fb"),
        ("/a%5c..%5cb", "/a%5c..%5cb"),
        ("/a%7C", "/a%7C"),
        ("/a%22", "/a%22"),
        ("/a%3c", "/a%3c"),
        ("/a%25", "/a%25"),
        ("/a%2525", "/a%2525"),
        ("/a/b//../c", "/a/b/c"),
        ("//", "//"),
        ("///", "///"),
        ("/x//", "/x//"),
        ("/a%7F", "/a%7F"),
        ("/a%80", "/a%80"),
        ("/a/.;x", "/a/"),
        ("/%2F%2f", "/%2F%2f"),
        ("/a%5C%5Cb", "/a%5C%5Cb"),
        ("/%2e%2f", "/.%2f"),
        ("/a///b/../c", "/a///c"),
        ("/a%21", "/a%21"),
        ("/a%24%26%27%28%29%2a%2b%2c%3b%3d%3a%40", "/a%24%26%27%28%29%2a%2b%2c%3b%3d%3a%40"),
        ("/a%5b%5d%5e%60%7b%7d", "/a%5b%5d%5e%60%7b%7d"),
        ("/a/b/%2e%2e?c=%2f", "/a/?c=%2f"),
        ("/a%0ab", "/a%0ab"),
    ];
    check(rules, &cases);
}

#[test]
fn normalized_and_merged() {
    let rules = PathRules { normalize: true, merge_slashes: true, ..KEEP };
    let cases = [
        ("/a//b", "/a/b"),
        ("//a", "/a"),
        ("/a//?b", "/a/?b"),
        ("///", "//"),
        ("/x//", "/x/"),
        ("/a///b/../c", "/a/c"),
    ];
    check(rules, &cases);
}

#[test]
fn merged() {
    let rules = PathRules { merge_slashes: true, ..KEEP };
    let cases = [
        ("/a//b", "/a/b"),
        ("//a", "/a"),
        ("/a//?b", "/a/?b"),
        ("/a/b//../c", "/a/b/../c"),
        ("///", "//"),
        ("/x//", "/x/"),
        ("/a///b/../c", "/a/b/../c"),
        ("/a/../%41", "/a/../%41"),
    ];
    check(rules, &cases);
}

#[test]
fn unescaped_and_normalized() {
    let rules =
        PathRules { normalize: true, escaped_slashes: EscapedSlashes::UnescapeAndForward, ..KEEP };
    let cases = [
        ("/a%2fb", "/a/b"),
        ("/a%5cb", "/a/b"),
        ("/%2f..%2fb", "/b"),
        ("/a%5c..%5cb", "/b"),
        ("/%2F%2f", "///"),
        ("/a%5C%5Cb", "/a//b"),
        ("/%2e%2f", "/"),
    ];
    check(rules, &cases);
}

#[test]
fn unescaped_normalized_and_merged() {
    let rules = PathRules {
        normalize: true,
        merge_slashes: true,
        escaped_slashes: EscapedSlashes::UnescapeAndForward,
    };
    let cases = [
        ("/a//b", "/a/b"),
        ("//a", "/a"),
        ("/a%2fb", "/a/b"),
        ("/a%5cb", "/a/b"),
        ("/a//?b", "/a/?b"),
        ("/%2f..%2fb", "/b"),
        ("/a%5c..%5cb", "/b"),
        ("///", "//"),
        ("/x//", "/x/"),
        ("/%2F%2f", "//"),
        ("/a%5C%5Cb", "/a/b"),
        ("/%2e%2f", "/"),
        ("/a///b/../c", "/a/c"),
    ];
    check(rules, &cases);
}

#[test]
fn unescaped() {
    let rules = PathRules { escaped_slashes: EscapedSlashes::UnescapeAndForward, ..KEEP };
    let cases = [
        ("/a%2fb", "/a/b"),
        ("/a%5cb", "/a\\b"),
        ("/%2f..%2fb", "//../b"),
        ("/a%5c..%5cb", "/a\\..\\b"),
        ("/%2F%2f", "///"),
        ("/a%5C%5Cb", "/a\\\\b"),
        ("/%2e%2f", "/%2e/"),
        ("/a/../%41", "/a/../%41"),
    ];
    check(rules, &cases);
}

#[test]
fn unescaped_and_redirected() {
    let rules =
        PathRules { normalize: true, escaped_slashes: EscapedSlashes::UnescapeAndRedirect, ..KEEP };
    let cases = [
        ("/a%2fb", "307 /a/b"),
        ("/a%5cb", "307 /a/b"),
        ("/%2f..%2fb", "307 /b"),
        ("/a%5c..%5cb", "307 /b"),
        ("/%2F%2f", "307 ///"),
        ("/a%5C%5Cb", "307 /a//b"),
        ("/%2e%2f", "307 /"),
    ];
    check(rules, &cases);
}

#[test]
fn rejected() {
    let rules = PathRules { escaped_slashes: EscapedSlashes::Reject, ..KEEP };
    let cases = [
        ("/a%2fb", "400"),
        ("/a%5cb", "400"),
        ("/%2f..%2fb", "400"),
        ("/a%5c..%5cb", "400"),
        ("/%2F%2f", "400"),
        ("/a%5C%5Cb", "400"),
        ("/%2e%2f", "400"),
        ("/a/../%41", "/a/../%41"),
    ];
    check(rules, &cases);
}

#[test]
fn a_fragment_is_refused() {
    check(KEEP, &[("/a#b", "400"), ("/a?b#c", "400"), ("/a?b", "/a?b"), ("*", "*"), ("", "")]);
}

#[test]
fn parameters_are_cut_from_every_segment() {
    for (path, cut) in [("/a;x/b;y=1;z", "/a/b"), ("/;/;", "//"), ("/a", "/a"), (";", "")] {
        assert_eq!(without_parameters(path.as_bytes()), cut.as_bytes(), "{path}");
    }
}

/// Normalising twice is normalising once, whatever the bytes.
#[test]
fn a_normal_path_stays() {
    let alphabet = b"/.%2eEfF;\\a?\"0";
    let mut random = 1u64;
    for _ in 0..20_000 {
        let mut path = b"/".to_vec();
        for _ in 0..12 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            path.push(alphabet[(random >> 33) as usize % alphabet.len()]);
        }
        let rules = PathRules { normalize: true, ..KEEP };
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        if rules.sanitize(&path, &mut once) == Sanitized::Changed {
            let text = String::from_utf8_lossy(&once).into_owned();
            let decoded_more = once.windows(3).any(|part| part[0] == b'%');
            let outcome = rules.sanitize(&once, &mut twice);
            assert!(outcome == Sanitized::Unchanged || decoded_more, "{text}");
            assert_eq!(once[0], b'/');
            let path = &once[..path_end(&once)];
            let dots = path.split(|byte| *byte == b'/').any(|part| part == b"." || part == b"..");
            assert!(!dots, "{text}");
        }
    }
}
