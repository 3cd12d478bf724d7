//! What a decoder refuses, where the limits are, and what an encoder keeps out of tables.

use super::*;

const METHOD_GET: u8 = 0x82;

/// `name: value` as a literal that enters the table.
fn entering(name: &str, value: &str) -> Vec<u8> {
    literal(0x40, name.as_bytes(), value.as_bytes())
}

fn literal(pattern: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut block = vec![pattern];
    for text in [name, value] {
        block.extend_from_slice(&number(text.len(), 7, 0));
        block.extend_from_slice(text);
    }
    block
}

fn number(value: usize, prefix: u32, pattern: u8) -> Vec<u8> {
    let most = (1 << prefix) - 1;
    if value < most {
        return vec![pattern | value as u8];
    }
    let (mut octets, mut left) = (vec![pattern | most as u8], value - most);
    while left >= 128 {
        octets.push(left as u8 | 0x80);
        left >>= 7;
    }
    octets.push(left as u8);
    octets
}

fn size_update(size: usize) -> Vec<u8> {
    number(size, 5, 0x20)
}

fn refused(decoder: &mut Decoder, block: &[u8]) -> Error {
    decoded(decoder, block).unwrap_err()
}

#[test]
fn indices_that_neither_table_has_are_refused() {
    let mut decoder = Decoder::new(4096);
    assert_eq!(refused(&mut decoder, &[0x80]), Error::UnknownIndex(0));
    assert_eq!(refused(&mut decoder, &number(62, 7, 0x80)), Error::UnknownIndex(62));
    assert_eq!(
        refused(&mut decoder, &number(u32::MAX as usize, 7, 0x80)),
        Error::UnknownIndex(u32::MAX)
    );
    for pattern in [(6, 0x40), (4, 0x00), (4, 0x10)] {
        let block = [number(62, pattern.0, pattern.1), vec![0]].concat();
        assert_eq!(refused(&mut decoder, &block), Error::UnknownIndex(62));
    }
    decoded(&mut decoder, &entering("a", "b")).unwrap();
    assert_eq!(decoded(&mut decoder, &number(62, 7, 0x80)).unwrap(), fields(&["a: b"]));
    assert_eq!(decoded(&mut decoder, &[0x7e, 1, b'c']).unwrap(), fields(&["a: c"]));
    assert_eq!(refused(&mut decoder, &number(64, 7, 0x80)), Error::UnknownIndex(64));
}

#[test]
fn a_block_that_ends_within_a_field_is_refused_wherever_it_is_cut() {
    let pieces = [
        entering("name", "value"),
        octets("5886 a8eb 1064 9cbf"),
        // An index of two octets.
        octets("0f0d 0232 30"),
        literal(0x10, b"key", &[b'x'; 200]),
        number(62, 7, 0x80),
    ];
    let block = pieces.concat();
    let ends: Vec<usize> = (0..=5).map(|count| pieces[..count].concat().len()).collect();
    for cut in 0..=block.len() {
        let answer = decoded(&mut Decoder::new(4096), &block[..cut]).map(|fields| fields.len());
        let whole = ends.iter().position(|end| *end == cut).ok_or(Error::Truncated);
        assert_eq!(answer, whole, "{cut}");
    }
}

#[test]
fn the_tables_size_changes_at_the_beginning_of_a_block_alone() {
    let get = vec![METHOD_GET];
    let ok = |updates: &[usize]| {
        let updates: Vec<u8> = updates.iter().flat_map(|size| size_update(*size)).collect();
        decoded(&mut Decoder::new(4096), &[updates, get.clone()].concat()).map(|_| ())
    };
    assert_eq!(ok(&[0]), Ok(()));
    assert_eq!(ok(&[4096]), Ok(()));
    assert_eq!(ok(&[0, 4096]), Ok(()));
    assert_eq!(ok(&[4097]), Err(Error::SizeNotOffered(4097)));
    assert_eq!(ok(&[0, 4097]), Err(Error::SizeNotOffered(4097)));
    assert_eq!(ok(&[1, 2, 3]), Err(Error::MisplacedSizeUpdate));
    let late = [get, size_update(0)].concat();
    assert_eq!(refused(&mut Decoder::new(4096), &late), Error::MisplacedSizeUpdate);
    // A block of nothing else is one.
    assert_eq!(decoded(&mut Decoder::new(4096), &size_update(0)), Ok(Vec::new()));
}

#[test]
fn a_table_that_must_become_smaller_does_so_at_once() {
    let offering = |sizes: &[u32]| {
        let mut decoder = Decoder::new(4096);
        decoded(&mut decoder, &entering("a", "b")).unwrap();
        sizes.iter().for_each(|size| decoder.set_max_size(*size));
        decoder
    };
    let missing =
        |sizes, block: &[u8]| refused(&mut offering(sizes), block) == Error::MissingSizeUpdate;
    assert!(missing(&[100], &[METHOD_GET]));
    assert!(missing(&[100], &[]));
    assert!(missing(&[100, 4096], &size_update(4096)));
    assert_eq!(refused(&mut offering(&[100]), &size_update(101)), Error::SizeNotOffered(101));
    let mut decoder = offering(&[100, 4096]);
    decoded(&mut decoder, &[size_update(100), size_update(4096)].concat()).unwrap();
    decoded(&mut decoder, &[METHOD_GET]).unwrap();
    // What need not change may stay.
    decoded(&mut offering(&[8192]), &[METHOD_GET]).unwrap();
    decoded(&mut offering(&[8192, 4096]), &[METHOD_GET]).unwrap();
}

#[test]
fn the_oldest_fields_leave_and_a_field_too_large_empties_the_table() {
    let mut decoder = Decoder::new(100);
    // 34 octets each.
    for name in ["a", "b"] {
        decoded(&mut decoder, &entering(name, "1")).unwrap();
    }
    assert_eq!(kept(&decoder.table), fields(&["b: 1", "a: 1"]));
    decoded(&mut decoder, &entering("c", "1")).unwrap();
    assert_eq!(kept(&decoder.table), fields(&["c: 1", "b: 1"]));
    decoded(&mut decoder, &entering("d", &"x".repeat(67))).unwrap();
    assert_eq!((kept(&decoder.table).len(), decoder.table.size()), (1, 100));
    let large = "x".repeat(68);
    let answer = decoded(&mut decoder, &entering("e", &large)).unwrap();
    assert_eq!(answer, [(b"e".to_vec(), large.into_bytes())]);
    assert_eq!((kept(&decoder.table).len(), decoder.table.size()), (0, 0));
}

/// RFC 7541 §4.4: the name of a field may be that of one that leaves for it.
#[test]
fn a_name_outlives_the_field_that_it_came_with() {
    let mut decoder = Decoder::new(100);
    decoded(&mut decoder, &entering("first-name", "1")).unwrap();
    decoded(&mut decoder, &entering("second", "1")).unwrap();
    let block = [number(63, 6, 0x40), number(30, 7, 0), vec![b'x'; 30]].concat();
    let answer = decoded(&mut decoder, &block).unwrap();
    assert_eq!(answer, [(b"first-name".to_vec(), vec![b'x'; 30])]);
    assert_eq!(kept(&decoder.table), answer);
}

#[test]
fn limits_hold_to_the_octet_and_the_table_stays_right() {
    let block = [entering("a", "b"), entering("c", "d"), vec![METHOD_GET]].concat();
    // `:method` and `GET` are ten octets.
    let size = 34 + 34 + 42;
    let decode = |limits: Limits| {
        let (mut decoder, mut seen) = (Decoder::new(4096), 0);
        let answer = decoder.decode(&block, &limits, &mut |_| seen += 1);
        assert_eq!(kept(&decoder.table), fields(&["c: d", "a: b"]));
        (answer, seen)
    };
    let limits = |max_list_size, max_fields| Limits { max_list_size, max_fields };
    assert_eq!(decode(limits(size, 3)), (Ok(()), 3));
    assert_eq!(decode(limits(size - 1, 3)), (Err(Error::TooLarge), 2));
    assert_eq!(decode(limits(size, 2)), (Err(Error::TooManyFields), 2));
    assert_eq!(decode(limits(34, 3)), (Err(Error::TooLarge), 1));
    assert_eq!(decode(limits(0, 3)), (Err(Error::TooLarge), 0));
    assert!(!Error::TooLarge.is_fatal() && Error::FarTooLarge.is_fatal());
}

#[test]
fn a_bomb_of_indices_or_names_is_not_read_to_its_end() {
    let limits = Limits { max_list_size: 60 * 1024, max_fields: 100 };
    let long = "n".repeat(4000);
    for bomb in [[number(62, 7, 0x80), vec![]], [number(62, 6, 0x40), vec![0]]] {
        let mut decoder = Decoder::new(4096);
        decoded(&mut decoder, &entering(&long, "")).unwrap();
        let (mut seen, bomb) = (0, bomb.concat());
        let mut few = |times| decoder.decode(&bomb.repeat(times), &limits, &mut |_| seen += 1);
        assert_eq!(few(100), Err(Error::TooLarge));
        assert_eq!(few(10_000), Err(Error::FarTooLarge));
        assert_eq!(seen, 2 * (60 * 1024 / 4032));
    }
    // Fields that cost nothing are counted, and read.
    let mut decoder = Decoder::new(4096);
    let many = vec![METHOD_GET; 16_000];
    assert_eq!(decoder.decode(&many, &limits, &mut |_| ()), Err(Error::TooLarge));
}

#[test]
fn what_is_not_well_formed_is_marked_whenever_it_comes() {
    let well_formed = |name: &[u8], value: &[u8]| {
        let mut decoder = Decoder::new(4096);
        let (mut first, mut again) = (None, None);
        let block = literal(0x40, name, value);
        let sink = &mut |field: Field<'_>| first = Some(field.well_formed);
        decoder.decode(&block, &PLENTY, sink).unwrap();
        let sink = &mut |field: Field<'_>| again = Some(field.well_formed);
        decoder.decode(&number(62, 7, 0x80), &PLENTY, sink).unwrap();
        assert_eq!(first, again);
        // A new value does not mend a name, and a good name no value.
        let like = [number(62, 6, 0x40), number(value.len(), 7, 0), value.to_vec()].concat();
        let sink = &mut |field: Field<'_>| again = Some(field.well_formed);
        decoder.decode(&like, &PLENTY, sink).unwrap();
        assert_eq!(first, again);
        first.unwrap()
    };
    for name in ["a", "host", ":path", "x-y_z", "1"] {
        assert!(well_formed(name.as_bytes(), b"v"), "{name}");
    }
    for name in ["", "A", "Host", "hosT", ":other", ":Path", "a b", "a:", "a\r\n", "\u{e9}", "a\0"]
    {
        assert!(!well_formed(name.as_bytes(), b"v"), "{name:?}");
    }
    for byte in 0..=u8::MAX {
        let control = byte.is_ascii_control() && byte != b'\t';
        for length in [3, 15, 16, 17, 31, 32, 33] {
            for at in [1, length / 2, length - 2] {
                let mut value = vec![b'v'; length];
                value[at] = byte;
                assert_eq!(well_formed(b"a", &value), !control, "{byte:#x} at {at} of {length}");
            }
        }
        let edge = control || matches!(byte, b' ' | b'\t');
        assert_eq!(well_formed(b"a", &[byte, b'v']), !edge);
        assert_eq!(well_formed(b"a", &[b'v', byte]), !edge);
    }
    assert!(well_formed(b"a", b""));
}

#[test]
fn secrets_enter_no_table_and_are_marked() {
    let mut encoder = Encoder::new(4096);
    let mut check = |name: &str, value: &str, sensitive, never| {
        for _ in 0..3 {
            let mut out = BytesMut::new();
            encoder.field(
                FieldName::resolve(name.as_bytes()),
                value.as_bytes(),
                sensitive,
                &mut out,
            );
            let mut seen = Vec::new();
            let sink = &mut |field: Field<'_>| {
                seen.push((field.name.as_bytes() == name.as_bytes(), field.never_indexed))
            };
            Decoder::new(4096).decode(&out, &PLENTY, sink).unwrap();
            assert_eq!(seen, [(true, never)], "{name}");
        }
        assert_eq!(kept(&encoder.table), []);
    };
    check("authorization", "Bearer 0123456789012345678901234567890", false, true);
    check("proxy-authorization", "Basic 0123", false, true);
    check("cookie", "a=0123456789012345x", false, true);
    check("set-cookie", "a=0123456789012345x", false, true);
    check("set-cookie", "a=0123456789012345xy", false, false);
    check("x-key", "0123456789", true, true);
    check("accept-encoding", "gzip, deflate", true, true);
    check(":path", "/sample/path", false, false);
    check("content-length", "1234", false, false);
}

#[test]
fn names_are_written_in_small_letters() {
    let mut out = BytesMut::new();
    let mut encoder = Encoder::new(0);
    encoder.field(FieldName::Other(b"X-Some-Name"), b"A", false, &mut out);
    encoder.field(FieldName::Other(b"Host"), b"b", false, &mut out);
    let expected = fields(&["x-some-name: A", "host: b"]);
    assert_eq!(decoded(&mut Decoder::new(0), &out).unwrap(), expected);
}

#[test]
fn the_peers_sizes_are_told_before_the_next_fields() {
    let begun = |own: u32, peers: &[u32]| {
        let (mut encoder, mut out) = (Encoder::new(own), BytesMut::new());
        peers.iter().for_each(|size| encoder.set_max_size(*size));
        encoder.begin(&mut out);
        let told = out.split().to_vec();
        encoder.begin(&mut out);
        assert!(out.is_empty());
        told
    };
    assert!(begun(4096, &[]).is_empty());
    assert!(begun(4096, &[4096, 65_536]).is_empty());
    assert_eq!(begun(0, &[]), size_update(0));
    assert_eq!(begun(8192, &[8192]), size_update(8192));
    assert_eq!(begun(4096, &[0]), size_update(0));
    assert_eq!(begun(4096, &[0, 4096]), [size_update(0), size_update(4096)].concat());
    assert_eq!(begun(4096, &[300, 100, 200]), [size_update(100), size_update(200)].concat());
}

#[test]
fn an_ordinary_connection_holds_little_and_a_long_field_nothing_for_good() {
    let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new(4096));
    assert_eq!((encoder.capacity(), decoder.capacity()), (0, 0));
    let mut exchange = |name: &str, value: &str| {
        let mut out = BytesMut::new();
        encoder.begin(&mut out);
        encoder.field(FieldName::resolve(name.as_bytes()), value.as_bytes(), false, &mut out);
        let answer = decoded(&mut decoder, &out).unwrap();
        assert_eq!(answer, [(name.as_bytes().to_vec(), value.as_bytes().to_vec())]);
        encoder.capacity() + decoder.capacity()
    };
    for value in ["orders.example.com", "*/*", "en-US,en;q=0.5", "no-cache"] {
        exchange(":authority", value);
    }
    let ordinary = exchange("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0)");
    assert!(ordinary <= 2048, "{ordinary} bytes");
    let after = exchange("cookie", &"x".repeat(100_000));
    assert!(after <= ordinary + 4096, "{after} bytes");
}

#[test]
fn a_table_that_becomes_smaller_gives_its_memory_back() {
    let (mut encoder, mut decoder) = (Encoder::new(1 << 20), Decoder::new(1 << 20));
    encoder.set_max_size(1 << 20);
    for number in 0..1000 {
        let (mut out, name) = (BytesMut::new(), format!("{number:0>500}"));
        encoder.begin(&mut out);
        encoder.field(FieldName::Other(name.as_bytes()), b"a", false, &mut out);
        decoded(&mut decoder, &out).unwrap();
    }
    assert_eq!((kept(&encoder.table).len(), decoder.table.size()), (1000, 1000 * 533));
    let before = encoder.capacity() + decoder.capacity();
    encoder.set_max_size(100);
    let mut out = BytesMut::new();
    encoder.begin(&mut out);
    decoded(&mut decoder, &out).unwrap();
    let after = encoder.capacity() + decoder.capacity();
    assert!(before > 1_000_000 && after < 10_000, "{before} to {after}");
}
