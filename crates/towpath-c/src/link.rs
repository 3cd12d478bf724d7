//! Links: from the client library's answers and pushes to the header's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use towpath::link::{Answer, Canceller, Error, HeartbeatSettings, Status};

use crate::abi::{self, Code, LinkState, OnAnswer, OnPush};
use crate::engine::{Engine, call_app, not_in_callback};
use crate::failure::{Failure, Result, c_text, failed_code};
use crate::foreign::{User, ms, or};

/// `towpath_link`.
#[derive(Debug)]
pub struct Link {
    link: towpath::Link,
    asks: Arc<Asks>,
    /// The thread that was lent to its engine.
    lent: Option<ThreadId>,
    /// Its engine is not freed before it.
    _open: Arc<()>,
}

/// What has not ended, and may be given up.
#[derive(Debug, Default)]
struct Asks {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    cancellers: HashMap<u64, Canceller>,
}

/// `towpath_push`.
#[derive(Debug)]
pub struct Push {
    push: towpath::link::Push,
    content: Box<[u8]>,
}

/// What the options of a link say, out of C's hands.
pub(crate) struct Wishes<'a> {
    pub(crate) url: &'a str,
    pub(crate) on_push: Option<(OnPush, User)>,
    pub(crate) beat_timeout_ms: u32,
    pub(crate) connect_timeout_ms: u32,
    pub(crate) first_pause_ms: u32,
    pub(crate) longest_pause_ms: u32,
    pub(crate) max_asks: u32,
    pub(crate) max_bytes: u32,
    pub(crate) max_frame: u32,
    pub(crate) shortest_silence_s: u32,
    pub(crate) first_silence_s: u32,
    pub(crate) longest_silence_s: u32,
}

/// What is asked or told, out of C's hands.
pub(crate) struct Ask<'a> {
    pub(crate) content: &'a [u8],
    pub(crate) class: &'a str,
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) on_answer: Option<(OnAnswer, User)>,
    pub(crate) timeout_ms: u32,
    pub(crate) waits: bool,
    pub(crate) codec: u8,
    pub(crate) oneway: bool,
}

impl Wishes<'_> {
    pub(crate) fn open(self, engine: &Engine) -> Result<Link> {
        let usual = HeartbeatSettings::default();
        let silence = |wish: u32, usual: Duration| match wish {
            0 => usual,
            s => Duration::from_secs(s.into()),
        };
        let mut builder = engine
            .engine
            .link(self.url)
            .beat_timeout(ms(self.beat_timeout_ms, 5_000))
            .connect_timeout(ms(self.connect_timeout_ms, 10_000))
            .pauses(ms(self.first_pause_ms, 1_000), ms(self.longest_pause_ms, 300_000))
            .room(or(self.max_asks, 1024) as usize, or(self.max_bytes, 4 << 20) as usize)
            .max_frame(or(self.max_frame, 4 << 20) as usize)
            .heartbeat(HeartbeatSettings {
                shortest: silence(self.shortest_silence_s, usual.shortest),
                first: silence(self.first_silence_s, usual.first),
                longest: silence(self.longest_silence_s, usual.longest),
                ..usual
            });
        if let Some((on_push, user)) = self.on_push {
            builder = builder.on_push(move |push| tell_push(on_push, &user, push));
        }
        let link = builder.open()?;
        let (lent, _open) = (engine.lent(), engine.link_token());
        Ok(Link { link, asks: Arc::default(), lent, _open })
    }
}

impl Link {
    /// Sends a request, and the number by which it can be given up.
    pub(crate) fn ask(&self, ask: Ask<'_>) -> Result<u64> {
        let mut request = self.link.request(ask.content.to_vec()).class(ask.class.to_owned());
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        if ask.timeout_ms != 0 {
            request = request.timeout(Duration::from_millis(ask.timeout_ms.into()));
        }
        if ask.waits {
            request = request.waits();
        }
        if ask.oneway {
            request = request.oneway();
        }
        // An end that comes meanwhile waits here until the number is known.
        let mut open = self.asks.open();
        open.next += 1;
        let number = open.next;
        let (asks, on_answer) = (Arc::clone(&self.asks), ask.on_answer);
        let canceller = request.codec(ask.codec).send_with(move |outcome| {
            asks.open().cancellers.remove(&number);
            if let Some((on_answer, user)) = on_answer {
                tell_answer(on_answer, &user, &outcome);
            }
        })?;
        open.cancellers.insert(number, canceller);
        Ok(number)
    }

    /// Whether it had not ended.
    pub(crate) fn cancel(&self, ask: u64) -> bool {
        let canceller = self.asks.open().cancellers.remove(&ask);
        canceller.is_some_and(|canceller| {
            canceller.cancel();
            true
        })
    }

    pub(crate) fn set_foreground(&self, in_foreground: bool) {
        self.link.set_foreground(in_foreground);
    }

    pub(crate) fn state(&self) -> LinkState {
        let state = self.link.state();
        LinkState {
            size: size_of::<LinkState>(),
            connections: state.connections,
            heartbeats: state.heartbeats,
            wakeups: self.link.wakeups(),
            interval_ms: u64::try_from(state.interval.as_millis()).unwrap_or(u64::MAX),
            connected: state.connected.into(),
            failure: state.failure.map_or(Code::Ok, failed_code) as i32,
        }
    }

    /// Whether it is connected, or not, within the time; none waits without end.
    pub(crate) fn wait(&self, connected: bool, limit: Option<Duration>) -> Result<bool> {
        not_in_callback("towpath_link_wait")?;
        if self.lent == Some(std::thread::current().id()) {
            let text = "towpath_link_wait would keep the engine from finding the server";
            return Err(Failure::new(Code::State, text));
        }
        let is_so = |state: towpath::link::State| state.connected == connected;
        if let Some(limit) = limit {
            return Ok(self.link.wait_until(limit, is_so));
        }
        while !self.link.wait_until(A_DAY, is_so) {}
        Ok(true)
    }
}

impl Asks {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Push {
    pub(crate) const fn content(&self) -> &[u8] {
        &self.content
    }

    pub(crate) fn class(&self) -> &[u8] {
        self.push.class()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.push.header(name)
    }

    pub(crate) fn is_oneway(&self) -> bool {
        self.push.is_oneway()
    }

    pub(crate) fn answer(self, status: u16, content: &[u8]) {
        match Status(status) {
            Status::SUCCESS => self.push.answer(content.to_vec()),
            other => self.push.refuse(other),
        }
    }
}

fn tell_push(on_push: OnPush, user: &User, push: towpath::link::Push) {
    let content = push.content().to_vec().into();
    let handle = Box::into_raw(Box::new(Push { push, content }));
    call_app(|| on_push(handle, user.0));
}

/// The end as the header has it.
fn tell_answer(on_answer: OnAnswer, user: &User, outcome: &std::result::Result<Answer, Error>) {
    let mut answer = abi::Answer {
        size: size_of::<abi::Answer>(),
        user: user.0,
        class_name: abi::Bytes { data: std::ptr::null(), length: 0 },
        content: std::ptr::null(),
        length: 0,
        text: c"".as_ptr(),
        own: std::ptr::null(),
        error: Code::Ok as i32,
        status: 0,
    };
    let text;
    match outcome {
        Ok(own) => {
            let (class, content) = (own.class(), own.content());
            answer.class_name = abi::Bytes { data: class.as_ptr().cast(), length: class.len() };
            (answer.content, answer.length) = (content.as_ptr(), content.len());
            (answer.own, answer.status) = (own, own.status().0.into());
        }
        Err(error) => {
            let failure = Failure::from(error.clone());
            text = c_text(&failure.text);
            (answer.text, answer.error) = (text.as_ptr(), failure.code as i32);
        }
    }
    call_app(|| on_answer(&raw const answer));
}

const A_DAY: Duration = Duration::from_secs(24 * 3600);
