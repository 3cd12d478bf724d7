//! Servers that this proxy itself asks: `GrpcService` and `HttpUri`.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::grpc_service::GrpcService;
use towpath_engine::snapshot::route::{HeaderAction, HeaderOp, HeaderOps};

use super::Converter;
use crate::message::Message;

impl Converter<'_> {
    /// A `GrpcService`, and how long a call may take, where it says so.
    pub(super) fn grpc_service(
        &mut self,
        message: &Message,
    ) -> Option<(GrpcService, Option<Duration>)> {
        let Some(service) = message.message("envoy_grpc") else {
            if !message.has("google_grpc") {
                self.report.problem(&message.at, "needs `envoy_grpc`");
            }
            return None;
        };
        let cluster = service.text("cluster_name");
        let authority = Some(service.text("authority")).filter(|text| !text.is_empty());
        let metadata = self.header_values(message, "initial_metadata");
        let timeout = self.whole_timeout(message)?;
        let service = GrpcService {
            cluster: Arc::from(cluster),
            authority: Arc::from(authority.unwrap_or(cluster)),
            metadata,
            skip_envoy_headers: service.flag("skip_envoy_headers"),
        };
        Some((service, timeout))
    }

    /// A `timeout`, which cannot be endless here.
    pub(super) fn whole_timeout(&mut self, message: &Message) -> Option<Option<Duration>> {
        let timeout = message.duration("timeout");
        if timeout == Some(Duration::ZERO) {
            let text = "0 would be no limit, and the request would wait for ever; write how long";
            self.report.unsupported(message.at("timeout"), text);
            return None;
        }
        Some(timeout)
    }

    /// A list of `HeaderValue`s, each of which takes the place of what is there.
    pub(super) fn header_values(&mut self, message: &Message, name: &str) -> HeaderOps {
        let values: Vec<_> = message.messages(name).collect();
        let add = values.into_iter().filter_map(|value| {
            let (name, value) = self.header_value(value)?;
            Some(HeaderOp { name, value, action: HeaderAction::Overwrite, keep_empty: false })
        });
        HeaderOps { remove: Vec::new(), add: add.collect() }
    }
}
