//! What to ask, how long to wait for it, and whether it may be asked twice.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towpath_engine::local::message::{Open, Options, Origin, Repeat, Transport};
use towpath_engine::local::report::Report;
use towpath_proto::head::Head;

use crate::auth::{Challenge, Credentials};
#[cfg(feature = "interceptors")]
use crate::background::Background;
use crate::call::{Call, Shared, State};
use crate::decode;
use crate::defaults::Defaults;
use crate::engine::Life;
use crate::form::{self, Form};
use crate::leg::Step;
use crate::proxy::Proxying;
use crate::redirect::{self, Current, Policy, RedirectChain};
use crate::upload::Sender;
use crate::url::Url;
use crate::{Chunk, Error, HttpVersions, Priority, Proxies, Proxy, Response, Trailers, Upload};

/// Makes requests on an engine, and keeps it running; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    life: Option<Arc<Life>>,
    defaults: Arc<Defaults>,
}

/// A request that has not been sent.
#[derive(Clone)]
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    shared: Arc<Shared>,
    pub(crate) life: Option<Arc<Life>>,
    pub(crate) defaults: Arc<Defaults>,
    pub(crate) url: Result<Url, Error>,
    pub(crate) method: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Option<Bytes>,
    /// A body that follows in pieces, and its length, where that is known.
    pub(crate) pieces: Option<Length>,
    pub(crate) options: Options,
    pub(crate) redirects: Policy,
    decodes: bool,
    turn_limit: Option<Duration>,
    pub(crate) proxying: Proxying,
    /// What it has to do with its client's cache.
    #[cfg(feature = "cache")]
    pub(crate) caching: Caching,
}

/// What a request has to do with a cache.
#[cfg(feature = "cache")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Caching {
    #[default]
    Usual,
    /// It asks the server, whatever is kept.
    Refreshes,
    Off,
}

/// That of a body, where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) Option<u64>);

/// What a request is made of, for callers that keep it.
pub(crate) struct Parts {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Bytes,
    pub(crate) options: Options,
}

/// Called on the engine's thread as a response comes. It must not block, and not wait for another request.
pub trait Handler: Send {
    /// The head is there; the response's own body is empty. What the server sends comes by [`Handler::on_data`].
    fn on_head(&mut self, response: Response);

    /// A piece of the body; never empty. Where it is kept, less comes: see [`Chunk`].
    fn on_data(&mut self, chunk: Chunk);

    /// The fields after the body.
    fn on_trailers(&mut self, trailers: Trailers) {
        let _ = trailers;
    }

    /// There is room again for the request's body, after [`Sender::write`] had found too little.
    fn on_room(&mut self) {}

    /// It is over; called exactly once, and nothing after it. Without a report the engine was stopped.
    fn on_end(&mut self, outcome: Result<(), Error>, report: Option<&Report>);
}

/// Gives a request up from elsewhere; see [`Request::send_with`].
#[derive(Clone)]
pub struct Canceller {
    current: Current,
}

impl Canceller {
    /// Gives it up, unless it has ended.
    pub fn cancel(&self) {
        self.current.cancel();
    }
}

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, life: Option<Arc<Life>>) -> Self {
        Self { shared, life, defaults: Arc::default() }
    }

    /// What it does to all its requests, without its hold on the engine.
    pub(crate) const fn defaults(&self) -> &Arc<Defaults> {
        &self.defaults
    }

    pub(crate) fn with_defaults(self, defaults: Arc<Defaults>) -> Self {
        Self { defaults, ..self }
    }

    /// One whose requests have this field, unless they have one of the same name.
    #[must_use]
    pub fn header(&self, name: &str, value: &str) -> Self {
        self.with(|defaults| defaults.fields.push((name.to_owned(), value.to_owned())))
    }

    /// One whose requests are spoken so, unless they say otherwise.
    #[must_use]
    pub fn http_versions(&self, versions: HttpVersions) -> Self {
        self.with(|defaults| defaults.http = versions)
    }

    /// One whose requests go through these proxies, unless they say otherwise. By default none does:
    /// [`Proxies::from_environment`] has those of the environment.
    #[must_use]
    pub fn proxies(&self, proxies: Proxies) -> Self {
        self.with(|defaults| defaults.proxies = Some(Arc::new(proxies)))
    }

    /// One whose requests send the cookies of this jar, which takes what servers set. Feature `cookies`.
    #[cfg(feature = "cookies")]
    #[must_use]
    pub fn cookies(&self, jar: &crate::cookies::Jar) -> Self {
        self.with(|defaults| defaults.cookies = Some(jar.clone()))
    }

    /// One whose responses are kept in this cache, and come from it where they may. Feature `cache`.
    #[cfg(feature = "cache")]
    #[must_use]
    pub fn cache(&self, cache: &crate::Cache) -> Self {
        self.with(|defaults| defaults.cache = Some(cache.clone()))
    }

    /// One that asks these hosts under TLS alone, and learns others that want it. Feature `hsts`.
    #[cfg(feature = "hsts")]
    #[must_use]
    pub fn hsts(&self, hosts: &crate::hsts::Hosts) -> Self {
        self.with(|defaults| defaults.hsts = Some(hosts.clone()))
    }

    /// One that answers servers which ask for credentials (401): `who` is given the challenge, and what it answers is
    /// sent; with nothing the 401 is the app's. It may be called on the engine's thread, and must not block.
    #[must_use]
    pub fn authenticate(
        &self,
        who: impl Fn(&Challenge) -> Option<Credentials> + Send + Sync + 'static,
    ) -> Self {
        self.with(|defaults| defaults.authenticator = Some(Arc::new(who)))
    }

    pub(crate) fn with(&self, change: impl FnOnce(&mut Defaults)) -> Self {
        let mut new = self.clone();
        change(Arc::make_mut(&mut new.defaults));
        new
    }

    /// A request of any method.
    pub fn request(&self, method: &str, url: &str) -> Request {
        Request {
            shared: Arc::clone(&self.shared),
            life: self.life.clone(),
            defaults: Arc::clone(&self.defaults),
            url: Url::parse(url),
            method: method.to_owned(),
            fields: Vec::new(),
            body: None,
            pieces: None,
            options: Options { http: self.defaults.http, ..Options::default() },
            redirects: Policy::default(),
            decodes: true,
            turn_limit: None,
            proxying: Proxying::default(),
            #[cfg(feature = "cache")]
            caching: Caching::default(),
        }
    }

    /// A GET.
    pub fn get(&self, url: &str) -> Request {
        self.request("GET", url)
    }

    /// A POST with this body.
    pub fn post(&self, url: &str, body: impl Into<Bytes>) -> Request {
        self.request("POST", url).body(body)
    }
}

impl Request {
    /// Its method.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Where it goes, without what only the app knows (`#…`).
    ///
    /// # Errors
    /// [`Error::Url`] where that is none that can be asked.
    pub fn url(&self) -> Result<String, Error> {
        self.url.as_ref().map(ToString::to_string).map_err(Clone::clone)
    }

    /// Goes elsewhere. What it says of credentials and cookies goes with it.
    pub fn with_url(mut self, url: &str) -> Self {
        self.url = Url::parse(url);
        self
    }

    /// Its fields so far: what is added for it (its length, its host) is not among them.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Takes away the fields of this name, whatever its case.
    pub fn remove_header(self, name: &str) -> Self {
        self.without(name)
    }

    /// Adds a field. `host` replaces what the URL says; those that belong to a connection are not sent.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The whole body, whose length is sent with it.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Adds names and values to the URL's query, encoded as browsers do.
    pub fn query<N: AsRef<str>, V: AsRef<str>>(
        mut self,
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        if let Ok(url) = &mut self.url {
            url.add_query(&form::urlencoded(pairs));
        }
        self
    }

    /// A body of names and values, as `application/x-www-form-urlencoded`.
    pub fn form<N: AsRef<str>, V: AsRef<str>>(
        self,
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.typed("application/x-www-form-urlencoded").body(form::urlencoded(pairs))
    }

    /// A body of fields and files, as `multipart/form-data`.
    pub fn multipart(self, form: &Form) -> Self {
        let (content_type, body) = form.encode();
        self.without("content-type").header("content-type", &content_type).body(body)
    }

    /// A body of JSON. Feature `json`.
    #[cfg(feature = "json")]
    pub fn json<T: serde::Serialize + ?Sized>(mut self, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.typed("application/json").body(body),
            Err(_) => {
                self.url = Err(Error::Upload("it cannot be written as JSON"));
                self
            }
        }
    }

    /// Authenticates the user by name and password (Basic, RFC 7617). A name has no colon.
    pub fn basic_auth(self, user: &str, password: &str) -> Self {
        let credentials = form::base64(format!("{user}:{password}").as_bytes());
        self.without("authorization").header("authorization", &format!("Basic {credentials}"))
    }

    /// Authenticates the user by a token (Bearer, RFC 6750).
    pub fn bearer_auth(self, token: &str) -> Self {
        self.without("authorization").header("authorization", &format!("Bearer {token}"))
    }

    /// From the beginning to the end of the response, with all repetitions, however well it goes; zero means no
    /// limit, not [`Request::answer_timeout`] either. By default what moves may take its time.
    pub const fn timeout(mut self, total: Duration) -> Self {
        self.options.total = if total.is_zero() { None } else { Some(total) };
        self.options.answer = None;
        self
    }

    /// Until the response begins, with all repetitions, counted anew whenever the body that is sent makes progress,
    /// and when a response breaks off until it goes on: default 60 s.
    pub const fn answer_timeout(mut self, limit: Duration) -> Self {
        self.options.answer = Some(limit);
        self
    }

    /// Until its turn comes, where [`Builder::max_calls_per_origin`](crate::Builder::max_calls_per_origin) lets it wait
    /// for others: then it fails with [`Failed::Overflow`](crate::Failed::Overflow). By default only
    /// [`Request::timeout`] ends that; the other limits count from its turn on.
    pub const fn turn_timeout(mut self, limit: Duration) -> Self {
        self.turn_limit = Some(limit);
        self
    }

    /// From the beginning until it is given to a connection that can be used: then it fails with
    /// [`Failed::Connect`](crate::Failed::Connect), and [`Request::answer_timeout`] counts from there. By default only
    /// the limits on the whole hold.
    pub const fn connect_timeout(mut self, limit: Duration) -> Self {
        self.options.connect = Some(limit);
        self
    }

    /// One attempt, from when its body last made progress until the response begins. By default the time for the
    /// first byte and some more.
    pub const fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.options.attempt = Some(limit);
        self
    }

    /// From when the server's kernel has taken the request's last byte to the response's first, in one attempt. By
    /// default Mars's formula and the origin's history decide: 12 s and more without history, 2 s and more with it.
    pub const fn first_byte_timeout(mut self, limit: Duration) -> Self {
        self.options.first_byte = Some(limit);
        self
    }

    /// Between two pieces of the response: default 8 s, on a mobile network 12 s.
    pub const fn gap_timeout(mut self, limit: Duration) -> Self {
        self.options.gap = Some(limit);
        self
    }

    /// How often to try again after a failure, where that is allowed: default 2.
    pub const fn retries(mut self, retries: u32) -> Self {
        self.options.retries = retries;
        self
    }

    /// Whether it may be sent again when it is not known whether it was processed: by default as its method says.
    pub const fn repeat(mut self, repeat: Repeat) -> Self {
        self.options.repeat = repeat;
        self
    }

    /// Sends `idempotency-key` with this value: the server knows a repetition by it, so that it may be repeated.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.header("idempotency-key", key).repeat(Repeat::Always)
    }

    /// Which versions of HTTP are spoken: by default HTTP/2 under TLS where the server chooses it, else HTTP/1.1.
    /// Connections are shared by requests that want the same.
    pub const fn http_versions(mut self, versions: HttpVersions) -> Self {
        self.options.http = versions;
        self
    }

    /// Goes through this proxy, whatever its client says; with none without any. So do the requests that redirects lead
    /// to.
    pub fn proxy(mut self, proxy: Option<Proxy>) -> Self {
        self.proxying = Proxying::Through(proxy);
        self
    }

    /// Waits while the platform says that there is no network, where by default it fails.
    pub const fn wait_for_network(mut self) -> Self {
        self.options.waits = true;
        self
    }

    /// Fails at once with [`Failed::Resting`](crate::Failed::Resting) while its origin is left alone after an answer
    /// 429 or 503, where by default it waits; such an answer to itself it gets as it is.
    pub const fn fail_at_rest(mut self) -> Self {
        self.options.fails_at_rest = true;
        self
    }

    /// Sends it a second time, on another connection, when it takes longer than 95 of 100 requests of its size to the
    /// same origin did, and takes the answer that comes first. Where it may be repeated, and within the engine's
    /// budget. The server may see it twice.
    pub const fn hedge(mut self) -> Self {
        self.options.hedges = true;
        self
    }

    /// Lets a response that breaks off fail, where by default the rest is asked for on another connection: of a GET
    /// whose response has a strong `etag` and a known length, by `range` and `if-range` (RFC 9110 §13.1.5).
    pub const fn no_resume(mut self) -> Self {
        self.options.resumes = false;
        self
    }

    /// How many answers that name another place are followed (301, 302, 303, 307, 308; RFC 9110 §15.4): default 20,
    /// with 0 each is an answer like any other. 301 and 302 make a GET of a POST, 303 of all but HEAD. What belongs
    /// to an origin (`authorization`,
    /// `cookie`) is not sent to another. A body that follows in pieces cannot be sent again: answers to
    /// [`Request::upload`] and [`Request::upload_with`] are not followed.
    pub const fn redirects(mut self, most: usize) -> Self {
        self.redirects.most = most;
        self
    }

    /// Follows from `https` to `http` as well, where by default such an answer is the app's.
    pub const fn redirects_to_http(mut self) -> Self {
        self.redirects.downgrades = true;
        self
    }

    /// Neither asks for a compressed response nor decodes one. By default a request asks for the codings that the
    /// library is built with (features `gzip`, which is deflate as well, `brotli` and `zstd`), unless it has an
    /// `accept-encoding` or a `range` of its own, and the body is handed out as it was, without `content-encoding` and
    /// `content-length`.
    pub const fn no_decode(mut self) -> Self {
        self.decodes = false;
        self
    }

    /// Has nothing to do with its client's cache: neither is it answered from there, nor is its response kept. Feature
    /// `cache`. What else a request can want of a cache, its `cache-control` says ([`crate::cache`]).
    #[cfg(feature = "cache")]
    pub const fn no_cache(mut self) -> Self {
        self.caching = Caching::Off;
        self
    }

    /// How urgent it is among those that wait for a connection to the same origin: by default [`Priority::Normal`]. The
    /// server is told by `priority` (RFC 9218), unless the request has such a field: `u=1` for high, `u=5` for low.
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.options.priority = priority;
        self
    }

    /// Lifts the limits on identical requests and on bytes sent for this request ([`Settings`](crate::Settings)).
    pub const fn unlimited(mut self) -> Self {
        self.options.limited = false;
        self
    }

    /// Sends it and blocks until the response's head is there.
    ///
    /// # Errors
    /// When it cannot be sent as it is, no response came, or this is the engine's own thread.
    pub fn send(self) -> Result<Response, Error> {
        let mut chain = RedirectChain::new(self);
        loop {
            let mut response = match chain.step()? {
                #[cfg(feature = "interceptors")]
                Step::Answer(response) => response,
                Step::Send(request, leg) => {
                    let life = request.life.clone();
                    let answered = request.open(|_| None).and_then(|call| {
                        let guard = Guard(Some(call));
                        let head = guard.call().wait(begun)?;
                        Ok(Response::new(head, guard.release(), life))
                    });
                    if chain.tells_proxy(&answered) {
                        continue;
                    }
                    chain.arrived(leg, answered)?
                }
            };
            if !chain.follow(&mut response)? {
                return Ok(response.after(&mut chain));
            }
            // Its connection can be used again once its body has come, if that is short.
            let _ = response.body().bytes(MOST_UNREAD);
            chain.note(response.into_body().into_report());
        }
    }

    /// Sends it; the future is done when the response's head is there. Dropping it gives the request up. Any executor
    /// will do.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub async fn send_async(self) -> Result<Response, Error> {
        let mut chain = RedirectChain::new(self);
        loop {
            let mut response = match chain.step()? {
                #[cfg(feature = "interceptors")]
                Step::Answer(response) => response,
                Step::Send(request, leg) => {
                    let answered = request.answered().await;
                    if chain.tells_proxy(&answered) {
                        continue;
                    }
                    chain.arrived(leg, answered)?
                }
            };
            if !chain.follow(&mut response)? {
                return Ok(response.after(&mut chain));
            }
            let _ = response.body().bytes_async(MOST_UNREAD).await;
            chain.note(response.into_body().into_report());
        }
    }

    /// The response as it came.
    async fn answered(self) -> Result<Response, Error> {
        let life = self.life.clone();
        let guard = Guard(Some(self.open(|_| None)?));
        let head = std::future::poll_fn(|context| guard.call().poll(context, begun)).await?;
        Ok(Response::new(head, guard.release(), life))
    }

    /// Sends it; what becomes of it is told to `handler`.
    ///
    /// # Errors
    /// When it cannot be sent as it is; then `handler` is not called.
    pub fn send_with(self, handler: impl Handler + 'static) -> Result<Canceller, Error> {
        Ok(Canceller { current: redirect::start(self, |_| handler)? })
    }

    /// As [`Request::send_with`], with a handler that can give the request up: it is made with what does so.
    ///
    /// # Errors
    /// As [`Request::send_with`].
    pub fn start_with<H: Handler + 'static>(
        self,
        handler: impl FnOnce(Sender) -> H,
    ) -> Result<Sender, Error> {
        self.sending(handler)
    }

    /// As [`Request::start_with`], with a body that follows in pieces, as in [`Request::upload`].
    ///
    /// # Errors
    /// As [`Request::send_with`], and when it has a body already.
    pub fn upload_with<H: Handler + 'static>(
        self,
        length: Option<u64>,
        handler: impl FnOnce(Sender) -> H,
    ) -> Result<Sender, Error> {
        self.with_pieces(length)?.sending(handler)
    }

    fn sending<H: Handler + 'static>(
        self,
        handler: impl FnOnce(Sender) -> H,
    ) -> Result<Sender, Error> {
        let left = self.pieces.map_or(Some(0), |Length(length)| length);
        let mut sender = None;
        redirect::start(self, |current| {
            handler(sender.insert(Sender::new(current, left)).clone())
        })?;
        sender.ok_or(Error::Stopped)
    }

    /// Sends the head, and lets the body follow in pieces. `length` is sent as `content-length`; without it the body
    /// is sent in chunks (RFC 9112 §7.1).
    ///
    /// # Errors
    /// When it cannot be sent as it is, or has a body already.
    pub fn upload(self, length: Option<u64>) -> Result<Upload, Error> {
        let mut chain = RedirectChain::new(self.with_pieces(length)?);
        match chain.step()? {
            #[cfg(feature = "interceptors")]
            Step::Answer(_) => {
                Err(Error::Upload("an interceptor answered what has a body to come"))
            }
            Step::Send(this, leg) => {
                let life = this.life.clone();
                Ok(Upload::new(this.open(|_| None)?, length, chain, leg, life))
            }
        }
    }

    /// Its body's media type, unless the app has named one.
    fn typed(self, content_type: &str) -> Self {
        if self.has("content-type") { self } else { self.header("content-type", content_type) }
    }

    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(field))
    }

    pub(crate) fn without(mut self, field: &str) -> Self {
        self.fields.retain(|(name, _)| !name.eq_ignore_ascii_case(field));
        self
    }

    /// Without its hold on the engine: what is sent does not keep it running, what waits for it does.
    pub(crate) fn detached(self) -> Self {
        Self { life: None, ..self }
    }

    /// Asks for what is decoded, and whether it does: the app's own word on codings, or on parts of them, holds.
    pub(crate) fn asking_for_codings(self) -> (Self, bool) {
        let has_own = self.has("accept-encoding") || self.has("range");
        match decode::accepted() {
            Some(codings) if self.decodes && !has_own => {
                (self.header("accept-encoding", &codings), true)
            }
            Some(_) | None => (self, false),
        }
    }

    /// What does not hold up the engine's thread.
    #[cfg(feature = "interceptors")]
    pub(crate) fn background(&self) -> &Background {
        &self.shared.background
    }

    /// What all users of its engine share.
    #[cfg(feature = "websocket")]
    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether it can be sent as it is.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.head().map(drop)
    }

    /// What it is made of, its client's own fields among that, if it can be sent as it is.
    pub(crate) fn into_parts(mut self) -> Result<Parts, Error> {
        Arc::clone(&self.defaults).add_fields(&mut self);
        self.head()?;
        let url = self.url?.to_string();
        let Self { method, fields, options, .. } = self;
        Ok(Parts { method, url, fields, body: self.body.unwrap_or_default(), options })
    }

    /// With a body that follows.
    fn with_pieces(mut self, length: Option<u64>) -> Result<Self, Error> {
        if self.body.is_some() {
            return Err(Error::Upload("it was given already"));
        }
        self.pieces = Some(Length(length));
        Ok(self)
    }

    pub(crate) fn open(
        self,
        handler: impl FnOnce(Arc<Call>) -> Option<Box<dyn Handler>>,
    ) -> Result<Arc<Call>, Error> {
        let mut head = self.head()?;
        let way = self.way()?;
        let body = self.body.clone().filter(|body| !body.is_empty());
        let length = match (self.pieces, &body) {
            (Some(Length(length)), _) => length,
            (None, body) => body.as_ref().map(|body| body.len() as u64),
        };
        if let Some(length) = length {
            head.set_bytes(b"content-length", length.to_string().as_bytes());
        }
        // What is in memory as a whole goes as a whole: pieces and room would not make it smaller.
        let end = self.pieces.is_none() || length == Some(0);
        let mut this = self;
        if let Some(way) = way {
            this.go_through(way, &mut head)?;
        }
        this.options.body_bytes = length.unwrap_or(0);
        this.options.body_hash =
            body.as_ref().filter(|_| this.shared.hashes_bodies).map(|body| hash(body));
        this.begin(head, body.unwrap_or_default(), end, handler)
    }

    fn begin(
        self,
        request: Head,
        body: Bytes,
        end: bool,
        handler: impl FnOnce(Arc<Call>) -> Option<Box<dyn Handler>>,
    ) -> Result<Arc<Call>, Error> {
        let url = self.url?;
        let shared = Arc::clone(&self.shared);
        let of_proxy = self.options.proxy.as_ref().map(|proxy| proxy.transport);
        if url.transport == Transport::Tls || of_proxy == Some(Transport::Tls) {
            shared.prepare_tls()?;
        }
        let origin = Origin { host: url.host.into(), port: url.port, transport: url.transport };
        let call = shared.add()?;
        if let Some(handler) = handler(Arc::clone(&call)) {
            call.listen(handler);
        }
        let open = Open { call: call.id, request, body, end, origin, options: self.options };
        match shared.begin(open, self.turn_limit) {
            Err(error) if shared.forget(call.id) => Err(error),
            Ok(()) | Err(_) => Ok(call),
        }
    }

    fn head(&self) -> Result<Head, Error> {
        let url = self.url.as_ref().map_err(Clone::clone)?;
        let mut head = Head::default();
        if !head.set_method(self.method.as_bytes()) || self.method == "CONNECT" {
            return Err(Error::NotAToken(self.method.clone()));
        }
        head.set_scheme(url.scheme.as_bytes());
        head.set_authority(url.authority.as_bytes());
        head.set_path(url.target.as_bytes());
        for (name, value) in &self.fields {
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "host" => head.set_authority(value.as_bytes()),
                // The body's length is known here.
                "content-length" => {}
                _ if head.append_bytes(name.as_bytes(), value.as_bytes()) => {}
                _ => return Err(Error::NotAToken(name)),
            }
        }
        // RFC 9218 §5; the default is left out.
        match self.options.priority {
            Priority::Normal => {}
            Priority::High | Priority::Low if self.has("priority") => {}
            Priority::High => drop(head.set_bytes(b"priority", b"u=1")),
            Priority::Low => drop(head.set_bytes(b"priority", b"u=5")),
        }
        Ok(head)
    }
}

/// Bytes of an answer that was followed which are read.
const MOST_UNREAD: usize = 64 * 1024;

fn hash(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}

/// Gives a request up that is not waited for any more.
struct Guard(Option<Arc<Call>>);

impl Guard {
    fn call(&self) -> &Arc<Call> {
        self.0.as_ref().expect("it is there until it is released, which takes the guard")
    }

    fn release(mut self) -> Arc<Call> {
        self.0.take().expect("it is released once")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call.cancel();
        }
    }
}

/// Whether there is a head, or an end without one.
pub(crate) fn begun(state: &mut State) -> Option<Result<Head, Error>> {
    if let Some(head) = state.head.take() {
        return Some(Ok(head));
    }
    state.ended.as_ref().map(|ended| Err(ended.error()))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").finish_non_exhaustive()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
