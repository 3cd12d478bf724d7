//! `envoy.filters.http.decompressor`: content that comes compressed goes on as it was.
//!
//! Arrives: requests and responses in a coding. Leaves: their content, each piece when it comes; trailers that say how
//! long it was before and after. As in Envoy, content that is damaged ends where the damage begins, and what a piece
//! may become is bounded, both of which is counted.

mod library;
mod stats;
#[cfg(test)]
pub(super) mod tests;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::{Head, Name};

use self::library::Decoder;
pub use self::library::Library;
use self::stats::{BrotliStats, DecompressorStats, ZlibStats, ZstdStats};
use super::coding::{forbids_transform, list};
use super::{
    FilterConfig, FilterScope, HttpFilter, MANAGER, OnRequest, Release, Reply, RequestView,
    ResponseFilter, ResponseView, StreamFilter,
};
use crate::format::Facts;
use crate::stats::FilterNames;

/// Envoy `Decompressor`.
#[derive(Clone, Debug)]
pub struct Decompressor {
    /// The name of its `decompressor_library`, which statistics and trailers have.
    pub name: Arc<str>,
    /// `decompressor_library`.
    pub library: Library,
    /// `request_direction_config`.
    pub request: Direction,
    /// `response_direction_config`.
    pub response: Direction,
    /// `advertise_accept_encoding`.
    pub advertises: bool,
}

/// Envoy `Decompressor.CommonDirectionConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// `enabled`.
    pub enabled: bool,
    /// `ignore_no_transform_header`.
    pub ignores_no_transform: bool,
}

impl FilterConfig for Decompressor {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let stat_name = self.library.coding().stat_name();
        let part = |part: &str, family| {
            let part = format!("{}.{stat_name}.{part}", self.name).into();
            FilterNames::new(family, format!("http.{}.decompressor", scope.prefix))
                .label(MANAGER, &scope.prefix)
                .part("towpath_compression_library", &part)
        };
        let errors = |family| part("decompressor_library", family);
        let trailer = |what| format!("x-envoy-decompressor-{}-{what}-bytes", self.name).into();
        Rc::new(Instance(Rc::new(Shared {
            request_stats: scope.named(part("request", "http_decompressor")),
            response_stats: scope.named(part("response", "http_decompressor")),
            errors: match self.library {
                Library::Gzip { .. } => Errors::Zlib(scope.named(errors("http_decompressor_zlib"))),
                Library::Brotli => Errors::Brotli(scope.named(errors("http_decompressor_brotli"))),
                Library::Zstd => Errors::Zstd(scope.named(errors("http_decompressor_zstd"))),
            },
            trailers: [trailer("compressed"), trailer("uncompressed")],
            config: self.clone(),
        })))
    }
}

#[derive(Debug)]
struct Instance(Rc<Shared>);

/// What all streams of a worker's filter have.
#[derive(Debug)]
struct Shared {
    config: Decompressor,
    request_stats: Arc<DecompressorStats>,
    response_stats: Arc<DecompressorStats>,
    errors: Errors,
    /// The names of what is told behind the content.
    trailers: [Box<str>; 2],
}

/// What is damaged, by the names of each coding.
#[derive(Debug)]
enum Errors {
    Zlib(Arc<ZlibStats>),
    Brotli(Arc<BrotliStats>),
    Zstd(Arc<ZstdStats>),
}

/// What is wrong with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// It is not in its coding, or becomes too much.
    Content,
    Memory,
    Checksum,
    Dictionary,
}

impl Errors {
    fn count(&self, damage: Damage) {
        let counter = match (self, damage) {
            (Self::Zlib(stats), Damage::Memory) => &stats.zlib_mem_error,
            (Self::Zlib(stats), Damage::Content | Damage::Checksum | Damage::Dictionary) => {
                &stats.zlib_data_error
            }
            (Self::Brotli(stats), _) => &stats.brotli_error,
            (Self::Zstd(stats), Damage::Content) => &stats.zstd_generic_error,
            (Self::Zstd(stats), Damage::Memory) => &stats.zstd_memory_error,
            (Self::Zstd(stats), Damage::Checksum) => &stats.zstd_checksum_wrong_error,
            (Self::Zstd(stats), Damage::Dictionary) => &stats.zstd_dictionary_error,
        };
        counter.inc();
    }
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let config = &self.0.config;
        if config.response.enabled && config.advertises {
            advertise(request.head, config.library.coding().name());
        }
        let body = if request.is_empty {
            None
        } else {
            self.0.begin(request.head, config.request, &self.0.request_stats)
        };
        OnRequest::Watch(Box::new(Decompression {
            shared: Rc::clone(&self.0),
            request: body,
            response: None,
        }))
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }
}

impl ResponseFilter for Instance {
    fn on_response(&self, response: &mut ResponseView<'_>) {
        // Only answers of this proxy come here, which it does not compress.
        if !response.ends {
            self.0.response_stats.not_decompressed.inc();
        }
    }
}

impl Shared {
    /// Takes the coding off a head, if it is to be undone.
    fn begin(
        &self,
        head: &mut Head,
        direction: Direction,
        stats: &DecompressorStats,
    ) -> Option<Body> {
        let coding = self.config.library.coding().name();
        let may = direction.enabled && (direction.ignores_no_transform || !forbids_transform(head));
        let rest = if may { without_first(head, coding) } else { None };
        let body = rest.and_then(|rest| Some((rest, self.config.library.decoder()?)));
        let Some((rest, decoder)) = body else {
            stats.not_decompressed.inc();
            return None;
        };
        stats.decompressed.inc();
        head.remove(Name::ContentLength);
        if rest.is_empty() {
            head.remove(Name::ContentEncoding);
        } else {
            head.set(Name::ContentEncoding, &rest);
        }
        Some(Body { decoder, coded_bytes: 0, plain_bytes: 0 })
    }

    fn decode(&self, body: &mut Body, data: &[u8], stats: &DecompressorStats) -> Bytes {
        let mut plain = Vec::new();
        if let Err(damage) = body.decoder.decode(data, &mut plain) {
            self.errors.count(damage);
        }
        stats.total_compressed_bytes.add(data.len() as u64);
        stats.total_uncompressed_bytes.add(plain.len() as u64);
        body.coded_bytes += data.len() as u64;
        body.plain_bytes += plain.len() as u64;
        plain.into()
    }

    fn trailers(&self, body: Option<&Body>) -> Option<Head> {
        let body = body?;
        let mut head = Head::default();
        for (name, bytes) in self.trailers.iter().zip([body.coded_bytes, body.plain_bytes]) {
            // A name that cannot be sent is left out.
            let _ = head.append_bytes(name.to_ascii_lowercase().as_bytes(), &decimal(bytes));
        }
        Some(head)
    }
}

/// One stream at the filter.
struct Decompression {
    shared: Rc<Shared>,
    request: Option<Body>,
    response: Option<Body>,
}

/// Content on its way out of its coding.
struct Body {
    decoder: Decoder,
    coded_bytes: u64,
    plain_bytes: u64,
}

impl StreamFilter for Decompression {
    fn on_request_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        if let Some(body) = &mut self.request {
            *data = self.shared.decode(body, data, &self.shared.request_stats);
        }
        Ok(())
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        let shared = &self.shared;
        self.response = if response.ends {
            None
        } else {
            shared.begin(response.head, shared.config.response, &shared.response_stats)
        };
        Release::Now
    }

    fn on_response_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        if let Some(body) = &mut self.response {
            *data = self.shared.decode(body, data, &self.shared.response_stats);
        }
        Ok(())
    }

    fn request_trailers(&mut self) -> Option<Head> {
        self.shared.trailers(self.request.as_ref())
    }

    fn response_trailers(&mut self) -> Option<Head> {
        self.shared.trailers(self.response.as_ref())
    }
}

impl std::fmt::Debug for Decompression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompression").finish_non_exhaustive()
    }
}

/// Tells the server that content may come in a coding, whatever the client has said of that one.
fn advertise(head: &mut Head, coding: &str) {
    let Some(accepted) = list(head, Name::AcceptEncoding) else {
        head.set(Name::AcceptEncoding, coding.as_bytes());
        return;
    };
    let mut members = Vec::new();
    for member in accepted.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        let name = member.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        if !member.is_empty() && name != coding.as_bytes() {
            members.push(member);
        }
    }
    members.push(coding.as_bytes());
    let value = members.join(&b","[..]);
    head.set(Name::AcceptEncoding, &value);
}

/// What is left of `content-encoding` without its first member, if that is this coding.
fn without_first(head: &Head, coding: &str) -> Option<Vec<u8>> {
    let all = list(head, Name::ContentEncoding)?;
    let mut members = all.splitn(2, |&byte| byte == b',');
    let first = members.next().unwrap_or_default().trim_ascii();
    first
        .eq_ignore_ascii_case(coding.as_bytes())
        .then(|| members.next().unwrap_or_default().trim_ascii().to_vec())
}

fn decimal(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}
