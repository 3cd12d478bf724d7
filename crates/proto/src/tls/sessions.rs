//! Sessions that may be resumed: a bounded number, forgotten oldest first.
//!
//! A ticket of TLS 1.3 is used once (RFC 8446 §C.4); a session of TLS 1.2 as often as its server takes it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// The sessions of one worker with one cluster. The lock is never waited for: it is there because rustls wants what
/// it calls to be shareable.
#[derive(Debug)]
pub(super) struct Sessions {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    tls13: VecDeque<(ServerName<'static>, Tls13ClientSessionValue)>,
    tls12: VecDeque<(ServerName<'static>, Tls12ClientSessionValue)>,
    groups: VecDeque<(ServerName<'static>, NamedGroup)>,
}

impl Sessions {
    /// At most so many of each version.
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds at the end; what is too old falls out at the front.
fn remember<T>(list: &mut VecDeque<T>, most: usize, item: T) {
    if most == 0 {
        return;
    }
    while list.len() >= most {
        list.pop_front();
    }
    list.push_back(item);
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        let kept = &mut *self.kept();
        kept.groups.retain(|(name, _)| *name != server_name);
        remember(&mut kept.groups, self.most.max(1), (server_name, group));
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        let kept = self.kept();
        kept.groups.iter().find(|(name, _)| name == server_name).map(|(_, group)| *group)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        let kept = &mut *self.kept();
        kept.tls12.retain(|(name, _)| *name != server_name);
        remember(&mut kept.tls12, self.most, (server_name, value));
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let kept = self.kept();
        kept.tls12.iter().find(|(name, _)| name == server_name).map(|(_, value)| value.clone())
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.kept().tls12.retain(|(name, _)| name != server_name);
    }

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        remember(&mut self.kept().tls13, self.most, (server_name, value));
    }

    fn take_tls13_ticket(
        &self,
        server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        let kept = &mut *self.kept();
        let latest = kept.tls13.iter().rposition(|(name, _)| name == server_name)?;
        kept.tls13.remove(latest).map(|(_, value)| value)
    }
}
