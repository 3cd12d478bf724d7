//! Server names that are no domain names, between our own ends; what passes has the name itself.

use super::super::any_name::{read_back, spell};
use super::super::hello::Greeting;
use super::server::{World, converse_both};
use super::*;

const NAMES: [&str; 6] =
    ["sni.app.9090", "10.0.0.1", "fd00::1", "*.b.test", "a_b.31", "app.9090.sni.invalid"];

#[test]
fn every_name_is_read_back_as_it_was() {
    for name in NAMES {
        let spelled = spell(name).unwrap();
        assert_eq!(read_back(spelled.as_ref()).as_deref(), Some(name));
        assert!(ServerName::verbatim(name).is_ok());
    }
    for name in ["a.test", "_a.test", "A-1.test"] {
        assert_eq!(spell(name), None, "{name} is one");
        assert_eq!(read_back(name), None);
    }
    let (long, dots) = (format!("{}.1", "a".repeat(64)), format!("1{}", ".1".repeat(125)));
    for name in ["", "a..1", ".1", "-.1", "a\0.1", &*long, &*dots] {
        assert!(spell(name).is_none() && ServerName::verbatim(name).is_err(), "{name:?}");
    }
    for spelled in ["a_.sni.invalid", "a_2.sni.invalid", "a_zz.sni.invalid", "_ff.sni.invalid"] {
        assert_eq!(read_back(spelled), None, "{spelled}");
    }
}

/// Each with a certificate of the client's, which TLS 1.2 signs for with all messages, and the second time resumed.
#[test]
fn handshakes_with_any_name_are_like_others() {
    let world = World::new();
    let shown = world.authority.leaf(&["me.test"], YEARS);
    for (name, version, asks_again) in NAMES.into_iter().flat_map(|name| {
        let all = [(Version::Tls12, false), (Version::Tls13, false), (Version::Tls13, true)];
        all.map(|(version, asks_again)| (name, version, asks_again))
    }) {
        let trust = Some(world.authority.trust(Names::Any));
        let group = if asks_again { "P-256" } else { "X25519" };
        let groups = vec![Group::named(group).unwrap()];
        let settings =
            ServerSettings { trust, groups, requires_certificate: true, ..world.settings() };
        let server = settings.build().unwrap().server(&clock());
        let client = ClientSettings {
            trust: world.authority.trust(Names::Any),
            identity: Some(shown.identity()),
            groups: ["X25519", "P-256"].map(|name| Group::named(name).unwrap()).to_vec(),
            ..world.client_settings(version)
        };
        let client = client.build().unwrap().client(&clock());
        let asked = ServerName::verbatim(name).unwrap();
        for (size, is_resumed) in [(usize::MAX, false), (1, true), (7, true)] {
            let about = format!("{name} {version:?} {asks_again} {size}");
            let mut theirs = client.connect(&asked).unwrap().remembering(&asked);
            let mut ours = server.accept();
            let flight = theirs.take_output();
            let Greeting::Hello { server_name, .. } = Greeting::read(&flight) else {
                panic!("{about}")
            };
            assert_eq!(server_name.as_deref(), Some(name));
            for piece in flight.chunks(size) {
                ours.receive(piece, &mut BytesMut::new()).unwrap();
            }
            converse_both(&mut theirs, &mut ours, size).expect(&about);
            assert!(ours.is_established() && theirs.is_established(), "{about}");
            assert_eq!(ours.is_resumed(), is_resumed, "{about}");
            assert_eq!(ours.server_name(), Some(name));
            assert_eq!(theirs.asked_name(), Some(name));
            assert_eq!(ours.peer_certificate(), Some(&shown.der[..]));
        }
    }
}

#[test]
fn a_certificate_is_chosen_and_judged_by_any_name() {
    let world = World::new();
    let of = |names: &[&str]| world.authority.leaf(names, YEARS).identity();
    let identities = vec![of(&["a.test"]), of(&["app.test", "10.0.0.1"]), of(&["*.9090"])];
    let settings = ServerSettings { identities, ..world.settings() };
    let server = settings.build().unwrap().server(&clock());
    let client = ClientSettings {
        trust: world.authority.trust(Names::Server),
        ..world.client_settings(Version::Tls13)
    };
    let client = client.build().unwrap().client(&clock());
    for (name, fits) in [("app.9090", true), ("a.app.9090", false), ("10.0.0.1", false)] {
        let mut theirs = client.connect(&ServerName::verbatim(name).unwrap()).unwrap();
        let outcome = converse_both(&mut theirs, &mut server.accept(), usize::MAX);
        let expected = if fits { Ok(()) } else { Err(Fault::Certificate(Distrust::Name)) };
        assert_eq!(outcome, expected, "{name}");
    }
}
