//! Credentials for servers that ask for them (401; RFC 9110 §11): Basic (RFC 7617), Bearer (RFC 6750), and with the
//! feature `digest` Digest (RFC 7616).
//!
//! ```no_run
//! use towpath::auth::Credentials;
//! let engine = towpath::Engine::new()?;
//! let client = engine.client().authenticate(|challenge| {
//!     challenge.is_of("https://example.org/").then(|| Credentials::password("user", "secret"))
//! });
//! client.get("https://example.org/private").send()?;
//! # Ok::<(), towpath::Error>(())
//! ```
//!
//! A request that is answered 401 is sent again with what the app gave, at most three times; its body must be there as
//! a whole. Nothing is remembered: the next request is asked anew.
//!
//! Proxies ask by 407, and are answered by [`Client::authenticate_proxy`](crate::Client::authenticate_proxy) in the
//! same way, whether they forward or give tunnels. What was said last to a proxy is said to it with the next requests
//! from the beginning.

#[cfg(feature = "digest")]
mod digest;
mod proxy;

use std::fmt;

use crate::form::base64;
use crate::url::Url;
use crate::{Request, Response};

pub(crate) use proxy::{ProxyAuthenticator, tell_forwarder, tell_tunnel};

/// What a server asks for (`WWW-Authenticate`).
#[derive(Clone, PartialEq, Eq)]
pub struct Challenge {
    /// Of the request that was answered so.
    url: Url,
    method: String,
    /// What is asked for, as the request says it.
    uri: String,
    schemes: Vec<Scheme>,
    attempt: usize,
    is_of_proxy: bool,
}

/// An authentication scheme that the server offers, with its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheme {
    name: String,
    token: Option<String>,
    parameters: Vec<(String, String)>,
}

/// What authenticates the user.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Password { user: String, password: String },
    Field(String),
}

/// Is asked for credentials; with none the 401 stands. It may be called on the engine's thread, and must not block.
pub(crate) type Authenticator = dyn Fn(&Challenge) -> Option<Credentials> + Send + Sync;

impl Credentials {
    /// A name and a password, by the best scheme that the server offers: Digest where it is built in, else Basic. A
    /// name has no colon.
    #[must_use]
    pub fn password(user: &str, password: &str) -> Self {
        Self(Kind::Password { user: user.to_owned(), password: password.to_owned() })
    }

    /// A token (Bearer).
    #[must_use]
    pub fn bearer(token: &str) -> Self {
        Self(Kind::Field(format!("Bearer {token}")))
    }

    /// The whole `authorization` field, for other schemes.
    #[must_use]
    pub fn field(value: &str) -> Self {
        Self(Kind::Field(value.to_owned()))
    }

    /// The `authorization` field that answers a challenge; none where none of its schemes will do.
    fn answer(&self, challenge: &Challenge) -> Option<String> {
        let (user, password) = match &self.0 {
            Kind::Field(value) => return Some(value.clone()),
            Kind::Password { user, password } => (user, password),
        };
        #[cfg(feature = "digest")]
        {
            let offered = challenge.schemes.iter().filter(|scheme| scheme.is("digest"));
            let (method, uri) = (&*challenge.method, &*challenge.uri);
            let answers = offered.filter_map(|scheme| {
                digest::answer(scheme, user, password, method, uri, &digest::nonce())
            });
            if let Some((_, answer)) = answers.max_by_key(|(strength, _)| *strength) {
                return Some(answer);
            }
        }
        let is_basic = challenge.schemes.iter().any(|scheme| scheme.is("basic"));
        is_basic.then(|| format!("Basic {}", base64(format!("{user}:{password}").as_bytes())))
    }
}

impl Challenge {
    /// The host that asks, in lower case, without its port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.url.host
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.url.port
    }

    /// Whether it comes from the origin of this URL: the same scheme, host and port.
    #[must_use]
    pub fn is_of(&self, url: &str) -> bool {
        let origin = |url: &Url| (url.scheme, url.host.clone(), url.port);
        Url::parse(url).is_ok_and(|url| origin(&url) == origin(&self.url))
    }

    /// Whether a proxy asks (407), and not the server of the request's URL (401).
    #[must_use]
    pub const fn is_of_proxy(&self) -> bool {
        self.is_of_proxy
    }

    /// Whether it is spoken to under TLS: otherwise others on the way may hear the answer.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.url.scheme == "https"
    }

    /// The schemes that it offers, in its order.
    #[must_use]
    pub fn schemes(&self) -> &[Scheme] {
        &self.schemes
    }

    /// How often this request was refused before, from 0: answers that were refused are wrong.
    #[must_use]
    pub const fn attempt(&self) -> usize {
        self.attempt
    }

    /// What a 401 asks.
    fn of(request: &Request, response: &Response, attempt: usize) -> Option<Self> {
        let url = request.url.as_ref().ok()?.clone();
        let schemes = Scheme::in_fields(response, b"www-authenticate");
        (!schemes.is_empty()).then(|| Self {
            uri: url.target.clone(),
            url,
            method: request.method.clone(),
            schemes,
            attempt,
            is_of_proxy: false,
        })
    }
}

/// The same request with credentials; none where there are none, or it cannot be sent again.
pub(crate) fn answer(request: &Request, response: &Response, attempt: usize) -> Option<Request> {
    let authenticator = request.defaults.authenticator.clone()?;
    if response.status() != 401 || attempt >= MOST_ATTEMPTS || request.pieces.is_some() {
        return None;
    }
    let challenge = Challenge::of(request, response, attempt)?;
    let answer = authenticator(&challenge)?.answer(&challenge)?;
    Some(request.clone().without("authorization").header("authorization", &answer))
}

impl Scheme {
    /// Its name, as the server wrote it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of a parameter, whatever the name's case: `realm`, say.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// What stands in the place of parameters, if something does (`token68`).
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Those of a response.
    fn in_fields(response: &Response, name: &[u8]) -> Vec<Self> {
        let asked = response
            .headers()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name))
            .filter_map(|(_, value)| std::str::from_utf8(value).ok());
        asked.flat_map(Self::all).collect()
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Those of a field (RFC 9110 §11.6.1), as far as it can be read. A comma divides schemes as well as parameters: a
    /// token that is not followed by `=` begins a new one.
    fn all(field: &str) -> Vec<Self> {
        let (mut schemes, mut left) = (Vec::<Self>::new(), field);
        while schemes.len() < MOST_SCHEMES {
            left = left.trim_start_matches([' ', '\t', ',']);
            let end = left.find(|character| !is_token(character)).unwrap_or(left.len());
            let (word, after) = left.split_at(end);
            if word.is_empty() {
                break;
            }
            let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
            match (value, schemes.last_mut()) {
                (Some(value), Some(scheme)) if scheme.parameters.len() < MOST_PARAMETERS => {
                    let Some((value, after)) = take_value(value.trim_start_matches([' ', '\t']))
                    else {
                        break;
                    };
                    scheme.parameters.push((word.to_owned(), value));
                    left = after;
                }
                (Some(_), _) => break,
                (None, _) => {
                    let (token, after) = take_token(after);
                    schemes.push(Self { name: word.to_owned(), token, parameters: Vec::new() });
                    left = after;
                }
            }
        }
        schemes
    }
}

/// A parameter's value, with or without quotes, and what follows.
fn take_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|character| !is_token(character)).unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    };
    let (mut value, mut characters) = (String::new(), quoted.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            character => value.push(character),
        }
    }
    None
}

/// What stands behind a scheme's name, where that is no parameter: it ends the scheme.
fn take_token(after: &str) -> (Option<String>, &str) {
    let text = after.trim_start_matches([' ', '\t']);
    let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let bare = word.trim_end_matches('=');
    let is_alone = rest.trim_start().is_empty() || rest.trim_start().starts_with(',');
    let fits = |character: char| character.is_ascii_alphanumeric() || "-._~+/".contains(character);
    if !bare.is_empty() && bare.chars().all(fits) && is_alone && text.len() < after.len() {
        (Some(word.to_owned()), rest)
    } else {
        (None, after)
    }
}

fn is_token(character: char) -> bool {
    character.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(character)
}

const MOST_ATTEMPTS: usize = 3;
const MOST_SCHEMES: usize = 16;
const MOST_PARAMETERS: usize = 32;

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenge").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// Secrets are not for logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = (String, Option<String>, Vec<(String, String)>);

    fn read(field: &str) -> Vec<Read> {
        Scheme::all(field).into_iter().map(|it| (it.name, it.token, it.parameters)).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn challenges_are_read() {
        let two = read(
            "Basic realm=\"a \\\"b\\\", c\" , Digest realm=x,nonce = \"n\" ,, Negotiate, NTLM abc==",
        );
        assert_eq!(two.len(), 4, "{two:?}");
        assert_eq!(two[0], ("Basic".to_owned(), None, vec![pair("realm", "a \"b\", c")]));
        assert_eq!(two[1].2, [pair("realm", "x"), pair("nonce", "n")]);
        assert_eq!((&*two[2].0, &two[2].1), ("Negotiate", &None));
        assert_eq!(two[3], ("NTLM".to_owned(), Some("abc==".to_owned()), Vec::new()));
        for nonsense in ["", ",", "=", "\"", "realm=x", " , ="] {
            assert!(read(nonsense).is_empty(), "{nonsense}");
        }
        assert_eq!(read("Basic realm=\"open"), [("Basic".to_owned(), None, Vec::new())]);
        assert_eq!(read(&"a,".repeat(99)).len(), MOST_SCHEMES);
        for end in 0..60 {
            let all = "Digest realm=\"\\\"\u{e4}\", nonce=\"n\", algorithm=MD5, Basic realm=x";
            if let Some(cut) = all.get(..end) {
                read(cut);
            }
        }
    }
}
