//! Digest (RFC 7616): a proof that the password is known, without telling it. `auth` is spoken, and what RFC 2069
//! servers want; `auth-int` is not.

use std::fmt::Write as _;

use md5::Md5;
use sha2::{Digest, Sha256};

use super::Scheme;
use crate::engine::random_seed;

/// How strong the answer is, and the field; none where the server wants what is not spoken.
pub(super) fn answer(
    scheme: &Scheme,
    user: &str,
    password: &str,
    method: &str,
    uri: &str,
    cnonce: &str,
) -> Option<(u8, String)> {
    let algorithm = scheme.parameter("algorithm").unwrap_or("MD5");
    let (base, in_session) = match algorithm.to_ascii_lowercase().strip_suffix("-sess") {
        Some(base) => (base.to_owned(), true),
        None => (algorithm.to_ascii_lowercase(), false),
    };
    let (strength, hash): (u8, fn(&str) -> String) = match base.as_str() {
        "md5" => (0, |text| hex(&Md5::digest(text))),
        "sha-256" => (1, |text| hex(&Sha256::digest(text))),
        _ => return None,
    };
    let (realm, nonce) = (scheme.parameter("realm")?, scheme.parameter("nonce")?);
    let qop = match scheme.parameter("qop") {
        None => None,
        Some(all) => {
            Some(all.split(',').map(str::trim).find(|qop| qop.eq_ignore_ascii_case("auth"))?)
        }
    };
    // §3.4.2, §3.4.3.
    let mut secret = hash(&format!("{user}:{realm}:{password}"));
    if in_session {
        secret = hash(&format!("{secret}:{nonce}:{cnonce}"));
    }
    let asked = hash(&format!("{method}:{uri}"));
    let response = match qop {
        Some(_) => hash(&format!("{secret}:{nonce}:{FIRST}:{cnonce}:auth:{asked}")),
        None => hash(&format!("{secret}:{nonce}:{asked}")),
    };
    let mut field = format!(
        "Digest username={}, realm={}, nonce={}, uri=\"{uri}\", response=\"{response}\", algorithm={algorithm}",
        quoted(user),
        quoted(realm),
        quoted(nonce)
    );
    if qop.is_some() {
        let _ = write!(field, ", qop=auth, nc={FIRST}, cnonce=\"{cnonce}\"");
    }
    if let Some(opaque) = scheme.parameter("opaque") {
        let _ = write!(field, ", opaque={}", quoted(opaque));
    }
    Some((strength, field))
}

/// Ours, which no other request has.
pub(super) fn nonce() -> String {
    format!("{:016x}{:016x}", random_seed(), random_seed())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Each nonce is used once.
const FIRST: &str = "00000001";

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7616 §3.9.1.
    fn example(algorithm: &str) -> Scheme {
        let field = format!(
            "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", algorithm={algorithm}, \
             nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", \
             opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""
        );
        Scheme::all(&field).remove(0)
    }

    fn of_mufasa(scheme: &Scheme) -> Option<(u8, String)> {
        let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
        answer(scheme, "Mufasa", "Circle of Life", "GET", "/dir/index.html", cnonce)
    }

    #[test]
    fn the_vectors_of_rfc_7616_come_out() {
        for (algorithm, strength, response) in [
            ("MD5", 0, "8ca523f5e9506fed4657c9700eebdbec"),
            ("SHA-256", 1, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ] {
            let (found, field) = of_mufasa(&example(algorithm)).unwrap();
            assert_eq!(found, strength);
            assert!(field.contains(&format!("response=\"{response}\"")), "{field}");
            assert!(field.contains("username=\"Mufasa\", realm=\"http-auth@example.org\""));
            assert!(
                field.contains("uri=\"/dir/index.html\"")
                    && field.contains("qop=auth, nc=00000001")
            );
            assert!(field.ends_with("opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""));
        }
        assert_ne!(
            of_mufasa(&example("MD5-sess")).unwrap().1,
            of_mufasa(&example("MD5")).unwrap().1
        );
    }

    #[test]
    fn what_is_not_spoken_is_not_answered() {
        assert_eq!(of_mufasa(&example("SHA-512-256")), None);
        for field in
            ["Digest nonce=n", "Digest realm=r", "Digest realm=r, nonce=n, qop=\"auth-int\""]
        {
            assert_eq!(of_mufasa(&Scheme::all(field)[0]), None, "{field}");
        }
        // RFC 2069, whose example RFC 2617 corrects: no qop, no cnonce.
        let old = &Scheme::all(
            "Digest realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\"",
        )[0];
        let (_, field) =
            answer(old, "Mufasa", "CircleOfLife", "GET", "/dir/index.html", "").unwrap();
        assert!(field.contains("response=\"1949323746fe6a43ef61f9606e7febea\""), "{field}");
        assert!(!field.contains("qop"));
    }
}
