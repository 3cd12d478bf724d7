//! Envoy's access-log service (`HttpGrpcAccessLogConfig`, `TcpGrpcAccessLogConfig`).

use std::sync::Arc;

use towpath_engine::field::Field;
use towpath_engine::snapshot::log::{Entry, EntryStream, HttpEntry};

use super::Converter;
use super::log_service::{BATCH_BYTES, INTERVAL};
use crate::message::Message;
use crate::support;

impl Converter<'_> {
    pub(super) fn log_entry(&mut self, config: &Message) -> Option<Entry> {
        let is_http = config.descriptor.get_field_by_name(REQUEST_HEADERS).is_some();
        let common = config.message("common_config")?;
        self.check_version(common);
        let mut collector = self.grpc_collector(common.message("grpc_service")?, STREAM)?;
        self.read_log_retries(common, &mut collector);
        let bytes = common.number("buffer_size_bytes");
        let stream = EntryStream {
            collector,
            opening: EntryStream::opening(&self.node_bytes, common.text("log_name")),
            batch_bytes: bytes
                .map_or(BATCH_BYTES, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            interval: common.duration("buffer_flush_interval").unwrap_or(INTERVAL),
            is_http,
            print: self.print(common),
        };
        let http = match is_http {
            true => Some(HttpEntry {
                request_headers: self.fields_to_log(config, REQUEST_HEADERS)?,
                response_headers: self
                    .fields_to_log(config, "additional_response_headers_to_log")?,
                response_trailers: self
                    .fields_to_log(config, "additional_response_trailers_to_log")?,
            }),
            false => None,
        };
        let tags = self.custom_tags(common);
        Some(Entry { stream: Arc::new(stream), http, tags })
    }

    /// Fields by the names that entries have them by.
    fn fields_to_log(&mut self, config: &Message, name: &str) -> Option<Vec<(Box<str>, Field)>> {
        let names: Vec<String> =
            config.texts(name).map(|(text, _)| text.to_ascii_lowercase()).collect();
        let mut fields = Vec::new();
        for header in names {
            let Some(field) = Field::parse(&header) else {
                self.report.problem(config.at(name), format!("`{header}` is no name of a header"));
                return None;
            };
            fields.push((header.into(), field));
        }
        Some(fields)
    }
}

const REQUEST_HEADERS: &str = "additional_request_headers_to_log";
const STREAM: &str = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs";

pub(crate) const SUPPORT: &[support::Entry] = &[
    support::Entry {
        message: "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
        honoured: &[
            "common_config",
            REQUEST_HEADERS,
            "additional_response_headers_to_log",
            "additional_response_trailers_to_log",
        ],
        harmless: &[],
        changes: &[],
    },
    support::Entry {
        message: "envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
        honoured: &["common_config"],
        harmless: &[],
        changes: &[],
    },
];
