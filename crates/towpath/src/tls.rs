//! How `https` and `tls` are spoken: versions 1.2 and 1.3, the server's name always sent and always checked.

use std::fmt;
#[cfg(any(target_os = "android", test))]
use std::path::Path;

#[cfg(not(any(
    target_os = "ios",
    target_os = "tvos",
    target_os = "visionos",
    target_os = "watchos"
)))]
use rustls_native_certs::CertificateResult;
use towpath_proto::tls::{ClientSettings, ClientTemplate, Identity, Names, Platform, Roots, Trust};

use crate::Error;

/// Whom to believe, and who we are. By default those whom the platform believes, and no certificate of our own.
#[derive(Default)]
#[must_use = "it is used by an engine's builder"]
pub struct Tls {
    roots: Option<Vec<u8>>,
    pins: Vec<[u8; 32]>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// The platform's roots (on Linux, `SSL_CERT_FILE` and `SSL_CERT_DIR` override where they are), no pins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Believes those that these certificates have signed (PEM), and not the platform's.
    pub fn roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// Beside being signed by a root, a server's certificate must have a public key with this SHA-256 of its
    /// `SubjectPublicKeyInfo`, or with that of another pin (RFC 7469 §2.4).
    pub fn pin(mut self, spki_sha256: [u8; 32]) -> Self {
        self.pins.push(spki_sha256);
        self
    }

    /// Who we are, to servers that ask: a certificate with its chain, and its key (PEM).
    pub fn identity(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((chain.into(), key.into()));
        self
    }

    /// What is needed to speak it, with these protocols offered (RFC 7301). Reads the platform's roots, if they are
    /// wanted.
    pub(crate) fn template(&self, alpn: &[&str]) -> Result<ClientTemplate, Error> {
        let sound = |error: towpath_proto::tls::SettingsError| Error::Tls(error.to_string());
        let (roots, platform) = match &self.roots {
            Some(pem) => (Some(Roots::from_pem(pem).map_err(sound)?), None),
            None => of_platform()?,
        };
        let identity = match &self.identity {
            Some((chain, key)) => Some(Identity::from_pem(chain, key).map_err(sound)?),
            None => None,
        };
        let trust = Trust {
            roots,
            platform,
            names: Names::Server,
            spki_sha256: self.pins.clone(),
            ..Trust::default()
        };
        ClientSettings {
            alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
            trust,
            identity,
            ..ClientSettings::default()
        }
        .build()
        .map_err(sound)
    }
}

/// Whom the platform believes, where a program can read that; elsewhere the platform itself.
type Believed = (Option<Roots>, Option<Platform>);

/// Those that cannot be read are passed over: platforms have such.
#[cfg(not(any(
    target_os = "ios",
    target_os = "tvos",
    target_os = "visionos",
    target_os = "watchos"
)))]
fn of_platform() -> Result<Believed, Error> {
    #[cfg(target_os = "android")]
    if android::is_ready() {
        return asked();
    }
    let found = bytes(rustls_native_certs::load_native_certs());
    #[cfg(target_os = "android")]
    let found = if found.is_empty() { roots_below(&ANDROID) } else { found };
    let roots = Roots::from_der(found)
        .map_err(|_| Error::Tls("the platform has no certificates that are trusted".to_owned()))?;
    Ok((Some(roots), None))
}

/// A program cannot read the platform's roots there.
#[cfg(any(target_os = "ios", target_os = "tvos", target_os = "visionos", target_os = "watchos"))]
fn of_platform() -> Result<Believed, Error> {
    asked()
}

#[cfg(any(
    target_os = "android",
    target_os = "ios",
    target_os = "tvos",
    target_os = "visionos",
    target_os = "watchos"
))]
fn asked() -> Result<Believed, Error> {
    let platform = Platform::new(rustls_platform_verifier::Verifier::new);
    let platform = platform.map_err(|error| Error::Tls(error.to_string()))?;
    Ok((None, Some(platform)))
}

/// Android's own judgement of certificates, which its virtual machine has to be known for.
#[cfg(target_os = "android")]
pub mod android {
    use std::sync::atomic::{AtomicBool, Ordering};

    pub use rustls_platform_verifier::android::Runtime;

    static READY: AtomicBool = AtomicBool::new(false);

    /// From now on servers' certificates are judged as Android does, with what the user and the app's Network Security
    /// Config add and take away, and with an eye on revocation; engines that are made before read the system's roots.
    /// The app needs the classes of `rustls-platform-verifier` (its README says how).
    pub fn init(runtime: &'static dyn Runtime) {
        rustls_platform_verifier::android::init_with_runtime(runtime);
        READY.store(true, Ordering::Release);
    }

    pub(super) fn is_ready() -> bool {
        READY.load(Ordering::Acquire)
    }
}

/// Those of the first folder that has any, in files that are named for their hashes, as OpenSSL has them.
#[cfg(any(target_os = "android", test))]
fn roots_below(folders: &[&str]) -> Vec<Vec<u8>> {
    let load = |folder: &&str| {
        bytes(rustls_native_certs::load_certs_from_paths(None, Some(Path::new(folder))))
    };
    folders.iter().map(load).find(|found| !found.is_empty()).unwrap_or_default()
}

#[cfg(not(any(
    target_os = "ios",
    target_os = "tvos",
    target_os = "visionos",
    target_os = "watchos"
)))]
fn bytes(found: CertificateResult) -> Vec<Vec<u8>> {
    found.certs.into_iter().map(|certificate| certificate.as_ref().to_vec()).collect()
}

/// The system's own, which apps believe by default: from Android 14 on they come with updates of the security provider.
#[cfg(target_os = "android")]
const ANDROID: [&str; 2] = ["/apex/com.android.conscrypt/cacerts", "/system/etc/security/cacerts"];

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("pins", &self.pins.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_in_files_that_are_named_for_their_hashes_are_found_as_android_has_them() {
        let folder = std::env::temp_dir().join(format!("towpath-cacerts-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = rcgen::generate_simple_self_signed(["root.test".to_owned()]).unwrap();
        let words = "    Signature Algorithm: they stand behind and before the PEM there\n";
        std::fs::write(folder.join("5ed36f99.0"), format!("{}{words}", key.cert.pem())).unwrap();
        std::fs::write(folder.join("notes.txt"), "no certificate").unwrap();
        let found = roots_below(&["/no/such/folder", &folder.to_string_lossy()]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [key.cert.der().to_vec()]);
        assert!(roots_below(&["/no/such/folder"]).is_empty());
    }
}
