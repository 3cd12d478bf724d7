//! `envoy.filters.http.basic_auth`: requests must show a name and a password (RFC 7617).

mod stats;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use towpath_proto::{Head, HeaderName, Name};

use self::stats::BasicAuthStats;
use super::realm::realm;
use super::{FilterConfig, FilterScope, HttpFilter, OnRequest, Reply, RequestView, RouteConfig};
use crate::stream_info::Value;

/// Envoy `BasicAuth`.
#[derive(Clone, Debug)]
pub struct BasicAuth {
    /// `users`.
    pub users: Arc<Users>,
    /// `forward_username_header`.
    pub name_header: Option<HeaderName>,
    /// `authentication_header`, in place of `authorization`.
    pub header: HeaderName,
    /// `allow_missing`: requests that show nothing, or something of another scheme, go on.
    pub allows_missing: bool,
    /// `emit_dynamic_metadata`: the name is kept, in the namespace that has the filter's name in its chain.
    pub keeps_name: bool,
}

/// Envoy `BasicAuthPerRoute`: other users.
#[derive(Clone, Debug)]
pub struct RouteBasicAuth(pub Arc<Users>);

impl RouteConfig for RouteBasicAuth {}

/// Names and the SHA-1 of passwords, as `htpasswd -s` writes them.
#[derive(Default)]
pub struct Users(BTreeMap<Box<str>, [u8; HASH_BYTES]>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Users {
    /// Reads a file of `htpasswd`. Empty lines, and those that begin with `#`, count for nothing.
    ///
    /// # Errors
    /// What is wrong with it, in Envoy's words.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut users = Self::default();
        for line in text.lines().map(str::trim).filter(|it| !(it.is_empty() || it.starts_with('#')))
        {
            let Some((name, hash)) = line.split_once(':') else {
                return Err("basic auth: invalid htpasswd format, username:password is expected");
            };
            if name.is_empty() || hash.is_empty() {
                return Err("basic auth: empty user name or password");
            }
            let Some(hash) = hash.strip_prefix("{SHA}") else {
                return Err("basic auth: unsupported htpasswd format: please use {SHA}");
            };
            let wrong = "basic auth: invalid htpasswd format, invalid SHA hash length";
            let hash = BASE64.decode(hash).map_err(|_| wrong)?;
            let hash = hash.try_into().map_err(|_| wrong)?;
            if users.0.insert(name.into(), hash).is_some() {
                return Err("basic auth: duplicate users");
            }
        }
        Ok(users)
    }

    /// Whether a user has a password. It takes as long for a user that is not there.
    fn has(&self, name: &str, password: &[u8]) -> bool {
        let shown = digest(&SHA1_FOR_LEGACY_USE_ONLY, password);
        let known = self.0.get(name);
        let wanted = known.unwrap_or(&[0; HASH_BYTES]);
        verify_slices_are_equal(shown.as_ref(), wanted).is_ok() && known.is_some()
    }
}

impl FilterConfig for BasicAuth {
    fn start(&self, scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { config: self.clone(), stats: scope.stats("http_basic_auth") })
    }

    fn reads_record(&self) -> bool {
        self.keeps_name
    }
}

#[derive(Debug)]
struct Instance {
    config: BasicAuth,
    stats: Arc<BasicAuthStats>,
}

impl HttpFilter for Instance {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        let config = &self.config;
        let users = request.route.first::<RouteBasicAuth>();
        let users = users.map_or(&config.users, |route| &route.0);
        match shown(request.head, &config.header, users) {
            Ok(name) => {
                self.stats.allowed.inc();
                if let Some(header) = &config.name_header {
                    request.head.set_named(header, name.as_bytes());
                }
                if let (Some(info), true) = (request.facts.info, config.keeps_name) {
                    let entry = ("username".into(), Value::text(name.as_bytes()));
                    // What is too much for one stream is left out.
                    let _ = info.add_metadata(request.route.filter, [entry].into_iter().collect());
                }
                OnRequest::Pass
            }
            Err(Refused::Missing | Refused::Scheme) if config.allows_missing => OnRequest::Pass,
            Err(why) => {
                self.stats.denied.inc();
                OnRequest::Answer(why.reply(request.head))
            }
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Missing,
    Scheme,
    Format,
    Wrong,
}

impl Refused {
    fn reply(self, head: &Head) -> Reply {
        let (text, details) = match self {
            Self::Missing => ("Missing username and password.", "no_credential_for_basic_auth"),
            Self::Scheme => {
                ("Expected 'Basic' authentication scheme.", "invalid_scheme_for_basic_auth")
            }
            Self::Format => ("Invalid basic credential format.", "invalid_format_for_basic_auth"),
            Self::Wrong => {
                ("Invalid username/password combination.", "invalid_credential_for_basic_auth")
            }
        };
        let body = format!("User authentication failed. {text}");
        let mut reply = Reply::new(401, body.as_bytes(), details);
        let challenge = [b"Basic realm=\"", &realm(head)[..], b"\""].concat();
        reply.head.set(Name::WwwAuthenticate, &challenge);
        reply
    }
}

/// The name of the user whom a request shows.
fn shown(head: &Head, header: &HeaderName, users: &Users) -> Result<String, Refused> {
    let fields: Vec<&[u8]> = head.get_all(header).collect();
    // Several are none that can be believed.
    let value = match fields[..] {
        [] => return Err(Refused::Missing),
        [value] => value,
        [..] => return Err(Refused::Format),
    };
    let encoded = value.strip_prefix(b"Basic ").ok_or(Refused::Scheme)?;
    let plain = BASE64.decode(encoded).map_err(|_| Refused::Format)?;
    let colon = plain.iter().position(|byte| *byte == b':').ok_or(Refused::Format)?;
    let name = std::str::from_utf8(&plain[..colon]).map_err(|_| Refused::Wrong)?;
    match users.has(name, &plain[colon + 1..]) {
        true => Ok(name.to_owned()),
        false => Err(Refused::Wrong),
    }
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const HASH_BYTES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# users\n\nme:{SHA}HmOIjJ0ik95KVJW6lJ2L5fVVnVY=\n you:{SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk= \r\n";

    fn refused(fields: &[&str]) -> Result<String, Refused> {
        let mut head = Head::request(b"GET", b"http", b"h", b"/");
        for field in fields {
            head.append_bytes(b"authorization", field.as_bytes());
        }
        let header = HeaderName::new("authorization").unwrap();
        shown(&head, &header, &Users::parse(FILE).unwrap())
    }

    #[test]
    fn a_user_has_a_password() {
        let hash = BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, b"pw:x"));
        let users = Users::parse(&format!("me:{{SHA}}{hash}")).unwrap();
        assert!(users.has("me", b"pw:x"));
        assert!(!users.has("me", b"pw") && !users.has("ME", b"pw:x") && !users.has("", b""));
        // The digest that stands for an unknown user is no user's password.
        assert!(!Users::default().has("me", b""));
    }

    #[test]
    fn what_a_request_shows_is_read_to_the_letter() {
        // `you:` with an empty password.
        assert_eq!(refused(&["Basic eW91Og=="]), Ok("you".into()));
        assert_eq!(refused(&["Basic eW91Og"]), Ok("you".into()));
        for (fields, wanted) in [
            (&[][..], Refused::Missing),
            (&["Bearer x"], Refused::Scheme),
            (&["basic eW91Og=="], Refused::Scheme),
            (&["Basic"], Refused::Scheme),
            (&["Basic  eW91Og=="], Refused::Format),
            (&["Basic eW91"], Refused::Format),
            (&["Basic ***"], Refused::Format),
            (&["Basic eW91Og==", "Basic eW91Og=="], Refused::Format),
            (&["Basic /zo="], Refused::Wrong),
            (&["Basic eW91OmE="], Refused::Wrong),
            (&["Basic Og=="], Refused::Wrong),
        ] {
            assert_eq!(refused(fields), Err(wanted), "{fields:?}");
        }
    }

    #[test]
    fn a_file_says_what_is_wrong_with_it() {
        let hash = "{SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk=";
        for (text, why) in [
            ("me", "invalid htpasswd format, username:password is expected"),
            ("me:", "empty user name or password"),
            (&format!(":{hash}"), "empty user name or password"),
            ("me:$apr1$x", "unsupported htpasswd format: please use {SHA}"),
            ("me:{SHA}AA==", "invalid htpasswd format, invalid SHA hash length"),
            ("me:{SHA}*", "invalid htpasswd format, invalid SHA hash length"),
            (&format!("me:{hash}\nme:{hash}"), "duplicate users"),
        ] {
            assert_eq!(Users::parse(text).unwrap_err(), format!("basic auth: {why}"), "{text}");
        }
        assert_eq!(format!("{:?}", Users::parse(FILE).unwrap()), r#"{"me", "you"}"#);
    }
}
