//! Any sequence of begins, ends, marks, counters, toggles and hostile names: what the encoder writes is read by a
//! decoder made from the public schema, nests, and is what the capture says it holds.
#![no_main]

use std::collections::HashMap;

use perfetto_protos::trace::Trace;
use perfetto_protos::track_event::track_event::Type;
use protobuf::{Enum, Message};
use towpath_trace::atrace::{self, AtraceTag};
use towpath_trace::{AsyncSpan, Capture, Category, Level, Options, Span, Stamp, Track};
use towpath_trace::{async_span, complete, counter, mark, span};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let options = Options::new().ring_bytes(64 << 10).level(Level::Trace);
    let flight = data.first().is_some_and(|byte| byte & 1 != 0);
    let options = if flight { options.flight_recorder(std::time::Duration::from_secs(600)) } else { options };
    let recording = options.start().expect("one run at a time");
    let mut spans: Vec<Span> = Vec::new();
    let mut tracked: Vec<AsyncSpan> = Vec::new();
    for operation in data.chunks(4) {
        let argument = u64::from(*operation.get(1).unwrap_or(&0));
        let text = String::from_utf8_lossy(operation.get(1..).unwrap_or_default()).repeat(1 + argument as usize);
        match operation[0] % 13 {
            0 => spans.push(span!(Category::APP, "plain")),
            1 => spans.push(span!(Category::NETWORK, "numbers", argument, negative = -3)),
            2 => spans.push(span!(Category::APP, "text", text = text.as_str(), third = 2.5, argument)),
            3 => drop(spans.pop()),
            // Not the last one: spans cross.
            4 if !spans.is_empty() => drop(spans.remove(argument as usize % spans.len())),
            5 => mark!(Category::APP, "mark", text = text.as_str()),
            6 => counter!(Category::APP, "counter", argument),
            7 => tracked.push(async_span!(Category::REQUEST, "tracked", Track::new(argument % 4), argument)),
            8 if !tracked.is_empty() => drop(tracked.remove(argument as usize % tracked.len())),
            9 => {
                let (from, until) = (Stamp::monotonic_ns(argument * 50), Stamp::monotonic_ns(argument * 90));
                complete!(Category::REQUEST, "complete", Track::new(9).under(Track::new(1)), from, until, argument);
            }
            10 => atrace::atrace_instant(AtraceTag::App, &text),
            11 => recording.set_categories(Category::NETWORK, Level::Info),
            12 => recording.set_categories(Category::ALL, Level::Trace),
            _ => {}
        }
    }
    let capture = recording.stop();
    drop(spans);
    drop(tracked);
    check(&capture);
});

fn check(capture: &Capture) {
    let mut file = Vec::new();
    capture.write_perfetto(&mut file).expect("memory takes everything");
    let trace = Trace::parse_from_bytes(&file).expect("the file follows the schema");
    let (mut begins, mut marks, mut counters) = (0, 0, 0);
    let mut depth: HashMap<u64, i64> = HashMap::new();
    let mut defaults: HashMap<u32, u64> = HashMap::new();
    let mut tracks = Vec::new();
    for packet in &trace.packet {
        assert!(packet.special_fields.unknown_fields().iter().next().is_none(), "a field of no schema");
        let sequence = packet.trusted_packet_sequence_id();
        if let Some(track) = packet.trace_packet_defaults.track_event_defaults.track_uuid {
            defaults.insert(sequence, track);
        }
        if packet.has_track_descriptor() {
            tracks.push(packet.track_descriptor().uuid());
        }
        if !packet.has_track_event() {
            continue;
        }
        let event = packet.track_event();
        if event.categories.iter().any(|category| category == "towpath.trace") {
            continue;
        }
        let track = event.track_uuid.unwrap_or_else(|| defaults[&sequence]);
        assert!(tracks.contains(&track), "an event on a track that was not described");
        match event.type_() {
            kind if kind.value() == Type::TYPE_SLICE_BEGIN.value() => {
                begins += 1;
                *depth.entry(track).or_default() += 1;
            }
            kind if kind.value() == Type::TYPE_SLICE_END.value() => {
                let depth = depth.entry(track).or_default();
                *depth -= 1;
                assert!(*depth >= 0, "an end without a begin");
            }
            kind if kind.value() == Type::TYPE_INSTANT.value() => marks += 1,
            kind if kind.value() == Type::TYPE_COUNTER.value() => counters += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(depth.values().all(|&depth| depth == 0), "a begin without an end");
    assert_eq!(
        (begins, marks, counters),
        (capture.spans().len(), capture.marks().len(), capture.counters().len())
    );
    let stat = towpath_trace::file::stat_bytes(&file).expect("our own reader takes it too");
    assert_eq!((stat.spans.iter().map(|span| span.count).sum::<u64>(), stat.beginless), (begins as u64, 0));
    let mut json = Vec::new();
    capture.write_chrome(&mut json).expect("memory takes everything");
}
