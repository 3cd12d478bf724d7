//! The cookie of a session: the address of a host and when it is no longer meant, as a message of Protocol Buffers in
//! base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use towpath_proto::Head;

use super::text;
use crate::cookie::cookie;

/// Envoy `CookieBasedSessionState`.
#[derive(Clone, Debug)]
pub struct SessionCookie {
    name: Box<[u8]>,
    path: Box<[u8]>,
    /// Seconds; 0 means as long as the client keeps it.
    lifetime: u64,
    /// What stands behind its value.
    attributes: Box<[u8]>,
}

/// What the value of a cookie says. Envoy `source/extensions/http/stateful_session/cookie/cookie.proto`.
#[derive(Clone, PartialEq, prost::Message)]
struct Said {
    /// Where the host is.
    #[prost(string, tag = "1")]
    address: String,
    /// In seconds since 1970; 0 means never.
    #[prost(int64, tag = "2")]
    expires: i64,
}

impl SessionCookie {
    /// A cookie as `envoy.type.http.v3.Cookie` has it, with its lifetime in seconds; 0 means none.
    #[must_use]
    pub fn new(name: &str, path: &str, lifetime: u64, others: &[(&str, &str)]) -> Self {
        let mut attributes = String::from("\"");
        if lifetime > 0 {
            attributes.push_str(&format!("; Max-Age={lifetime}"));
        }
        if !path.is_empty() {
            attributes.push_str(&format!("; Path={path}"));
        }
        for (name, value) in others {
            attributes.push_str("; ");
            attributes.push_str(name);
            if !value.is_empty() {
                attributes.push('=');
                attributes.push_str(value);
            }
        }
        attributes.push_str("; HttpOnly");
        Self {
            name: name.as_bytes().into(),
            path: path.as_bytes().into(),
            lifetime,
            attributes: attributes.into_bytes().into(),
        }
    }

    /// Whether a client would send it with a request for this path (RFC 6265 §5.1.4).
    pub(super) fn takes(&self, path: &[u8]) -> bool {
        let Some(behind) = path.strip_prefix(&*self.path) else { return false };
        matches!(&*self.path, b"" | [.., b'/'])
            || behind.first().is_none_or(|next| b"/?#".contains(next))
    }

    pub(super) fn read(&self, head: &Head, now: u64) -> Option<String> {
        let bytes = STANDARD.decode(cookie(head, &self.name)?).ok()?;
        let Ok(said) = Said::decode(&*bytes) else {
            // As it was written before cookies could expire.
            return text(bytes);
        };
        let is_over = said.expires != 0 && i64::try_from(now).is_ok_and(|now| now > said.expires);
        Some(said.address).filter(|address| !address.is_empty() && !is_over)
    }

    /// The field that sets it.
    pub(super) fn written(&self, address: &str, now: u64) -> Vec<u8> {
        let expires = match self.lifetime {
            0 => 0,
            lifetime => i64::try_from(now.saturating_add(lifetime)).unwrap_or(i64::MAX),
        };
        let said = Said { address: address.to_owned(), expires };
        let value = STANDARD.encode(said.encode_to_vec());
        [&*self.name, b"=\"", value.as_bytes(), &self.attributes].concat()
    }
}

#[cfg(test)]
mod tests {
    use towpath_proto::Name;

    use super::*;

    fn read(value: &[u8], now: u64) -> Option<String> {
        let mut head = Head::default();
        let field = [b"id=\"", STANDARD.encode(value).as_bytes(), b"\""].concat();
        head.append(Name::Cookie, &field);
        SessionCookie::new("id", "/", 0, &[]).read(&head, now)
    }

    #[test]
    fn a_path_is_one_that_clients_send_the_cookie_to() {
        let takes =
            |own: &str, path: &str| SessionCookie::new("id", own, 0, &[]).takes(path.as_bytes());
        for (own, path) in
            [("", "/a"), ("/", "/a"), ("/a", "/a"), ("/a", "/a/b"), ("/a", "/a?b"), ("/a/", "/a/b")]
        {
            assert!(takes(own, path), "{own} {path}");
        }
        for (own, path) in [("/a", "/ab"), ("/a", "/"), ("/a/", "/a"), ("/a", "/b/a")] {
            assert!(!takes(own, path), "{own} {path}");
        }
    }

    #[test]
    fn what_is_written_is_read_until_it_expires() {
        let cookie = SessionCookie::new("id", "/a", 10, &[("SameSite", "Lax"), ("Secure", "")]);
        let field = String::from_utf8(cookie.written("127.0.0.1:18832", 1_795_681_042)).unwrap();
        let wanted = "id=\"Cg8xMjcuMC4wLjE6MTg4MzIQnNaf2AY=\"; Max-Age=10; Path=/a; SameSite=Lax; Secure; HttpOnly";
        assert_eq!(field, wanted);
        let bytes = STANDARD.decode("Cg8xMjcuMC4wLjE6MTg4MzIQnNaf2AY=").unwrap();
        let host = Some("127.0.0.1:18832".to_owned());
        assert_eq!(read(&bytes, 1_795_681_052), host);
        assert_eq!(read(&bytes, 1_795_681_053), None);
    }

    #[test]
    fn an_address_alone_is_one() {
        assert_eq!(read(b"127.0.0.1:80", 1), Some("127.0.0.1:80".to_owned()));
        assert_eq!(read(b"", 1), None);
        assert_eq!(read(b"\x10\x05", 1), None, "no address");
        assert_eq!(read(b"\xff\xfe", 1), Some("\\xff\\xfe".to_owned()));
    }
}
