//! Cookies: those of a request, all at once, and the fields that set and delete them.

use std::collections::BTreeMap;

use towpath_proto::{Head, Name};

/// The cookies of a request by their names; of several with one name the first counts, as in Envoy.
#[derive(Debug, Default)]
pub(super) struct Cookies(BTreeMap<Vec<u8>, Vec<u8>>);

impl Cookies {
    pub(super) fn of(head: &Head) -> Self {
        let mut all = BTreeMap::new();
        let pairs = head.values(Name::Cookie).flat_map(|field| field.split(|byte| *byte == b';'));
        for pair in pairs {
            let pair = pair.trim_ascii();
            let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
            let value = &pair[at + 1..];
            let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            let value = inner.unwrap_or(value);
            all.entry(pair[..at].to_vec()).or_insert_with(|| value.to_vec());
        }
        Self(all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a cookie, if it has one that is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name.as_bytes()).map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    /// The same; empty where there is none.
    pub(super) fn value(&self, name: &str) -> &[u8] {
        self.get(name).unwrap_or_default()
    }

    /// Whether there is one of this name, whatever its value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name.as_bytes())
    }

    pub(super) fn set(&mut self, name: &str, value: &[u8]) {
        self.0.insert(name.into(), value.to_vec());
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name.as_bytes());
    }

    /// Without a cookie and those of its name and a flow.
    pub(super) fn remove_of_flows(&mut self, name: &str) {
        self.0.retain(|known, _| flow_of(known, name).is_none());
    }

    /// The names of a cookie and those of its name and a flow.
    pub(super) fn names_of_flows(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(Vec::as_slice).filter(move |known| flow_of(known, name).is_some())
    }

    /// Takes the place of the cookies that a request had.
    pub(super) fn write(&self, head: &mut Head) {
        let pairs: Vec<Vec<u8>> =
            self.0.iter().map(|(name, value)| [&**name, b"=", value].concat()).collect();
        head.set(Name::Cookie, &pairs.join(&b"; "[..]));
    }
}

/// What stands behind a cookie's name and a dot; empty where it has the name alone.
fn flow_of<'a>(known: &'a [u8], name: &str) -> Option<&'a [u8]> {
    match known.strip_prefix(name.as_bytes())? {
        [] => Some(b""),
        [b'.', flow @ ..] => Some(flow),
        _ => None,
    }
}

/// Envoy `CookieConfig`, with the cookie's name.
#[derive(Clone, Debug)]
pub struct Cookie {
    /// Its name.
    pub name: Box<str>,
    /// `path`. Default `/`.
    pub path: Box<str>,
    /// `same_site`: `Strict`, `Lax` or `None`.
    pub same_site: Option<&'static str>,
    /// `partitioned`.
    pub partitioned: bool,
}

impl Cookie {
    /// The name that it has in a flow.
    pub(super) fn of_flow(&self, flow: &str) -> String {
        format!("{}.{flow}", self.name)
    }

    /// A field that sets it under a name, for so many seconds.
    pub(super) fn set(&self, name: &str, value: &[u8], domain: &str, seconds: u64) -> Vec<u8> {
        let mut tail = String::new();
        if !domain.is_empty() {
            tail.push_str(";domain=");
            tail.push_str(domain);
        }
        tail.push_str(&format!(";path={};Max-Age={seconds};secure;HttpOnly", self.path));
        if let Some(same_site) = self.same_site {
            tail.push_str(";SameSite=");
            tail.push_str(same_site);
        }
        if self.partitioned {
            tail.push_str(";Partitioned");
        }
        [name.as_bytes(), b"=", value, tail.as_bytes()].concat()
    }

    /// A field that deletes it under a name. What browsers take only over TLS is deleted only so.
    pub(super) fn delete(&self, name: &[u8], domain: &str) -> Vec<u8> {
        let mut field = self.forget(name, domain);
        if name.starts_with(b"__Secure-") || name.starts_with(b"__Host-") {
            field.extend_from_slice(b"; Secure");
        }
        field
    }

    /// The same without that.
    pub(super) fn forget(&self, name: &[u8], domain: &str) -> Vec<u8> {
        let path = self.path.as_bytes();
        let ends = b"; expires=Thu, 01 Jan 1970 00:00:00 GMT";
        let mut field = [name, b"=deleted; path=", path, ends].concat();
        if !domain.is_empty() {
            field.extend_from_slice(b";domain=");
            field.extend_from_slice(domain.as_bytes());
        }
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookies(fields: &[&str]) -> Cookies {
        let mut head = Head::default();
        for field in fields {
            head.append(Name::Cookie, field.as_bytes());
        }
        Cookies::of(&head)
    }

    fn written(cookies: &Cookies) -> String {
        let mut head = Head::default();
        cookies.write(&mut head);
        String::from_utf8_lossy(head.get(Name::Cookie).unwrap_or_default()).into_owned()
    }

    #[test]
    fn the_first_of_a_name_counts_and_what_is_none_is_left_out() {
        let cookies = cookies(&["b=2; a=1;a=3; none;=x; q=\"in\"", "c=\";b=9"]);
        assert_eq!(written(&cookies), "=x; a=1; b=2; c=\"; q=in");
        assert_eq!(cookies.get("none"), None);
    }

    #[test]
    fn cookies_of_flows_go_with_those_without() {
        let mut cookies = cookies(&["N=1; N.a=2; Nb=3; N.=4; M=5"]);
        assert_eq!(cookies.names_of_flows("N").count(), 3);
        cookies.remove_of_flows("N");
        assert_eq!(written(&cookies), "M=5; Nb=3");
    }

    #[test]
    fn attributes_are_in_the_order_of_envoy() {
        let cookie = Cookie {
            name: "__Host-a".into(),
            path: "/x".into(),
            same_site: Some("Lax"),
            partitioned: true,
        };
        let set = cookie.set(&cookie.of_flow("f"), b"v", "d.test", 5);
        let wanted =
            "__Host-a.f=v;domain=d.test;path=/x;Max-Age=5;secure;HttpOnly;SameSite=Lax;Partitioned";
        assert_eq!(String::from_utf8_lossy(&set), wanted);
        let wanted = "__Host-a=deleted; path=/x; expires=Thu, 01 Jan 1970 00:00:00 GMT;domain=d.test; Secure";
        assert_eq!(String::from_utf8_lossy(&cookie.delete(b"__Host-a", "d.test")), wanted);
    }
}
