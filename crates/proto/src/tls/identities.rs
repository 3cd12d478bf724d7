//! Which of several certificates a client is shown: by the name that it asks for, and by what it can verify.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::certificate::Certificate;
use super::client::{Identity, SettingsError};

/// The certificates of a server, in the order of its settings.
#[derive(Debug)]
pub(super) struct Identities {
    all: Vec<Arc<CertifiedKey>>,
    /// Those that have a name, in lower case. A wildcard stands without its asterisk.
    by_name: HashMap<Vec<u8>, Vec<Arc<CertifiedKey>>>,
    scans_all: bool,
}

impl Identities {
    pub(super) fn new(
        identities: Vec<Identity>,
        provider: &CryptoProvider,
    ) -> Result<Self, SettingsError> {
        let (mut all, mut by_name) = (Vec::new(), HashMap::<_, Vec<_>>::new());
        for Identity { chain, key } in identities {
            let certified = CertifiedKey::from_der(chain, key, provider)
                .map_err(|_| SettingsError::WrongKey)
                .map(Arc::new)?;
            let leaf = certified.cert.first().and_then(|leaf| Certificate::parse(leaf));
            for name in leaf.ok_or(SettingsError::NoCertificate)?.server_names() {
                let suffix = if name.starts_with(b"*.") { &name[1..] } else { name };
                by_name
                    .entry(suffix.to_ascii_lowercase())
                    .or_default()
                    .push(Arc::clone(&certified));
            }
            all.push(certified);
        }
        if all.is_empty() {
            return Err(SettingsError::NoCertificate);
        }
        Ok(Self { all, by_name, scans_all: false })
    }

    /// Looks at all certificates when none has the name that a client asks for.
    pub(super) fn scan_all(&mut self) {
        self.scans_all = true;
    }

    fn named(&self, name: &[u8], schemes: &[SignatureScheme]) -> Option<&Arc<CertifiedKey>> {
        best(self.by_name.get(name)?, schemes)
    }
}

/// The first ECDSA certificate that the client can verify, or else the first of another kind.
fn best<'a>(
    certificates: &'a [Arc<CertifiedKey>],
    schemes: &[SignatureScheme],
) -> Option<&'a Arc<CertifiedKey>> {
    let usable = certificates.iter().filter(|one| one.key.choose_scheme(schemes).is_some());
    usable.min_by_key(|one| one.key.algorithm() != SignatureAlgorithm::ECDSA)
}

/// The certificate that was chosen last, by one worker: rustls does not say it. A connection takes it right after the
/// step in which it was chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice(Arc<Mutex<Option<Arc<CertifiedKey>>>>);

impl Choice {
    /// A resolver that tells of what another chooses.
    pub(super) fn telling(
        &self,
        resolver: Arc<dyn ResolvesServerCert>,
    ) -> Arc<dyn ResolvesServerCert> {
        Arc::new(Telling { resolver, choice: self.clone() })
    }

    pub(super) fn take(&self) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, chosen: Option<Arc<CertifiedKey>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = chosen;
    }
}

#[derive(Debug)]
struct Telling {
    resolver: Arc<dyn ResolvesServerCert>,
    choice: Choice,
}

impl ResolvesServerCert for Telling {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = self.resolver.resolve(client_hello);
        self.choice.put(chosen.clone());
        chosen
    }
}

impl ResolvesServerCert for Identities {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = client_hello.signature_schemes();
        let asked = client_hello.server_name().map(str::to_ascii_lowercase);
        let by_name = asked.as_deref().and_then(|name| {
            let parent = || self.named(&name.as_bytes()[name.find('.')?..], schemes);
            self.named(name.as_bytes(), schemes).or_else(parent)
        });
        let by_kind = || match asked {
            Some(_) if !self.scans_all => None,
            Some(_) | None => best(&self.all, schemes),
        };
        // One that the client cannot verify would end the handshake in the middle. Without any scheme there is no suite
        // either, which rustls says best.
        let fits = |first: &&_| {
            schemes.is_empty() || best(std::slice::from_ref(*first), schemes).is_some()
        };
        let first = || self.all.first().filter(fits);
        by_name.or_else(by_kind).or_else(first).cloned()
    }
}
