//! What RFC 9111 lets a private cache keep and use. Times are seconds since 1970.
//!
//! Arrives: what a request says and what its response says. Leaves: whether that is kept, and for a later request
//! whether it is the answer, asks to be validated, or is another's. No clock and no file in here.

use std::time::UNIX_EPOCH;

use towpath_proto::head::Head;

use super::control::{Control, delta_seconds, elements};

/// The fields of a request that is about to be sent, by names of any case.
pub(super) type Fields = [(String, String)];

/// A stored response without its body, and what it was stored for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) status: u16,
    /// In the response's order.
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the request said in the fields that `vary` names (§4.1), in lower case.
    pub(super) selecting: Vec<(String, Option<String>)>,
    pub(super) requested_s: u64,
    pub(super) received_s: u64,
}

/// How a stored response may be used for a request that it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is the answer.
    Fresh,
    /// It is the answer, and the server is asked meanwhile (`stale-while-revalidate`, RFC 5861 §3).
    Meanwhile,
    /// It is the answer, because the request takes old ones (`max-stale`).
    Accepted,
    /// The server has to say whether it still is.
    Validate,
}

impl Stored {
    /// What is kept of a response to a GET; nothing where nothing may be kept (§3), or it would be of no use.
    pub(super) fn of(
        request: &Fields,
        response: &Head,
        requested_s: u64,
        received_s: u64,
    ) -> Option<Self> {
        let mut stored = Self {
            status: response.status(),
            fields: kept(response).collect(),
            selecting: Vec::new(),
            requested_s,
            received_s,
        };
        stored.selecting = stored.selecting_of(request)?;
        let control = stored.control();
        // §5.2.2.3: what tells caches to understand the status lets those that do store it.
        let is_refused = control.has("no-store")
            && !(control.has("must-understand") && UNDERSTOOD.contains(&stored.status));
        let is_refused = is_refused || request_control(request).has("no-store");
        let is_explicit = control.has("max-age") || control.has("public") || stored.has("expires");
        let is_understood = HEURISTIC.contains(&stored.status)
            || UNDERSTOOD.contains(&stored.status) && is_explicit;
        let is_useful =
            stored.lifetime_s() > 0 || stored.has("etag") || stored.has("last-modified");
        (is_understood && !is_refused && is_useful).then_some(stored)
    }

    /// Whether it was chosen by what this request says (§4.1).
    pub(super) fn fits(&self, request: &Fields) -> bool {
        self.selecting.iter().all(|(name, value)| said(request, name) == *value)
    }

    /// How it may be used now.
    pub(super) fn usable(&self, request: &Fields, now_s: u64) -> Use {
        let (asked, control) = (request_control(request), self.control());
        let (age_s, lifetime_s) = (self.age_s(now_s), self.lifetime_s());
        let refuses = asked.has("no-cache") || control.has("no-cache");
        // §5.2.1.1: older than the request takes is as good as stale.
        if refuses || asked.seconds("max-age").is_some_and(|most_s| age_s > most_s) {
            return Use::Validate;
        }
        let wanted_s = asked.seconds("min-fresh").unwrap_or(0);
        if lifetime_s > age_s.saturating_add(wanted_s) {
            return Use::Fresh;
        }
        let stale_s = age_s.saturating_sub(lifetime_s);
        if control.has("must-revalidate") || wanted_s > 0 {
            return Use::Validate;
        }
        if asked.is_bare("max-stale") || asked.seconds("max-stale").is_some_and(|it| it > stale_s) {
            return Use::Accepted;
        }
        match control.seconds("stale-while-revalidate") {
            Some(window_s) if stale_s < window_s => Use::Meanwhile,
            Some(_) | None => Use::Validate,
        }
    }

    /// Whether it may stand in for a server that does not answer, or answers 5xx (RFC 5861 §4). `usual_s` is the
    /// app's word for responses that have none of their own.
    pub(super) fn stands_in(&self, request: &Fields, usual_s: u64, now_s: u64) -> bool {
        let (asked, control) = (request_control(request), self.control());
        let forbidden = ["must-revalidate", "no-cache"].iter().any(|it| control.has(it));
        let allowed_s = asked
            .seconds("stale-if-error")
            .or_else(|| control.seconds("stale-if-error"))
            .unwrap_or(usual_s);
        let stale_s = self.age_s(now_s).saturating_sub(self.lifetime_s());
        !forbidden && !asked.has("no-cache") && stale_s < allowed_s
    }

    /// The fields of a request that ask whether it still is the answer (§4.3.1).
    pub(super) fn conditions(&self) -> Vec<(String, String)> {
        let condition = |name: &str, of: &str| Some((name.to_owned(), self.text(of)?.to_owned()));
        let both =
            [condition("if-none-match", "etag"), condition("if-modified-since", "last-modified")];
        both.into_iter().flatten().collect()
    }

    /// The same after a 304 (§3.2, §4.3.4); nothing where that speaks of another response.
    pub(super) fn refreshed(
        &self,
        not_modified: &Head,
        requested_s: u64,
        received_s: u64,
    ) -> Option<Self> {
        let (own, theirs) = (self.value("etag"), not_modified.get_bytes(b"etag"));
        if theirs.is_some_and(|theirs| own.is_none_or(|own| opaque(own) != opaque(theirs))) {
            return None;
        }
        let new: Vec<_> =
            kept(not_modified).filter(|(name, _)| !OF_THE_BODY.contains(&&**name)).collect();
        let mut fields = self.fields.clone();
        fields.retain(|(name, _)| !new.iter().any(|(other, _)| other == name));
        // §5.1: an age that the 304 does not name is not that of the response before.
        fields.retain(|(name, _)| name != b"age");
        fields.extend(new);
        Some(Self { fields, requested_s, received_s, ..self.clone() })
    }

    /// As the app gets it, with its age (§5.1).
    pub(super) fn head(&self, now_s: u64) -> Head {
        let mut head = Head::response(self.status);
        for (name, value) in &self.fields {
            head.append_bytes(name, value);
        }
        head.set_bytes(b"age", self.age_s(now_s).to_string().as_bytes());
        head
    }

    /// About what it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| name.len() + value.len() + 48);
        let selecting = self.selecting.iter();
        let selecting = selecting.map(|(name, it)| name.len() + it.as_ref().map_or(0, String::len));
        fields.chain(selecting).sum::<usize>() + 128
    }

    /// How old it is (§4.2.3). After a clock that was set back its age is not known: it is as old as can be.
    pub(super) fn age_s(&self, now_s: u64) -> u64 {
        let Some(resident_s) = now_s.checked_sub(self.received_s) else { return OLDEST_S };
        let apparent_s = self.date("date").map_or(0, |date| self.received_s.saturating_sub(date));
        let delay_s = self.received_s.saturating_sub(self.requested_s);
        let named_s = self.text("age").map_or(0, delta_seconds).saturating_add(delay_s);
        apparent_s.max(named_s).saturating_add(resident_s).min(OLDEST_S)
    }

    /// How long it is fresh (§4.2.1), from its beginning.
    fn lifetime_s(&self) -> u64 {
        let control = self.control();
        if let Some(seconds) = control.seconds("max-age") {
            return seconds;
        }
        let date = self.date("date").unwrap_or(self.received_s);
        if self.has("expires") {
            // §5.3: what is no date, as 0, is in the past.
            return self.date("expires").map_or(0, |expires| expires.saturating_sub(date));
        }
        if !HEURISTIC.contains(&self.status) && !control.has("public") {
            return 0;
        }
        // §4.2.2: a tenth of the time for which it had not changed, and a day at most.
        let changed = self.date("last-modified").unwrap_or(date);
        (date.saturating_sub(changed) / 10).min(MOST_GUESSED_S)
    }

    /// What the request said in the fields that the response depends on; nothing where it depends on what no field
    /// tells.
    fn selecting_of(&self, request: &Fields) -> Option<Vec<(String, Option<String>)>> {
        let vary = self.fields.iter().filter(|(name, _)| name == b"vary");
        let mut selecting = Vec::new();
        for (_, value) in vary {
            for name in elements(std::str::from_utf8(value).ok()?) {
                if name == "*" || selecting.len() == MOST_SELECTING {
                    return None;
                }
                let name = name.to_ascii_lowercase();
                let value = said(request, &name);
                selecting.push((name, value));
            }
        }
        Some(selecting)
    }

    fn control(&self) -> Control {
        let named = |wanted: &'static [u8]| {
            let of = self.fields.iter().filter(move |(name, _)| name == wanted);
            of.map(|(_, value)| value.as_slice())
        };
        if self.has("cache-control") {
            return Control::of(named(b"cache-control"));
        }
        // §5.4: what servers of old say.
        Control::of(named(b"pragma").filter(|value| value.eq_ignore_ascii_case(b"no-cache")))
    }

    fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        let found = self.fields.iter().find(|(other, _)| other == name.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.value(name)?).ok()
    }

    fn date(&self, name: &str) -> Option<u64> {
        let date = httpdate::parse_http_date(self.text(name)?).ok()?;
        Some(date.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
    }
}

/// Whether a method changes nothing at the server (RFC 9110 §9.2.1).
pub(super) fn is_safe(method: &str) -> bool {
    ["GET", "HEAD", "OPTIONS", "TRACE"].contains(&method)
}

/// Whether the cache has nothing to do with a request: another method, a part, or conditions of the app's own.
pub(super) fn is_passed(method: &str, has_body: bool, request: &Fields) -> bool {
    let is_own = |name: &str| {
        name.get(..3).is_some_and(|begin| begin.eq_ignore_ascii_case("if-"))
            || name.eq_ignore_ascii_case("range")
            || name.eq_ignore_ascii_case("host")
    };
    method != "GET" || has_body || request.iter().any(|(name, _)| is_own(name))
}

/// What a request says of caches; `pragma` where it says nothing else (§5.4).
pub(super) fn request_control(request: &Fields) -> Control {
    let of = |wanted: &'static str| {
        let named = request.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
        named.map(|(_, value)| value.as_bytes())
    };
    if of("cache-control").next().is_some() {
        return Control::of(of("cache-control"));
    }
    Control::of(of("pragma").filter(|value| value.eq_ignore_ascii_case(b"no-cache")))
}

/// What a request says in a field, in one line.
fn said(request: &Fields, name: &str) -> Option<String> {
    let values = request.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let values: Vec<&str> = values.map(|(_, value)| value.trim()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// The fields that are stored (§3.1): none of a connection, and no cookies, which would be set anew by each use.
fn kept(head: &Head) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let dropped: Vec<String> = head
        .iter()
        .filter(|field| field.name_bytes.eq_ignore_ascii_case(b"connection"))
        .flat_map(|field| {
            let value = String::from_utf8_lossy(field.value).to_ascii_lowercase();
            elements(&value).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    head.iter().filter_map(move |field| {
        let name = field.name_bytes.to_ascii_lowercase();
        let is_kept =
            !NOT_STORED.contains(&&*name) && !dropped.iter().any(|other| other.as_bytes() == name);
        is_kept.then(|| (name, field.value.to_vec()))
    })
}

/// Weak and strong tags of the same text are the same here (RFC 9110 §8.8.3.2).
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// RFC 9110 §15.1: fresh for a time that is guessed. 206 is not: parts are not put together here.
const HEURISTIC: &[u16] = &[200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];
const UNDERSTOOD: &[u16] = &[200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 501];
const NOT_STORED: &[&[u8]] = &[
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authentication-info",
    b"proxy-authorization",
    b"proxy-connection",
    b"set-cookie",
    b"set-cookie2",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];
/// A 304 does not change them: the body is the one that is stored.
const OF_THE_BODY: &[&[u8]] =
    &[b"content-encoding", b"content-length", b"content-range", b"content-type"];
const MOST_SELECTING: usize = 32;
const MOST_GUESSED_S: u64 = 86_400;
const OLDEST_S: u64 = 1 << 31;

#[cfg(test)]
mod tests;
