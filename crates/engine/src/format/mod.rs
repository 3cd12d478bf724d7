//! Envoy's substitution format strings, compiled: access-log lines, header values, local reply bodies.
//!
//! `%REQ(:PATH)%` and its like become a short list of literals and commands. Writing one appends to a buffer;
//! nothing else is allocated, except when a JSON string has to be escaped or a query parameter decoded.

mod append;
#[cfg(feature = "serving")]
pub mod cel;
#[cfg(not(feature = "serving"))]
#[path = "cel/absent.rs"]
pub mod cel;
mod coalesce;
mod command;
mod error;
mod facts;
mod json;
mod parse;
mod time;
mod write;
mod zone;

use std::fmt;
use std::sync::Arc;

use append::{Literal, Short, append};
use command::Command;
pub use command::{MetadataOf, command_names};
pub use error::{FormatError, FormatReason};
pub(crate) use facts::NOT_SET;
pub use facts::{Facts, Told};
pub use json::JsonTemplate;
pub(crate) use time::iso_8601;
pub(crate) use write::address_text;
pub use zone::{Shift, Zone};

use self::json::Node;
use self::parse::parts;

/// A compiled format. Cloning it shares it.
#[derive(Clone, Debug)]
pub struct Format(Kind);

/// Formats of one text are alike, and others only where they are shared.
impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::Text { parts, missing }, Kind::Text { parts: others, missing: none }) => {
                parts == others && missing == none
            }
            (
                Kind::Json { root, omit_empty },
                Kind::Json { root: other, omit_empty: other_omits },
            ) => Arc::ptr_eq(root, other) && omit_empty == other_omits,
            (Kind::Text { .. } | Kind::Json { .. }, _) => false,
        }
    }
}

impl Eq for Format {}

#[derive(Clone, Debug)]
enum Kind {
    Text { parts: Arc<[Part]>, missing: &'static [u8] },
    Json { root: Arc<Node>, omit_empty: bool },
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Literal(Literal),
    /// A command, behind a short text.
    Command {
        before: Short,
        command: Command,
        max_length: Option<usize>,
    },
}

impl Part {
    fn has(&self, wanted: fn(&Command) -> bool) -> bool {
        matches!(self, Self::Command { command, .. } if command.is_any(wanted))
    }
}

impl Node {
    fn has(&self, wanted: fn(&Command) -> bool) -> bool {
        match self {
            Self::Literal(_) | Self::Null => false,
            Self::First(nodes) | Self::List(nodes) => nodes.iter().any(|node| node.has(wanted)),
            Self::Typed { command, .. } | Self::Number(command) | Self::String { command, .. } => {
                command.is_any(wanted)
            }
            Self::Text(parts) => parts.iter().any(|part| part.has(wanted)),
            Self::Object(entries) => entries.iter().any(|(_, node)| node.has(wanted)),
        }
    }
}

/// What surrounds a format and is known when it is compiled.
#[derive(Clone, Copy, Default)]
pub struct FormatOptions<'a> {
    /// `omit_empty_values`: what is missing is left out, instead of being `-` (or `null` in JSON).
    pub omit_empty_values: bool,
    /// Answers `%ENVIRONMENT(NAME)%`; without it nothing is set.
    pub environment: Option<&'a Environment<'a>>,
    /// Answers the zone of `%START_TIME_LOCAL%`; UTC without it.
    pub zone: Option<fn() -> &'static Arc<Zone>>,
}

/// Looks up an environment variable.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

impl fmt::Debug for FormatOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FormatOptions")
            .field("omit_empty_values", &self.omit_empty_values)
            .finish_non_exhaustive()
    }
}

impl Format {
    /// Whether it asks what is shown on a connection to a cluster under TLS.
    #[must_use]
    pub fn asks_upstream_tls(&self) -> bool {
        self.has(Command::asks_upstream_tls)
    }

    /// Whether it asks how long its route was looked for.
    #[must_use]
    pub fn asks_route_time(&self) -> bool {
        self.has(|command| *command == Command::RouteLookupTime)
    }

    fn has(&self, wanted: fn(&Command) -> bool) -> bool {
        match &self.0 {
            Kind::Text { parts, .. } => parts.iter().any(|part| part.has(wanted)),
            Kind::Json { root, .. } => root.has(wanted),
        }
    }

    /// Compiles a format string without options.
    ///
    /// # Errors
    /// When a command is malformed, unknown or not supported.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        Self::text(text, &FormatOptions::default())
    }

    /// Compiles a format string.
    ///
    /// # Errors
    /// When a command is malformed, unknown or not supported.
    pub fn text(text: &str, options: &FormatOptions<'_>) -> Result<Self, FormatError> {
        let missing: &[u8] = if options.omit_empty_values { b"" } else { b"-" };
        Ok(Self(Kind::Text { parts: parts(text, options)?.into(), missing }))
    }

    /// Compiles the value of a header operation: what is missing is left out.
    ///
    /// # Errors
    /// As [`Format::text`], and when the text has a line end or NUL in it.
    pub fn header(text: &str, options: &FormatOptions<'_>) -> Result<Self, FormatError> {
        if let Some(position) = text.find(['\r', '\n', '\0']) {
            let reason = FormatReason::LineEnd;
            return Err(FormatError { position, command: String::new(), reason });
        }
        let format = Self::text(text, &FormatOptions { omit_empty_values: true, ..*options })?;
        // A time's own specifiers can make a line end too (`%n` of strftime); they do so whatever the time is.
        let (record, mut sample) = (crate::record::Record::default(), Vec::new());
        format.write(&mut sample, &Facts::new(&record, towpath_proto::Instant::ZERO));
        if sample.contains(&b'\n') {
            let reason = FormatReason::LineEnd;
            return Err(FormatError { position: 0, command: String::new(), reason });
        }
        Ok(format)
    }

    /// Compiles `json_format`. Keys are written in their order as bytes; a line ends with a newline.
    ///
    /// # Errors
    /// As [`Format::text`], for any string in it.
    pub fn json(template: &JsonTemplate, options: &FormatOptions<'_>) -> Result<Self, FormatError> {
        let root = Arc::new(Node::new(template, options)?);
        Ok(Self(Kind::Json { root, omit_empty: options.omit_empty_values }))
    }

    /// A format that says `bytes`, whatever they are.
    #[must_use]
    pub fn literal(bytes: &[u8]) -> Self {
        Self(Kind::Text { parts: Arc::from([Part::Literal(Literal::new(bytes))]), missing: b"" })
    }

    /// Envoy's default access-log line.
    #[must_use]
    pub fn default_access_log() -> Self {
        let parts = parts(DEFAULT_ACCESS_LOG, &FormatOptions::default());
        // The constant is compiled in a test; an empty line is what is left if it were wrong.
        Self(Kind::Text { parts: parts.unwrap_or_default().into(), missing: b"-" })
    }

    /// What it says, if that is the same of all facts.
    #[must_use]
    pub fn constant(&self) -> Option<Vec<u8>> {
        let Kind::Text { parts, .. } = &self.0 else { return None };
        let mut text = Vec::new();
        for part in &**parts {
            let Part::Literal(literal) = part else { return None };
            text.extend_from_slice(literal.as_bytes());
        }
        Some(text)
    }

    /// Appends what the format says of `facts`.
    pub fn write(&self, out: &mut Vec<u8>, facts: &Facts<'_>) {
        match &self.0 {
            Kind::Text { parts, missing } => {
                for part in &**parts {
                    part.write(out, facts, missing);
                }
            }
            Kind::Json { root, omit_empty } => {
                if !root.write(out, facts, *omit_empty) {
                    out.extend_from_slice(b"{}");
                }
                out.push(b'\n');
            }
        }
    }
}

impl Part {
    /// Appends the text; `missing` stands for what is not there.
    #[inline(always)]
    fn write(&self, out: &mut Vec<u8>, facts: &Facts<'_>, missing: &[u8]) {
        match self {
            Self::Literal(literal) => literal.append_to(out),
            Self::Command { before, command, max_length } => {
                before.append_to(out);
                let start = out.len();
                if command.write(out, facts) {
                    if let Some(length) = max_length {
                        out.truncate(start + length);
                    }
                } else {
                    append(out, missing);
                }
            }
        }
    }
}

/// Envoy's default access-log line.
pub const DEFAULT_ACCESS_LOG: &str = concat!(
    "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" ",
    "%RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ",
    "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" ",
    "\"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\"\n",
);

#[cfg(test)]
mod tests;
