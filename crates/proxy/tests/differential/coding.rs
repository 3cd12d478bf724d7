//! Bodies in a coding as they were before it: two that compress alike need not find the same bytes.

use std::io::Read;

/// What a body was, and in which coding it is; none where it is in none, or not whole.
pub(crate) fn plain(
    content_encoding: Option<&str>,
    body: &[u8],
) -> Option<(&'static str, Vec<u8>)> {
    let content_encoding = content_encoding?;
    let mut plain = Vec::new();
    // What it is shows with its first bytes, but for Brotli.
    let (coding, read) = if body.starts_with(b"\x1f\x8b") {
        ("gzip", flate2::read::GzDecoder::new(body).read_to_end(&mut plain))
    } else if body.starts_with(b"\x28\xb5\x2f\xfd") {
        ("zstd", zstd::stream::read::Decoder::new(body).ok()?.read_to_end(&mut plain))
    } else if content_encoding == "br" && !body.is_empty() {
        ("br", brotli::Decompressor::new(body, 4096).read_to_end(&mut plain))
    } else {
        return None;
    };
    read.ok().map(|_| (coding, plain))
}
