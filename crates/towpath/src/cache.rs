//! A cache of responses (RFC 9111), in memory or in a folder. Feature `cache`.
//!
//! ```no_run
//! let engine = towpath::Engine::new()?;
//! let cache = towpath::Cache::open("cache", 50 << 20)?;
//! let client = engine.client().cache(&cache);
//! let response = client.get("https://example.org/").send()?;
//! println!("{:?}", response.history());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It is a private cache, of one user: what several users of an app get belongs into several. Responses to GET are
//! kept as servers and requests allow (`cache-control`, `expires`, or a tenth of the age that `last-modified` tells, a
//! day at most), in the coding in which they came, apart for what `vary` names. An old one is validated by its `etag`
//! and `last-modified`; `stale-while-revalidate` and `stale-if-error` (RFC 5861) hold, and
//! [`Cache::stale_if_error`] is for servers that say nothing. A request says what it wants by `cache-control`:
//! `no-cache`, `no-store`, `max-age`, `min-fresh`, `max-stale`, `only-if-cached` (answered 504 without an answer).
//! A method that changes something removes what was kept of its URL (RFC 9111 §4.4). Requests with a `range`, a `host`
//! or conditions of their own pass it by; 206 is not kept. What is kept is a body that came whole and was read to its
//! end; one that is larger than an eighth of the cache, or 8 MiB, is not.

mod control;
mod folder;
mod policy;
mod strategy;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::background::Background;
use crate::url::Url;
use crate::wall_clock::unix_ns;
use folder::{Folder, OnDisk};
use policy::{Fields, Stored};

pub(crate) use strategy::{Answer, Filling, Outcome, Pending, Refresh, Strategy};

/// Keeps responses. Clones are the same cache.
#[derive(Clone)]
pub struct Cache {
    inner: Arc<Inner>,
    /// Seconds for which old answers stand in where a server says nothing of it.
    stale_if_error_s: u64,
}

struct Inner {
    index: Mutex<Index>,
    folder: Option<Folder>,
    background: Background,
    max_bytes: usize,
    /// Bytes of bodies that are coming.
    filling: AtomicUsize,
    /// URLs for which the server is asked while an old answer is used.
    refreshing: Mutex<HashSet<String>>,
}

#[derive(Default)]
struct Index {
    entries: HashMap<String, Vec<Entry>>,
    /// Of all entries, heads and bodies.
    bytes: usize,
    count: usize,
    /// Numbers entries, and counts uses.
    clock: u64,
}

/// A response that is kept.
#[derive(Clone)]
struct Entry {
    number: u64,
    stored: Stored,
    body: Kept,
    used: u64,
}

/// Where a body is.
#[derive(Clone)]
enum Kept {
    Memory(Bytes),
    Disk(OnDisk),
}

impl Cache {
    /// One in memory, that takes no more than so many bytes.
    #[must_use]
    pub fn in_memory(max_bytes: usize) -> Self {
        Self::new(None, Index::default(), max_bytes)
    }

    /// One in a folder of its own, with what is there already: bodies as files of at most so many bytes together,
    /// heads in memory as well. Only the app's user can read it. A crash at any moment leaves whole responses. Blocks
    /// while the heads are read.
    ///
    /// # Errors
    /// When the folder cannot be made, read or written, or another cache has it open ([`io::ErrorKind::WouldBlock`]).
    pub fn open(folder: impl AsRef<Path>, max_bytes: usize) -> io::Result<Self> {
        let (folder, mut records) = Folder::open(folder.as_ref())?;
        records.sort_by_key(|(number, _)| *number);
        let mut index = Index::default();
        let mut evicted = Vec::new();
        for (number, record) in records {
            index.clock = number;
            let body = Kept::Disk(record.body);
            let entry = Entry { number, stored: record.stored, body, used: number };
            evicted.extend(index.put(record.url, entry, max_bytes));
        }
        evicted.into_iter().for_each(|number| folder.remove(number));
        Ok(Self::new(Some(folder), index, max_bytes))
    }

    fn new(folder: Option<Folder>, index: Index, max_bytes: usize) -> Self {
        let inner = Inner {
            index: Mutex::new(index),
            folder,
            background: Background::default(),
            max_bytes,
            filling: AtomicUsize::new(0),
            refreshing: Mutex::default(),
        };
        Self { inner: Arc::new(inner), stale_if_error_s: 0 }
    }

    /// Lets answers that are stale by less than this stand in for servers that cannot be reached or answer 500, 502,
    /// 503 or 504, where neither the request nor the response has a `stale-if-error` of its own; `must-revalidate` and
    /// `no-cache` forbid it. Default 0: never. In whole seconds.
    #[must_use]
    pub fn stale_if_error(mut self, limit: Duration) -> Self {
        self.stale_if_error_s = limit.as_secs();
        self
    }

    /// How many responses are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.index().count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes they take, heads and bodies.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner.index().bytes
    }

    /// Forgets all.
    pub fn clear(&self) {
        let urls: Vec<String> = self.inner.index().entries.keys().cloned().collect();
        urls.iter().for_each(|url| self.inner.remove(url));
    }

    /// Forgets what is kept of a URL.
    pub fn remove(&self, url: &str) {
        if let Ok(url) = Url::parse(url) {
            self.inner.remove(&url.to_string());
        }
    }

    /// Waits until the files are as the cache is. Blocks; it need not be called.
    pub fn flush(&self) {
        self.inner.background.flush();
    }
}

impl Inner {
    /// What is kept for a request, marked as used.
    fn find(&self, url: &str, request: &Fields) -> Option<Entry> {
        let mut index = self.index();
        index.clock += 1;
        let clock = index.clock;
        let entry = index.entries.get_mut(url)?.iter_mut().find(|it| it.stored.fits(request))?;
        entry.used = clock;
        Some(entry.clone())
    }

    /// Its body; without one that is whole it is forgotten. Reads a file.
    fn body(&self, url: &str, entry: &Entry) -> Option<Bytes> {
        match &entry.body {
            Kept::Memory(body) => Some(body.clone()),
            Kept::Disk(on_disk) => {
                let body = self.folder.as_ref()?.body(entry.number, *on_disk);
                if body.is_none() {
                    self.forget(url, entry.number);
                }
                body
            }
        }
    }

    fn put(self: &Arc<Self>, url: String, stored: Stored, body: Bytes) {
        let mut index = self.index();
        index.clock += 1;
        let number = index.clock;
        let written = self.folder.is_some().then(|| (url.clone(), stored.clone(), body.clone()));
        let entry = Entry { number, stored, body: Kept::Memory(body), used: number };
        let evicted = index.put(url, entry, self.max_bytes);
        drop(index);
        self.erase(evicted);
        let Some((url, stored, body)) = written else { return };
        let inner = Arc::clone(self);
        self.background.run(move || {
            let Some(folder) = &inner.folder else { return };
            let put = folder.put(number, &url, &stored, &body);
            let Ok(on_disk) = put else { return inner.forget(&url, number) };
            match inner.index().entry(&url, number) {
                Some(entry) => entry.body = Kept::Disk(on_disk),
                None => folder.remove(number),
            }
        });
    }

    /// The same response with a new head.
    fn refresh(self: &Arc<Self>, url: &str, number: u64, stored: &Stored) {
        let mut index = self.index();
        let Some(entry) = index.entry(url, number) else { return };
        let before = entry.bytes(url);
        entry.stored = stored.clone();
        let after = entry.bytes(url);
        index.bytes = index.bytes - before + after;
        drop(index);
        if self.folder.is_none() {
            return;
        }
        let (inner, url) = (Arc::clone(self), url.to_owned());
        self.background.run(move || {
            let (Some(folder), Some(entry)) =
                (&inner.folder, inner.index().entry(&url, number).cloned())
            else {
                return;
            };
            if let Kept::Disk(on_disk) = entry.body
                && folder.put_head(number, &url, &entry.stored, on_disk).is_err()
            {
                inner.forget(&url, number);
            }
        });
    }

    fn remove(self: &Arc<Self>, url: &str) {
        let removed = self.index().remove(url);
        self.erase(removed);
    }

    fn forget(&self, url: &str, number: u64) {
        self.index().forget(url, number);
        if let Some(folder) = &self.folder {
            folder.remove(number);
        }
    }

    /// Removes files, after those that are still to be written.
    fn erase(self: &Arc<Self>, numbers: Vec<u64>) {
        if self.folder.is_some() && !numbers.is_empty() {
            let inner = Arc::clone(self);
            self.background.run(move || {
                if let Some(folder) = &inner.folder {
                    numbers.into_iter().for_each(|number| folder.remove(number));
                }
            });
        }
    }

    /// No larger body is kept.
    fn max_body_bytes(&self) -> usize {
        (self.max_bytes / 8).min(MOST_BODY_BYTES)
    }

    /// Counts bytes of bodies that are coming; false where there are too many.
    fn reserve(&self, bytes: usize) -> bool {
        let before = self.filling.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.max_body_bytes().saturating_mul(MOST_FILLING);
        if !fits {
            self.release(bytes);
        }
        fits
    }

    fn release(&self, bytes: usize) {
        self.filling.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refreshing(&self) -> MutexGuard<'_, HashSet<String>> {
        self.refreshing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Puts one in the place of that for the same requests. The numbers of those that had to go.
    fn put(&mut self, url: String, entry: Entry, max_bytes: usize) -> Vec<u64> {
        let mut gone: Vec<u64> = self
            .entries
            .get(&url)
            .into_iter()
            .flatten()
            .filter(|other| other.stored.selecting == entry.stored.selecting)
            .map(|other| other.number)
            .collect();
        gone.iter().for_each(|number| self.forget(&url, *number));
        let of_url = self.entries.entry(url.clone()).or_default();
        // The one that serves most requests first: of several that fit the newest is used (§4.1).
        of_url.insert(0, entry);
        if of_url.len() > MOST_OF_URL {
            let oldest = of_url.iter().min_by_key(|entry| entry.used).map(|entry| entry.number);
            gone.extend(oldest);
        }
        self.bytes += self.entries[&url][0].bytes(&url);
        self.count += 1;
        gone.iter().for_each(|number| self.forget(&url, *number));
        while self.bytes > max_bytes || self.count > MOST {
            let all = self.entries.iter().flat_map(|(url, of)| of.iter().map(move |it| (url, it)));
            let oldest = all.min_by_key(|(_, entry)| entry.used);
            let Some((url, number)) = oldest.map(|(url, it)| (url.clone(), it.number)) else {
                break;
            };
            self.forget(&url, number);
            gone.push(number);
        }
        gone
    }

    fn entry(&mut self, url: &str, number: u64) -> Option<&mut Entry> {
        self.entries.get_mut(url)?.iter_mut().find(|entry| entry.number == number)
    }

    fn forget(&mut self, url: &str, number: u64) {
        let Some(of_url) = self.entries.get_mut(url) else { return };
        let Some(at) = of_url.iter().position(|entry| entry.number == number) else { return };
        self.bytes -= of_url.remove(at).bytes(url);
        self.count -= 1;
        if of_url.is_empty() {
            self.entries.remove(url);
        }
    }

    /// The numbers of those that were kept of a URL.
    fn remove(&mut self, url: &str) -> Vec<u64> {
        let of_url = self.entries.remove(url).unwrap_or_default();
        self.count -= of_url.len();
        self.bytes -= of_url.iter().map(|entry| entry.bytes(url)).sum::<usize>();
        of_url.into_iter().map(|entry| entry.number).collect()
    }
}

impl Entry {
    fn bytes(&self, url: &str) -> usize {
        let body = match &self.body {
            Kept::Memory(body) => body.len(),
            Kept::Disk(on_disk) => usize::try_from(on_disk.length).unwrap_or(usize::MAX),
        };
        // The URL is the map's, and in the head's file.
        url.len() + self.stored.bytes() + body
    }
}

/// The wall time, in seconds since 1970.
fn now_s() -> u64 {
    unix_ns() / 1_000_000_000
}

const MOST_BODY_BYTES: usize = 8 << 20;
/// Bodies of the largest size that may be coming at the same time.
const MOST_FILLING: usize = 4;
/// Responses of one URL, apart for what `vary` names.
const MOST_OF_URL: usize = 8;
const MOST: usize = 8192;

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.inner.index();
        f.debug_struct("Cache")
            .field("responses", &index.count)
            .field("bytes", &index.bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests;
