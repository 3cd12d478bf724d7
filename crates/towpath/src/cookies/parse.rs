//! A `set-cookie` field's value (RFC 6265bis §5.6).

use super::date;

/// What it says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SetCookie {
    pub(super) name: String,
    pub(super) value: String,
    /// In lower case, without a dot before it.
    pub(super) domain: Option<String>,
    pub(super) path: Option<String>,
    /// A `path` was said, whatever it was.
    pub(super) has_path: bool,
    pub(super) secure: bool,
    pub(super) http_only: bool,
    /// Seconds since 1970.
    pub(super) expires: Option<u64>,
}

impl SetCookie {
    /// None where it is to be ignored as a whole.
    pub(super) fn parse(text: &str, now: u64) -> Option<Self> {
        // A tab is allowed, but not in a file of cookies.
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return None;
        }
        let mut parts = text.split(';');
        let pair = parts.next()?;
        let (name, value) = pair.split_once('=').unwrap_or(("", pair));
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        let length = name.len() + value.len();
        if length == 0 || length > MOST_BYTES {
            return None;
        }
        let mut this = Self {
            name,
            value,
            domain: None,
            path: None,
            has_path: false,
            secure: false,
            http_only: false,
            expires: None,
        };
        let (mut max_age, mut expires) = (None, None);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (name.trim(), value.trim());
            if value.len() > MOST_ATTRIBUTE_BYTES {
                continue;
            }
            match name.to_ascii_lowercase().as_str() {
                "expires" => expires = date::parse(value).or(expires),
                "max-age" => max_age = seconds(value).or(max_age),
                "domain" => {
                    let domain = value.strip_prefix('.').unwrap_or(value).to_ascii_lowercase();
                    // One without a value is as if it were not there.
                    this.domain = Some(domain).filter(|domain| !domain.is_empty());
                }
                "path" => {
                    this.has_path = true;
                    this.path = value.starts_with('/').then(|| value.to_owned());
                }
                "secure" => this.secure = true,
                "httponly" => this.http_only = true,
                _ => {}
            }
        }
        let lasts = max_age.map(|age| now.saturating_add_signed(age)).or(expires);
        this.expires = lasts.map(|at| at.min(now + LONGEST_S));
        Some(this)
    }
}

/// Digits, perhaps with a minus; what has no room stands for very many.
fn seconds(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match text.parse::<i64>() {
        // One that has been over for ever.
        Ok(seconds) if seconds <= 0 => Some(i64::MIN),
        Ok(seconds) => Some(seconds),
        Err(_) if text.starts_with('-') => Some(i64::MIN),
        Err(_) => Some(i64::MAX),
    }
}

/// Of name and value together.
const MOST_BYTES: usize = 4096;
const MOST_ATTRIBUTE_BYTES: usize = 1024;
/// 400 days.
const LONGEST_S: u64 = 400 * 24 * 3600;
