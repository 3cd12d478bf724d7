use super::*;

#[test]
fn values_cannot_end_a_line() {
    let mut head = Head::response(200);
    head.append_bytes(b"x", b" a\r\nSet-Cookie: b\0 ");
    head.set(Name::Server, b"\nx");
    assert_eq!(head.get_bytes(b"x"), Some(&b"a  Set-Cookie: b "[..]));
    assert_eq!(head.get(Name::Server), Some(&b" x"[..]));
}

#[test]
fn a_line_cannot_be_ended_from_any_place_in_a_value() {
    for length in 1..40 {
        for place in 0..length {
            for byte in 0..=u8::MAX {
                let mut value = vec![b'x'; length];
                value[place] = byte;
                let mut head = Head::default();
                head.append(Name::Cookie, &value);
                let plain = |byte: &u8| if b"\r\n\0".contains(byte) { b' ' } else { *byte };
                let expected: Vec<u8> = trim(&value).iter().map(plain).collect();
                assert_eq!(head.get(Name::Cookie), Some(&expected[..]), "{byte:#x} at {place}");
            }
        }
    }
}

#[test]
fn names_that_are_no_tokens_are_not_taken() {
    let mut head = Head::default();
    for name in [&b""[..], b"a b", b"a:", b"a\r\n", b"\xe9", &[b'a'; MAX_NAME + 1]] {
        assert!(!head.append_bytes(name, b"x"));
        assert!(!head.set_bytes(name, b"x"));
    }
    assert!(!head.append(Name::Custom, b"x") && !head.set(Name::Custom, b"x"));
    assert!(head.append_bytes(&[b'a'; MAX_NAME], b"x"));
    assert_eq!(head.len(), 1);
}

#[test]
fn what_frames_the_first_line_cannot_be_broken_out_of() {
    let mut head = Head::request(b"GET", b"http", b"a b\r\nc", b"/x y\r\n\xe9#");
    assert_eq!(head.authority(), b"abc");
    assert_eq!(head.path(), b"/x%20y%0D%0A%E9%23");
    assert!(!head.set_method(b"G T") && !head.set_method(b"") && !head.set_scheme(b"ht tp"));
    assert_eq!((head.method(), head.scheme()), (Method::Get, &b"http"[..]));
    assert!(head.set_method(b"FROB") && head.set_scheme(b"ws"));
    assert_eq!(
        (head.method(), head.method_bytes(), head.scheme()),
        (Method::Other, &b"FROB"[..], &b"ws"[..])
    );
    assert!(head.set_scheme(b"https"));
    assert_eq!(head.scheme(), b"https");
}

#[test]
fn set_replaces_the_first_and_removes_the_others() {
    let mut head = sample();
    head.set(Name::Via, b"new");
    head.set_bytes(b"X-A", b"3");
    let fields: Vec<(&[u8], &[u8])> =
        head.iter().map(|field| (field.name_bytes, field.value)).collect();
    assert_eq!(fields, [(&b"via"[..], &b"new"[..]), (b"X-a", b"3"), (b"server", b"s")]);
    head.set(Name::Date, b"d");
    assert_eq!(head.len(), 4);
}

#[test]
fn remove_takes_all_of_a_name_and_says_whether_there_was_one() {
    let mut head = sample();
    assert!(head.remove(Name::Via) && !head.remove(Name::Via) && !head.remove(Name::Date));
    assert!(!head.remove(Name::Custom), "custom names are told apart by their bytes");
    assert!(
        head.remove_bytes(b"x-A") && !head.remove_bytes(b"x-a") && head.remove_bytes(b"SERVER")
    );
    assert!(head.is_empty());
}

#[test]
fn several_names_are_removed_at_once() {
    let mut head = sample();
    head.remove_each(&[Name::Etag, Name::Vary]);
    assert_eq!(head.len(), 5, "none was there");
    head.append(Name::Etag, b"b");
    head.remove_each(&[Name::Via, Name::Etag, Name::Vary]);
    let left: Vec<Name> = head.iter().map(|field| field.name).collect();
    assert_eq!(left, [Name::Custom, Name::Server, Name::Custom]);
}

#[test]
fn compiled_names_do_what_bytes_do() {
    let mut head = sample();
    let custom = HeaderName::new("X-A").unwrap();
    let known: HeaderName = "VIA".parse().unwrap();
    assert_eq!((custom.as_str(), custom.name()), ("x-a", Name::Custom));
    assert_eq!((known.as_str(), known.name()), ("via", Name::Via));
    assert_eq!(head.get_all(&custom).collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(head.get_all(&known).collect::<Vec<_>>(), [b"p", b"q"]);
    head.set_named(&custom, b"9");
    head.append_named(&known, b"r");
    assert_eq!(
        (head.get_named(&custom), head.get_named(&known)),
        (Some(&b"9"[..]), Some(&b"p"[..]))
    );
    assert!(head.remove_named(&custom) && head.remove_named(&known));
    assert_eq!(head.len(), 1);
    for bad in ["", "a b", "é", &"a".repeat(MAX_NAME + 1)] {
        assert_eq!(HeaderName::try_from(bad), Err(InvalidName));
    }
}

#[test]
fn retain_keeps_order() {
    let mut head = sample();
    head.retain(|field| field.value != b"q" && field.value != b"1");
    assert_eq!(head.iter().map(|field| field.value).collect::<Vec<_>>(), [b"p", b"s", b"2"]);
}

#[test]
fn sizes_are_counted_as_envoy_counts_them() {
    let mut head = Head::request(b"GET", b"http", b"a", b"/");
    assert_eq!(head.byte_size(), ":methodGET:schemehttp:authoritya:path/".len());
    head.append_bytes(b"x-a", b"12");
    assert_eq!(head.byte_size(), ":methodGET:schemehttp:authoritya:path/x-a12".len());
    let mut response = Head::response(204);
    response.append(Name::Server, b"s");
    assert_eq!(response.byte_size(), ":status204servers".len());
}

#[test]
fn a_reset_head_is_as_new() {
    let mut head = sample();
    head.set_method(b"POST");
    head.set_path(b"/x");
    head.reset();
    let fresh = Head::default();
    assert_eq!(
        (head.len(), head.status(), head.path(), head.method()),
        (0, 0, fresh.path(), fresh.method())
    );
    assert_eq!(head.get(Name::Via), None);
}

#[test]
fn the_parts_are_small() {
    assert_eq!(size_of::<Field>(), 16);
    let vectors = 2 * size_of::<Vec<u8>>();
    assert!(size_of::<Parts>() - vectors <= 80, "{}", size_of::<Parts>());
}

fn sample() -> Head {
    let mut head = Head::response(200);
    head.append(Name::Via, b"p");
    head.append_bytes(b"X-a", b"1");
    head.append(Name::Via, b"q");
    head.append(Name::Server, b"s");
    head.append_bytes(b"x-A", b"2");
    head
}

#[test]
fn prepared_fields_and_numbers_are_set_as_any_value_is() {
    let numbers = (0..20).flat_map(|power| [10_u64.pow(power) - 1, 10_u64.pow(power)]);
    for (number, length) in numbers.chain([u64::MAX]).zip((0..).step_by(3)) {
        let mut value = vec![b'v'; length];
        value.extend_from_slice(b"\r\nx ");
        for name in [Name::Server, Name::ContentLength, Name::XForwardedProto, Name::Te] {
            let mut heads = [Head::default(), Head::default()];
            for head in &mut heads {
                head.append(Name::Te, b"first");
                head.append(Name::Server, b"twice");
                head.append(Name::ContentType, b"between");
                head.append(Name::Server, b"twice");
            }
            let [ours, theirs] = &mut heads;
            let prepared = PreparedField::new(name, &value);
            ours.set_prepared(&prepared);
            theirs.set(name, &value);
            assert_eq!(Some(prepared.value()), theirs.get(name));
            ours.set_number(name, number);
            ours.set_prepared(&PreparedField::new(name, number.to_string().as_bytes()));
            ours.set_number(Name::Date, number);
            theirs.set(name, number.to_string().as_bytes());
            theirs.set(Name::Date, number.to_string().as_bytes());
            ours.set_prepared(&PreparedField::new(Name::Custom, &value));
            ours.set_number(Name::Custom, number);
            assert!(ours.iter().eq(theirs.iter()), "{ours:?} {theirs:?}");
            let lines = |head: &Head| {
                let lines = head.fields().iter().filter_map(Field::written_line);
                lines.map(|line| head.line_bytes(line).to_vec()).collect::<Vec<_>>()
            };
            assert_eq!(lines(ours), lines(theirs));
        }
    }
}
