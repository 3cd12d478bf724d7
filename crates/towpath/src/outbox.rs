//! Requests that survive the process: put into a file first, sent until there is a final answer, told of, and only then
//! forgotten.
//!
//! ```no_run
//! let engine = towpath::Engine::new()?;
//! let outbox = engine.outbox("outbox").on_end(|ended| println!("{ended:?}")).open().unwrap();
//! let message = engine.client().post("https://example.org/messages", "hello");
//! outbox.put(message).ordering_key("chat 7").keep().unwrap();
//! # Ok::<(), towpath::Error>(())
//! ```
//!
//! When [`Put::keep`] returns, the request is on the disk. From then on it is sent, at the next start of the process if
//! need be, with an `Idempotency-Key` that stays the same (draft-ietf-httpapi-idempotency-key-header), by which the
//! server knows a repetition. So it is processed once by servers that honour the key, and at least once by others.
//!
//! **Final** is every answer but 408, 409, 425, 429 and those from 500 on except 501 and 505; [`Builder::final_when`]
//! decides otherwise. (409 and the draft: the request with this key is still being processed.) Redirects are final:
//! they are not followed. After anything else, and after no answer, it is sent again, by pauses of [`Builder::pauses`]
//! that double and are drawn at random, or of the server's `Retry-After` in seconds, if that is longer. An origin that
//! does not answer, or answers 429, 502, 503 or 504, is asked by one entry at a time until it has given a final answer.
//! Without a network nothing is sent; after [`Engine::network_changed`](crate::Engine::network_changed) everything at
//! once.
//!
//! **Order** is kept among those of one [`Put::ordering_key`]: the next is sent when the one before has ended.
//!
//! **The end** is told to [`Builder::on_end`] at least once: again in the next life, when the process died while it was
//! told.
//!
//! The file has the requests as they are, with all their fields, readable for the app's user only. An outbox has a
//! thread of its own, which sleeps while nothing is due. It does not keep its engine running: without it, it keeps what
//! it is given and sends nothing.

mod dispatcher;
mod log;
mod record;
mod schedule;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use towpath_io::Clock;
use towpath_proto::Instant;

use crate::call::Shared;
use crate::defaults::Defaults;
use crate::engine::random_seed;
use crate::request::Parts;
use crate::wall_clock::unix_ns;
use crate::{Client, Request};

use dispatcher::{Dispatcher, Order};
#[cfg(fuzzing)]
pub(crate) use log::fuzzing as log_fuzzing;
use log::{Kept, Log, Places, Sync};
use record::{Limits, Message, Record};
use schedule::Schedule;

/// Requests that survive the process. Cheap to clone; when the last one is dropped what is under way is given up, and
/// all that has not ended stays in the file.
#[derive(Clone)]
pub struct Outbox {
    life: Arc<Life>,
}

struct Life {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

/// How to open an outbox.
#[must_use = "nothing is sent until it is opened"]
pub struct Builder {
    shared: Arc<Shared>,
    defaults: Arc<Defaults>,
    path: PathBuf,
    settings: Settings,
    on_end: Option<OnEnd>,
}

type OnEnd = Box<dyn FnMut(&Ended) + Send>;

/// A request that is about to be put into an outbox.
#[must_use = "it is lost if it is not kept"]
pub struct Put<'a> {
    outbox: &'a Outbox,
    request: Request,
    ordering_key: Option<String>,
    expires_after: Option<Duration>,
}

/// An entry of one outbox; a number is never used twice as long as its file is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

/// What is known of a request that has not ended, or whose end was not told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its number.
    pub id: EntryId,
    /// The value of its `Idempotency-Key`.
    pub key: String,
    /// Its method.
    pub method: String,
    /// Where it goes.
    pub url: String,
    /// Those with one ordering key go one after the other.
    pub ordering_key: Option<String>,
    /// When it was put.
    pub put: SystemTime,
    /// When it is given up.
    pub expires: Option<SystemTime>,
    /// How often it was sent since the outbox was opened.
    pub tries: u32,
    /// Whether it is under way.
    pub under_way: bool,
}

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// Its number.
    pub id: EntryId,
    /// The value of its `Idempotency-Key`.
    pub key: String,
    /// How.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// By a final answer.
    Answered {
        /// 200 to 599.
        status: u16,
        /// The beginning of the response's body.
        body: Bytes,
        /// Whether that is all of it.
        whole: bool,
    },
    /// There was none in its time. It may have been processed nevertheless, if it was ever sent.
    Expired,
}

/// Why a request was not put, or an outbox not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The caller's fault: it cannot be sent as it is.
    Request(crate::Error),
    /// There is no room: what ends makes some.
    Full(&'static str),
    /// The file cannot be read or written, or is none of ours.
    File {
        /// What the system said.
        kind: io::ErrorKind,
        /// The same in words.
        text: String,
    },
}

#[derive(Clone, Copy)]
struct Settings {
    max_entries: usize,
    max_bytes: u64,
    response_bytes: usize,
    expires_after: Option<Duration>,
    limits: schedule::Limits,
    is_final: fn(u16) -> bool,
}

/// What the app's threads and the outbox's share.
struct Inner {
    state: Mutex<State>,
    /// By which entries are sent and expire.
    clock: Clock,
    changed: Condvar,
    orders: mpsc::Sender<Order>,
    settings: Settings,
    recovered: Recovered,
}

/// What opening found in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Requests of earlier lives, of which the ends are still to be told.
    pub entries: usize,
    /// Bytes that were no whole records: what a crash left of a request whose [`Put::keep`] had not returned, or
    /// damage.
    pub lost_bytes: u64,
}

struct State {
    log: Log,
    schedule: Schedule,
    entries: BTreeMap<u64, Held>,
    bytes: u64,
}

struct Held {
    message: Message,
    places: Places,
    tries: u32,
    outcome: Option<Outcome>,
}

impl Builder {
    pub(crate) fn new(shared: Arc<Shared>, path: PathBuf) -> Self {
        let limits = schedule::Limits {
            parallel: 4,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(300),
        };
        let settings = Settings {
            max_entries: 1000,
            max_bytes: 16 << 20,
            response_bytes: 4096,
            expires_after: Some(Duration::from_secs(7 * 24 * 3600)),
            limits,
            is_final,
        };
        Self { shared, defaults: Arc::default(), path, settings, on_end: None }
    }

    /// Sends all its requests, those of earlier lives among them, as this client would: with its fields where they have
    /// none of the name, its cookies of that moment, its credentials, and what else it was made with. By default,
    /// and beside that, a request has the fields of the client that made it, as they were when it was put. It goes
    /// through the outbox's engine, which this does not keep running.
    pub fn client(mut self, client: &Client) -> Self {
        self.defaults = Arc::clone(client.defaults());
        self
    }

    /// Is told the end of each request, on the outbox's own thread. It may block, which holds up everything else; it
    /// may put new requests, but not wait for the outbox. Without it ends are not told.
    pub fn on_end(mut self, on_end: impl FnMut(&Ended) + Send + 'static) -> Self {
        self.on_end = Some(Box::new(on_end));
        self
    }

    /// How many requests it takes (default 1000, at most 10,000) and how many bytes of them (default 16 MiB, at most
    /// 256 MiB).
    pub fn room(mut self, entries: usize, bytes: u64) -> Self {
        self.settings.max_entries = entries.min(MOST_ENTRIES);
        self.settings.max_bytes = bytes.min(MOST_BYTES);
        self
    }

    /// After what time a request is given up, unless it says otherwise: default 7 days; zero means never.
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.settings.expires_after = (!time.is_zero()).then_some(time);
        self
    }

    /// How many requests are under way at the same time: default 4, at least 1.
    pub fn parallel(mut self, requests: usize) -> Self {
        self.settings.limits.parallel = requests.max(1);
        self
    }

    /// The pause after the first failure, which doubles for each further one (default 1 s), and the longest (default 5
    /// min). Each is drawn from the upper half of this.
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.limits.first_pause = first;
        self.settings.limits.longest_pause = longest.max(first);
        self
    }

    /// Which status ends a request. By default [`is_final`].
    pub fn final_when(mut self, is_final: fn(u16) -> bool) -> Self {
        self.settings.is_final = is_final;
        self
    }

    /// How many bytes of a final answer's body are kept for [`Builder::on_end`]: default 4096, at most 65536.
    pub fn response_bytes(mut self, bytes: usize) -> Self {
        self.settings.response_bytes = bytes.min(MOST_RESPONSE_BYTES);
        self
    }

    /// Opens it, and begins to send what is in it.
    ///
    /// # Errors
    /// When the file cannot be read or written, is none of ours, or is open elsewhere; when there is no thread.
    pub fn open(self) -> Result<Outbox, Error> {
        let Self { shared, defaults, path, settings, on_end } = self;
        let named = |error: io::Error| Error::file(&error, &path.display().to_string());
        let (log, found) = Log::open(&path, random_seed()).map_err(named)?;
        let recovered = Recovered { entries: found.entries.len(), lost_bytes: found.lost };
        let mut state = State {
            log,
            schedule: Schedule::new(settings.limits),
            entries: BTreeMap::new(),
            bytes: 0,
        };
        let (clock, now_unix_ms) = (Clock::new(std::time::Instant::now(), true), unix_ms());
        for (id, kept) in found.entries {
            let left = time_left(&kept.message, now_unix_ms);
            state.add(id, kept, left.map(|left| clock.now() + left));
        }
        let (orders, inbox) = mpsc::channel();
        let inner = Arc::new(Inner {
            state: Mutex::new(state),
            clock,
            changed: Condvar::new(),
            orders: orders.clone(),
            settings,
            recovered,
        });
        shared.network.listen(move |_| orders.send(Order::NetworkChanged).is_ok());
        let mut dispatcher = Dispatcher::new(shared, defaults, Arc::clone(&inner), inbox, on_end);
        let thread = std::thread::Builder::new()
            .name("towpath-outbox".to_owned())
            .spawn(move || dispatcher.run())
            .map_err(|error| Error::file(&error, "no thread"))?;
        Ok(Outbox { life: Arc::new(Life { inner, thread: Some(thread) }) })
    }
}

impl Outbox {
    /// A request to be kept. Its URL, method, fields, body and limits on time outlive the process; it goes through the
    /// outbox's engine, and may always be repeated. Where it has no `Idempotency-Key` it gets one: a random UUID as a
    /// quoted string, as the draft has it.
    pub const fn put(&self, request: Request) -> Put<'_> {
        Put { outbox: self, request, ordering_key: None, expires_after: None }
    }

    /// Takes a request out, and gives it up if it is under way: it may have been processed. Its end is not told. False
    /// when it has ended.
    ///
    /// # Errors
    /// When that cannot be written: then it is still there.
    pub fn remove(&self, id: EntryId) -> Result<bool, Error> {
        let inner = &self.life.inner;
        let mut state = inner.state();
        if state.entries.get(&id.0).is_none_or(|held| held.outcome.is_some()) {
            return Ok(false);
        }
        state.finish(id.0, Sync::Now).map_err(|error| Error::file(&error, "it stays"))?;
        drop(state);
        inner.changed.notify_all();
        inner.order(Order::GiveUp(id.0));
        Ok(true)
    }

    /// Everything that has not ended, or whose end was not told, in the order in which it was put.
    #[must_use]
    pub fn list(&self) -> Vec<Entry> {
        let state = self.life.inner.state();
        let entry = |(id, held): (&u64, &Held)| held.entry(*id, state.schedule.is_running(*id));
        state.entries.iter().map(entry).collect()
    }

    /// How many [`Outbox::list`] has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.life.inner.state().entries.len()
    }

    /// Whether everything has ended and was told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks until it is empty, or the time is over; whether it is empty.
    #[must_use]
    pub fn wait_until_empty(&self, limit: Duration) -> bool {
        let inner = &self.life.inner;
        let state = inner.state();
        let waited =
            inner.changed.wait_timeout_while(state, limit, |state| !state.entries.is_empty());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.entries.is_empty()
    }

    /// What opening found in the file.
    #[must_use]
    pub fn recovered(&self) -> Recovered {
        self.life.inner.recovered
    }
}

impl Put<'_> {
    /// Those with one ordering key are sent one after the other, in the order in which they were put.
    pub fn ordering_key(mut self, ordering_key: &str) -> Self {
        self.ordering_key = Some(ordering_key.to_owned());
        self
    }

    /// After what time it is given up; zero means never.
    pub const fn expires_after(mut self, time: Duration) -> Self {
        self.expires_after = Some(time);
        self
    }

    /// Writes it to the disk; blocks until it is there. From here on it will be sent.
    ///
    /// # Errors
    /// When it cannot be sent as it is, the outbox is full, or the file cannot be written: then it will not be sent.
    pub fn keep(self) -> Result<EntryId, Error> {
        let Self { outbox, request, ordering_key, expires_after } = self;
        let inner = &outbox.life.inner;
        let message = message(request, ordering_key, expires_after, &inner.settings)?;
        let id = inner.put(message)?;
        inner.order(Order::Look);
        Ok(EntryId(id))
    }
}

impl Inner {
    fn put(&self, message: Message) -> Result<u64, Error> {
        let mut state = self.state();
        if state.entries.len() >= self.settings.max_entries {
            return Err(Error::Full("too many requests wait in it"));
        }
        if state.bytes + message.weight() > self.settings.max_bytes {
            return Err(Error::Full("too many bytes wait in it"));
        }
        let id = state.log.next_id();
        let record = Record::Put { id, message };
        let put = state
            .log
            .append(&record, Sync::Now)
            .map_err(|error| Error::file(&error, "it was not put"))?;
        if let Record::Put { id, message } = record {
            let expires = time_of(&message).map(|time| self.clock.now() + time);
            let kept = Kept { message, places: Places { put, ended: None }, outcome: None };
            state.add(id, kept, expires);
        }
        Ok(id)
    }

    /// An order that comes too late is dropped.
    fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, id: u64, kept: Kept, expires: Option<Instant>) {
        let Kept { mut message, places, outcome } = kept;
        if outcome.is_none() {
            let origin = origin(&message.url);
            self.schedule.add(id, origin, message.ordering_key.as_deref(), expires);
        }
        self.bytes += places.bytes();
        // They are read from the file when they are sent.
        (message.body, message.fields) = (Bytes::new(), Vec::new());
        self.entries.insert(id, Held { message, places, tries: 0, outcome });
    }

    /// What became of an entry, until that is told.
    fn end(&mut self, id: u64, outcome: Outcome) {
        let Some(held) = self.entries.get_mut(&id) else { return };
        let record = Record::Ended { id, outcome: outcome.clone() };
        // Where it cannot be written, the server will be asked again with the same key in the next life.
        if let Ok(ended) = self.log.append(&record, Sync::Now) {
            held.places.ended = Some(ended);
            self.bytes += ended.bytes();
        }
        held.outcome = Some(outcome);
    }

    /// Nothing is left to do for an entry.
    fn finish(&mut self, id: u64, sync: Sync) -> io::Result<()> {
        self.log.append(&Record::Done { id }, sync)?;
        self.forget(id);
        Ok(())
    }

    fn forget(&mut self, id: u64) {
        let Some(held) = self.entries.remove(&id) else { return };
        self.schedule.remove(id);
        self.bytes -= held.places.bytes();
        self.log.forget(held.places);
        if self.log.is_wasteful() {
            let places = self.entries.iter_mut().map(|(id, held)| (*id, &mut held.places));
            // Where there is no room for a new file, the old one goes on.
            let _ = self.log.compact(places);
        }
    }
}

impl Held {
    fn entry(&self, id: u64, under_way: bool) -> Entry {
        let at = |unix_ms| UNIX_EPOCH + Duration::from_millis(unix_ms);
        Entry {
            id: EntryId(id),
            key: self.message.key.clone(),
            method: self.message.method.clone(),
            url: self.message.url.clone(),
            ordering_key: self.message.ordering_key.clone(),
            put: at(self.message.put_unix_ms),
            expires: self.message.expires_unix_ms.map(at),
            tries: self.tries,
            under_way,
        }
    }
}

impl Error {
    fn file(error: &io::Error, what: &str) -> Self {
        Self::File { kind: error.kind(), text: format!("{what}: {error}") }
    }
}

/// Whether a status ends a request: all but 408, 409, 425, 429, and those from 500 on except 501 and 505.
#[must_use]
pub const fn is_final(status: u16) -> bool {
    match status {
        408 | 409 | 425 | 429 => false,
        501 | 505 => true,
        _ => status < 500,
    }
}

fn message(
    request: Request,
    ordering_key: Option<String>,
    expires_after: Option<Duration>,
    settings: &Settings,
) -> Result<Message, Error> {
    let Parts { method, url, mut fields, body, options } =
        request.into_parts().map_err(Error::Request)?;
    let is_key = |field: &&(String, String)| field.0.eq_ignore_ascii_case(KEY);
    let key = match fields.iter().find(is_key) {
        Some((_, key)) => key.clone(),
        None => {
            let key = format!("\"{}\"", random_uuid());
            fields.push((KEY.to_owned(), key.clone()));
            key
        }
    };
    let now = unix_ms();
    let expires_after = expires_after.or(settings.expires_after).filter(|after| !after.is_zero());
    let limits = Limits {
        total: options.total.map(whole_ms),
        first_byte: options.first_byte.map(whole_ms),
        gap: options.gap.map(whole_ms),
    };
    Ok(Message {
        put_unix_ms: now,
        expires_unix_ms: expires_after.map(|after| now.saturating_add(whole_ms(after))),
        limits,
        ordering_key,
        key,
        method,
        url,
        fields,
        body,
    })
}

/// How long an entry is kept, from when it was put.
fn time_of(message: &Message) -> Option<Duration> {
    let ms = message.expires_unix_ms?.saturating_sub(message.put_unix_ms);
    Some(Duration::from_millis(ms))
}

/// How much of that is left in this life, which a steady clock measures from here on. A wall clock that was wrong
/// when it was put, or is wrong now, ends nothing.
fn time_left(message: &Message, now_unix_ms: u64) -> Option<Duration> {
    let whole = time_of(message)?;
    let believed = RELEASED_UNIX_MS..=now_unix_ms;
    if !believed.contains(&message.put_unix_ms) {
        return Some(whole);
    }
    let left = message.expires_unix_ms?.saturating_sub(now_unix_ms);
    Some(Duration::from_millis(left))
}

/// Of version 4 (RFC 9562 §5.4).
fn random_uuid() -> String {
    let (high, low) = (random_seed(), random_seed());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | ((low >> 48) & 0x3fff),
        low & 0xffff_ffff_ffff,
    )
}

/// Scheme and authority.
fn origin(url: &str) -> &str {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let end = url[begin..].find('/').map_or(url.len(), |at| begin + at);
    &url[..end]
}

fn unix_ms() -> u64 {
    unix_ns() / 1_000_000
}

fn whole_ms(duration: Duration) -> u64 {
    // The last number means that there is none.
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(u64::MAX - 1)
}

impl Drop for Life {
    fn drop(&mut self) {
        self.inner.order(Order::Close);
        let own = std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

const KEY: &str = "idempotency-key";
/// 2026-01-01: no clock that is right was before this when this ran.
const RELEASED_UNIX_MS: u64 = 1_767_225_600_000;
const MOST_ENTRIES: usize = 10_000;
const MOST_BYTES: u64 = 256 << 20;
const MOST_RESPONSE_BYTES: usize = 64 * 1024;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Full(why) => write!(f, "the outbox is full: {why}"),
            Self::File { text, .. } => write!(f, "the outbox: {text}"),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("entries", &self.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Debug for Put<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Put").field("request", &self.request).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_is_what_asking_again_would_not_change() {
        for status in [200, 201, 204, 302, 400, 404, 410, 422, 501, 505] {
            assert!(is_final(status), "{status}");
        }
        for status in [408, 409, 425, 429, 500, 502, 503, 504, 507, 511, 599] {
            assert!(!is_final(status), "{status}");
        }
    }

    #[test]
    fn a_clock_that_was_or_is_wrong_takes_no_entry_s_time() {
        const DAY: u64 = 86_400_000;
        const PUT: u64 = RELEASED_UNIX_MS + 300 * DAY;
        let left = |put: u64, now: u64| {
            let mut message = record::tests::message("x");
            (message.put_unix_ms, message.expires_unix_ms) = (put, Some(put + 7 * DAY));
            time_left(&message, now).map(|left| left.as_secs_f64() / 86_400.0)
        };
        assert_eq!(left(PUT, PUT), Some(7.0));
        assert_eq!(left(PUT, PUT + 2 * DAY), Some(5.0));
        assert_eq!(left(PUT, PUT + 8 * DAY), Some(0.0));
        assert_eq!(left(2 * 365 * DAY, PUT), Some(7.0), "put in 1972");
        assert_eq!(left(PUT, 2 * 365 * DAY), Some(7.0), "opened in 1972");
        assert_eq!(left(PUT + DAY, PUT), Some(7.0), "put tomorrow");
        let mut never = record::tests::message("x");
        never.expires_unix_ms = None;
        assert_eq!(time_left(&never, PUT), None);
    }

    #[test]
    fn an_origin_is_scheme_and_authority() {
        assert_eq!(origin("http://host:1/a/b?c"), "http://host:1");
        assert_eq!(origin("https://host"), "https://host");
    }

    #[test]
    fn keys_are_uuids_and_differ() {
        let (one, two) = (random_uuid(), random_uuid());
        assert_ne!(one, two);
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&one[14..15], "4");
        assert!("89ab".contains(&one[19..20]), "{one}");
    }
}
