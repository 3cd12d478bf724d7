//! Requests: from the client library's callbacks to events.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(feature = "auth")]
use towpath::auth::Credentials;
use towpath::report::to_json;
use towpath::request::Handler;
use towpath::{
    Chunk, Client, Error, HttpVersions, Priority, Repeat, Report, Response, Sender, Trailers,
    Version,
};

use crate::abi::{Code, Event, LENGTH_UNKNOWN, NONE, OnEvent, event};
use crate::engine::{Engine, call_app};
use crate::failure::{Failure, Result, c_text, chain, code};
use crate::foreign::User;
use crate::queue::Queue;

/// `towpath_request`.
pub struct Request {
    user: User,
    listener: Listener,
    /// Set before anything is sent.
    sender: OnceLock<Sender>,
    head: OnceLock<Response>,
    trailers: OnceLock<Trailers>,
    end: OnceLock<End>,
    /// The END event was told, or will not be.
    ended: AtomicBool,
    /// Made of the report when it is asked for.
    record: OnceLock<CString>,
}

/// The functions that are told.
pub(crate) enum Listener {
    Function(OnEvent),
    Queue(Arc<Queue>),
}

struct End {
    code: Code,
    text: CString,
    report: Option<Report>,
}

/// One thing that happened, before it is the header's.
pub(crate) enum Told {
    Head,
    Data(Chunk),
    Trailers,
    Room,
    End,
}

/// What the options say, out of C's hands.
pub(crate) struct Wishes<'a> {
    pub(crate) url: &'a str,
    pub(crate) method: Option<&'a str>,
    pub(crate) fields: Vec<(&'a str, &'a str)>,
    pub(crate) body: &'a [u8],
    pub(crate) body_follows: bool,
    pub(crate) content_length: u64,
    pub(crate) repeat: u32,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) timeout_ms: u32,
    pub(crate) first_byte_timeout_ms: u32,
    pub(crate) gap_timeout_ms: u32,
    pub(crate) retries: u32,
    pub(crate) wait_for_network: bool,
    pub(crate) fail_at_rest: bool,
    pub(crate) unlimited: bool,
    pub(crate) priority: u32,
    pub(crate) no_resume: bool,
    pub(crate) hedge: bool,
    pub(crate) attempt_timeout_ms: u32,
    pub(crate) answer_timeout_ms: u32,
    pub(crate) redirects: u32,
    pub(crate) decode: bool,
    pub(crate) auth_user: Option<&'a str>,
    pub(crate) auth_password: Option<&'a str>,
    pub(crate) http_versions: u32,
}

impl Wishes<'_> {
    /// Starts `request`, whose handle the app has already.
    pub(crate) fn start(self, engine: &Engine, request: &Arc<Request>) -> Result<()> {
        let (follows, length) = (self.body_follows, self.content_length);
        let wanted = self.request(&engine.client)?;
        let handler = |sender: Sender| {
            let _ = request.sender.set(sender);
            Relay(Arc::clone(request))
        };
        let length = (length != LENGTH_UNKNOWN).then_some(length);
        if follows {
            wanted.upload_with(length, handler)?;
        } else {
            wanted.start_with(handler)?;
        }
        Ok(())
    }

    /// One that sends credentials, to the origin of the URL alone.
    fn client(&self, client: &Client) -> Result<Client> {
        match (self.auth_user, self.auth_password) {
            (None, None) => Ok(client.clone()),
            #[cfg(not(feature = "auth"))]
            (Some(_), _) => Err(Failure::argument("this library was built without auth")),
            #[cfg(feature = "auth")]
            (Some(user), password) => {
                let credentials = Credentials::password(user, password.unwrap_or_default());
                let url = self.url.to_owned();
                Ok(client.authenticate(move |it| it.is_of(&url).then(|| credentials.clone())))
            }
            (None, Some(_)) => {
                Err(Failure::argument("auth_user is NULL, and auth_password is not"))
            }
        }
    }

    pub(crate) fn request(self, client: &Client) -> Result<towpath::Request> {
        let usual = if self.body.is_empty() && !self.body_follows { "GET" } else { "POST" };
        let client = self.client(client)?;
        let mut request = client.request(self.method.unwrap_or(usual), self.url);
        for (name, value) in self.fields {
            request = request.header(name, value);
        }
        if self.body_follows && !self.body.is_empty() {
            return Err(Failure::argument("the body is given, and is to follow"));
        }
        if !self.body.is_empty() {
            request = request.body(self.body.to_vec());
        }
        request = request.repeat(match self.repeat {
            0 => Repeat::ByMethod,
            1 => Repeat::Always,
            2 => Repeat::Never,
            other => return Err(Failure::argument(format!("repeat is {other}"))),
        });
        if let Some(key) = self.idempotency_key {
            request = request.idempotency_key(key);
        }
        request = match self.timeout_ms {
            0 => request,
            NONE => request.timeout(Duration::ZERO),
            ms => request.timeout(Duration::from_millis(ms.into())),
        };
        if self.first_byte_timeout_ms != 0 {
            request = request
                .first_byte_timeout(Duration::from_millis(self.first_byte_timeout_ms.into()));
        }
        if self.gap_timeout_ms != 0 {
            request = request.gap_timeout(Duration::from_millis(self.gap_timeout_ms.into()));
        }
        if self.attempt_timeout_ms != 0 {
            let limit = Duration::from_millis(self.attempt_timeout_ms.into());
            request = request.attempt_timeout(limit);
        }
        if self.answer_timeout_ms != 0 {
            let limit = Duration::from_millis(self.answer_timeout_ms.into());
            request = request.answer_timeout(limit);
        }
        request = request.redirects(self.redirects as usize);
        if !self.decode {
            request = request.no_decode();
        }
        request = match self.retries {
            0 => request,
            NONE => request.retries(0),
            retries => request.retries(retries),
        };
        if self.fail_at_rest {
            request = request.fail_at_rest();
        }
        request = request.priority(match self.priority {
            0 => Priority::Normal,
            1 => Priority::High,
            2 => Priority::Low,
            other => return Err(Failure::argument(format!("priority is {other}"))),
        });
        request = request.http_versions(match self.http_versions {
            0 => HttpVersions::Negotiated,
            1 => HttpVersions::Http1,
            2 => HttpVersions::Http2,
            other => return Err(Failure::argument(format!("http_versions is {other}"))),
        });
        if self.no_resume {
            request = request.no_resume();
        }
        if self.hedge {
            request = request.hedge();
        }
        if self.unlimited {
            request = request.unlimited();
        }
        Ok(if self.wait_for_network { request.wait_for_network() } else { request })
    }
}

impl Request {
    pub(crate) const fn new(user: *mut c_void, listener: Listener) -> Self {
        Self {
            user: User(user),
            listener,
            sender: OnceLock::new(),
            head: OnceLock::new(),
            trailers: OnceLock::new(),
            end: OnceLock::new(),
            ended: AtomicBool::new(false),
            record: OnceLock::new(),
        }
    }

    pub(crate) fn sender(&self) -> Result<&Sender> {
        self.sender.get().ok_or_else(|| Failure::new(Code::State, "the request was not started"))
    }

    pub(crate) fn status(&self) -> u32 {
        self.head.get().map_or(0, |head| head.status().into())
    }

    pub(crate) fn http_version(&self) -> &'static CStr {
        match self.head.get().map(Response::version) {
            None => c"",
            Some(Version::Http10) => c"HTTP/1.0",
            Some(Version::Http11) => c"HTTP/1.1",
            Some(Version::Http2) => c"HTTP/2",
            Some(Version::Http3 | _) => c"HTTP/3",
        }
    }

    pub(crate) fn field(&self, trailers: bool, index: usize) -> Result<(&[u8], &[u8])> {
        let found = if trailers {
            self.trailers.get().and_then(|trailers| trailers.iter().nth(index))
        } else {
            self.head.get().and_then(|head| head.headers().nth(index))
        };
        found.ok_or_else(|| Failure::new(Code::Absent, format!("there is no field {index}")))
    }

    pub(crate) fn header(&self, name: &str) -> Result<&[u8]> {
        let named = |field: &(&[u8], &[u8])| field.0.eq_ignore_ascii_case(name.as_bytes());
        let found = self.head.get().and_then(|head| head.headers().find(named));
        let absent = || Failure::new(Code::Absent, format!("there is no field '{name}'"));
        found.map(|(_, value)| value).ok_or_else(absent)
    }

    pub(crate) fn record(&self) -> Result<&CString> {
        let absent = || Failure::new(Code::Absent, "there is no record (yet)");
        // Not before the app was told of the end, whenever that came.
        let end = self.end.get().filter(|_| self.ended.load(Ordering::Acquire));
        let report = end.and_then(|end| end.report.as_ref()).ok_or_else(absent)?;
        Ok(self.record.get_or_init(|| c_text(&to_json(report))))
    }

    /// Whether it may be freed. One whose events are not taken is given up.
    pub(crate) fn close(&self) -> Result<()> {
        let unheard = match &self.listener {
            Listener::Queue(queue) => queue.is_closed(),
            Listener::Function(_) => false,
        };
        if self.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        if !unheard {
            return Err(Failure::new(Code::State, "the request's END was not told yet"));
        }
        if let Some(sender) = self.sender.get() {
            sender.cancel();
        }
        Ok(())
    }

    /// An event that is not taken.
    pub(crate) fn drop_event(&self, told: &Told) {
        match told {
            Told::End => self.ended.store(true, Ordering::Release),
            Told::Head | Told::Data(_) | Told::Trailers | Told::Room => {
                if let Some(sender) = self.sender.get() {
                    sender.cancel();
                }
            }
        }
    }

    /// The event as the header has it. A chunk is the app's from here on.
    pub(crate) fn event(self: &Arc<Self>, told: Told) -> Event {
        let mut event = Event {
            size: size_of::<Event>(),
            kind: told.kind(),
            error: Code::Ok as i32,
            request: Arc::as_ptr(self),
            user: self.user.0,
            chunk: std::ptr::null_mut(),
            data: std::ptr::null(),
            length: 0,
            text: c"".as_ptr(),
        };
        match told {
            Told::Head | Told::Trailers | Told::Room => {}
            Told::Data(chunk) => {
                (event.data, event.length) = (chunk.as_ptr(), chunk.len());
                event.chunk = Box::into_raw(Box::new(chunk));
            }
            Told::End => {
                if let Some(end) = self.end.get() {
                    (event.error, event.text) = (end.code as i32, end.text.as_ptr());
                }
                // From here on the app may free it, from inside the event as well.
                self.ended.store(true, Ordering::Release);
            }
        }
        event
    }
}

impl Told {
    const fn kind(&self) -> u32 {
        match self {
            Self::Head => event::HEAD,
            Self::Data(_) => event::DATA,
            Self::Trailers => event::TRAILERS,
            Self::Room => event::ROOM,
            Self::End => event::END,
        }
    }
}

/// The client library's callbacks, passed on. It keeps the request alive until its end has been told.
struct Relay(Arc<Request>);

impl Relay {
    fn tell(&self, told: Told) {
        match &self.0.listener {
            Listener::Function(on_event) => {
                let event = self.0.event(told);
                call_app(|| on_event(&raw const event));
            }
            Listener::Queue(queue) => {
                let ends = matches!(told, Told::End);
                if !queue.push(Arc::clone(&self.0), told) {
                    let lost = if ends { Told::End } else { Told::Room };
                    self.0.drop_event(&lost);
                }
            }
        }
    }
}

impl Handler for Relay {
    fn on_head(&mut self, response: Response) {
        let _ = self.0.head.set(response);
        self.tell(Told::Head);
    }

    fn on_data(&mut self, chunk: Chunk) {
        self.tell(Told::Data(chunk));
    }

    fn on_trailers(&mut self, trailers: Trailers) {
        let _ = self.0.trailers.set(trailers);
        self.tell(Told::Trailers);
    }

    fn on_room(&mut self) {
        self.tell(Told::Room);
    }

    fn on_end(&mut self, outcome: std::result::Result<(), Error>, report: Option<&Report>) {
        let (code, text) = match &outcome {
            Ok(()) => (Code::Ok, CString::default()),
            Err(error) => (code(error), c_text(&chain(error))),
        };
        let _ = self.0.end.set(End { code, text, report: report.cloned() });
        self.tell(Told::End);
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("status", &self.status()).finish_non_exhaustive()
    }
}
