//! Arbitrary bytes behind a head that says `chunked`, to a server and to a client; then the same bytes as
//! content, which must come through the coding unchanged.
#![no_main]

use bytes::{Bytes, BytesMut};
use towpath_fuzz::{check_requests, check_responses, cut, options, requests};
use towpath_proto::Head;
use towpath_proto::http1::Client;
use towpath_proto::Out;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first_chunk::<9>() else { return };
    let seed = u64::from_le_bytes(*choice.first_chunk().unwrap_or(&[0; 8]));
    let options = options(choice[8]);

    let request =
        [&b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"[..], bytes].concat();
    check_requests(&options, &request, seed);
    let response = [&b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"[..], bytes].concat();
    check_responses(&options, b"GET", &response, seed);

    let mut out = Out::new();
    let mut client = Client::new(options.clone());
    client.encode_head(&Head::request(b"POST", b"http", b"a", b"/"), false, &mut out);
    cut(bytes, seed).into_iter().for_each(|piece| client.encode_data(piece, &mut out));
    client.encode_end(&mut out);
    let wire: Bytes = out.drain().flatten().collect::<BytesMut>().freeze();
    let (messages, error) = requests(&options, &cut(&wire, seed.rotate_left(17)));
    assert_eq!(error, None);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].body, bytes);
    assert!(messages[0].complete);
});
