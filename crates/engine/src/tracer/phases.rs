//! The phases of a request and of its attempts, as spans below theirs: where its time went.
//!
//! Arrives: the times in a record. Leaves: for each phase that took place its name, its begin and its end.

use towpath_proto::Instant;

use crate::record::Record;

/// A phase: its name, its begin and its end.
pub(crate) type Phase = (&'static str, Instant, Instant);

/// Those of the request itself: until its first attempt, if there was one, and both ways between this proxy and the
/// client.
pub(crate) fn of_request(record: &Record, attempted: Option<Instant>, end: Instant) -> Vec<Phase> {
    let start = Some(record.start);
    let leaves = attempted.or(record.response_start);
    let all = [
        ("receive request", start, record.request_end.or(Some(end))),
        ("filters and route", start, leaves.or(Some(end))),
        ("send response", record.response_start, record.response_end.or(Some(end))),
    ];
    within(record.start, end, &all)
}

/// Those of an attempt that began `since`: until it has a connection, and what goes either way.
pub(crate) fn of_attempt(record: &Record, since: Instant, end: Instant) -> Vec<Phase> {
    let sent = record.upstream_first_sent;
    let (connect, connected) = record.connect.unzip();
    // That of an attempt before it is none of its own.
    let asked = record.pool_asked.filter(|asked| *asked >= since);
    let all = [
        ("wait for connection", asked, sent.or(Some(end))),
        ("connect", connect, connected),
        ("tls handshake", connected, record.secured),
        ("send request", sent, record.upstream_last_sent),
        ("wait for response", record.upstream_last_sent.or(sent), record.upstream_first_received),
        ("receive response", record.upstream_first_received, record.upstream_last_received),
    ];
    within(since, end, &all)
}

/// Phases as far as they lie within their span.
fn within(
    since: Instant,
    until: Instant,
    all: &[(&'static str, Option<Instant>, Option<Instant>)],
) -> Vec<Phase> {
    let part = |(name, from, to): &(_, Option<Instant>, Option<Instant>)| {
        let (from, to) = ((*from)?.max(since), (*to)?.min(until));
        (from <= to).then_some((*name, from, to))
    };
    all.iter().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(1 + ms * 1_000_000)
    }

    fn shown(phases: &[Phase]) -> Vec<(&'static str, u64, u64)> {
        let ms = |at: &Instant| (at.as_nanos() - 1) / 1_000_000;
        phases.iter().map(|(name, from, to)| (*name, ms(from), ms(to))).collect()
    }

    fn record() -> Record {
        Record {
            start: at(10),
            request_end: Some(at(12)),
            pool_asked: Some(at(15)),
            connect: Some((at(14), at(20))),
            secured: Some(at(30)),
            upstream_first_sent: Some(at(30)),
            upstream_last_sent: Some(at(31)),
            upstream_first_received: Some(at(50)),
            upstream_last_received: Some(at(60)),
            response_start: Some(at(51)),
            response_end: Some(at(70)),
            ..Record::default()
        }
    }

    #[test]
    fn phases_lie_within_their_spans() {
        let request = of_request(&record(), Some(at(15)), at(70));
        let wanted =
            [("receive request", 10, 12), ("filters and route", 10, 15), ("send response", 51, 70)];
        assert_eq!(shown(&request), wanted);
        let attempt = of_attempt(&record(), at(15), at(60));
        let wanted = [
            ("wait for connection", 15, 30),
            // It had begun for another request.
            ("connect", 15, 20),
            ("tls handshake", 20, 30),
            ("send request", 30, 31),
            ("wait for response", 31, 50),
            ("receive response", 50, 60),
        ];
        assert_eq!(shown(&attempt), wanted);
    }

    #[test]
    fn an_attempt_has_no_phases_of_the_one_before() {
        let mut again = record();
        again.upstream_first_sent = Some(at(80));
        (again.upstream_last_sent, again.upstream_first_received) = (Some(at(80)), None);
        again.upstream_last_received = None;
        let attempt = of_attempt(&again, at(75), at(90));
        assert_eq!(shown(&attempt), [("send request", 80, 80)]);
    }

    #[test]
    fn what_is_not_over_ends_with_its_span() {
        let cut = Record { start: at(10), pool_asked: Some(at(11)), ..Record::default() };
        let request = of_request(&cut, Some(at(11)), at(40));
        assert_eq!(shown(&request), [("receive request", 10, 40), ("filters and route", 10, 11)]);
        let attempt = of_attempt(&cut, at(11), at(40));
        assert_eq!(shown(&attempt), [("wait for connection", 11, 40)]);
        let answered = Record { start: at(1), response_start: Some(at(3)), ..Record::default() };
        let request = of_request(&answered, None, at(4));
        let wanted =
            [("receive request", 1, 4), ("filters and route", 1, 3), ("send response", 3, 4)];
        assert_eq!(shown(&request), wanted);
    }
}
