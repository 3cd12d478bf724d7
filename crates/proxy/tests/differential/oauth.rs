//! What the filter `oauth2` says that is drawn, signed or encrypted, as what it is. The secret is that of the suite.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::cipher::{AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::digest;
use aws_lc_rs::iv::FixedLength;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use regex::{Captures, Regex};

const SECRET: &[u8] = b"hmac secret";

/// A line with nonces, challenges and signatures by their names, states and cookies in clear, and times from now. The
/// cookies of a request are sorted: Envoy's map has no order.
pub(crate) fn shown(line: &str) -> Cow<'_, str> {
    static NONCE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b[0-9a-f]{16}\.[A-Za-z0-9+/]{43}=").unwrap());
    static STATE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\bstate=([A-Za-z0-9_-]{40,})").unwrap());
    static COOKIE: LazyLock<Regex> = LazyLock::new(|| {
        let names = "BearerToken|IdToken|RefreshToken|CodeVerifier|CV";
        Regex::new(&format!(r"\b(({names})(\.[0-9a-f]{{16}})?=)([A-Za-z0-9_-]{{43,}})")).unwrap()
    });
    static PLAIN: LazyLock<[(Regex, &str); 2]> = LazyLock::new(|| {
        [
            (r"\bcode_challenge=[A-Za-z0-9_-]{43}", "code_challenge=<challenge>"),
            (r"\b(OauthHMAC|HM)=[A-Za-z0-9+/]{43}=", "$1=<signature>"),
        ]
        .map(|(pattern, with)| (Regex::new(pattern).unwrap(), with))
    });
    static EXPIRES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(OauthExpires|EX)=([1-3]\d{9})\b").unwrap());
    static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"Max-Age=(\d{8,})").unwrap());
    if let Some((who, cookies)) = line.split_once(": cookie: ") {
        let mut cookies: Vec<&str> = cookies.split("; ").collect();
        cookies.sort_unstable();
        return format!("{who}: cookie: {}", cookies.join("; ")).into();
    }
    if !line.contains("set-cookie: ") && !line.contains("location: ") {
        return line.into();
    }
    let state = |found: &Captures<'_>| {
        let bytes = URL_SAFE_NO_PAD.decode(&found[1]).unwrap_or_default();
        format!("state=<{}>", String::from_utf8_lossy(&bytes))
    };
    let line = STATE.replace_all(line, state);
    let line = NONCE.replace_all(&line, "<nonce>");
    let line = COOKIE.replace_all(&line, |found: &Captures<'_>| {
        let text = match opened(&found[4]) {
            None => "unreadable".to_owned(),
            // A verifier is drawn.
            Some(text) if found[2].starts_with('C') => format!("{} characters", text.len()),
            Some(text) => text,
        };
        format!("{}<{text}>", &found[1])
    });
    let mut line = EXPIRES
        .replace_all(&line, |found: &Captures<'_>| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let left = found[2].parse::<u64>().unwrap().saturating_sub(now);
            // The two are asked at once, but clocks go on.
            format!("{}=<in {} s>", &found[1], (left + 5) / 10 * 10)
        })
        .into_owned();
    line = AGE
        .replace_all(&line, |found: &Captures<'_>| {
            let seconds: u64 = found[1].parse().unwrap();
            format!("Max-Age=<about {}00>", (seconds + 50) / 100)
        })
        .into_owned();
    for (pattern, with) in PLAIN.iter() {
        line = pattern.replace_all(&line, *with).into_owned();
    }
    line.into()
}

/// What an encrypted cookie says.
fn opened(text: &str) -> Option<String> {
    let mut bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (vector, sealed) = bytes.split_first_chunk_mut::<16>()?;
    let vector = DecryptionContext::Iv128(FixedLength::from(&*vector));
    let digest = digest::digest(&digest::SHA256, SECRET);
    let key = UnboundCipherKey::new(&AES_256, digest.as_ref()).ok()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
    String::from_utf8(key.decrypt(sealed, vector).ok()?.to_vec()).ok()
}
