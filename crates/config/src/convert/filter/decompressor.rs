//! Content that is decompressed on its way.

use std::sync::Arc;

use towpath_engine::filter::decompressor::{Decompressor, Direction, Library};

use super::Known;
use crate::convert::Converter;
use crate::convert::extension::DECOMPRESSOR;
use crate::message::Message;
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.decompressor.v3.Decompressor",
    convert: |converter, config| Some(Arc::new(converter.decompressor(config)?)),
    by_route: None,
    support: SUPPORT,
};

impl Converter<'_> {
    fn decompressor(&mut self, config: &Message) -> Option<Decompressor> {
        let library = config.message("decompressor_library")?;
        let (request, response) = (
            config.message("request_direction_config"),
            config.message("response_direction_config"),
        );
        let advertises = request.and_then(|it| it.wrapped_flag("advertise_accept_encoding"));
        Some(Decompressor {
            name: Arc::from(library.text("name")),
            library: self.decompressor_library(library)?,
            request: self.decompressed(request.and_then(|it| it.message("common_config"))),
            response: self.decompressed(response.and_then(|it| it.message("common_config"))),
            advertises: advertises.unwrap_or(true),
        })
    }

    fn decompressed(&mut self, config: Option<&Message>) -> Direction {
        let enabled = config.and_then(|config| config.message("enabled"));
        Direction {
            enabled: enabled.is_none_or(|flag| self.runtime_flag(flag)),
            ignores_no_transform: config.is_some_and(|it| it.flag("ignore_no_transform_header")),
        }
    }

    fn decompressor_library(&mut self, library: &Message) -> Option<Library> {
        let (config, _) = self.extension(library, DECOMPRESSOR, &[GZIP, BROTLI, ZSTD])?;
        Some(match config.descriptor.full_name() {
            GZIP => {
                let bits = config.number("window_bits").and_then(|bits| u8::try_from(bits).ok());
                let times = config.number32("max_inflate_ratio");
                Library::Gzip {
                    window_bits: bits.unwrap_or(LARGEST_WINDOW_BITS),
                    most_times: times.unwrap_or(MOST_TIMES),
                }
            }
            BROTLI => Library::Brotli,
            _ => Library::Zstd,
        })
    }
}

const GZIP: &str = "envoy.extensions.compression.gzip.decompressor.v3.Gzip";
const BROTLI: &str = "envoy.extensions.compression.brotli.decompressor.v3.Brotli";
const ZSTD: &str = "envoy.extensions.compression.zstd.decompressor.v3.Zstd";
const LARGEST_WINDOW_BITS: u8 = 15;
const MOST_TIMES: u32 = 100;

const CHUNKS: (&str, &str) =
    ("chunk_size", "how memory is asked for shows in nothing that is sent");

const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.extensions.filters.http.decompressor.v3.Decompressor",
        honoured: &[
            "decompressor_library",
            "request_direction_config",
            "response_direction_config",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.decompressor.v3.Decompressor.CommonDirectionConfig",
        honoured: &["enabled", "ignore_no_transform_header"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.decompressor.v3.Decompressor.RequestDirectionConfig",
        honoured: &["common_config", "advertise_accept_encoding"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.decompressor.v3.Decompressor.ResponseDirectionConfig",
        honoured: &["common_config"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: GZIP,
        honoured: &["window_bits", "max_inflate_ratio"],
        harmless: &[CHUNKS],
        changes: &[],
    },
    Entry {
        message: BROTLI,
        honoured: &[],
        harmless: &[
            CHUNKS,
            (
                "disable_ring_buffer_reallocation",
                "how memory is asked for shows in nothing that is sent",
            ),
        ],
        changes: &[],
    },
    Entry {
        message: ZSTD,
        honoured: &[],
        harmless: &[CHUNKS],
        changes: &[("dictionaries", "content is decompressed without a dictionary")],
    },
];
