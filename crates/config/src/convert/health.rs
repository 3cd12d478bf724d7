//! Active health checks: what hosts are asked, when, and what their answers mean.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::snapshot::Http2;
use towpath_engine::snapshot::health::{
    BoltProbe, GrpcProbe, HealthCheck, HealthLog, HttpProbe, Pauses, Probe, TcpProbe,
};
use towpath_engine::snapshot::http2::Choice;
use towpath_engine::snapshot::log::Sink;
use towpath_engine::snapshot::route::HeaderOps;
use towpath_proto::bolt::Version;

use super::Converter;
use super::extension::{HEALTH_CHECKER, HEALTH_EVENT_SINK};
use crate::message::{Message, Value};

const FILE_SINK: &str =
    "envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink";

/// A check by Bolt's heartbeat.
pub(super) const BOLT_HEALTH_CHECK: &str = "towpath.extensions.bolt.v1.BoltHealthCheck";

impl Converter<'_> {
    /// The health check of a cluster.
    pub(super) fn active_check(
        &mut self,
        cluster: &Message,
        http2: Option<&Http2>,
    ) -> Option<Arc<HealthCheck>> {
        let mut checks = cluster.messages("health_checks");
        let check = checks.next()?;
        if checks.next().is_some() {
            self.report.problem(cluster.at("health_checks"), "a cluster has one health check");
        }
        let probe = self.probe(check);
        if matches!(probe, Some(Probe::Grpc(_)))
            && http2.is_none_or(|http2| http2.choice == Choice::Negotiated)
        {
            let text = "the cluster must speak HTTP/2 to be asked by gRPC";
            match http2 {
                None => self.report.problem(check.at("grpc_health_check"), text),
                Some(_) => self.report.unsupported(check.at("grpc_health_check"), text),
            }
        }
        let pauses = self.pauses(check);
        let unhealthy_threshold = self.check_threshold(check, "unhealthy_threshold");
        let healthy_threshold = self.check_threshold(check, "healthy_threshold");
        let duration = |name| check.duration(name).unwrap_or(Duration::ZERO);
        Some(Arc::new(HealthCheck {
            probe: probe?,
            timeout: duration("timeout"),
            initial_jitter: duration("initial_jitter"),
            jitter: duration("interval_jitter"),
            jitter_percent: check.number32("interval_jitter_percent").unwrap_or(0),
            unhealthy_threshold,
            healthy_threshold,
            reuse_connection: check.wrapped_flag("reuse_connection").unwrap_or(true),
            ignores_new: ignores_new(cluster),
            pauses,
            alpn: alpn(check),
            log: self.health_log(check),
        }))
    }

    /// Where it is told what checks come to.
    fn health_log(&mut self, check: &Message) -> Option<HealthLog> {
        let mut paths: Vec<PathBuf> = Vec::new();
        if check.has("event_log_path") {
            paths.push(check.text("event_log_path").into());
        }
        for logger in check.messages("event_logger") {
            let (config, _) = self.extension(logger, HEALTH_EVENT_SINK, &[FILE_SINK])?;
            paths.push(config.text("event_log_path").into());
        }
        if paths.is_empty() {
            return None;
        }
        if check.has("custom_health_check") {
            let at = check.at("custom_health_check");
            self.report.unsupported(at, "events of checks have no name for this checker");
        }
        Some(HealthLog {
            sinks: paths.into_iter().map(|path| self.sink(Sink::File(path))).collect(),
            failures: check.flag("always_log_health_check_failures"),
            successes: check.flag("always_log_health_check_success"),
        })
    }

    fn pauses(&mut self, check: &Message) -> Pauses {
        let healthy = check.duration("interval").unwrap_or(Duration::ZERO);
        let or = |name, other| check.duration(name).unwrap_or(other);
        let unhealthy = or("unhealthy_interval", healthy);
        let no_traffic = or("no_traffic_interval", NO_TRAFFIC_INTERVAL);
        Pauses {
            healthy,
            healthy_edge: or("healthy_edge_interval", healthy),
            unhealthy,
            unhealthy_edge: or("unhealthy_edge_interval", unhealthy),
            no_traffic,
            no_traffic_healthy: or("no_traffic_healthy_interval", no_traffic),
        }
    }

    fn check_threshold(&mut self, check: &Message, name: &str) -> u32 {
        let threshold = check.number32(name).unwrap_or(1);
        if threshold == 0 {
            self.report.unsupported(check.at(name), "0 would never be reached; write 1 or more");
        }
        threshold
    }

    fn probe(&mut self, check: &Message) -> Option<Probe> {
        let field = check.oneof("health_checker")?;
        let Value::Message(message) = &field.value else { return None };
        match field.descriptor.name() {
            "http_health_check" => self.http_probe(message).map(Probe::Http),
            "tcp_health_check" => self.tcp_probe(message).map(Probe::Tcp),
            "grpc_health_check" => Some(Probe::Grpc(self.grpc_probe(message))),
            "custom_health_check" => self.custom_probe(message),
            // The table of support has said that it is not there.
            _ => None,
        }
    }

    fn http_probe(&mut self, message: &Message) -> Option<HttpProbe> {
        let codec = message.choice("codec_client_type");
        if codec == "HTTP3" {
            self.report.unsupported(message.at("codec_client_type"), "HTTP3 is not spoken");
        }
        let method = match message.choice("method").as_str() {
            "METHOD_UNSPECIFIED" => "GET".to_owned(),
            method => method.to_owned(),
        };
        let send = self.http_payload(message, &method);
        let receive = self.payloads(message);
        let looked_at = message.number("response_buffer_size").unwrap_or(LOOKED_AT);
        let wanted = receive.iter().flatten().map(|piece| piece.len() as u64).sum::<u64>();
        if looked_at != 0 && wanted > looked_at {
            let text = format!("is {wanted} bytes long, and {looked_at} are looked at");
            self.report.problem(message.at("receive"), text);
        }
        let headers = self.request_ops(message);
        let expected = self.statuses(message, "expected_statuses");
        let retriable = self.statuses(message, "retriable_statuses");
        let expected = if expected.as_ref().is_some_and(Vec::is_empty) {
            Some(vec![Range { start: 200, end: 201 }])
        } else {
            expected
        };
        Some(HttpProbe {
            method: Arc::from(method),
            host: Arc::from(message.text("host")),
            path: Arc::from(message.text("path")),
            headers,
            expected: expected?,
            retriable: retriable?,
            send: send?,
            receive: receive?,
            service: match message.message("service_name_matcher") {
                Some(matcher) => Some(self.string_matcher(matcher)?),
                None => None,
            },
            is_http2: codec == "HTTP2",
            looked_at,
        })
    }

    /// The content of an HTTP check.
    fn http_payload(&mut self, message: &Message, method: &str) -> Option<Arc<[u8]>> {
        let Some(send) = message.message("send") else { return Some(Arc::from([])) };
        if !["POST", "PUT", "PATCH", "OPTIONS"].contains(&method) {
            let text = format!("a check with the method {method} has no content");
            self.report.problem(&send.at, text);
        }
        self.payload(send)
    }

    fn payloads(&mut self, message: &Message) -> Option<Vec<Arc<[u8]>>> {
        let wanted: Vec<_> = message.messages("receive").collect();
        let pieces: Vec<_> = wanted.into_iter().map(|wanted| self.payload(wanted)).collect();
        pieces.into_iter().collect()
    }

    /// Ranges of statuses without their ends.
    fn statuses(&mut self, message: &Message, name: &str) -> Option<Vec<Range<u16>>> {
        let ranges: Vec<_> = message.messages(name).collect();
        let mut statuses = Vec::new();
        for range in ranges {
            let bound = |name| u16::try_from(range.number(name).unwrap_or(0)).unwrap_or(u16::MAX);
            let (start, end) = (bound("start"), bound("end"));
            if start >= end || start < 100 || end > 600 {
                self.report
                    .problem(&range.at, "needs a start of 100 or more below an end of at most 600");
                return None;
            }
            statuses.push(start..end);
        }
        Some(statuses)
    }

    fn tcp_probe(&mut self, message: &Message) -> Option<TcpProbe> {
        let send = match message.message("send") {
            Some(send) => self.payload(send),
            None => Some(Arc::from([])),
        };
        let receive = self.payloads(message);
        let header = message.message("proxy_protocol_config");
        let header = header.map(|header| self.bare_header(header, "a check"));
        Some(TcpProbe { send: send?, receive: receive?, header })
    }

    /// Bytes, or text in hexadecimal digits.
    fn payload(&mut self, payload: &Message) -> Option<Arc<[u8]>> {
        let field = payload.oneof("payload")?;
        let bytes = match &field.value {
            Value::Bytes(bytes) => Some(bytes.clone()),
            Value::String(text) => unhex(text),
            _ => None,
        };
        match bytes {
            Some(bytes) if bytes.len() <= MOST_PAYLOAD_BYTES => Some(Arc::from(bytes)),
            Some(_) => {
                self.report.problem(&field.at, format!("has more than {MOST_PAYLOAD_BYTES} bytes"));
                None
            }
            None => {
                self.report.problem(&field.at, "is not pairs of hexadecimal digits");
                None
            }
        }
    }

    fn grpc_probe(&mut self, message: &Message) -> GrpcProbe {
        let add = self.added(message, "initial_metadata");
        GrpcProbe {
            service: Arc::from(message.text("service_name")),
            authority: Arc::from(message.text("authority")),
            metadata: HeaderOps { remove: Vec::new(), add },
        }
    }

    fn custom_probe(&mut self, message: &Message) -> Option<Probe> {
        let (config, at) = self.extension(message, HEALTH_CHECKER, &[BOLT_HEALTH_CHECK])?;
        let version = match config.number("version").unwrap_or(1) {
            1 => Version::V1,
            2 => Version::V2 { checksums: false },
            other => {
                self.report.problem(at, format!("there is no version {other} of Bolt"));
                return None;
            }
        };
        Some(Probe::Bolt(BoltProbe { version }))
    }
}

/// What a check offers by ALPN in place of its cluster's protocols.
fn alpn(check: &Message) -> Vec<Box<[u8]>> {
    let options = check.message("tls_options");
    let names = options.map_or(&[][..], |options| options.items("alpn_protocols"));
    let names = names.iter().filter_map(|item| match &item.value {
        Value::String(name) => Some(Box::from(name.as_bytes())),
        _ => None,
    });
    names.collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

const NO_TRAFFIC_INTERVAL: Duration = Duration::from_secs(60);
/// Envoy's default of `response_buffer_size`.
const LOOKED_AT: u64 = 1024;
/// What a check sends or waits for, at most.
const MOST_PAYLOAD_BYTES: usize = 64 * 1024;

/// Whether a host that comes later counts for nothing until it was asked. In Envoy that is so where hosts come by DNS
/// or EDS, and not for those of the file.
fn ignores_new(cluster: &Message) -> bool {
    let common = cluster.message("common_lb_config");
    let is_wanted = common.is_some_and(|common| common.flag("ignore_new_hosts_until_first_hc"));
    let comes_later = matches!(cluster.choice("type").as_str(), "EDS" | "STRICT_DNS");
    is_wanted && (comes_later || cluster.has("cluster_type"))
}
