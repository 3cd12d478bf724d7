//! One request and its response.
//!
//! Every call does what can be done. Where it has to wait, it blocks the thread, with Python's lock given back, or,
//! for an exchange of an event loop, says so and has the loop woken.

use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use towpath::report::to_json;
use towpath::{Error, Request, Response, Version, timeline};
use towpath_exchange::Woken;

use crate::failure::failure;
use crate::wake::Wake;

/// One request and its response. Dropping it gives it up, unless it has ended.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Exchange {
    inner: towpath_exchange::Exchange,
    wake: Arc<Wake>,
    process: Process,
    version: OnceLock<Version>,
}

/// A response's status, its fields, and what led to it: status and place.
type Head = (u16, Py<PyList>, Vec<(u16, String)>);

/// What happened: seconds since the request began, and what.
pub(crate) type Entries = Vec<(f64, String)>;

#[pymethods]
impl Exchange {
    /// Sends what there is room for of `piece` from `offset` on, and answers how much that was: never blocks. -1 when
    /// no more of the body is wanted.
    fn write(&self, piece: &[u8], offset: usize) -> isize {
        let sent = self.inner.write(piece.get(offset..).unwrap_or_default());
        sent.map_or(-1, |sent| isize::try_from(sent).unwrap_or(isize::MAX))
    }

    /// Ends the body.
    fn finish(&self) -> PyResult<()> {
        self.inner.finish().map_err(|error| failure(&error))
    }

    /// The response's head. None where it would block: always for an event loop's, and where the body may go on
    /// (`room`).
    #[pyo3(signature = (room=false))]
    fn head(&self, py: Python<'_>, room: bool) -> PyResult<Option<Head>> {
        let response: Option<Response> =
            self.wait(py, room, towpath_exchange::Exchange::poll_head)?;
        let Some(response) = response else { return Ok(None) };
        let fields = fields(py, response.headers())?;
        let status = response.status();
        let _ = self.version.set(response.version());
        let redirects = response.redirects();
        let redirects =
            redirects.iter().map(|from| (from.status(), from.url().to_owned())).collect();
        self.inner.begin_body(response.into_body());
        Ok(Some((status, fields, redirects)))
    }

    /// What the server spoke, once the head was taken; empty before.
    fn version(&self) -> &'static str {
        match self.version.get() {
            None => "",
            Some(Version::Http10) => "HTTP/1.0",
            Some(Version::Http11) => "HTTP/1.1",
            Some(Version::Http2) => "HTTP/2",
            Some(Version::Http3 | _) => "HTTP/3",
        }
    }

    /// The next piece of the response's body: None after the last, empty where it would block, as `head`.
    #[pyo3(signature = (room=false))]
    fn chunk<'py>(&self, py: Python<'py>, room: bool) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let chunk: Option<Option<Bytes>> =
            self.wait(py, room, towpath_exchange::Exchange::poll_chunk)?;
        Ok(match chunk {
            None => Some(PyBytes::new(py, b"")),
            Some(chunk) => chunk.map(|chunk| PyBytes::new(py, &chunk)),
        })
    }

    /// The fields after the body, once it has ended.
    fn trailers(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        let trailers = self.inner.trailers();
        fields(py, trailers.iter().map(|(name, value)| (name.as_slice(), value.as_slice())))
    }

    /// What happened to the request as JSON, once it is over.
    fn report(&self) -> Option<String> {
        self.inner.with_report(to_json)
    }

    /// What happened to the request in words, once it is over.
    fn timeline(&self) -> Entries {
        let entries = self.inner.with_report(timeline::entries).unwrap_or_default();
        entries.into_iter().map(|entry| (entry.at.as_secs_f64(), entry.what)).collect()
    }

    /// Gives it up, unless it has ended; who waits for it hears of that.
    fn cancel(&self) {
        if self.process.is_this() {
            self.inner.cancel();
        }
    }
}

impl Exchange {
    /// Sends a request whose body goes with it.
    pub(crate) fn asking(request: Request, wake: Arc<Wake>) -> Result<Self, Error> {
        let inner = towpath_exchange::Exchange::asking(request, Waker::from(Arc::clone(&wake)))?;
        Ok(Self { inner, wake, process: Process::this(), version: OnceLock::new() })
    }

    /// Sends a request whose body follows.
    pub(crate) fn uploading(
        request: Request,
        length: Option<u64>,
        wake: Arc<Wake>,
    ) -> Result<Self, Error> {
        let waker = Waker::from(Arc::clone(&wake));
        let inner = towpath_exchange::Exchange::uploading(request, length, waker)?;
        Ok(Self { inner, wake, process: Process::this(), version: OnceLock::new() })
    }

    /// What `poll` finds; none where it is not to be waited for.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        room: bool,
        poll: fn(&towpath_exchange::Exchange) -> Poll<Result<T, Error>>,
    ) -> PyResult<Option<T>> {
        loop {
            let found = py.detach(|| {
                loop {
                    if let Poll::Ready(found) = poll(&self.inner) {
                        return Some(found.map(Some));
                    }
                    let Wake::Thread(sleep) = &*self.wake else { return Some(Ok(None)) };
                    if sleep.sleep() == Woken::BySignal {
                        return None;
                    }
                    if room {
                        return Some(Ok(None));
                    }
                }
            });
            match found {
                Some(found) => return found.map_err(|error| failure(&error)),
                None => py.check_signals()?,
            }
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.process.is_this() {
            self.inner.forget();
        }
    }
}

pub(crate) fn fields<'a>(
    py: Python<'_>,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> PyResult<Py<PyList>> {
    let list = PyList::empty(py);
    for (name, value) in fields {
        list.append((PyBytes::new(py, name), PyBytes::new(py, value)))?;
    }
    Ok(list.unbind())
}

/// A process, by which one is told from those that were forked from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_this(self) -> bool {
        self == Self::this()
    }
}
