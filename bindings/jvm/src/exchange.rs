//! One request and its response, whose calls block the thread that makes them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::{Buf, Bytes};
use towpath::report::to_json;
use towpath::{Error, Request};
use towpath_exchange::Sleep;

/// One request and its response.
pub(crate) struct Exchange {
    inner: towpath_exchange::Exchange,
    sleep: Arc<Sleep>,
    /// What has come of the response's body and was not read.
    unread: Mutex<Bytes>,
}

impl Exchange {
    /// Sends a request whose body goes with it.
    pub(crate) fn asking(request: Request) -> Result<Self, Error> {
        let sleep = Arc::new(Sleep::default());
        let waker = Waker::from(Arc::clone(&sleep));
        let inner = towpath_exchange::Exchange::asking(request, waker)?;
        Ok(Self { inner, sleep, unread: Mutex::default() })
    }

    /// Sends a request whose body follows.
    pub(crate) fn uploading(request: Request, length: Option<u64>) -> Result<Self, Error> {
        let sleep = Arc::new(Sleep::default());
        let waker = Waker::from(Arc::clone(&sleep));
        let inner = towpath_exchange::Exchange::uploading(request, length, waker)?;
        Ok(Self { inner, sleep, unread: Mutex::default() })
    }

    /// Sends a piece of the body: false when no more is wanted.
    pub(crate) fn write(&self, piece: &[u8]) -> bool {
        let mut unsent = piece;
        while !unsent.is_empty() {
            match self.inner.write(unsent) {
                None => return false,
                Some(0) => drop(self.sleep.sleep()),
                Some(sent) => unsent = &unsent[sent..],
            }
        }
        true
    }

    pub(crate) fn finish(&self) -> Result<(), Error> {
        self.inner.finish()
    }

    /// The response's status, and its fields as lines: name, colon, value.
    pub(crate) fn head(&self) -> Result<Vec<u8>, Error> {
        let response = self.wait(towpath_exchange::Exchange::poll_head)?;
        let mut head = response.status().to_string().into_bytes();
        for (name, value) in response.headers() {
            head.push(b'\n');
            head.extend_from_slice(name);
            head.push(b':');
            head.extend_from_slice(value);
        }
        self.inner.begin_body(response.into_body());
        Ok(head)
    }

    /// Bytes of the response's body, at most so many; none after the last.
    pub(crate) fn read(&self, most: usize) -> Result<Option<Bytes>, Error> {
        if self.unread().is_empty() {
            let Some(chunk) = self.wait(towpath_exchange::Exchange::poll_chunk)? else {
                return Ok(None);
            };
            *self.unread() = chunk;
        }
        let mut unread = self.unread();
        let bytes = unread.len().min(most);
        Ok(Some(unread.copy_to_bytes(bytes)))
    }

    /// The fields after the body, as [`Exchange::head`] has them, after an empty line.
    pub(crate) fn trailers(&self) -> Vec<u8> {
        let lines = self.inner.trailers();
        let line = |(name, value): (Vec<u8>, Vec<u8>)| [b"\n", &*name, b":", &*value].concat();
        lines.into_iter().flat_map(line).collect()
    }

    pub(crate) fn report(&self) -> Option<String> {
        self.inner.with_report(to_json)
    }

    pub(crate) fn cancel(&self) {
        self.inner.cancel();
    }

    fn wait<T>(
        &self,
        poll: fn(&towpath_exchange::Exchange) -> Poll<Result<T, Error>>,
    ) -> Result<T, Error> {
        loop {
            if let Poll::Ready(found) = poll(&self.inner) {
                return found;
            }
            self.sleep.sleep();
        }
    }

    fn unread(&self) -> MutexGuard<'_, Bytes> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
