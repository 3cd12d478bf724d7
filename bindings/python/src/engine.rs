//! One engine: its thread carries all requests that are made on it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes, PyString};
use towpath::{NetworkKind, Request, Settings, Tls};
use towpath_exchange::{Bell, Sleep};

use crate::exchange::{Exchange, Process};
use crate::failure::{failure, own};
use crate::options::{Options, duration};
use crate::socket::{Socket, Sockets, Wishes};
use crate::wake::{Hub, Wake};

/// A running engine, of the process that made it.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Engine {
    running: Mutex<Option<towpath::Engine>>,
    process: Process,
}

/// What an engine can be told, as Python names it.
#[derive(FromPyObject)]
struct Wanted {
    roots: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    pins: Vec<Vec<u8>>,
    memory: Option<PathBuf>,
    watch_network: Option<bool>,
    window_bytes: Option<usize>,
    max_connections: Option<usize>,
    max_idle: Option<usize>,
    max_calls: Option<usize>,
    max_calls_per_origin: Option<usize>,
    max_calls_under_way: Option<usize>,
    idle_timeout: Option<f64>,
}

#[pymethods]
impl Engine {
    /// Starts one, as an object with the attributes of `EngineSettings` says.
    #[new]
    fn new(py: Python<'_>, wanted: Wanted) -> PyResult<Self> {
        let builder = wanted.builder()?;
        let engine = py.detach(|| builder.start()).map_err(|error| failure(&error))?;
        Ok(Self { running: Mutex::new(Some(engine)), process: Process::this() })
    }

    /// Whether it is of this process: one that was made before a fork has no thread in the child.
    fn is_alive(&self) -> bool {
        self.process.is_this() && self.running().is_some()
    }

    /// Sends a request. Its body is `body`, or follows if `follows`: of `length` bytes, if that is known. With a hub
    /// nothing of it blocks, and the hub tells of it by `token`.
    #[pyo3(signature = (method, url, fields, options, *, body=None, follows=false, length=None, hub=None, token=0))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is an argument in Python, which names them"
    )]
    fn start(
        &self,
        py: Python<'_>,
        method: &str,
        url: &str,
        fields: &Bound<'_, PyAny>,
        options: &Options,
        body: Option<&[u8]>,
        follows: bool,
        length: Option<u64>,
        hub: Option<&Hub>,
        token: u64,
    ) -> PyResult<Exchange> {
        let mut request = self.request(method, url, fields, options)?;
        let wake = Arc::new(match hub {
            Some(hub) => Wake::Loop { ready: Arc::clone(&hub.ready), token },
            None => Wake::Thread(Sleep::default()),
        });
        if follows {
            return py
                .detach(|| Exchange::uploading(request, length, wake))
                .map_err(|error| failure(&error));
        }
        if let Some(body) = body.filter(|body| !body.is_empty()) {
            request = request.body(body.to_vec());
        }
        py.detach(|| Exchange::asking(request, wake)).map_err(|error| failure(&error))
    }

    /// Opens a WebSocket. With a hub nothing of it blocks, and the hub tells of it by `token`.
    #[pyo3(signature = (url, fields, options, wishes, *, hub=None, token=0))]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is an argument in Python, which names them"
    )]
    fn socket(
        &self,
        py: Python<'_>,
        url: &str,
        fields: &Bound<'_, PyAny>,
        options: &Options,
        wishes: Wishes,
        hub: Option<&Hub>,
        token: u64,
    ) -> PyResult<Socket> {
        let connect = wishes.connect(self.request("GET", url, fields, options)?)?;
        let wake = threads_or_loop(hub, token);
        py.detach(|| Socket::opening(connect, wake)).map_err(|error| failure(&error))
    }

    /// One that is opened again whenever it breaks.
    #[pyo3(signature = (url, fields, options, wishes, *, hub=None, token=0))]
    fn sockets(
        &self,
        url: &str,
        fields: &Bound<'_, PyAny>,
        options: &Options,
        wishes: Wishes,
        hub: Option<&Hub>,
        token: u64,
    ) -> PyResult<Sockets> {
        let connect = wishes.connect(self.request("GET", url, fields, options)?)?;
        Ok(Sockets::new(connect, threads_or_loop(hub, token)))
    }

    /// What network there is, in place of what the kernel tells.
    fn network_changed(&self, label: &str, mobile: bool, online: bool) -> PyResult<()> {
        let kind = if mobile { NetworkKind::Mobile } else { NetworkKind::Fixed };
        self.with(|engine| engine.network_changed(label, kind, online))
    }

    /// Saves what is remembered of addresses, names and networks to a file.
    fn save_memory(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.with(|engine| engine.save_memory(&path)))
    }

    /// Why the file with what was remembered was not used; none if it was.
    fn memory_failure(&self) -> Option<String> {
        self.running().as_ref()?.memory_failure().map(str::to_owned)
    }

    /// How often its thread has woken up.
    fn wakeups(&self) -> u64 {
        self.running().as_ref().map_or(0, towpath::Engine::wakeups)
    }

    /// Takes no more requests. Those that are under way go on, and the last of them ends the thread.
    fn close(&self, py: Python<'_>) {
        if self.process.is_this() {
            let engine = self.running().take();
            py.detach(|| drop(engine));
        }
    }
}

impl Engine {
    fn request(
        &self,
        method: &str,
        url: &str,
        fields: &Bound<'_, PyAny>,
        options: &Options,
    ) -> PyResult<Request> {
        if !self.process.is_this() {
            return Err(own(
                "stopped",
                "the engine belongs to another process: it was made before a fork",
            ));
        }
        let client = self.running().as_ref().map(towpath::Engine::client);
        let client = client.ok_or_else(|| failure(&towpath::Error::Stopped))?;
        let mut request = options.apply(client.request(method, url), url);
        for field in fields.try_iter()? {
            let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = field?.extract()?;
            request = request.header(text(&name)?, text(&value)?);
        }
        Ok(request)
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&towpath::Engine) -> Result<T, towpath::Error>,
    ) -> PyResult<T> {
        // Not under the lock: some of it takes time.
        let engine = self.running().clone().filter(|_| self.process.is_this());
        let engine = engine.ok_or_else(|| failure(&towpath::Error::Stopped))?;
        act(&engine).map_err(|error| failure(&error))
    }

    fn running(&self) -> MutexGuard<'_, Option<towpath::Engine>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // Its thread is not in this process: nothing of it may be waited for.
            std::mem::forget(self.running().take());
        }
    }
}

impl Wanted {
    fn builder(self) -> PyResult<towpath::Builder> {
        let mut tls = Tls::new();
        if let Some(roots) = self.roots {
            tls = tls.roots(roots);
        }
        if let Some((chain, key)) = self.identity {
            tls = tls.identity(chain, key);
        }
        for pin in self.pins {
            let pin = pin.try_into();
            tls = tls.pin(pin.map_err(|_| PyValueError::new_err("a pin is a SHA-256: 32 bytes"))?);
        }
        let mut settings = Settings::default();
        settings.window_bytes = self.window_bytes.unwrap_or(settings.window_bytes);
        settings.max_connections = self.max_connections.unwrap_or(settings.max_connections);
        settings.max_idle = self.max_idle.unwrap_or(settings.max_idle);
        settings.max_calls = self.max_calls.unwrap_or(settings.max_calls);
        settings.idle_timeout = duration(self.idle_timeout)?.unwrap_or(settings.idle_timeout);
        let mut builder = towpath::Engine::builder().tls(tls).settings(settings);
        builder = builder.max_calls_per_origin(self.max_calls_per_origin.unwrap_or(0));
        builder = builder.max_calls_under_way(self.max_calls_under_way.unwrap_or(0));
        if let Some(path) = self.memory {
            builder = builder.memory(path);
        }
        Ok(match self.watch_network {
            None => builder,
            Some(true) => builder.watch_network(),
            Some(false) => builder.no_watch_network(),
        })
    }
}

fn threads_or_loop(hub: Option<&Hub>, token: u64) -> Arc<Wake> {
    Arc::new(match hub {
        Some(hub) => Wake::Loop { ready: Arc::clone(&hub.ready), token },
        None => Wake::Threads(Bell::default()),
    })
}

/// A name or a value of a field: text, or the bytes that it is made of.
fn text<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    match value.cast::<PyBytes>() {
        Ok(bytes) => std::str::from_utf8(bytes.as_bytes())
            .map_err(|_| own("token", "the name or value of a field is not UTF-8")),
        Err(_) => value.cast::<PyString>()?.to_str(),
    }
}
