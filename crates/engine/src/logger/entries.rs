//! Entries for Envoy's access-log service: messages of a call that goes on, and what a slow server holds up is limited.
//!
//! Arrives: what is known of a stream that is over. Leaves: messages. As in Envoy, entries wait for company up to a
//! time or a size; what the server does not take stays, and what comes on top of a full message is dropped.

use std::sync::Arc;
use std::time::Duration;

use towpath_proto::Instant;

use super::als;
use super::slots::{Batch, Slots};
use crate::format::Facts;
use crate::snapshot::log::{Entry, EntryStream};
use crate::stats::{EntryStats, Registry, Scope};

/// The streams of a worker, each in its place for as long as it has entries or a call.
#[derive(Debug, Default)]
pub(crate) struct EntryLogs(Slots<EntryLog>);

/// Entries of one worker for one server.
#[derive(Debug)]
struct EntryLog {
    stream: Arc<EntryStream>,
    stats: Arc<EntryStats>,
    /// Each as a field of a list.
    waiting: Vec<u8>,
    amount: Amount,
    /// What waited when the server took no full message: it stays, and what comes behind it is dropped unless the
    /// server takes something first.
    stuck: Option<(usize, Amount)>,
    call: Option<u64>,
    /// Something was said since the configuration changed last.
    was_used: bool,
    /// Before that no other call is begun.
    rests_until: Instant,
    /// When what waits leaves at the latest.
    due: Option<Instant>,
}

/// How many entries, and how long they are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    count: u64,
    bytes: usize,
}

impl EntryLogs {
    /// Adds what is known of a stream. Answers the place of a log whose entries are to leave.
    #[cold]
    pub(crate) fn add(
        &mut self,
        entry: &Entry,
        facts: &Facts<'_>,
        (registry, worker): (&Registry, u32),
    ) -> Option<usize> {
        let at = self.place(&entry.stream, registry, worker);
        let log = self.0.get_mut(at)?;
        log.was_used = true;
        if Arc::strong_count(&log.stream) == 1 {
            // It began with a configuration that is gone; this one says the same.
            log.stream = Arc::clone(&entry.stream);
        }
        if log.waiting.len() >= MOST_BYTES {
            log.stats.logs_dropped.inc();
            return None;
        }
        log.amount.bytes += als::write_entry(&mut log.waiting, entry, facts);
        log.amount.count += 1;
        if log.stuck.is_none() {
            log.count_written(1);
        }
        if log.amount.bytes >= log.stream.batch_bytes {
            return Some(at);
        }
        log.due.get_or_insert(facts.now + log.stream.interval);
        None
    }

    /// When entries leave next.
    #[inline]
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.due()
    }

    /// The places of logs whose entries wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.0.waiting()
    }

    /// The place of a log whose entries have waited long enough.
    pub(crate) fn overdue(&self, now: Instant) -> Option<usize> {
        self.0.overdue(now)
    }

    /// Whether no call could be begun, and it is too early to try again.
    pub(crate) fn backs_off(&self, at: usize, now: Instant) -> bool {
        self.0.get(at).is_some_and(|log| now < log.rests_until)
    }

    /// No call could be begun.
    pub(crate) fn back_off(&mut self, at: usize, now: Instant) {
        if let Some(log) = self.0.get_mut(at) {
            log.rests_until = now + REST;
        }
    }

    /// What waits, as a message; the call that it is for, if one goes on; and whom it is for.
    pub(crate) fn message(
        &mut self,
        at: usize,
    ) -> Option<(Vec<u8>, Option<u64>, Arc<EntryStream>)> {
        let log = self.0.get_mut(at)?;
        log.due = None;
        let message = || als::message(log.stream.is_http, &log.waiting);
        (log.amount.count > 0).then(|| (message(), log.call, Arc::clone(&log.stream)))
    }

    /// Another call goes on.
    pub(crate) fn began(&mut self, at: usize, call: u64) {
        if let Some(log) = self.0.get_mut(at) {
            log.call = Some(call);
        }
    }

    /// The call of a log.
    pub(crate) fn call(&self, at: usize) -> Option<u64> {
        self.0.get(at)?.call
    }

    /// Its call is over.
    pub(crate) fn ended(&mut self, at: usize) {
        if let Some(log) = self.0.get_mut(at) {
            log.call = None;
        }
    }

    /// A message has left.
    pub(crate) fn sent(&mut self, at: usize) {
        let Some(log) = self.0.get_mut(at) else { return };
        let sent = std::mem::take(&mut log.amount);
        log.waiting.clear();
        log.stats.grpc_entries_flushed.add(sent.count);
        if let Some((_, before)) = log.stuck.take() {
            log.count_written(sent.count - before.count);
        }
    }

    /// A message could not leave: its entries wait, as far as they are one full message.
    pub(crate) fn not_sent(&mut self, at: usize, now: Instant) {
        let Some(log) = self.0.get_mut(at) else { return };
        if log.amount.count == 0 {
            log.due = None;
            return;
        }
        log.stats.grpc_entries_flush_failed.add(log.amount.count);
        log.due = Some(now + log.stream.interval.max(LEAST_WAIT));
        match log.stuck {
            Some((length, before)) => {
                log.stats.logs_dropped.add(log.amount.count - before.count);
                log.waiting.truncate(length);
                log.amount = before;
            }
            None if log.stream.batch_bytes > 0 && log.amount.bytes >= log.stream.batch_bytes => {
                log.stuck = Some((log.waiting.len(), log.amount));
            }
            None => {}
        }
    }

    /// The configuration has changed: all calls, and whether each is still wanted. One of a stream that no
    /// configuration seems to have may go on for one that says the same, so it ends once nothing was said between two
    /// changes.
    pub(crate) fn calls(&mut self) -> impl Iterator<Item = (u64, bool)> {
        self.0.iter_mut().filter_map(|log| {
            let was_used = std::mem::take(&mut log.was_used);
            let is_known = Arc::strong_count(&log.stream) > 1;
            Some((log.call?, is_known || was_used || log.amount.count > 0))
        })
    }

    /// The place of a stream's log: those that are configured alike have one. Those of configurations that are gone are
    /// let go of.
    fn place(&mut self, stream: &Arc<EntryStream>, registry: &Registry, worker: u32) -> usize {
        let is_of = |log: &EntryLog| {
            Arc::ptr_eq(&log.stream, stream)
                || (log.stream.print, log.stream.is_http) == (stream.print, stream.is_http)
        };
        self.0.place(is_of, || EntryLog {
            stream: Arc::clone(stream),
            stats: registry.set(worker, Scope::EntryLogs),
            waiting: Vec::new(),
            amount: Amount::default(),
            stuck: None,
            call: None,
            was_used: false,
            rests_until: Instant::ZERO,
            due: None,
        })
    }
}

impl Batch for EntryLog {
    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn is_waiting(&self) -> bool {
        self.amount.count > 0
    }

    fn is_unused(&self) -> bool {
        self.call.is_none() && !self.is_waiting() && Arc::strong_count(&self.stream) == 1
    }
}

impl EntryLog {
    /// As in Envoy, only those of HTTP are counted.
    fn count_written(&self, count: u64) {
        if self.stream.is_http {
            self.stats.logs_written.add(count);
        }
    }
}

/// Before what could not leave is tried again, however short the interval is.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// Between two calls where there is no host: a full message is made for each.
const REST: Duration = Duration::from_millis(100);

/// Bytes of entries that wait; what comes then is dropped, and counted.
const MOST_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::header_ops::HeaderOps;
    use crate::record::Record;
    use crate::snapshot::log::HttpEntry;
    use crate::snapshot::tracing::Collector;

    fn entry(batch_bytes: usize, print: u64) -> Entry {
        let collector = Collector {
            cluster: "logs".into(),
            authority: "logs".into(),
            path: "/s".into(),
            headers: HeaderOps::default(),
            timeout: Duration::from_secs(1),
            is_grpc: true,
            skip_envoy_headers: false,
            retry: None,
        };
        Entry {
            stream: Arc::new(EntryStream {
                collector,
                opening: Bytes::new(),
                batch_bytes,
                interval: Duration::from_secs(1),
                is_http: true,
                print,
            }),
            http: Some(HttpEntry::default()),
            tags: Vec::new(),
        }
    }

    fn add(logs: &mut EntryLogs, entry: &Entry, registry: &Registry) -> Option<usize> {
        let record = Record { attempts: 7, ..Record::default() };
        logs.add(entry, &Facts::new(&record, Instant::ZERO), (registry, 0))
    }

    fn counts(registry: &Registry) -> [u64; 4] {
        let stats: Arc<EntryStats> = registry.set(0, Scope::EntryLogs);
        [
            stats.logs_written.value(),
            stats.logs_dropped.value(),
            stats.grpc_entries_flushed.value(),
            stats.grpc_entries_flush_failed.value(),
        ]
    }

    #[test]
    fn entries_wait_for_company() {
        let (mut logs, registry) = (EntryLogs::default(), Registry::new());
        let entry = entry(100, 1);
        assert_eq!(add(&mut logs, &entry, &registry), None);
        assert_eq!(logs.due(), Some(Instant::ZERO + Duration::from_secs(1)));
        while add(&mut logs, &entry, &registry).is_none() {}
        let (message, call, _) = logs.message(0).unwrap();
        assert!(message.len() > 100 && call.is_none() && logs.due().is_none());
        logs.sent(0);
        assert!(logs.message(0).is_none());
        let [written, dropped, flushed, failed] = counts(&registry);
        assert_eq!((written, dropped, failed), (flushed, 0, 0));
    }

    #[test]
    fn what_comes_behind_a_full_message_is_dropped_until_it_leaves() {
        let (mut logs, registry) = (EntryLogs::default(), Registry::new());
        let entry = entry(1, 1);
        assert_eq!(add(&mut logs, &entry, &registry), Some(0));
        logs.not_sent(0, Instant::ZERO);
        assert_eq!(counts(&registry), [1, 0, 0, 1]);
        let full = logs.message(0).unwrap().0;
        assert_eq!(add(&mut logs, &entry, &registry), Some(0));
        logs.not_sent(0, Instant::ZERO);
        assert_eq!(counts(&registry), [1, 1, 0, 3]);
        assert_eq!(logs.message(0).unwrap().0, full);
        // There is room when another one comes: both leave.
        assert_eq!(add(&mut logs, &entry, &registry), Some(0));
        logs.sent(0);
        assert_eq!(counts(&registry), [2, 1, 2, 3]);
        assert_eq!(add(&mut logs, &entry, &registry), Some(0));
        assert_eq!(counts(&registry), [3, 1, 2, 3]);
    }

    #[test]
    fn what_waits_is_limited_where_messages_are_not() {
        let (mut logs, registry) = (EntryLogs::default(), Registry::new());
        let entry = entry(usize::MAX, 1);
        while counts(&registry)[1] == 0 {
            assert_eq!(add(&mut logs, &entry, &registry), None);
        }
        assert!((MOST_BYTES..MOST_BYTES + 100).contains(&logs.0.get(0).unwrap().waiting.len()));
    }

    #[test]
    fn what_could_not_leave_is_not_tried_without_a_pause() {
        let (mut logs, registry) = (EntryLogs::default(), Registry::new());
        let mut entry = entry(1, 1);
        Arc::get_mut(&mut entry.stream).unwrap().interval = Duration::from_nanos(1);
        add(&mut logs, &entry, &registry);
        logs.not_sent(0, Instant::ZERO);
        assert_eq!(logs.overdue(Instant::ZERO + Duration::from_micros(999)), None);
        assert_eq!(logs.overdue(Instant::ZERO + Duration::from_millis(1)), Some(0));
    }

    #[test]
    fn a_call_outlives_a_configuration_that_is_followed_by_the_same() {
        let (mut logs, registry) = (EntryLogs::default(), Registry::new());
        let wanted = |logs: &mut EntryLogs| logs.calls().collect::<Vec<_>>();
        let (old, new) = (entry(1, 1), entry(1, 1));
        add(&mut logs, &old, &registry);
        logs.began(0, 7);
        logs.sent(0);
        drop(old);
        assert_eq!(wanted(&mut logs), [(7, true)], "what was said may be on its way");
        add(&mut logs, &new, &registry);
        logs.sent(0);
        for _ in 0..3 {
            assert_eq!(wanted(&mut logs), [(7, true)], "it is of the new configuration");
        }
        drop(new);
        assert_eq!(wanted(&mut logs), [(7, false)]);
    }

    #[test]
    fn what_is_configured_alike_leaves_together() {
        let (mut logs, registry) = (EntryLogs::default(), Registry::new());
        let (one, same, other) = (entry(1000, 1), entry(1000, 1), entry(1000, 2));
        for entry in [&one, &same, &other] {
            add(&mut logs, entry, &registry);
        }
        let counts: Vec<_> = logs.0.iter().map(|log| log.amount.count).collect();
        assert_eq!(counts, [2, 1]);
        // One whose configuration is gone makes room, once it has nothing to say.
        drop(other);
        logs.sent(1);
        add(&mut logs, &entry(1000, 3), &registry);
        assert_eq!(logs.0.iter().count(), 2);
    }
}
