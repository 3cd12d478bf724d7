//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.compressor.<library>.<coding>.request.…`, and of responses.
    pub(in crate::filter) CompressorStats {
        Counter compressed;
        Counter content_length_too_small;
        Counter not_compressed;
        Counter total_compressed_bytes;
        Counter total_uncompressed_bytes;
    }
}

stats! {
    /// `http.<stat prefix>.compressor.<library>.<coding>.…`
    pub(in crate::filter) CompressorResponseStats {
        Counter header_compressor_overshadowed;
        Counter header_compressor_used;
        Counter header_identity;
        Counter header_not_valid;
        Counter header_wildcard;
        Counter no_accept_header;
        Counter not_compressed_etag;
    }
}
