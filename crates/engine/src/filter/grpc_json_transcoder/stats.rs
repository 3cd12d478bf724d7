//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.transcoder_…`
    pub(in crate::filter) TranscoderStats {
        Gauge transcoder_request_buffer_bytes;
        Gauge transcoder_response_buffer_bytes;
    }
}
