use std::time::Duration;

use towpath_proto::Head;

use super::*;
use crate::filter::Failed;
use crate::format::Format;
use crate::header_ops::HeaderOps;
use crate::record::Record;
use crate::snapshot::log::Template;
use crate::snapshot::tracing::Collector;

fn service(batch_bytes: usize) -> Arc<LogService> {
    Arc::new(LogService {
        collector: Collector {
            cluster: "logs".into(),
            authority: "logs".into(),
            path: "/export".into(),
            headers: HeaderOps::default(),
            timeout: Duration::from_secs(1),
            is_grpc: false,
            skip_envoy_headers: false,
            retry: None,
        },
        stat_prefix: "".into(),
        batch_bytes,
        interval: Duration::from_secs(1),
        resource: Vec::new(),
        body: Some(Template::Text(Format::literal(&[b'x'; 100]))),
        attributes: Vec::new(),
    })
}

fn add(loggers: &mut Loggers, service: &Arc<LogService>, registry: &Registry) -> Option<usize> {
    let record = Record::default();
    loggers.add(service, &Facts::new(&record, Instant::ZERO), None, (registry, 0))
}

#[test]
fn entries_wait_for_company() {
    let (mut loggers, registry, mut scratch) =
        (Loggers::default(), Registry::new(), Scratch::default());
    let service = service(200);
    assert_eq!(add(&mut loggers, &service, &registry), None);
    assert_eq!(loggers.due(), Some(Instant::ZERO + Duration::from_secs(1)));
    assert_eq!(add(&mut loggers, &service, &registry), Some(0));
    let (callout, load) = loggers.take(0, &mut scratch).unwrap();
    assert!(callout.body.len() > 200 && load.count == 2);
    assert!(loggers.take(0, &mut scratch).is_none());
    assert_eq!(loggers.due(), None);
}

#[test]
fn what_a_slow_server_holds_up_is_limited() {
    let (mut loggers, registry, mut scratch) =
        (Loggers::default(), Registry::new(), Scratch::default());
    let service = service(1000);
    let mut loads = Vec::new();
    for _ in 0..2 * MOST_BYTES / 100 {
        if let Some(at) = add(&mut loggers, &service, &registry) {
            loads.extend(loggers.take(at, &mut scratch).map(|(_, load)| load));
        }
    }
    let held: usize = loads.iter().map(|load| load.bytes).sum();
    assert!((MOST_BYTES - 2000..MOST_BYTES + 2000).contains(&held));
    let stats = Arc::clone(&loggers.0.get(0).unwrap().stats);
    assert!(stats.logs_dropped.value() > 0 && stats.logs_written.value() == 0);
    let dropped = stats.logs_dropped.value();
    let (lost, taken) = loads.split_at(2);
    let count = |loads: &[Load]| loads.iter().map(|load| load.count).sum::<u64>();
    let (lost, taken) = (count(lost), count(taken));
    for (index, load) in loads.into_iter().enumerate() {
        let head = Head::response(if index == 0 { 503 } else { 200 });
        let answer = match index {
            1 => Answer::Failed(Failed::TimedOut),
            _ => Answer::Response { head, body: bytes::Bytes::new(), trailers: None },
        };
        loggers.end(0, load, &answer);
    }
    // Two of the calls came to nothing.
    assert_eq!(stats.logs_dropped.value() - dropped, lost);
    assert_eq!(stats.logs_written.value(), taken);
    assert_eq!(add(&mut loggers, &service, &registry), None);
    assert!(loggers.due().is_some());
}
