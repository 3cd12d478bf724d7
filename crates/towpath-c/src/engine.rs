//! Engines and their options.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use towpath::{Builder, DnsOverHttps, Proxies, Proxy, Settings, Tls};

use crate::abi::{Code, NONE, OnQuestion};
use crate::auth;
use crate::failure::{Failure, Result, c_text};
use crate::foreign::User;
use crate::kept::{self, Kept};

/// `towpath_engine`.
#[derive(Debug)]
pub struct Engine {
    pub(crate) engine: towpath::Engine,
    /// What makes its requests.
    pub(crate) client: towpath::Client,
    kept: Kept,
    /// The thread that was lent to it.
    lent: Option<ThreadId>,
    /// Each link that is open has one.
    links: Arc<()>,
}

/// `towpath_runner`.
#[derive(Debug)]
pub struct Runner {
    runner: RefCell<towpath::Runner>,
    owner: ThreadId,
}

/// `towpath_question`.
#[derive(Debug)]
pub struct Question {
    question: towpath::Question,
    name: CString,
}

/// Whom to ask for names.
pub(crate) struct Asked {
    pub(crate) on_question: OnQuestion,
    pub(crate) user: User,
}

/// What the options say, out of C's hands.
#[derive(Default)]
pub(crate) struct Wishes<'a> {
    pub(crate) memory_path: Option<&'a str>,
    pub(crate) roots_pem: Option<&'a str>,
    pub(crate) pins: &'a [[u8; 32]],
    pub(crate) chain_pem: Option<&'a str>,
    pub(crate) key_pem: Option<&'a str>,
    pub(crate) window_bytes: usize,
    pub(crate) replay_bytes: usize,
    pub(crate) max_requests: u32,
    pub(crate) max_requests_per_origin: u32,
    pub(crate) max_requests_under_way: u32,
    pub(crate) max_connections: u32,
    pub(crate) idle_timeout_ms: u32,
    pub(crate) no_coalescing: bool,
    pub(crate) max_rest_ms: u32,
    pub(crate) max_flow_bytes: u64,
    pub(crate) flow_window_ms: u32,
    pub(crate) max_identical: u32,
    pub(crate) identical_window_ms: u32,
    pub(crate) asked: Option<Asked>,
    /// Whom to ask for credentials.
    pub(crate) challenged: Option<auth::Asked>,
    pub(crate) watch_network: bool,
    pub(crate) dns_servers: Option<&'a str>,
    pub(crate) system_resolver: bool,
    pub(crate) doh: DohWishes<'a>,
    pub(crate) kept: kept::Wishes<'a>,
    pub(crate) proxies: ProxyWishes<'a>,
}

/// Which server of DNS over HTTPS to ask for names.
#[derive(Clone, Copy, Default)]
pub(crate) struct DohWishes<'a> {
    pub(crate) url: Option<&'a str>,
    pub(crate) addresses: Option<&'a str>,
    pub(crate) timeout_ms: u32,
    pub(crate) or_system: bool,
    pub(crate) by_get: bool,
}

impl DohWishes<'_> {
    fn server(self) -> Result<Option<DnsOverHttps>> {
        let Some(url) = self.url else {
            let is_set = self.or_system || self.by_get || self.timeout_ms != 0;
            let is_none = self.addresses.is_none() && !is_set;
            let refused = || Failure::argument("doh_url is NULL, and others of doh_… are not");
            return if is_none { Ok(None) } else { Err(refused()) };
        };
        let mut server = DnsOverHttps::new(url)?;
        if let Some(addresses) = self.addresses {
            let address = |text: &str| {
                let address = text.trim_matches(['[', ']']).parse::<IpAddr>();
                address.map_err(|_| {
                    Failure::argument(format!("doh_addresses: {text:?} is not an address"))
                })
            };
            server =
                server.addresses(addresses.split(',').map(address).collect::<Result<Vec<_>>>()?);
        }
        if self.timeout_ms != 0 {
            server = server.timeout(Duration::from_millis(self.timeout_ms.into()));
        }
        let server = if self.by_get { server.by_get() } else { server };
        Ok(Some(if self.or_system { server.or_system() } else { server }))
    }
}

/// Through whom to ask.
#[derive(Clone, Copy, Default)]
pub(crate) struct ProxyWishes<'a> {
    pub(crate) proxy: Option<&'a str>,
    pub(crate) except: Option<&'a str>,
    /// 0: not, 2: the platform's.
    pub(crate) from_environment: u32,
}

impl ProxyWishes<'_> {
    fn proxies(self) -> Result<Proxies> {
        let proxies = match self.proxy {
            // As curl has it: an empty one is none, whatever the environment says.
            Some(url) if url.trim().is_empty() => Proxies::default(),
            Some(url) => Proxies::all(Proxy::new(url)?),
            None => match self.from_environment {
                0 => Proxies::default(),
                2 => Proxies::from_platform()?,
                _ => Proxies::from_environment()?,
            },
        };
        Ok(proxies.except(self.except.unwrap_or_default()))
    }
}

impl Wishes<'_> {
    pub(crate) fn start(mut self) -> Result<Engine> {
        let (kept, proxies) = (self.kept, self.proxies.proxies()?);
        let challenged = self.challenged.take();
        Engine::new(self.builder()?.start()?, None, kept, proxies)?.asking(challenged)
    }

    /// The engine of this thread.
    pub(crate) fn lend(mut self) -> Result<(Engine, Runner)> {
        let (kept, proxies) = (self.kept, self.proxies.proxies()?);
        let challenged = self.challenged.take();
        let (engine, runner) = self.builder()?.lend()?;
        let owner = std::thread::current().id();
        let runner = Runner { runner: RefCell::new(runner), owner };
        let engine = Engine::new(engine, Some(owner), kept, proxies)?.asking(challenged)?;
        Ok((engine, runner))
    }

    fn builder(self) -> Result<Builder> {
        let mut builder: Builder =
            towpath::Engine::builder().settings(self.settings()?).tls(self.tls()?);
        builder = builder.max_calls_per_origin(self.max_requests_per_origin as usize);
        builder = builder.max_calls_under_way(self.max_requests_under_way as usize);
        if let Some(path) = self.memory_path {
            builder = builder.memory(path);
        }
        if let Some(servers) = self.dns_servers {
            let servers: Result<Vec<SocketAddr>> = servers.split(',').map(dns_server).collect();
            builder = builder.dns_servers(servers?);
        }
        if self.system_resolver {
            builder = builder.system_resolver();
        }
        if let Some(server) = self.doh.server()? {
            if self.asked.is_some() {
                return Err(Failure::argument("doh_url is of no use with on_question"));
            }
            builder = builder.dns_over_https(server);
        }
        if let Some(asked) = self.asked {
            builder = builder.questions(move |question| asked.ask(question));
        }
        if self.watch_network {
            builder = builder.watch_network();
        }
        Ok(builder)
    }

    fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::default();
        let or = |wish: u32, usual: usize| if wish == 0 { usual } else { wish as usize };
        match self.window_bytes {
            0 => {}
            1..SMALLEST_WINDOW => {
                return Err(Failure::argument(format!("window_bytes is below {SMALLEST_WINDOW}")));
            }
            bytes => settings.window_bytes = bytes,
        }
        if self.replay_bytes != 0 {
            settings.replay_bytes = self.replay_bytes;
        }
        settings.max_calls = or(self.max_requests, settings.max_calls);
        settings.max_connections = or(self.max_connections, settings.max_connections);
        if self.idle_timeout_ms != 0 {
            settings.idle_timeout = Duration::from_millis(self.idle_timeout_ms.into());
        }
        settings.coalesces = !self.no_coalescing;
        settings.max_flow_bytes = self.max_flow_bytes;
        if self.flow_window_ms != 0 {
            settings.flow_window = Duration::from_millis(self.flow_window_ms.into());
        }
        settings.max_identical = self.max_identical;
        if self.identical_window_ms != 0 {
            settings.identical_window = Duration::from_millis(self.identical_window_ms.into());
        }
        match self.max_rest_ms {
            0 => {}
            NONE => settings.max_rest = Duration::ZERO,
            ms => settings.max_rest = Duration::from_millis(ms.into()),
        }
        Ok(settings)
    }

    fn tls(&self) -> Result<Tls> {
        let mut tls = Tls::new();
        if let Some(roots) = self.roots_pem {
            tls = tls.roots(roots);
        }
        for pin in self.pins {
            tls = tls.pin(*pin);
        }
        match (self.chain_pem, self.key_pem) {
            (Some(chain), Some(key)) => Ok(tls.identity(chain, key)),
            (None, None) => Ok(tls),
            (Some(_), None) | (None, Some(_)) => {
                Err(Failure::argument("an identity is a chain and a key, and one of them is NULL"))
            }
        }
    }
}

impl Engine {
    fn new(
        engine: towpath::Engine,
        lent: Option<ThreadId>,
        wishes: kept::Wishes<'_>,
        proxies: Proxies,
    ) -> Result<Self> {
        let (client, kept) = wishes.open(engine.client().proxies(proxies))?;
        Ok(Self { engine, client, kept, lent, links: Arc::default() })
    }

    /// Whose requests ask the app for credentials.
    fn asking(self, challenged: Option<auth::Asked>) -> Result<Self> {
        Ok(Self { client: auth::asking(self.client, challenged)?, ..self })
    }

    /// Brings what it keeps over requests to its files.
    pub(crate) fn keep(&self) -> Result<()> {
        not_in_callback("towpath_engine_keep")?;
        self.kept.save()
    }

    /// For a link to hold as long as it is open.
    pub(crate) fn link_token(&self) -> Arc<()> {
        Arc::clone(&self.links)
    }

    /// Refuses what a link that is open does not let happen.
    pub(crate) fn has_no_links(&self) -> Result<()> {
        match Arc::strong_count(&self.links) {
            1 => Ok(()),
            _ => {
                Err(Failure::new(Code::State, "a link, a socket or a stream of the engine is open"))
            }
        }
    }

    /// The thread that was lent to it, if one was.
    pub(crate) const fn lent(&self) -> Option<ThreadId> {
        self.lent
    }

    /// Refuses what would make the engine's thread wait for itself.
    pub(crate) fn not_on_its_thread(&self, what: &str) -> Result<()> {
        not_in_callback(what)?;
        if self.lent == Some(std::thread::current().id()) {
            return Err(Failure::new(Code::State, format!("{what} would wait for this thread")));
        }
        Ok(())
    }
}

impl Runner {
    /// Without end, or for no longer than that many milliseconds; a negative number is without end as well.
    pub(crate) fn work(&self, turn_ms: Option<i32>) -> Result<()> {
        self.check("a runner's turn")?;
        let busy = |_| Failure::new(Code::State, "the runner is at work already");
        let mut runner = self.runner.try_borrow_mut().map_err(busy)?;
        match turn_ms {
            None => Ok(runner.run()?),
            Some(ms) => {
                let limit = u64::try_from(ms).map_or(LONGEST_TURN, Duration::from_millis);
                Ok(runner.turn(limit)?)
            }
        }
    }

    /// Whether it may be used here.
    pub(crate) fn check(&self, what: &str) -> Result<()> {
        not_in_callback(what)?;
        if std::thread::current().id() != self.owner {
            return Err(Failure::new(Code::State, "the runner is another thread's"));
        }
        Ok(())
    }
}

impl Question {
    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// `None` when it cannot be told now.
    pub(crate) fn answer(self, addresses: Option<Vec<IpAddr>>) {
        self.question.answer(addresses.ok_or(towpath::Failure::TimedOut));
    }
}

impl Asked {
    fn ask(&self, question: towpath::Question) {
        let name = c_text(question.name());
        let handle = Box::into_raw(Box::new(Question { question, name }));
        call_app(|| (self.on_question)(handle, self.user.0));
    }
}

thread_local! {
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Calls the app from the engine's thread, an outbox's or a link's.
pub(crate) fn call_app(call: impl FnOnce()) {
    // A link's request that is given up in a callback is told of in there.
    let before = CALLING.replace(true);
    call();
    CALLING.set(before);
}

/// Refuses what would make the engine's thread wait for itself.
pub(crate) fn not_in_callback(what: &str) -> Result<()> {
    if CALLING.get() {
        return Err(Failure::new(Code::State, format!("{what} in a callback would never return")));
    }
    Ok(())
}

/// A server's address, with or without its port.
fn dns_server(text: &str) -> Result<SocketAddr> {
    let bare = text.trim_matches(['[', ']']).parse().map(|ip: IpAddr| SocketAddr::new(ip, 53));
    bare.or_else(|_| text.parse())
        .map_err(|_| Failure::argument(format!("dns_servers: {text:?} is not an address")))
}

/// The library's version.
pub(crate) const fn version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// What a turn waits that waits as long as it takes: it may be woken for nothing once a month.
const LONGEST_TURN: Duration = Duration::from_secs(30 * 24 * 3600);
const SMALLEST_WINDOW: usize = 4096;
