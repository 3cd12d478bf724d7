//! What a worker keeps for all requests: keys that were fetched, and tokens that were verified.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::{Head, Instant};

use super::token::Token;
use super::{CacheLimits, JwtAuthn, KeySource, Keys, RemoteKeys};
use crate::filter::jwt_authn::stats::JwtAuthnStats;
use crate::filter::{Answer, Callout, CalloutSpan, FilterScope, Joint, SpanName};

/// One worker's filter.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Arc<JwtAuthn>,
    pub(super) stats: Arc<JwtAuthnStats>,
    /// By the numbers of providers.
    providers: Vec<Known>,
}

/// What is known of a provider.
#[derive(Debug, Default)]
struct Known {
    keys: RefCell<Option<Fresh>>,
    /// How many answers to questions that were asked ahead it knows of.
    heard: Cell<u64>,
    fetch: RefCell<Weak<Fetch>>,
    tokens: RefCell<TokenCache>,
}

/// Keys that a server has sent.
#[derive(Debug)]
struct Fresh {
    keys: Arc<Keys>,
    /// As they came.
    text: Bytes,
    until: Instant,
}

/// A question for keys, for all requests that wait for its answer.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) provider: usize,
    joint: Joint,
    outcome: OnceCell<Option<Arc<Keys>>>,
}

impl Shared {
    pub(super) fn new(config: Arc<JwtAuthn>, scope: &FilterScope) -> Self {
        let stats = JwtAuthnStats::of(scope, &config.stat_prefix);
        let providers = config.providers.iter().map(|_| Known::default()).collect();
        Self { config, stats, providers }
    }

    /// The keys of a provider; none if they have to be fetched first.
    pub(super) fn keys(&self, provider: usize, now: Instant) -> Option<Arc<Keys>> {
        match &self.config.providers.get(provider)?.keys {
            KeySource::Local(keys) => Some(Arc::clone(keys)),
            KeySource::Remote(remote) => {
                let known = self.providers.get(provider)?;
                let news = remote.ahead.as_ref().and_then(|ahead| ahead.news(&known.heard));
                if let Some((keys, text)) = news {
                    // As in Envoy, they are good until others come.
                    known.keep(&keys, text, Instant::FAR_FUTURE);
                }
                let keys = known.keys.borrow();
                keys.as_ref().filter(|fresh| now < fresh.until).map(|fresh| Arc::clone(&fresh.keys))
            }
        }
    }

    /// The question for a provider's keys that is on its way, or a new one.
    pub(super) fn fetch(&self, provider: usize) -> Option<(Rc<Fetch>, Box<Callout>)> {
        let KeySource::Remote(remote) = &self.config.providers.get(provider)?.keys else {
            return None;
        };
        let known = self.providers.get(provider)?;
        let running = known.fetch.borrow().upgrade().filter(|it| it.outcome.get().is_none());
        let fetch = running.unwrap_or_else(|| {
            let joint = Joint::default();
            Rc::new(Fetch { provider, joint, outcome: OnceCell::new() })
        });
        *known.fetch.borrow_mut() = Rc::downgrade(&fetch);
        let callout = question(remote, Some(fetch.joint.clone()));
        Some((fetch, Box::new(callout)))
    }

    /// What has come of a question. The first that hears of it reads the answer.
    pub(super) fn outcome(
        &self,
        fetch: &Fetch,
        answer: &Answer,
        now: Instant,
    ) -> Option<Arc<Keys>> {
        let outcome = fetch.outcome.get_or_init(|| {
            let keys = read(answer);
            self.stats.count_fetch(keys.is_some());
            let (keys, text) = keys?;
            let config = self.config.providers.get(fetch.provider)?;
            if let (Some(known), KeySource::Remote(remote)) =
                (self.providers.get(fetch.provider), &config.keys)
            {
                known.keep(&keys, text, now + remote.cache_duration);
            }
            Some(keys)
        });
        outcome.clone()
    }

    /// A token that was good, and has not ended by this second since 1970.
    pub(super) fn good_token(&self, provider: usize, text: &[u8], now: u64) -> Option<Rc<Token>> {
        let limits = self.config.providers.get(provider)?.cache;
        let known = self.providers.get(provider)?;
        let found = limits.and_then(|_| known.tokens.borrow_mut().get(text, now));
        let counter = match found {
            Some(_) => &self.stats.jwt_cache_hit,
            None => &self.stats.jwt_cache_miss,
        };
        counter.inc();
        found
    }

    /// Keeps a token that is good.
    pub(super) fn keep_token(&self, provider: usize, text: &[u8], token: &Rc<Token>) {
        let limits = self.config.providers.get(provider).and_then(|config| config.cache);
        if let (Some(limits), Some(known)) = (limits, self.providers.get(provider))
            && text.len() <= limits.token_bytes
        {
            known.tokens.borrow_mut().insert(text, token, limits);
        }
    }
}

impl Known {
    fn keep(&self, keys: &Arc<Keys>, text: Bytes, until: Instant) {
        let fresh = Fresh { keys: Arc::clone(keys), text: text.clone(), until };
        let old = self.keys.borrow_mut().replace(fresh);
        // What keys have verified that are gone is verified again.
        if old.is_none_or(|old| old.text != text) {
            *self.tokens.borrow_mut() = TokenCache::default();
        }
    }
}

/// The span of keys that are fetched.
const FETCH: SpanName = SpanName::Fixed("JWT Remote PubKey Fetch");

pub(super) fn question(remote: &RemoteKeys, joint: Option<Joint>) -> Callout {
    let (authority, path) = (remote.authority.as_bytes(), remote.path.as_bytes());
    let mut head = Head::request(b"GET", b"http", authority, path);
    head.set_bytes(b"user-agent", b"Go-browser");
    crate::filter::callout::mark(&mut head, remote.timeout);
    Callout {
        cluster: Arc::clone(&remote.cluster),
        head,
        body: Bytes::new(),
        timeout: remote.timeout,
        max_bytes: MOST_BYTES,
        joint,
        retry: remote.retry.clone(),
        span: Some(CalloutSpan::new(FETCH)),
    }
}

pub(super) fn read(answer: &Answer) -> Option<(Arc<Keys>, Bytes)> {
    match answer {
        Answer::Response { head, body, .. } if head.status() == 200 => {
            Some((Arc::new(Keys::parse(body).ok()?), body.clone()))
        }
        Answer::Response { .. } | Answer::Failed(_) => None,
    }
}

/// Tokens, of which the one that was not asked for the longest time goes first.
#[derive(Debug, Default)]
struct TokenCache {
    tokens: HashMap<Box<[u8]>, (u64, Rc<Token>)>,
    by_age: BTreeMap<u64, Box<[u8]>>,
    clock: Cell<u64>,
    weight: usize,
}

impl TokenCache {
    fn get(&mut self, text: &[u8], now: u64) -> Option<Rc<Token>> {
        let (age, token) = self.tokens.get_mut(text)?;
        let token = Rc::clone(token);
        if token.check_time(now, DEFAULT_SKEW).is_err() {
            self.remove(text);
            return None;
        }
        let old = std::mem::replace(age, tick(&self.clock));
        let key = self.by_age.remove(&old)?;
        self.by_age.insert(*age, key);
        Some(token)
    }

    fn insert(&mut self, text: &[u8], token: &Rc<Token>, limits: CacheLimits) {
        self.remove(text);
        let age = tick(&self.clock);
        self.weight += text.len() + token.weight();
        self.by_age.insert(age, text.into());
        self.tokens.insert(text.into(), (age, Rc::clone(token)));
        while self.tokens.len() > limits.tokens || self.weight > MOST_CACHED_BYTES {
            let Some((_, oldest)) = self.by_age.first_key_value() else { return };
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, text: &[u8]) {
        if let Some((age, token)) = self.tokens.remove(text) {
            self.by_age.remove(&age);
            self.weight -= text.len() + token.weight();
        }
    }
}

fn tick(clock: &Cell<u64>) -> u64 {
    clock.set(clock.get() + 1);
    clock.get()
}

/// A set of keys is no longer.
const MOST_BYTES: usize = 1 << 20;
/// Tokens of one provider, of one worker.
const MOST_CACHED_BYTES: usize = 64 << 20;
/// In seconds. The provider's own is asked for later.
const DEFAULT_SKEW: u64 = 60;

#[cfg(test)]
mod tests {
    use super::super::tests::{HEADER, unsigned};
    use super::*;

    fn token(id: u64, expires: u64) -> (Vec<u8>, Rc<Token>) {
        let text = unsigned(HEADER, &format!(r#"{{"exp":{expires},"n":{id}}}"#));
        let token = Token::parse(text.as_bytes()).unwrap();
        (text.into_bytes(), Rc::new(token))
    }

    #[test]
    fn the_token_that_was_not_asked_for_goes_first() {
        let mut cache = TokenCache::default();
        let limits = CacheLimits { tokens: 2, token_bytes: 4096 };
        let all: Vec<_> = (0..3).map(|id| token(id, 100)).collect();
        cache.insert(&all[0].0, &all[0].1, limits);
        cache.insert(&all[1].0, &all[1].1, limits);
        assert!(cache.get(&all[0].0, 0).is_some());
        cache.insert(&all[2].0, &all[2].1, limits);
        let there = |cache: &mut TokenCache| {
            all.iter().map(|(text, _)| cache.get(text, 0).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(there(&mut cache), [true, false, true]);
        cache.insert(&all[2].0, &all[2].1, limits);
        assert_eq!((cache.tokens.len(), cache.by_age.len()), (2, 2));
        assert!(cache.get(&all[2].0, 161).is_none());
        assert!(cache.get(&all[0].0, 160).is_some());
        cache.remove(&all[0].0);
        assert_eq!((cache.tokens.len(), cache.by_age.len(), cache.weight), (0, 0, 0));
    }
}
