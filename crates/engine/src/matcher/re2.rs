//! RE2's expressions, as Envoy takes them, on the `regex` crate.
//!
//! The two agree but for a few spellings, which are rewritten here: RE2's `\d \w \s \b` know ASCII only, a `[`,
//! `&&`, `--` or `~~` inside a class means itself, and `\Q…\E` quotes. RE2's `\C` is refused.

use regex::bytes::{Regex, RegexBuilder};

use super::MatcherError;

/// An expression that must match the whole text, as RE2's `FullMatch`.
///
/// # Errors
/// When it does not compile.
pub fn full_regex(pattern: &str) -> Result<Regex, MatcherError> {
    // Compiled alone first, so that a stray `)` cannot pair with our own bracket.
    search_regex(pattern)?;
    compile(pattern, &format!(r"\A(?:{})\z", translate(pattern)))
}

/// An expression that is looked for anywhere, as RE2's `GlobalReplace` does.
///
/// # Errors
/// When it does not compile.
pub fn search_regex(pattern: &str) -> Result<Regex, MatcherError> {
    compile(pattern, &translate(pattern))
}

/// Turns a substitution of RE2 (`\1`, `\\`) into one of the `regex` crate (`${1}`, `$$`).
///
/// # Errors
/// When a backslash is followed by anything but a digit or a backslash, or the group does not exist.
pub fn substitution(text: &str, pattern: &Regex) -> Result<Vec<u8>, MatcherError> {
    let error = |reason: &str| MatcherError::Substitution {
        text: text.to_owned(),
        reason: reason.to_owned(),
    };
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'$' => out.extend_from_slice(b"$$"),
            b'\\' => match bytes.next() {
                Some(b'\\') => out.push(b'\\'),
                Some(digit @ b'0'..=b'9') => {
                    if usize::from(digit - b'0') >= pattern.captures_len() {
                        return Err(error("it names a group that the expression has not"));
                    }
                    out.extend_from_slice(&[b'$', b'{', digit, b'}']);
                }
                _ => return Err(error(r"a backslash must be followed by a digit or a backslash")),
            },
            other => out.push(other),
        }
    }
    Ok(out)
}

fn compile(pattern: &str, translated: &str) -> Result<Regex, MatcherError> {
    RegexBuilder::new(translated).size_limit(SIZE_LIMIT).build().map_err(|error| {
        MatcherError::Regex { pattern: pattern.to_owned(), reason: last_line(&error.to_string()) }
    })
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Rewrites what the two dialects read differently.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut class = Class::Outside;
    while let Some(next) = rest.chars().next() {
        if next == '\\' {
            rest = escape(rest, &mut out, class != Class::Outside);
            if class == Class::Start {
                class = Class::Inside;
            }
            continue;
        }
        rest = &rest[next.len_utf8()..];
        match (class, next) {
            (Class::Outside, '[') => {
                out.push('[');
                class = Class::Start;
                if let Some(after) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = after;
                }
            }
            (Class::Outside, _) => out.push(next),
            // A `]` that comes first is a member.
            (Class::Start, ']') => {
                out.push_str(r"\]");
                class = Class::Inside;
            }
            (Class::Inside, ']') => {
                out.push(']');
                class = Class::Outside;
            }
            (Class::Start | Class::Inside, '[') => {
                class = Class::Inside;
                match rest.strip_prefix(':').and_then(|_| rest.find(":]")) {
                    Some(end) => {
                        out.push('[');
                        out.push_str(&rest[..end + 2]);
                        rest = &rest[end + 2..];
                    }
                    None => out.push_str(r"\["),
                }
            }
            (Class::Start | Class::Inside, '&' | '~') => {
                class = Class::Inside;
                out.push('\\');
                out.push(next);
            }
            // `--` would be a difference of classes.
            (Class::Start, '-') => {
                class = Class::Inside;
                out.push_str(r"\-");
            }
            (Class::Inside, '-') if out.ends_with('-') && !out.ends_with(r"\-") => {
                out.push_str(r"\-")
            }
            (Class::Start | Class::Inside, _) => {
                class = Class::Inside;
                out.push(next);
            }
        }
    }
    out
}

/// Where in a bracket expression the translation is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Outside,
    Start,
    Inside,
}

/// Translates the escape at the start of `rest`; what follows it comes back.
fn escape<'a>(rest: &'a str, out: &mut String, in_class: bool) -> &'a str {
    let after = &rest[1..];
    let Some(character) = after.chars().next() else {
        out.push('\\');
        return after;
    };
    let tail = &after[character.len_utf8()..];
    match character {
        'd' => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str(if in_class { r"\t\n\f\r " } else { r"[\t\n\f\r ]" }),
        'S' => out.push_str(r"[^\t\n\f\r ]"),
        'b' if !in_class => out.push_str(r"(?-u:\b)"),
        'B' if !in_class => out.push_str(r"(?-u:\B)"),
        'Q' if !in_class => {
            let (quoted, tail) = tail.split_once("\\E").unwrap_or((tail, ""));
            out.push_str(&regex::escape(quoted));
            return tail;
        }
        _ => {
            out.push('\\');
            out.push(character);
        }
    }
    tail
}

/// Compiled size of one expression, so that a file cannot claim all memory.
const SIZE_LIMIT: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn full(pattern: &str, text: &str) -> bool {
        full_regex(pattern).unwrap().is_match(text.as_bytes())
    }

    #[test]
    fn the_whole_text_must_match() {
        assert!(full("a|ab", "ab"));
        assert!(!full("a|ab", "abc"));
        assert!(!full("b", "ab"));
        assert!(!full("a", "a\n"));
        assert!(full("(?i)AB", "ab"));
        assert!(full("", ""));
    }

    #[test]
    fn perl_classes_are_ascii() {
        assert!(full(r"\d+\w\s", "12a "));
        assert!(!full(r"\d", "٣"));
        assert!(!full(r"\w", "é"));
        assert!(full(r"[\w.-]+", "a.b-c_9"));
        assert!(full(r"[^\d]", "x"));
        assert!(!full(r"[^\d]", "1"));
        assert!(full(r"[\D]", "x"));
        assert!(full(r"\W\S\D", "-xé"));
    }

    #[test]
    fn brackets_in_a_class_mean_themselves() {
        assert!(full(r"[[]", "["));
        assert!(full(r"[]a]+", "]a"));
        assert!(full(r"[^]a]", "b"));
        assert!(full(r"[a&&b]+", "a&b"));
        assert!(full(r"[[:alpha:]0-9]+", "ab1"));
        assert!(full(r"[a~~b]+", "~"));
        assert!(full(r"[+--]+", "+,-"));
        assert!(full(r"[--/]+", "-./"));
        assert!(full(r"[a-]+", "a-"));
    }

    #[test]
    fn quoting_and_boundaries() {
        assert!(full(r"\Qa.b\E+", "a.bb"));
        assert!(!full(r"\Qa.b\E", "axb"));
        assert!(full(r"a\b.b", "a b"));
        assert!(full(r"a\Bb", "ab"));
        assert!(!full(r"a\B.b", "a b"));
    }

    #[test]
    fn bad_expressions_are_refused_with_the_reason() {
        for pattern in ["(", ")", "a)(b", "[a", "*", r"\C", r"(?=a)", r"\1", "a{2000000}"] {
            let error = full_regex(pattern).unwrap_err();
            assert!(error.to_string().contains(pattern), "{error}");
        }
    }

    #[test]
    fn substitutions_translate_or_are_refused() {
        let regex = search_regex("(a)(b)?").unwrap();
        assert_eq!(substitution(r"\2$\\\0", &regex).unwrap(), b"${2}$$\\${0}");
        assert!(substitution(r"\3", &regex).is_err());
        assert!(substitution(r"\x", &regex).is_err());
        assert!(substitution("\\", &regex).is_err());
        let replaced = regex.replace_all(b"xab", &substitution(r"<\2\1>$1", &regex).unwrap()[..]);
        assert_eq!(&replaced[..], b"x<ba>$1");
    }
}
