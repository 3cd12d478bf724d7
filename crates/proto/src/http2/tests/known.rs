//! Blocks that come again mean what they would if they had not come before.

use super::*;

/// A request whose `x-a` is the field that entered the table last, or one behind it.
fn request_with(index: u8) -> Vec<u8> {
    // GET, http, `/`, `:authority: a`, and an index of the table that grows.
    [&[0x82, 0x86, 0x84, 0x01, 1, b'a'][..], &[0x80 | index]].concat()
}

/// A request that enters `x-a: value` into the table.
fn entering(value: u8) -> Vec<u8> {
    [&[0x82, 0x86, 0x84, 0x01, 1, b'a'][..], &[0x40, 3, b'x', b'-', b'a', 1, value]].concat()
}

/// The value of `x-a` of the request in a block, and its number of streams before.
fn told(scene: &mut Scene, id: &mut u32, block: &[u8]) -> Result<String, Error> {
    *id += 2;
    let arrived = scene.feed(&frame(Kind::Headers, WHOLE | END, *id - 2, block))?;
    let (number, _) = arrived[0].split_once(' ').unwrap();
    let number = number.parse().unwrap();
    scene.connection.send_head(number, &Head::response(200), true, &mut Out::new());
    scene.connection.release(number);
    scene.written();
    Ok(arrived[0].split_once(' ').unwrap().1.to_owned())
}

#[test]
fn a_block_that_comes_again_is_read_with_the_table_as_it_is_now() {
    let (mut scene, mut id) = (Scene::server(Options::default()), 1);
    let scene = &mut scene;
    let first = told(scene, &mut id, &entering(b'1')).unwrap();
    let newest = request_with(62);
    for _ in 0..4 {
        assert_eq!(told(scene, &mut id, &newest).unwrap(), first);
    }
    // The same bytes mean the field that has entered since.
    let second = told(scene, &mut id, &entering(b'2')).unwrap();
    assert_ne!(first, second);
    for _ in 0..4 {
        assert_eq!(told(scene, &mut id, &newest).unwrap(), second);
        assert_eq!(told(scene, &mut id, &request_with(63)).unwrap(), first);
    }
    // A table without fields has none to mean.
    let emptied = [&[0x20, 0x3f, 0xe1, 0x1f][..], &request_with(62)].concat();
    assert_eq!(told(scene, &mut id, &emptied), Err(Error::BadBlock));
}

#[test]
fn a_table_that_must_become_smaller_is_asked_for_before_a_known_block() {
    let (mut scene, mut id) = (Scene::server(Options::default()), 1);
    let plain = [0x82, 0x86, 0x84, 0x01, 1, b'a'];
    let first = told(&mut scene, &mut id, &plain).unwrap();
    for _ in 0..4 {
        assert_eq!(told(&mut scene, &mut id, &plain).unwrap(), first);
    }
    scene.connection.decoder.set_max_size(100);
    assert_eq!(told(&mut scene, &mut id, &plain), Err(Error::BadBlock));
}

#[test]
fn what_may_enter_no_table_is_not_kept() {
    let (mut scene, mut id) = (Scene::server(Options::default()), 1);
    let secret = [&[0x82, 0x86, 0x84, 0x01, 1, b'a'][..], &[0x10, 3, b'x', b'-', b'a', 1, b'1']];
    for (block, is_kept) in [(secret.concat(), false), (request_with(0x20), true)] {
        for _ in 0..4 {
            told(&mut scene, &mut id, &block).unwrap();
        }
        assert_eq!(scene.connection.known[0].is_kept(&block), is_kept, "{block:x?}");
    }
}

#[test]
fn blocks_that_never_come_again_are_kept_ever_less_often() {
    let (mut scene, mut id) = (Scene::server(Options::default()), 1);
    let mut kept = Vec::new();
    for number in 0..200 {
        let path = format!("/{number:03}");
        let block = [&[0x82, 0x86, 0x04, 4], path.as_bytes(), &[0x01, 1, b'a']].concat();
        told(&mut scene, &mut id, &block).unwrap();
        if scene.connection.known[0].is_kept(&block) {
            kept.push(number);
        }
    }
    assert_eq!(kept, [0, 2, 6, 14, 30, 62, 126, 190]);
    assert!(!scene.connection.known[0].has_head(), "no head that never comes again");
}

#[test]
fn a_connection_that_rests_keeps_none() {
    let (mut scene, mut id) = (Scene::server(Options::default()), 1);
    for _ in 0..4 {
        told(&mut scene, &mut id, &request_with(0x20)).unwrap();
    }
    assert!(scene.connection.known[0].has_head());
    scene.connection.rest();
    assert!(!scene.connection.known[0].is_kept(&request_with(0x20)));
}
