//! What path and query say of a request, put between what its content says.
//!
//! A value of the content takes the place of one that path or query have for the same field, by the field's own name;
//! of a repeated field both count.

use super::json::{Json, Members};
use super::schema::Field;

/// Values for the fields of a message and of those in it.
#[derive(Debug, Default)]
pub(super) struct Weave {
    values: Vec<(Field, String)>,
    messages: Vec<(Field, Self)>,
}

impl Weave {
    /// Adds a value for the field at the end of a path.
    pub(super) fn bind(&mut self, path: &[Field], value: String) {
        let Some((field, path)) = path.split_last() else { return };
        let mut inner = self;
        for field in path {
            let known = inner.messages.iter().position(|(it, _)| it.name == field.name);
            let at = known.unwrap_or_else(|| {
                inner.messages.push((field.clone(), Self::default()));
                inner.messages.len() - 1
            });
            inner = &mut inner.messages[at].1;
        }
        inner.values.push((field.clone(), value));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.messages.is_empty()
    }

    /// Puts all into a request's content.
    ///
    /// # Errors
    /// If `is_strict`: of the last value that is not that of the content.
    pub(super) fn weave(mut self, content: &mut Json, is_strict: bool) -> Result<(), String> {
        let Json::Object(members) = content else { return Ok(()) };
        let mut wrong = Ok(());
        self.weave_into(members, is_strict, &mut wrong);
        wrong
    }

    fn weave_into(
        &mut self,
        members: &mut Members,
        is_strict: bool,
        wrong: &mut Result<(), String>,
    ) {
        let mut at = 0;
        while let Some((name, value)) = members.get_mut(at) {
            match value {
                Json::Object(inner) => {
                    let known = self.messages.iter_mut().find(|(it, _)| *it.name == **name);
                    if let Some((_, weave)) = known {
                        weave.weave_into(inner, is_strict, wrong);
                    }
                }
                Json::List(_) | Json::Null => {}
                Json::Bool(_) | Json::Int(_) | Json::Uint(_) | Json::Double(_) | Json::Text(_) => {
                    let mut added = Vec::new();
                    self.values.retain(|(field, bound)| {
                        if *field.name != **name {
                            return true;
                        }
                        if field.is_repeated {
                            added.push((name.clone(), Json::Text(bound.clone())));
                        } else if is_strict && !is_same(value, bound) {
                            *wrong = Err(told(name, value, bound));
                        }
                        false
                    });
                    let count = added.len();
                    members.splice(at..at, added);
                    at += count;
                }
            }
            at += 1;
        }
        members.extend(std::mem::take(self).into_members());
    }

    fn into_members(self) -> Members {
        let values = self.values.into_iter();
        let mut members: Members =
            values.map(|(field, value)| (field.name.into(), Json::Text(value))).collect();
        for (field, weave) in self.messages {
            if !weave.is_empty() {
                members.push((field.name.into(), Json::Object(weave.into_members())));
            }
        }
        members
    }
}

/// Whether a text of path or query means the same as a value of the content.
fn is_same(value: &Json, bound: &str) -> bool {
    match value {
        Json::Bool(value) => super::scalar::to_bool(bound) == Some(*value),
        Json::Int(value) => bound.parse() == Ok(*value),
        Json::Uint(value) => bound.parse() == Ok(*value),
        Json::Double(value) => bound
            .parse()
            .is_ok_and(|bound: f64| (bound - value).abs() < f64::from(f32::EPSILON) * 32.0),
        Json::Text(value) => value == bound,
        Json::Null | Json::List(_) | Json::Object(_) => true,
    }
}

fn told(name: &str, value: &Json, bound: &str) -> String {
    let kind = match value {
        Json::Bool(_) if super::scalar::to_bool(bound).is_none() => "bool",
        Json::Int(_) if bound.parse::<i64>().is_err() => "int64",
        Json::Uint(_) if bound.parse::<u64>().is_err() => "uint64",
        Json::Double(_) if bound.parse::<f64>().is_err() => "double",
        Json::Bool(_)
        | Json::Int(_)
        | Json::Uint(_)
        | Json::Double(_)
        | Json::Text(_)
        | Json::Null
        | Json::List(_)
        | Json::Object(_) => {
            let value = super::scalar::shown(value);
            return format!(
                "The binding value \"{bound}\" of the field {name} is conflicting with the value {value} in the body."
            );
        }
    };
    format!("Failed to convert binding value {name}:\"{bound}\" to {kind}")
}
