//! What it counts, by Envoy's names.

use crate::stats::stats;

stats! {
    /// `http.<stat prefix>.decompressor.<library>.<coding>.request.…`, and of responses.
    pub(in crate::filter) DecompressorStats {
        Counter decompressed;
        Counter not_decompressed;
        Counter total_compressed_bytes;
        Counter total_uncompressed_bytes;
    }
}

stats! {
    /// `http.<stat prefix>.decompressor.<library>.gzip.decompressor_library.…`
    pub(in crate::filter) ZlibStats {
        Counter zlib_data_error;
        Counter zlib_mem_error;
    }
}

stats! {
    /// `http.<stat prefix>.decompressor.<library>.brotli.decompressor_library.…`
    pub(in crate::filter) BrotliStats {
        Counter brotli_error;
    }
}

stats! {
    /// `http.<stat prefix>.decompressor.<library>.zstd.decompressor_library.…`
    pub(in crate::filter) ZstdStats {
        Counter zstd_checksum_wrong_error;
        Counter zstd_dictionary_error;
        Counter zstd_generic_error;
        Counter zstd_memory_error;
    }
}
