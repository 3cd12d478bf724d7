//! Proxies: which one for which place, and how it is asked.
//!
//! Arrives: a place that is to be asked. Leaves: the proxy that is asked in its stead, or none.
//!
//! Under `https` a proxy is asked for a tunnel (CONNECT, RFC 9110 §9.3.6), through which TLS is spoken with the origin
//! itself; under `http` it is sent the request as it is (RFC 9112 §3.2.2), unless it is to give
//! [tunnels](Proxy::tunnel) for all. A SOCKS proxy gives tunnels alone. In each case the proxy resolves the origin's
//! name. Races, probes, repetitions and limits on time are those of requests without a proxy: a connection counts as
//! usable once the origin answers through it.
//!
//! Credentials are sent with the first request where a proxy has [credentials](Proxy::credentials), and when it asks
//! (407) where a client has [a callback that answers](crate::Client::authenticate_proxy).
//!
//! Not done: PAC scripts, which are refused; what platforms keep outside of the environment; SOCKS 4; Negotiate;
//! proxies that are reached through others. [Links](crate::Link) do not go through proxies.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use towpath_engine::local::message::{self, ProxyProtocol, Transport};
use towpath_proto::head::Head;
use towpath_proto::proxy::Credentials;

use crate::url::Url;
use crate::{Error, HttpVersions, Request};

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    server: message::Proxy,
    /// It gives tunnels for what is asked in plain text as well.
    tunnels: bool,
}

/// What a proxy is asked: the request's line.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) uri: String,
}

impl Asked {
    /// For a tunnel to the origin, and not for the origin's answer.
    pub(crate) fn is_tunnel(&self) -> bool {
        self.method == "CONNECT"
    }
}

/// Which proxy stands before which places; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    except: Vec<Exception>,
}

/// Places that are asked without a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exception {
    hosts: Hosts,
    /// Of all ports without one.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    All,
    /// A name, and all below it.
    Domain(String),
    /// Addresses that have so many first bits.
    Network(IpAddr, u32),
}

impl Proxy {
    /// From a URL as curl has them: `http://`, `https://` (TLS with the proxy), `socks5://` or `socks5h://` (the proxy
    /// resolves names in both cases), a host, a port (without one 1080, under `https` 443), and perhaps
    /// `user:password@` with what URLs do not allow percent-encoded. Without a scheme it is `http`.
    ///
    /// # Errors
    /// [`Error::Proxy`] where that is none, or a PAC script.
    pub fn new(url: &str) -> Result<Self, Error> {
        let url = url.trim();
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let scheme = scheme.to_ascii_lowercase();
        let (protocol, transport, usual_port) = match scheme.as_str() {
            "http" => (ProxyProtocol::Connect, Transport::Plain, 1080),
            "https" => (ProxyProtocol::Connect, Transport::Tls, 443),
            "socks5" | "socks5h" => (ProxyProtocol::Socks5, Transport::Plain, 1080),
            "socks" | "socks4" | "socks4a" => {
                return Err(Error::Proxy("SOCKS is spoken in version 5 alone: socks5://"));
            }
            _ if scheme.starts_with("pac") || scheme == "file" => {
                return Err(Error::Proxy("PAC scripts are not run"));
            }
            _ => return Err(Error::Proxy("its scheme is none of http, https, socks5, socks5h")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !matches!(path, "" | "/") {
            return Err(Error::Proxy(if path.to_ascii_lowercase().ends_with(".pac") {
                "PAC scripts are not run"
            } else {
                "it has a path"
            }));
        }
        let (who, host) = match authority.rsplit_once('@') {
            Some((who, host)) => (Some(who), host),
            None => (None, authority),
        };
        // The rules for hosts and ports are those of all URLs; one that would be left out is seen by its absence.
        let parsed = Url::parse(&format!("http://{host}"))
            .map_err(|_| Error::Proxy("its host or port is none"))?;
        let after_brackets = host.rfind(']').map_or(0, |at| at + 1);
        let has_port =
            host[after_brackets..].rsplit_once(':').is_some_and(|(_, it)| !it.is_empty());
        let port = if has_port { parsed.port } else { usual_port };
        let credentials = None;
        let host = parsed.host.into();
        let fields = Vec::new();
        let server = message::Proxy { host, port, transport, protocol, credentials, fields };
        let proxy = Self { server, tunnels: false };
        let Some(who) = who else { return Ok(proxy) };
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        let malformed = || Error::Proxy("its credentials are not encoded as URLs have them");
        let decoded = |text| decode(text).ok_or_else(malformed);
        Ok(proxy.credentials(&decoded(user)?, &decoded(password)?))
    }

    /// A user and a password: sent by Basic (RFC 7617), to SOCKS as RFC 1929 has it.
    #[must_use]
    pub fn credentials(mut self, user: &str, password: &str) -> Self {
        let (user, password) = (user.to_owned(), password.to_owned());
        self.server.credentials = Some(Credentials { user, password });
        self
    }

    /// A field for the proxy itself: of CONNECT, or beside those of a request that it forwards. What is malformed makes
    /// each request fail that would go through it.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.server.fields.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// Asks for tunnels to `http` origins as well.
    #[must_use]
    pub const fn tunnel(mut self) -> Self {
        self.tunnels = true;
        self
    }

    /// How it is asked for a place; the fields of the request that it forwards, in the second case.
    pub(crate) fn before(&self, url: &Url, needs_tunnel: bool) -> Result<Hop, Error> {
        let fits = |text: &str| text.bytes().all(|byte| byte == b'\t' || !byte.is_ascii_control());
        let is_token = |name: &str| {
            let odd = b"!#$%&'*+-.^_`|~";
            let token = |byte: u8| byte.is_ascii_alphanumeric() || odd.contains(&byte);
            !name.is_empty() && name.bytes().all(token)
        };
        if !self.server.fields.iter().all(|(name, value)| is_token(name) && fits(value)) {
            return Err(Error::Proxy("one of its fields is malformed"));
        }
        if self.gives_tunnel(url, needs_tunnel) || self.server.protocol == ProxyProtocol::Socks5 {
            return Ok(Hop::Tunnel(Arc::new(self.server.clone())));
        }
        let mut server = self.server.clone();
        server.protocol = ProxyProtocol::Forward;
        let mut fields = std::mem::take(&mut server.fields);
        if let Some(who) = server.credentials.take() {
            fields.push((AUTHORIZATION.to_owned(), who.basic()));
        }
        Ok(Hop::Forward(Arc::new(server), fields))
    }

    fn gives_tunnel(&self, url: &Url, needs_tunnel: bool) -> bool {
        url.transport == Transport::Tls || needs_tunnel || self.tunnels
    }

    /// With this field, in place of its own credentials.
    fn saying(mut self, authorization: String) -> Self {
        self.server.credentials = None;
        self.server.fields.retain(|(name, _)| name != AUTHORIZATION);
        self.server.fields.push((AUTHORIZATION.to_owned(), authorization));
        self
    }
}

const AUTHORIZATION: &str = "proxy-authorization";

/// How a request goes through a proxy.
pub(crate) enum Hop {
    Tunnel(Arc<message::Proxy>),
    /// With these fields, and its target in absolute-form.
    Forward(Arc<message::Proxy>, Vec<(String, String)>),
}

/// Through whom a request goes.
#[derive(Clone, Debug, Default)]
pub(crate) enum Proxying {
    /// As its client says.
    #[default]
    OfClient,
    Through(Option<Proxy>),
}

impl Request {
    /// How it goes through a proxy, where it does.
    pub(crate) fn way(&self) -> Result<Option<Hop>, Error> {
        let url = self.url.as_ref().map_err(Clone::clone)?;
        let Some(proxy) = self.proxy_before(url) else { return Ok(None) };
        let known = self.defaults.proxy_authenticator.as_ref().and_then(|authenticator| {
            let (proxy, asked) = self.asked_of_proxy()?;
            authenticator.known(&proxy, &asked)
        });
        let way = match known {
            Some(answer) => proxy.clone().saying(answer).before(url, self.needs_tunnel()),
            None => proxy.before(url, self.needs_tunnel()),
        };
        way.map(Some)
    }

    fn proxy_before(&self, url: &Url) -> Option<&Proxy> {
        match &self.proxying {
            Proxying::OfClient => self.defaults.proxies.as_ref().and_then(|all| all.of(url)),
            Proxying::Through(proxy) => proxy.as_ref(),
        }
    }

    /// HTTP/2 by prior knowledge is spoken with the origin itself, as is what HTTP is left for (RFC 6455 §4.1).
    fn needs_tunnel(&self) -> bool {
        self.options.http == HttpVersions::Http2 || self.options.upgrades
    }

    /// Its proxy, and what that is asked; none where it has no proxy, or one that does not speak HTTP.
    pub(crate) fn asked_of_proxy(&self) -> Option<(message::Proxy, Asked)> {
        let url = self.url.as_ref().ok()?;
        let proxy = self.proxy_before(url)?;
        let asked = if proxy.server.protocol == ProxyProtocol::Socks5 {
            return None;
        } else if proxy.gives_tunnel(url, self.needs_tunnel()) {
            let brackets = if url.host.contains(':') { ["[", "]"] } else { ["", ""] };
            let uri = format!("{}{}{}:{}", brackets[0], url.host, brackets[1], url.port);
            Asked { method: "CONNECT".to_owned(), uri }
        } else {
            Asked { method: self.method.clone(), uri: absolute(url) }
        };
        Some((proxy.server.clone(), asked))
    }

    /// Makes it, and its head, such as goes that way.
    pub(crate) fn go_through(&mut self, way: Hop, head: &mut Head) -> Result<(), Error> {
        match way {
            Hop::Tunnel(proxy) => self.options.proxy = Some(proxy),
            Hop::Forward(proxy, fields) => {
                let url = self.url.as_ref().map_err(Clone::clone)?;
                head.set_path(absolute(url).as_bytes());
                for (name, value) in fields {
                    head.append_bytes(name.as_bytes(), value.as_bytes());
                }
                self.options.proxy = Some(proxy);
                self.options.http = HttpVersions::Http1;
            }
        }
        Ok(())
    }
}

/// A URL as a proxy is told it (RFC 9112 §3.2.2).
fn absolute(url: &Url) -> String {
    format!("http://{}{}", url.authority, url.target)
}

impl Proxies {
    /// This one before all places.
    #[must_use]
    pub fn all(proxy: Proxy) -> Self {
        Self { http: Some(proxy.clone()), https: Some(proxy), except: Vec::new() }
    }

    /// This one before `http`.
    #[must_use]
    pub fn http(self, proxy: Proxy) -> Self {
        Self { http: Some(proxy), ..self }
    }

    /// This one before `https`.
    #[must_use]
    pub fn https(self, proxy: Proxy) -> Self {
        Self { https: Some(proxy), ..self }
    }

    /// But none before these, divided by commas or spaces, as in `NO_PROXY`: names with all that is below them
    /// (`a.test`, `.a.test` and `*.a.test` are the same), addresses, networks (`10.0.0.0/8`), or `*` for all; each of
    /// one port alone where it has one (`a.test:8080`, `[::1]:8080`). What is none of these is no exception.
    #[must_use]
    pub fn except(mut self, list: &str) -> Self {
        let words = list.split([',', ' ', '\t']).filter(|word| !word.is_empty());
        self.except.extend(words.map(Exception::of));
        self
    }

    /// Those of the environment, by curl's rules: `http_proxy` (in lower case alone: what a CGI program is told of a
    /// field named `Proxy` is in the other), `https_proxy` or `HTTPS_PROXY`, `all_proxy` or `ALL_PROXY` for what has
    /// none, `no_proxy` or `NO_PROXY`. What is empty is none.
    ///
    /// # Errors
    /// [`Error::Proxy`] where one is malformed.
    pub fn from_environment() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Those of the platform. On Linux and its kin that is the environment ([`Proxies::from_environment`]): what a
    /// desktop keeps elsewhere (GNOME, KDE) is not read. Android, iOS, macOS and Windows keep theirs elsewhere: there
    /// it is the environment as well, where that names a proxy.
    ///
    /// # Errors
    /// [`Error::Proxy`] where one is malformed; where the environment names a PAC script (`auto_proxy`, as Chromium has
    /// it), or on one of those platforms nothing: what they have set is not known then, and that there is none is
    /// [`Proxies::default`].
    pub fn from_platform() -> Result<Self, Error> {
        Self::from_settings(KEPT_ELSEWHERE, |name| std::env::var(name).ok())
    }

    fn from_settings(
        kept_elsewhere: Option<&'static str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        if ["auto_proxy", "AUTO_PROXY"].into_iter().any(|name| variable(name).is_some()) {
            return Err(Error::Proxy("PAC scripts are not run: unset auto_proxy"));
        }
        let proxies = Self::from_variables(variable)?;
        match kept_elsewhere {
            Some(why) if proxies.http.is_none() && proxies.https.is_none() => {
                Err(Error::Proxy(why))
            }
            _ => Ok(proxies),
        }
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let of = |names: &[&str]| {
            // The first that is there counts, be it empty.
            let found = names.iter().find_map(|name| variable(name));
            found.filter(|url| !url.trim().is_empty())
        };
        let all = of(&["all_proxy", "ALL_PROXY"]);
        let proxy = |own: Option<String>| own.or_else(|| all.clone()).map(|url| Proxy::new(&url));
        let http = proxy(of(&["http_proxy"])).transpose()?;
        let https = proxy(of(&["https_proxy", "HTTPS_PROXY"])).transpose()?;
        let except = of(&["no_proxy", "NO_PROXY"]).unwrap_or_default();
        Ok(Self { http, https, except: Vec::new() }.except(&except))
    }

    /// The proxy before a URL.
    #[must_use]
    pub fn before(&self, url: &str) -> Option<&Proxy> {
        Url::parse(url).ok().and_then(|url| self.of(&url))
    }

    pub(crate) fn of(&self, url: &Url) -> Option<&Proxy> {
        let proxy = match url.transport {
            Transport::Plain => self.http.as_ref()?,
            Transport::Tls => self.https.as_ref()?,
        };
        let host = url.host.trim_end_matches('.');
        let is_excepted = |exception: &Exception| exception.has(host, url.port);
        (!self.except.iter().any(is_excepted)).then_some(proxy)
    }
}

impl Exception {
    fn of(word: &str) -> Self {
        if let Some(hosts) = Hosts::of(word) {
            return Self { hosts, port: None };
        }
        let port = word.rsplit_once(':').and_then(|(host, port)| {
            Some((Hosts::of(host)?, port.parse().ok().filter(|port| *port > 0)?))
        });
        match port {
            Some((hosts, port)) => Self { hosts, port: Some(port) },
            // No host is called so.
            None => Self { hosts: Hosts::Domain(word.to_owned()), port: None },
        }
    }

    fn has(&self, host: &str, port: u16) -> bool {
        self.port.is_none_or(|own| own == port) && self.hosts.has(host)
    }
}

impl Hosts {
    fn of(word: &str) -> Option<Self> {
        if word == "*" {
            return Some(Self::All);
        }
        let (ip, bits) = match word.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits)),
            None => (word, None),
        };
        let inside = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip);
        if let Ok(ip) = inside.parse::<IpAddr>() {
            let most = if ip.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Some(most), |bits| bits.parse().ok());
            return bits.filter(|bits| *bits <= most).map(|bits| Self::Network(ip, bits));
        }
        let name = word.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(word);
        let is_name = !name.contains(['/', ':', '[', ']', '*']);
        is_name.then(|| Self::Domain(name.trim_matches('.').to_ascii_lowercase()))
    }

    fn has(&self, host: &str) -> bool {
        match (self, host.parse::<IpAddr>()) {
            (Self::All, _) => true,
            (Self::Network(network, bits), Ok(ip)) => share(*network, ip, *bits),
            (Self::Domain(domain), Err(_)) => {
                let below = host.strip_suffix(domain.as_str());
                below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                    && !domain.is_empty()
            }
            (Self::Network(..), Err(_)) | (Self::Domain(_), Ok(_)) => false,
        }
    }
}

/// What is said where the platform's settings are not read, and the environment has none.
const KEPT_ELSEWHERE: Option<&str> = if cfg!(any(target_os = "macos", target_os = "ios")) {
    Some("the proxies of macOS and iOS are not read: name them, or set HTTPS_PROXY and http_proxy")
} else if cfg!(windows) {
    Some("the proxies of Windows are not read: name them, or set HTTPS_PROXY and http_proxy")
} else if cfg!(target_os = "android") {
    Some("the proxies of Android are not read: name them, or set HTTPS_PROXY and http_proxy")
} else {
    None
};

/// Whether two addresses have the same first bits.
fn share(one: IpAddr, other: IpAddr, bits: u32) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let differ = u32::from(one) ^ u32::from(other);
            bits == 0 || differ >> (32 - bits) == 0
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let differ = u128::from(one) ^ u128::from(other);
            bits == 0 || differ >> (128 - bits) == 0
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// What is percent-encoded.
fn decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

/// Secrets are not for logs.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&describe(&self.server)).finish()
    }
}

/// In a few words, without what is secret.
pub(crate) fn describe(proxy: &message::Proxy) -> String {
    let scheme = match (proxy.protocol, proxy.transport) {
        (ProxyProtocol::Socks5, _) => "socks5",
        (_, Transport::Plain) => "http",
        (_, Transport::Tls) => "https",
    };
    let how = match proxy.protocol {
        ProxyProtocol::Forward => "which forwards",
        ProxyProtocol::Connect => "by CONNECT",
        ProxyProtocol::Socks5 => "which gives a tunnel",
    };
    let brackets = if proxy.host.contains(':') { ["[", "]"] } else { ["", ""] };
    format!("{scheme}://{}{}{}:{}, {how}", brackets[0], proxy.host, brackets[1], proxy.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_proxies_are_read_as_curl_reads_them() {
        for (url, host, port, protocol, transport) in [
            ("proxy.test", "proxy.test", 1080, ProxyProtocol::Connect, Transport::Plain),
            ("Proxy.test:80", "proxy.test", 80, ProxyProtocol::Connect, Transport::Plain),
            ("http://[::1]:3128/", "::1", 3128, ProxyProtocol::Connect, Transport::Plain),
            ("https://p.test", "p.test", 443, ProxyProtocol::Connect, Transport::Tls),
            ("https://[::1]", "::1", 443, ProxyProtocol::Connect, Transport::Tls),
            ("socks5h://p.test", "p.test", 1080, ProxyProtocol::Socks5, Transport::Plain),
            ("SOCKS5://u@p.test:9", "p.test", 9, ProxyProtocol::Socks5, Transport::Plain),
        ] {
            let server = Proxy::new(url).unwrap().server;
            assert_eq!((&*server.host, server.port), (host, port), "{url}");
            assert_eq!((server.protocol, server.transport), (protocol, transport), "{url}");
        }
        let who = Proxy::new("http://us%40er:pa%3as:s@p.test").unwrap().server.credentials.unwrap();
        assert_eq!((&*who.user, &*who.password), ("us@er", "pa:s:s"));
        for refused in [
            "",
            "http://",
            "ftp://p.test",
            "socks4://p.test",
            "http://p.test:0",
            "http://p.test:x",
            "http://p.test/path",
            "http://u%zz@p.test",
            "http://u%f@p.test",
            "pac+http://p.test",
            "http://p.test/proxy.pac",
            "file:///etc/proxy.pac",
        ] {
            assert!(matches!(Proxy::new(refused), Err(Error::Proxy(_))), "{refused}");
        }
    }

    #[test]
    fn the_environment_is_read_as_curl_reads_it() {
        let of = |list: &[(&str, &str)], url: &str| {
            let variable = |name: &str| {
                list.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
            };
            let proxies = Proxies::from_variables(variable).unwrap();
            proxies.before(url).map(|proxy| proxy.server.host.to_string())
        };
        let some = |host: &str| Some(host.to_owned());
        let all = [("ALL_PROXY", "a"), ("https_proxy", "s"), ("NO_PROXY", "b.test, 10.0.0.0/8")];
        assert_eq!(of(&all, "http://x.test"), some("a"));
        assert_eq!(of(&all, "https://x.test"), some("s"));
        assert_eq!(of(&all, "http://b.test"), None);
        assert_eq!(of(&all, "http://a.B.test:81"), None);
        assert_eq!(of(&all, "http://ab.test"), some("a"));
        assert_eq!(of(&all, "http://10.9.8.7"), None);
        assert_eq!(of(&all, "http://11.9.8.7"), some("a"));
        assert_eq!(of(&[("HTTP_PROXY", "a")], "http://x.test"), None, "upper case alone");
        assert_eq!(of(&[("http_proxy", "a")], "https://x.test"), None);
        let lower = [("https_proxy", ""), ("HTTPS_PROXY", "b")];
        assert_eq!(of(&lower, "https://x.test"), None, "the lower case counts, be it empty");
        assert!(Proxies::from_variables(|_| Some("ftp://x".to_owned())).is_err());
    }

    #[test]
    fn the_platform_is_the_environment_or_refused_by_its_name() {
        let of = |kept_elsewhere, list: &[(&str, &str)]| {
            let variable = |name: &str| {
                list.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
            };
            Proxies::from_settings(kept_elsewhere, variable)
        };
        let some = Proxies::all(Proxy::new("socks5://p").unwrap());
        for kept_elsewhere in [None, Some("not read")] {
            assert_eq!(of(kept_elsewhere, &[("all_proxy", "socks5://p")]), Ok(some.clone()));
            for name in ["auto_proxy", "AUTO_PROXY"] {
                let pac = of(kept_elsewhere, &[(name, "http://p.test/x"), ("all_proxy", "p")]);
                assert!(matches!(pac, Err(Error::Proxy(why)) if why.starts_with("PAC scripts")));
            }
        }
        assert_eq!(of(None, &[]), Ok(Proxies::default()));
        assert_eq!(of(Some("not read"), &[("no_proxy", "*")]), Err(Error::Proxy("not read")));
        let known = ["macOS", "Windows", "Android"];
        assert!(KEPT_ELSEWHERE.is_none_or(|why| known.iter().any(|name| why.contains(name))));
    }

    #[test]
    fn exceptions_are_names_with_what_is_below_them_and_networks() {
        for (list, host, excepted) in [
            ("*", "a.test", true),
            (".a.test", "a.test", true),
            ("a.test.", "b.a.test", true),
            ("a.test", "aa.test", false),
            ("test", "a.test", true),
            (".", "a.test", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.0/31", "192.0.2.1", true),
            ("192.0.2.0/31", "192.0.2.2", false),
            ("0.0.0.0/0", "192.0.2.2", true),
            ("0.0.0.0/0", "[::1]", false),
            ("[::1]", "[::1]", true),
            ("2001:db8::/32", "[2001:db8:1::]", true),
            ("2001:db8::/32", "[2001:db9::]", false),
            ("a.test b.test", "b.test", true),
            ("2.1", "192.0.2.1", false),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "a.test", true),
            ("*a.test", "aa.test", false),
            ("a.test:80", "a.test", true),
            ("a.test:81", "a.test", false),
            ("a.test:81", "b.a.test:81", true),
            ("*:81", "b.test:81", true),
            ("*:81", "b.test", false),
            ("192.0.2.1:81", "192.0.2.1:81", true),
            ("192.0.2.1:81", "192.0.2.1", false),
            ("192.0.2.0/24:81", "192.0.2.9:81", true),
            ("192.0.2.0/24:81", "192.0.2.9", false),
            ("[::1]:81", "[::1]:81", true),
            ("[::1]:81", "[::1]", false),
            ("[2001:db8::]/32", "[2001:db8:1::]", true),
            ("192.0.2.1/33", "192.0.2.1", false),
            ("2001:db8::1/129", "[2001:db8::1]", false),
            ("a.test:0", "a.test", false),
            ("a.test:65536", "a.test", false),
            ("http://a.test", "a.test", false),
        ] {
            let proxies = Proxies::all(Proxy::new("p").unwrap()).except(list);
            let before = proxies.before(&format!("http://{host}/"));
            assert_eq!(before.is_none(), excepted, "{list} {host}");
        }
    }

    #[test]
    fn what_is_shown_has_no_secrets() {
        let proxy = Proxy::new("socks5://user:secret@[::1]").unwrap();
        assert_eq!(format!("{proxy:?}"), "Proxy(\"socks5://[::1]:1080, which gives a tunnel\")");
    }
}
