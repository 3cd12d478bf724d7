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
        if let Some(options) = options.filter(|options| options.flag("use_oghttp2_codec")) {
            let text = "there is one codec; with this it heeds `disallow_obs_text`";
            self.report.finding(options.at("use_oghttp2_codec"), Rank::Harmless, text);
        }
        let custom = options.map(|options| self.custom_settings(options)).unwrap_or_default();
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
            // Of Envoy's codecs one alone reads it.
            ascii_values: flag("use_oghttp2_codec") && flag("disallow_obs_text"),
            custom_settings: custom.into(),
            cut_fragment: http1.cut_fragment,
            ..defaults
        };
        let keepalive = options.and_then(|options| options.message("connection_keepalive"));
        let keepalive = keepalive.and_then(keepalive_of);
        let http2 = Http2 { options: Arc::new(codec), choice, keepalive };
        Arc::new(http2)
    }

    /// Parameters of SETTINGS that are written out, each identifier once.
    fn custom_settings(&mut self, options: &Message) -> Vec<(u16, u32)> {
        let mut all: Vec<(u16, u32)> = Vec::new();
        for parameter in options.messages("custom_settings_parameters") {
            let number = |name| parameter.number32(name).unwrap_or(0);
            let (id, value) = (number("identifier"), number("value"));
            let Ok(id) = u16::try_from(id) else { continue };
            let known = all.iter().find(|(other, _)| *other == id);
            if known.is_some_and(|(_, other)| *other != value) {
                let text = format!("parameter {id:#x} has two values");
                self.report.problem(&parameter.at, text);
            }
            if known.is_none() && self.is_fit(parameter, options, (id, value)) {
                all.push((id, value));
            }
            if all.len() > MOST_CUSTOM_SETTINGS {
                let text = format!("at most {MOST_CUSTOM_SETTINGS} fit into one frame");
                self.report.unsupported(&parameter.at, text);
                break;
            }
        }
        all
    }

    /// Whether a parameter may be sent: not what a named field says, nor what no peer takes.
    fn is_fit(&mut self, at: &Message, options: &Message, (id, value): (u16, u32)) -> bool {
        let named = match id {
            HEADER_TABLE_SIZE => "hpack_table_size",
            MAX_CONCURRENT_STREAMS => "max_concurrent_streams",
            INITIAL_WINDOW_SIZE => "initial_stream_window_size",
            _ => "",
        };
        let problem = match id {
            ENABLE_PUSH if value == 1 => "server push is not supported".to_owned(),
            ENABLE_CONNECT_PROTOCOL => "only `allow_connect` says that".to_owned(),
            _ if !named.is_empty() && options.number32(named).is_some() => {
                format!("`{named}` says that, too")
            }
            _ => String::new(),
        };
        if !problem.is_empty() {
            self.report.problem(&at.at, problem);
            return false;
        }
        let objection = match id {
            ENABLE_PUSH if value > 1 => "peers end the connection: it is 0 or 1",
            INITIAL_WINDOW_SIZE if value >= 1 << 31 => {
                "peers end the connection: a window has less than 2147483648 bytes"
            }
            MAX_FRAME_SIZE if value != 16_384 => {
                "frames are kept until they are whole, and have 16384 bytes at most"
            }
            _ => return true,
        };
        self.report.unsupported(&at.at, objection);
        false
    }
}

/// RFC 9113 §6.5.2, RFC 8441 §3.
const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// As [`http2::Options::custom_settings`] has it.
const MOST_CUSTOM_SETTINGS: usize = 1000;

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
