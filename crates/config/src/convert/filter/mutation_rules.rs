//! What another server may change of a head.

use towpath_engine::filter::mutation_rules::MutationRules;

use crate::convert::Converter;
use crate::message::Message;

impl Converter<'_> {
    pub(super) fn mutation_rules(&mut self, rules: &Message) -> Option<MutationRules> {
        let flag = |name| rules.wrapped_flag(name).unwrap_or(false);
        let mut regex = |name| match rules.message(name) {
            Some(regex) => self.full_regex(regex).map(Some),
            None => Some(None),
        };
        Some(MutationRules {
            allow: regex("allow_expression")?,
            disallow: regex("disallow_expression")?,
            allow_all_routing: flag("allow_all_routing"),
            allow_envoy: flag("allow_envoy"),
            disallow_system: flag("disallow_system"),
            disallow_all: flag("disallow_all"),
            is_error: flag("disallow_is_error"),
        })
    }
}
