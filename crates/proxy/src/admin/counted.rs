//! What is counted of the admin endpoint itself: `http.admin.…` and `listener.admin.…`, as Envoy names them.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use towpath_engine::stats::{
    AdminHttpStats, AdminListenerStats, Histogram, ListenerHttpStats, Registry, Scope,
};

use crate::server_stats::CONTROL;

/// The endpoint's counters. The thread that answers writes them.
#[derive(Debug)]
pub(crate) struct Counts {
    http: Arc<AdminHttpStats>,
    listener: Arc<AdminListenerStats>,
    of_listener: Arc<ListenerHttpStats>,
}

/// A connection, counted as active while this lives, and its bytes as they pass.
#[derive(Debug)]
pub(super) struct CountedConnection<S> {
    stream: S,
    counts: Arc<Counts>,
    since: Instant,
}

/// A request, counted as active while this lives.
#[derive(Debug)]
pub(super) struct CountedRequest {
    counts: Arc<Counts>,
    since: Instant,
    /// Of its answer; 0 before there is one.
    pub(super) status: u16,
}

impl Counts {
    pub(crate) fn new(registry: &Registry) -> Self {
        let admin: Arc<str> = "admin".into();
        Self {
            http: registry.set(CONTROL, Scope::Http(Arc::clone(&admin))),
            listener: registry.set(CONTROL, Scope::Listener(Arc::clone(&admin))),
            of_listener: registry
                .set(CONTROL, Scope::ListenerHttp { listener: Arc::clone(&admin), prefix: admin }),
        }
    }
}

impl<S> CountedConnection<S> {
    pub(super) fn begin(stream: S, counts: &Arc<Counts>) -> Self {
        let Counts { http, listener, .. } = &**counts;
        http.downstream_cx_total.inc();
        http.downstream_cx_active.inc();
        http.downstream_cx_http1_total.inc();
        http.downstream_cx_http1_active.inc();
        listener.downstream_cx_total.inc();
        listener.downstream_cx_active.inc();
        Self { stream, counts: Arc::clone(counts), since: Instant::now() }
    }

    fn count_written(&self, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.counts.http.downstream_cx_tx_bytes_total.add(bytes as u64);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        let read = into.filled().len().saturating_sub(before);
        self.counts.http.downstream_cx_rx_bytes_total.add(read as u64);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedConnection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.count_written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S> Drop for CountedConnection<S> {
    fn drop(&mut self) {
        let Counts { http, listener, .. } = &*self.counts;
        http.downstream_cx_active.dec();
        http.downstream_cx_http1_active.dec();
        http.downstream_cx_destroy.inc();
        listener.downstream_cx_active.dec();
        listener.downstream_cx_destroy.inc();
        record(&http.downstream_cx_length_ms, self.since);
        record(&listener.downstream_cx_length_ms, self.since);
    }
}

impl CountedRequest {
    pub(super) fn begin(counts: &Arc<Counts>) -> Self {
        let http = &counts.http;
        http.downstream_rq_total.inc();
        http.downstream_rq_http1_total.inc();
        http.downstream_rq_active.inc();
        Self { counts: Arc::clone(counts), since: Instant::now(), status: 0 }
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        let Counts { http, of_listener, .. } = &*self.counts;
        http.downstream_rq_active.dec();
        http.count_response(self.status);
        of_listener.count_response(self.status);
        record(&http.downstream_rq_time, self.since);
    }
}

fn record(histogram: &Histogram, since: Instant) {
    histogram.record(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
}
