//! A file of cookies in Netscape's format: one in a line, its seven parts divided by tabs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Cookie;

/// Those of a file; none without one.
pub(super) fn read(path: &Path) -> io::Result<Vec<Cookie>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut text = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than any jar"));
    }
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Cookie> {
    let (line, http_only) = match line.strip_prefix(HTTP_ONLY) {
        Some(line) => (line, true),
        None if line.starts_with('#') => return None,
        None => (line, false),
    };
    let parts: Vec<&str> = line.split('\t').collect();
    let [domain, below, path, secure, expires, name, value] = parts.try_into().ok()?;
    let expires: u64 = expires.parse().ok()?;
    if !path.starts_with('/') || domain.is_empty() {
        return None;
    }
    Some(Cookie {
        name: name.to_owned(),
        value: value.to_owned(),
        domain: domain.strip_prefix('.').unwrap_or(domain).to_ascii_lowercase(),
        host_only: below != "TRUE",
        path: path.to_owned(),
        secure: secure == "TRUE",
        http_only,
        expires: (expires > 0).then_some(expires),
        created: 0,
        used: 0,
    })
}

pub(super) fn write<'a>(cookies: impl Iterator<Item = &'a Cookie>) -> String {
    let mut text = String::from("# Netscape HTTP Cookie File\n");
    for cookie in cookies {
        let word = |is: bool| if is { "TRUE" } else { "FALSE" };
        let (begin, dot) = (
            if cookie.http_only { HTTP_ONLY } else { "" },
            if cookie.host_only { "" } else { "." },
        );
        let (below, secure) = (word(!cookie.host_only), word(cookie.secure));
        let expires = cookie.expires.unwrap_or(0);
        let Cookie { domain, path, name, value, .. } = cookie;
        text.push_str(&format!(
            "{begin}{dot}{domain}\t{below}\t{path}\t{secure}\t{expires}\t{name}\t{value}\n"
        ));
    }
    text
}

const HTTP_ONLY: &str = "#HttpOnly_";
/// 3000 of the largest.
const MOST_BYTES: u64 = 32 << 20;
