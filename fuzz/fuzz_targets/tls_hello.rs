//! A client's first message, to the inspector and to a server: cutting it anywhere changes nothing.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use towpath_proto::tls::{Clock, Fingerprint, Greeting, Identity, Server, ServerSettings};

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let (chain, key) = (include_bytes!("../src/server.pem"), include_bytes!("../src/server.key"));
    let identity = Identity::from_pem(chain, key).expect("both are sound");
    let settings = ServerSettings { identities: vec![identity], ..ServerSettings::default() };
    let clock = Clock::default();
    clock.set(Duration::from_secs(1_900_000_000));
    settings.build().expect("a certificate and its key").server(&clock)
});

/// What a server says of records that come in pieces: the name that it was asked for, and whether it goes on.
fn asked(pieces: &[&[u8]]) -> (Option<String>, bool) {
    let (mut layer, mut plain) = (SERVER.accept(), BytesMut::new());
    let mut goes_on = true;
    for piece in pieces {
        goes_on = layer.receive(piece, &mut plain).is_ok();
        assert!(goes_on || layer.receive(piece, &mut plain).is_err(), "a fault stays");
        assert!(layer.buffered() <= 512 * 1024, "{}", layer.buffered());
        if !goes_on {
            break;
        }
    }
    assert!(plain.is_empty() && !layer.is_established(), "nobody has its keys");
    (layer.server_name().map(str::to_owned), goes_on)
}

fuzz_target!(|data: &[u8]| {
    let Some((&[high, low], records)) = data.split_first_chunk() else { return };
    let cut = usize::from(u16::from_be_bytes([high, low])) % (records.len() + 1);
    let (head, tail) = records.split_at(cut);
    let (early, whole) = (Greeting::read(head), Greeting::read(records));
    if early != Greeting::Incomplete {
        assert_eq!(early, whole, "what follows changes nothing");
    }
    if let Some(print) = Fingerprint::read(records) {
        assert!(matches!(whole, Greeting::Hello { .. }));
        assert!(print.ja3().is_ascii() && print.ja4().is_ascii());
    }
    let (name, goes_on) = asked(&[records]);
    assert_eq!((name.clone(), goes_on), asked(&[head, tail]), "cut at {cut}");
    if let (Greeting::Hello { server_name, .. }, Some(name)) = (&whole, name) {
        assert_eq!(server_name.as_deref(), Some(&*name));
    }
});
