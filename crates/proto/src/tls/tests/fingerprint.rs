//! Fingerprints, of messages put together here.

use super::super::fingerprint::Fingerprint;

/// A `ClientHello` in one record.
fn hello(suites: &[u16], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(list16(&numbers(suites)));
    body.extend([1, 0]);
    let mut all = Vec::new();
    for (kind, content) in extensions {
        all.extend(kind.to_be_bytes());
        all.extend(list16(content));
    }
    body.extend(list16(&all));
    let message = [&[1, 0][..], &length(&body), &body].concat();
    [&[22, 3, 1][..], &length(&message), &message].concat()
}

fn length(of: &[u8]) -> [u8; 2] {
    u16::try_from(of.len()).unwrap().to_be_bytes()
}

fn list16(content: &[u8]) -> Vec<u8> {
    [&length(content)[..], content].concat()
}

fn numbers(of: &[u16]) -> Vec<u8> {
    of.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn usual() -> Vec<(u16, Vec<u8>)> {
    vec![
        (0x1a1a, vec![]),
        (0, list16(b"\0\0\x06a.test")),
        (10, list16(&numbers(&[0x2a2a, 29, 23]))),
        (11, vec![1, 0]),
        (13, list16(&numbers(&[0x0403, 0x0804]))),
        (16, list16(b"\x02h2\x08http/1.1")),
        (43, [&[6][..], &numbers(&[0xfafa, 0x0304, 0x0303])].concat()),
    ]
}

#[test]
fn a_hello_has_its_fingerprints() {
    let records = hello(&[0x0a0a, 0x1301, 0xc02b], &usual());
    let print = Fingerprint::read(&records).unwrap();
    // GREASE stays in the groups, as in Envoy.
    assert_eq!(print.ja3(), "771,4865-49195,0-10-11-13-16-43,10794-29-23,0");
    // `printf 1301,c02b | sha256sum`; `printf 000a,000b,000d,002b_0403,0804 | sha256sum`.
    assert_eq!(print.ja4(), "t13d0206h2_777cda164f4b_fb71836bce29");
    for end in 0..records.len() {
        assert_eq!(Fingerprint::read(&records[..end]), None, "cut at {end}");
    }
    for at in 0..records.len() {
        let mut changed = records.clone();
        changed[at] ^= 0x55;
        if let Some(print) = Fingerprint::read(&changed) {
            assert_eq!(print.ja4().len(), 36, "byte {at}: {}", print.ja4());
        }
    }
}

#[test]
fn what_is_not_offered_is_nothing_in_them() {
    let bare = Fingerprint::read(&hello(&[], &[])).unwrap();
    assert_eq!(bare.ja3(), "771,,,,");
    assert_eq!(bare.ja4(), "t12i000000_000000000000_000000000000");
    let protocol = |name: &[u8]| {
        let name = [&[u8::try_from(name.len()).unwrap()], name].concat();
        Fingerprint::read(&hello(&[], &[(16, list16(&name))])).unwrap().ja4()[8..10].to_owned()
    };
    // Two hexadecimal digits where one of its ends is no letter and no digit.
    assert_eq!(["h2", "x", "http/1.1"].map(|name| protocol(name.as_bytes())), ["h2", "xx", "h1"]);
    assert_eq!([&b"\xab..\xcd"[..], b"a-", b""].map(protocol), ["ad", "6d", "00"]);
    let many = Fingerprint::read(&hello(&[0x1301; 120], &[])).unwrap();
    assert!(many.ja4().starts_with("t12i9900"), "{}", many.ja4());
}
