//! JSON to gRPC and back, by descriptors.

mod descriptors;
mod rule;

use std::sync::Arc;

use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};
use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::grpc_json_transcoder::{
    Delimiter, Field, MessageId, Method, Paths, Printing, Rule, Schema, SharedTranscoder,
    Transcoder, Unescape,
};

use self::rule::HttpRule;
use super::Known;
use crate::convert::Converter;
use crate::message::{At, Message, Value};
use crate::support::Entry;

const FILTER_TYPE: &str =
    "envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| Some(Arc::new(converter.transcoder(config)?)),
    by_route: Some((FILTER_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    Some(Arc::new(converter.transcoder(config)?))
}

/// Methods of services with their rules.
#[derive(Default)]
struct Found {
    methods: Vec<Method>,
    rules: Vec<Rule>,
    paths: Paths,
}

impl Converter<'_> {
    fn transcoder(&mut self, config: &Message) -> Option<SharedTranscoder> {
        let services: Vec<(&str, &At)> = config.texts("services").collect();
        if services.is_empty() {
            return Some(SharedTranscoder(None));
        }
        let pool = self.descriptors(config)?;
        let mut schema = descriptors::schema(&pool);
        let mut found = Found::default();
        for (name, at) in services {
            let Some(service) = pool.get_service_by_name(name) else {
                let text =
                    format!("transcoding_filter: Could not find '{name}' in the proto descriptor");
                self.report.problem(at, text);
                return None;
            };
            if let Err(text) = found.add(&schema, &service, config.flag("auto_mapping")) {
                self.report.problem(at, format!("transcoding_filter: Cannot register {text}"));
                return None;
            }
        }
        found.paths.unescape = match &*config.choice("url_unescape_spec") {
            "ALL_CHARACTERS_EXCEPT_SLASH" => Unescape::ExceptSlash,
            "ALL_CHARACTERS" => Unescape::All,
            _ => Unescape::ExceptReserved,
        };
        found.paths.plus_is_blank = config.flag("query_param_unescape_plus");
        found.paths.any_verb = config.flag("match_unregistered_custom_verb");
        let options = config.message("print_options");
        let prints = |name| options.is_some_and(|options| options.flag(name));
        let checks = config.message("request_validation_options");
        let rejects = |name| checks.is_some_and(|checks| checks.flag(name));
        let size = |name| config.number(name).and_then(|size| usize::try_from(size).ok());
        let status = config.flag("convert_grpc_status").then(|| descriptors::status(&mut schema));
        Some(SharedTranscoder(Some(Arc::new(Transcoder {
            schema,
            methods: found.methods,
            rules: found.rules,
            paths: found.paths,
            ignored: config
                .texts("ignored_query_parameters")
                .map(|(text, _)| text.into())
                .collect(),
            printing: Printing {
                whitespace: prints("add_whitespace"),
                defaults: prints("always_print_primitive_fields"),
                enums_as_numbers: prints("always_print_enums_as_ints"),
                proto_names: prints("preserve_proto_field_names"),
            },
            delimiter: if prints("stream_sse_style_delimited") {
                Delimiter::Events
            } else if prints("stream_newline_delimited") {
                Delimiter::Lines
            } else {
                Delimiter::Array
            },
            keeps_route: config.flag("match_incoming_request_route"),
            ignores_unknown: config.flag("ignore_unknown_query_parameters"),
            captures_unknown: config.flag("capture_unknown_query_parameters"),
            status,
            rejects_methods: rejects("reject_unknown_method"),
            rejects_queries: rejects("reject_unknown_query_parameters"),
            rejects_collisions: rejects("reject_binding_body_field_collisions"),
            in_any_case: config.flag("case_insensitive_enum_parsing"),
            most_request: size("max_request_body_size"),
            most_response: size("max_response_body_size"),
        }))))
    }

    fn descriptors(&mut self, config: &Message) -> Option<DescriptorPool> {
        let field = config.oneof("descriptor_set")?;
        let bytes = match &field.value {
            Value::String(path) => self.file_data(path, &field.at, MOST_BYTES)?,
            Value::Bytes(bytes) => bytes.clone(),
            _ => return None,
        };
        match DescriptorPool::decode(bytes.as_slice()) {
            Ok(pool) => Some(pool),
            Err(error) => {
                let text = format!("transcoding_filter: Unable to parse proto descriptor: {error}");
                self.report.problem(&field.at, text);
                None
            }
        }
    }
}

impl Found {
    /// The methods of a service; of one without a rule, its own path if that is wanted.
    fn add(
        &mut self,
        schema: &Schema,
        service: &ServiceDescriptor,
        maps_all: bool,
    ) -> Result<(), String> {
        for method in service.methods() {
            let own = format!("/{}/{}", service.full_name(), method.name());
            let rule = HttpRule::of(&method);
            let rule = rule.or_else(|| maps_all.then(|| HttpRule::mapped(&own)));
            let rule = rule.unwrap_or_default();
            let name = method.full_name();
            let converted = converted(schema, &method, &rule, own);
            self.methods.push(converted.map_err(|text| format!("'{name}': {text}"))?);
            self.bind(&rule).map_err(|()| format!("'{name}' to path matcher"))?;
        }
        Ok(())
    }

    /// The paths of a rule, for the last method.
    fn bind(&mut self, rule: &HttpRule) -> Result<(), ()> {
        for rule in std::iter::once(rule).chain(&rule.additional_bindings) {
            let Some((verb, path)) = rule.pattern() else { continue };
            self.paths.add(verb, path, self.rules.len()).map_err(|_| ())?;
            let method = self.methods.len() - 1;
            self.rules.push(Rule { method, body: rule.body.as_str().into() });
        }
        Ok(())
    }
}

fn converted(
    schema: &Schema,
    method: &MethodDescriptor,
    rule: &HttpRule,
    path: String,
) -> Result<Method, String> {
    let find =
        |name: &str| schema.find(name).ok_or_else(|| format!("Could not resolve type: {name}"));
    let (input, output) = (find(method.input().full_name())?, find(method.output().full_name())?);
    let (request_field, request_is_body) = content(schema, input, &rule.body)?;
    let (response_field, response_is_body) = content(schema, output, &rule.response_body)?;
    if !response_field.is_empty() && !response_is_body {
        return Err(format!(
            "Setting \"response_body\" is not supported yet for non-HttpBody fields: {}",
            method.full_name()
        ));
    }
    Ok(Method {
        path: path.into(),
        input,
        output,
        client_streams: method.is_client_streaming(),
        server_streams: method.is_server_streaming(),
        request_field,
        request_is_body,
        response_field: response_field.iter().map(|field| field.number).collect(),
        response_is_body,
    })
}

/// The field that the content of a message is for, and whether that is any bytes.
fn content(schema: &Schema, message: MessageId, path: &str) -> Result<(Vec<Field>, bool), String> {
    const BODY: &str = "google.api.HttpBody";
    let names: Vec<&str> = match path {
        "*" => Vec::new(),
        path => path.split('.').filter(|name| !name.is_empty()).collect(),
    };
    let field = schema.resolve(message, &names)?;
    let holder = match field.last() {
        None => Some(message),
        Some(field) => field.message(),
    };
    let is_body = holder.is_some_and(|it| &*schema.message(it).name == BODY);
    Ok((field, is_body))
}

/// More than any set of descriptors that is in use has.
const MOST_BYTES: usize = 64 << 20;

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &[
            "proto_descriptor",
            "proto_descriptor_bin",
            "services",
            "print_options",
            "match_incoming_request_route",
            "ignored_query_parameters",
            "auto_mapping",
            "ignore_unknown_query_parameters",
            "convert_grpc_status",
            "url_unescape_spec",
            "query_param_unescape_plus",
            "match_unregistered_custom_verb",
            "request_validation_options",
            "case_insensitive_enum_parsing",
            "max_request_body_size",
            "max_response_body_size",
            "capture_unknown_query_parameters",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder.PrintOptions",
        honoured: &[
            "add_whitespace",
            "always_print_primitive_fields",
            "always_print_enums_as_ints",
            "preserve_proto_field_names",
            "stream_newline_delimited",
            "stream_sse_style_delimited",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder.RequestValidationOptions",
        honoured: &[
            "reject_unknown_method",
            "reject_unknown_query_parameters",
            "reject_binding_body_field_collisions",
        ],
        harmless: &[],
        changes: &[],
    },
];
