//! `Http2ProtocolOptions`, and who speaks HTTP/2: clients of a connection manager, hosts of a cluster.

use std::sync::Arc;

use towpath_engine::snapshot::Http2;
use towpath_engine::snapshot::http2::{Choice, Http2Keepalive};
use towpath_proto::{http1, http2};

use super::Converter;
use super::route_action::unless_zero;
use crate::error::Rank;
use crate::message::Message;

impl Converter<'_> {
    /// How clients of a connection manager may speak HTTP/2. What both protocols have in common is as for HTTP/1.
    pub(super) fn downstream_http2(
        &mut self,
        manager: &Message,
        http1: &http1::Options,
    ) -> Option<Arc<Http2>> {
        let codec = manager.choice("codec_type");
        let options = manager.message("http2_protocol_options");
        let fallback = manager.wrapped_flag("stream_error_on_invalid_http_message");
        let choice = match &*codec {
            "HTTP1" => {
                if let Some(options) = options {
                    let text = "no HTTP/2 comes in; see codec_type";
                    self.report.finding(&options.at, Rank::Harmless, text);
                }
                return None;
            }
            "HTTP2" => Choice::Always,
            _ => Choice::Negotiated,
        };
        Some(self.http2(options, http1, fallback, choice))
    }

    /// Options of a codec. `fallback` is what the connection manager says of errors where these options do not.
    pub(super) fn http2(
        &mut self,
        options: Option<&Message>,
        http1: &http1::Options,
        fallback: Option<bool>,
        choice: Choice,
    ) -> Arc<Http2> {
        let number = |name| options.and_then(|options| options.number32(name));
        let flag = |name| options.is_some_and(|options| options.flag(name));
        let own_errors = options.and_then(|options| {
            options.wrapped_flag("override_stream_error_on_invalid_http_message")
        });
        let old_errors = flag("stream_error_on_invalid_http_messaging");
        let defaults = http2::Options::default();
        let codec = http2::Options {
            header_table_size: number("hpack_table_size").unwrap_or(defaults.header_table_size),
            max_concurrent_streams: number("max_concurrent_streams")
                .unwrap_or(defaults.max_concurrent_streams),
            stream_window: number("initial_stream_window_size").unwrap_or(defaults.stream_window),
            connection_window: number("initial_connection_window_size")
                .unwrap_or(defaults.connection_window),
            max_head_bytes: http1.max_head_bytes,
            max_fields: http1.max_fields,
            allow_connect: flag("allow_connect"),
            max_outbound_frames: number("max_outbound_frames")
                .unwrap_or(defaults.max_outbound_frames),
            max_outbound_control_frames: number("max_outbound_control_frames")
                .unwrap_or(defaults.max_outbound_control_frames),
            max_empty_frames: number("max_consecutive_inbound_frames_with_empty_payload")
                .unwrap_or(defaults.max_empty_frames),
            max_priority_frames: number("max_inbound_priority_frames_per_stream")
                .unwrap_or(defaults.max_priority_frames),
            max_window_updates: number("max_inbound_window_update_frames_per_data_frame_sent")
                .unwrap_or(defaults.max_window_updates),
            stream_error_on_malformed: own_errors.or(fallback).unwrap_or(old_errors),
            underscores: http1.underscores,
            cut_fragment: http1.cut_fragment,
            ..defaults
        };
        let keepalive = options.and_then(|options| options.message("connection_keepalive"));
        let keepalive = keepalive.and_then(keepalive_of);
        let http2 = Http2 { options: Arc::new(codec), choice, keepalive };
        Arc::new(http2)
    }
}

/// `None` where no PING is to be sent.
fn keepalive_of(keepalive: &Message) -> Option<Http2Keepalive> {
    let interval = keepalive.duration("interval").and_then(unless_zero);
    let idle = keepalive.duration("connection_idle_interval").and_then(unless_zero);
    let jitter = keepalive.message("interval_jitter");
    // As Envoy rounds it.
    let jitter = jitter.map_or(15.0, |percent| percent.float("value").unwrap_or(0.0)).round();
    interval.or(idle)?;
    Some(Http2Keepalive {
        interval,
        jitter_percent: jitter.clamp(0.0, 100.0) as u32,
        timeout: keepalive.duration("timeout")?,
        idle,
    })
}
