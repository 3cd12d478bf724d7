//! As much of a URL as a request needs (RFC 3986, RFC 9110 §4.2).

use std::fmt;

use towpath_engine::local::message::Transport;

use crate::Error;

/// Who is asked for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// A name in lower case, or an address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What `host` says: with brackets, and with the port unless it is the scheme's.
    pub(crate) authority: String,
    /// Path and query, beginning with `/`.
    pub(crate) target: String,
    pub(crate) scheme: &'static str,
    pub(crate) transport: Transport,
}

impl Url {
    /// That of a link: `tcp://host:port` or `tls://host:port`, and nothing behind it.
    pub(crate) fn parse_link(text: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let scheme = match scheme {
            _ if scheme.eq_ignore_ascii_case("tcp") => "http",
            _ if scheme.eq_ignore_ascii_case("tls") => "https",
            _ => return Err("its scheme is neither tcp nor tls"),
        };
        // No port is the usual one.
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port || rest.contains(['/', '?', '#']) {
            return Err("it is not tcp://host:port");
        }
        match Self::parse(&format!("{scheme}://{rest}")) {
            Ok(url) => Ok(url),
            Err(Error::Url(why)) => Err(why),
            Err(_) => Err("it is not tcp://host:port"),
        }
    }

    /// Where a reference leads to that was found here (RFC 3986 §5.2); none if that cannot be asked.
    pub(crate) fn join(&self, reference: &str) -> Option<Self> {
        let reference = reference.split('#').next().unwrap_or_default();
        let path_end = self.target.find('?').unwrap_or(self.target.len());
        let path = &self.target[..path_end];
        let scheme = reference.split(['/', '?']).next().and_then(|begin| begin.split_once(':'));
        let text = if scheme.is_some() {
            reference.to_owned()
        } else if let Some(rest) = reference.strip_prefix("//") {
            format!("{}://{rest}", self.scheme)
        } else {
            let target = match reference.chars().next()? {
                '/' => reference.to_owned(),
                '?' => format!("{path}{reference}"),
                _ => format!("{}{reference}", &path[..=path.rfind('/')?]),
            };
            format!("{}://{}{target}", self.scheme, self.authority)
        };
        let mut joined = Self::parse(&text).ok()?;
        joined.target = encode(&without_dots(&joined.target));
        Some(joined)
    }

    /// The same under TLS: from port 80 to 443, from any other to that (RFC 6797 §8.3).
    #[cfg(feature = "hsts")]
    pub(crate) fn make_secure(&mut self) {
        let host =
            self.authority.strip_suffix(&format!(":{}", self.port)).unwrap_or(&self.authority);
        self.port = if self.port == 80 { 443 } else { self.port };
        self.authority =
            if self.port == 443 { host.to_owned() } else { format!("{host}:{}", self.port) };
        (self.scheme, self.transport) = ("https", Transport::Tls);
    }

    /// Adds to the query.
    pub(crate) fn add_query(&mut self, pairs: &str) {
        if !pairs.is_empty() {
            let has_query = self.target.contains('?');
            let is_open = self.target.ends_with(['?', '&']);
            self.target.push_str(if !has_query {
                "?"
            } else if is_open {
                ""
            } else {
                "&"
            });
            self.target.push_str(pairs);
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(Error::Url("it has no scheme"));
        };
        // RFC 6455 §3: WebSocket begins as a request.
        let is = |one: &str, other: &str| {
            scheme.eq_ignore_ascii_case(one) || scheme.eq_ignore_ascii_case(other)
        };
        let (transport, scheme, usual_port) = if is("https", "wss") {
            (Transport::Tls, "https", 443)
        } else if is("http", "ws") {
            (Transport::Plain, "http", 80)
        } else {
            return Err(Error::Url("its scheme is neither http nor https"));
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        // RFC 9110 §4.2.4: what stands before an `@` is not to be sent, and mostly meant to deceive.
        if authority.contains('@') {
            return Err(Error::Url("it names a user"));
        }
        let (host, port) = split_port(authority, usual_port)?;
        let host = host.to_ascii_lowercase();
        let bare = match host.strip_prefix('[') {
            Some(inside) => {
                let Some(inside) = inside.strip_suffix(']') else {
                    return Err(Error::Url("its brackets do not close"));
                };
                if inside.parse::<std::net::Ipv6Addr>().is_err() {
                    return Err(Error::Url("its address is not IPv6"));
                }
                inside.to_owned()
            }
            None => host.clone(),
        };
        if bare.is_empty() {
            return Err(Error::Url("it has no host"));
        }
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}%".contains(&byte);
        if !bare.bytes().all(fits) || bare.len() > 255 {
            return Err(Error::Url("its host has characters that no host has"));
        }
        let authority = if port == usual_port { host } else { format!("{host}:{port}") };
        let target = target.split('#').next().unwrap_or_default();
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Ok(Self { host: bare, port, authority, target, scheme, transport })
    }
}

/// A target whose path has no `.` and `..` any more (RFC 3986 §5.2.4).
fn without_dots(target: &str) -> String {
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
        // A path that ends so names a folder.
        if is_last && matches!(segment, "." | "..") {
            kept.push("");
        }
    }
    format!("/{}{query}", kept.join("/"))
}

/// What servers put into `location` though no URL has it, as it must be sent.
fn encode(target: &str) -> String {
    let mut encoded = String::with_capacity(target.len());
    for byte in target.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>`".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn split_port(authority: &str, usual_port: u16) -> Result<(&str, u16), Error> {
    let after_brackets = authority.rfind(']').map_or(0, |at| at + 1);
    let Some(colon) = authority[after_brackets..].find(':').map(|at| at + after_brackets) else {
        return Ok((authority, usual_port));
    };
    let (host, port) = (&authority[..colon], &authority[colon + 1..]);
    if port.is_empty() {
        return Ok((host, usual_port));
    }
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::Url("its port is not a number"));
    }
    match port.parse() {
        Ok(0) | Err(_) => Err(Error::Url("its port is not from 1 to 65535")),
        Ok(port) => Ok((host, port)),
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, u16, String, String) {
        let url = Url::parse(text).unwrap();
        (url.host, url.port, url.authority, url.target)
    }

    fn all(host: &str, port: u16, authority: &str, target: &str) -> (String, u16, String, String) {
        (host.to_owned(), port, authority.to_owned(), target.to_owned())
    }

    #[test]
    fn urls_fall_into_their_parts() {
        let plain = all("example.org", 80, "example.org", "/");
        assert_eq!(parts("http://example.org"), plain);
        assert_eq!(parts("HTTP://Example.ORG:80/#there"), plain);
        assert_eq!(parts("http://example.org:"), plain);
        assert_eq!(parts("http://a:8080?q=1"), all("a", 8080, "a:8080", "/?q=1"));
        assert_eq!(parts("http://[::1]:81/a/b?c=d/e"), all("::1", 81, "[::1]:81", "/a/b?c=d/e"));
        assert_eq!(parts("http://127.0.0.1/x"), all("127.0.0.1", 80, "127.0.0.1", "/x"));
    }

    #[test]
    fn https_has_its_own_port() {
        let url = Url::parse("https://example.org/x").unwrap();
        assert_eq!(
            (url.transport, url.port, &*url.authority),
            (Transport::Tls, 443, "example.org")
        );
        assert_eq!(Url::parse("https://example.org:80").unwrap().authority, "example.org:80");
    }

    #[test]
    fn a_query_grows() {
        for (url, then) in [
            ("http://a", "/?b=c"),
            ("http://a/x#y", "/x?b=c"),
            ("http://a/x?y=z", "/x?y=z&b=c"),
            ("http://a/x?", "/x?b=c"),
            ("http://a/x?y&", "/x?y&b=c"),
        ] {
            let mut url = Url::parse(url).unwrap();
            url.add_query("b=c");
            url.add_query("");
            assert_eq!(url.target, then);
        }
    }

    #[test]
    fn references_are_resolved_as_rfc_3986_has_it() {
        let base = Url::parse("http://a/b/c/d;p?q").unwrap();
        for (reference, target) in [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("g?y/./x", "/b/c/g?y/./x"),
            ("g?x=http://z", "/b/c/g?x=http://z"),
            ("g#s", "/b/c/g"),
            (";x", "/b/c/;x"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            ("./../g", "/b/g"),
            ("g/./h", "/b/c/g/h"),
            ("g/../h", "/b/c/h"),
            ("a b\u{e4}", "/b/c/a%20b%C3%A4"),
        ] {
            let joined = base.join(reference).unwrap();
            assert_eq!((&*joined.authority, &*joined.target), ("a", target), "{reference}");
        }
        assert_eq!(base.join("//g:81?x").unwrap().to_string(), "http://g:81/?x");
        assert_eq!(base.join("HTTPS://g").unwrap().to_string(), "https://g/");
        assert_eq!(
            base.join("").or_else(|| base.join("mailto:x")).or_else(|| base.join("g:h")),
            None
        );
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        for text in [
            "",
            "example.org",
            "ftp://example.org",
            "http://",
            "http:///path",
            "http://user@example.org",
            "http://example.org:0",
            "http://example.org:65536",
            "http://example.org:8x",
            "http://[::1",
            "http://[x]",
            "http://a b/",
            "http://a\r\nb/",
            "http://%41/",
        ] {
            assert!(matches!(Url::parse(text), Err(Error::Url(_))), "{text:?}");
        }
    }
}
