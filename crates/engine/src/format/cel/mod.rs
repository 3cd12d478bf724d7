//! Expressions in CEL, the Common Expression Language (<https://cel.dev>), over a stream's attributes: in filters of
//! access logs, in `%CEL(…)%`, and in what `ext_proc` tells its servers.
//!
//! An expression is read and taken apart when the configuration is loaded, so that nothing but what it asks for is
//! looked up for a stream. As in Envoy there are no comprehensions, strings are not joined, and what goes wrong while
//! it is evaluated, a missing key above all, makes it have no value.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operation makes nothing of most kinds of values, nor of those to come"
)]

mod attribute;
mod compile;
mod evaluate;
mod function;
mod value;

use std::fmt;
use std::sync::Arc;

pub use attribute::Attribute;
pub use compile::CelError;
use compile::Node;
pub use value::Value;

use crate::format::Facts;

/// An expression. Cloning it shares it.
#[derive(Clone)]
pub struct Expression(Arc<(Node, Box<str>)>);

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// When it is not CEL, is longer than [`MAX_LENGTH`], or has something in it that is not supported.
    pub fn parse(text: &str) -> Result<Self, CelError> {
        Ok(Self(Arc::new((compile::parse(text)?, text.into()))))
    }

    /// As it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.1
    }

    /// Its value for a stream; none where it cannot be evaluated.
    #[must_use]
    pub fn value<'a>(&'a self, facts: &Facts<'a>) -> Option<Value<'a>> {
        self.0.0.evaluate(facts).ok()
    }

    /// Whether it is true of a stream.
    #[must_use]
    pub fn holds(&self, facts: &Facts<'_>) -> bool {
        matches!(self.value(facts), Some(Value::Bool(true)))
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.0.1 == other.0.1
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.0.1).finish()
    }
}

/// Bytes of an expression's text, at most.
pub const MAX_LENGTH: usize = 4096;

#[cfg(test)]
mod tests;
