//! How clients of earlier connections come back without a full handshake: tickets (RFC 5077, RFC 8446 §4.6.1), which
//! every worker of the process can open, and sessions by id (RFC 5246 §7.4.1.3).
//!
//! Both say when they were made, and are of no use when that is longer ago than the lifetime of sessions.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use aws_lc_rs::cipher::{
    AES_256, AES_CBC_IV_LEN, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{hmac, rand};
use rustls::server::{ProducesTickets, StoresServerSessions};

use super::client::{Clock, SettingsError};

/// Encrypts tickets as RFC 5077 §4 recommends: AES-256-CBC, and HMAC-SHA-256 over all that precedes it.
pub struct TicketKey {
    name: [u8; NAME_BYTES],
    mac: hmac::Key,
    encrypting: PaddedBlockEncryptingKey,
    decrypting: PaddedBlockDecryptingKey,
}

impl TicketKey {
    /// From 80 bytes, as Envoy's `session_ticket_keys` have them: 16 of a name, 32 for the HMAC, 32 for AES.
    ///
    /// # Errors
    /// When they are more or fewer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SettingsError> {
        let bytes = bytes.try_into().map_err(|_| SettingsError::TicketKey)?;
        Self::of(bytes).map_err(|_| SettingsError::TicketKey)
    }

    fn random() -> Result<Self, Unspecified> {
        let mut bytes = [0; KEY_BYTES];
        rand::fill(&mut bytes)?;
        Self::of(&bytes)
    }

    fn of(bytes: &[u8; KEY_BYTES]) -> Result<Self, Unspecified> {
        let (name, keys) = bytes.split_first_chunk().ok_or(Unspecified)?;
        let (mac, cipher) = keys.split_at(32);
        let cipher = || UnboundCipherKey::new(&AES_256, cipher);
        Ok(Self {
            name: *name,
            mac: hmac::Key::new(hmac::HMAC_SHA256, mac),
            encrypting: PaddedBlockEncryptingKey::cbc_pkcs7(cipher()?)?,
            decrypting: PaddedBlockDecryptingKey::cbc_pkcs7(cipher()?)?,
        })
    }

    /// Name, initialization vector, ciphertext, HMAC.
    fn seal(&self, mut state: Vec<u8>) -> Option<Vec<u8>> {
        let context = self.encrypting.encrypt(&mut state).ok()?;
        let vector: &[u8] = (&context).try_into().ok()?;
        let mut ticket = [&self.name, vector, &state].concat();
        let tag = hmac::sign(&self.mac, &ticket);
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (sealed, tag) = ticket.split_last_chunk::<TAG_BYTES>()?;
        hmac::verify(&self.mac, sealed, tag).ok()?;
        let (vector, state) = sealed.get(NAME_BYTES..)?.split_first_chunk::<AES_CBC_IV_LEN>()?;
        let context = DecryptionContext::Iv128(FixedLength::from(*vector));
        let mut state = state.to_vec();
        self.decrypting.decrypt(&mut state, context).ok().map(|plain| plain.to_vec())
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").finish_non_exhaustive()
    }
}

/// The keys of a server, which all workers share.
#[derive(Debug)]
pub(super) enum TicketKeys {
    /// The first one encrypts, all of them decrypt.
    Given(Vec<TicketKey>),
    Rotated(RwLock<Rotation>),
}

/// Keys of our own. Each encrypts for one lifetime of sessions, and decrypts for another.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    current: Option<Box<TicketKey>>,
    previous: Option<Box<TicketKey>>,
    /// In seconds since 1970.
    ends: u64,
}

impl Rotation {
    fn is_current(&self, lifetime: u64, now: u64) -> bool {
        // A clock that was set back would make the key last longer.
        self.current.is_some() && now < self.ends && self.ends <= now + lifetime
    }

    fn rotate(&mut self, lifetime: u64, now: u64) -> Option<()> {
        let next = TicketKey::random().ok().map(Box::new)?;
        self.previous = self.current.replace(next);
        self.ends = now + lifetime;
        Some(())
    }
}

impl TicketKeys {
    fn rotation(
        lock: &RwLock<Rotation>,
        lifetime: u64,
        now: u64,
    ) -> Option<RwLockReadGuard<'_, Rotation>> {
        let rotation = lock.read().unwrap_or_else(PoisonError::into_inner);
        if rotation.is_current(lifetime, now) {
            return Some(rotation);
        }
        drop(rotation);
        let mut rotation = lock.write().unwrap_or_else(PoisonError::into_inner);
        // Another worker may have done it.
        if !rotation.is_current(lifetime, now) {
            rotation.rotate(lifetime, now)?;
        }
        drop(rotation);
        Some(lock.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn seal(&self, state: Vec<u8>, lifetime: u64, now: u64) -> Option<Vec<u8>> {
        match self {
            Self::Given(keys) => keys.first()?.seal(state),
            Self::Rotated(lock) => {
                Self::rotation(lock, lifetime, now)?.current.as_ref()?.seal(state)
            }
        }
    }

    fn open(&self, ticket: &[u8], lifetime: u64, now: u64) -> Option<Vec<u8>> {
        let is_named = |key: &&TicketKey| ticket.starts_with(&key.name);
        match self {
            Self::Given(keys) => keys.iter().find(is_named)?.open(ticket),
            Self::Rotated(lock) => {
                let rotation = Self::rotation(lock, lifetime, now)?;
                let keys = rotation.current.iter().chain(&rotation.previous);
                keys.map(AsRef::as_ref).find(is_named)?.open(ticket)
            }
        }
    }
}

/// Tickets by a worker's clock.
#[derive(Debug)]
pub(super) struct Ticketer {
    pub(super) keys: Arc<TicketKeys>,
    pub(super) clock: Clock,
    /// In seconds.
    pub(super) lifetime: u32,
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime.min(MOST_LIFETIME_SECONDS)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        // A client's certificates are in it; a ticket has at most 64 KiB.
        if plain.len() > MOST_STATE_BYTES {
            return None;
        }
        let now = self.clock.seconds()?;
        self.keys.seal(dated(plain, now), self.lifetime.into(), now)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let now = self.clock.seconds()?;
        let state = self.keys.open(ticket, self.lifetime.into(), now)?;
        undated(&state, self.lifetime, now)
    }
}

/// Sessions by id, of all workers. The lock is held for a look into a map.
#[derive(Debug, Default)]
pub(super) struct KeptSessions(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_id: HashMap<Vec<u8>, Vec<u8>>,
    /// Oldest first; of some the session is taken.
    ids: VecDeque<Vec<u8>>,
}

/// Sessions by a worker's clock.
#[derive(Debug)]
pub(super) struct SessionIds {
    pub(super) kept: Arc<KeptSessions>,
    pub(super) most: usize,
    pub(super) clock: Clock,
    /// In seconds.
    pub(super) lifetime: u32,
}

impl SessionIds {
    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.kept.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn current(&self, session: Option<Vec<u8>>) -> Option<Vec<u8>> {
        undated(&session?, self.lifetime, self.clock.seconds()?)
    }
}

impl StoresServerSessions for SessionIds {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let Some(now) = self.clock.seconds() else { return false };
        if value.len() > MOST_KEPT_BYTES {
            return false;
        }
        self.with(|kept| {
            while kept.ids.len() >= self.most {
                let Some(oldest) = kept.ids.pop_front() else { return false };
                kept.by_id.remove(&oldest);
            }
            if kept.by_id.insert(key.clone(), dated(&value, now)).is_none() {
                kept.ids.push_back(key);
            }
            true
        })
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.current(self.with(|kept| kept.by_id.get(key).cloned()))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.current(self.with(|kept| kept.by_id.remove(key)))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// Puts the time before a session's state.
fn dated(state: &[u8], now: u64) -> Vec<u8> {
    [&now.to_be_bytes()[..], state].concat()
}

/// The state, if it is not older than so many seconds.
fn undated(state: &[u8], lifetime: u32, now: u64) -> Option<Vec<u8>> {
    let (made, state) = state.split_first_chunk()?;
    let age = now.saturating_sub(u64::from_be_bytes(*made));
    (age <= lifetime.into()).then(|| state.to_vec())
}

const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = NAME_BYTES + 32 + 32;
const TAG_BYTES: usize = 32;
const MOST_STATE_BYTES: usize = 32 * 1024;
/// A client's certificates are in it.
const MOST_KEPT_BYTES: usize = 16 * 1024;
/// Seven days (RFC 8446 §4.6.1).
const MOST_LIFETIME_SECONDS: u32 = 7 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_that_was_changed_is_of_no_use() {
        let key = TicketKey::from_bytes(&[7; KEY_BYTES]).unwrap();
        let seal = || key.seal(b"state of a session".to_vec()).unwrap();
        let ticket = seal();
        assert_eq!(key.open(&ticket).as_deref(), Some(&b"state of a session"[..]));
        assert_ne!(seal(), ticket, "never the same");
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(key.open(&changed), None, "byte {at}");
            assert_eq!(key.open(&ticket[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn sessions_by_id_are_bounded_and_forgotten_oldest_first() {
        let clock = Clock::default();
        let ids = SessionIds { kept: Arc::default(), most: 3, clock: clock.clone(), lifetime: 100 };
        assert!(!ids.put(vec![0], vec![9]), "the time is not known");
        clock.set(std::time::Duration::from_secs(1000));
        assert!(!ids.put(vec![0], vec![9; MOST_KEPT_BYTES + 1]), "too large");
        for id in 0..5 {
            assert!(ids.put(vec![id], vec![id]));
        }
        let found: Vec<_> = (0..5).map(|id| ids.get(&[id]).is_some()).collect();
        assert_eq!(found, [false, false, true, true, true]);
        assert_eq!(ids.take(&[2]), Some(vec![2]));
        assert_eq!(ids.get(&[2]), None);
        for id in 10..100 {
            ids.put(vec![id], vec![id]);
            ids.take(&[id]);
        }
        ids.with(|kept| assert!(kept.ids.len() <= 3 && kept.by_id.len() <= 3));
    }
}
