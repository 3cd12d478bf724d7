//! Emitting: from a callsite and its values to records, and to markers and probes.

use std::marker::PhantomData;

use crate::callsite::Callsite;
use crate::category::Category;
use crate::clock::{Stamp, counter, ticks};
use crate::marker;
use crate::probe::detours;
use crate::record::{self, Kind, LATER_MONOTONIC, Long, MONOTONIC, NAMELESS, Words, encode};
use crate::ring::{self, Claim, NOWHERE};
use crate::value::Value;
use crate::{gate, probe};

/// A span of this thread; ends when dropped.
#[must_use = "a span ends when it is dropped: give it a name, as in `let _span = …;`"]
#[derive(Debug)]
pub struct Span {
    /// Position of the begin in this thread's ring, which says which span ends; [`NOWHERE`] for a span that is not
    /// wanted. What the end must know beside is in the bits above, so that one test tells a span that is off.
    begin: u64,
    /// `None` unless [`ELSEWHERE`].
    callsite: Option<&'static Callsite>,
    /// Its end belongs on the thread that began it.
    _here: PhantomData<*const ()>,
}

/// The begin took the slow path, and the end does.
const ELSEWHERE: u64 = 1 << 63;
/// A marker was written for the begin.
const MARKED: u64 = 1 << 62;
const _: () = assert!(ring::BEYOND <= MARKED, "a position has none of these bits");

impl Span {
    /// A span that is not wanted.
    #[inline(always)]
    pub const fn off() -> Self {
        Self { begin: NOWHERE, callsite: None, _here: PhantomData }
    }

    /// Begins a span. Callers ask [`Callsite::enabled`] first, as `span!` does.
    #[inline(always)]
    pub fn begin<const N: usize>(callsite: &'static Callsite, values: [Value<'_>; N]) -> Self {
        if detours() != 0 {
            // A copy, so that the values of the fast path need not lie in memory.
            let begin = begin_elsewhere(callsite, callsite.name(), &{ values });
            return Self { begin, callsite: Some(callsite), _here: PhantomData };
        }
        let begin = emit(Kind::Begin, callsite, values, Claim::Opens);
        Self { begin, callsite: None, _here: PhantomData }
    }

    /// As [`Span::begin`], by another name than the callsite's: one that is known only at run time.
    pub fn begin_named<const N: usize>(
        callsite: &'static Callsite,
        name: &str,
        values: [Value<'_>; N],
    ) -> Self {
        if detours() != 0 {
            let begin = begin_elsewhere(callsite, name, &values);
            return Self { begin, callsite: Some(callsite), _here: PhantomData };
        }
        let begin = emit_slice(Kind::Begin, callsite, name, &values, Claim::Opens);
        Self { begin, callsite: None, _here: PhantomData }
    }

    /// Whether it is kept anywhere: values that cost something to find need not be found otherwise.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.begin != NOWHERE
    }

    /// Ends it here, with a mark of when: the same as dropping it.
    pub fn end(self) {}
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if self.begin == NOWHERE {
            return;
        }
        match self.callsite {
            None => {
                ring::write(
                    [record::head(Kind::End, NAMELESS, 0, 0), counter(), self.begin],
                    Claim::Closes,
                );
            }
            Some(callsite) => end_elsewhere(callsite, self.begin),
        }
    }
}

#[cold]
#[inline(never)]
fn end_elsewhere(callsite: &'static Callsite, begin: u64) {
    let position = begin & !(ELSEWHERE | MARKED);
    if position != NOWHERE {
        ring::write([record::head(Kind::End, NAMELESS, 0, 0), ticks(), position], Claim::Closes);
    }
    if probe::attached() {
        probe::end(callsite.name(), 0, 0);
    }
    if begin & MARKED != 0 {
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
    /// A span that is not wanted.
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

/// As [`async_end`], with what is known only at the end. The values stand for the callsite's fields in their order;
/// one that
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
    let head = callsite.head() | record::head(Kind::Complete, NAMELESS, 0, 0) | clocks;
    let words = [head, from.value, until.value, track.id];
    if N == 0 && track.parent == 0 {
        return ring::write(words, Claim::Alone) != NOWHERE;
    }
    complete_long(words, track, &values)
}

#[cold]
fn complete_long(mut words: Words, track: Track, values: &[Value<'_>]) -> bool {
    if track.parent == 0 {
        return write_long(words, None, values, Claim::Alone) != NOWHERE;
    }
    // The parent travels as a first value that is no field's.
    words[0] |= u64::from(record::value_kind::UNSIGNED) << 8;
    let parent = [Value::Unsigned(track.parent)];
    let all: Vec<_> = parent.into_iter().chain(values.iter().copied()).collect();
    write_long(words, None, &all, Claim::Alone) != NOWHERE
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
    let head = callsite.head() | record::head(kind, NAMELESS, 0, 0) | clock;
    let words = [head, stamp.value, track.id, track.parent];
    let written = if values.is_empty() {
        ring::write(words, Claim::Alone)
    } else {
        write_long(words, None, values, Claim::Alone)
    };
    written != NOWHERE
}

/// A point in time on this thread. Callers ask [`Callsite::enabled`] first.
#[inline(always)]
pub fn mark<const N: usize>(callsite: &'static Callsite, values: [Value<'_>; N]) {
    if detours() != 0 {
        return mark_elsewhere(callsite, callsite.name(), &{ values });
    }
    emit(Kind::Mark, callsite, values, Claim::Alone);
}

/// As [`mark`], by another name than the callsite's: one that is known only at run time.
pub fn mark_named<const N: usize>(callsite: &'static Callsite, name: &str, values: [Value<'_>; N]) {
    if detours() != 0 {
        return mark_elsewhere(callsite, name, &values);
    }
    emit_slice(Kind::Mark, callsite, name, &values, Claim::Alone);
}

/// A number as it stands at this moment. Callers ask [`Callsite::enabled`] first.
#[inline(always)]
pub fn counter_value<'a>(callsite: &'static Callsite, value: impl Into<Value<'a>>) {
    let value = value.into();
    if detours() != 0 {
        return counter_elsewhere(callsite, &{ value });
    }
    emit(Kind::Counter, callsite, [value], Claim::Alone);
}

/// Writes an event in one record if its values are no texts and at most two, stamped by the counter.
#[inline(always)]
fn emit<const N: usize>(
    kind: Kind,
    callsite: &'static Callsite,
    values: [Value<'_>; N],
    claim: Claim,
) -> u64 {
    let head = callsite.head();
    if N > 2 || values.iter().any(|value| matches!(value, Value::Text(_))) {
        let first = [head | record::head(kind, NAMELESS, 0, 0), counter(), 0, 0];
        return write_long(first, None, &{ values }, claim);
    }
    if N == 0 {
        return ring::write([head | record::head(kind, NAMELESS, 0, 0), counter()], claim);
    }
    let (a_kind, a) = values.first().map_or((0, 0), encode);
    let (b_kind, b) = values.get(1).map_or((0, 0), encode);
    ring::write([head | record::head(kind, NAMELESS, a_kind, b_kind), counter(), a, b], claim)
}

/// The same for values that lie in memory already, and for names of their own.
#[cold]
fn emit_slice(
    kind: Kind,
    callsite: &'static Callsite,
    name: &str,
    values: &[Value<'_>],
    claim: Claim,
) -> u64 {
    if !std::ptr::eq(name, callsite.name()) {
        let first = [record::head(kind, NAMELESS, 0, 0), ticks(), 0, 0];
        return write_named(first, name, callsite, values, claim);
    }
    let first = [callsite.head() | record::head(kind, NAMELESS, 0, 0), ticks(), 0, 0];
    if values.is_empty() {
        ring::write(first, claim)
    } else {
        write_long(first, None, values, claim)
    }
}

#[cold]
#[inline(never)]
pub(crate) fn write_long(
    first: Words,
    name: Option<&str>,
    values: &[Value<'_>],
    claim: Claim,
) -> u64 {
    let long = Long::new(first, name, values);
    ring::write_all(long.records(), claim, long.cut)
}

/// An event of `callsite` with another name than that has: the name lies in the ring behind it, and the callsite's
/// number before the
/// values.
#[cold]
#[inline(never)]
pub(crate) fn write_named(
    first: Words,
    name: &str,
    callsite: &'static Callsite,
    values: &[Value<'_>],
    claim: Claim,
) -> u64 {
    let site = Value::Signed(i64::from(callsite.id()));
    let mut near = [Value::Absent; 17];
    if let Some(all) = near.get_mut(..=values.len()) {
        all[0] = site;
        all[1..].copy_from_slice(values);
        return write_long(first, Some(name), all, claim);
    }
    let all: Vec<_> = std::iter::once(site).chain(values.iter().copied()).collect();
    write_long(first, Some(name), &all, claim)
}

/// An event without a callsite: its name lies in the ring behind it, and its category before the values.
pub(crate) fn emit_named(
    kind: Kind,
    category: Category,
    name: &str,
    words: [u64; 2],
    claim: Claim,
) -> u64 {
    let first = [record::head(kind, NAMELESS, 0, 0), ticks(), words[0], words[1]];
    write_long(first, Some(name), &[Value::Unsigned(category.bits())], claim)
}

/// A number as it stands at this moment, of a counter whose name is known only at run time. Callers ask whether its
/// category is [`enabled`](crate::enabled) first.
pub fn counter_named(category: Category, name: &str, value: i64) {
    emit_counter(category, name, value);
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

/// Whether a sink beside the ring listens.
#[inline(always)]
pub(crate) fn elsewhere() -> bool {
    detours() & !probe::NO_COUNTER != 0
}

#[cold]
#[inline(never)]
fn begin_elsewhere(callsite: &'static Callsite, name: &str, values: &[Value<'_>]) -> u64 {
    if probe::attached() {
        probe::begin(name, word(values, 0), word(values, 1));
    }
    let begin = if kept(callsite) {
        emit_slice(Kind::Begin, callsite, name, values, Claim::Opens)
    } else {
        NOWHERE
    };
    let marked = wants_marker(callsite) && marker::begin(name);
    begin | ELSEWHERE | if marked { MARKED } else { 0 }
}

#[cold]
#[inline(never)]
fn mark_elsewhere(callsite: &'static Callsite, name: &str, values: &[Value<'_>]) {
    if kept(callsite) {
        emit_slice(Kind::Mark, callsite, name, values, Claim::Alone);
    }
    if probe::attached() {
        probe::mark(name, word(values, 0), word(values, 1));
    }
    if wants_marker(callsite) {
        marker::instant(name);
    }
}

#[cold]
#[inline(never)]
fn counter_elsewhere(callsite: &'static Callsite, value: &Value<'_>) {
    if kept(callsite) {
        emit_slice(Kind::Counter, callsite, callsite.name(), &[*value], Claim::Alone);
    }
    let (_, word) = encode(value);
    if probe::attached() {
        probe::counter(callsite.name(), word, 0);
    }
    if wants_marker(callsite) {
        let whole = if let Value::Float(value) = value { *value as i64 } else { word as i64 };
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
