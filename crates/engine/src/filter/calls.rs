//! The counters of calls by gRPC, by cluster, service and method, as several filters keep them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::Head;

use super::FilterScope;
use crate::format::Facts;
use crate::grpc;
use crate::stats::{GrpcProtocol, GrpcStats, Scope, Stat, StatSet};

/// The counters of one worker's filter. Clients choose services and methods: of so many at most there are some.
#[derive(Debug)]
pub(crate) struct Calls {
    scope: FilterScope,
    protocol: GrpcProtocol,
    known: RefCell<HashMap<Key, Arc<GrpcStats>>>,
}

/// Cluster, and service with method.
type Key = (Box<str>, Option<Method>);

/// Service and method.
pub(crate) type Method = (Arc<str>, Arc<str>);

impl Calls {
    /// Those of calls that come in one way.
    pub(crate) fn new(scope: &FilterScope, protocol: GrpcProtocol) -> Rc<Self> {
        Rc::new(Self { scope: scope.clone(), protocol, known: RefCell::default() })
    }

    /// The counters of a method, or those of all that have none of their own.
    fn of(&self, cluster: &str, method: Option<&Method>) -> Arc<GrpcStats> {
        let mut known = self.known.borrow_mut();
        let has_room = known.len() < MOST_METHODS;
        let key = (Box::from(cluster), method.cloned());
        if let Some(stats) = known.get(&key) {
            return Arc::clone(stats);
        }
        let key = if has_room { key } else { (key.0, None) };
        let (cluster, method) = (Arc::from(cluster), key.1.clone());
        let protocol = self.protocol;
        let fresh = || self.scope.set(Scope::ClusterGrpc { cluster, protocol, method });
        Arc::clone(known.entry(key).or_insert_with(fresh))
    }
}

/// The counters of one call.
#[derive(Debug)]
pub(crate) struct CallStats {
    calls: Rc<Calls>,
    method: Option<Method>,
    /// Once its cluster is known.
    stats: Option<Arc<GrpcStats>>,
}

impl CallStats {
    /// Without a method it is counted with all others that have none.
    pub(crate) const fn new(calls: Rc<Calls>, method: Option<Method>) -> Self {
        Self { calls, method, stats: None }
    }

    /// Of a call by this path, if that names a method.
    pub(crate) fn of_path(calls: &Rc<Calls>, path: &[u8]) -> Option<Self> {
        let (service, method) = method_of(path)?;
        Some(Self::new(Rc::clone(calls), Some((service.into(), method.into()))))
    }

    /// `None` where there is no cluster.
    pub(crate) fn of(&mut self, facts: &Facts<'_>) -> Option<&GrpcStats> {
        if self.stats.is_none() && !facts.cluster_stat_name.is_empty() {
            self.stats = Some(self.calls.of(facts.cluster_stat_name, self.method.as_ref()));
        }
        self.stats.as_deref()
    }

    /// Counts the `grpc-status` of a response's head or trailers, if there is one.
    pub(crate) fn count(&mut self, facts: &Facts<'_>, said: &Head) {
        if let Some(status) = grpc::status_of(said)
            && let Some(stats) = self.of(facts)
        {
            stats.count(status);
        }
    }

    /// Counts a call that has no `grpc-status`.
    #[cfg(feature = "serving")]
    pub(crate) fn count_outcome(&mut self, facts: &Facts<'_>, succeeds: bool) {
        if let Some(stats) = self.of(facts) {
            let outcome = if succeeds { &stats.success } else { &stats.failure };
            outcome.inc();
            stats.total.inc();
        }
    }
}

impl GrpcStats {
    fn count(&self, status: u8) {
        // The first are those of the statuses, in their order.
        if grpc::name(status.into()).is_some()
            && let Stat::Counter(counter) = self.value(status.into())
        {
            counter.inc();
        }
        let outcome = if status == 0 { &self.success } else { &self.failure };
        outcome.inc();
        self.total.inc();
    }
}

/// The service and method of a path, if it has these two and no more.
pub(crate) fn method_of(path: &[u8]) -> Option<(&str, &str)> {
    let end = path.iter().position(|&byte| byte == b'?').unwrap_or(path.len());
    let path = std::str::from_utf8(&path[..end]).ok()?;
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let found = (parts.next()?, parts.next()?);
    let fits = found.0.len() + found.1.len() <= LONGEST_NAME;
    (fits && parts.next().is_none()).then_some(found)
}

/// How many services and methods of clusters are counted each for itself, by a worker's filter.
const MOST_METHODS: usize = 1000;
/// What is longer names no method.
const LONGEST_NAME: usize = 512;

/// Where the frames of messages begin and end in a stream (gRPC over HTTP/2, Length-Prefixed-Message).
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Of the frame under way: how many bytes of its start are here, and how long it is.
    start: u8,
    length: u32,
}

impl Frames {
    /// How many frames begin in a piece.
    pub(crate) fn count(&mut self, mut data: &[u8]) -> u64 {
        let mut frames = 0;
        while !data.is_empty() {
            frames += u64::from(self.start == 0);
            data = &data[self.advance(data).0..];
        }
        frames
    }

    /// How many bytes of the start of the frame under way are not here yet, or of the next one's.
    #[cfg(feature = "serving")]
    pub(crate) const fn start_left(&self) -> usize {
        (FRAME_START - self.start) as usize
    }

    /// The frame before is over.
    #[cfg(feature = "serving")]
    pub(crate) const fn is_between(&self) -> bool {
        self.start == 0
    }

    /// Goes on to the end of the frame under way, or of the piece: how far that is, and whether the frame is over.
    pub(crate) fn advance(&mut self, data: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while self.start < FRAME_START {
            let Some(&byte) = data.get(at) else { return (at, false) };
            if self.start > 0 {
                self.length = self.length << 8 | u32::from(byte);
            }
            (self.start, at) = (self.start + 1, at + 1);
        }
        let here = (data.len() - at).min(self.length as usize);
        self.length -= u32::try_from(here).unwrap_or(u32::MAX);
        if self.length == 0 {
            self.start = 0;
        }
        (at + here, self.length == 0)
    }
}

/// A byte of flags and four of length.
const FRAME_START: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_two_names_is_a_method() {
        assert_eq!(method_of(b"/a.B/C"), Some(("a.B", "C")));
        assert_eq!(method_of(b"//a//b/?c=/d"), Some(("a", "b")));
        for none in [&b"/"[..], b"/a", b"/a/b/c", b"", b"/a?/b", b"/\xff/b"] {
            assert_eq!(method_of(none), None, "{}", none.escape_ascii());
        }
        assert_eq!(method_of(&[b"/a/".to_vec(), vec![b'b'; LONGEST_NAME]].concat()), None);
    }

    #[test]
    fn frames_are_counted_wherever_they_are_cut() {
        let bytes = [&b"\0\0\0\0\x03abc"[..], b"\0\0\0\0\0", b"\x01\0\0\x01\0", &[7; 256]].concat();
        for cut in 0..=bytes.len() {
            let mut counter = Frames::default();
            let counted = counter.count(&bytes[..cut]) + counter.count(&bytes[cut..]);
            assert_eq!(counted, 3, "cut at {cut}");
        }
        let mut counter = Frames::default();
        let singly: Vec<u64> = bytes.iter().map(|&byte| counter.count(&[byte])).collect();
        assert_eq!(singly.iter().sum::<u64>(), 3);
        assert_eq!((singly[0], singly[8], singly[13]), (1, 1, 1));
    }
}
