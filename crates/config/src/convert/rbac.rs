//! `config.rbac.v3.RBAC`: rules of the network filter and of the HTTP filter.

use towpath_engine::matcher::Input;
use towpath_engine::rbac::{Action, MatchedAction, Policy, Rule, Rules, Whose};

use super::Converter;
use super::matcher_tree::{About, Place};
use super::network_filter::rbac::CONFIG as NETWORK_RBAC;
use crate::message::{Field, Message, Value};

const ACTION: &str = "envoy.config.rbac.v3.Action";

impl Converter<'_> {
    /// The rules of a filter, and those that only count.
    pub(super) fn rules_of(
        &mut self,
        config: &Message,
    ) -> (Option<Option<Rules>>, Option<Option<Rules>>) {
        let is_network = config.descriptor.full_name() == NETWORK_RBAC;
        let mut read = |rules, matcher| match (config.message(rules), config.message(matcher)) {
            // The field's documentation: rules are ignored where there is a matcher.
            (_, Some(matcher)) => self.matching_rules(matcher, is_network).map(Some),
            (Some(rules), None) => self.rules(rules).map(Some),
            (None, None) => Some(None),
        };
        (read("rules", "matcher"), read("shadow_rules", "shadow_matcher"))
    }

    fn matching_rules(&mut self, matcher: &Message, is_network: bool) -> Option<Rules> {
        let place = if is_network {
            Place {
                name: "the RBAC network filter",
                allows: |input| !input.is_of_request() && is_for_rules(input),
                about: About::Stream,
            }
        } else {
            Place { name: "the RBAC HTTP filter", allows: is_for_rules, about: About::Stream }
        };
        let mut logs = false;
        let tree = self.matcher_tree(matcher, place, &[ACTION], &mut |_, config| {
            let action = action(config);
            logs |= action == Action::Log;
            Some(MatchedAction::new(config.text("name"), action))
        })?;
        Some(Rules::matching(tree, logs))
    }

    fn rules(&mut self, message: &Message) -> Option<Rules> {
        let action = action(message);
        let mut policies = Vec::new();
        for (name, item) in message.entries("policies") {
            let Value::Message(policy) = &item.value else { continue };
            let permissions = self.alternatives(policy, "permissions");
            let principals = self.alternatives(policy, "principals");
            let condition = match policy.message("condition") {
                Some(condition) => Some(self.parsed_expression(condition)?),
                None => None,
            };
            policies.push(Policy::new(name, permissions?, principals?).under(condition));
        }
        Some(Rules::new(action, policies))
    }

    /// A list of permissions or principals; all are looked at, so that one run says what is wrong with each.
    fn alternatives(&mut self, holder: &Message, name: &str) -> Option<Vec<Rule>> {
        let messages: Vec<_> = holder.messages(name).collect();
        let rules: Vec<_> = messages.into_iter().map(|message| self.rule(message)).collect();
        rules.into_iter().collect()
    }

    /// A `Permission` or a `Principal`; what is not honoured of them the table of support has refused.
    fn rule(&mut self, message: &Message) -> Option<Rule> {
        let is_permission = message.descriptor.name() == "Permission";
        let field = message.oneof(if is_permission { "rule" } else { "identifier" })?;
        match &field.value {
            Value::Bool(_) => Some(Rule::Any),
            Value::Uint(port) => {
                let port = u32::try_from(*port).ok()?;
                Some(Rule::Port(port..port + 1))
            }
            Value::Message(inner) => self.rule_of(field, inner),
            _ => None,
        }
    }

    fn rule_of(&mut self, field: &Field, inner: &Message) -> Option<Rule> {
        Some(match field.descriptor.name() {
            "and_rules" => Rule::All(self.alternatives(inner, "rules")?),
            "and_ids" => Rule::All(self.alternatives(inner, "ids")?),
            "or_rules" => Rule::AnyOf(self.alternatives(inner, "rules")?),
            "or_ids" => Rule::AnyOf(self.alternatives(inner, "ids")?),
            "not_rule" | "not_id" => Rule::Not(Box::new(self.rule(inner)?)),
            "header" => Rule::Header(self.header_matcher(inner)?),
            "uri_template" => Rule::Template(self.template_match(inner)?),
            "url_path" => Rule::Path(self.string_matcher(inner.message("path")?)?),
            "destination_ip" => Rule::Address(Whose::Local, self.prefix(inner)?),
            "source_ip" | "direct_remote_ip" => Rule::Address(Whose::Direct, self.prefix(inner)?),
            "remote_ip" => Rule::Address(Whose::Remote, self.prefix(inner)?),
            "destination_port_range" => self.port_range(inner)?,
            "requested_server_name" => Rule::ServerName(self.string_matcher(inner)?),
            "metadata" => Rule::Metadata(self.metadata_matcher(inner)?),
            "sourced_metadata" => {
                let matcher = self.metadata_matcher(inner.message("metadata_matcher")?)?;
                match inner.choice("metadata_source").as_str() {
                    "ROUTE" => Rule::RouteMetadata(matcher),
                    _ => Rule::Metadata(matcher),
                }
            }
            "filter_state" => Rule::FilterState(self.state_matcher(inner)?),
            "authenticated" => Rule::Authenticated(match inner.message("principal_name") {
                Some(name) => Some(self.string_matcher(name)?),
                None => None,
            }),
            _ => return None,
        })
    }

    fn port_range(&mut self, range: &Message) -> Option<Rule> {
        let bound = |name| match range.get(name).map(|field| &field.value) {
            Some(Value::Int(number)) => *number,
            _ => 0,
        };
        let (start, end) = (bound("start"), bound("end"));
        let problem = if let Some(bound) = [start, end].iter().find(|it| !(0..=65536).contains(*it))
        {
            format!("range bound {bound} is out of bounds")
        } else if start >= end {
            format!("range start {start} cannot be greater or equal than range end {end}")
        } else {
            return Some(Rule::Port(u32::try_from(start).ok()?..u32::try_from(end).ok()?));
        };
        self.report.problem(&range.at, problem);
        None
    }
}

/// Whether Envoy lets rules look at it.
fn is_for_rules(input: &Input) -> bool {
    !input.is_of_arrival() && !matches!(input, Input::SourceType | Input::QueryParameter(_))
}

/// What rules, or a branch of a matcher, do.
fn action(message: &Message) -> Action {
    match message.choice("action").as_str() {
        "DENY" => Action::Deny,
        "LOG" => Action::Log,
        _ => Action::Allow,
    }
}
