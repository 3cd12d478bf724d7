//! The drain: takes records from all rings, places them in time, and hands what is whole to a sink.

use std::collections::HashMap;
use std::sync::Arc;

use crate::callsite::{self, Callsite};
use crate::category::Category;
use crate::clock::Reading;
use crate::decode::{self, Arena, Event, Stored};
use crate::record::{FOLLOWS, Kind, MONOTONIC, NAMELESS, Words, value_kind};
use crate::ring::{self, Ring, Thread};
use crate::timeline::Timeline;
use crate::tracks::{AsyncTrack, Bent, Item, ThreadTrack, TrackId, What};

/// An event as a sink gets it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) ns: u64,
    pub(crate) track: TrackId,
    pub(crate) what: What,
    pub(crate) callsite: Option<(u32, &'static Callsite)>,
    pub(crate) name: &'a str,
    /// The name is the event's own, not that of its callsite.
    pub(crate) own_name: bool,
    pub(crate) category: Category,
    pub(crate) values: &'a [Stored],
    pub(crate) arena: &'a Arena,
}

/// Where events go.
pub(crate) trait Sink {
    /// A thread whose events follow.
    fn thread(&mut self, ring: u64, thread: &Thread);
    /// An event; those of one track come in the order of their times, as far as they overlap.
    fn event(&mut self, event: &Placed<'_>);
    /// Here `count` events of a thread are missing.
    fn lost(&mut self, ring: u64, ns: u64, count: u64);
    /// No event of this ring will follow.
    fn gone(&mut self, _ring: u64) {}
    /// The clocks at one moment.
    fn reading(&mut self, reading: &Reading);
}

/// What a recording did, and what it could not do.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Account {
    /// Events read from the rings.
    pub events: u64,
    /// Events that found their ring full; a span counts once, for it has no end without a begin.
    pub lost: u64,
    /// Records overwritten by younger ones before they were read, in flight-recorder mode.
    pub overwritten: u64,
    /// Events of threads that had no ring: too many threads, or a thread that was ending. A span counts once.
    pub homeless: u64,
    /// Spans of `tracing` beyond the 16,777,216 that may live at once: their events are missing.
    pub refused: u64,
    /// Spans of `tracing` that were never entered, though others of their place were: when they were made is not known,
    /// and they are missing. Later ones of the place are there.
    pub unentered: u64,
    /// Texts that were cut at their limit.
    pub texts_cut: u64,
    /// Ends whose begin was not kept: overwritten, or before the recording.
    pub beginless: u64,
    /// Spans that were still open at the end; they end there, marked `unfinished`.
    pub unfinished: u64,
    /// Spans that crossed another and lie on a track of their own.
    pub aside: u64,
    /// Spans shown in two parts, because they crossed one that was already written.
    pub split: u64,
    /// Threads that wrote something.
    pub threads: u64,
    /// What one event cost the thread that emitted it, measured when the recording ended.
    pub ns_per_event: f64,
    /// Time spent reading rings and encoding.
    pub drain_ns: u64,
}

impl Account {
    /// Events known to be missing.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.lost + self.overwritten + self.homeless + self.refused + self.unentered
    }
}

/// Reads rings until the recording is over.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) timeline: Timeline,
    readers: HashMap<u64, Reader>,
    tracks: HashMap<u64, AsyncTrack>,
    sites: Vec<&'static Callsite>,
    bent: Bent,
    account: Account,
    /// Whether rings of dead threads leave the registry once read: a flight recorder keeps them.
    consumes: bool,
}

/// How far a ring was read.
struct Reader {
    ring: Arc<Ring>,
    next: u64,
    /// Copied, but younger than the last reading of the clocks.
    waiting: Vec<Words>,
    waiting_first: u64,
    lost: u64,
    track: ThreadTrack,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("next", &self.next).finish_non_exhaustive()
    }
}

/// An event of a track, waiting to be put in order with those of other threads.
struct Tracked {
    event: Event,
    ns: u64,
    until: u64,
}

impl Collector {
    pub(crate) fn new(timeline: Timeline, consumes: bool) -> Self {
        Self {
            consumes,
            timeline,
            readers: HashMap::new(),
            tracks: HashMap::new(),
            sites: Vec::new(),
            bent: Bent::default(),
            account: Account::default(),
        }
    }

    /// Reads what is new and hands over what is whole. Everything stamped before the timeline's last reading is placed.
    pub(crate) fn drain(&mut self, rings: &[Arc<Ring>], sink: &mut dyn Sink) {
        let begun = std::time::Instant::now();
        let until = self.timeline.until();
        let mut serials: Vec<u64> = rings.iter().map(|ring| self.read(ring, sink)).collect();
        // Rings that left the registry may still hold back records.
        serials.extend(
            self.readers
                .keys()
                .filter(|serial| !serials.contains(serial))
                .copied()
                .collect::<Vec<_>>(),
        );
        self.sites.extend(callsite::since(self.sites.len()));
        let mut tracked = Vec::new();
        let mut arena = Arena::default();
        for serial in serials {
            self.place(serial, until, &mut tracked, &mut arena, sink);
        }
        self.place_tracks(tracked, &arena);
        for id in self.track_order() {
            let Self { tracks, bent, sites, .. } = self;
            let Some(track) = tracks.get_mut(&id) else { continue };
            if track.settle(bent, &mut |item, arena| hand_over(item, arena, sites, sink)) {
                tracks.remove(&id);
            }
        }
        self.account.drain_ns += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }

    /// The recording is over: what is open ends here, and everything is handed over.
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink) -> Account {
        let begun = std::time::Instant::now();
        let end = self.timeline.last().boot_ns;
        let order = self.track_order();
        let Self { readers, tracks, bent, sites, account, .. } = self;
        let mut serials: Vec<u64> = readers.keys().copied().collect();
        serials.sort_unstable();
        for reader in serials
            .iter()
            .filter_map(|serial| readers.remove(serial))
            .collect::<Vec<_>>()
            .iter_mut()
        {
            reader.track.finish(end, bent, &mut |item, arena| hand_over(item, arena, sites, sink));
            account.texts_cut += reader.ring.cut();
        }
        for mut track in order.into_iter().filter_map(|id| tracks.remove(&id)) {
            track.finish(end, bent, &mut |item, arena| hand_over(item, arena, sites, sink));
        }
        #[cfg(feature = "tracing")]
        let living = self.hand_over_unentered(end, sink);
        #[cfg(not(feature = "tracing"))]
        let living = 0;
        let Self { bent, account, .. } = self;
        let registry = ring::registry();
        account.homeless = registry.homeless;
        account.refused = registry.refused;
        account.unentered = registry.unentered + living;
        account.overwritten += registry.evicted;
        drop(registry);
        account.drain_ns += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let Bent { beginless, unfinished, aside, split } = *bent;
        Account { beginless, unfinished, aside, split, ..*account }
    }

    /// The lifetimes, up to here, of spans that were never entered. Answers how many cannot be shown.
    #[cfg(feature = "tracing")]
    fn hand_over_unentered(&mut self, end: u64, sink: &mut dyn Sink) -> u64 {
        use crate::facade::{slab, unentered};
        let Self { timeline, sites, bent, .. } = self;
        let mut arena = Arena::default();
        unentered::living(|site, stamp, values| {
            bent.unfinished += 1;
            arena.clear();
            let begin = Item {
                ns: timeline.place(stamp).min(end),
                what: What::Begin,
                callsite: site.span.id(),
                name: None,
                values: arena.keep_values(values),
                track: TrackId::Async { id: slab::free_track(), parent: 0, aside: 0 },
            };
            let values = arena.keep_values(&[]);
            hand_over(&begin, &arena, sites, sink);
            hand_over(
                &Item { ns: end, what: What::Unfinished, values, ..begin },
                &arena,
                sites,
                sink,
            );
        })
    }

    /// Tracks under no other first, so that they are described, with their names, before those under them.
    fn track_order(&self) -> Vec<u64> {
        let mut order: Vec<(bool, u64)> =
            self.tracks.iter().map(|(&id, track)| (track.is_child(), id)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, id)| id).collect()
    }

    fn read(&mut self, ring: &Arc<Ring>, sink: &mut dyn Sink) -> u64 {
        let serial = ring.base();
        let reader = self.readers.entry(serial).or_insert_with(|| {
            self.account.threads += 1;
            sink.thread(serial, &ring.thread);
            Reader {
                ring: ring.clone(),
                next: serial,
                waiting: Vec::new(),
                waiting_first: serial,
                lost: 0,
                track: ThreadTrack::new(serial),
            }
        });
        let taken = ring.take(reader.next);
        reader.next = taken.first + taken.records.len() as u64;
        ring.release(reader.next);
        self.account.overwritten += taken.overwritten;
        if reader.waiting.is_empty() || taken.overwritten > 0 {
            self.account.overwritten += reader.waiting.len() as u64;
            reader.waiting = taken.records;
            reader.waiting_first = taken.first;
        } else {
            reader.waiting.extend(taken.records);
        }
        if taken.overwritten > 0 {
            let ns = reader.waiting.first().map_or_else(
                || self.timeline.last().boot_ns,
                |words| self.timeline.place(words[1]),
            );
            sink.lost(serial, ns, taken.overwritten);
        }
        serial
    }

    /// Places a ring's records that are older than the last reading of the clocks.
    fn place(
        &mut self,
        serial: u64,
        until: u64,
        tracked: &mut Vec<Tracked>,
        shared: &mut Arena,
        sink: &mut dyn Sink,
    ) {
        let Self { readers, sites, bent, account, timeline, .. } = self;
        let Some(reader) = readers.get_mut(&serial) else { return };
        let mut used = 0;
        let mut out = |item: &Item, arena: &Arena| hand_over(item, arena, sites, sink);
        while let Some(words) = reader.waiting.get(used) {
            let on_thread = !on_track(words[0]);
            // What is left of an event whose head was overwritten has no stamp.
            let has_ticks = words[0] & (MONOTONIC | FOLLOWS) == 0;
            if has_ticks && words[1] > until {
                break;
            }
            let arena = if on_thread { &mut reader.track.arena } else { &mut *shared };
            let (event, count) = decode::next(&reader.waiting[used..], arena);
            let position = reader.waiting_first + used as u64;
            used += count;
            let Some(event) = event else { continue };
            account.events += 1;
            let at = |stamp, monotonic| {
                if monotonic { timeline.place_monotonic(stamp) } else { timeline.place(stamp) }
            };
            let ns = at(event.stamp, event.monotonic);
            if on_thread {
                reader.track.add(&event, position, ns, bent);
                if reader.track.is_full() {
                    reader.track.settle(&mut out);
                }
                continue;
            }
            let complete = event.kind == Kind::Complete;
            let until = if complete { at(event.words[0], event.later_monotonic) } else { ns };
            tracked.push(Tracked { event, ns, until });
        }
        reader.waiting.drain(..used);
        reader.waiting_first += used as u64;
        reader.track.settle(&mut out);
        self.count_lost(serial, sink);
    }

    /// Counts what a ring had no room for, and forgets the ring when nothing more will come from it.
    fn count_lost(&mut self, serial: u64, sink: &mut dyn Sink) {
        let Self { readers, account, timeline, .. } = self;
        let Some(reader) = readers.get_mut(&serial) else { return };
        let lost = reader.ring.lost();
        if lost > reader.lost && reader.waiting.is_empty() {
            sink.lost(serial, timeline.last().boot_ns, lost - reader.lost);
            account.lost += lost - reader.lost;
            reader.lost = lost;
        }
        if self.consumes
            && reader.ring.done()
            && reader.waiting.is_empty()
            && reader.track.is_idle()
            && reader.ring.is_read(reader.next)
        {
            account.texts_cut += reader.ring.cut();
            readers.remove(&serial);
            sink.gone(serial);
            ring::registry().rings.retain(|ring| ring.base() != serial);
        }
    }

    fn place_tracks(&mut self, mut tracked: Vec<Tracked>, arena: &Arena) {
        tracked.sort_by_key(|tracked| tracked.ns);
        for Tracked { mut event, ns, until } in tracked {
            let id = if event.kind == Kind::Complete { event.words[1] } else { event.words[0] };
            let track = self.tracks.entry(id).or_insert_with(|| AsyncTrack::new(id));
            event.values = track.arena.keep(arena, arena.values(event.values));
            event.name = event.name.map(|name| track.arena.keep_text(arena.text(name)));
            track.add(&event, ns, until);
        }
    }
}

fn on_track(head: u64) -> bool {
    matches!(
        Kind::from_bits(head),
        Some(Kind::AsyncBegin | Kind::AsyncEnd | Kind::AsyncMark | Kind::Complete)
    )
}

/// Finds the names behind an item's numbers.
fn hand_over(item: &Item, arena: &Arena, sites: &[&'static Callsite], sink: &mut dyn Sink) {
    let at = |number: u32| sites.get((number as usize).wrapping_sub(1)).map(|&site| (number, site));
    let mut site = at(item.callsite);
    let mut values = arena.values(item.values);
    let mut category = None;
    let of_name = if item.callsite == NAMELESS { values.split_first() } else { None };
    if let Some((&(kind, word), rest)) = of_name {
        // What brings its own name says in a first value whose callsite's it is, or what category it has.
        match kind {
            value_kind::SIGNED => site = at(word as u32),
            _ => category = Some(Category::from_bits(word)),
        }
        values = rest;
    }
    let of_site = site.map_or(Category::NONE, |(_, site)| site.category());
    let own = item.name.map(|name| arena.text(name));
    sink.event(&Placed {
        ns: item.ns,
        track: item.track,
        what: item.what,
        callsite: site,
        name: own.unwrap_or_else(|| site.map_or("", |(_, site)| site.name())),
        own_name: own.is_some(),
        category: category.unwrap_or(of_site),
        values,
        arena,
    });
}
