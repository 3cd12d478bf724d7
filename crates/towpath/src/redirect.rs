//! Answers that name another place are followed (RFC 9110 §15.4).
//!
//! Arrives: a request and the head of its answer. Leaves: the request for the other place, nothing where the answer
//! is the app's, or the error that ends a loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use towpath_engine::local::message::Transport;
use towpath_engine::local::report::Report;

use crate::auth;
#[cfg(feature = "cache")]
use crate::cache::Filling;
use crate::call::Call;
use crate::decode::Decoder;
#[cfg(feature = "interceptors")]
use crate::intercept::Seen;
use crate::leg::{Leg, Step};
use crate::request::Handler;
use crate::response::Raw;
use crate::timeline::Entry;
use crate::url::Url;
use crate::{Chunk, Error, Failed, Layer, Request, Response, Trailers};

/// An answer that was followed.
#[derive(Clone, Debug)]
pub struct Redirect {
    pub(crate) status: u16,
    pub(crate) url: String,
    pub(crate) report: Option<Arc<Report>>,
}

/// What is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) most: usize,
    /// From `https` to `http` as well.
    pub(crate) downgrades: bool,
}

/// A request's way from place to place.
pub(crate) struct RedirectChain {
    /// The next to send.
    pub(crate) request: Request,
    pub(crate) redirects: Vec<Redirect>,
    /// What was decided beside the engine.
    pub(crate) history: Vec<Entry>,
    pub(crate) began: Instant,
    /// Where the last one went.
    sent: Option<Url>,
    /// How often a server asked for credentials.
    challenges: usize,
    /// The same of proxies.
    proxy_challenges: usize,
    /// The app's interceptors have been asked, and these hear of the answer.
    #[cfg(feature = "interceptors")]
    pub(crate) seen: Seen,
    #[cfg(feature = "interceptors")]
    pub(crate) is_asked: bool,
    /// One of them has answered.
    #[cfg(feature = "interceptors")]
    pub(crate) is_local: bool,
}

/// What gives up the one request of a chain that is under way.
#[derive(Clone, Default)]
pub(crate) struct Current(Arc<Mutex<UnderWay>>);

#[derive(Default)]
struct UnderWay {
    call: Option<Arc<Call>>,
    cancelled: bool,
}

/// Follows and decodes for a handler.
struct Follower<H> {
    handler: H,
    chain: RedirectChain,
    /// What is done with the response; taken when there is one.
    leg: Option<Leg>,
    follows: bool,
    current: Current,
    decoder: Option<Decoder>,
    #[cfg(feature = "cache")]
    filling: Option<Filling>,
    /// The handler has a whole stored body; what the server sends beside is not its.
    stored: bool,
    /// Bytes that the handler has of what was decoded.
    unused: Arc<AtomicUsize>,
    /// Why it cannot be decoded, or what an interceptor said.
    error: Option<Error>,
}

impl Redirect {
    /// The answer's status: 301, 302, 303, 307 or 308; 401, or 407 of a proxy, where credentials were sent then.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Where it led to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What happened to the request that was so answered.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.report.as_deref()
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { most: 20, downgrades: false }
    }
}

impl RedirectChain {
    pub(crate) fn new(request: Request) -> Self {
        Self {
            request,
            redirects: Vec::new(),
            history: Vec::new(),
            began: Instant::now(),
            sent: None,
            challenges: 0,
            proxy_challenges: 0,
            #[cfg(feature = "interceptors")]
            seen: Seen::default(),
            #[cfg(feature = "interceptors")]
            is_asked: false,
            #[cfg(feature = "interceptors")]
            is_local: false,
        }
    }

    /// The request that is to be sent now, with as much time as is left of all, and all that its client adds.
    pub(crate) fn request(&mut self) -> Result<Request, Error> {
        #[cfg(feature = "hsts")]
        if let (Some(hosts), Ok(url)) = (&self.request.defaults.hsts, &mut self.request.url)
            && hosts.upgrade(url)
        {
            self.tell("HSTS: https in place of http");
        }
        let mut request = self.request.clone();
        Arc::clone(&request.defaults).complete(&mut request);
        self.sent = request.url.as_ref().ok().cloned();
        if let Some(total) = request.options.total.filter(|_| !self.redirects.is_empty()) {
            let left = total.saturating_sub(self.began.elapsed());
            if left.is_zero() {
                return Err(Failed::TimedOut(Layer::Total).into());
            }
            request.options.total = Some(left);
        }
        Ok(request)
    }

    /// What an answer says to the client, beside to who asked.
    pub(crate) fn hear(&self, response: &Response) {
        if let Some(url) = &self.sent {
            self.request.defaults.hear(&self.request.method, url, response);
        }
    }

    /// Whether an answer leads on; then the next request is another one.
    pub(crate) fn follow(&mut self, response: &mut Response) -> Result<bool, Error> {
        if self.leads_on(response)? {
            return Ok(true);
        }
        #[cfg(feature = "interceptors")]
        self.seen.after(response)?;
        Ok(false)
    }

    fn leads_on(&mut self, response: &Response) -> Result<bool, Error> {
        #[cfg(feature = "interceptors")]
        if self.is_local {
            return Ok(false);
        }
        let status = response.status();
        if let Some(next) = auth::answer(&self.request, response, self.challenges) {
            self.challenges += 1;
            self.go_on(status, next);
            return Ok(true);
        }
        if auth::tell_forwarder(&self.request, response, self.proxy_challenges) {
            self.ask_proxy_again();
            return Ok(true);
        }
        if self.request.redirects.most == 0 || self.request.pieces.is_some() {
            return Ok(false);
        }
        let Some(next) = response.header("location").and_then(|to| next(&self.request, status, to))
        else {
            return Ok(false);
        };
        let followed = self.redirects.len() - self.challenges - self.proxy_challenges;
        if followed >= self.request.redirects.most {
            return Err(Error::Redirect("it was sent from place to place too often"));
        }
        self.go_on(status, next);
        Ok(true)
    }

    /// Whether there was no tunnel, and the next request may get one: the app has given credentials.
    pub(crate) fn tells_proxy<T>(&mut self, answered: &Result<T, Error>) -> bool {
        let Err(error) = answered else { return false };
        let tells = auth::tell_tunnel(&self.request, error, self.proxy_challenges);
        if tells {
            self.ask_proxy_again();
            self.note(error.shared_report());
        }
        tells
    }

    fn ask_proxy_again(&mut self) {
        self.proxy_challenges += 1;
        self.go_on(407, self.request.clone());
    }

    fn go_on(&mut self, status: u16, next: Request) {
        let url = next.url.as_ref().map(ToString::to_string).unwrap_or_default();
        self.redirects.push(Redirect { status, url, report: None });
        self.request = next;
    }

    /// What happened to the request that was answered last.
    pub(crate) fn note(&mut self, report: Option<Arc<Report>>) {
        if let Some(last) = self.redirects.last_mut() {
            last.report = report;
        }
    }
}

/// The request for the place that an answer names; none where it is not to be followed.
fn next(request: &Request, status: u16, location: &str) -> Option<Request> {
    let url = request.url.as_ref().ok()?;
    let target = url.join(location)?;
    #[cfg(feature = "hsts")]
    let target = {
        // Before it is judged: a host that wants TLS is not asked without.
        let mut target = target;
        request.defaults.hsts.as_ref().map(|hosts| hosts.upgrade(&mut target));
        target
    };
    let secure = |url: &Url| url.transport == Transport::Tls;
    if secure(url) && !secure(&target) && !request.redirects.downgrades {
        return None;
    }
    let method = match (status, request.method.as_str()) {
        (301 | 302, "POST") => "GET",
        // §15.4.4: whatever it was, another resource tells of it.
        (303, method) if method != "HEAD" => "GET",
        (301 | 302 | 303 | 307 | 308, method) => method,
        _ => return None,
    };
    let mut next = request.clone();
    if method != request.method {
        next.method = method.to_owned();
        next.body = None;
        next.fields.retain(|(name, _)| !is_of_body(name));
    }
    let same = (&*url.host, url.port, url.scheme) == (&*target.host, target.port, target.scheme);
    // §15.4: what was meant for this origin is not told another.
    next.fields
        .retain(|(name, _)| !name.eq_ignore_ascii_case("host") && (same || !is_of_origin(name)));
    next.url = Ok(target);
    Some(next)
}

fn is_of_body(name: &str) -> bool {
    let begin = name.get(..8).is_some_and(|begin| begin.eq_ignore_ascii_case("content-"));
    let others = ["digest", "last-modified", "transfer-encoding", "idempotency-key"];
    begin || others.iter().any(|other| name.eq_ignore_ascii_case(other))
}

fn is_of_origin(name: &str) -> bool {
    let names = ["authorization", "cookie", "proxy-authorization", "www-authenticate", "origin"];
    names.iter().any(|other| name.eq_ignore_ascii_case(other))
}

impl Current {
    pub(crate) fn cancel(&self) {
        let mut under_way = self.lock();
        under_way.cancelled = true;
        if let Some(call) = &under_way.call {
            call.cancel();
        }
    }

    fn set(&self, call: Arc<Call>) {
        self.lock().call = Some(call);
    }

    pub(crate) fn call(&self) -> Option<Arc<Call>> {
        self.lock().call.clone()
    }

    fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a request whose answers are followed before its handler hears of one, and decoded.
pub(crate) fn start<H: Handler + 'static>(
    request: Request,
    handler: impl FnOnce(Current) -> H,
) -> Result<Current, Error> {
    // Before there is a handler.
    request.check()?;
    let current = Current::default();
    let handler = handler(current.clone());
    match go_on(RedirectChain::new(request.detached()), handler, current.clone()) {
        Ok(()) => Ok(current),
        Err((error, _)) => Err(error),
    }
}

/// Bytes that a handler may have of what was decoded and not used: far more than of what came, because pieces cannot be
/// held back that have come and become many times as long.
const MOST_UNUSED: usize = 32 << 20;

/// An error gives the handler back.
fn go_on<H: Handler + 'static>(
    mut chain: RedirectChain,
    handler: H,
    current: Current,
) -> Result<(), (Error, H)> {
    match chain.step() {
        Ok(Step::Send(request, leg)) => {
            send(request, Follower::new(handler, chain, Some(leg), current))
        }
        #[cfg(feature = "interceptors")]
        Ok(Step::Answer(response)) => {
            let background = chain.request.background().clone();
            let follower = Follower::new(handler, chain, None, current);
            // Not here: the app may hold a lock that its handler wants.
            background.run(move || follower.answer(response));
            Ok(())
        }
        Err(error) => Err((error, handler)),
    }
}

fn send<H: Handler + 'static>(request: Request, follower: Follower<H>) -> Result<(), (Error, H)> {
    let current = follower.current.clone();
    // It is kept here as well until the request is sent: where it cannot be, the handler is told otherwise.
    let slot = Arc::new(Mutex::new(Some(follower)));
    let (theirs, known) = (Arc::clone(&slot), current.clone());
    let opened = request.open(move |call| {
        known.set(call);
        Some(Box::new(Slot(theirs)))
    });
    match opened {
        Ok(call) => {
            // It was given up between two places.
            if current.is_cancelled() {
                call.cancel();
            }
            Ok(())
        }
        Err(error) => {
            let taken = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            let follower = taken.expect("a request that was not sent has not ended");
            Err((error, follower.handler))
        }
    }
}

/// A follower that is taken out when its request has ended.
struct Slot<H>(Arc<Mutex<Option<Follower<H>>>>);

impl<H: Handler + 'static> Slot<H> {
    fn with(&self, act: impl FnOnce(&mut Follower<H>)) {
        if let Some(follower) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            act(follower);
        }
    }
}

impl<H: Handler + 'static> Follower<H> {
    fn new(handler: H, chain: RedirectChain, leg: Option<Leg>, current: Current) -> Self {
        Self {
            handler,
            chain,
            leg,
            follows: false,
            current,
            decoder: None,
            #[cfg(feature = "cache")]
            filling: None,
            stored: false,
            unused: Arc::default(),
            error: None,
        }
    }

    /// A response, with what is there of its body: the server's word is as it came.
    fn begin(&mut self, mut response: Response) {
        match self.chain.follow(&mut response) {
            Ok(true) => self.follows = true,
            #[cfg(feature = "interceptors")]
            Err(error) if !matches!(error, Error::Redirect(_)) => {
                self.error = Some(error);
                self.current.cancel();
            }
            // One too many is an answer like any other: a handler has had no error before its head.
            Ok(false) | Err(_) => {
                let mut response = response.after(&mut self.chain);
                #[cfg(feature = "interceptors")]
                let stored = response.take_stored();
                self.decoder = response.take_decoder();
                #[cfg(feature = "cache")]
                {
                    self.filling = response.take_filling();
                }
                self.handler.on_head(response);
                #[cfg(feature = "interceptors")]
                if let Some(stored) = stored {
                    self.take(Chunk::stored(stored));
                    self.stored = true;
                }
            }
        }
    }

    fn take(&mut self, chunk: Chunk) {
        if self.follows || self.stored || self.error.is_some() {
            return;
        }
        #[cfg(feature = "cache")]
        if let Some(filling) = &mut self.filling {
            filling.push(&chunk);
        }
        if self.decoder.is_none() {
            if !chunk.is_empty() {
                self.handler.on_data(chunk);
            }
            return;
        }
        let raw = Arc::new(Raw::new(chunk, Arc::clone(&self.unused)));
        if let Err(error) = self.decode(&raw) {
            self.error = Some(error);
            self.current.cancel();
        }
    }

    fn decode(&mut self, raw: &Arc<Raw>) -> Result<(), Error> {
        let Self { decoder: Some(decoder), handler, unused, .. } = self else { return Ok(()) };
        decoder.feed(raw.bytes());
        while let Some(piece) = decoder.next()? {
            if unused.load(Ordering::Relaxed) > MOST_UNUSED {
                return Err(Error::Decoding("it becomes more than its reader keeps up with"));
            }
            handler.on_data(Chunk::decoded(piece, raw));
        }
        Ok(())
    }

    /// The end as the handler hears of it: after what is left in the decoder, or why there is none.
    fn finish(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if !self.stored {
            outcome?;
        }
        if let Some(mut decoder) = self.decoder.take()
            && let Some(left) = decoder.finish()?
        {
            let raw = Arc::new(Raw::new(Chunk::stored(Bytes::new()), Arc::clone(&self.unused)));
            self.handler.on_data(Chunk::decoded(left, &raw));
        }
        #[cfg(feature = "cache")]
        if let Some(filling) = self.filling.take() {
            filling.commit();
        }
        Ok(())
    }

    /// Goes on where a proxy gave no tunnel, and the app has given credentials.
    fn tell_proxy(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        if self.leg.is_none() || self.error.is_some() {
            return outcome;
        }
        let chain = &mut self.chain;
        match catch_unwind(AssertUnwindSafe(|| chain.tells_proxy(&outcome))) {
            Ok(false) => return outcome,
            Ok(true) => self.follows = true,
            Err(_) => self.error = Some(Error::Handler),
        }
        self.leg = None;
        outcome
    }

    /// The end, or what follows it.
    fn end(mut self, outcome: Result<(), Error>, report: Option<&Report>) {
        let outcome = self.tell_proxy(outcome);
        #[cfg(feature = "cache")]
        let outcome = match (outcome, self.leg.take()) {
            // There was no head: a cache may have one.
            (Err(error), Some(leg)) => self.chain.arrived(leg, Err(error)).and_then(|response| {
                let told = catch_unwind(AssertUnwindSafe(|| self.begin(response)));
                told.map_err(|_| Error::Handler)
            }),
            (outcome, _) => outcome,
        };
        let outcome = self.finish(outcome);
        let is_given_up =
            matches!(&outcome, Err(Error::Failed(failed)) if failed.why() == Failed::Cancelled);
        if !self.follows || is_given_up {
            return self.handler.on_end(outcome, report);
        }
        self.chain.note(report.map(|report| Arc::new(report.clone())));
        let Self { handler, chain, current, .. } = self;
        if let Err((error, mut handler)) = go_on(chain, handler, current) {
            handler.on_end(Err(error), None);
        }
    }

    /// An answer that no server gave, from its head to its end.
    #[cfg(feature = "interceptors")]
    fn answer(mut self, response: Response) {
        let told = catch_unwind(AssertUnwindSafe(|| self.begin(response)));
        let outcome = match told {
            Err(_) => Err(Error::Handler),
            Ok(()) if self.current.is_cancelled() => Err(Failed::Cancelled.into()),
            Ok(()) => Ok(()),
        };
        if outcome.is_err() {
            return self.handler.on_end(outcome, None);
        }
        self.end(Ok(()), None);
    }
}

impl<H: Handler + 'static> Handler for Slot<H> {
    fn on_head(&mut self, response: Response) {
        self.with(|follower| {
            let Some(leg) = follower.leg.take() else { return };
            match follower.chain.arrived(leg, Ok(response)) {
                Ok(response) => follower.begin(response),
                Err(error) => {
                    follower.error = Some(error);
                    follower.current.cancel();
                }
            }
        });
    }

    fn on_data(&mut self, chunk: Chunk) {
        self.with(|follower| follower.take(chunk));
    }

    fn on_trailers(&mut self, trailers: Trailers) {
        self.with(|follower| {
            if !follower.follows && !follower.stored {
                follower.handler.on_trailers(trailers);
            }
        });
    }

    fn on_room(&mut self) {
        self.with(|follower| follower.handler.on_room());
    }

    fn on_end(&mut self, outcome: Result<(), Error>, report: Option<&Report>) {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(follower) = taken {
            follower.end(outcome, report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use crate::call::Shared;

    fn request(method: &str, url: &str) -> Request {
        let request =
            Client::new(Arc::new(Shared::default()), None).request(method, url).body("body");
        request
            .header("Authorization", "secret")
            .header("Cookie", "a=b")
            .header("Content-Type", "text/plain")
            .header("Accept", "*/*")
    }

    fn names(request: &Request) -> Vec<&str> {
        request.fields.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn methods_and_bodies_are_kept_or_changed() {
        for (status, method, then) in [
            (301, "POST", "GET"),
            (302, "POST", "GET"),
            (301, "PUT", "PUT"),
            (302, "DELETE", "DELETE"),
            (303, "PUT", "GET"),
            (303, "HEAD", "HEAD"),
            (307, "POST", "POST"),
            (308, "PATCH", "PATCH"),
            (302, "HEAD", "HEAD"),
        ] {
            let next = next(&request(method, "http://a/x"), status, "/y").unwrap();
            assert_eq!((next.method.as_str(), next.body.is_some()), (then, method == then));
            let typed = names(&next).contains(&"Content-Type");
            assert_eq!(typed, method == then, "{status} {method}");
            assert!(names(&next).contains(&"Authorization"), "the same origin");
        }
        for status in [200, 300, 304, 305, 306, 399, 404] {
            assert!(next(&request("GET", "http://a/x"), status, "/y").is_none(), "{status}");
        }
    }

    #[test]
    fn credentials_stay_with_their_origin_and_nothing_leaves_https_unasked() {
        let from = request("GET", "https://a.example/x");
        for to in ["https://b.example/", "https://a.example:444/", "//b.example/"] {
            let next = next(&from, 302, to).unwrap();
            assert_eq!(names(&next), ["Content-Type", "Accept"], "{to}");
        }
        assert_eq!(names(&next(&from, 302, "https://A.example:443/z").unwrap()).len(), 4);
        assert!(next(&from, 302, "http://a.example/x").is_none());
        let allowed = next(&from.redirects_to_http(), 302, "http://a.example/x").unwrap();
        assert_eq!(names(&allowed), ["Content-Type", "Accept"]);
        let up = next(&request("GET", "http://a.example/x"), 301, "https://a.example/x").unwrap();
        assert_eq!(names(&up), ["Content-Type", "Accept"], "another scheme is another origin");
        #[cfg(feature = "hsts")]
        {
            let hosts = crate::hsts::Hosts::new();
            hosts.add("a.example", false, std::time::Duration::from_secs(60));
            let client = Client::new(Arc::new(Shared::default()), None).hsts(&hosts);
            let from = client.get("https://a.example/x");
            let url = next(&from, 302, "http://a.example/y").unwrap().url.unwrap();
            assert_eq!(
                url.to_string(),
                "https://a.example/y",
                "it is asked under TLS all the same"
            );
        }
        for nowhere in ["ftp://a/", "mailto:a@b", "http://", "http://u:p@host/", ""] {
            assert!(next(&request("GET", "http://a/x"), 302, nowhere).is_none(), "{nowhere}");
        }
    }
}
