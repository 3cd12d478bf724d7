//! What is known of a `tracing` callsite, found by the address of its metadata.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{OnceLock, PoisonError, RwLock};

use tracing_core::Metadata;

use super::{Flag, Plan, level, slab};
use crate::callsite::Callsite;
use crate::category::{Category, Level};
use crate::gate;

/// A place in the program that uses `tracing`.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) metadata: &'static Metadata<'static>,
    pub(crate) category: Category,
    pub(crate) level: Level,
    /// Events of spans, and of events with another message than the first.
    pub(crate) span: &'static Callsite,
    /// The first message, as the name of a callsite: most places say the same thing every time.
    pub(crate) message: OnceLock<&'static Callsite>,
    /// Position of the field `message`, which is no value but the name.
    pub(crate) message_at: Option<usize>,
    asynchronous: Flag,
    /// A span of this place was entered.
    entered: Flag,
    /// The gate's generation, and in the lowest bit whether events of this place are recorded in it.
    recorded: AtomicU64,
    /// What a slot holds in `plain` for a span of this place made in the gate's latest known generation.
    plain: AtomicU64,
    /// Position in the table of sites plus one.
    pub(crate) number: u32,
}

impl Site {
    fn new(metadata: &'static Metadata<'static>, plan: &Plan, number: u32) -> Self {
        let message_at = metadata.fields().iter().position(|field| field.name() == "message");
        let fields =
            metadata.fields().iter().map(|field| field.name()).filter(|name| *name != "message");
        let fields: &'static [&'static str] = Vec::leak(fields.collect());
        let category = plan.category(metadata);
        let level = level(metadata);
        let (file, line) =
            (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
        let span = Callsite::new(metadata.name(), category, level, fields, file, line);
        let span = Box::leak(Box::new(span.with_target(metadata.target())));
        let message = OnceLock::new();
        Self {
            metadata,
            category,
            level,
            span,
            message,
            message_at,
            asynchronous: Flag::default(),
            entered: Flag::default(),
            recorded: AtomicU64::new(0),
            plain: AtomicU64::new(0),
            number,
        }
    }

    /// A callsite named by a message: made once, for the first message of the place.
    pub(crate) fn named(&self, message: &str) -> &'static Callsite {
        let (file, line) = self.span.location();
        self.message.get_or_init(|| {
            let name: &'static str = String::leak(message.to_owned());
            let fields = self.span.fields();
            let callsite = Callsite::new(name, self.category, self.level, fields, file, line);
            Box::leak(Box::new(callsite.with_target(self.metadata.target())))
        })
    }

    /// What a new span's slot holds in `plain`: the callsite, under the gate's generation if spans of this place are
    /// recorded in it, are neither marked nor asynchronous, and are known to be entered.
    #[inline]
    pub(crate) fn plain(&self) -> u64 {
        let plain = self.plain.load(Relaxed);
        if (plain >> 32) as u32 == gate::generation() { plain } else { self.find_plain() }
    }

    /// Whether the recording keeps events of this place.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        let recorded = self.recorded.load(Relaxed);
        if (recorded >> 1) as u32 == gate::generation() {
            recorded & 1 != 0
        } else {
            self.find_recorded()
        }
    }

    #[cold]
    fn find_recorded(&self) -> bool {
        // First the generation: an answer that is older than it is asked for again.
        let generation = gate::latest_generation();
        let recorded = gate::recorded_of_target(self.category, self.level, self.metadata.target());
        self.recorded.store(u64::from(generation) << 1 | u64::from(recorded), Relaxed);
        recorded
    }

    #[cold]
    fn find_plain(&self) -> u64 {
        let generation = gate::latest_generation();
        let is_marked = gate::marked(self.category, self.level);
        let plainly = self.is_recorded()
            && !is_marked
            && !self.is_asynchronous()
            && self.entered.is_set()
            && self.number as usize <= slab::MOST_SITES;
        let plain =
            u64::from(self.span.id()) | if plainly { u64::from(generation) << 32 } else { 0 };
        self.plain.store(plain, Relaxed);
        plain
    }

    pub(crate) fn is_asynchronous(&self) -> bool {
        self.asynchronous.is_set()
    }

    /// A span of this place was entered: others need not be stamped when they are made.
    pub(crate) fn set_entered(&self) {
        if !self.entered.is_set() {
            self.entered.set();
            self.plain.store(0, Relaxed);
        }
    }

    pub(crate) fn set_asynchronous(&self) {
        if !self.is_asynchronous() {
            self.asynchronous.set();
            self.plain.store(0, Relaxed);
        }
    }
}

/// The site of these metadata. Subscribers of one process share the sites; the first to see one says its category.
#[inline]
pub(crate) fn of(metadata: &'static Metadata<'static>, plan: &Plan) -> &'static Site {
    let address = std::ptr::from_ref(metadata).addr();
    RECENT.with(|recent| {
        let cell = &recent[(address >> 4 ^ address >> 11) % RECENTLY];
        match cell.get() {
            Some((known, site)) if known == address => site,
            _ => {
                let site = find(metadata, address, plan);
                cell.set(Some((address, site)));
                site
            }
        }
    })
}

#[cold]
fn find(metadata: &'static Metadata<'static>, address: usize, plan: &Plan) -> &'static Site {
    let known = SITES.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(site) = known.as_ref().and_then(|sites| sites.get(&address)) {
        return site;
    }
    drop(known);
    let mut sites = SITES.write().unwrap_or_else(PoisonError::into_inner);
    let sites = sites.get_or_insert_with(HashMap::new);
    let number = u32::try_from(sites.len() + 1).unwrap_or(u32::MAX);
    sites.entry(address).or_insert_with(|| {
        let site: &'static Site = Box::leak(Box::new(Site::new(metadata, plan, number)));
        slab::keep_site(number, site);
        site
    })
}

const RECENTLY: usize = 128;

thread_local! {
    static RECENT: [Cell<Option<(usize, &'static Site)>>; RECENTLY] = const { [const { Cell::new(None) }; RECENTLY] };
}

/// As many as the program has callsites.
static SITES: RwLock<Option<HashMap<usize, &'static Site>>> = RwLock::new(None);
