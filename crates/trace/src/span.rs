//! Emitting: from a callsite and its values to records, and to whoever else listens.

use std::marker::PhantomData;

use crate::callsite::Callsite;
use crate::category::Category;
use crate::clock::{Stamp, counter, ticks};
use crate::marker;
use crate::probe::detours;
use crate::record::{self, Kind, LATER_MONOTONIC, Long, MONOTONIC, NAMELESS, Words, encode};
use crate::ring::{self, Claim};
use crate::value::Value;
use crate::{gate, probe};

/// A span of this thread; ends when dropped.
#[must_use = "a span ends when it is dropped: give it a name, as in `let _span = …;`"]
#[derive(Debug)]
pub struct Span {
    open: Option<Open>,
    /// Its end belongs on the thread that began it.
    _here: PhantomData<*const ()>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    callsite: &'static Callsite,
    /// Position of the begin in this thread's ring; [`NOT_KEPT`] if it is not there.
    begin: u64,
    marked: bool,
}

const NOT_KEPT: u64 = u64::MAX;

impl Span {
    /// A span that nobody wants.
    #[inline(always)]
    pub const fn off() -> Self {
        Self { open: None, _here: PhantomData }
    }

    /// Begins a span. Callers ask [`Callsite::enabled`] first, as `span!` does.
    #[inline(always)]
    pub fn begin<const N: usize>(callsite: &'static Callsite, values: [Value<'_>; N]) -> Self {
        if detours() != 0 {
            // A copy, so that the values of the short way need not lie in memory.
            return begin_elsewhere(callsite, &{ values });
        }
        let begin =
            emit(Kind::Begin, callsite, values, counter(), Claim::Opens).unwrap_or(NOT_KEPT);
        Self { open: Some(Open { callsite, begin, marked: false }), _here: PhantomData }
    }

    /// Whether it is kept anywhere: values that cost something to find need not be found otherwise.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.open.is_some()
    }

    /// Ends it here, with a mark of when: the same as dropping it.
    pub fn end(self) {}
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(open) = self.open {
            open.end();
        }
    }
}

impl Open {
    #[inline(always)]
    fn end(self) {
        if detours() != 0 || self.marked {
            end_elsewhere(self.callsite, self.begin, self.marked);
        } else if self.begin != NOT_KEPT {
            // The begin's position says which span it is.
            ring::write(
                [record::head(Kind::End, NAMELESS, 0, 0), counter(), self.begin],
                Claim::Closes,
            );
        }
    }
}

#[cold]
#[inline(never)]
fn end_elsewhere(callsite: &'static Callsite, begin: u64, marked: bool) {
    if begin != NOT_KEPT {
        ring::write([record::head(Kind::End, NAMELESS, 0, 0), ticks(), begin], Claim::Closes);
    }
    if probe::attached() {
        probe::end(callsite.name(), 0, 0);
    }
    if marked {
        marker::end();
    }
}

/// A place for spans that are not a thread's: a request, a connection, an attempt.
///
/// Spans on one track nest in the order of their times. A track may lie under another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Track {
    pub(crate) id: u64,
    pub(crate) parent: u64,
}

impl Track {
    /// The track of this number; 0 is kept for "none" and becomes 1.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self { id: if id == 0 { 1 } else { id }, parent: 0 }
    }

    /// The same track, shown under `parent`.
    #[must_use]
    pub const fn under(self, parent: Self) -> Self {
        Self { parent: parent.id, ..self }
    }

    /// A track of a number that no other call gives.
    #[must_use]
    pub fn unique() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        Self::new(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Its number.
    #[must_use]
    pub const fn id(self) -> u64 {
        self.id
    }
}

/// A span on a track of its own, which may end on another thread; ends when dropped.
#[must_use = "a span ends when it is dropped: give it a name, as in `let _span = …;`"]
#[derive(Debug)]
pub struct AsyncSpan(Option<(&'static Callsite, Track)>);

impl AsyncSpan {
    /// A span that nobody wants.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Begins a span on `track`. Callers ask [`Callsite::enabled`] first.
    pub fn begin<const N: usize>(
        callsite: &'static Callsite,
        track: Track,
        values: [Value<'_>; N],
    ) -> Self {
        Self(async_begin(callsite, track, values).then_some((callsite, track)))
    }

    /// The track it lies on, unless it is off.
    #[must_use]
    pub fn track(&self) -> Option<Track> {
        self.0.map(|(_, track)| track)
    }

    /// Ends it here: the same as dropping it.
    pub fn end(self) {}
}

impl Drop for AsyncSpan {
    fn drop(&mut self) {
        if let Some((callsite, track)) = self.0 {
            async_end(callsite, track);
        }
    }
}

/// Begins a span on `track`; `false` if it was not kept. End it with [`async_end`], from any function and thread.
#[inline]
pub fn async_begin<const N: usize>(
    callsite: &'static Callsite,
    track: Track,
    values: [Value<'_>; N],
) -> bool {
    if elsewhere() && !async_elsewhere(callsite, track, Kind::AsyncBegin) {
        return false;
    }
    on_track(Kind::AsyncBegin, callsite, track, Stamp::ticks(), &values)
}

/// As [`async_begin`], for a span that began at `from`.
pub fn async_begin_at<const N: usize>(
    callsite: &'static Callsite,
    track: Track,
    from: Stamp,
    values: [Value<'_>; N],
) -> bool {
    if elsewhere() && !async_elsewhere(callsite, track, Kind::AsyncBegin) {
        return false;
    }
    on_track(Kind::AsyncBegin, callsite, track, from, &values)
}

/// Ends the latest span of this callsite on `track`.
#[inline]
pub fn async_end(callsite: &'static Callsite, track: Track) {
    async_end_with(callsite, track, []);
}

/// As [`async_end`], with what is known only at the end. The values stand for the callsite's fields in their order; one that
/// was given at the begin is [`Value::Absent`] here.
#[inline]
pub fn async_end_with<const N: usize>(
    callsite: &'static Callsite,
    track: Track,
    values: [Value<'_>; N],
) {
    if elsewhere() {
        // Its begin may have been kept before the gate was shut: the end goes to the ring in any case.
        async_elsewhere(callsite, track, Kind::AsyncEnd);
    }
    on_track(Kind::AsyncEnd, callsite, track, Stamp::ticks(), &values);
}

/// A mark on `track`.
#[inline]
pub fn async_mark<const N: usize>(
    callsite: &'static Callsite,
    track: Track,
    values: [Value<'_>; N],
) {
    on_track(Kind::AsyncMark, callsite, track, Stamp::ticks(), &values);
}

/// A span on `track` whose two times are known already: one record for what a state machine learns at the end.
#[inline]
pub fn complete<const N: usize>(
    callsite: &'static Callsite,
    track: Track,
    from: Stamp,
    until: Stamp,
    values: [Value<'_>; N],
) -> bool {
    let clocks =
        (u64::from(from.monotonic) * MONOTONIC) | (u64::from(until.monotonic) * LATER_MONOTONIC);
    let head = record::head(Kind::Complete, callsite.id(), 0, 0) | clocks;
    let words = [head, from.value, until.value, track.id];
    if N == 0 && track.parent == 0 {
        return ring::write(words, Claim::Alone).is_some();
    }
    complete_long(words, track, &values)
}

#[cold]
fn complete_long(mut words: Words, track: Track, values: &[Value<'_>]) -> bool {
    if track.parent == 0 {
        return write_long(words, None, values, Claim::Alone).is_some();
    }
    // The parent travels as a first value that is no field's.
    words[0] |= u64::from(record::value_kind::UNSIGNED) << 8;
    let parent = [Value::Unsigned(track.parent)];
    let all: Vec<_> = parent.into_iter().chain(values.iter().copied()).collect();
    write_long(words, None, &all, Claim::Alone).is_some()
}

#[inline]
fn on_track(
    kind: Kind,
    callsite: &'static Callsite,
    track: Track,
    stamp: Stamp,
    values: &[Value<'_>],
) -> bool {
    let clock = u64::from(stamp.monotonic) * MONOTONIC;
    let head = record::head(kind, callsite.id(), 0, 0) | clock;
    let words = [head, stamp.value, track.id, track.parent];
    let written = if values.is_empty() {
        ring::write(words, Claim::Alone)
    } else {
        write_long(words, None, values, Claim::Alone)
    };
    written.is_some()
}

/// A point in time on this thread. Callers ask [`Callsite::enabled`] first.
#[inline(always)]
pub fn mark<const N: usize>(callsite: &'static Callsite, values: [Value<'_>; N]) {
    if detours() != 0 {
        return mark_elsewhere(callsite, &{ values });
    }
    emit(Kind::Mark, callsite, values, counter(), Claim::Alone);
}

/// A number as it stands at this moment. Callers ask [`Callsite::enabled`] first.
#[inline(always)]
pub fn counter_value<'a>(callsite: &'static Callsite, value: impl Into<Value<'a>>) {
    let value = value.into();
    if detours() != 0 {
        return counter_elsewhere(callsite, &{ value });
    }
    emit(Kind::Counter, callsite, [value], counter(), Claim::Alone);
}

/// Writes an event in one record if its values are no texts and at most two.
#[inline(always)]
fn emit<const N: usize>(
    kind: Kind,
    callsite: &'static Callsite,
    values: [Value<'_>; N],
    stamp: u64,
    claim: Claim,
) -> Option<u64> {
    let id = callsite.id();
    if N > 2 || values.iter().any(|value| matches!(value, Value::Text(_))) {
        return write_long([record::head(kind, id, 0, 0), stamp, 0, 0], None, &{ values }, claim);
    }
    if N == 0 {
        return ring::write([record::head(kind, id, 0, 0), stamp], claim);
    }
    let (a_kind, a) = values.first().map_or((0, 0), encode);
    let (b_kind, b) = values.get(1).map_or((0, 0), encode);
    ring::write([record::head(kind, id, a_kind, b_kind), stamp, a, b], claim)
}

/// The same for values that lie in memory already.
#[cold]
fn emit_slice(
    kind: Kind,
    callsite: &'static Callsite,
    values: &[Value<'_>],
    claim: Claim,
) -> Option<u64> {
    match values {
        [] => emit(kind, callsite, [], ticks(), claim),
        [a] => emit(kind, callsite, [*a], ticks(), claim),
        [a, b] => emit(kind, callsite, [*a, *b], ticks(), claim),
        _ => write_long(
            [record::head(kind, callsite.id(), 0, 0), ticks(), 0, 0],
            None,
            values,
            claim,
        ),
    }
}

#[cold]
#[inline(never)]
pub(crate) fn write_long(
    first: Words,
    name: Option<&str>,
    values: &[Value<'_>],
    claim: Claim,
) -> Option<u64> {
    let long = Long::new(first, name, values);
    ring::write_all(long.records(), claim, long.cut)
}

/// An event whose name is known only at run time: the name lies in the ring behind it.
pub(crate) fn emit_named(
    kind: Kind,
    category: Category,
    name: &str,
    words: [u64; 2],
    claim: Claim,
) -> Option<u64> {
    let first = [record::head(kind, NAMELESS, 0, 0), ticks(), words[0], words[1]];
    write_long(first, Some(name), &[Value::Unsigned(category.bits())], claim)
}

/// A counter whose name is known only at run time.
pub(crate) fn emit_counter(category: Category, name: &str, value: i64) {
    let first = [record::head(Kind::Counter, NAMELESS, 0, 0), ticks(), 0, 0];
    write_long(
        first,
        Some(name),
        &[Value::Unsigned(category.bits()), Value::Signed(value)],
        Claim::Alone,
    );
}

/// Whether anyone beside the ring listens.
#[inline(always)]
pub(crate) fn elsewhere() -> bool {
    detours() & !probe::NO_COUNTER != 0
}

#[cold]
#[inline(never)]
fn begin_elsewhere(callsite: &'static Callsite, values: &[Value<'_>]) -> Span {
    if probe::attached() {
        probe::begin(callsite.name(), word(values, 0), word(values, 1));
    }
    let begin =
        if kept(callsite) { emit_slice(Kind::Begin, callsite, values, Claim::Opens) } else { None };
    let marked = wants_marker(callsite) && marker::begin(callsite.name());
    Span {
        open: Some(Open { callsite, begin: begin.unwrap_or(NOT_KEPT), marked }),
        _here: PhantomData,
    }
}

#[cold]
#[inline(never)]
fn mark_elsewhere(callsite: &'static Callsite, values: &[Value<'_>]) {
    if kept(callsite) {
        emit_slice(Kind::Mark, callsite, values, Claim::Alone);
    }
    if probe::attached() {
        probe::mark(callsite.name(), word(values, 0), word(values, 1));
    }
    if wants_marker(callsite) {
        marker::instant(callsite.name());
    }
}

#[cold]
#[inline(never)]
fn counter_elsewhere(callsite: &'static Callsite, value: &Value<'_>) {
    if kept(callsite) {
        emit_slice(Kind::Counter, callsite, &[*value], Claim::Alone);
    }
    let (_, word) = encode(value);
    if probe::attached() {
        probe::counter(callsite.name(), word, 0);
    }
    if wants_marker(callsite) {
        let whole =
            if let Value::Float(value) = value { *value as i64 } else { word.cast_signed() };
        marker::counter(callsite.name(), whole);
    }
}

#[cold]
fn async_elsewhere(callsite: &'static Callsite, track: Track, kind: Kind) -> bool {
    let begins = kind == Kind::AsyncBegin;
    if probe::attached() {
        let probe = if begins { probe::begin } else { probe::end };
        probe(callsite.name(), track.id, track.parent);
    }
    if wants_marker(callsite) {
        // A cookie is 31 bits in the viewers; tracks of one name that live at once differ in their low bits.
        let cookie = (track.id & 0x7fff_ffff) as i32;
        let write = if begins { marker::async_begin } else { marker::async_end };
        write(callsite.name(), cookie);
    }
    kept(callsite)
}

fn kept(callsite: &'static Callsite) -> bool {
    gate::recorded(callsite.category(), callsite.level())
}

fn wants_marker(callsite: &'static Callsite) -> bool {
    gate::marked(callsite.category(), callsite.level())
}

fn word(values: &[Value<'_>], index: usize) -> u64 {
    values.get(index).map_or(0, |value| encode(value).1)
}
