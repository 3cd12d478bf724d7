//! `ATrace` for Rust on any Linux: the functions, tags and macro of `libatrace_rust`, by the same names.
//!
//! A program written for that crate changes one line:
//!
//! ```
//! use towpath_trace::atrace::{self, AtraceTag}; // was: use atrace::AtraceTag;
//!
//! let _scoped = atrace::begin_scoped_event(AtraceTag::App, "Example main");
//! atrace::atrace_begin(AtraceTag::App, "Hello tracing!");
//! atrace::atrace_int(AtraceTag::App, "Count of i", 3);
//! atrace::atrace_end(AtraceTag::App);
//! ```
//!
//! Tags are switched on by [`enable_tags`] or the environment (`ATRACE_TAGS=app,network`; a level may follow, as in
//! `app@info`), on Android by the system property; then events go to ftrace's `trace_marker`. A recording
//! ([`Options`](crate::Options)) keeps them too: tags are the low bits of its [`Category`]. Switching between a begin
//! and its end leaves neither half behind; for a pair that crosses threads that is so in a recording, and up to the
//! viewer of markers.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::category::{Category, Level};
use crate::record::Kind;
use crate::ring::{self, Claim, NOWHERE};
use crate::{clock, gate, marker, record, span};

pub use crate::trace_method;
#[cfg(feature = "layer")]
pub use subscriber::AtraceSubscriber;
pub use tag::AtraceTag;

#[cfg(target_os = "android")]
mod property;
#[cfg(feature = "layer")]
mod subscriber;
mod tag;

/// The tags and their set, by the path that the original has them under.
pub mod tags {
    pub use super::tag::AtraceTag;
}

/// Whether events of `tag` go anywhere. Use it around what is expensive to find out.
#[inline]
#[must_use]
pub fn atrace_is_tag_enabled(tag: AtraceTag) -> bool {
    ENABLED.load(Relaxed) & tag.bits() != 0 && ready(tag)
}

/// The tags whose events go anywhere.
#[must_use]
pub fn atrace_get_enabled_tags() -> AtraceTag {
    atrace_init();
    AtraceTag::from_bits_retain(ENABLED.load(Relaxed))
}

/// Opens `trace_marker` if the environment or the system asks for tags. Every other function does this when first
/// called.
pub fn atrace_init() {
    START.call_once(|| {
        start();
        STARTED.store(true, Relaxed);
        gate_changed();
    });
}

/// Whether this process may trace at all: a process that only forks others says no.
pub fn atrace_set_tracing_enabled(enabled: bool) {
    FORBIDDEN.store(!enabled, Relaxed);
    atrace_init();
    gate_changed();
}

/// Begins a span of this thread.
#[inline]
pub fn atrace_begin(tag: AtraceTag, name: &str) {
    let depth = DEPTH.with(|depth| depth.replace(depth.get() + 1));
    if ENABLED.load(Relaxed) & tag.bits() != 0 {
        begin(tag, name, depth);
    }
}

/// Ends the span that this thread began last.
#[inline]
pub fn atrace_end(_tag: AtraceTag) {
    let depth = DEPTH.with(|depth| depth.replace(depth.get().saturating_sub(1)));
    if KEPT_DEPTH.with(Cell::get) == depth && depth > 0 {
        end(depth);
    }
}

/// Begins a span that may end on another thread; `cookie` tells spans of one name apart.
#[inline]
pub fn atrace_async_begin(tag: AtraceTag, name: &str, cookie: i32) {
    if ENABLED.load(Relaxed) & tag.bits() != 0 && ready(tag) {
        asynchronous(Kind::AsyncBegin, tag, name, name, cookie, marker::async_begin);
    }
}

/// Ends the span of this name and cookie.
#[inline]
pub fn atrace_async_end(tag: AtraceTag, name: &str, cookie: i32) {
    if ENABLED.load(Relaxed) & tag.bits() != 0 && ready(tag) {
        asynchronous(Kind::AsyncEnd, tag, name, name, cookie, marker::async_end);
    }
}

/// Begins a span on a named track; `cookie` tells the spans of one track apart.
#[inline]
pub fn atrace_async_for_track_begin(tag: AtraceTag, track_name: &str, name: &str, cookie: i32) {
    if ENABLED.load(Relaxed) & tag.bits() != 0 && ready(tag) {
        let mark = |name: &str, cookie| marker::track_begin(track_name, name, cookie);
        asynchronous(Kind::AsyncBegin, tag, track_name, name, cookie, mark);
    }
}

/// Ends the span of this cookie on a named track.
#[inline]
pub fn atrace_async_for_track_end(tag: AtraceTag, track_name: &str, cookie: i32) {
    if ENABLED.load(Relaxed) & tag.bits() != 0 && ready(tag) {
        asynchronous(Kind::AsyncEnd, tag, track_name, "", cookie, |_, cookie| {
            marker::track_end(track_name, cookie)
        });
    }
}

/// A point in time on this thread.
#[inline]
pub fn atrace_instant(tag: AtraceTag, name: &str) {
    if ENABLED.load(Relaxed) & tag.bits() != 0 && ready(tag) {
        instant(tag, name);
    }
}

/// A point in time on a named track.
#[inline]
pub fn atrace_instant_for_track(tag: AtraceTag, track_name: &str, name: &str) {
    if ENABLED.load(Relaxed) & tag.bits() != 0 && ready(tag) {
        asynchronous(Kind::AsyncMark, tag, track_name, name, 0, |name, _| {
            marker::track_instant(track_name, name)
        });
    }
}

/// A counter as it stands.
#[inline]
pub fn atrace_int(tag: AtraceTag, name: &str, value: i32) {
    atrace_int64(tag, name, i64::from(value));
}

/// A counter as it stands.
#[inline]
pub fn atrace_int64(tag: AtraceTag, name: &str, value: i64) {
    if ENABLED.load(Relaxed) & tag.bits() != 0 && ready(tag) {
        count(tag, name, value);
    }
}

/// A span from its making to its end of life. It may be dropped on another thread, as a future that holds one across an
/// `await` does; there it ends the span that this thread began last, as in the original.
#[must_use = "the span ends when this is dropped"]
#[derive(Debug)]
pub struct ScopedEvent {
    tag: AtraceTag,
}

impl Drop for ScopedEvent {
    fn drop(&mut self) {
        atrace_end(self.tag);
    }
}

/// Begins a span that ends when the answer is dropped.
pub fn begin_scoped_event(tag: AtraceTag, name: &str) -> ScopedEvent {
    atrace_begin(tag, name);
    ScopedEvent { tag }
}

/// A span named after the function it stands in, to the function's end: `trace_method!(AtraceTag::App);`
#[macro_export]
macro_rules! trace_method {
    {$tag:expr} => {
        let _scoped_event = {
            fn inside() {}
            fn name_of<T>(_: T) -> &'static str {
                ::core::any::type_name::<T>()
            }
            let path = name_of(inside);
            $crate::atrace::begin_scoped_event($tag, path.strip_suffix("::inside").unwrap_or(path))
        };
    };
}

/// Sends events of `tags` to `trace_marker`, of every level; `AtraceTag::Never` sends none.
///
/// # Errors
/// When `trace_marker` cannot be opened: it takes root, and a mounted tracefs.
pub fn enable_tags(tags: AtraceTag) -> io::Result<()> {
    enable_tags_at(tags, Level::Trace)
}

/// As [`enable_tags`], for `level` and what is more important.
///
/// # Errors
/// Those of [`enable_tags`].
pub fn enable_tags_at(tags: AtraceTag, level: Level) -> io::Result<()> {
    atrace_init();
    if tags != AtraceTag::Never {
        marker::open(None)?;
    }
    gate::mark(Category::from_bits(tags.bits()), level);
    Ok(())
}

/// Uses the marker file at `path`: that of an instance of one's own, say. To be called before any tag is on.
///
/// # Errors
/// When it cannot be opened, or another one is open already.
pub fn open_marker(path: &Path) -> io::Result<()> {
    marker::open(Some(path))
}

/// The process number to write: in a container, the one the host knows.
pub fn set_pid(pid: u32) {
    marker::set_pid(pid);
}

/// How many markers the kernel did not take, because its tracing was off.
#[must_use]
pub fn refused_markers() -> u64 {
    marker::refused()
}

/// What `atrace_is_tag_enabled` answers from; everything until [`atrace_init`] has run.
static ENABLED: AtomicU64 = AtomicU64::new(u64::MAX);
static STARTED: AtomicBool = AtomicBool::new(false);
static FORBIDDEN: AtomicBool = AtomicBool::new(false);
static START: Once = Once::new();

thread_local! {
    /// Spans begun on this thread, kept or not.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The depth of the innermost span that was kept; 0 for none.
    static KEPT_DEPTH: Cell<u32> = const { Cell::new(0) };
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// A begun span that went somewhere.
struct Open {
    depth: u32,
    position: u64,
    marked: bool,
}

/// The spans one thread may have open and kept.
const DEEPEST: usize = 1 << 16;

/// The gate, or what is forbidden, has changed.
pub(crate) fn gate_changed() {
    if STARTED.load(Relaxed) {
        let enabled =
            if FORBIDDEN.load(Relaxed) { Category::NONE } else { gate::wanted(Level::Info) };
        ENABLED.store(enabled.bits(), Relaxed);
    }
}

#[cold]
fn ready(tag: AtraceTag) -> bool {
    atrace_init();
    ENABLED.load(Relaxed) & tag.bits() != 0
}

fn start() {
    if let Some(asked) = std::env::var_os("ATRACE_TAGS").filter(|asked| !asked.is_empty()) {
        // The program did not ask, so it cannot be told: the user who set the variable reads standard error.
        let asked = asked.to_string_lossy();
        if let Err(why) = start_as(&asked) {
            eprintln!("towpath-trace: no markers for ATRACE_TAGS={asked}: {why}");
        }
    }
    #[cfg(target_os = "android")]
    property::watch();
}

/// Tags as [`Category::parse`] reads them, and a level behind an `@`; without one, every level.
fn start_as(asked: &str) -> Result<(), Box<dyn std::error::Error>> {
    let (tags, level) = match asked.split_once('@') {
        Some((tags, level)) => (tags, level.parse()?),
        None => (asked, Level::Trace),
    };
    let tags = Category::parse(tags)?;
    if tags != Category::NONE {
        marker::open(None)?;
        gate::mark(tags, level);
    }
    Ok(())
}

fn recorded(tag: AtraceTag) -> bool {
    gate::recorded(Category::from_bits(tag.bits()), Level::Info)
}

fn marked(tag: AtraceTag) -> bool {
    gate::marked(Category::from_bits(tag.bits()), Level::Info)
}

#[cold]
fn begin(tag: AtraceTag, name: &str, depth: u32) {
    if !ready(tag) {
        return;
    }
    OPEN.with(|open| {
        let mut open = open.borrow_mut();
        if open.len() >= DEEPEST {
            return;
        }
        let category = Category::from_bits(tag.bits());
        let position = match recorded(tag) {
            true => span::emit_named(Kind::Begin, category, name, [0, 0], Claim::Opens),
            false => NOWHERE,
        };
        let marked = marked(tag) && marker::begin(name);
        if position != NOWHERE || marked {
            open.push(Open { depth: depth + 1, position, marked });
            KEPT_DEPTH.with(|kept| kept.set(depth + 1));
        }
    });
}

#[cold]
fn end(depth: u32) {
    let (ended, next) = OPEN.with(|open| {
        let mut open = open.borrow_mut();
        let is_ended = open.last().is_some_and(|open| open.depth == depth);
        let ended = if is_ended { open.pop() } else { None };
        (ended, open.last().map_or(0, |open| open.depth))
    });
    KEPT_DEPTH.with(|kept| kept.set(next));
    let Some(ended) = ended else { return };
    if ended.position != NOWHERE {
        let head = record::head(Kind::End, record::NAMELESS, 0, 0);
        ring::write([head, clock::ticks(), ended.position], Claim::Closes);
    }
    if ended.marked {
        marker::end();
    }
}

#[cold]
fn instant(tag: AtraceTag, name: &str) {
    if recorded(tag) {
        span::emit_named(Kind::Mark, Category::from_bits(tag.bits()), name, [0, 0], Claim::Alone);
    }
    if marked(tag) {
        marker::instant(name);
    }
}

#[cold]
fn count(tag: AtraceTag, name: &str, value: i64) {
    if recorded(tag) {
        span::emit_counter(Category::from_bits(tag.bits()), name, value);
    }
    if marked(tag) {
        marker::counter(name, value);
    }
}

#[cold]
fn asynchronous(
    kind: Kind,
    tag: AtraceTag,
    track: &str,
    name: &str,
    cookie: i32,
    mark: impl FnOnce(&str, i32),
) {
    if recorded(tag) {
        // Spans that differ in name or cookie have tracks of their own; marks of one track share one.
        let id = crate::perfetto::hash(track.as_bytes()) ^ u64::from(cookie as u32).rotate_left(32);
        span::emit_named(kind, Category::from_bits(tag.bits()), name, [id.max(1), 0], Claim::Alone);
    }
    if marked(tag) {
        mark(name, cookie);
    }
}

/// Whether a shell pattern of `*` and `?` fits the whole of `text`.
#[cfg(any(target_os = "android", test))]
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    // On a mismatch the last star takes one more character: no recursion, quadratic at worst.
    let (mut at, mut next) = (0, 0);
    let mut star = None;
    while next < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[next] => (at, next) = (at + 1, next + 1),
            _ => {
                let Some((after, taken)) = star else { return false };
                star = Some((after, taken + 1));
                (at, next) = (after + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn patterns_fit_whole_names() {
        let fits = [
            ("*", "anything"),
            ("com.*", "com.example"),
            ("a?c", "abc"),
            ("", ""),
            ("*b*b*", "abcb"),
            ("**", ""),
        ];
        let misses =
            [("com", "com.example"), ("a?c", "ac"), ("*x", "abc"), ("", "a"), ("a*b", "acbd")];
        for (pattern, text) in fits {
            assert!(glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in misses {
            assert!(!glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
