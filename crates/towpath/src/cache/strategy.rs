//! What a cache says to one request, and does with its response.

use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::head::Head;

use super::policy::{Stored, Use, is_passed, is_safe, request_control};
use super::{Cache, Entry, Inner, now_s};
use crate::url::Url;
use crate::{Error, Failed, Request, Response};

/// What becomes of a request.
pub(crate) enum Strategy {
    /// It is sent as it is, and nothing is kept.
    Pass(Request),
    /// It is sent, where something is kept under conditions.
    Send(Request, Box<Pending>),
    /// It is answered.
    Answer(Answer),
}

/// A response that is kept, as the app gets it.
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: Bytes,
    /// What the timeline says of it.
    pub(crate) what: String,
    /// The server is to be asked while it is used.
    pub(crate) refresh: Option<Refresh>,
}

/// The one that asks the server for a new answer to a URL, while an old one is used.
pub(crate) struct Refresh {
    inner: Arc<Inner>,
    url: String,
}

/// A request that was sent, and what is kept for it.
pub(crate) struct Pending {
    inner: Arc<Inner>,
    stale_if_error_s: u64,
    url: String,
    /// As the app, and the library for it, said them.
    fields: Vec<(String, String)>,
    requested_s: u64,
    kept: Option<(Entry, Bytes)>,
}

/// What becomes of a response.
pub(crate) enum Outcome {
    /// It is the app's, and nothing is kept of it.
    Pass,
    /// It is the app's, and kept once it is whole.
    Fill(Filling),
    /// Another takes its place.
    Replace(Answer),
}

/// A body on its way into the cache. Dropping it leaves the cache as it is.
pub(crate) struct Filling {
    inner: Arc<Inner>,
    url: String,
    stored: Option<Stored>,
    body: Vec<u8>,
}

impl Cache {
    /// What becomes of a request. `refreshes`: it asks the server, whatever is kept.
    pub(crate) fn strategy(&self, mut request: Request, refreshes: bool) -> Strategy {
        let fields = &request.fields;
        let has_body = request.body.is_some() || request.pieces.is_some();
        let Ok(url) = request.url.as_ref().map(Url::to_string) else {
            return Strategy::Pass(request);
        };
        let asked = request_control(fields);
        if is_passed(&request.method, has_body, fields) || asked.has("no-store") {
            return Strategy::Pass(request);
        }
        let (inner, now_s) = (&self.inner, now_s());
        let kept = inner.find(&url, fields).and_then(|entry| {
            let body = inner.body(&url, &entry)?;
            Some((entry, body))
        });
        if let Some((entry, body)) = kept.as_ref().filter(|_| !refreshes) {
            let age_s = entry.stored.age_s(now_s);
            let (what, refresh) = match entry.stored.usable(fields, now_s) {
                Use::Fresh => (format!("cache: a fresh answer, {age_s} s old"), false),
                Use::Accepted => {
                    (format!("cache: a stale answer, {age_s} s old, as wanted"), false)
                }
                Use::Meanwhile => {
                    (format!("cache: a stale answer, {age_s} s old; ask meanwhile"), true)
                }
                Use::Validate => (String::new(), false),
            };
            if !what.is_empty() {
                let (head, body) = (entry.stored.head(now_s), body.clone());
                let refresh = refresh.then(|| Refresh::begin(inner, &url)).flatten();
                return Strategy::Answer(Answer { head, body, what, refresh });
            }
        }
        if asked.has("only-if-cached") {
            let what = "cache: nothing that would do".to_owned();
            let (head, body) = (Head::response(504), Bytes::new());
            return Strategy::Answer(Answer { head, body, what, refresh: None });
        }
        let pending = Pending {
            inner: Arc::clone(inner),
            stale_if_error_s: self.stale_if_error_s,
            url,
            fields: fields.clone(),
            requested_s: now_s,
            kept,
        };
        if let Some((entry, _)) = &pending.kept {
            request.fields.extend(entry.stored.conditions());
        }
        Strategy::Send(request, Box::new(pending))
    }

    /// What is kept of a URL is not the answer any more, once a request has changed something there (§4.4).
    pub(crate) fn hear(&self, method: &str, url: &Url, response: &Response) {
        if is_safe(method) || !(200..400).contains(&response.status()) {
            return;
        }
        self.inner.remove(&url.to_string());
        let others = ["location", "content-location"].map(|name| response.header(name));
        for other in others.into_iter().flatten().filter_map(|reference| url.join(reference)) {
            if (other.scheme, &other.host, other.port) == (url.scheme, &url.host, url.port) {
                self.inner.remove(&other.to_string());
            }
        }
    }
}

impl Refresh {
    /// None where one is under way.
    fn begin(inner: &Arc<Inner>, url: &str) -> Option<Self> {
        let is_first = inner.refreshing().insert(url.to_owned());
        is_first.then(|| Self { inner: Arc::clone(inner), url: url.to_owned() })
    }
}

impl Drop for Refresh {
    fn drop(&mut self) {
        self.inner.refreshing().remove(&self.url);
    }
}

impl Pending {
    /// What the timeline says when it is sent.
    pub(crate) fn what(&self) -> Option<&'static str> {
        let conditions = self.kept.as_ref().map(|(entry, _)| entry.stored.conditions().is_empty());
        match conditions {
            Some(false) => Some("cache: ask whether the stored answer still holds"),
            Some(true) => Some("cache: the stored answer is too old"),
            None => None,
        }
    }

    /// The server's answer is there.
    pub(crate) fn answered(self, response: &Head) -> Outcome {
        let now_s = now_s();
        let status = response.status();
        if let Some((entry, body)) = &self.kept {
            if status == 304 {
                return Outcome::Replace(self.validated(entry, body, response, now_s));
            }
            if matches!(status, 500 | 502 | 503 | 504)
                && let Some(answer) = self.stand_in(&format!("the server's {status}"))
            {
                return Outcome::Replace(answer);
            }
        }
        let stored = Stored::of(&self.fields, response, self.requested_s, now_s);
        let length = response.get_bytes(b"content-length");
        let length = length.and_then(|length| std::str::from_utf8(length).ok()?.parse().ok());
        let fits = length.is_none_or(|length: usize| length <= self.inner.max_body_bytes());
        if let Some(stored) = stored.filter(|_| fits) {
            let Self { inner, url, .. } = self;
            return Outcome::Fill(Filling { inner, url, stored: Some(stored), body: Vec::new() });
        }
        if let Some((entry, _)) = self.kept.as_ref().filter(|_| status < 500) {
            self.inner.index().forget(&self.url, entry.number);
            self.inner.erase(vec![entry.number]);
        }
        Outcome::Pass
    }

    /// There was no answer.
    pub(crate) fn failed(&self, error: &Error) -> Option<Answer> {
        let Error::Failed(failed) = error else { return None };
        if failed.why() == Failed::Cancelled {
            return None;
        }
        self.stand_in(&error.to_string())
    }

    fn validated(&self, entry: &Entry, body: &Bytes, response: &Head, now_s: u64) -> Answer {
        let refreshed = entry.stored.refreshed(response, self.requested_s, now_s);
        let (stored, what) = match refreshed {
            Some(stored) => {
                self.inner.refresh(&self.url, entry.number, &stored);
                (stored, "cache: the stored answer still holds (304)")
            }
            None => {
                // It speaks of a response that is not here: what is here is used once more.
                self.inner.index().forget(&self.url, entry.number);
                self.inner.erase(vec![entry.number]);
                (entry.stored.clone(), "cache: a 304 for another answer; forget the stored one")
            }
        };
        let (head, body) = (stored.head(now_s), body.clone());
        Answer { head, body, what: what.to_owned(), refresh: None }
    }

    fn stand_in(&self, why: &str) -> Option<Answer> {
        let ((entry, body), now_s) = (self.kept.as_ref()?, now_s());
        let stored = &entry.stored;
        stored.stands_in(&self.fields, self.stale_if_error_s, now_s).then(|| Answer {
            head: stored.head(now_s),
            body: body.clone(),
            what: format!("cache: an answer {} s old stands in: {why}", stored.age_s(now_s)),
            refresh: None,
        })
    }
}

impl Filling {
    /// A piece as it came.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        if self.stored.is_none() {
            return;
        }
        let fits = self.body.len() + piece.len() <= self.inner.max_body_bytes();
        if fits && self.inner.reserve(piece.len()) {
            self.body.extend_from_slice(piece);
        } else {
            self.give_up();
        }
    }

    /// The body is whole.
    pub(crate) fn commit(mut self) {
        if let Some(stored) = self.stored.take() {
            let body = Bytes::copy_from_slice(&self.body);
            self.inner.put(self.url.clone(), stored, body);
        }
    }

    fn give_up(&mut self) {
        self.stored = None;
        self.inner.release(self.body.len());
        self.body = Vec::new();
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.give_up();
    }
}
