//! Putting begins and ends together: what leaves a track nests, and every begin has its end.
//!
//! Events are held until nothing on their track is open, so that a span which crosses another can still be moved aside.
//! A track that holds more than [`HELD`] lets go of what it has, and a span that crosses after that is shown in two
//! parts.

use crate::decode::{Arena, Event, Place, Values};
use crate::record::Kind;

/// Where an event is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TrackId {
    /// A thread, by its ring's serial number; `aside` counts tracks for spans that cross others or lie too deep.
    Thread { ring: u64, aside: u16 },
    /// A track.
    Async { id: u64, parent: u64, aside: u16 },
}

/// What happens at an instant of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Begin,
    End,
    /// The recording stopped, or the room ran out, before the span did.
    Unfinished,
    Mark,
    Counter,
}

/// An event with its time and track, its values in the track's arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) ns: u64,
    pub(crate) what: What,
    pub(crate) callsite: u32,
    pub(crate) name: Option<Place>,
    pub(crate) values: Values,
    pub(crate) track: TrackId,
}

/// What tracks had to give up or bend.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Bent {
    /// Ends whose begin was not kept.
    pub(crate) beginless: u64,
    /// Spans still open when the recording stopped.
    pub(crate) unfinished: u64,
    /// Spans moved aside because they cross another.
    pub(crate) aside: u64,
    /// Spans shown in two parts.
    pub(crate) split: u64,
}

/// Receives what a track lets go of.
pub(crate) type Out<'a> = &'a mut dyn FnMut(&Item, &Arena);

/// Events a track holds before it lets go of them.
pub(crate) const HELD: usize = 1 << 13;

/// Perfetto shows so many spans one in the other on a track, and takes deeper ones for spans without an end
/// (`kMaxDepth` in its `slice_tracker.cc`).
const DEEPEST: usize = 512;
/// More tracks are not begun for deep spans of one thread; half a million deep are shown as they come.
const MOST_BELOW: u16 = 1024;

/// The spans of one thread, whose ends know their begins.
#[derive(Debug)]
pub(crate) struct ThreadTrack {
    ring: u64,
    pub(crate) arena: Arena,
    open: Vec<OpenSpan>,
    held: Vec<Item>,
    /// For each track aside, since when it is free.
    asides: Vec<u64>,
    last_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct OpenSpan {
    position: u64,
    /// Where its begin is held; `None` once let go of.
    held: Option<usize>,
    begin: Item,
}

impl ThreadTrack {
    pub(crate) fn new(ring: u64) -> Self {
        Self {
            ring,
            arena: Arena::default(),
            open: Vec::new(),
            held: Vec::new(),
            asides: Vec::new(),
            last_ns: 0,
        }
    }

    /// Takes an event whose position in the ring is `position`.
    pub(crate) fn add(&mut self, event: &Event, position: u64, ns: u64, bent: &mut Bent) {
        // A thread's stamps do not go back; a later, more exact line through the clocks may place one before.
        let ns = ns.max(self.last_ns);
        self.last_ns = ns;
        let what = match event.kind {
            Kind::Begin => What::Begin,
            Kind::End => return self.end(event, ns, bent),
            Kind::Counter => What::Counter,
            Kind::Mark | Kind::AsyncBegin | Kind::AsyncEnd | Kind::Complete | Kind::AsyncMark => {
                What::Mark
            }
            Kind::Values | Kind::Text => return,
        };
        let mut track = TrackId::Thread { ring: self.ring, aside: 0 };
        if what == What::Begin && self.open.len() >= DEEPEST {
            track = self.below(self.open.len() / DEEPEST);
        }
        let item = Item {
            ns,
            what,
            callsite: event.callsite,
            name: event.name,
            values: event.values,
            track,
        };
        if what == What::Begin {
            self.open.push(OpenSpan { position, held: Some(self.held.len()), begin: item });
        }
        self.held.push(item);
    }

    /// The track of spans that lie deeper than one track shows, so many tracks down; those of crossing spans are
    /// counted from the other end.
    fn below(&self, tracks: usize) -> TrackId {
        let tracks = u16::try_from(tracks).unwrap_or(MOST_BELOW).min(MOST_BELOW);
        TrackId::Thread { ring: self.ring, aside: u16::MAX - tracks }
    }

    fn end(&mut self, event: &Event, ns: u64, bent: &mut Bent) {
        let Some(at) = self.open.iter().rposition(|open| open.position == event.words[0]) else {
            bent.beginless += 1;
            return;
        };
        for later in at + 1..self.open.len() {
            if self.open[later].begin.track == self.open[at].begin.track {
                self.move_aside(later, ns, bent);
            }
        }
        let open = self.open.remove(at);
        if let TrackId::Thread { aside: 1.., .. } = open.begin.track {
            self.leave(open.begin.track, ns);
        }
        self.held.push(Item { ns, what: What::End, values: event.values, ..open.begin });
    }

    /// The span outlives the one it began in: from here on it has a track of its own.
    fn move_aside(&mut self, at: usize, ns: u64, bent: &mut Bent) {
        let began = if self.open[at].held.is_some() { self.open[at].begin.ns } else { ns };
        let aside = self.asides.iter().position(|&free| free <= began).unwrap_or(self.asides.len());
        let track = TrackId::Thread {
            ring: self.ring,
            aside: u16::try_from(aside + 1).unwrap_or(u16::MAX).min(u16::MAX - MOST_BELOW - 1),
        };
        let before = self.open[at].begin;
        if let Some(held) = self.open[at].held {
            bent.aside += 1;
            self.held[held].track = track;
        } else {
            bent.split += 1;
            self.held.push(Item { ns, what: What::End, values: Values::default(), ..before });
            self.held.push(Item { ns, track, values: Values::default(), ..before });
        }
        if aside == self.asides.len() {
            self.asides.push(0);
        }
        self.asides[aside] = u64::MAX;
        self.open[at].begin.track = track;
    }

    fn leave(&mut self, track: TrackId, ns: u64) {
        let TrackId::Thread { aside, .. } = track else { return };
        if let Some(free) = self.asides.get_mut(usize::from(aside).wrapping_sub(1)) {
            *free = ns;
        }
    }

    /// Lets go of what lies before the first open span; of everything when that is too much to hold.
    pub(crate) fn settle(&mut self, out: Out<'_>) {
        let Some(first) = self.open.first() else { return self.let_go(out) };
        if self.is_full() {
            return self.let_go(out);
        }
        let before = first.held.unwrap_or(0);
        self.held.drain(..before).for_each(|item| out(&item, &self.arena));
        for open in &mut self.open {
            open.held = open.held.map(|held| held - before);
        }
    }

    /// Ends what is open at `ns` and lets go of everything.
    pub(crate) fn finish(&mut self, ns: u64, bent: &mut Bent, out: Out<'_>) {
        while let Some(open) = self.open.pop() {
            bent.unfinished += 1;
            let ns = ns.max(self.last_ns);
            self.held.push(Item {
                ns,
                what: What::Unfinished,
                values: Values::default(),
                ..open.begin
            });
        }
        self.let_go(out);
    }

    fn let_go(&mut self, out: Out<'_>) {
        self.held.drain(..).for_each(|item| out(&item, &self.arena));
        if self.open.is_empty() {
            self.arena.clear();
            return;
        }
        // Open spans keep their names.
        let mut kept = Arena::default();
        for open in &mut self.open {
            open.held = None;
            open.begin.name = open.begin.name.map(|name| kept.keep_text(self.arena.text(name)));
            open.begin.values = Values::default();
        }
        self.arena = kept;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.held.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= HELD || self.arena.is_large()
    }
}

/// The spans of one track: begun and ended anywhere, or known only when over.
#[derive(Debug)]
pub(crate) struct AsyncTrack {
    id: u64,
    parent: u64,
    pub(crate) arena: Arena,
    open: Vec<Item>,
    /// Ends seen before their begins: another thread's ring was read a moment earlier.
    early: Vec<(Event, u64)>,
    done: Vec<Stretch>,
    let_go_until: u64,
    touched: bool,
}

/// A span with both its times, or a mark.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    item: Item,
    until: u64,
    end: What,
    end_values: Values,
}

impl AsyncTrack {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            parent: 0,
            arena: Arena::default(),
            open: Vec::new(),
            early: Vec::new(),
            done: Vec::new(),
            let_go_until: 0,
            touched: false,
        }
    }

    pub(crate) const fn is_child(&self) -> bool {
        self.parent != 0
    }

    /// Takes an event of this track. `until` is the later time of a span known when over.
    pub(crate) fn add(&mut self, event: &Event, ns: u64, until: u64) {
        self.touched = true;
        self.parent = if event.parent == 0 { self.parent } else { event.parent };
        let track = TrackId::Async { id: self.id, parent: self.parent, aside: 0 };
        let mut item = Item {
            ns,
            what: What::Begin,
            callsite: event.callsite,
            name: event.name,
            values: event.values,
            track,
        };
        match event.kind {
            Kind::AsyncBegin => {
                self.open.push(item);
                self.retry_early();
            }
            Kind::AsyncEnd => {
                if !self.end(event, ns) {
                    self.early.push((*event, ns));
                }
            }
            Kind::Complete => self.done.push(Stretch {
                item,
                until: until.max(ns),
                end: What::End,
                end_values: Values::default(),
            }),
            Kind::Begin
            | Kind::End
            | Kind::Mark
            | Kind::Counter
            | Kind::AsyncMark
            | Kind::Values
            | Kind::Text => {
                item.what = What::Mark;
                self.done.push(Stretch {
                    item,
                    until: ns,
                    end: What::Mark,
                    end_values: Values::default(),
                });
            }
        }
    }

    fn end(&mut self, event: &Event, ns: u64) -> bool {
        let same = |open: &Item| {
            open.callsite == event.callsite
                && open.ns <= ns
                && open.name.map(|name| self.arena.text(name))
                    == event.name.map(|name| self.arena.text(name))
        };
        let Some(at) = self.open.iter().rposition(same) else { return false };
        let item = self.open.remove(at);
        self.done.push(Stretch { item, until: ns, end: What::End, end_values: event.values });
        true
    }

    fn retry_early(&mut self) {
        for (event, ns) in std::mem::take(&mut self.early) {
            if !self.end(&event, ns) {
                self.early.push((event, ns));
            }
        }
    }

    /// Lets go of what is held when nothing is open and nothing came lately; `true` when the track can be forgotten.
    pub(crate) fn settle(&mut self, bent: &mut Bent, out: Out<'_>) -> bool {
        let touched = std::mem::replace(&mut self.touched, false);
        if touched && self.done.len() < HELD {
            return false;
        }
        if !touched {
            bent.beginless += self.early.drain(..).count() as u64;
        }
        if self.open.is_empty() || self.done.len() >= HELD {
            self.let_go(bent, out);
        }
        self.open.is_empty() && self.early.is_empty() && self.done.is_empty()
    }

    /// Ends what is open at `ns` and lets go of everything.
    pub(crate) fn finish(&mut self, ns: u64, bent: &mut Bent, out: Out<'_>) {
        bent.beginless += self.early.drain(..).count() as u64;
        for item in std::mem::take(&mut self.open) {
            bent.unfinished += 1;
            let until = ns.max(item.ns);
            self.done.push(Stretch {
                item,
                until,
                end: What::Unfinished,
                end_values: Values::default(),
            });
        }
        self.let_go(bent, out);
    }

    fn let_go(&mut self, bent: &mut Bent, out: Out<'_>) {
        let mut stretches = std::mem::take(&mut self.done);
        // The span that begins first is outermost, and of two that begin together the longer one.
        stretches.sort_by(|a, b| a.item.ns.cmp(&b.item.ns).then(b.until.cmp(&a.until)));
        let mut aside = 0;
        // What began before the last time lies over spans that have left: it goes aside.
        let (mut rest, mut late): (Vec<_>, Vec<_>) =
            stretches.into_iter().partition(|stretch| stretch.item.ns >= self.let_go_until);
        let until = rest.iter().chain(&late).map(|stretch| stretch.until).max();
        while !rest.is_empty() || !late.is_empty() {
            let crossing = self.nest(rest, aside, out);
            bent.aside += crossing.len() as u64;
            rest = late.drain(..).chain(crossing).collect();
            rest.sort_by(|a, b| a.item.ns.cmp(&b.item.ns).then(b.until.cmp(&a.until)));
            aside = aside.saturating_add(1);
        }
        self.let_go_until = self.let_go_until.max(until.unwrap_or(0));
        if self.open.is_empty() && self.early.is_empty() {
            self.arena.clear();
        }
    }

    /// Lets go of those that nest, in the order of their times; answers the others.
    fn nest(&self, stretches: Vec<Stretch>, aside: u16, out: Out<'_>) -> Vec<Stretch> {
        let mut crossing = Vec::new();
        let mut open: Vec<Stretch> = Vec::new();
        let track = TrackId::Async { id: self.id, parent: self.parent, aside };
        let leave = |open: Stretch, out: Out<'_>| {
            let ended = Item {
                ns: open.until,
                what: open.end,
                track,
                values: open.end_values,
                ..open.item
            };
            out(&ended, &self.arena);
        };
        for stretch in stretches {
            while open.last().is_some_and(|top| top.until <= stretch.item.ns) {
                open.pop().into_iter().for_each(|top| leave(top, out));
            }
            let marks = stretch.item.what == What::Mark;
            if !marks && open.last().is_some_and(|top| stretch.until > top.until) {
                crossing.push(stretch);
                continue;
            }
            out(&Item { track, ..stretch.item }, &self.arena);
            if !marks {
                open.push(stretch);
            }
        }
        while let Some(top) = open.pop() {
            leave(top, out);
        }
        crossing
    }
}
