//! One kind of resource on a stream.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use towpath_proto::Instant;

use super::{
    DeltaRequest, DeltaResponse, DiscoveryRequest, DiscoveryResponse, Output, Rejected, Resource,
    Status, Type, Update, Wanted, wire,
};
use crate::names::{canonical, is_within};
use crate::wire::{Any, Wrapped};

#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) kind: Type,
    /// What was accepted last, in the state of the world.
    pub(super) version: String,
    wish: Wish,
    /// What the control plane knows of it on this connection.
    told: Option<Told>,
    /// Whether that is the wish as it stands, so that no names need to be compared.
    is_told: bool,
    /// When the next deadline is, while that is known.
    deadline: Cell<Option<Instant>>,
    /// The last response on this connection that was answered.
    nonce: String,
    /// Updates that are being judged, the oldest first.
    judging: VecDeque<Judging>,
    answers: VecDeque<Answer>,
    refused: Option<Refused>,
    known: BTreeMap<String, Known>,
    /// Names as they are wanted, by those in the one way in which they are compared, where these are others.
    spellings: BTreeMap<String, String>,
}

/// What is wanted, and until when an answer is waited for.
#[derive(Debug)]
enum Wish {
    /// Of the collection, if it has a name.
    All(Option<String>, Option<Instant>),
    Names(BTreeMap<String, Option<Instant>>),
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    All,
    Names(BTreeSet<String>),
}

/// A resource that was accepted.
#[derive(Debug)]
struct Known {
    version: String,
    expires: Option<Instant>,
}

#[derive(Debug)]
struct Judging {
    /// `None` when its connection is gone.
    nonce: Option<String>,
    received: Instant,
    version: String,
    entries: Vec<(String, Known)>,
    removed: Vec<String>,
    rejected: Vec<Rejected>,
}

#[derive(Debug)]
struct Answer {
    nonce: String,
    error: Option<Status>,
    /// When it may go out by itself.
    due: Instant,
}

/// What was refused last on this connection, and how often since then for the same reason.
#[derive(Debug)]
struct Refused {
    version: String,
    message: String,
    repeats: u32,
}

/// How long a refusal waits that says what the one before said, and twice that for the next one, up to a limit: a
/// server of go-control-plane sends the same again as soon as it hears of a refusal.
const FIRST_HOLD: Duration = Duration::from_millis(100);
const LONGEST_HOLD: Duration = Duration::from_secs(1);

impl Subscription {
    pub(super) const fn new(kind: Type) -> Self {
        Self {
            kind,
            version: String::new(),
            wish: Wish::Names(BTreeMap::new()),
            told: None,
            is_told: false,
            deadline: Cell::new(None),
            nonce: String::new(),
            judging: VecDeque::new(),
            answers: VecDeque::new(),
            refused: None,
            known: BTreeMap::new(),
            spellings: BTreeMap::new(),
        }
    }

    /// A name as it is wanted.
    fn spelt(&self, name: &str) -> String {
        self.spellings.get(name).map_or(name, |spelling| spelling).to_owned()
    }

    pub(super) fn want(&mut self, wanted: Wanted, now: Instant) {
        let until = |timeout: Option<Duration>| timeout.map(|timeout| now + timeout);
        self.wish = match (std::mem::replace(&mut self.wish, Wish::All(None, None)), wanted) {
            (before, Wanted::All(timeout)) => Self::all(before, None, until(timeout)),
            (before, Wanted::Collection(name, timeout)) => {
                Self::all(before, Some(canonical(&name).into_owned()), until(timeout))
            }
            (before, Wanted::Names(names)) => {
                let before = match before {
                    Wish::All(..) => BTreeMap::new(),
                    Wish::Names(before) => before,
                };
                self.spellings.clear();
                let of = |(name, timeout): (String, Option<Duration>)| {
                    let written = canonical(&name).into_owned();
                    let deadline = before.get(&written).copied();
                    if written != name {
                        self.spellings.insert(written.clone(), name);
                    }
                    (written, deadline.unwrap_or_else(|| until(timeout)))
                };
                let names: BTreeMap<_, _> = names.into_iter().map(of).collect();
                self.known.retain(|name, _| names.contains_key(name));
                Wish::Names(names)
            }
        };
        self.is_told = self.told.is_some() && !self.is_other_than_told();
        self.deadline.set(None);
    }

    /// The same wish has its deadline already.
    fn all(before: Wish, of: Option<String>, deadline: Option<Instant>) -> Wish {
        match before {
            Wish::All(known, deadline) if known == of => Wish::All(known, deadline),
            Wish::All(..) | Wish::Names(_) => Wish::All(of, deadline),
        }
    }

    pub(super) fn connected(&mut self) {
        self.forget_told();
    }

    pub(super) fn disconnected(&mut self) {
        self.forget_told();
        self.nonce.clear();
        self.answers.clear();
        self.refused = None;
        self.judging.iter_mut().for_each(|update| update.nonce = None);
    }

    fn forget_told(&mut self) {
        (self.told, self.is_told) = (None, false);
    }

    pub(super) fn is_wanted(&self) -> bool {
        match &self.wish {
            Wish::All(..) => true,
            Wish::Names(names) => !names.is_empty(),
        }
    }

    /// Whether the control plane does not know what is wanted.
    pub(super) fn has_new_wish(&self) -> bool {
        !self.is_told && self.is_other_than_told()
    }

    fn is_other_than_told(&self) -> bool {
        match (&self.told, &self.wish) {
            (None, _) => self.is_wanted(),
            (Some(Told::All), Wish::All(of, _)) => of.is_some(),
            (Some(Told::Names(told)), Wish::All(of, _)) => !told.iter().eq(of),
            (Some(Told::Names(told)), Wish::Names(names)) => !told.iter().eq(names.keys()),
            (Some(Told::All), Wish::Names(_)) => true,
        }
    }

    /// Whether an answer is to go out. None is held up while others wait behind it.
    pub(super) fn owes(&self, now: Instant) -> bool {
        self.answers.len() > 1 || self.answer_due() <= now
    }

    /// When the next answer is to go out.
    pub(super) fn answer_due(&self) -> Instant {
        self.answers.front().map_or(Instant::FAR_FUTURE, |answer| answer.due)
    }

    pub(super) fn deadline(&self) -> Instant {
        if let Some(known) = self.deadline.get() {
            return known;
        }
        let deadline = self.look_for_deadline();
        self.deadline.set(Some(deadline));
        deadline
    }

    fn look_for_deadline(&self) -> Instant {
        let wishes = match &self.wish {
            Wish::All(_, deadline) => deadline.unwrap_or(Instant::FAR_FUTURE),
            Wish::Names(names) => earliest(names.values().copied()),
        };
        wishes.min(earliest(self.known.values().map(|known| known.expires)))
    }

    /// A wish that was not fulfilled in time, or resources whose time is over.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Output> {
        let kind = self.kind;
        if self.deadline() > now {
            return None;
        }
        self.deadline.set(None);
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        match &mut self.wish {
            Wish::All(_, deadline) if is_over(*deadline) => {
                *deadline = None;
                return Some(Output::TimedOut { kind, names: Vec::new() });
            }
            Wish::All(..) => {}
            Wish::Names(all) => {
                let late = all.iter_mut().filter(|(_, deadline)| is_over(**deadline));
                let late = late.map(|(name, deadline)| {
                    *deadline = None;
                    name.clone()
                });
                let names: Vec<_> = late.collect();
                if !names.is_empty() {
                    let names = names.iter().map(|name| self.spelt(name)).collect();
                    return Some(Output::TimedOut { kind, names });
                }
            }
        }
        let over = self.known.iter().filter(|(_, known)| is_over(known.expires));
        let names: Vec<_> = over.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| drop(self.known.remove(name)));
        let names: Vec<_> = names.iter().map(|name| self.spelt(name)).collect();
        (!names.is_empty()).then_some(Output::Expired { kind, names })
    }

    pub(super) fn received_world(
        &mut self,
        response: DiscoveryResponse,
        max: usize,
        now: Instant,
    ) -> Option<Update> {
        let DiscoveryResponse { version_info, resources, nonce, .. } = response;
        let mut incoming = Incoming::new(self.kind);
        if resources.len() > max {
            incoming.reject("", too_many(resources.len(), max));
        } else {
            resources.into_iter().for_each(|any| incoming.any(any, &version_info));
        }
        let present = &incoming.seen;
        let whole = self.kind.is_whole() && incoming.rejected.iter().all(|it| !it.name.is_empty());
        let gone = self.known.keys().filter(|name| whole && !present.contains(*name));
        let removed = gone.cloned().collect();
        self.take(incoming, removed, version_info, nonce, now)
    }

    pub(super) fn received_delta(
        &mut self,
        response: DeltaResponse,
        max: usize,
        now: Instant,
    ) -> Option<Update> {
        let DeltaResponse { system_version_info, resources, nonce, removed_resources, .. } =
            response;
        let mut incoming = Incoming::new(self.kind);
        let is_new = |it: &&Wrapped| !self.known.contains_key(&*canonical(&it.name));
        let new = resources.iter().filter(is_new).count();
        let total = self.known.len() + new;
        if total > max || removed_resources.len() > max {
            incoming.reject("", too_many(total, max));
            return self.take(incoming, Vec::new(), system_version_info, nonce, now);
        }
        resources.into_iter().for_each(|wrapped| incoming.wrapped(wrapped, ""));
        let mut removed: Vec<String> =
            removed_resources.iter().map(|name| canonical(name).into_owned()).collect();
        removed.retain(|name| !incoming.seen.contains(name));
        self.take(incoming, removed, system_version_info, nonce, now)
    }

    /// Keeps what an answer needs, and hands the rest on.
    fn take(
        &mut self,
        incoming: Incoming,
        removed: Vec<String>,
        version: String,
        nonce: String,
        now: Instant,
    ) -> Option<Update> {
        let Incoming { mut found, rejected, .. } = incoming;
        self.deadline.set(None);
        match &mut self.wish {
            Wish::All(None, deadline) => *deadline = None,
            Wish::All(Some(collection), deadline) => {
                *deadline = None;
                found.retain(|(resource, ..)| is_within(&resource.name, collection));
            }
            Wish::Names(names) => {
                // A control plane may send what was not asked for, or is not wanted any more.
                found.retain(|(resource, ..)| names.contains_key(&resource.name));
                let answered = found.iter().map(|(resource, ..)| &resource.name);
                for name in answered.chain(&removed).chain(rejected.iter().map(|it| &it.name)) {
                    if let Some(deadline) = names.get_mut(name) {
                        *deadline = None;
                    }
                }
            }
        }
        let (mut entries, mut resources) = (Vec::new(), Vec::new());
        for (resource, ttl, is_heartbeat) in found {
            let expires = ttl.map(|ttl| now + ttl);
            let before = self.known.get_mut(&resource.name);
            match before {
                // A heartbeat that is of another version says nothing of what is here.
                Some(known) if is_heartbeat && known.version == resource.version => {
                    known.expires = expires
                }
                _ if is_heartbeat => {}
                _ => {
                    entries.push((
                        resource.name.clone(),
                        Known { version: resource.version.clone(), expires },
                    ));
                    resources.push(resource);
                }
            }
        }
        resources.iter_mut().for_each(|it: &mut Resource| it.name = self.spelt(&it.name));
        let update = Update {
            kind: self.kind,
            version: version.clone(),
            resources,
            removed: removed.iter().map(|name| self.spelt(name)).collect(),
            rejected: rejected.clone(),
        };
        self.judging.push_back(Judging {
            nonce: Some(nonce),
            received: now,
            version,
            entries,
            removed,
            rejected,
        });
        Some(update)
    }

    pub(super) fn answer(&mut self, rejected: &[Rejected]) {
        let Some(judged) = self.judging.pop_front() else { return };
        self.deadline.set(None);
        let all: Vec<&Rejected> = judged.rejected.iter().chain(rejected).collect();
        let bad: HashSet<_> = all.iter().map(|it| canonical(&it.name)).collect();
        let is_bad = |name: &str| bad.contains("") || bad.contains(name);
        for (name, known) in judged.entries.into_iter().filter(|(name, _)| !is_bad(name)) {
            let is_wanted = match &self.wish {
                Wish::All(..) => true,
                Wish::Names(names) => names.contains_key(&name),
            };
            if is_wanted {
                self.known.insert(name, known);
            }
        }
        for name in judged.removed.iter().filter(|name| !is_bad(name)) {
            self.known.remove(name);
        }
        let error = error_detail(&all);
        if error.is_none() {
            self.version.clone_from(&judged.version);
        }
        if let Some(nonce) = judged.nonce {
            let due = judged.received + self.hold(judged.version, error.as_ref());
            self.answers.push_back(Answer { nonce, error, due });
        }
    }

    /// How long an answer waits.
    fn hold(&mut self, version: String, error: Option<&Status>) -> Duration {
        let Some(Status { message, .. }) = error else {
            self.refused = None;
            return Duration::ZERO;
        };
        match &mut self.refused {
            Some(before) if before.version == version && before.message == *message => {
                let hold = FIRST_HOLD.saturating_mul(1 << before.repeats.min(10));
                before.repeats = before.repeats.saturating_add(1);
                hold.min(LONGEST_HOLD)
            }
            refused => {
                *refused = Some(Refused { version, message: message.clone(), repeats: 0 });
                Duration::ZERO
            }
        }
    }

    pub(super) fn world_request(&mut self, node: Option<Bytes>) -> DiscoveryRequest {
        let error_detail = self.next_answer();
        self.tell();
        let resource_names = match &self.told {
            Some(Told::Names(names)) => names.iter().cloned().collect(),
            Some(Told::All) | None => Vec::new(),
        };
        DiscoveryRequest {
            version_info: self.version.clone(),
            node,
            resource_names,
            type_url: self.kind.url(),
            response_nonce: self.nonce.clone(),
            error_detail,
        }
    }

    pub(super) fn delta_request(&mut self, node: Option<Bytes>) -> DeltaRequest {
        let is_first = self.told.is_none();
        let has_answer = !self.answers.is_empty();
        let error_detail = self.next_answer();
        let (subscribe, unsubscribe) = self.tell_what_changed();
        let known = self.known.iter().filter(|_| is_first);
        DeltaRequest {
            node,
            type_url: self.kind.url(),
            resource_names_unsubscribe: unsubscribe,
            resource_names_subscribe: subscribe,
            initial_resource_versions: known
                .map(|(name, known)| (name.clone(), known.version.clone()))
                .collect(),
            // A request that answers nothing has none.
            response_nonce: if has_answer { self.nonce.clone() } else { String::new() },
            error_detail,
        }
    }

    /// Takes the oldest answer that is owed.
    fn next_answer(&mut self) -> Option<Status> {
        let answer = self.answers.pop_front()?;
        self.nonce = answer.nonce;
        answer.error
    }

    /// Which names are new to the control plane, and which are not wanted any more.
    fn tell_what_changed(&mut self) -> (Vec<String>, Vec<String>) {
        // Most requests are answers.
        if self.is_told {
            return Default::default();
        }
        let before = self.told.take();
        self.tell();
        let (old, new) = (names(before.as_ref()), names(self.told.as_ref()));
        let only = |these: &BTreeSet<&str>, those: &BTreeSet<&str>| {
            these.difference(those).map(|it| (*it).to_owned()).collect()
        };
        // A first request without names is the wildcard; older control planes do not know the star.
        let is_wildcard = before.is_none() && self.told == Some(Told::All);
        let subscribe = if is_wildcard { Vec::new() } else { only(&new, &old) };
        (subscribe, only(&old, &new))
    }

    fn tell(&mut self) {
        if self.is_told {
            return;
        }
        self.is_told = true;
        self.told = Some(match &self.wish {
            Wish::All(None, _) => Told::All,
            Wish::All(Some(collection), _) => Told::Names(BTreeSet::from([collection.clone()])),
            Wish::Names(names) => Told::Names(names.keys().cloned().collect()),
        });
    }
}

/// The names that a control plane was told, as delta writes them.
fn names(told: Option<&Told>) -> BTreeSet<&str> {
    match told {
        None => BTreeSet::new(),
        Some(Told::All) => BTreeSet::from(["*"]),
        Some(Told::Names(names)) => names.iter().map(String::as_str).collect(),
    }
}

fn earliest(deadlines: impl Iterator<Item = Option<Instant>>) -> Instant {
    deadlines.flatten().min().unwrap_or(Instant::FAR_FUTURE)
}

fn too_many(count: usize, max: usize) -> String {
    format!("{count} resources; the limit is {max}")
}

/// What Envoy's status code is.
const INTERNAL: i32 = 13;
/// A longer error is cut: it goes out with every retry of the control plane.
const MAX_ERROR_BYTES: usize = 16 * 1024;

fn error_detail(rejected: &[&Rejected]) -> Option<Status> {
    if rejected.is_empty() {
        return None;
    }
    let lines = rejected.iter().map(|Rejected { name, reason }| match name.as_str() {
        "" => reason.clone(),
        name => format!("{name}: {reason}"),
    });
    let mut message = lines.collect::<Vec<_>>().join("\n");
    message.truncate(message.floor_char_boundary(MAX_ERROR_BYTES));
    Some(Status { code: INTERNAL, message })
}

/// A resource, how long it is good for, and whether it says only that it is still good.
type Found = (Resource, Option<Duration>, bool);

/// The resources of one response.
struct Incoming {
    kind: Type,
    found: Vec<Found>,
    seen: HashSet<String>,
    rejected: Vec<Rejected>,
}

impl Incoming {
    fn new(kind: Type) -> Self {
        Self { kind, found: Vec::new(), seen: HashSet::new(), rejected: Vec::new() }
    }

    fn any(&mut self, any: Any, version: &str) {
        if any.type_url.ends_with(wire::WRAPPED) {
            match Wrapped::decode(any.value) {
                Ok(wrapped) => self.wrapped(wrapped, version),
                Err(error) => self.reject("", format!("a resource that cannot be read: {error}")),
            }
        } else if let Some(name) = self.name(&any) {
            let resource = Resource { name, version: version.to_owned(), body: any.value };
            self.found(resource, None, false);
        }
    }

    fn wrapped(&mut self, wrapped: Wrapped, version: &str) {
        let Wrapped { version: own, resource, name, ttl } = wrapped;
        let version = if own.is_empty() { version.to_owned() } else { own };
        let ttl = ttl.map(wire::Duration::duration);
        let Some(any) = resource else {
            return self.found(Resource { name, version, body: Bytes::new() }, ttl, true);
        };
        let Some(inner) = self.name(&any) else { return };
        let name = if name.is_empty() { inner } else { name };
        self.found(Resource { name, version, body: any.value }, ttl, false);
    }

    fn name(&mut self, any: &Any) -> Option<String> {
        let kind = self.kind.message();
        if any.type_url.rsplit_once('/').is_none_or(|(_, name)| name != kind) {
            self.reject("", format!("a resource of type `{}` among those of {kind}", any.type_url));
            return None;
        }
        let name = wire::name_of(&any.value);
        if name.is_none() {
            self.reject("", "a resource that is no protobuf message".to_owned());
        }
        name
    }

    fn found(&mut self, mut resource: Resource, ttl: Option<Duration>, is_heartbeat: bool) {
        resource.name = canonical(&resource.name).into_owned();
        if resource.name.is_empty() {
            self.reject("", "a resource without a name".to_owned());
        } else if !self.seen.insert(resource.name.clone()) {
            // Envoy: "duplicate cluster … found".
            self.found.retain(|(other, ..)| other.name != resource.name);
            self.reject(&resource.name, "is there twice in one response".to_owned());
        } else {
            self.found.push((resource, ttl, is_heartbeat));
        }
    }

    fn reject(&mut self, name: &str, reason: String) {
        self.rejected.push(Rejected { name: name.to_owned(), reason });
    }
}
