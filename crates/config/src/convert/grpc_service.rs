//! Servers that this proxy itself asks: `GrpcService` and `HttpUri`.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::filter::grpc_service::{CallHead, GrpcService};
use towpath_engine::snapshot::route::{HeaderAction, HeaderOp, HeaderOps};

use towpath_engine::snapshot::tracing::Collector;

use super::Converter;
use crate::error::Rank;
use crate::message::Message;

const TIMEOUT: Duration = Duration::from_secs(10);

impl Converter<'_> {
    /// A `GrpcService`, and how long a call may take, where it says so.
    pub(super) fn grpc_service(
        &mut self,
        message: &Message,
    ) -> Option<(GrpcService, Option<Duration>)> {
        if let Some(google) = message.message("google_grpc") {
            return self.google_service(message, google);
        }
        let Some(service) = message.message("envoy_grpc") else {
            self.report.problem(&message.at, "needs `envoy_grpc` or `google_grpc`");
            return None;
        };
        self.unread_policy(service, "write `retry_policy` beside `envoy_grpc`");
        let cluster = service.text("cluster_name");
        let authority = Some(service.text("authority")).filter(|text| !text.is_empty());
        let metadata = self.header_values(message, "initial_metadata");
        let timeout = self.whole_timeout(message)?;
        let service = GrpcService {
            cluster: Arc::from(cluster),
            authority: Arc::from(authority.unwrap_or(cluster)),
            metadata,
            skip_envoy_headers: service.flag("skip_envoy_headers"),
            retry: self.core_retry_policy(message, "retry_policy", None),
            head: CallHead::default(),
        };
        Some((service, timeout))
    }

    fn google_service(
        &mut self,
        message: &Message,
        google: &Message,
    ) -> Option<(GrpcService, Option<Duration>)> {
        if message.has("retry_policy") {
            let text = "Envoy does not read it beside `google_grpc`";
            self.report.finding(message.at("retry_policy"), Rank::Harmless, text);
        }
        let mut metadata = self.header_values(message, "initial_metadata");
        let timeout = self.whole_timeout(message)?;
        let google_at = &google.at;
        let google = self.google_grpc(google)?;
        metadata.add.extend(google.header(self, google_at));
        let service = GrpcService {
            cluster: google.cluster,
            authority: google.authority,
            metadata,
            skip_envoy_headers: true,
            retry: None,
            head: CallHead::default(),
        };
        Some((service, timeout))
    }

    /// A server that is told something by calls of this method.
    pub(super) fn grpc_collector(&mut self, service: &Message, path: &str) -> Option<Collector> {
        let (grpc, unread) = self.grpc_service(service)?;
        if unread.is_some() {
            let text = "an answer is waited for for 10 s";
            self.report.finding(service.at("timeout"), Rank::Harmless, text);
        }
        Some(Collector {
            cluster: grpc.cluster,
            authority: grpc.authority,
            path: path.into(),
            headers: grpc.metadata,
            timeout: TIMEOUT,
            is_grpc: true,
            skip_envoy_headers: grpc.skip_envoy_headers,
            retry: grpc.retry,
        })
    }

    /// A `transport_api_version`.
    pub(super) fn check_version(&mut self, message: &Message) {
        if message.choice("transport_api_version") == "V2" {
            let text = "the v2 API has been removed; write V3";
            self.report.problem(message.at("transport_api_version"), text);
        }
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
