//! `envoy.filters.http.compressor`: content that its reader takes compressed is compressed on its way.
//!
//! Arrives: requests and responses. Leaves: the same, or coded, each piece when it comes. Which of a chain's
//! compressors codes a response is settled once for the stream (`choice.rs`).

mod choice;
mod direction;
mod library;
mod stats;

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::head::Method;
use towpath_proto::{Head, Name};

use self::choice::{Candidate, Choice, Decision};
pub use self::direction::Direction;
use self::direction::{add_vary, change_etag, content_length, may_be_coded, media_type};
use self::library::Encoder;
pub use self::library::{Brotli, BrotliMode, Gzip, GzipStrategy, Library, Zstd};
use self::stats::{CompressorResponseStats, CompressorStats};
pub use super::coding::Coding;
use super::coding::list;
use super::{
    FilterConfig, FilterScope, HttpFilter, MANAGER, OnRequest, Release, Reply, RequestView,
    ResponseFilter, ResponseView, RouteConfig, StreamFilter,
};
use crate::format::Facts;
use crate::stats::FilterNames;

/// Envoy `Compressor`.
#[derive(Clone, Debug)]
pub struct Compressor {
    /// The name of its `compressor_library`, which statistics have.
    pub name: Arc<str>,
    /// `compressor_library`.
    pub library: Library,
    /// `request_direction_config`: none compresses no requests.
    pub request: Option<Direction>,
    /// `response_direction_config`, or the older fields.
    pub response: Responses,
    /// `choose_first`.
    pub goes_first: bool,
}

/// Envoy `Compressor.ResponseDirectionConfig`.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    /// `common_config`.
    pub direction: Direction,
    /// It is the newer field, which statistics show.
    pub is_set: bool,
    /// `disable_on_etag_header`.
    pub skips_etag: bool,
    /// `weaken_etag_on_compress`.
    pub weakens_etag: bool,
    /// `remove_accept_encoding_header`.
    pub removes_accept: bool,
    /// `uncompressible_response_codes`.
    pub spared_statuses: Vec<u16>,
    /// `status_header_enabled`.
    pub tells_status: bool,
}

/// Envoy `CompressorPerRoute`.
#[derive(Clone, Debug)]
pub enum RouteCompressor {
    /// `disabled`: responses stay as they are.
    Disabled,
    /// `overrides`.
    Overrides {
        /// `response_direction_config`: responses are compressed.
        enables: bool,
        /// Its `remove_accept_encoding_header`.
        removes_accept: Option<bool>,
        /// `compressor_library`.
        library: Option<Library>,
    },
}

impl RouteConfig for RouteCompressor {}

impl FilterConfig for Compressor {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        let part = |part: &str, family| {
            let part = format!("{}.{}{part}", self.name, self.library.coding().stat_name()).into();
            FilterNames::new(family, format!("http.{}.compressor", scope.prefix))
                .label(MANAGER, &scope.prefix)
                .part("towpath_compression_library", &part)
        };
        let of_responses = if self.response.is_set { ".response" } else { "" };
        Rc::new(Instance(Rc::new(Shared {
            request_stats: scope.named(part(".request", "http_compressor")),
            response_stats: scope.named(part(of_responses, "http_compressor")),
            choice_stats: scope.named(part("", "http_compressor_choice")),
            response: Rc::new(self.response.direction.clone()),
            config: self.clone(),
        })))
    }
}

#[derive(Debug)]
struct Instance(Rc<Shared>);

/// What all streams of a worker's filter have.
#[derive(Debug)]
struct Shared {
    config: Compressor,
    response: Rc<Direction>,
    request_stats: Arc<CompressorStats>,
    response_stats: Arc<CompressorStats>,
    choice_stats: Arc<CompressorResponseStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let config = &self.0.config;
        let route = request.route.first::<RouteCompressor>();
        let mut before = request.before.iter().rev();
        let choice = before.find_map(|(_, other)| other.shared()?.downcast_ref::<Rc<Choice>>());
        let choice = choice.map_or_else(Rc::default, Rc::clone);
        let (mut enabled, mut removes) = (self.0.response.enabled, config.response.removes_accept);
        let mut library = None;
        match route {
            Some(RouteCompressor::Disabled) => enabled = false,
            Some(RouteCompressor::Overrides { enables, removes_accept, library: own }) => {
                enabled |= enables;
                removes = removes_accept.unwrap_or(removes);
                library.clone_from(own);
            }
            None => {}
        }
        let coding = library.as_ref().unwrap_or(&config.library).coding();
        choice.add(Candidate {
            coding,
            goes_first: config.goes_first,
            response: Rc::clone(&self.0.response),
        });
        let accept = list(request.head, Name::AcceptEncoding).map(|it| it.into_owned().into());
        if enabled && removes {
            request.head.remove(Name::AcceptEncoding);
        }
        let mut stream = Compression {
            shared: Rc::clone(&self.0),
            choice,
            accept,
            enabled,
            library,
            tunnels: is_tunnel(request.head),
            request: None,
            response: None,
        };
        stream.begin_request(request);
        OnRequest::Watch(Box::new(stream))
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }
}

impl ResponseFilter for Instance {
    fn on_response(&self, response: &mut ResponseView<'_>) {
        // It has not seen the request, which was answered before it came here.
        let mut stream = Compression {
            shared: Rc::clone(&self.0),
            choice: Rc::default(),
            accept: None,
            enabled: self.0.response.enabled,
            library: None,
            tunnels: false,
            request: None,
            response: None,
        };
        stream.begin_response(response.head, response.ends);
    }
}

/// One stream at the filter.
struct Compression {
    shared: Rc<Shared>,
    choice: Rc<Choice>,
    /// What the client takes.
    accept: Option<Box<[u8]>>,
    /// Responses may be compressed.
    enabled: bool,
    /// The route's.
    library: Option<Library>,
    /// The client asks for another protocol.
    tunnels: bool,
    request: Option<Coded>,
    response: Option<Coded>,
}

/// Content that is compressed.
struct Coded {
    encoder: Encoder,
    /// What is to come, where its head says so.
    left: Option<u64>,
}

impl Coded {
    /// The content of a message with this head.
    fn begin(library: &Library, head: &Head) -> Option<Self> {
        Some(Self { encoder: library.encoder()?, left: content_length(head) })
    }

    /// What becomes of a piece. What is in it does not wait for the next one; its end follows the last one at once.
    fn piece(&mut self, data: &Bytes, stats: &CompressorStats) -> Result<Bytes, Reply> {
        let length = data.len() as u64;
        // Where more comes than was said, it is not known what is left.
        self.left = self.left.and_then(|left| left.checked_sub(length));
        let coded = self.encoder.piece(data, self.left != Some(0)).map_err(|_| failed())?;
        stats.total_uncompressed_bytes.add(length);
        stats.total_compressed_bytes.add(coded.len() as u64);
        Ok(coded)
    }

    fn finish(&mut self, stats: &CompressorStats) -> Result<Bytes, Reply> {
        let coded = self.encoder.finish().map_err(|_| failed())?;
        stats.total_compressed_bytes.add(coded.len() as u64);
        Ok(coded)
    }
}

/// Why a response stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skipped {
    Length,
    Type,
    Etag,
    Status,
    /// What `x-envoy-compression-status` does not tell.
    Silently,
}

impl StreamFilter for Compression {
    fn on_request_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        let Some(coded) = &mut self.request else { return Ok(()) };
        *data = coded.piece(data, &self.shared.request_stats)?;
        Ok(())
    }

    fn on_request_end(&mut self, _facts: &Facts<'_>) -> Result<Bytes, Reply> {
        let Some(coded) = &mut self.request else { return Ok(Bytes::new()) };
        coded.finish(&self.shared.request_stats)
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        self.begin_response(response.head, response.ends);
        Release::Now
    }

    fn on_response_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        let Some(coded) = &mut self.response else { return Ok(()) };
        *data = coded.piece(data, &self.shared.response_stats)?;
        Ok(())
    }

    fn on_response_end(&mut self, _trailers: Option<&mut Head>, _facts: &Facts<'_>) -> Bytes {
        let Some(coded) = &mut self.response else { return Bytes::new() };
        coded.finish(&self.shared.response_stats).unwrap_or_default()
    }

    fn shared(&self) -> Option<&dyn Any> {
        Some(&self.choice)
    }
}

impl Compression {
    fn library(&self) -> &Library {
        self.library.as_ref().unwrap_or(&self.shared.config.library)
    }

    fn begin_request(&mut self, request: &mut RequestView<'_>) {
        let stats = &self.shared.request_stats;
        let head = &mut *request.head;
        let direction = self.shared.config.request.as_ref().filter(|it| it.enabled);
        let direction = direction.filter(|_| !request.is_empty && !self.tunnels);
        let is_long = |direction: &&Direction| {
            let is_long = direction.takes_length(head);
            if !is_long {
                stats.content_length_too_small.inc();
            }
            is_long
        };
        let codes = direction.filter(is_long).is_some_and(|direction| {
            direction.takes_type(media_type(head)) && head.get(Name::ContentEncoding).is_none()
        });
        self.request = if codes { Coded::begin(self.library(), head) } else { None };
        if self.request.is_none() {
            stats.not_compressed.inc();
            return;
        }
        head.remove(Name::ContentLength);
        head.set(Name::ContentEncoding, self.library().coding().name().as_bytes());
        stats.compressed.inc();
    }

    fn begin_response(&mut self, head: &mut Head, ends: bool) {
        let shared = Rc::clone(&self.shared);
        let config = &shared.config.response;
        let skipped = self.skips(head);
        let told = config.tells_status && !ends;
        // Where the reason is told, clients are asked last.
        let asks = !ends
            && self.enabled
            && if told { skipped.is_none() } else { skipped != Some(Skipped::Length) };
        let is_chosen = asks && self.is_chosen(head);
        let length = head.get(Name::ContentLength).map(<[u8]>::to_vec);
        self.response =
            if is_chosen && skipped.is_none() { Coded::begin(self.library(), head) } else { None };
        let coding = self.library().coding().name();
        if self.response.is_some() {
            change_etag(head, config.weakens_etag);
            head.remove(Name::ContentLength);
            head.set(Name::ContentEncoding, coding.as_bytes());
            shared.response_stats.compressed.inc();
        } else {
            shared.response_stats.not_compressed.inc();
        }
        if skipped.is_none() {
            add_vary(head);
        }
        if told {
            tell(head, coding, skipped, self.response.is_some(), &length.unwrap_or_default());
        }
    }

    /// Whether a response is none that is compressed, and why.
    fn skips(&self, head: &Head) -> Option<Skipped> {
        let config = &self.shared.config.response;
        if !self.enabled {
            return Some(Skipped::Silently);
        }
        // What says why is looked at in another order.
        if config.tells_status && (self.begins_tunnel(head) || !may_be_coded(head)) {
            return Some(Skipped::Silently);
        }
        if !self.shared.response.takes_length(head) {
            self.shared.response_stats.content_length_too_small.inc();
            return Some(Skipped::Length);
        }
        if self.begins_tunnel(head) {
            return Some(Skipped::Silently);
        }
        if !self.shared.response.takes_type(media_type(head)) {
            return Some(Skipped::Type);
        }
        if super::coding::forbids_transform(head) {
            return Some(Skipped::Silently);
        }
        let skips_etag = config.skips_etag && !config.weakens_etag;
        if skips_etag && head.get(Name::Etag).is_some() {
            self.shared.choice_stats.not_compressed_etag.inc();
            return Some(Skipped::Etag);
        }
        if head.get(Name::ContentEncoding).is_some() {
            return Some(Skipped::Silently);
        }
        config.spared_statuses.contains(&head.status()).then_some(Skipped::Status)
    }

    fn begins_tunnel(&self, head: &Head) -> bool {
        head.status() == 101 || (self.tunnels && (200..300).contains(&head.status()))
    }

    /// Whether the client takes what this filter makes, and no other filter comes first.
    fn is_chosen(&self, head: &Head) -> bool {
        let stats = &self.shared.choice_stats;
        let Some(accept) = &self.accept else {
            stats.no_accept_header.inc();
            return false;
        };
        let coding = self.library().coding();
        let (counter, chosen) = match self.choice.decide(accept, media_type(head)) {
            Decision::Named(named) if named == coding => (&stats.header_compressor_used, true),
            Decision::Named(_) => (&stats.header_compressor_overshadowed, false),
            Decision::Any(first) => (&stats.header_wildcard, first == coding),
            Decision::Identity => (&stats.header_identity, false),
            Decision::Invalid => (&stats.header_not_valid, false),
        };
        counter.inc();
        chosen
    }
}

impl std::fmt::Debug for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compression").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

/// Adds `x-envoy-compression-status`.
fn tell(head: &mut Head, coding: &str, skipped: Option<Skipped>, compressed: bool, length: &[u8]) {
    let reason = match skipped {
        None if compressed => "Compressed;OriginalLength=",
        None | Some(Skipped::Silently) => return,
        Some(Skipped::Length) => "ContentLengthTooSmall",
        Some(Skipped::Type) => "ContentTypeNotAllowed",
        Some(Skipped::Etag) => "EtagNotAllowed",
        Some(Skipped::Status) => "StatusCodeNotAllowed",
    };
    let mut text = format!("{coding};{reason}").into_bytes();
    if compressed {
        text.extend_from_slice(length);
    }
    head.append_bytes(b"x-envoy-compression-status", &text);
}

fn is_tunnel(head: &Head) -> bool {
    head.method() == Method::Connect || head.get(Name::Upgrade).is_some()
}

/// The coding has no memory.
fn failed() -> Reply {
    Reply::new(500, b"", "compression_failed")
}
