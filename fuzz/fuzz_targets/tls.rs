//! Hostile bytes as a certificate, and in a handshake: whatever comes, there is an answer within bounds.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use towpath_proto::tls::{Certificate, ClientSettings, Clock, ServerName};

fuzz_target!(|data: &[u8]| {
    if let Some(certificate) = Certificate::parse(data) {
        let names = certificate.alternative_names().count();
        assert!(names <= data.len());
        assert!(certificate.subject_public_key_info().len() <= data.len());
    }
    let Some((&size, records)) = data.split_first() else { return };
    let Ok(template) = ClientSettings::default().build() else { return };
    let Ok(mut layer) = template.client(&Clock::default()).connect(&ServerName::unnamed()) else {
        return;
    };
    assert!(!layer.take_output().is_empty(), "a ClientHello");
    let mut plain = BytesMut::new();
    for piece in records.chunks(usize::from(size).max(1)) {
        if layer.receive(piece, &mut plain).is_err() {
            assert!(layer.receive(piece, &mut plain).is_err(), "a fault stays");
            break;
        }
        assert!(layer.buffered() <= 2 * data.len() + 64 * 1024);
    }
    assert!(plain.is_empty() && !layer.is_established(), "random bytes cannot hold our keys");
});
