//! SETTINGS (RFC 9113 §6.5).

use bytes::{BufMut, BytesMut};

use super::error::Error;
use super::frame::{self, Kind};
use super::options::Options;

/// What a peer has said about itself; until then what RFC 9113 §6.5.2 has as the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) header_table_size: u32,
    pub(super) max_concurrent_streams: u32,
    pub(super) initial_window: u32,
    pub(super) max_frame_size: u32,
    /// RFC 8441 §3.
    pub(super) connect_protocol: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            header_table_size: 4096,
            // There is no limit before the peer says one; what it would then refuse is not begun.
            max_concurrent_streams: 100,
            initial_window: INITIAL_WINDOW,
            max_frame_size: 16_384,
            connect_protocol: false,
        }
    }
}

/// The frame has to be one that any peer takes (RFC 9113 §4.2).
const MOST_CUSTOM: usize = 1000;

/// Every window before SETTINGS and WINDOW_UPDATE (RFC 9113 §6.9.2).
pub(super) const INITIAL_WINDOW: u32 = 65_535;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

impl Settings {
    /// Takes the parameters of one frame, in their order. Answers the smallest table that was allowed meanwhile
    /// (RFC 7541 §4.2).
    pub(super) fn update(&mut self, payload: &[u8], from_client: bool) -> Result<u32, Error> {
        let mut least_table = self.header_table_size;
        let (parameters, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Error::BadFrameSize);
        }
        for &[high, low, a, b, c, d] in parameters {
            let value = u32::from_be_bytes([a, b, c, d]);
            match u16::from_be_bytes([high, low]) {
                HEADER_TABLE_SIZE => {
                    self.header_table_size = value;
                    least_table = least_table.min(value);
                }
                // RFC 9113 §6.5.2: a server has nothing to enable.
                ENABLE_PUSH if value > u32::from(from_client) => return Err(Error::BadSetting),
                MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
                INITIAL_WINDOW_SIZE if value > frame::MASK => return Err(Error::BadWindowSetting),
                INITIAL_WINDOW_SIZE => self.initial_window = value,
                MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                    return Err(Error::BadSetting);
                }
                MAX_FRAME_SIZE => self.max_frame_size = value,
                // RFC 8441 §3: it is not taken back.
                ENABLE_CONNECT_PROTOCOL if value > 1 || (value == 0 && self.connect_protocol) => {
                    return Err(Error::BadSetting);
                }
                ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
                _ => {}
            }
        }
        Ok(least_table)
    }
}

/// Writes what we say about ourselves, and opens the connection's window.
pub(super) fn put(buffer: &mut BytesMut, options: &Options, is_server: bool) {
    // What is said of the same before must not hold.
    let is_custom = |id| options.custom_settings.iter().any(|(custom, _)| *custom == id);
    let parameters = [
        (options.header_table_size != 4096 || is_custom(HEADER_TABLE_SIZE))
            .then_some((HEADER_TABLE_SIZE, options.header_table_size)),
        (!is_server).then_some((ENABLE_PUSH, 0)),
        (is_server || is_custom(MAX_CONCURRENT_STREAMS))
            .then_some((MAX_CONCURRENT_STREAMS, options.max_concurrent_streams)),
        (options.stream_window != INITIAL_WINDOW || is_custom(INITIAL_WINDOW_SIZE))
            .then_some((INITIAL_WINDOW_SIZE, options.stream_window)),
        (options.max_frame_size != 16_384 || is_custom(MAX_FRAME_SIZE))
            .then_some((MAX_FRAME_SIZE, options.max_frame_size)),
        (!is_custom(MAX_HEADER_LIST_SIZE))
            .then_some((MAX_HEADER_LIST_SIZE, options.max_head_bytes)),
        (is_server && options.allow_connect).then_some((ENABLE_CONNECT_PROTOCOL, 1)),
    ];
    let custom = options.custom_settings.iter().take(MOST_CUSTOM);
    let custom = custom.filter(|(id, _)| is_server || *id != ENABLE_PUSH);
    let all = custom.chain(parameters.iter().flatten());
    frame::put_header(buffer, 6 * all.clone().count(), Kind::Settings, 0, 0);
    for &(parameter, value) in all {
        buffer.put_u16(parameter);
        buffer.put_u32(value);
    }
    let more = options.connection_window.saturating_sub(INITIAL_WINDOW);
    if more > 0 {
        frame::put_window_update(buffer, 0, more);
    }
}
