//! Cookies (RFC 6265bis), kept for as long as servers say, and over the app's lives in a file that curl reads as well.
//!
//! ```no_run
//! let engine = towpath::Engine::new()?;
//! let jar = towpath::cookies::Jar::load("cookies.txt")?;
//! let client = engine.client().cookies(&jar);
//! client.get("https://example.org/").send()?;
//! jar.save("cookies.txt")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A jar belongs to whom gives it to a client; several clients may share one. What a server sets is taken as
//! RFC 6265bis §5.7 has it: for its host or a domain above it that is no public suffix (the list is the `psl` crate's),
//! with the prefixes `__Secure-` and `__Host-`, at most 4096 bytes of name and value, for at most 400 days. `SameSite`
//! does not count: a library knows no site that a request comes from. A request with a `cookie` field of its own gets
//! none, and a redirect takes those of its own place.

mod date;
mod file;
mod parse;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::url::Url;
use crate::wall_clock::unix_ns;
use parse::SetCookie;

/// Where cookies are kept. Clones are the same jar.
#[derive(Clone, Default)]
pub struct Jar {
    store: Arc<Mutex<Store>>,
}

/// A cookie that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cookie {
    name: String,
    value: String,
    /// In lower case, without a dot before it.
    domain: String,
    /// It is for that host alone, not for those below it.
    host_only: bool,
    path: String,
    secure: bool,
    http_only: bool,
    /// Seconds since 1970; none for those that are gone with the jar.
    expires: Option<u64>,
    /// In which order they came, and were sent last.
    created: u64,
    used: u64,
}

#[derive(Default)]
struct Store {
    cookies: Vec<Cookie>,
    /// Counts what was created and used.
    clock: u64,
}

impl Jar {
    /// One without cookies.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With the cookies of a file (Netscape's format, as curl's `--cookie-jar` writes it); empty without the file.
    /// Lines that are none are passed over.
    ///
    /// # Errors
    /// When the file cannot be read, or is larger than any jar.
    pub fn load(path: impl AsRef<Path>) -> io::Result<Self> {
        let jar = Self::default();
        let cookies = file::read(path.as_ref())?;
        let (mut store, now) = (jar.store(), now());
        for cookie in cookies {
            store.put(cookie, now);
        }
        drop(store);
        Ok(jar)
    }

    /// Writes those that outlive the app to a file that only the app's user can read. A crash leaves the old file or
    /// the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let text = {
            let mut store = self.store();
            store.expire(now());
            file::write(store.cookies.iter().filter(|cookie| cookie.expires.is_some()))
        };
        crate::file::replace(path.as_ref(), text.as_bytes()).map(drop)
    }

    /// Forgets all of them.
    pub fn clear(&self) {
        self.store().cookies.clear();
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut store = self.store();
        store.expire(now());
        store.cookies.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes what a server at this URL said in a `set-cookie` field. Whether a cookie of it was kept or taken away.
    pub fn set(&self, url: &str, set_cookie: &str) -> bool {
        Url::parse(url).is_ok_and(|url| self.hear(&url, set_cookie))
    }

    /// What a request to this URL says in its `cookie` field.
    #[must_use]
    pub fn get(&self, url: &str) -> Option<String> {
        self.field(&Url::parse(url).ok()?)
    }

    pub(crate) fn hear(&self, url: &Url, set_cookie: &str) -> bool {
        let now = now();
        let cookie = SetCookie::parse(set_cookie, now).and_then(|set| accept(set, url));
        cookie.is_some_and(|cookie| self.store().put_from(cookie, is_secure(url), now))
    }

    pub(crate) fn field(&self, url: &Url) -> Option<String> {
        self.store().field(url, now())
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// What is to be sent, longer paths first, then older cookies (§5.8.3).
    fn field(&mut self, url: &Url, now: u64) -> Option<String> {
        self.expire(now);
        self.clock += 1;
        let clock = self.clock;
        let (host, path) = (&*url.host, path_of(url));
        let mut fitting: Vec<&mut Cookie> = self
            .cookies
            .iter_mut()
            .filter(|cookie| cookie.fits(host, path, is_secure(url)))
            .collect();
        fitting.sort_by(|a, b| (b.path.len(), a.created).cmp(&(a.path.len(), b.created)));
        let pairs: Vec<String> = fitting
            .into_iter()
            .map(|cookie| {
                cookie.used = clock;
                match cookie.name.as_str() {
                    "" => cookie.value.clone(),
                    name => format!("{name}={}", cookie.value),
                }
            })
            .collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }

    /// What a server set. What is not said over TLS does not lay itself over what was (§5.7, step 16).
    fn put_from(&mut self, cookie: Cookie, secure: bool, now: u64) -> bool {
        let overlaid = |other: &&Cookie| {
            let related = is_within(&other.domain, &cookie.domain)
                || is_within(&cookie.domain, &other.domain);
            other.secure
                && other.name == cookie.name
                && related
                && path_matches(&cookie.path, &other.path)
        };
        if !secure && self.cookies.iter().any(|other| overlaid(&other)) {
            return false;
        }
        self.put(cookie, now);
        true
    }

    fn put(&mut self, mut cookie: Cookie, now: u64) {
        self.expire(now);
        self.clock += 1;
        (cookie.created, cookie.used) = (self.clock, self.clock);
        let same = |other: &Cookie| {
            (&other.name, &other.domain, other.host_only, &other.path)
                == (&cookie.name, &cookie.domain, cookie.host_only, &cookie.path)
        };
        if let Some(at) = self.cookies.iter().position(same) {
            cookie.created = self.cookies.remove(at).created;
        }
        if cookie.expires.is_some_and(|expires| expires <= now) {
            return;
        }
        let of_domain = |other: &&Cookie| other.domain == cookie.domain;
        if self.cookies.iter().filter(of_domain).count() >= MOST_OF_DOMAIN {
            let domain = cookie.domain.clone();
            self.evict(|other| other.domain == domain);
        }
        if self.cookies.len() >= MOST {
            self.evict(|_| true);
        }
        self.cookies.push(cookie);
    }

    /// Forgets the one of these that was not used for longest; those that are not kept from others first.
    fn evict(&mut self, of: impl Fn(&Cookie) -> bool) {
        let candidates = self.cookies.iter().enumerate().filter(|(_, cookie)| of(cookie));
        let oldest = candidates.min_by_key(|(_, cookie)| (cookie.secure, cookie.used));
        if let Some(at) = oldest.map(|(at, _)| at) {
            self.cookies.remove(at);
        }
    }

    fn expire(&mut self, now: u64) {
        self.cookies.retain(|cookie| cookie.expires.is_none_or(|expires| expires > now));
    }
}

impl Cookie {
    fn fits(&self, host: &str, path: &str, secure: bool) -> bool {
        let of_host =
            if self.host_only { self.domain == host } else { is_within(host, &self.domain) };
        of_host && path_matches(path, &self.path) && (secure || !self.secure)
    }
}

/// What is kept of what a server said (§5.7); nothing where it may not say so.
fn accept(set: SetCookie, url: &Url) -> Option<Cookie> {
    let host = &*url.host;
    let (domain, host_only) = match set.domain {
        None => (host.to_owned(), true),
        Some(domain) if domain == *host => {
            // Of a public suffix itself it is for that host alone.
            let host_only = is_public_suffix(&domain) || host.parse::<std::net::IpAddr>().is_ok();
            (domain, host_only)
        }
        Some(domain) if is_within(host, &domain) && !is_public_suffix(&domain) => (domain, false),
        Some(_) => return None,
    };
    if set.secure && !is_secure(url) {
        return None;
    }
    let path = set.path.unwrap_or_else(|| default_path(path_of(url)).to_owned());
    let begins = |prefix: &str| {
        // One without a name is sent as its value, which may look like a name (§5.7, step 21).
        let text = if set.name.is_empty() { &set.value } else { &set.name };
        text.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
    };
    let prefixed = begins("__Secure-") || begins("__Host-");
    if prefixed && (set.name.is_empty() || !set.secure) {
        return None;
    }
    if begins("__Host-") && (!host_only || !set.has_path || path != "/") {
        return None;
    }
    Some(Cookie {
        name: set.name,
        value: set.value,
        domain,
        host_only,
        path,
        secure: set.secure,
        http_only: set.http_only,
        expires: set.expires,
        created: 0,
        used: 0,
    })
}

/// Whether a host is a domain or below it (§5.1.3).
fn is_within(host: &str, domain: &str) -> bool {
    host == domain
        || host.strip_suffix(domain).is_some_and(|begin| begin.ends_with('.'))
            && host.parse::<std::net::IpAddr>().is_err()
            && domain.parse::<std::net::IpAddr>().is_err()
}

/// Whether names below it are open to registration (a public suffix).
fn is_public_suffix(domain: &str) -> bool {
    psl::suffix(domain.as_bytes()).is_some_and(|suffix| suffix.as_bytes().len() == domain.len())
}

/// §5.1.4.
fn path_matches(path: &str, of: &str) -> bool {
    match path.strip_prefix(of) {
        Some(rest) => rest.is_empty() || of.ends_with('/') || rest.starts_with('/'),
        None => false,
    }
}

/// The folder of what was asked for (§5.1.4).
fn default_path(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(end) => &path[..end],
    }
}

fn path_of(url: &Url) -> &str {
    url.target.split('?').next().unwrap_or("/")
}

fn is_secure(url: &Url) -> bool {
    url.scheme == "https"
}

fn now() -> u64 {
    unix_ns() / 1_000_000_000
}

/// As browsers have it (§6.1).
const MOST_OF_DOMAIN: usize = 50;
const MOST: usize = 3000;

impl fmt::Debug for Jar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jar").field("cookies", &self.store().cookies.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
