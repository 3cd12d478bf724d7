//! Takes a format string apart: `%NAME%`, `%NAME(…)%`, `%NAME(…):LENGTH%` and `%%`.

use super::append::{Literal, Short};
use super::coalesce::operators;
use super::command::{Lookup, Usage, lookup};
use super::{Command, FormatError, FormatOptions, FormatReason, Part};
use crate::format::cel::Expression;

/// Compiles a text.
pub(super) fn parts(text: &str, options: &FormatOptions<'_>) -> Result<Vec<Part>, FormatError> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text;
    while let Some(percent) = rest.find('%') {
        literal.extend_from_slice(&rest.as_bytes()[..percent]);
        let position = text.len() - rest.len() + percent;
        let after = &rest[percent + 1..];
        if let Some(after) = after.strip_prefix('%') {
            literal.push(b'%');
            rest = after;
            continue;
        }
        let spelt = Spelt::read(after).ok_or_else(|| FormatError {
            position,
            command: String::new(),
            reason: FormatReason::Syntax,
        })?;
        let error = |reason| FormatError { position, command: spelt.name.to_owned(), reason };
        match spelt.compile(options).map_err(error)? {
            Part::Literal(text) => literal.extend_from_slice(text.as_bytes()),
            Part::Command { command, max_length, .. } => {
                let before = Short::new(&literal);
                if before.is_none() {
                    flush(&mut literal, &mut parts);
                }
                literal.clear();
                let before = before.unwrap_or_default();
                parts.push(Part::Command { before, command, max_length });
            }
        }
        rest = spelt.rest;
    }
    literal.extend_from_slice(rest.as_bytes());
    flush(&mut literal, &mut parts);
    Ok(parts)
}

fn flush(literal: &mut Vec<u8>, parts: &mut Vec<Part>) {
    if !literal.is_empty() {
        parts.push(Part::Literal(Literal::new(literal)));
        literal.clear();
    }
}

/// A command as it is written.
pub(super) struct Spelt<'a> {
    pub(super) name: &'a str,
    pub(super) parameter: Option<&'a str>,
    pub(super) max_length: Option<usize>,
    pub(super) rest: &'a str,
}

impl<'a> Spelt<'a> {
    /// Reads what comes after the first `%`.
    fn read(text: &'a str) -> Option<Self> {
        let end = text.find(|c: char| !matches!(c, 'A'..='Z' | '0'..='9' | '_'))?;
        let (name, after) = text.split_at(end);
        if name.is_empty() {
            return None;
        }
        let Some(inside) = after.strip_prefix('(') else {
            let (max_length, rest) = length(after)?;
            return Some(Self { name, parameter: None, max_length, rest });
        };
        // The first `)` after which the command can end.
        inside.match_indices(')').find_map(|(at, _)| {
            let (max_length, rest) = length(&inside[at + 1..])?;
            let parameter = Some(&inside[..at]).filter(|parameter| !parameter.is_empty());
            Some(Self { name, parameter, max_length, rest })
        })
    }

    pub(super) fn compile(&self, options: &FormatOptions<'_>) -> Result<Part, FormatReason> {
        let (usage, make) = match lookup(self.name) {
            Lookup::Command(usage, make) => (usage, make),
            Lookup::Unknown => return Err(FormatReason::Unknown),
        };
        match (usage, self.parameter, self.max_length) {
            (Usage::Alone, Some(_), _) => return Err(FormatReason::UnexpectedParameter),
            (Usage::Needs, None, _) => return Err(FormatReason::MissingParameter),
            (Usage::Alone | Usage::Takes, _, Some(_)) => {
                return Err(FormatReason::UnexpectedLength);
            }
            _ => {}
        }
        let parameter = self.parameter.unwrap_or_default();
        let mut command = make(parameter).map_err(|text| match self.name {
            "CEL" | "TYPED_CEL" if is_unsupported(parameter) => FormatReason::Unsupported,
            _ => FormatReason::Parameter(text),
        })?;
        if let (Command::StartTime(format) | Command::EmitTime(format), Some(zone)) =
            (&mut command, options.zone)
        {
            format.set_zone(zone);
        }
        if let Command::Coalesce(parts) = &mut command {
            *parts = operators(parameter, options)?;
        }
        if let Command::Environment(name) = &command {
            let value = options.environment.and_then(|environment| environment(name));
            let value = value.unwrap_or_else(|| "-".to_owned()).into_bytes();
            let length = self.max_length.unwrap_or(usize::MAX).min(value.len());
            return Ok(Part::Literal(Literal::new(&value[..length])));
        }
        Ok(Part::Command { before: Short::default(), command, max_length: self.max_length })
    }
}

/// Whether an expression asks for what only Envoy has.
fn is_unsupported(text: &str) -> bool {
    Expression::parse(text).is_err_and(|error| error.is_unsupported)
}

/// An optional `:LENGTH` and the closing `%`.
fn length(text: &str) -> Option<(Option<usize>, &str)> {
    if let Some(rest) = text.strip_prefix('%') {
        return Some((None, rest));
    }
    let (digits, rest) = text.strip_prefix(':')?.split_once('%')?;
    let decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let length: usize = digits.parse().ok().filter(|_| decimal)?;
    // Places are reckoned with it, and no text is that long.
    Some((Some(length.min(u32::MAX as usize)), rest))
}
