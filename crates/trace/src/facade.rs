//! The `tracing` facade: what its subscriber and its layer share.
//!
//! An event is a mark named by its message. A span is a slice of the thread for every time it is entered; if it is
//! entered more than once, or on another thread than the one that made it, it is asynchronous: its lifetime lies on
//! a track of its own and a flow joins its polls. Once a place has made an asynchronous span, its further spans are
//! stamped when they are made; the lifetime of the very first begins with its first poll. A span that is never entered
//! has a lifetime alone (`unentered.rs`).
//!
//! Cost: a span is a slot of a slab, two stamps and two records. Texts lie in memory that the slot keeps for the next
//! span.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing_core::span::{Attributes, Record};
use tracing_core::{Event, Metadata, subscriber::Interest};

use crate::category::{Category, Level};
use crate::clock::{counter, ticks};
use crate::record::{self, Kind, NAMELESS};
use crate::ring::{self, Claim, NOWHERE};
use crate::span::{elsewhere, write_long};
use crate::value::Value;
use crate::{gate, probe};

use entered::Entry;
use fields::{All, Fields, Short};
use site::Site;
use slab::Slot;

mod elsewhere_text;
pub(crate) mod entered;
mod fields;
mod kept;
pub(crate) mod site;
pub(crate) mod slab;
pub(crate) mod unentered;

/// What a subscriber or a layer was told to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) category: fn(&Metadata<'_>) -> Category,
    pub(crate) default: Category,
    pub(crate) fields: bool,
}

impl Plan {
    pub(crate) fn new(category: Category) -> Self {
        Self { category: |_| Category::NONE, default: category, fields: true }
    }

    pub(crate) fn category(&self, metadata: &Metadata<'_>) -> Category {
        match (self.category)(metadata) {
            Category::NONE => self.default,
            category => category,
        }
    }

    pub(crate) fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let (category, level) = (self.category(metadata), level(metadata));
        gate::recorded_of_target(category, level, metadata.target())
            || gate::marked(category, level)
            || probe::attached()
    }

    /// The answer that is kept for a place until the gate changes.
    pub(crate) fn interest(&self, metadata: &Metadata<'_>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }
}

/// Answers kept by `tracing` are asked for again when the gate changes; and the environment may open it for markers.
pub(crate) fn follow_the_gate() {
    crate::atrace::atrace_init();
    gate::on_change(tracing_core::callsite::rebuild_interest_cache);
}

pub(crate) fn level(metadata: &Metadata<'_>) -> Level {
    match *metadata.level() {
        tracing_core::Level::ERROR => Level::Error,
        tracing_core::Level::WARN => Level::Warn,
        tracing_core::Level::INFO => Level::Info,
        tracing_core::Level::DEBUG => Level::Debug,
        tracing_core::Level::TRACE => Level::Trace,
    }
}

pub(crate) fn most_verbose() -> tracing_core::LevelFilter {
    use tracing_core::LevelFilter;
    match gate::most_verbose() {
        None => LevelFilter::OFF,
        Some(Level::Error) => LevelFilter::ERROR,
        Some(Level::Warn) => LevelFilter::WARN,
        Some(Level::Info) => LevelFilter::INFO,
        Some(Level::Debug) => LevelFilter::DEBUG,
        Some(Level::Trace) => LevelFilter::TRACE,
    }
}

/// A mark for an event.
#[inline]
pub(crate) fn event(plan: &Plan, event: &Event<'_>) {
    let site = site::of(event.metadata(), plan);
    let recorded = site.is_recorded();
    if !recorded && !is_wanted_elsewhere(site) {
        return;
    }
    let mut fields = Fields::new(site, plan.fields);
    event.record(&mut fields);
    if elsewhere() {
        elsewhere_text::mark(plan, site, event, &fields);
    }
    if recorded {
        fields.emit(site);
    }
}

fn is_wanted_elsewhere(site: &Site) -> bool {
    elsewhere() && (probe::attached() || gate::marked(site.category, site.level))
}

/// A slot for a new span. The fields of one that is not wanted are not looked at.
#[inline(always)]
pub(crate) fn open(plan: &Plan, attributes: &Attributes<'_>) -> u32 {
    let site = site::of(attributes.metadata(), plan);
    let (index, slot) = slab::take();
    let Some(slot) = slot else {
        refuse(site);
        return index;
    };
    if !slot.begin(site, entered::thread()) {
        return open_slowly(plan, site, index, slot, attributes);
    }
    if plan.fields && !attributes.metadata().fields().is_empty() {
        visit(slot, site, attributes);
    }
    index
}

/// A span that is not recorded, is marked, or may be asynchronous.
#[cold]
#[inline(never)]
fn open_slowly(
    plan: &Plan,
    site: &'static Site,
    index: u32,
    slot: &Slot,
    attributes: &Attributes<'_>,
) -> u32 {
    if site.number as usize > slab::MOST_SITES {
        refuse(site);
        slab::give_back(index, slot);
        return slab::NO_SLOT;
    }
    if plan.fields && !attributes.metadata().fields().is_empty() {
        if site.is_recorded() {
            visit(slot, site, attributes);
        }
        if elsewhere() && gate::marked(site.category, site.level) {
            elsewhere_text::tell(site, slot, |visit| attributes.record(visit));
        }
    }
    match site.is_recorded() {
        true if site.is_asynchronous() => begin_lifetime(slot, site, ticks(), attributes),
        true => slot.made(ticks()),
        false => slot.not_awaited(),
    }
    index
}

/// A span that is wanted and has no place to be.
#[cold]
fn refuse(site: &Site) {
    if site.is_recorded() {
        ring::registry().refused += 1;
    }
}

/// Whether a span of this place would go anywhere at this moment.
#[cfg(feature = "layer")]
#[inline]
pub(crate) fn is_wanted(plan: &Plan, metadata: &'static Metadata<'static>) -> bool {
    let site = site::of(metadata, plan);
    site.is_recorded() || is_wanted_elsewhere(site)
}

/// A slot for a span that was made while it was not wanted: it has no fields.
#[cfg(feature = "layer")]
#[cold]
pub(crate) fn open_late(plan: &Plan, metadata: &'static Metadata<'static>) -> u32 {
    let site = site::of(metadata, plan);
    let (index, slot) = slab::take();
    if let Some(slot) = slot {
        slot.begin(site, entered::thread());
    }
    index
}

#[inline]
fn visit(slot: &Slot, site: &'static Site, attributes: &Attributes<'_>) {
    if site.message_at.is_none() {
        let mut short = Short::new(slot);
        attributes.record(&mut short);
        if short.fits {
            return slot.set_short_kinds(short.kinds);
        }
    }
    visit_all(slot, site, attributes);
}

#[inline(never)]
fn visit_all(slot: &Slot, site: &'static Site, attributes: &Attributes<'_>) {
    slot.set_values(|kept| attributes.record(&mut All::new(site, kept, false)));
}

#[cold]
fn begin_lifetime(slot: &Slot, site: &'static Site, stamp: u64, attributes: &Attributes<'_>) {
    let explicit = attributes.parent().and_then(|id| slab::by_id(id.into_u64()));
    let contextual = || entered::top().and_then(slab::get).filter(|_| attributes.is_contextual());
    let parent = explicit.or_else(contextual).map_or(0, Slot::track);
    lifetime(slot, site, stamp, parent);
}

/// Answers whether there was room for it.
fn lifetime(slot: &Slot, site: &'static Site, stamp: u64, parent: u64) -> bool {
    let track = slot.start_track();
    if slot.is_unentered() {
        slot.not_awaited();
    }
    let first = [record::head(Kind::AsyncBegin, site.span.id(), 0, 0), stamp, track, parent];
    let flow = Value::Flow(crate::value::Flow::through(track));
    let begin = slot.with(site.span.fields().len(), Some(flow), false, |values| {
        write_long(first, None, values, Claim::Alone)
    });
    slot.forget_learned();
    begin != NOWHERE
}

/// A poll begins.
#[inline(always)]
pub(crate) fn enter(index: u32) {
    let Some(slot) = slab::get(index) else { return };
    let plain = if probe::detours() == 0 { slot.is_plain(entered::thread()) } else { None };
    let Some(callsite) = plain else { return enter_slowly(index, slot) };
    let stamp = counter();
    slot.entered_first(stamp);
    let entry = Entry::new(index, slot.write_begin(callsite, stamp), false);
    if !entered::push(entry) {
        leave(entry, None);
    }
}

#[cold]
#[inline(never)]
fn enter_slowly(index: u32, slot: &'static Slot) {
    let Some(site) = slot.site() else { return };
    let mut begin = NOWHERE;
    if site.is_recorded() {
        let stamp = ticks();
        let again = slot.entered(stamp);
        site.set_entered();
        begin = if again || slot.track() != 0 || slot.thread() != entered::thread() {
            site.set_asynchronous();
            enter_asynchronous(slot, site, stamp, again)
        } else {
            slot.write_begin(site.span.id(), stamp)
        };
    }
    let marked = elsewhere() && elsewhere_text::begin(site, slot);
    let entry = Entry::new(index, begin, marked);
    if !entered::push(entry) {
        leave(entry, None);
    }
}

#[cold]
fn enter_asynchronous(slot: &Slot, site: &'static Site, stamp: u64, again: bool) -> u64 {
    if slot.track() == 0 && again {
        // What looked like a plain span comes back: it has lived since its first poll.
        lifetime(slot, site, slot.first(), 0);
    }
    let track = slot.track();
    let flow = (track != 0).then(|| Value::Flow(crate::value::Flow::through(track)));
    let fields = if track == 0 { 0 } else { site.span.fields().len() };
    let first = [record::head(Kind::Begin, site.span.id(), 0, 0), stamp, 0, 0];
    slot.with(fields, flow, false, |values| write_long(first, None, values, Claim::Opens))
}

/// A poll ends.
#[inline(always)]
pub(crate) fn exit(index: u32) {
    if let Some(entry) = entered::remove(index) {
        leave(entry, slab::get(index));
    }
}

#[inline]
fn leave(entry: Entry, slot: Option<&'static Slot>) {
    let changed = slot.filter(|slot| slot.take_changed());
    if probe::detours() != 0 || entry.is_marked() || changed.is_some() {
        leave_slowly(entry, slot, changed);
    } else if entry.begin != NOWHERE {
        ring::write(
            [record::head(Kind::End, NAMELESS, 0, 0), counter(), entry.begin],
            Claim::Closes,
        );
    }
}

#[cold]
#[inline(never)]
fn leave_slowly(entry: Entry, slot: Option<&'static Slot>, changed: Option<&'static Slot>) {
    if entry.begin != NOWHERE {
        let first = [record::head(Kind::End, NAMELESS, 0, 0), ticks(), entry.begin, 0];
        match changed {
            // What was learned since the begin travels with the end.
            Some(slot) => {
                slot.with(0, None, true, |values| write_long(first, None, values, Claim::Closes))
            }
            None => ring::write([first[0], first[1], first[2]], Claim::Closes),
        };
    }
    elsewhere_text::end(entry.is_marked(), slot);
}

/// Values that came after the span was made.
pub(crate) fn learn(plan: &Plan, index: u32, values: &Record<'_>) {
    let Some((slot, site)) = slab::get(index).and_then(|slot| Some((slot, slot.site()?))) else {
        return;
    };
    if !plan.fields {
        return;
    }
    if site.is_recorded() {
        slot.learn(|kept| values.record(&mut All::new(site, kept, true)));
    }
    if slot.is_told() || elsewhere() && gate::marked(site.category, site.level) {
        elsewhere_text::tell(site, slot, |visit| values.record(visit));
    }
}

/// `index` follows from `cause`: an arrow from the cause's lifetime to this one's. Both get one if they have none.
#[cold]
pub(crate) fn follow(index: u32, cause: u32) {
    let (Some(slot), Some(cause)) = (slab::get(index), slab::get(cause)) else { return };
    let (Some(site), Some(cause_site)) = (slot.site(), cause.site()) else { return };
    if !site.is_recorded() || !cause_site.is_recorded() {
        return;
    }
    for (slot, site) in [(cause, cause_site), (slot, site)] {
        if slot.track() == 0 {
            lifetime(slot, site, slot.made_at().unwrap_or_else(ticks), 0);
        }
    }
    let flow = crate::value::Flow::through(cause.track() ^ slot.track().rotate_left(32));
    for (slot, kind) in [(cause, &LED_TO), (slot, &FOLLOWS)] {
        let first = [record::head(Kind::AsyncMark, kind.id(), 0, 0), ticks(), slot.track(), 0];
        write_long(first, None, &[Value::Flow(flow)], Claim::Alone);
    }
}

crate::callsite!(LED_TO, Level::Info, Category::APP, "led to", flow);
crate::callsite!(FOLLOWS, Level::Info, Category::APP, "follows from", flow);

/// The span is over.
#[inline(always)]
pub(crate) fn close(index: u32, slot: &Slot) {
    if slot.is_bare() && !slot.is_unentered() {
        return slab::stock(index);
    }
    close_slowly(index, slot);
}

#[cold]
#[inline(never)]
fn close_slowly(index: u32, slot: &Slot) {
    if slot.is_unentered() {
        unentered::close(slot);
    } else if slot.track() != 0 || slot.is_changed() {
        end_lifetime(slot);
    }
    slab::give_back(index, slot);
}

#[cold]
fn end_lifetime(slot: &Slot) {
    let Some(site) = slot.site() else { return };
    if slot.track() == 0 {
        // What was learned after the last poll has no other place.
        if slot.first() == 0 || !site.is_recorded() {
            return;
        }
        lifetime(slot, site, slot.first(), 0);
    }
    let first = [record::head(Kind::AsyncEnd, site.span.id(), 0, 0), ticks(), slot.track(), 0];
    // All that was learned in its life, be it told at the end of a poll as well.
    slot.with(0, None, true, |values| write_long(first, None, values, Claim::Alone));
}

/// A flag that is set once, from any thread.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub(crate) fn set(&self) {
        if !self.is_set() {
            self.0.store(true, Relaxed);
        }
    }
}
