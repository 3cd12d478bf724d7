//! What a proxy says to a client that asks it for a tunnel: however it is cut into pieces, it comes to the same, and it
//! never makes the client keep more than a head.
#![no_main]

use libfuzzer_sys::fuzz_target;
use towpath_proto::proxy::{Credentials, Handshake, Progress, Refusal};

fn handshake(kind: u8) -> Option<Handshake> {
    let who = Credentials { user: "u".to_owned(), password: "p".to_owned() };
    match kind % 4 {
        0 => Some(Handshake::connect("a.test:443", &[], None)),
        1 => Some(Handshake::connect("a.test:443", &[], Some(&who))),
        2 => Handshake::socks5("a.test", 443, None).ok(),
        _ => Handshake::socks5("192.0.2.1", 443, Some(&who)).ok(),
    }
}

/// What comes of it, with the tunnel's first bytes and all that was sent.
fn run(kind: u8, pieces: &[&[u8]]) -> Option<(Result<Progress, Refusal>, Vec<u8>)> {
    let mut asked = handshake(kind)?;
    let mut sent = asked.take_output();
    let mut came = Ok(Progress::Waiting);
    for (at, piece) in pieces.iter().enumerate() {
        came = asked.receive(piece);
        sent.extend(asked.take_output());
        match &mut came {
            Ok(Progress::Waiting) => {}
            Ok(Progress::Open(first)) => {
                pieces[at + 1..].iter().for_each(|piece| first.extend_from_slice(piece));
                break;
            }
            Err(_) => break,
        }
    }
    Some((came, sent))
}

fuzz_target!(|data: &[u8]| {
    let [kind, cut, said @ ..] = data else { return };
    let Some(whole) = run(*kind, &[said]) else { return };
    let at = usize::from(*cut).min(said.len());
    let halves = run(*kind, &[&said[..at], &said[at..]]);
    assert!(halves.as_ref() == Some(&whole), "{halves:?} {whole:?}");
    let bytes: Vec<&[u8]> = said.chunks(1).collect();
    let single = run(*kind, &bytes);
    assert!(single.as_ref() == Some(&whole), "{single:?} {whole:?}");
});
