//! Path templates: `path_match_policy` and `path_rewrite_policy`.
//!
//! A template is a path whose segments are literals, `*` (one segment), `**` (all that follows) or variables: `{name}`,
//! or `{name=…}` with any of the former. It becomes a regular expression with a group for each variable.

use towpath_engine::matcher::full_regex;
use towpath_engine::snapshot::route::{PathMatch, PathRewrite, PathTemplate};

use super::Converter;
use super::extension::{PATH_MATCHER, PATH_REWRITER};
use crate::message::{At, Message};

impl Converter<'_> {
    /// A `path_match_policy`.
    pub(super) fn template_match(&mut self, holder: &Message) -> Option<PathTemplate> {
        let (config, _) = self.extension(holder, PATH_MATCHER, &[MATCHER])?;
        self.path_template(config.text("path_template"), config.at("path_template"))
    }

    /// A template, as a `UriTemplateMatchConfig` has it.
    pub(super) fn path_template(&mut self, text: &str, at: &At) -> Option<PathTemplate> {
        match Template::parse(text) {
            Ok(template) => {
                let regex = self.matched(full_regex(&template.regex), at)?;
                Some(PathTemplate { regex, variables: template.variables.into() })
            }
            Err(Fault::Wrong(reason)) => {
                let text = format!("path_template {text} is invalid: {reason}");
                self.report.problem(at, text);
                None
            }
            Err(Fault::Repeats) => {
                let text = "a `*` behind other characters of a segment would repeat the last of them, as in Envoy";
                self.report.unsupported(at, text);
                None
            }
        }
    }

    /// A `path_rewrite_policy` of a route that matches such paths.
    pub(super) fn template_rewrite(
        &mut self,
        holder: &Message,
        matched: Option<&PathMatch>,
    ) -> Option<PathRewrite> {
        let (config, at) = self.extension(holder, PATH_REWRITER, &[REWRITER])?;
        let text = config.text("path_template_rewrite");
        let Some(parts) = rewrite_parts(text) else {
            let text = format!("path_template_rewrite {text} is invalid");
            self.report.problem(config.at("path_template_rewrite"), text);
            return None;
        };
        let Some(PathMatch::Template(template)) = matched else {
            self.report.problem(at, "a path template rewrites what a path_match_policy matches");
            return None;
        };
        let mut substitution = Vec::new();
        for part in parts {
            match part {
                Part::Literal(literal) => {
                    // A dollar is no group.
                    substitution.extend_from_slice(literal.replace('$', "$$").as_bytes());
                }
                Part::Variable(name) => {
                    let place = template.variables.iter().position(|one| **one == *name);
                    let Some(place) = place else {
                        let text = format!("the path_match_policy has no variable `{name}`");
                        self.report.problem(config.at("path_template_rewrite"), text);
                        return None;
                    };
                    substitution.extend_from_slice(format!("${{{}}}", place + 1).as_bytes());
                }
            }
        }
        let pattern = template.regex.clone();
        Some(PathRewrite::Template { pattern, substitution: substitution.into() })
    }
}

/// Why a template is none.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Wrong(String),
    /// Its literals have a `*`, which Envoy puts into its expression as it is.
    Repeats,
}

/// A template on its way to an expression.
#[derive(Debug, Default)]
struct Template {
    regex: String,
    variables: Vec<Box<str>>,
    /// A `**` has been read; no other operator may follow.
    is_open: bool,
}

impl Template {
    fn parse(text: &str) -> Result<Self, Fault> {
        let inner =
            text.strip_prefix('/').filter(|text| text.bytes().all(|it| it.is_ascii_graphic()));
        let Some(inner) = inner else { return wrong(format!("Invalid pattern: \"{text}\"")) };
        let mut template = Self::default();
        let mut rest = inner;
        template.regex.push('/');
        while !rest.is_empty() {
            rest = template.segment(rest)?;
            match rest.strip_prefix('/') {
                Some(next) => {
                    template.regex.push('/');
                    rest = next;
                }
                None if rest.is_empty() => break,
                // What follows a `*` in its segment ends the template.
                None if rest.contains('/') => {
                    return wrong("Prefix match not supported.".to_owned());
                }
                None => {
                    template.literal(rest)?;
                    break;
                }
            }
        }
        Ok(template)
    }

    /// Reads one segment; what is left of the text.
    fn segment<'a>(&mut self, text: &'a str) -> Result<&'a str, Fault> {
        if text.starts_with('*') {
            return self.operator(text);
        }
        let end = text.find('/').unwrap_or(text.len());
        let Some(open) = text[..end].find('{').or_else(|| text.starts_with('{').then_some(0))
        else {
            self.literal(&text[..end])?;
            return Ok(&text[end..]);
        };
        let Some(length) = text[open..].find('}') else {
            return wrong(format!("Unmatched variable bracket in \"{text}\""));
        };
        let close = open + length;
        let end = text[close..].find('/').map_or(text.len(), |slash| close + slash);
        if open > 0 {
            self.literal(&text[..open])?;
        }
        self.variable(&text[open + 1..close])?;
        if close + 1 < end {
            self.literal(&text[close + 1..end])?;
        }
        Ok(&text[end..])
    }

    fn operator<'a>(&mut self, text: &'a str) -> Result<&'a str, Fault> {
        if self.is_open {
            return wrong("Glob after text glob.".to_owned());
        }
        if let Some(rest) = text.strip_prefix("**") {
            self.is_open = true;
            self.regex.push_str(&format!("[{CLASS}/]*"));
            return Ok(rest);
        }
        self.regex.push_str(&format!("[{CLASS}]+"));
        Ok(&text[1..])
    }

    fn variable(&mut self, text: &str) -> Result<(), Fault> {
        let (name, pattern) = match text.split_once('=') {
            Some((_, "")) => return wrong("Empty variable match".to_owned()),
            Some((name, pattern)) => (name, pattern),
            None => (text, "*"),
        };
        if !is_variable(name) {
            return wrong(format!("Invalid variable name: \"{name}\""));
        }
        if name.len() > LONGEST_NAME {
            let text = format!("the name of \"{name}\" has more than {LONGEST_NAME} characters");
            return wrong(text);
        }
        if self.variables.iter().any(|one| **one == *name) {
            return wrong(format!("Repeated variable name: \"{name}\""));
        }
        if self.variables.len() == MOST_VARIABLES {
            return wrong(format!("Exceeded variable count limit ({MOST_VARIABLES})"));
        }
        self.variables.push(name.into());
        self.regex.push('(');
        for (place, part) in pattern.split('/').enumerate() {
            if place > 0 {
                self.regex.push('/');
            }
            match part.starts_with('*') {
                true if self.operator(part)?.is_empty() => {}
                true => return wrong(format!("Invalid variable match: \"{pattern}\"")),
                false => self.literal(part)?,
            }
        }
        self.regex.push(')');
        Ok(())
    }

    fn literal(&mut self, text: &str) -> Result<(), Fault> {
        if text.is_empty() || !text.bytes().all(|byte| byte == b'*' || is_literal(byte)) {
            return wrong(format!("Invalid literal: \"{text}\""));
        }
        if text.contains('*') {
            return Err(Fault::Repeats);
        }
        self.regex.push_str(&regex::escape(text));
        Ok(())
    }
}

fn wrong<T>(reason: String) -> Result<T, Fault> {
    Err(Fault::Wrong(reason))
}

/// A piece of what a path becomes.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Literal(&'a str),
    Variable(&'a str),
}

fn rewrite_parts(text: &str) -> Option<Vec<Part<'_>>> {
    if !text.starts_with('/') || text.contains("//") {
        return None;
    }
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (literal, variable) = match rest.split_once('{') {
            Some((literal, behind)) => (literal, Some(behind.split_once('}')?)),
            None => (rest, None),
        };
        if !literal.bytes().all(|byte| matches!(byte, b'/' | b'*') || is_literal(byte)) {
            return None;
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        let Some((name, behind)) = variable else { break };
        parts.push(Part::Variable(Some(name).filter(|name| is_variable(name))?));
        rest = behind;
    }
    Some(parts)
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()+,;:@=".contains(&byte)
}

/// What `*` takes of a segment, as a class of an expression.
const CLASS: &str = r"a-zA-Z0-9\-._\~%!$\&'()+,;:@=*";
const MOST_VARIABLES: usize = 5;
const LONGEST_NAME: usize = 16;
const MATCHER: &str = "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig";
const REWRITER: &str = "envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig";

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(template: &str, path: &str) -> bool {
        let template = Template::parse(template).unwrap();
        full_regex(&template.regex).unwrap().is_match(path.as_bytes())
    }

    #[test]
    fn templates_match_whole_paths() {
        for (template, path, wanted) in [
            ("/a/{v}", "/a/b", true),
            ("/a/{v}", "/a/", false),
            ("/a/{v}", "/a/b/c", false),
            ("/a/*.x", "/a/b.x", true),
            ("/a/*.x", "/a/bxx", false),
            ("/**", "/", true),
            ("/**.m", "/a/b.m", true),
            ("/v{n}-x/a", "/v1-x/a", true),
            ("/v{n}-x/a", "/v-x/a", false),
            ("/{a=x/*}/b", "/x/y/b", true),
            ("/{a=x/*}/b", "/y/y/b", false),
            ("/{a=**}", "/x/y", true),
            ("/a/", "/a/", true),
            ("/a/", "/a", false),
            ("/*", "/a~b&c-d", true),
            ("/*", "/a|b", false),
            ("/*", "/\u{e9}", false),
            ("/(a)", "/(a)", true),
        ] {
            assert_eq!(matches(template, path), wanted, "{template} {path}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in [
            "a",
            "",
            "/a b",
            "/a//b",
            "/{",
            "/{}",
            "/{1}",
            "/{a=}",
            "/{a=b/}",
            "/{a}/{a}",
            "/*/{a}x{b}",
            "/**/*",
            "/**/{a}",
            "/{a=**/*}",
            "/*.x/y",
            "/a?b",
            "/{a}/{b}/{c}/{d}/{e}/{f}",
            "/{abcdefghijklmnopq}",
            "/{a=*b}",
            "/a}",
        ] {
            assert!(matches!(Template::parse(text), Err(Fault::Wrong(_))), "{text}");
        }
        assert_eq!(Template::parse("/a*").unwrap_err(), Fault::Repeats);
    }

    #[test]
    fn rewrites_are_literals_and_variables() {
        let parts = rewrite_parts("/a{b}c*/{d}").unwrap();
        let wanted =
            [Part::Literal("/a"), Part::Variable("b"), Part::Literal("c*/"), Part::Variable("d")];
        assert_eq!(parts, wanted);
        for text in ["", "a", "{a}", "/a//b", "/{", "/{}", "/{1}", "/a b", "/a}", "/a?b"] {
            assert_eq!(rewrite_parts(text), None, "{text}");
        }
    }
}
