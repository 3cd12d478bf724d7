//! Tracing that costs a clock read.
//!
//! Spans, marks, counters and flows go to a ring of 32-byte records that belongs to the thread; files are made from
//! the rings off the hot path. Off, a place costs one load and a test.
//!
//! ```
//! use towpath_trace::{Category, Flow, Options, counter, mark, span};
//!
//! let recording = Options::new().start()?;
//! {
//!     let _send = span!(Category::NETWORK, "send", bytes = 512, flow = Flow::through(7));
//!     mark!(Category::NETWORK, "first byte");
//!     counter!(Category::NETWORK, "open connections", 3);
//! }
//! let capture = recording.stop();
//! assert_eq!(capture.spans()[0].name, "send");
//! let mut file = Vec::new();
//! capture.write_perfetto(&mut file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An event's way through the code:
//!
//! ```text
//! macros → gate (one load) → span (record) → ring          the thread's part
//! ring → collect (place in time) → tracks (begins to ends)  the drain
//!      → perfetto, chrome                                  files; file reads them back
//! span → marker, probe                                     for tools that listen at the moment of the event
//! ```
//!
//! | Feature | Adds |
//! |---|---|
//! | `attribute` | `#[traced]`: a span for a whole function |
//! | `tracing` | `TraceSubscriber`: what `tracing`'s macros emit, straight to the ring |
//! | `layer` | `TraceLayer`: the same beside a `Registry` |
//!
//! `unsafe` is in `ring` (a thread's way to its own ring), `clock` (the counter), `thread` (its number, name and
//! signals), `probe`
//! (the no-op that tools attach to) and, on Android, `atrace::property`.

pub mod atrace;
mod callsite;
mod capture;
mod category;
mod chrome;
mod clock;
mod collect;
mod context;
mod control;
mod decode;
mod directives;
mod environment;
#[cfg(feature = "tracing")]
mod facade;
pub mod file;
mod gate;
#[cfg(target_os = "linux")]
pub mod kernel;
#[cfg(feature = "layer")]
mod layer;
mod macros;
mod marker;
mod perfetto;
mod probe;
mod process;
mod record;
mod ring;
mod segments;
mod span;
#[cfg(feature = "tracing")]
mod subscriber;
mod thread;
mod timeline;
mod tracks;
mod value;
mod wire;

pub use callsite::Callsite;
pub use capture::{Capture, PlaceView, PointView, SpanView, interned};
pub use category::{Category, Level, UnknownCategory};
pub use clock::{Source, Stamp};
pub use collect::Account;
pub use context::TraceContext;
pub use control::{FileRecording, Options, Recording, StartError};
pub use directives::UnknownDirective;
pub use environment::from_env;
pub use gate::{enabled, on_change};
#[cfg(feature = "layer")]
pub use layer::TraceLayer;
pub use span::{AsyncSpan, Span, Track};
#[cfg(feature = "tracing")]
pub use subscriber::TraceSubscriber;
/// A span for a whole function (feature `attribute`), with what [`span!`] takes behind the category; the name is the
/// function's unless given, and values may use its arguments. That of an `async fn` is on a track of its own, and ends
/// with the function or when its future is dropped.
///
/// ```
/// use towpath_trace::{Category, traced};
///
/// #[traced(Category::NETWORK, "send", bytes = data.len())]
/// async fn send(data: &[u8]) {}
///
/// #[traced(Category::APP)]
/// fn render() {}
/// # render();
/// ```
///
/// What has no body to be timed, or runs in the compiler, is refused:
///
/// ```compile_fail
/// #[towpath_trace::traced(towpath_trace::Category::APP)]
/// const fn three() -> u32 { 3 }
/// ```
///
/// ```compile_fail
/// #[towpath_trace::traced]
/// fn without_category() {}
/// ```
#[cfg(feature = "attribute")]
pub use towpath_trace_macros::traced;
pub use value::{Flow, INTERNED_BYTES, INTERNED_LIMIT, TEXT_LIMIT, Text, Value, intern};

/// What the macros call, for code that keeps its own [`Callsite`]s.
pub mod emit {
    pub use crate::span::{
        async_begin, async_begin_at, async_end, async_end_with, async_mark, complete,
        counter_named, counter_value, mark, mark_named,
    };
}

/// The examples of the pages compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("tracing.md")]
struct Pages;
