//! WebSocket.
//!
//! As an exchange's, every call does what can be done. Where it has to wait, it blocks the thread, for a limited time
//! if that is wanted, or, for a socket of an event loop, says so and has the loop woken. Any number of threads or tasks
//! may wait for the same socket: all of them look whenever something has changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBytes, PyList, PyString};
use towpath::report::to_json;
use towpath::websocket::{Connect, Incident, Message};
use towpath::{Error, Request, WebSocket};

use crate::exchange::{Entries, Process, fields};
use crate::failure::{failure, own};
use crate::options::duration;
use crate::wake::Wake;

/// How a connection is to be opened, as Python names it.
#[derive(FromPyObject)]
pub(crate) struct Wishes {
    subprotocols: Vec<String>,
    compression: bool,
    max_message_bytes: Option<usize>,
    ping_interval: Option<f64>,
    pong_timeout: Option<f64>,
    close_timeout: Option<f64>,
}

/// A WebSocket. Dropping it closes it (1001).
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Socket {
    inner: towpath_exchange::Socket,
    wake: Arc<Wake>,
    process: Process,
    /// The app has closed it.
    closing: AtomicBool,
}

/// A message that is to be sent.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Outgoing {
    message: Message,
}

/// A ping whose answer is waited for.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Ping {
    inner: towpath_exchange::Ping,
    wake: Arc<Wake>,
}

/// A WebSocket that is opened again whenever it breaks.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Sockets {
    inner: towpath_exchange::Sockets,
    wake: Arc<Wake>,
    process: Process,
}

impl Wishes {
    pub(crate) fn connect(self, request: Request) -> PyResult<Connect> {
        let mut connect = request.websocket();
        for name in &self.subprotocols {
            connect = connect.subprotocol(name);
        }
        if !self.compression {
            connect = connect.no_compression();
        }
        if let Some(bytes) = self.max_message_bytes {
            connect = connect.max_message_bytes(bytes);
        }
        if let Some(interval) = duration(self.ping_interval)? {
            connect = connect.ping_interval(interval);
        }
        if let Some(limit) = duration(self.pong_timeout)? {
            connect = connect.pong_timeout(limit);
        }
        if let Some(limit) = duration(self.close_timeout)? {
            connect = connect.close_timeout(limit);
        }
        Ok(connect)
    }
}

#[pymethods]
impl Socket {
    /// Waits until it is open: false where it would block, or the time is over.
    #[pyo3(signature = (timeout=None))]
    fn open(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait(py, timeout, || self.inner.poll_open()).map(|opened| opened.is_some())
    }

    /// Sends a message: false where it would block, or the time is over, and nothing of it was sent.
    #[pyo3(signature = (outgoing, timeout=None))]
    fn send(&self, py: Python<'_>, outgoing: &Outgoing, timeout: Option<f64>) -> PyResult<bool> {
        let message = &outgoing.message;
        self.wait(py, timeout, || self.inner.poll_send(message)).map(|sent| sent.is_some())
    }

    /// The next message: None where it would block, or the time is over. Fails as `closed` behind the last.
    #[pyo3(signature = (timeout=None))]
    fn receive<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.wait(py, timeout, || self.inner.poll_receive())? {
            None => Ok(None),
            Some(None) => Err(self.closed_failure()),
            Some(Some(message)) => to_python(py, message).map(Some),
        }
    }

    /// Asks the server for a sign of life.
    fn ping(&self) -> PyResult<Ping> {
        let inner = self.inner.ping().map_err(|error| self.failure(&error))?;
        Ok(Ping { inner, wake: Arc::clone(&self.wake) })
    }

    /// Begins to close it.
    fn close(&self, code: u16, reason: &str) -> PyResult<()> {
        if self.process.is_this() {
            let closed = self.inner.close(code, reason);
            closed.map_err(|error| PyValueError::new_err(error.to_string()))?;
            self.closing.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits until the server has closed too, or the connection is gone: false where it would block, or the time is
    /// over. What comes before is dropped.
    #[pyo3(signature = (timeout=None))]
    fn closed(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let closed = self.wait(py, timeout, || {
            loop {
                match self.inner.poll_receive() {
                    Poll::Ready(Ok(Some(_))) => {}
                    Poll::Ready(Ok(None) | Err(_)) => return Poll::Ready(Ok(())),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })?;
        Ok(closed.is_some())
    }

    /// Whether this side has closed it.
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Gives it up: one that is open is closed (1001), and nothing more comes of it.
    fn abandon(&self) {
        if self.process.is_this() {
            self.closing.store(true, Ordering::Relaxed);
            self.inner.abandon();
        }
    }

    /// The subprotocol that the server has chosen.
    fn subprotocol(&self) -> Option<String> {
        self.inner.with(WebSocket::subprotocol)?
    }

    /// The fields of the server's answer.
    fn headers(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        let headers = self.inner.with(WebSocket::headers).unwrap_or_default();
        fields(py, headers.iter().map(|(name, value)| (name.as_slice(), value.as_slice())))
    }

    /// Whether messages are compressed.
    fn is_compressed(&self) -> bool {
        self.inner.with(WebSocket::is_compressed).unwrap_or(false)
    }

    /// Why the server has closed, once it has: code and reason.
    fn close_reason(&self) -> Option<(u16, String)> {
        self.inner.close_reason().map(|reason| (reason.code, reason.reason))
    }

    /// What happened to its request as JSON, once the connection is gone.
    fn report(&self) -> Option<String> {
        self.inner.with(WebSocket::report)?.map(|report| to_json(&report))
    }

    /// What happened to it in words, so far.
    fn history(&self) -> Entries {
        let entries = self.inner.with(WebSocket::history).unwrap_or_default();
        entries.into_iter().map(|entry| (entry.at.as_secs_f64(), entry.what)).collect()
    }
}

impl Socket {
    pub(crate) fn opening(connect: Connect, wake: Arc<Wake>) -> Result<Self, Error> {
        let waker = Waker::from(Arc::clone(&wake));
        Ok(Self::new(towpath_exchange::Socket::opening(connect, waker)?, wake))
    }

    fn new(inner: towpath_exchange::Socket, wake: Arc<Wake>) -> Self {
        Self { inner, wake, process: Process::this(), closing: AtomicBool::new(false) }
    }

    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        poll: impl FnMut() -> Poll<Result<T, Error>> + Send,
    ) -> PyResult<Option<T>> {
        if !self.process.is_this() {
            return Err(own("stopped", "the WebSocket belongs to another process"));
        }
        let found = wait(py, &self.wake, timeout, poll)?;
        found.transpose().map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &Error) -> PyErr {
        let is_closed = self.closing.load(Ordering::Relaxed) || self.inner.close_reason().is_some();
        if is_closed && matches!(error, Error::WebSocket(_)) {
            return self.closed_failure();
        }
        failure(error)
    }

    fn closed_failure(&self) -> PyErr {
        match self.inner.close_reason() {
            None => own("closed", "it is closed"),
            Some(reason) if reason.reason.is_empty() => {
                own("closed", format!("it is closed: {}", reason.code))
            }
            Some(reason) => {
                own("closed", format!("it is closed: {} {}", reason.code, reason.reason))
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.process.is_this() {
            self.inner.forget();
        }
    }
}

#[pymethods]
impl Outgoing {
    #[new]
    fn new(message: &Bound<'_, PyAny>) -> PyResult<Self> {
        let message = match message.cast::<PyBytes>() {
            Ok(bytes) => Message::from(bytes.as_bytes().to_vec()),
            Err(_) => Message::from(message.cast::<PyString>()?.to_str()?),
        };
        Ok(Self { message })
    }
}

#[pymethods]
impl Ping {
    /// How many seconds the answer took: None where it would block, or the time is over.
    #[pyo3(signature = (socket, timeout=None))]
    fn wait(&self, py: Python<'_>, socket: &Socket, timeout: Option<f64>) -> PyResult<Option<f64>> {
        let took = wait(py, &self.wake, timeout, || self.inner.poll())?;
        let took = took.transpose().map_err(|error| socket.failure(&error))?;
        Ok(took.map(|took| took.as_secs_f64()))
    }
}

#[pymethods]
impl Sockets {
    /// What happens next, and of what: "opened" with a socket, "message" with one, "lost", "over". None where it would
    /// block, or the time is over.
    #[pyo3(signature = (timeout=None))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<(&'static str, Bound<'py, PyAny>)>> {
        if !self.process.is_this() {
            return Err(own("stopped", "the WebSocket belongs to another process"));
        }
        let found = wait(py, &self.wake, timeout, || self.inner.poll_next())?;
        let nothing = py.None().into_bound(py);
        Ok(match found.transpose().map_err(|error| failure(&error))? {
            None => None,
            Some(None) => Some(("over", nothing)),
            Some(Some(Incident::Opened(socket))) => {
                let waker = Waker::from(Arc::clone(&self.wake));
                let inner = towpath_exchange::Socket::open(socket, waker);
                let socket = Socket::new(inner, Arc::clone(&self.wake));
                Some(("opened", socket.into_bound_py_any(py)?))
            }
            Some(Some(Incident::Message(message))) => Some(("message", to_python(py, message)?)),
            // What there is not yet breaks nothing: it is as if it was lost.
            Some(Some(Incident::Lost | _)) => Some(("lost", nothing)),
        })
    }

    /// Gives it up: what is open is closed (1001).
    fn abandon(&self) {
        if self.process.is_this() {
            self.inner.abandon();
        }
    }
}

impl Sockets {
    pub(crate) fn new(connect: Connect, wake: Arc<Wake>) -> Self {
        let waker = Waker::from(Arc::clone(&wake));
        let inner = towpath_exchange::Sockets::new(connect, waker);
        Self { inner, wake, process: Process::this() }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        if !self.process.is_this() {
            self.inner.forget();
        }
    }
}

fn to_python(py: Python<'_>, message: Message) -> PyResult<Bound<'_, PyAny>> {
    match message {
        Message::Text(text) => text.into_bound_py_any(py),
        Message::Binary(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
    }
}

/// What `poll` finds; none where it is not to be waited for, or not for longer.
fn wait<T: Send>(
    py: Python<'_>,
    wake: &Wake,
    timeout: Option<f64>,
    mut poll: impl FnMut() -> Poll<T> + Send,
) -> PyResult<Option<T>> {
    let until = duration(timeout)?.map(|limit: Duration| Instant::now() + limit);
    let mut look = || match poll() {
        Poll::Ready(found) => Some(found),
        Poll::Pending => None,
    };
    let Wake::Threads(bell) = wake else { return Ok(py.detach(look)) };
    loop {
        match py.detach(|| bell.until(until, &mut look)) {
            Ok(found) => return Ok(found),
            Err(towpath_exchange::Interrupted) => py.check_signals()?,
        }
    }
}
