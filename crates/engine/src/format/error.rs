//! What is wrong with a format string.

use std::fmt;

/// Why a format string is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// The byte at which the command (or the stray `%`) begins.
    pub position: usize,
    /// The command, as it is written; empty when there is none to name.
    pub command: String,
    /// What is wrong with it.
    pub reason: FormatReason,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatReason {
    /// A `%` begins no command: `%NAME%`, `%NAME(…)%` or `%NAME(…):LENGTH%`.
    Syntax,
    /// No such command.
    Unknown,
    /// Envoy has this command; it asks for something that this proxy has not.
    Unsupported,
    /// The command needs something in parentheses.
    MissingParameter,
    /// The command takes nothing in parentheses.
    UnexpectedParameter,
    /// What is in the parentheses is not understood.
    Parameter(String),
    /// The command takes no length.
    UnexpectedLength,
    /// A header's value cannot have a line end or NUL in it.
    LineEnd,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, command, reason } = self;
        match reason {
            FormatReason::Syntax => {
                write!(f, "at byte {position}: '%' begins no command and is not doubled")
            }
            FormatReason::Unknown => write!(f, "at byte {position}: unknown command '{command}'"),
            FormatReason::Unsupported => {
                write!(f, "at byte {position}: command '{command}' is not supported")
            }
            FormatReason::MissingParameter => {
                write!(f, "at byte {position}: command '{command}' needs a parameter")
            }
            FormatReason::UnexpectedParameter => {
                write!(f, "at byte {position}: command '{command}' takes no parameter")
            }
            FormatReason::Parameter(why) => {
                write!(f, "at byte {position}: command '{command}': {why}")
            }
            FormatReason::LineEnd => {
                write!(f, "at byte {position}: a header's value cannot have a line end in it")
            }
            FormatReason::UnexpectedLength => {
                write!(f, "at byte {position}: command '{command}' takes no length")
            }
        }
    }
}

impl std::error::Error for FormatError {}
