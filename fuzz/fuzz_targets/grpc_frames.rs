//! The frames of gRPC in any bytes, cut anywhere: as many are counted as begin, and what a browser reads of them in
//! Base64 is what was sent.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use towpath_engine::filter::FilterConfig;
use towpath_engine::filter::grpc_stats::{GrpcStatistics, Methods};
use towpath_engine::filter::grpc_web::GrpcWeb;
use towpath_fuzz::cut;
use towpath_fuzz::filters::Watched;
use towpath_proto::Head;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [seed, bytes @ ..] = data else { return };
    let whole = [Bytes::copy_from_slice(bytes)];
    let pieces = cut(bytes, u64::from(*seed));
    let wanted = frames(bytes);
    for pieces in [&whole[..], &pieces] {
        let config = GrpcStatistics {
            methods: Methods::All,
            times: false,
            without_dots: false,
            emits_state: false,
        };
        let mut call = begin(&config, b"application/grpc");
        assert_eq!(call.request(pieces).as_deref(), Some(bytes));
        assert_eq!(call.response(&mut answer(), pieces), bytes);
        for side in ["request", "response"] {
            let counted = call.number(&format!("cluster.c.grpc.a.B.c.{side}_message_count"));
            assert_eq!(counted, wanted, "{side}");
        }
    }
    let text = |pieces: &[Bytes]| {
        begin(&GrpcWeb, b"application/grpc-web-text").response(&mut answer(), pieces)
    };
    let encoded = text(&whole);
    assert_eq!(encoded, text(&pieces));
    // Each message is padded for itself.
    let read: Vec<u8> = encoded
        .chunks(4)
        .flat_map(|block| STANDARD.decode(block).expect("whole blocks of Base64"))
        .collect();
    assert_eq!(read, bytes);
    // What a browser sends is read, or refused, and is what it wrote.
    let sent = STANDARD.encode(bytes);
    let mut call = begin(&GrpcWeb, b"application/grpc-web-text");
    assert_eq!(call.request(&cut(sent.as_bytes(), u64::from(*seed))).as_deref(), Some(bytes));
    if let Some(plain) = begin(&GrpcWeb, b"application/grpc-web-text").request(&pieces) {
        assert!(plain.len() <= bytes.len());
    }
});

fn begin(config: &dyn FilterConfig, media_type: &[u8]) -> Watched {
    let mut head = Head::request(b"POST", b"http", b"a", b"/a.B/c");
    head.append_bytes(b"content-type", media_type);
    head.append_bytes(b"accept", media_type);
    Watched::begin(config, &mut head)
}

fn answer() -> Head {
    let mut head = Head::response(200);
    head.append_bytes(b"content-type", b"application/grpc");
    head
}

/// How many frames begin: each has a byte of flags, four of length, and that much content.
fn frames(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while !bytes.is_empty() {
        count += 1;
        let Some((start, rest)) = bytes.split_first_chunk::<5>() else { break };
        let [_, length @ ..] = *start;
        bytes = rest.get(u32::from_be_bytes(length) as usize..).unwrap_or_default();
    }
    count
}
