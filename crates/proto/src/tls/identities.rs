//! Which of several certificates a client is shown: by the name that it asks for, and by what it can verify.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::any_name::read_back;
use super::certificate::Certificate;
use super::client::{Clock, Identity, SettingsError};
use super::staple::{Staple, StaplePolicy, Stapling};
use super::transcript::Choosing;

/// The certificates of a server, in the order of its settings.
#[derive(Debug)]
pub(super) struct Identities {
    all: Vec<Arc<Known>>,
    /// Those that have a name, in lower case. A wildcard stands without its asterisk.
    by_name: HashMap<Vec<u8>, Vec<Arc<Known>>>,
    scans_all: bool,
}

/// A certificate with its key.
#[derive(Debug)]
struct Known {
    certified: Arc<CertifiedKey>,
    staple: Option<Stapled>,
    policy: StaplePolicy,
}

/// What an authority says of a certificate.
#[derive(Debug)]
struct Stapled {
    staple: Staple,
    /// The certificate with it.
    certified: Arc<CertifiedKey>,
}

impl Known {
    fn new(
        identity: Identity,
        policy: StaplePolicy,
        schemes: &[SignatureScheme],
        provider: &CryptoProvider,
    ) -> Result<(Self, Vec<Vec<u8>>), SettingsError> {
        let Identity { chain, key, staple } = identity;
        let mut certified =
            CertifiedKey::from_der(chain, key, provider).map_err(|_| SettingsError::WrongKey)?;
        certified.key = Choosing::among(certified.key, schemes);
        let certified = Arc::new(certified);
        let leaf = certified.cert.first().and_then(|leaf| Certificate::parse(leaf));
        let leaf = leaf.ok_or(SettingsError::NoCertificate)?;
        match &staple {
            None if leaf.must_staple() => return Err(SettingsError::MustStaple),
            None if policy == StaplePolicy::Must => return Err(SettingsError::NoStaple),
            Some(staple) if !staple.is_about(leaf.serial_octets()) => {
                return Err(SettingsError::WrongStaple);
            }
            None | Some(_) => {}
        }
        let policy = if leaf.must_staple() { StaplePolicy::Must } else { policy };
        let staple = staple.map(|staple| {
            let ocsp = Some(staple.der.clone());
            let certified = Arc::new(CertifiedKey { ocsp, ..CertifiedKey::clone(&certified) });
            Stapled { staple, certified }
        });
        let names = leaf.server_names().map(<[u8]>::to_ascii_lowercase).collect();
        Ok((Self { certified, staple, policy }, names))
    }
}

/// What a client can do with a certificate.
#[derive(Clone, Copy)]
struct Wish<'a> {
    schemes: &'a [SignatureScheme],
    /// When it asks what an authority says of it, in seconds since 1970.
    asks_status: Option<i64>,
}

impl Wish<'_> {
    fn stapling(&self, known: &Known) -> Option<Stapling> {
        let staple = known.staple.as_ref().map(|stapled| &stapled.staple);
        self.asks_status.map(|now| known.policy.stapling(staple, now))
    }

    fn fits(&self, known: &Known) -> bool {
        known.certified.key.choose_scheme(self.schemes).is_some()
            && self.stapling(known) != Some(Stapling::Failed)
    }
}

impl Identities {
    pub(super) fn new(
        identities: Vec<Identity>,
        policy: StaplePolicy,
        schemes: &[SignatureScheme],
        provider: &CryptoProvider,
    ) -> Result<Self, SettingsError> {
        let (mut all, mut by_name) = (Vec::new(), HashMap::<_, Vec<_>>::new());
        for identity in identities {
            let (known, names) = Known::new(identity, policy, schemes, provider)?;
            let known = Arc::new(known);
            for name in names {
                let suffix = if name.starts_with(b"*.") { &name[1..] } else { &name };
                by_name.entry(suffix.to_vec()).or_default().push(Arc::clone(&known));
            }
            all.push(known);
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

    fn named(&self, name: &[u8], wish: Wish<'_>) -> Option<&Arc<Known>> {
        best(self.by_name.get(name)?, wish)
    }

    fn choose(&self, name: Option<&str>, wish: Wish<'_>) -> Option<&Arc<Known>> {
        let asked = name.map(str::to_ascii_lowercase);
        let by_name = asked.as_deref().and_then(|name| {
            let parent = || self.named(&name.as_bytes()[name.find('.')?..], wish);
            self.named(name.as_bytes(), wish).or_else(parent)
        });
        let by_kind = || match asked {
            Some(_) if !self.scans_all => None,
            Some(_) | None => best(&self.all, wish),
        };
        // One that the client cannot verify would end the handshake in the middle. Without any scheme there is no suite
        // either, which rustls says best.
        let fits = |first: &&Arc<Known>| wish.schemes.is_empty() || wish.fits(first);
        by_name.or_else(by_kind).or_else(|| self.all.first().filter(fits))
    }
}

/// The first ECDSA certificate that the client can verify, or else the first of another kind.
fn best<'a>(certificates: &'a [Arc<Known>], wish: Wish<'_>) -> Option<&'a Arc<Known>> {
    let usable = certificates.iter().filter(|one| wish.fits(one));
    usable.min_by_key(|one| one.certified.key.algorithm() != SignatureAlgorithm::ECDSA)
}

/// What a connection says before a certificate is chosen for it, and what is chosen: rustls passes on neither. One
/// worker's; a connection tells it and takes it around each step.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice(Arc<Mutex<Step>>);

/// A step of one connection.
#[derive(Debug, Default)]
struct Step {
    asks_status: bool,
    chosen: Option<Chosen>,
}

/// A certificate that was chosen.
#[derive(Debug)]
pub(super) struct Chosen {
    /// None fits.
    pub(super) certified: Option<Arc<CertifiedKey>>,
    /// What became of the client's question about it, if it asked.
    pub(super) stapling: Option<Stapling>,
}

impl Choice {
    /// What chooses among certificates for one worker, and tells of it.
    pub(super) fn telling(
        &self,
        identities: Arc<Identities>,
        clock: Clock,
    ) -> Arc<dyn ResolvesServerCert> {
        Arc::new(Telling { identities, choice: self.clone(), clock })
    }

    /// A connection begins a step; `asks_status` says whether its client wants to know what an authority says.
    pub(super) fn begin(&self, asks_status: bool) {
        *self.step() = Step { asks_status, chosen: None };
    }

    /// What was chosen in the step.
    pub(super) fn take(&self) -> Option<Chosen> {
        self.step().chosen.take()
    }

    fn step(&self) -> MutexGuard<'_, Step> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Telling {
    identities: Arc<Identities>,
    choice: Choice,
    clock: Clock,
}

impl ResolvesServerCert for Telling {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut step = self.choice.step();
        let now = || self.clock.provider().current_time().map_or(i64::MAX, seconds);
        let asks_status = step.asks_status.then(now);
        let wish = Wish { schemes: client_hello.signature_schemes(), asks_status };
        let name = client_hello.server_name();
        let verbatim = name.and_then(read_back).map(|name| name.to_ascii_lowercase());
        let known = self.identities.choose(verbatim.as_deref().or(name), wish);
        let stapling = match known {
            Some(known) => wish.stapling(known),
            // The first of all is what is left, which rules of stapling may forbid.
            None => self.identities.all.first().and_then(|first| wish.stapling(first)),
        };
        let certified = known.map(|known| match &known.staple {
            Some(Stapled { certified, .. }) if stapling == Some(Stapling::Shown) => certified,
            Some(_) | None => &known.certified,
        });
        let certified = certified.cloned();
        step.chosen = Some(Chosen { certified: certified.clone(), stapling });
        certified
    }
}

fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
