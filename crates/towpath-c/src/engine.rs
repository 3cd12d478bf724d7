//! Engines and their options.

use std::cell::Cell;
use std::ffi::c_char;
use std::time::Duration;

use towpath::{Builder, Settings, Tls};

use crate::abi::{Code, NONE};
use crate::failure::{Failure, Result};

/// `towpath_engine`.
#[derive(Debug)]
pub struct Engine {
    pub(crate) engine: towpath::Engine,
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
    pub(crate) max_connections: u32,
    pub(crate) idle_timeout_ms: u32,
    pub(crate) max_rest_ms: u32,
    pub(crate) max_flow_bytes: u64,
    pub(crate) flow_window_ms: u32,
    pub(crate) max_identical: u32,
    pub(crate) identical_window_ms: u32,
}

impl Wishes<'_> {
    pub(crate) fn start(self) -> Result<Engine> {
        let mut builder: Builder = towpath::Engine::builder().settings(self.settings()?);
        if let Some(path) = self.memory_path {
            builder = builder.memory(path);
        }
        Ok(Engine { engine: builder.tls(self.tls()?).start()? })
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

thread_local! {
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Calls the app from the engine's thread.
pub(crate) fn call_app(call: impl FnOnce()) {
    CALLING.set(true);
    call();
    CALLING.set(false);
}

/// Refuses what would make the engine's thread wait for itself.
pub(crate) fn not_in_callback(what: &str) -> Result<()> {
    if CALLING.get() {
        return Err(Failure::new(Code::State, format!("{what} in on_event would never return")));
    }
    Ok(())
}

/// The library's version.
pub(crate) const fn version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

const SMALLEST_WINDOW: usize = 4096;
