//! Content that is compressed and decompressed again, in any pieces, is what it was; what is no content in a coding is
//! decompressed to a bounded length.
#![no_main]

use bytes::Bytes;
use towpath_engine::filter::compressor::{
    Brotli, BrotliMode, Compressor, Direction, Gzip, GzipStrategy, Library, Responses, Zstd,
};
use towpath_engine::filter::decompressor::{self, Decompressor};
use towpath_fuzz::cut;
use towpath_fuzz::filters::Watched;
use towpath_proto::Head;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [choice, how, seed, content @ ..] = data else { return };
    let (library, undone, name) = libraries(*choice, *how);
    let mut head = Head::request(b"POST", b"http", b"a", b"/");
    let compressor = Compressor {
        name: "x".into(),
        library,
        request: Some(Direction { enabled: true, min_length: 0, types: Vec::new() }),
        response: Responses::default(),
        goes_first: false,
    };
    let mut compressing = Watched::begin(&compressor, &mut head);
    assert_eq!(head.get_bytes(b"content-encoding"), Some(name.as_bytes()));
    let coded = compressing.request(&cut(content, u64::from(*seed))).expect("there is memory");
    let whole = decompressed(undone, name, &[Bytes::copy_from_slice(&coded)]);
    // What may become more than so many times as long is no good.
    if content.len() <= MOST_TIMES * coded.len() {
        assert_eq!(whole, (content.to_vec(), 0));
    }
    for (plain, errors) in [whole, decompressed(undone, name, &cut(&coded, u64::from(*seed) + 1))] {
        assert!(content.starts_with(&plain));
        assert!(errors > 0 || plain == content);
    }
    let pieces = cut(content, u64::from(*seed) + 2);
    let (plain, _) = decompressed(undone, name, &pieces);
    assert!(plain.len() <= pieces.len() * MOST_OF_PIECE);
});

/// What comes out, and how much was damaged.
fn decompressed(library: decompressor::Library, name: &str, pieces: &[Bytes]) -> (Vec<u8>, u64) {
    let direction = decompressor::Direction { enabled: true, ignores_no_transform: true };
    let decompressor = Decompressor {
        name: "x".into(),
        library,
        request: direction,
        response: direction,
        advertises: false,
    };
    let mut head = Head::request(b"POST", b"http", b"a", b"/");
    head.append_bytes(b"content-encoding", name.as_bytes());
    let mut stream = Watched::begin(&decompressor, &mut head);
    let plain = stream.request(pieces).expect("it refuses nothing");
    let part = match name {
        "br" => "brotli",
        name => name,
    };
    let errors = [
        "zlib_data_error",
        "zlib_mem_error",
        "brotli_error",
        "zstd_generic_error",
        "zstd_memory_error",
        "zstd_checksum_wrong_error",
        "zstd_dictionary_error",
    ];
    let count = |error: &&str| {
        stream.number(&format!("http.h.decompressor.x.{part}.decompressor_library.{error}"))
    };
    (plain, errors.iter().map(|error| count(&error)).sum())
}

fn libraries(choice: u8, how: u8) -> (Library, decompressor::Library, &'static str) {
    let within = |least: u8, most: u8| least + how % (most - least + 1);
    match choice % 3 {
        0 => {
            let strategies = [
                GzipStrategy::Default,
                GzipStrategy::Filtered,
                GzipStrategy::HuffmanOnly,
                GzipStrategy::Rle,
                GzipStrategy::Fixed,
            ];
            let gzip = Gzip {
                level: within(0, 9),
                window_bits: within(9, 15),
                memory_level: within(1, 9),
                strategy: strategies[usize::from(choice / 3) % strategies.len()],
            };
            let undone = decompressor::Library::Gzip { window_bits: 15, most_times: 100 };
            (Library::Gzip(gzip), undone, "gzip")
        }
        1 => {
            let modes = [BrotliMode::Generic, BrotliMode::Text, BrotliMode::Font];
            let brotli = Brotli {
                quality: within(0, 9),
                window_bits: within(10, 24),
                block_bits: within(16, 24),
                mode: modes[usize::from(choice / 3) % modes.len()],
                without_contexts: choice & 0x40 != 0,
            };
            (Library::Brotli(brotli), decompressor::Library::Brotli, "br")
        }
        _ => {
            let zstd = Zstd {
                level: within(1, 6).into(),
                checksum: choice & 0x40 != 0,
                strategy: choice / 3 % 10,
            };
            (Library::Zstd(zstd), decompressor::Library::Zstd, "zstd")
        }
    }
}

/// Of the decompressors.
const MOST_TIMES: usize = 100;
/// What a piece of 64 bytes becomes, or the block of Zstandard that it may end, and what is put at once.
const MOST_OF_PIECE: usize = 256 << 10;
