//! What is counted of the admin endpoint itself: `http.admin.…` and `listener.admin.…`, as Envoy names them.

use std::sync::Arc;
use std::time::Instant;

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

/// A connection, counted as active while this lives.
#[derive(Debug)]
pub(super) struct CountedConnection {
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

impl CountedConnection {
    pub(super) fn begin(counts: &Arc<Counts>) -> Self {
        let Counts { http, listener, .. } = &**counts;
        http.downstream_cx_total.inc();
        http.downstream_cx_active.inc();
        http.downstream_cx_http1_total.inc();
        http.downstream_cx_http1_active.inc();
        listener.downstream_cx_total.inc();
        listener.downstream_cx_active.inc();
        Self { counts: Arc::clone(counts), since: Instant::now() }
    }
}

impl Drop for CountedConnection {
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
