//! The rules that the protos themselves carry: `validate.rules` on fields and oneofs, deprecations, and fields that
//! Envoy refuses by default. Walks one message and what is in it, but not into an `Any`: those are checked when an
//! extension takes them, as in Envoy.

mod check;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::rc::Rc;

use prost_reflect::{
    DescriptorPool, DynamicMessage, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    OneofDescriptor,
};

use crate::message::{At, Field, Message, Value};
use crate::report::Report;

/// Applies the rules, and remembers those of each message type.
#[derive(Debug)]
pub(crate) struct Rules {
    extensions: Extensions,
    types: HashMap<String, Rc<TypeRules>>,
}

/// Where rules stand in options.
#[derive(Debug)]
struct Extensions {
    field: Option<ExtensionDescriptor>,
    required: Option<ExtensionDescriptor>,
    disallowed: Option<ExtensionDescriptor>,
    disallowed_value: Option<ExtensionDescriptor>,
}

/// The rules of a message type.
#[derive(Debug)]
struct TypeRules {
    fields: Vec<FieldRules>,
    required_oneofs: Vec<OneofDescriptor>,
}

#[derive(Debug)]
struct FieldRules {
    descriptor: FieldDescriptor,
    number: u32,
    kind: Kind,
    rules: Option<DynamicMessage>,
    /// What is wrong where it is not set.
    unset: Option<String>,
    deprecated: bool,
    disallowed: bool,
}

impl Rules {
    pub(crate) fn new(pool: &DescriptorPool) -> Self {
        let extension = |name| pool.get_extension_by_name(name);
        let extensions = Extensions {
            field: extension("validate.rules"),
            required: extension("validate.required"),
            disallowed: extension("envoy.annotations.disallowed_by_default"),
            disallowed_value: extension("envoy.annotations.disallowed_by_default_enum"),
        };
        Self { extensions, types: HashMap::new() }
    }

    /// Reports what in a message breaks its rules.
    pub(crate) fn check(&mut self, message: &Message, report: &mut Report) {
        let rules = self.of(&message.descriptor);
        for field in &rules.fields {
            match message.fields.iter().find(|set| set.number == field.number) {
                Some(set) => self.check_field(message, set, field, report),
                None => {
                    if let Some(why) = &field.unset {
                        let name = field.descriptor.name();
                        report.broken(&message.at, format!("`{name}`: {why}"));
                    }
                }
            }
        }
        for oneof in &rules.required_oneofs {
            if message
                .fields
                .iter()
                .all(|field| field.descriptor.containing_oneof().as_ref() != Some(oneof))
            {
                let names: Vec<_> = oneof.fields().map(|field| field.name().to_owned()).collect();
                report.broken(&message.at, format!("needs one of {}", names.join(", ")));
            }
        }
    }

    fn check_field(
        &mut self,
        message: &Message,
        set: &Field,
        rules: &FieldRules,
        report: &mut Report,
    ) {
        let broken = rules.rules.as_ref();
        if let Some(broken) = broken.and_then(|it| check::field(it, &rules.descriptor, Some(set))) {
            report.broken(broken.at.as_ref().unwrap_or(&set.at), broken.message);
        } else if let Value::Duration(nanos) = &set.value
            && nanos.0 < 0
        {
            report.broken(&set.at, "must not be negative");
        }
        if rules.disallowed {
            report.broken(&set.at, "Envoy does not take this field any longer");
        } else if rules.deprecated
            && (set.descriptor.supports_presence() || !set.value.is_default())
        {
            let name = rules.descriptor.name();
            let advice = replacement(message.descriptor.full_name(), name);
            report.note(&set.at, format!("Envoy has deprecated `{name}`{advice}"));
        }
        self.check_value(&rules.kind, &set.value, &set.at, report);
    }

    /// Goes into messages, and refuses enum values that Envoy does.
    fn check_value(&mut self, kind: &Kind, value: &Value, at: &At, report: &mut Report) {
        match value {
            Value::Message(inner) => self.check(inner, report),
            Value::List(items) => {
                items.iter().for_each(|item| self.check_value(kind, &item.value, &item.at, report))
            }
            Value::Map(entries) => {
                let Some(entry) = kind.as_message() else { return };
                let kind = entry.map_entry_value_field().kind();
                entries
                    .iter()
                    .for_each(|(_, item)| self.check_value(&kind, &item.value, &item.at, report));
            }
            Value::Enum(number) => {
                let value = kind.as_enum().and_then(|descriptor| descriptor.get_value(*number));
                let disallowed = &self.extensions.disallowed_value;
                match value {
                    None => report.broken(at, "must be one of the defined values"),
                    Some(value) if flag(&value.options(), disallowed.as_ref()) => {
                        report.broken(at, "Envoy does not take this value any longer");
                    }
                    Some(_) => {}
                }
            }
            _ => {}
        }
    }

    fn of(&mut self, descriptor: &MessageDescriptor) -> Rc<TypeRules> {
        if let Some(rules) = self.types.get(descriptor.full_name()) {
            return Rc::clone(rules);
        }
        let fields = descriptor.fields().map(|field| self.field(field)).collect();
        let required = self.extensions.required.as_ref();
        let required_oneofs =
            descriptor.oneofs().filter(|oneof| flag(&oneof.options(), required)).collect();
        let rules = Rc::new(TypeRules { fields, required_oneofs });
        self.types.insert(descriptor.full_name().to_owned(), Rc::clone(&rules));
        rules
    }

    fn field(&self, descriptor: FieldDescriptor) -> FieldRules {
        let options = descriptor.options();
        let rules =
            self.extensions.field.as_ref().filter(|extension| options.has_extension(extension));
        let rules =
            rules.and_then(|extension| options.get_extension(extension).as_message().cloned());
        let deprecated = descriptor
            .field_descriptor_proto()
            .options
            .as_ref()
            .is_some_and(|options| options.deprecated());
        let disallowed = flag(&options, self.extensions.disallowed.as_ref());
        let unset = rules.as_ref().and_then(|rules| check::field(rules, &descriptor, None));
        let unset = unset.map(|broken| broken.message);
        let (number, kind) = (descriptor.number(), descriptor.kind());
        FieldRules { descriptor, number, kind, rules, unset, deprecated, disallowed }
    }
}

fn flag(options: &DynamicMessage, extension: Option<&ExtensionDescriptor>) -> bool {
    extension.is_some_and(|extension| options.get_extension(extension).as_bool() == Some(true))
}

/// What to write for a deprecated field, where that is simple.
fn replacement(message: &str, field: &str) -> String {
    let found = REPLACEMENTS.iter().find(|(of, old, _)| message.ends_with(of) && *old == field);
    found.map_or_else(String::new, |(_, _, new)| format!("; write {new}"))
}

/// End of the message's name, old field, new form.
const REPLACEMENTS: &[(&str, &str, &str)] = &[
    ("v3.Admin", "access_log_path", "`access_log` with an `envoy.access_loggers.file`"),
    ("v3.FileAccessLog", "format", "`log_format: {text_format_source: {inline_string: …}}`"),
    ("v3.FileAccessLog", "json_format", "`log_format: {json_format: …}`"),
    ("v3.FileAccessLog", "typed_json_format", "`log_format: {json_format: …}`"),
    ("v3.SubstitutionFormatString", "text_format", "`text_format_source: {inline_string: …}`"),
    ("v3.HeaderMatcher", "exact_match", "`string_match: {exact: …}`"),
    ("v3.HeaderMatcher", "prefix_match", "`string_match: {prefix: …}`"),
    ("v3.HeaderMatcher", "suffix_match", "`string_match: {suffix: …}`"),
    ("v3.HeaderMatcher", "contains_match", "`string_match: {contains: …}`"),
    ("v3.HeaderMatcher", "safe_regex_match", "`string_match: {safe_regex: …}`"),
    ("v3.HeaderValueOption", "append", "`append_action`"),
    ("v3.RegexMatcher", "google_re2", "`regex` alone"),
    ("v3.Cluster", "http_protocol_options", HTTP_OPTIONS),
    ("v3.Cluster", "http2_protocol_options", HTTP_OPTIONS),
    ("v3.Cluster", "common_http_protocol_options", HTTP_OPTIONS),
    ("v3.Cluster", "max_requests_per_connection", HTTP_OPTIONS),
    ("v3.Cluster", "dns_resolvers", "`typed_dns_resolver_config`"),
    ("v3.Cluster", "dns_refresh_rate", DNS_CLUSTER),
    ("v3.Cluster", "dns_failure_refresh_rate", DNS_CLUSTER),
    ("v3.Cluster", "respect_dns_ttl", DNS_CLUSTER),
    ("v3.Cluster", "dns_jitter", DNS_CLUSTER),
    ("v3.HttpConnectionManager", "access_log_flush_interval", "`access_log_options`"),
    ("v3.HttpConnectionManager", "flush_access_log_on_new_request", "`access_log_options`"),
    ("v3.Listener", "reuse_port", "`enable_reuse_port`"),
    ("v3.WeightedCluster", "total_weight", "nothing: the weights' sum is the total"),
];

const HTTP_OPTIONS: &str = "`typed_extension_protocol_options` with an \
    `envoy.extensions.upstreams.http.v3.HttpProtocolOptions`";
const DNS_CLUSTER: &str = "`cluster_type` with an `envoy.clusters.dns`";
