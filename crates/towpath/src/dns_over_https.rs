//! Names by DNS over HTTPS (RFC 8484), asked by requests of the same engine.
//!
//! Arrives: a question for a name. Leaves: two requests, one for each family, by POST or GET, with all that other
//! requests have (kept connections, HTTP/2, attempts that race, repetitions); and the answer, once both families are
//! there or one has had its time, with how long it may be kept. What others than DNS know, and the server's own name,
//! is the system's: no question leads to another.

use std::fmt;
use std::mem;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use towpath_engine::local::message::{Error as Failed, Repeat, Transport};
use towpath_engine::local::report::{Answerer, HttpsFault, Report};
use towpath_io::resolver::backoff::Failures;
use towpath_io::resolver::message::{Kind, Reply, encode_name, is_of_dns, parse, question};
use towpath_io::resolver::order::sort;
use towpath_io::resolver::patience::{Known, LONGEST, patience};
use towpath_proto::Failure;

use crate::call::Shared;
use crate::form::base64;
use crate::request::Handler;
use crate::url::Url;
use crate::{Chunk, Client, Error, Question, Response, Sender};

/// A server of DNS over HTTPS, for [`Builder::dns_over_https`](crate::Builder::dns_over_https).
#[derive(Clone, PartialEq, Eq)]
#[must_use = "no server is asked until an engine has it"]
pub struct DnsOverHttps {
    url: String,
    host: String,
    addresses: Vec<IpAddr>,
    timeout: Duration,
    falls_back: bool,
    by_get: bool,
}

/// One that is asked, and what is known of names.
pub(crate) struct Server {
    options: DnsOverHttps,
    /// Names that it could not tell.
    failures: Failures<HttpsFault>,
}

/// One name that is asked for.
struct Asking {
    shared: Arc<Shared>,
    name: Vec<u8>,
    state: Mutex<State>,
}

struct State {
    /// There until it is answered.
    question: Option<Question>,
    six: Family,
    four: Family,
    /// One family is there, and the time of the other runs.
    hurries: bool,
}

/// What is known of one family.
enum Family {
    Open,
    /// And how long they may be kept.
    Addresses(Vec<IpAddr>, Option<Duration>),
    NoSuchName(Option<Duration>),
    Fault(HttpsFault),
}

/// Hears what the server says of one family.
struct Listener {
    asking: Arc<Asking>,
    kind: Kind,
    sender: Sender,
    message: Vec<u8>,
    /// How long the answer was in caches on its way.
    age: Duration,
    /// Bytes of a body that is of no use.
    unused: usize,
    /// What it says was passed on.
    told: bool,
}

impl DnsOverHttps {
    /// The server at this URL, as in `https://dns.example/dns-query`; a `{?dns}` or `{&dns}` behind it is left out.
    ///
    /// # Errors
    /// When it is no URL, or its scheme is not `https`.
    pub fn new(url: &str) -> Result<Self, Error> {
        let bare = url.strip_suffix("{?dns}").or_else(|| url.strip_suffix("{&dns}"));
        let url = bare.unwrap_or(url);
        let parsed = Url::parse(url)?;
        if parsed.transport != Transport::Tls {
            return Err(Error::Url("DNS over HTTPS needs https"));
        }
        Ok(Self {
            url: url.to_owned(),
            host: without_dot(&parsed.host).to_owned(),
            addresses: Vec::new(),
            timeout: LONGEST,
            falls_back: false,
            by_get: false,
        })
    }

    /// The addresses of the server's name, so that no server is asked for it; by default the system is.
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.addresses = addresses.into_iter().collect();
        self
    }

    /// How long it may take to answer, with all repetitions: 10 s by default.
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Asks by GET, where by default it is POST. The same question has the same URL then (RFC 8484 §4.1), so that
    /// caches between here and the server can answer it; servers may log it.
    pub const fn by_get(mut self) -> Self {
        self.by_get = true;
        self
    }

    /// Asks the system for a name when the server gives no answer, where by default that is a failure. An
    /// attacker who keeps the server from answering then decides who is asked.
    pub const fn or_system(mut self) -> Self {
        self.falls_back = true;
        self
    }
}

impl Server {
    pub(crate) fn new(options: DnsOverHttps) -> Self {
        Self { options, failures: Failures::default() }
    }

    /// Has a question answered; on the engine's thread.
    pub(crate) fn ask(&self, question: Question) {
        if without_dot(question.name()) == self.options.host {
            // Asked of itself, this would be a question without end.
            return match &self.options.addresses[..] {
                [] => question.leave_to_system(),
                addresses => question.answer(Ok(addresses.to_vec())),
            };
        }
        let name = encode_name(question.name()).filter(|_| is_of_dns(question.name()));
        let Some(name) = name else { return question.leave_to_system() };
        if let Some(fault) = self.failures.backs_off(question.name(), Instant::now()) {
            return question.tell(Err(Failure::TimedOut), None, Answerer::Https(Some(fault)));
        }
        let shared = Arc::clone(question.shared());
        let state = State {
            question: Some(question),
            six: Family::Open,
            four: Family::Open,
            hurries: false,
        };
        let asking = Arc::new(Asking { shared, name, state: Mutex::new(state) });
        for kind in [Kind::Aaaa, Kind::A] {
            if let Err(error) = self.send(&asking, kind) {
                asking.take(kind, Family::Fault(fault(&error)));
            }
        }
    }

    fn send(&self, asking: &Arc<Asking>, kind: Kind) -> Result<(), Error> {
        // RFC 8484 §4.1: the same question has the same bytes, so its number is 0.
        let message = question(0, &asking.name, kind, true);
        let limit = self.options.timeout;
        // It does not keep the engine running: the request that waits for the name does.
        let client = Client::new(Arc::clone(&asking.shared), None);
        let request = if self.options.by_get {
            client.get(&self.options.url).query([("dns", base64url(&message))])
        } else {
            client.post(&self.options.url, message).header("content-type", MEDIA_TYPE)
        };
        let request = request
            .header("accept", MEDIA_TYPE)
            .timeout(limit)
            .attempt_timeout(LONGEST_ATTEMPT.min(limit / 2))
            .repeat(Repeat::Always)
            .redirects(0)
            .fail_at_rest()
            .unlimited()
            .no_decode();
        let asking = Arc::clone(asking);
        request.start_with(|sender| Listener {
            asking,
            kind,
            sender,
            message: Vec::new(),
            age: Duration::ZERO,
            unused: 0,
            told: false,
        })?;
        Ok(())
    }

    /// What the server said goes to those who wait.
    fn tell(
        &self,
        question: Question,
        outcome: Result<Vec<IpAddr>, Option<HttpsFault>>,
        lifetime: Option<Duration>,
    ) {
        match outcome {
            Ok(found) => {
                self.failures.forget(question.name());
                question.tell(Ok(found), lifetime, Answerer::Https(None));
            }
            Err(None) => {
                self.failures.forget(question.name());
                question.tell(Err(Failure::NoSuchName), lifetime, Answerer::Https(None));
            }
            Err(Some(_)) if self.options.falls_back => question.leave_to_system(),
            Err(Some(fault)) => {
                // Where it is an answer, no other is waited for.
                if !fault.is_final() {
                    self.failures.add(question.name(), fault, Instant::now());
                }
                question.tell(Err(failure(fault)), None, Answerer::Https(Some(fault)));
            }
        }
    }
}

impl Asking {
    /// One family's answer is here.
    fn take(self: &Arc<Self>, kind: Kind, answer: Family) {
        let mut state = self.lock();
        *state.family(kind) = answer;
        if state.is_known() {
            drop(state);
            return self.finish();
        }
        let left = patience(state.six.known(), state.four.known());
        let Some(left) = left.filter(|_| !state.hurries) else { return };
        state.hurries = true;
        drop(state);
        let this = Arc::clone(self);
        self.shared.background.run_at(Instant::now() + left, move || this.finish());
    }

    /// Answers with what is known.
    fn finish(&self) {
        let mut state = self.lock();
        let Some(question) = state.question.take() else { return };
        let lifetime = [&state.six, &state.four].into_iter().filter_map(Family::lifetime).min();
        let outcome = state.outcome();
        drop(state);
        if let Some(server) = &self.shared.dns_over_https {
            server.tell(question, outcome, lifetime);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    const fn family(&mut self, kind: Kind) -> &mut Family {
        match kind {
            Kind::Aaaa => &mut self.six,
            Kind::A => &mut self.four,
        }
    }

    const fn is_known(&self) -> bool {
        !matches!((&self.six, &self.four), (Family::Open, _) | (_, Family::Open))
    }

    /// Addresses, the best first; without a fault there are none.
    fn outcome(&mut self) -> Result<Vec<IpAddr>, Option<HttpsFault>> {
        let (mut found, mut denied, mut fault) = (Vec::new(), false, None);
        for family in [&mut self.six, &mut self.four] {
            match family {
                Family::Open => {}
                Family::Addresses(some, _) => found.append(some),
                Family::NoSuchName(_) => denied = true,
                Family::Fault(why) => fault = Some(*why),
            }
        }
        if found.is_empty() {
            return Err(fault.filter(|_| !denied));
        }
        sort(&mut found);
        Ok(found)
    }
}

impl Family {
    const fn known(&self) -> Known {
        match self {
            Self::Addresses(found, _) => Known::of(!found.is_empty()),
            Self::NoSuchName(_) => Known::Denied,
            Self::Open | Self::Fault(_) => Known::Nothing,
        }
    }

    const fn lifetime(&self) -> Option<Duration> {
        match self {
            Self::Addresses(_, lifetime) | Self::NoSuchName(lifetime) => *lifetime,
            Self::Open | Self::Fault(_) => None,
        }
    }

    /// What a message says that is so old (RFC 8484 §5.1).
    fn read(message: &[u8], age: Duration, name: &[u8], kind: Kind) -> Self {
        let code = message.get(3).map_or(0, |flags| flags & 15);
        let left = |lifetime: Option<Duration>| lifetime.map(|it| it.saturating_sub(age));
        Self::Fault(match parse(message, 0, name, kind) {
            Some(Reply::Addresses(found, lifetime)) => {
                return Self::Addresses(found, left(lifetime));
            }
            Some(Reply::NoSuchName(lifetime)) => return Self::NoSuchName(left(lifetime)),
            Some(Reply::Truncated) => HttpsFault::Truncated,
            Some(Reply::Malformed | Reply::Failed) => HttpsFault::Code(code),
            None => HttpsFault::Malformed,
        })
    }
}

impl Listener {
    fn tell(&mut self, answer: Family) {
        if !mem::replace(&mut self.told, true) {
            self.asking.take(self.kind, answer);
        }
    }
}

impl Handler for Listener {
    fn on_head(&mut self, response: Response) {
        let age = response.header("age").and_then(|age| age.trim().parse().ok());
        self.age = Duration::from_secs(age.unwrap_or(0));
        let media_type = response.header("content-type").unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if response.status() != 200 {
            self.tell(Family::Fault(HttpsFault::Status(response.status())));
        } else if !media_type.eq_ignore_ascii_case(MEDIA_TYPE) {
            self.tell(Family::Fault(HttpsFault::ContentType));
        }
    }

    fn on_data(&mut self, chunk: Chunk) {
        if self.told {
            // A short body leaves the connection for others.
            self.unused += chunk.len();
        } else if self.message.len() + chunk.len() <= MOST_BYTES {
            return self.message.extend_from_slice(&chunk);
        } else {
            self.message = Vec::new();
            self.tell(Family::Fault(HttpsFault::TooLong));
            self.sender.cancel();
        }
        if self.unused > MOST_BYTES {
            self.sender.cancel();
        }
    }

    fn on_end(&mut self, outcome: Result<(), Error>, _report: Option<&Report>) {
        let answer = match outcome {
            Ok(()) => Family::read(&self.message, self.age, &self.asking.name, self.kind),
            Err(error) => Family::Fault(fault(&error)),
        };
        self.tell(answer);
    }
}

/// A name as others write it.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// RFC 4648 §5, without padding.
fn base64url(bytes: &[u8]) -> String {
    base64(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// What a request that failed says of the server.
const fn fault(error: &Error) -> HttpsFault {
    match error {
        Error::Failed(failed) => HttpsFault::Request(failed.why()),
        // Too much waits for the engine.
        Error::Engine(_) => HttpsFault::Request(Failed::Overflow),
        Error::Stopped => HttpsFault::Request(Failed::Cancelled),
        Error::Url(_)
        | Error::NotAToken(_)
        | Error::Upload(_)
        | Error::Proxy(_)
        | Error::Redirect(_)
        | Error::Decoding(_)
        | Error::Events(_)
        | Error::WebSocket(_)
        | Error::Status(_)
        | Error::Json(_)
        | Error::TooLarge(_)
        | Error::Tls(_)
        | Error::EngineThread
        | Error::Handler => HttpsFault::Unasked,
    }
}

/// The same for those who know no such server.
const fn failure(fault: HttpsFault) -> Failure {
    if let HttpsFault::Request(Failed::Connect(failure)) = fault {
        failure
    } else if let HttpsFault::Request(Failed::Resolve(_) | Failed::Offline) = fault {
        Failure::Unreachable
    } else if fault.is_final() {
        Failure::Denied
    } else {
        Failure::TimedOut
    }
}

/// RFC 8484 §6.
const MEDIA_TYPE: &str = "application/dns-message";
/// The longest message of DNS, whose length has 16 bits over TCP.
const MOST_BYTES: usize = 65_535;
/// A server that is as far away as any answers sooner; then the question was lost, or its connection.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(3);

impl fmt::Debug for DnsOverHttps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DnsOverHttps").field("url", &self.url).finish_non_exhaustive()
    }
}
