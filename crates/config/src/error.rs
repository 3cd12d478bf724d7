//! What can be wrong with a configuration, and where.

use std::fmt;
use std::sync::Arc;

/// Where something stands in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, or `--config-yaml`.
    pub file: Arc<str>,
    /// From 1; 0 when the place has no text.
    pub line: u32,
    /// From 1, in characters; 0 when the place has no text.
    pub column: u32,
    /// The field, as `static_resources.clusters[0].name`. Empty for the whole.
    pub path: String,
    /// The number of the text.
    pub(crate) text: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        Ok(())
    }
}

/// Something that makes a configuration invalid, for Envoy too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub location: Location,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// A field that is set and not honoured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub location: Location,
    /// How bad it is.
    pub rank: Rank,
    /// What is missing, or why it does not matter.
    pub reason: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.location, self.rank, self.reason)
    }
}

/// What it means that a field is not honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Traffic is served as with Envoy; something around it differs.
    Harmless,
    /// Traffic would be served differently, so loading refuses the file.
    ChangesBehaviour,
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Harmless => "ignored",
            Self::ChangesBehaviour => "not supported",
        })
    }
}

/// A form that is accepted and should be written differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where.
    pub location: Location,
    /// What to write.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// Why a configuration was not loaded. All of it is the author's to mend; nothing of it took effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("{file}: {reason}")]
    Read {
        /// Which.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// Not a configuration that Envoy would take either. At least one problem, in the order of the text.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
    /// Valid, but some of what it sets is not honoured and would be missed. At least one finding.
    #[error("{}", lines(.0))]
    Unsupported(Vec<Finding>),
}

fn lines<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
