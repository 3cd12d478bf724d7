//! What a processor may change of a head, and how.

use towpath_proto::Head;
use towpath_proto::Name;

use super::wire::HeaderMutation;
use crate::filter::head_limits::{HeadLimits, MOST_FIELDS};
use crate::filter::mutation_rules::{MutationRules, Operation, change, is_name, is_value};
use crate::stats::Counter;

/// What limits a head that is changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    /// The message is replaced: its method may change.
    pub(super) replaces: bool,
    /// Its length is not told.
    pub(super) without_length: bool,
    /// How large it may become.
    pub(super) limits: HeadLimits,
}

/// Changes a head.
///
/// # Errors
/// What is wrong with the change; a part of it may be done.
pub(super) fn apply(
    mutation: &HeaderMutation,
    head: &mut Head,
    bounds: Bounds,
    rules: &MutationRules,
    rejected: &Counter,
) -> Result<(), &'static str> {
    let refuse = |why| {
        rejected.inc();
        Err(why)
    };
    if mutation.set_headers.len() > MOST_FIELDS || mutation.remove_headers.len() > MOST_FIELDS {
        return refuse("header_mutation_operation_count_exceeds_limit");
    }
    for name in &mutation.remove_headers {
        let name = name.to_ascii_lowercase();
        if !is_name(&name) {
            return refuse("header_mutation_remove_contains_invalid_character");
        }
        if rules.allows(Operation::Remove, &name, b"") {
            head.remove_bytes(name.as_bytes());
        } else if rules.is_error {
            return refuse("header_mutation_remove_headers_failed");
        } else {
            rejected.inc();
        }
    }
    for option in &mutation.set_headers {
        let Some(header) = &option.header else { continue };
        let name = header.key.to_ascii_lowercase();
        if bounds.without_length && name == "content-length" {
            continue;
        }
        let value = &header.raw_value[..];
        if !is_name(&name) || !is_value(value) {
            return refuse("header_mutation_set_contains_invalid_character");
        }
        let appends = option.append.is_some_and(|append| append.value);
        let operation =
            if appends && has(head, &name) { Operation::Append } else { Operation::Set };
        let allowed =
            rules.allows(operation, &name, value) || (bounds.replaces && name == ":method");
        if allowed {
            if !change(head, &name, value, appends) {
                return refuse("header_mutation_set_contains_invalid_character");
            }
        } else if rules.is_error {
            return refuse("header_mutation_set_headers_failed");
        } else {
            rejected.inc();
        }
    }
    if !bounds.limits.allow(head) {
        return refuse("header_mutation_result_exceeds_limit");
    }
    Ok(())
}

fn has(head: &Head, name: &str) -> bool {
    match name {
        ":method" | ":scheme" | ":authority" | "host" | ":path" => head.status() == 0,
        ":status" => head.status() != 0,
        _ => head.get_bytes(name.as_bytes()).is_some(),
    }
}

/// Takes away what says how long a message is.
pub(super) fn forget_length(head: &mut Head) {
    head.remove(Name::ContentLength);
}
