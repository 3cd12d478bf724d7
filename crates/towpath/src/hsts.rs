//! Hosts that want to be asked under TLS alone (HSTS, RFC 6797), kept for as long as they say, and over the app's lives
//! in a file that curl reads as well. Feature `hsts`.
//!
//! ```no_run
//! let engine = towpath::Engine::new()?;
//! let hosts = towpath::hsts::Hosts::load("hsts.txt")?;
//! let client = engine.client().hsts(&hosts);
//! client.get("http://example.org/").send()?;
//! hosts.save("hsts.txt")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A host is learned from the `strict-transport-security` field of an answer over `https`, addresses never. A request
//! to it by `http`, from the app or from a redirect, goes by `https` then, from port 80 to 443 and from any other to
//! the same (§8.3). No list of hosts comes with the library: [`Hosts::add`] takes those that an app knows.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use time::{Date, Month, UtcDateTime};
use towpath_engine::local::message::Transport;

use crate::url::Url;
use crate::wall_clock::unix_ns;

/// Hosts that are asked under TLS alone. Clones are the same.
#[derive(Clone, Default)]
pub struct Hosts {
    known: Arc<Mutex<HashMap<String, Host>>>,
}

/// What is known of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Host {
    /// Those below it as well.
    subdomains: bool,
    /// Seconds since 1970.
    expires_s: u64,
}

impl Hosts {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Those of a file (curl's `--hsts` writes such); none without the file. Lines that are none are passed over.
    ///
    /// # Errors
    /// When the file cannot be read, or is larger than any such file (1 MiB).
    pub fn load(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut text = Vec::new();
        match File::open(path) {
            Ok(file) => file.take(MOST_BYTES + 1).read_to_end(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        if text.len() as u64 > MOST_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is larger than such files are",
            ));
        }
        let hosts = Self::default();
        for (name, host) in String::from_utf8_lossy(&text).lines().filter_map(parse_line) {
            hosts.put(&name, host);
        }
        Ok(hosts)
    }

    /// Writes them to a file that only the app's user can read. A crash leaves the old file or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let now_s = now_s();
        let mut lines: Vec<String> = self
            .known()
            .iter()
            .filter(|(_, host)| host.expires_s > now_s)
            .map(|(name, host)| line(name, *host))
            .collect();
        lines.sort();
        let text = format!("# HSTS, as curl writes it\n{}", lines.concat());
        crate::file::replace(path.as_ref(), text.as_bytes()).map(drop)
    }

    /// Knows a host for so long, those below it as well where `subdomains` says so; for no time at all, no more.
    /// Whether it is the name of one: addresses are not.
    pub fn add(&self, host: &str, subdomains: bool, time: Duration) -> bool {
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        if name.is_empty() || name.parse::<IpAddr>().is_ok() {
            return false;
        }
        self.put(&name, Host { subdomains, expires_s: now_s().saturating_add(time.as_secs()) });
        true
    }

    /// Whether a host is asked under TLS alone: it or, with those below it, a domain above it is known.
    #[must_use]
    pub fn contains(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if host.parse::<IpAddr>().is_ok() {
            return false;
        }
        let (known, now_s) = (self.known(), now_s());
        let mut domain = Some(host.as_str());
        while let Some(name) = domain {
            let is_known = |it: &Host| it.expires_s > now_s && (it.subdomains || name == host);
            if known.get(name).is_some_and(is_known) {
                return true;
            }
            domain = name.split_once('.').map(|(_, above)| above);
        }
        false
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let now_s = now_s();
        self.known().values().filter(|host| host.expires_s > now_s).count()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.known().clear();
    }

    /// Makes `https` of `http` where the host wants it. Whether it did.
    pub(crate) fn upgrade(&self, url: &mut Url) -> bool {
        let upgrades = url.transport != Transport::Tls && self.contains(&url.host);
        if upgrades {
            url.make_secure();
        }
        upgrades
    }

    /// Takes what a host said at this URL (§8.1).
    pub(crate) fn hear(&self, url: &Url, field: &str) {
        if url.transport == Transport::Tls
            && let Some((max_age_s, subdomains)) = parse_field(field)
        {
            self.add(&url.host, subdomains, Duration::from_secs(max_age_s));
        }
    }

    fn put(&self, name: &str, mut host: Host) {
        host.expires_s = host.expires_s.min(LATEST_S);
        let (mut known, now_s) = (self.known(), now_s());
        known.remove(name);
        if host.expires_s <= now_s {
            return;
        }
        if known.len() >= MOST {
            known.retain(|_, host| host.expires_s > now_s);
        }
        if known.len() >= MOST {
            let soonest = known.iter().min_by_key(|(_, host)| host.expires_s);
            if let Some(name) = soonest.map(|(name, _)| name.clone()) {
                known.remove(&name);
            }
        }
        known.insert(name.to_owned(), host);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Host>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time and whether it is for those below as well (§6.1); none for a field that has to be ignored.
fn parse_field(field: &str) -> Option<(u64, bool)> {
    let (mut max_age_s, mut subdomains) = (None, false);
    let mut seen = Vec::new();
    for directive in field.split(';').map(str::trim).filter(|it| !it.is_empty()) {
        let (name, value) = directive
            .split_once('=')
            .map_or((directive, None), |(name, value)| (name.trim(), Some(value.trim())));
        let name = name.to_ascii_lowercase();
        match (name.as_str(), value) {
            ("max-age", Some(value)) => {
                let quoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
                let digits = quoted.unwrap_or(value);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                max_age_s = Some(digits.parse().unwrap_or(LONGEST_S).min(LONGEST_S));
            }
            ("includesubdomains", None) => subdomains = true,
            ("max-age", None) | ("includesubdomains", Some(_)) => return None,
            _ => {}
        }
        // Twice is once too often.
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
    }
    Some((max_age_s?, subdomains))
}

/// As curl has it: a dot before those that mean the ones below them as well, and when it ends (UTC).
fn line(name: &str, host: Host) -> String {
    let seconds = i64::try_from(host.expires_s.min(LATEST_S)).unwrap_or_default();
    let time = UtcDateTime::from_unix_timestamp(seconds).unwrap_or(UtcDateTime::UNIX_EPOCH);
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.as_hms();
    let (dot, month) = (if host.subdomains { "." } else { "" }, u8::from(month));
    format!("{dot}{name} \"{year:04}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}\"\n")
}

fn parse_line(line: &str) -> Option<(String, Host)> {
    let (name, time) = line.trim().split_once(' ').filter(|_| !line.starts_with('#'))?;
    let time = time.trim().strip_prefix('"')?.strip_suffix('"')?;
    let expires_s = if time == "unlimited" { u64::MAX } else { parse_time(time)? };
    let (name, subdomains) = name.strip_prefix('.').map_or((name, false), |name| (name, true));
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_name = !name.is_empty() && name.parse::<IpAddr>().is_err();
    is_name.then_some((name, Host { subdomains, expires_s }))
}

/// `20261231 23:59:59`.
fn parse_time(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to).filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
        digits?.parse::<u16>().ok()
    };
    let part = |from: usize| u8::try_from(number(from, from + 2)?).ok();
    let divided = text.get(8..9)? == " " && text.get(11..12)? == ":" && text.get(14..15)? == ":";
    let month = Month::try_from(part(4)?).ok()?;
    let date = Date::from_calendar_date(number(0, 4)?.into(), month, part(6)?).ok()?;
    let time = date.with_hms(part(9)?, part(12)?, part(15)?).ok()?.as_utc();
    let seconds = u64::try_from(time.unix_timestamp()).ok()?;
    (divided && text.len() == 17).then_some(seconds)
}

fn now_s() -> u64 {
    unix_ns() / 1_000_000_000
}

/// Ten years.
const LONGEST_S: u64 = 3650 * 86_400;
/// The last second that the file can have, in the year 9999.
const LATEST_S: u64 = 253_402_300_799;
const MOST: usize = 2000;
const MOST_BYTES: u64 = 1 << 20;

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts").field("hosts", &self.known().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn fields_are_read_or_ignored_as_a_whole() {
        for (field, then) in [
            ("max-age=31536000", Some((31_536_000, false))),
            ("Max-Age=\"5\" ; includeSubDomains", Some((5, true))),
            ("includesubdomains; max-age=0; preload; x=y;;", Some((0, true))),
            ("max-age=99999999999999999999999", Some((LONGEST_S, false))),
            ("includeSubDomains", None),
            ("max-age", None),
            ("max-age=", None),
            ("max-age=-1", None),
            ("max-age=1; max-age=1", None),
            ("max-age=1; includeSubDomains=x", None),
            ("", None),
        ] {
            assert_eq!(parse_field(field), then, "{field}");
        }
    }

    #[test]
    fn hosts_are_learned_over_https_and_addresses_never() {
        let hosts = Hosts::new();
        let year = "max-age=31536000";
        hosts.hear(&url("http://plain.example/"), year);
        hosts.hear(&url("https://192.0.2.1/"), year);
        hosts.hear(&url("https://[::1]/"), year);
        assert!(hosts.is_empty());
        hosts.hear(&url("https://One.example/"), year);
        hosts.hear(&url("https://all.example/"), "max-age=60; includeSubDomains");
        for (host, is_known) in [
            ("one.example", true),
            ("ONE.example.", true),
            ("below.one.example", false),
            ("a.b.all.example", true),
            ("notall.example", false),
            ("example", false),
        ] {
            assert_eq!(hosts.contains(host), is_known, "{host}");
        }
        hosts.hear(&url("https://all.example/"), "max-age=60");
        assert!(!hosts.contains("b.all.example"), "the last word counts");
        hosts.hear(&url("https://one.example/"), "max-age=0");
        assert!(!hosts.contains("one.example"));
        assert!(!hosts.add("192.0.2.1", true, Duration::MAX) && hosts.len() == 1);
    }

    #[test]
    fn urls_are_upgraded_with_their_ports() {
        let hosts = Hosts::new();
        hosts.add("a.example", true, Duration::from_secs(60));
        for (from, to) in [
            ("http://a.example/x?y", "https://a.example/x?y"),
            ("http://a.example:80/", "https://a.example/"),
            ("http://a.example:8080/", "https://a.example:8080/"),
            ("http://b.a.example:443/", "https://b.a.example/"),
            ("http://a.example./", "https://a.example./"),
        ] {
            let mut url = url(from);
            assert!(hosts.upgrade(&mut url), "{from}");
            assert_eq!((url.to_string().as_str(), url.transport), (to, Transport::Tls));
            assert!(!hosts.upgrade(&mut url));
        }
        assert!(!hosts.upgrade(&mut url("http://other.example/")));
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_as_curl_does() {
        let path = std::env::temp_dir().join(format!("towpath-hsts-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(Hosts::load(&path).unwrap().is_empty());
        let hosts = Hosts::new();
        hosts.add("a.example", true, Duration::from_secs(1000));
        hosts.add("b.example", false, Duration::MAX);
        hosts.save(&path).unwrap();
        let read = Hosts::load(&path).unwrap();
        assert_eq!(*read.known(), *hosts.known());
        let text = "# comment\n.c.example \"29991231 23:59:59\"\nd.example \"unlimited\"\n\
            old.example \"20200101 00:00:00\"\n.1.2.3.4 \"unlimited\"\nnonsense\ne.example \"29991331 00:00:00\"\n\
            f.example \"2999-12-31 23:59\"\n";
        std::fs::write(&path, text).unwrap();
        let read = Hosts::load(&path).unwrap();
        assert_eq!(read.len(), 2, "{:?}", read.known());
        assert!(read.contains("x.c.example") && read.contains("d.example"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("19700101 00:00:00", 0),
            ("20000229 12:34:56", 951_827_696),
            ("20260101 00:00:00", 1_767_225_600),
            ("99991231 23:59:59", LATEST_S),
        ] {
            assert_eq!(parse_time(text), Some(seconds), "{text}");
            let host = Host { subdomains: false, expires_s: seconds };
            assert_eq!(line("a", host), format!("a \"{text}\"\n"));
        }
        for text in
            ["19691231 23:59:59", "20250229 00:00:00", "20250101 24:00:00", "20250101 00:00"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn their_number_is_limited_and_the_shortest_goes_first() {
        let hosts = Hosts::new();
        for number in 0..=MOST {
            let time = Duration::from_secs(100 + number as u64);
            hosts.add(&format!("{number}.example"), false, time);
        }
        assert_eq!(hosts.len(), MOST);
        assert!(!hosts.contains("0.example") && hosts.contains("1.example"));
    }
}
