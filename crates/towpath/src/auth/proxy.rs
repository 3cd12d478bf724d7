//! Credentials for proxies that ask for them (407; RFC 9110 §11.7).
//!
//! Arrives: what the proxy said, in its answer to a request that it was to forward, or to a CONNECT. Leaves: the field
//! `proxy-authorization` of the next. What was said last is said to that proxy from the beginning: a tunnel that it
//! opened is another's than one without.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towpath_engine::local::message::{self, Transport};

use super::{Authenticator, Challenge, Credentials, MOST_ATTEMPTS, Scheme};
use crate::proxy::Asked;
use crate::url::Url;
use crate::{Client, Error, Failed, Request, Response};

/// Is asked for credentials; and those that it gave so far.
pub(crate) struct ProxyAuthenticator {
    who: Box<Authenticator>,
    answers: Mutex<VecDeque<(Key, String)>>,
}

/// Where an answer is good: a proxy, and where it proves something (Digest) what the proxy is asked for.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    host: Arc<str>,
    port: u16,
    transport: Transport,
    asked: Option<Asked>,
}

impl Client {
    /// One that answers proxies which ask for credentials (407), those that forward and those that give tunnels: as
    /// [`Client::authenticate`]; [`Challenge::host`] is the proxy's. What was said last to a proxy is said to it from
    /// the beginning by all requests of this client. With nothing the 407 is the app's, or for a tunnel
    /// [`Failed::Proxy`]. A body that follows in pieces is not sent again.
    #[must_use]
    pub fn authenticate_proxy(
        &self,
        who: impl Fn(&Challenge) -> Option<Credentials> + Send + Sync + 'static,
    ) -> Self {
        let authenticator = Arc::new(ProxyAuthenticator::new(Box::new(who)));
        self.with(|defaults| defaults.proxy_authenticator = Some(authenticator))
    }
}

impl ProxyAuthenticator {
    pub(crate) fn new(who: Box<Authenticator>) -> Self {
        Self { who, answers: Mutex::default() }
    }

    /// What this proxy is told from the beginning.
    pub(crate) fn known(&self, proxy: &message::Proxy, asked: &Asked) -> Option<String> {
        let keys = [Key::new(proxy, Some(asked)), Key::new(proxy, None)];
        let answers = self.answers();
        let known = |key| answers.iter().find(|(other, _)| other == key);
        keys.iter().find_map(known).map(|(_, answer)| answer.clone())
    }

    /// Asks the app. Whether it knows an answer: then it is kept.
    fn ask(&self, proxy: &message::Proxy, challenge: &Challenge, asked: &Asked) -> bool {
        let answer = (self.who)(challenge).and_then(|it| it.answer(challenge));
        let keys = [Key::new(proxy, Some(asked)), Key::new(proxy, None)];
        let mut answers = self.answers();
        // What was said before was wrong.
        answers.retain(|(key, _)| !keys.contains(key));
        let Some(answer) = answer else { return false };
        let [of_this, of_all] = keys;
        let proves = answer.get(..6).is_some_and(|it| it.eq_ignore_ascii_case("digest"));
        if answers.len() == MOST_ANSWERS {
            answers.pop_front();
        }
        answers.push_back((if proves { of_this } else { of_all }, answer));
        true
    }

    fn answers(&self) -> MutexGuard<'_, VecDeque<(Key, String)>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key {
    fn new(proxy: &message::Proxy, asked: Option<&Asked>) -> Self {
        let (host, port, transport) = (Arc::clone(&proxy.host), proxy.port, proxy.transport);
        Self { host, port, transport, asked: asked.cloned() }
    }
}

/// Whether the request can be sent once more, because the app has given credentials: after the answer of a proxy that
/// was to forward it.
pub(crate) fn tell_forwarder(request: &Request, response: &Response, attempt: usize) -> bool {
    let forwards = |asked: &Asked| !asked.is_tunnel();
    let says = || Scheme::in_fields(response, b"proxy-authenticate");
    response.status() == 407 && tell(request, forwards, says, attempt)
}

/// The same after a proxy gave no tunnel.
pub(crate) fn tell_tunnel(request: &Request, error: &Error, attempt: usize) -> bool {
    let Error::Failed(failed) = error else { return false };
    let wants = failed.why() == Failed::Proxy(towpath_proto::proxy::Refusal::Credentials);
    let Some(report) = error.report().filter(|_| wants) else { return false };
    let says = || report.proxy_challenges.iter().flat_map(|field| Scheme::all(field)).collect();
    tell(request, Asked::is_tunnel, says, attempt)
}

fn tell(
    request: &Request,
    fits: impl Fn(&Asked) -> bool,
    says: impl FnOnce() -> Vec<Scheme>,
    attempt: usize,
) -> bool {
    let Some(authenticator) = &request.defaults.proxy_authenticator else { return false };
    if attempt >= MOST_ATTEMPTS || request.pieces.is_some() {
        return false;
    }
    let Some((proxy, asked)) = request.asked_of_proxy().filter(|(_, asked)| fits(asked)) else {
        return false;
    };
    let schemes = says();
    let Some(url) = url(&proxy).filter(|_| !schemes.is_empty()) else { return false };
    let (method, uri) = (asked.method.clone(), asked.uri.clone());
    let challenge = Challenge { url, method, uri, schemes, attempt, is_of_proxy: true };
    authenticator.ask(&proxy, &challenge, &asked)
}

fn url(proxy: &message::Proxy) -> Option<Url> {
    let scheme = match proxy.transport {
        Transport::Plain => "http",
        Transport::Tls => "https",
    };
    let brackets = if proxy.host.contains(':') { ["[", "]"] } else { ["", ""] };
    let text = format!("{scheme}://{}{}{}:{}", brackets[0], proxy.host, brackets[1], proxy.port);
    Url::parse(&text).ok()
}

/// More proxies than an app has.
const MOST_ANSWERS: usize = 64;
