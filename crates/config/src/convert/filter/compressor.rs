//! Content that is compressed on its way.

use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::compressor::{
    Brotli, BrotliMode, Compressor, Direction, Gzip, GzipStrategy, Library, Responses,
    RouteCompressor, Zstd,
};

use super::Known;
use crate::convert::Converter;
use crate::convert::extension::COMPRESSOR;
use crate::message::{Message, Value};
use crate::support::Entry;

pub(super) const FILTER: Known = Known {
    config_type: "envoy.extensions.filters.http.compressor.v3.Compressor",
    convert: |converter, config| Some(Arc::new(converter.compressor(config)?)),
    by_route: Some(("envoy.extensions.filters.http.compressor.v3.CompressorPerRoute", by_route)),
    support: SUPPORT,
};

fn by_route(converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    let Some(overrides) = config.message("overrides") else {
        return config.flag("disabled").then(|| Arc::new(RouteCompressor::Disabled) as _);
    };
    let response = overrides.message("response_direction_config");
    let library = match overrides.message("compressor_library") {
        Some(library) => Some(converter.compressor_library(library)?),
        None => None,
    };
    Some(Arc::new(RouteCompressor::Overrides {
        enables: response.is_some(),
        removes_accept: response.and_then(|it| it.wrapped_flag("remove_accept_encoding_header")),
        library,
    }))
}

impl Converter<'_> {
    fn compressor(&mut self, config: &Message) -> Option<Compressor> {
        let library = config.message("compressor_library")?;
        let request = config.message("request_direction_config");
        let request = request.map(|request| self.compressed(request.message("common_config")));
        Some(Compressor {
            name: Arc::from(library.text("name")),
            library: self.compressor_library(library)?,
            request,
            response: match config.message("response_direction_config") {
                Some(response) => self.compressed_responses(response),
                None => self.responses_of_old(config),
            },
            goes_first: config.flag("choose_first"),
        })
    }

    fn compressed_responses(&mut self, config: &Message) -> Responses {
        let spared = config.numbers("uncompressible_response_codes");
        Responses {
            spared_statuses: spared.filter_map(|(code, _)| u16::try_from(code).ok()).collect(),
            direction: self.compressed(config.message("common_config")),
            is_set: true,
            skips_etag: config.flag("disable_on_etag_header"),
            weakens_etag: config.flag("weaken_etag_on_compress"),
            removes_accept: config.flag("remove_accept_encoding_header"),
            tells_status: config.flag("status_header_enabled"),
        }
    }

    /// By the fields from before there were directions.
    fn responses_of_old(&mut self, config: &Message) -> Responses {
        let enabled = config.message("runtime_enabled");
        let types: Vec<_> = config.texts("content_type").map(|(text, _)| text.to_owned()).collect();
        Responses {
            direction: Direction {
                enabled: enabled.is_none_or(|flag| self.runtime_flag(flag)),
                ..direction(config.number32("content_length"), &types)
            },
            skips_etag: config.flag("disable_on_etag_header"),
            removes_accept: config.flag("remove_accept_encoding_header"),
            ..Responses::default()
        }
    }

    /// A `CommonDirectionConfig`.
    fn compressed(&mut self, config: Option<&Message>) -> Direction {
        let Some(config) = config else { return Direction::default() };
        let enabled = config.message("enabled");
        let types: Vec<_> = config.texts("content_type").map(|(text, _)| text.to_owned()).collect();
        let matchers: Vec<_> = config.messages("content_type_matcher").collect();
        let mut direction = Direction {
            enabled: enabled.is_none_or(|flag| self.runtime_flag(flag)),
            ..direction(config.number32("min_content_length"), &types)
        };
        if !matchers.is_empty() {
            let matchers = matchers.into_iter().filter_map(|it| self.string_matcher(it));
            direction.types = matchers.collect();
        }
        direction
    }

    fn compressor_library(&mut self, library: &Message) -> Option<Library> {
        let (config, _) = self.extension(library, COMPRESSOR, &[GZIP, BROTLI, ZSTD])?;
        Some(match config.descriptor.full_name() {
            GZIP => Library::Gzip(gzip(config)),
            BROTLI => Library::Brotli(brotli(config)),
            _ => Library::Zstd(zstd(config)),
        })
    }
}

/// A length of 0 stands for the default one.
fn direction(min_length: Option<u32>, types: &[String]) -> Direction {
    let mut direction = Direction::default();
    if let Some(length) = min_length.filter(|length| *length > 0) {
        direction.min_length = length;
    }
    if !types.is_empty() {
        direction.types = Direction::exact_types(types.iter().map(String::as_str));
    }
    direction
}

fn gzip(config: &Message) -> Gzip {
    let default = Gzip::default();
    Gzip {
        level: chosen(config, "compression_level"),
        window_bits: small(config, "window_bits").unwrap_or(default.window_bits),
        memory_level: small(config, "memory_level").unwrap_or(default.memory_level),
        strategy: match config.choice("compression_strategy").as_str() {
            "FILTERED" => GzipStrategy::Filtered,
            "HUFFMAN_ONLY" => GzipStrategy::HuffmanOnly,
            "RLE" => GzipStrategy::Rle,
            "FIXED" => GzipStrategy::Fixed,
            _ => GzipStrategy::Default,
        },
    }
}

fn brotli(config: &Message) -> Brotli {
    let default = Brotli::default();
    Brotli {
        quality: small(config, "quality").unwrap_or(default.quality),
        window_bits: small(config, "window_bits").unwrap_or(default.window_bits),
        block_bits: small(config, "input_block_bits").unwrap_or(default.block_bits),
        mode: match config.choice("encoder_mode").as_str() {
            "TEXT" => BrotliMode::Text,
            "FONT" => BrotliMode::Font,
            _ => BrotliMode::Generic,
        },
        without_contexts: config.flag("disable_literal_context_modeling"),
    }
}

fn zstd(config: &Message) -> Zstd {
    let default = Zstd::default();
    let level = config.number32("compression_level").filter(|level| *level > 0);
    Zstd {
        level: level.unwrap_or(default.level),
        checksum: config.flag("enable_checksum"),
        strategy: chosen(config, "strategy"),
    }
}

fn small(config: &Message, name: &str) -> Option<u8> {
    config.number(name).and_then(|number| u8::try_from(number).ok())
}

/// The number of an enum's value, whose names may be several.
fn chosen(config: &Message, name: &str) -> u8 {
    match config.get(name).map(|field| &field.value) {
        Some(Value::Enum(number)) => u8::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}

const GZIP: &str = "envoy.extensions.compression.gzip.compressor.v3.Gzip";
const BROTLI: &str = "envoy.extensions.compression.brotli.compressor.v3.Brotli";
const ZSTD: &str = "envoy.extensions.compression.zstd.compressor.v3.Zstd";

const CHUNKS: (&str, &str) =
    ("chunk_size", "how memory is asked for shows in nothing that is sent");

const SUPPORT: &[Entry] = &[
    Entry {
        message: "envoy.extensions.filters.http.compressor.v3.Compressor",
        honoured: &[
            "content_length",
            "content_type",
            "disable_on_etag_header",
            "remove_accept_encoding_header",
            "runtime_enabled",
            "compressor_library",
            "request_direction_config",
            "response_direction_config",
            "choose_first",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.compressor.v3.Compressor.CommonDirectionConfig",
        honoured: &["enabled", "min_content_length", "content_type", "content_type_matcher"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.compressor.v3.Compressor.RequestDirectionConfig",
        honoured: &["common_config"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.compressor.v3.Compressor.ResponseDirectionConfig",
        honoured: &[
            "common_config",
            "disable_on_etag_header",
            "weaken_etag_on_compress",
            "remove_accept_encoding_header",
            "uncompressible_response_codes",
            "status_header_enabled",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.compressor.v3.CompressorPerRoute",
        honoured: &["disabled", "overrides"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.compressor.v3.CompressorOverrides",
        honoured: &["response_direction_config", "compressor_library"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.compressor.v3.ResponseDirectionOverrides",
        honoured: &["remove_accept_encoding_header"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: GZIP,
        honoured: &["memory_level", "compression_level", "compression_strategy", "window_bits"],
        harmless: &[CHUNKS],
        changes: &[],
    },
    Entry {
        message: BROTLI,
        honoured: &[
            "quality",
            "encoder_mode",
            "window_bits",
            "input_block_bits",
            "disable_literal_context_modeling",
        ],
        harmless: &[CHUNKS],
        changes: &[],
    },
    Entry {
        message: ZSTD,
        honoured: &["compression_level", "enable_checksum", "strategy"],
        harmless: &[CHUNKS],
        changes: &[("dictionary", "content is compressed without a dictionary")],
    },
];
