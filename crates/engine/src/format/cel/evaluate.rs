//! What an expression comes to for a stream.

use super::Value;
use super::attribute::state;
use super::compile::Node;
use crate::format::Facts;

/// An expression, or a part of it, has no value: a key is missing, or values are of the wrong type.
#[derive(Debug)]
pub(super) struct NoValue;

type Result<T> = std::result::Result<T, NoValue>;

impl Node {
    pub(super) fn evaluate<'a>(&'a self, facts: &Facts<'a>) -> Result<Value<'a>> {
        match self {
            Self::Literal(value) => Ok(value.clone()),
            Self::List(elements) => {
                let elements = elements.iter().map(|it| it.evaluate(facts));
                Ok(Value::List(elements.collect::<Result<_>>()?))
            }
            Self::Attribute(attribute) => attribute.value(facts).ok_or(NoValue),
            Self::Unknown => Err(NoValue),
            Self::State(name) => match name.evaluate(facts)? {
                Value::Text(name) => state(facts, &name).ok_or(NoValue),
                _ => Err(NoValue),
            },
            Self::Not(inner) => inner.flag(facts).map(|flag| Value::Bool(!flag)),
            // One side decides, whatever becomes of the other.
            Self::And(both) => either(both, facts, false),
            Self::Or(both) => either(both, facts, true),
            Self::Choice(parts) => {
                let [condition, then, other] = &**parts;
                if condition.flag(facts)? { then.evaluate(facts) } else { other.evaluate(facts) }
            }
            Self::At(both) => {
                let (operand, key) = (both[0].evaluate(facts)?, both[1].evaluate(facts)?);
                at(operand, &key).ok_or(NoValue)
            }
            Self::Has(both) => {
                let (operand, key) = (both[0].evaluate(facts)?, both[1].evaluate(facts)?);
                let Value::Text(key) = key else { return Err(NoValue) };
                operand.has(&key).map(Value::Bool).ok_or(NoValue)
            }
            Self::HasAttribute(attribute) => Ok(Value::Bool(attribute.value(facts).is_some())),
            Self::Call(function, arguments) => {
                let values = arguments.iter().map(|it| it.evaluate(facts));
                function.call(values.collect::<Result<_>>()?).ok_or(NoValue)
            }
        }
    }

    fn flag<'a>(&'a self, facts: &Facts<'a>) -> Result<bool> {
        match self.evaluate(facts)? {
            Value::Bool(flag) => Ok(flag),
            _ => Err(NoValue),
        }
    }
}

/// `&&` is decided by false, `||` by true.
fn either<'a>(both: &'a [Node; 2], facts: &Facts<'a>, decides: bool) -> Result<Value<'a>> {
    let first = both[0].flag(facts);
    if matches!(first, Ok(flag) if flag == decides) {
        return Ok(Value::Bool(decides));
    }
    match (first, both[1].flag(facts)) {
        (_, Ok(flag)) if flag == decides => Ok(Value::Bool(decides)),
        (Ok(_), Ok(_)) => Ok(Value::Bool(!decides)),
        _ => Err(NoValue),
    }
}

fn at<'a>(operand: Value<'a>, key: &Value<'a>) -> Option<Value<'a>> {
    match (operand, key) {
        (Value::List(mut list), Value::Int(index)) => {
            let index = usize::try_from(*index).ok().filter(|index| *index < list.len())?;
            Some(list.swap_remove(index))
        }
        (map, Value::Text(key)) => map.at(key),
        _ => None,
    }
}
