//! Keys that are fetched before requests need them, by one worker for all.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::state::{question, read};
use super::stats::JwtAuthnStats;
use super::{Keys, RemoteKeys};
use crate::filter::ahead::Ahead;
use crate::filter::{Answer, Callout, FilterScope};

/// Envoy `JwksAsyncFetch`.
#[derive(Debug)]
pub struct FetchAhead {
    /// `fast_listener`: listeners do not wait for the first answer.
    pub fast_listener: bool,
    /// `failed_refetch_duration`: from a failure to the next question. Default 1 s.
    pub failed_refetch: Duration,
    /// `stat_prefix` of the filter.
    pub stat_prefix: Arc<str>,
    /// What has come of it.
    pub heard: Heard,
}

/// What servers have sent.
#[derive(Debug, Default)]
pub struct Heard {
    /// How many answers there were.
    answers: AtomicU64,
    /// The last keys, and their text.
    keys: Mutex<Option<(Arc<Keys>, Bytes)>>,
    /// What counts them, which may be there before the filter itself.
    stats: OnceLock<Arc<JwtAuthnStats>>,
}

impl FetchAhead {
    /// The last keys, if any have come since so many answers.
    pub(super) fn news(&self, seen: &Cell<u64>) -> Option<(Arc<Keys>, Bytes)> {
        let answers = self.heard.answers.load(Ordering::Acquire);
        if seen.replace(answers) == answers {
            return None;
        }
        self.heard.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, keys: Option<(Arc<Keys>, Bytes)>) {
        if keys.is_some() {
            *self.heard.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
        }
        self.heard.answers.fetch_add(1, Ordering::Release);
    }
}

impl Ahead for RemoteKeys {
    fn question(&self) -> Callout {
        question(self, None)
    }

    fn hear(&self, answer: &Answer, scope: &FilterScope) -> Duration {
        let Some(ahead) = &self.ahead else { return Duration::MAX };
        let fresh = || JwtAuthnStats::of(scope, &ahead.stat_prefix);
        let stats = ahead.heard.stats.get_or_init(fresh);
        let keys = read(answer);
        let is_good = keys.is_some();
        stats.count_fetch(is_good);
        ahead.keep(keys);
        if is_good { self.refetch() } else { ahead.failed_refetch }
    }

    fn is_ready(&self) -> bool {
        let is_heard = |ahead: &FetchAhead| ahead.heard.answers.load(Ordering::Acquire) > 0;
        self.ahead.as_ref().is_none_or(|ahead| ahead.fast_listener || is_heard(ahead))
    }
}

impl RemoteKeys {
    /// From an answer to the next question: before the keys would be too old, as in Envoy.
    fn refetch(&self) -> Duration {
        self.cache_duration
            .checked_sub(MARGIN)
            .filter(|it| !it.is_zero())
            .unwrap_or(self.cache_duration)
    }
}

const MARGIN: Duration = Duration::from_secs(5);
