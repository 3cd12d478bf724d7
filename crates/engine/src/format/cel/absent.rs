//! Expressions where none can be made: an app's engine has no configuration that brings any.

use crate::format::Facts;

/// One that cannot be made.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {}

/// Why there is none.
#[derive(Debug)]
pub struct CelError {
    /// Always.
    pub is_unsupported: bool,
}

impl std::fmt::Display for CelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CEL is not there")
    }
}

/// The value that it does not have.
#[derive(Debug)]
pub enum Value {}

impl Expression {
    /// Always fails.
    ///
    /// # Errors
    /// Always.
    pub fn parse(_text: &str) -> Result<Self, CelError> {
        Err(CelError { is_unsupported: true })
    }

    /// Its value.
    #[must_use]
    pub fn value(&self, _facts: &Facts<'_>) -> Option<Value> {
        match *self {}
    }

    /// Whether it is true.
    #[must_use]
    pub fn holds(&self, _facts: &Facts<'_>) -> bool {
        match *self {}
    }
}

impl Value {
    pub(crate) fn print(&self, _out: &mut Vec<u8>) {
        match *self {}
    }

    pub(crate) fn write_json(&self, _out: &mut Vec<u8>, _max_length: Option<usize>) -> bool {
        match *self {}
    }
}
