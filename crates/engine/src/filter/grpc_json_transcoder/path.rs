//! Which method a request is for: the path templates of `google.api.http`, and what their variables hold.
//!
//! Arrives: method, path and query of a request. Leaves: a rule and what is bound by it.
//!
//! Segments are looked for literally, then as `*`, then as `**`, which is the last segment that can vary; what was
//! found first is taken. Two rules for the same method and template are ambiguous, and take nothing.

use std::collections::{BTreeMap, BTreeSet};

/// The rules of a filter, by what they are for.
#[derive(Debug, Default)]
pub struct Paths {
    root: Node,
    verbs: BTreeSet<Box<str>>,
    rules: Vec<Bound>,
    /// What is unescaped in variables of several segments.
    pub unescape: Unescape,
    /// A `+` in a query is a blank.
    pub plus_is_blank: bool,
    /// What follows the last colon of a path is a verb, whether a rule has it or not.
    pub any_verb: bool,
}

/// Which escaped characters of a path are unescaped. Those of a variable of one segment, and of a query, all are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unescape {
    /// All but those that RFC 6570 reserves.
    #[default]
    ExceptReserved,
    /// All but the slash.
    ExceptSlash,
    /// All.
    All,
}

/// What belongs to a template.
#[derive(Debug)]
struct Bound {
    rule: usize,
    variables: Vec<Variable>,
}

#[derive(Debug, Default)]
struct Node {
    children: BTreeMap<Box<str>, Self>,
    /// By HTTP method and verb; `None` where there are several.
    rules: BTreeMap<Box<str>, Option<usize>>,
    /// It is `**`, and takes more segments.
    takes_more: bool,
}

/// A variable of a template.
#[derive(Debug, PartialEq, Eq)]
struct Variable {
    field: Vec<Box<str>>,
    start: usize,
    /// Behind its last segment; where it has a `**`, counted from the end of the path.
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    At(usize),
    FromBehind(usize),
}

/// A value for a field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) field: Vec<String>,
    pub(super) value: Vec<u8>,
}

/// What a path is for.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) rule: usize,
    pub(super) bindings: Vec<Binding>,
}

impl Paths {
    /// Adds a template of a rule.
    ///
    /// # Errors
    /// It is none.
    pub fn add(&mut self, method: &str, template: &str, rule: usize) -> Result<(), BadTemplate> {
        let template = Template::parse(template).ok_or(BadTemplate)?;
        let mut node = &mut self.root;
        for segment in &template.segments {
            node = node.children.entry(segment.clone()).or_default();
            if &**segment == "**" {
                node.takes_more = true;
            }
        }
        let number = self.rules.len();
        let key = format!("{method}{}", template.verb).into_boxed_str();
        node.rules.entry(key).and_modify(|rule| *rule = None).or_insert(Some(number));
        self.rules.push(Bound { rule, variables: template.variables });
        if !template.verb.is_empty() {
            self.verbs.insert(template.verb);
        }
        Ok(())
    }

    /// What a request is for; a path with a query brings that too, but for the parameters that are ignored.
    pub(super) fn find(&self, method: &str, target: &str, ignored: &[Box<str>]) -> Option<Found> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, verb) = self.without_verb(path);
        let mut parts: Vec<&str> = path.get(1..).unwrap_or_default().split('/').collect();
        while parts.last().is_some_and(|part| part.is_empty()) {
            parts.pop();
        }
        let key = format!("{method}{verb}");
        let number = self.root.find(&parts, &key).flatten()?;
        let bound = self.rules.get(number)?;
        let of_path = bound.variables.iter().map(|it| it.binding(&parts, self.unescape));
        let mut bindings: Vec<Binding> = of_path.collect();
        for parameter in query.split('&') {
            let Some((name, value)) =
                parameter.split_once('=').filter(|(name, _)| !name.is_empty())
            else {
                continue;
            };
            if ignored.iter().any(|it| **it == *name) {
                continue;
            }
            let value = unescaped(value.as_bytes(), Unescape::All, self.plus_is_blank);
            bindings.push(Binding { field: name.split('.').map(Into::into).collect(), value });
        }
        Some(Found { rule: bound.rule, bindings })
    }

    fn without_verb<'a>(&self, path: &'a str) -> (&'a str, &'a str) {
        match path.rsplit_once(':') {
            Some((before, verb))
                if !verb.contains('/') && (self.any_verb || self.verbs.contains(verb)) =>
            {
                (before, verb)
            }
            _ => (path, ""),
        }
    }
}

impl Node {
    /// The rule for these segments; `None` in it where it is ambiguous.
    fn find(&self, parts: &[&str], key: &str) -> Option<Option<usize>> {
        let mut rest = parts;
        loop {
            let Some((first, behind)) = rest.split_first() else {
                let more = || self.children.get("**").and_then(|child| child.rule(key));
                return self.rule(key).or_else(more);
            };
            let literal = self.children.get(*first).and_then(|child| child.find(behind, key));
            if literal.is_some() {
                return literal;
            }
            if !self.takes_more {
                break;
            }
            rest = behind;
        }
        let behind = rest.get(1..).unwrap_or_default();
        let child = |name| self.children.get(name).and_then(|child: &Self| child.find(behind, key));
        child("*").or_else(|| child("**"))
    }

    fn rule(&self, key: &str) -> Option<Option<usize>> {
        self.rules.get(key).or_else(|| self.rules.get("*")).copied()
    }
}

impl Variable {
    fn binding(&self, parts: &[&str], unescape: Unescape) -> Binding {
        let (end, is_long) = match self.end {
            End::At(end) => (end, end - self.start > 1),
            End::FromBehind(behind) => ((parts.len() + 1).saturating_sub(behind), true),
        };
        let how = if is_long { unescape } else { Unescape::All };
        let parts = parts.get(self.start..end.min(parts.len())).unwrap_or_default();
        let parts: Vec<_> =
            parts.iter().map(|part| unescaped(part.as_bytes(), how, false)).collect();
        let field = self.field.iter().map(|name| name.to_string()).collect();
        Binding { field, value: parts.join(&b'/') }
    }
}

/// What was percent-encoded, as far as it may be shown.
pub(super) fn unescaped(text: &[u8], how: Unescape, plus_is_blank: bool) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let decoded = match rest {
            [b'%', high, low, ..] => digit(*high).zip(digit(*low)).map(|(a, b)| a << 4 | b),
            _ => None,
        };
        let shown = decoded.filter(|byte| match how {
            Unescape::All => true,
            Unescape::ExceptSlash => *byte != b'/',
            Unescape::ExceptReserved => !RESERVED.contains(byte),
        });
        match shown {
            Some(byte) => {
                plain.push(byte);
                rest = &rest[3..];
            }
            None => {
                plain.push(if plus_is_blank && *first == b'+' { b' ' } else { *first });
                rest = behind;
            }
        }
    }
    plain
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// RFC 6570 §1.5.
const RESERVED: &[u8] = b"!#$&'()*+,/:;=?@[]";

/// A template that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTemplate;

/// A path template as it is written:
///
/// ```text
/// Template = "/" Segments [ ":" Verb ]
/// Segments = Segment { "/" Segment }
/// Segment  = "*" | "**" | Literal | "{" Field { "." Field } [ "=" Segments ] "}"
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
struct Template {
    segments: Vec<Box<str>>,
    verb: Box<str>,
    variables: Vec<Variable>,
}

impl Template {
    fn parse(text: &str) -> Option<Self> {
        let mut template = Self::default();
        if text == "/" {
            return Some(template);
        }
        let mut rest = text.strip_prefix('/')?;
        template.segments(&mut rest, false)?;
        if let Some(verb) = rest.strip_prefix(':') {
            let (verb, behind) = literal(verb)?;
            template.verb = verb.into();
            rest = behind;
        }
        // `**` takes all that follows: nothing behind it can vary.
        let mut behind = template.segments.iter().skip_while(|segment| ***segment != *"**").skip(1);
        if !rest.is_empty() || behind.any(|segment| matches!(&**segment, "*" | "**")) {
            return None;
        }
        let length = template.segments.len();
        for variable in &mut template.variables {
            if let End::FromBehind(end) = &mut variable.end {
                *end = length + 1 - *end;
            }
        }
        Some(template)
    }

    fn segments(&mut self, rest: &mut &str, in_variable: bool) -> Option<()> {
        loop {
            if let Some(behind) = rest.strip_prefix('{') {
                if in_variable {
                    return None;
                }
                *rest = behind;
                self.variable(rest)?;
            } else if let Some(behind) = rest.strip_prefix('*') {
                let longer = behind.strip_prefix('*');
                self.segments.push(if longer.is_some() { "**" } else { "*" }.into());
                *rest = longer.unwrap_or(behind);
            } else {
                let (segment, behind) = literal(rest)?;
                self.segments.push(segment.into());
                *rest = behind;
            }
            match rest.strip_prefix('/') {
                Some(behind) => *rest = behind,
                None => return Some(()),
            }
        }
    }

    fn variable(&mut self, rest: &mut &str) -> Option<()> {
        let length = rest.find(['=', '}'])?;
        let (path, behind) = rest.split_at(length);
        let field: Vec<Box<str>> = path.split('.').map(Into::into).collect();
        if field.iter().any(|name| name.is_empty()) {
            return None;
        }
        let start = self.segments.len();
        *rest = behind;
        if let Some(behind) = rest.strip_prefix('=') {
            *rest = behind;
            self.segments(rest, true)?;
        } else {
            self.segments.push("*".into());
        }
        *rest = rest.strip_prefix('}')?;
        let end = self.segments.len();
        let is_open = self.segments[start..].iter().any(|segment| **segment == *"**");
        let end = if is_open { End::FromBehind(end) } else { End::At(end) };
        self.variables.push(Variable { field, start, end });
        Some(())
    }
}

/// What goes as far as the next sign of a template.
fn literal(text: &str) -> Option<(&str, &str)> {
    let length = text.find(['/', ':', '}']).unwrap_or(text.len());
    (length > 0).then(|| text.split_at(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(templates: &[(&str, &str)]) -> Paths {
        let mut paths = Paths::default();
        for (number, (method, template)) in templates.iter().enumerate() {
            paths.add(method, template, number).unwrap();
        }
        paths
    }

    fn found(paths: &Paths, method: &str, target: &str) -> Option<(usize, Vec<(String, String)>)> {
        let found = paths.find(method, target, &[])?;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let pairs = found.bindings.iter().map(|it| (it.field.join("."), text(&it.value)));
        Some((found.rule, pairs.collect()))
    }

    fn one(field: &str, value: &str) -> Vec<(String, String)> {
        vec![(field.into(), value.into())]
    }

    #[test]
    fn variables_take_what_their_template_says() {
        let paths = paths(&[
            ("GET", "/shelves/{shelf}"),
            ("GET", "/shelves/{shelf}/books/{book.id}"),
            ("GET", "/v1/{name=shelves/*/books/*}"),
            ("GET", "/files/{path=**}"),
            ("GET", "/files/{path=**}/meta"),
            ("POST", "/v1/{name=shelves/*}:clean"),
            ("*", "/any"),
        ]);
        assert_eq!(found(&paths, "GET", "/shelves/a%2fb"), Some((0, one("shelf", "a/b"))));
        let two = [("shelf".into(), "1".into()), ("book.id".into(), "2".into())];
        assert_eq!(found(&paths, "GET", "/shelves/1/books/2"), Some((1, two.to_vec())));
        let name = one("name", "shelves/a%2Fb/books/c d");
        assert_eq!(found(&paths, "GET", "/v1/shelves/a%2Fb/books/c%20d"), Some((2, name)));
        assert_eq!(found(&paths, "GET", "/files/a/b/c"), Some((3, one("path", "a/b/c"))));
        assert_eq!(found(&paths, "GET", "/files"), Some((3, one("path", ""))));
        assert_eq!(found(&paths, "GET", "/files/a/b/meta"), Some((4, one("path", "a/b"))));
        let name = one("name", "shelves/1");
        assert_eq!(found(&paths, "POST", "/v1/shelves/1:clean"), Some((5, name)));
        assert_eq!(found(&paths, "POST", "/v1/shelves/1"), None);
        assert_eq!(found(&paths, "PURGE", "/any"), Some((6, vec![])));
        assert_eq!(found(&paths, "GET", "/shelves/1/"), Some((0, one("shelf", "1"))));
        assert_eq!(found(&paths, "GET", "/other"), None);
    }

    #[test]
    fn a_query_binds_and_two_of_a_kind_bind_nothing() {
        let paths = paths(&[("GET", "/a"), ("GET", "/b"), ("GET", "/b")]);
        let pairs = [("x.y".into(), "1 +".into()), ("z".into(), String::new())];
        assert_eq!(found(&paths, "GET", "/a?x.y=1%20+&w&=3&z="), Some((0, pairs.to_vec())));
        assert_eq!(found(&paths, "GET", "/b"), None);
        let ignored = [Box::from("z")];
        assert!(paths.find("GET", "/a?z=1", &ignored).unwrap().bindings.is_empty());
    }

    #[test]
    fn what_is_no_template_is_refused() {
        let wrong = [
            "",
            "a",
            "/a/",
            "//",
            "/{",
            "/{}",
            "/{a",
            "/{a.}",
            "/{a=}",
            "/{a={b}}",
            "/a:",
            "/a:b:c",
            "/**/*",
            "/{a=**}/**",
            "/a}",
            "/{a=b",
        ];
        for template in wrong {
            assert_eq!(Template::parse(template), None, "{template}");
        }
        for template in ["/", "/a", "/*", "/**", "/**/a", "/{a=**}:b", "/a*b"] {
            assert!(Template::parse(template).is_some(), "{template}");
        }
    }
}
