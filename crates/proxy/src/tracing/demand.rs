//! `POST /trace`: a few seconds of everything, as a Perfetto file that never lies on a disk.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use towpath_trace::{Options, Stamp, StartError};

use super::Tracing;
use crate::log;

/// A recording that is written while it runs: a worker that is never idle fills its ring in a tenth of a second, and
/// the writer comes ten times as often.
pub(super) fn options() -> Options {
    Options::new().ring_bytes(4 << 20).drain_every(Duration::from_millis(10))
}

/// Why there is no trace.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Another recording is on.
    Busy(&'static str),
    /// Nothing is held of what was asked for.
    Unknown,
    /// It could not begin, or its end got lost.
    Failed(String),
}

impl Tracing {
    /// Records for this long, or until the file is as large as it may be.
    ///
    /// # Errors
    /// When another recording is on.
    pub(crate) async fn record(&self, time: Duration) -> Result<Vec<u8>, Refused> {
        if self.whole.borrow().is_some() {
            return Err(Refused::Busy("everything is recorded already: --trace"));
        }
        if self.demanded.replace(true) {
            return Err(Refused::Busy("a trace is being recorded for another request"));
        }
        // The client that asked may hang up, and then this future is dropped where it waits.
        let _demanded = Demanded(self);
        let flight = self.slow.borrow().as_ref().map(super::SlowRequests::recording);
        let Some(flight) = flight else { return record(time).await };
        let from = Stamp::now();
        tokio::time::sleep(time).await;
        let until = Stamp::now();
        let file = tokio::task::spawn_blocking(move || {
            let mut file = Vec::new();
            let capture = flight.capture_between(from, until, Duration::ZERO);
            capture.write_perfetto(&mut file).map(|()| file)
        });
        let file = file.await.map_err(|error| Refused::Failed(error.to_string()))?;
        file.map_err(|error| Refused::Failed(error.to_string()))
    }
}

impl Tracing {
    /// What the flight recorder still holds of a trace, and of everything around it.
    ///
    /// # Errors
    /// When there is no flight recorder, or when it holds nothing of it.
    pub(crate) async fn of_trace(&self, trace_id: String) -> Result<Vec<u8>, Refused> {
        let flight = self.slow.borrow().as_ref().map(super::SlowRequests::recording);
        let flight = flight.ok_or(Refused::Busy("there is no flight recorder: --trace-slow"))?;
        let file = tokio::task::spawn_blocking(move || {
            let capture = flight.capture_trace(&trace_id, AROUND)?;
            let mut file = Vec::new();
            Some(capture.write_perfetto(&mut file).map(|()| file))
        });
        let file = file.await.map_err(|error| Refused::Failed(error.to_string()))?;
        file.ok_or(Refused::Unknown)?.map_err(|error| Refused::Failed(error.to_string()))
    }
}

async fn record(time: Duration) -> Result<Vec<u8>, Refused> {
    let file = Bounded::default();
    let recording = options().start_writing(file.clone()).map_err(|error| {
        if matches!(error, StartError::Busy) {
            Refused::Busy("another recording is on")
        } else {
            Refused::Failed(super::with_source(&error))
        }
    })?;
    let over = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < over && file.len() < LARGEST {
        let step = tokio::time::Instant::now() + LOOK;
        tokio::time::sleep_until(over.min(step)).await;
    }
    if file.len() >= LARGEST {
        log!(Admin, Warning, "a trace ended early: it is larger than {} MiB", LARGEST >> 20);
    }
    recording.finish().map_err(|error| Refused::Failed(error.to_string()))?;
    Ok(file.take())
}

/// The size at which a recording ends.
const LARGEST: usize = 64 << 20;
/// Time before and after a trace that its file holds.
const AROUND: Duration = Duration::from_millis(10);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// What may come between two looks; beyond that writing fails.
const MARGIN: usize = 64 << 20;

struct Demanded<'a>(&'a Tracing);

impl Drop for Demanded<'_> {
    fn drop(&mut self) {
        self.0.demanded.set(false);
    }
}

/// A file in memory, with an end to its growth.
#[derive(Clone, Default)]
struct Bounded {
    bytes: Arc<Mutex<Vec<u8>>>,
    len: Arc<AtomicUsize>,
}

impl Bounded {
    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if file.len() + bytes.len() > LARGEST + MARGIN {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.extend_from_slice(bytes);
        self.len.store(file.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_ends_somewhere() {
        let mut file = Bounded::default();
        let mebibyte = vec![0; 1 << 20];
        let room = (LARGEST + MARGIN) >> 20;
        assert!((0..room).all(|_| file.write_all(&mebibyte).is_ok()));
        assert_eq!(file.len(), LARGEST + MARGIN);
        assert_eq!(file.write_all(&[0]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.take().len(), LARGEST + MARGIN);
    }
}
