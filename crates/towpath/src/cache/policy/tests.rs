use super::*;

/// 2026-01-01T00:00:00Z.
const NOW: u64 = 1_767_225_600;

fn response(status: u16, fields: &[(&str, &str)]) -> Head {
    let mut head = Head::response(status);
    for (name, value) in fields {
        assert!(head.append_bytes(name.as_bytes(), value.as_bytes()));
    }
    head
}

fn request(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn stored(fields: &[(&str, &str)]) -> Option<Stored> {
    Stored::of(&[], &response(200, fields), NOW, NOW)
}

fn usable(control: &str, asked: &str, after_s: u64) -> Use {
    let asked = if asked.is_empty() { Vec::new() } else { request(&[("Cache-Control", asked)]) };
    let fields = [("cache-control", control), ("etag", "\"a\"")];
    stored(&fields).unwrap().usable(&asked, NOW + after_s)
}

#[test]
fn what_may_not_be_kept_or_is_of_no_use_is_not() {
    for (status, fields, is_kept) in [
        (200, &[("cache-control", "max-age=1")][..], true),
        (200, &[("cache-control", "private, max-age=1")], true),
        (200, &[("cache-control", "no-store, max-age=1")], false),
        (200, &[("cache-control", "no-store, must-understand, max-age=1")], true),
        (418, &[("cache-control", "no-store, must-understand, max-age=1")], false),
        (200, &[("cache-control", "no-cache"), ("etag", "\"a\"")], true),
        (200, &[("cache-control", "max-age=0")], false),
        (200, &[], false),
        (200, &[("etag", "\"a\"")], true),
        (200, &[("cache-control", "max-age=1"), ("vary", "accept, *")], false),
        (206, &[("cache-control", "max-age=1")], false),
        (304, &[("cache-control", "max-age=1")], false),
        (302, &[("etag", "\"a\"")], false),
        (302, &[("cache-control", "max-age=1")], true),
        (404, &[("expires", "Fri, 02 Jan 2026 00:00:00 GMT")], true),
        (500, &[("cache-control", "max-age=1")], false),
        (401, &[("cache-control", "max-age=1")], false),
    ] {
        let kept = Stored::of(&[], &response(status, fields), NOW, NOW);
        assert_eq!(kept.is_some(), is_kept, "{status} {fields:?}");
    }
    let fresh = response(200, &[("cache-control", "max-age=1")]);
    let refusing = request(&[("cache-control", "no-store")]);
    assert_eq!(Stored::of(&refusing, &fresh, NOW, NOW), None);
}

#[test]
fn ages_count_the_way_and_the_time_before() {
    let age = |fields: &[(&str, &str)], requested_s, received_s, now_s| {
        let all = [&[("cache-control", "max-age=9")], fields].concat();
        Stored::of(&[], &response(200, &all), requested_s, received_s).unwrap().age_s(now_s)
    };
    assert_eq!(age(&[], NOW, NOW, NOW + 5), 5);
    assert_eq!(age(&[], NOW - 3, NOW, NOW), 3, "the answer may be as old as the question");
    assert_eq!(age(&[("age", "10")], NOW - 3, NOW, NOW + 1), 14);
    let date = ("date", "Wed, 31 Dec 2025 23:59:00 GMT");
    assert_eq!(age(&[date, ("age", "10")], NOW, NOW, NOW + 1), 61);
    assert_eq!(age(&[("date", "Thu, 01 Jan 2026 00:01:00 GMT")], NOW, NOW, NOW), 0);
    assert_eq!(age(&[("age", "nonsense")], NOW, NOW, NOW), 0);
    assert_eq!(age(&[], NOW, NOW, NOW - 1), OLDEST_S, "a clock that was set back");
}

#[test]
fn lifetimes_come_from_the_first_that_names_one() {
    let date = ("date", "Thu, 01 Jan 2026 00:00:00 GMT");
    let expires = ("expires", "Thu, 01 Jan 2026 01:00:00 GMT");
    let changed = ("last-modified", "Wed, 31 Dec 2025 23:50:00 GMT");
    let of = |fields: &[(&str, &str)]| stored(fields).map(|it| it.lifetime_s());
    assert_eq!(of(&[("cache-control", "max-age=5"), date, expires]), Some(5));
    assert_eq!(of(&[("cache-control", "s-maxage=9"), date, expires]), Some(3600));
    assert_eq!(of(&[date, expires, changed]), Some(3600));
    assert_eq!(of(&[("expires", "0"), changed]), Some(0));
    assert_eq!(of(&[date, changed]), Some(60), "a tenth of ten minutes");
    assert_eq!(of(&[("last-modified", "Mon, 01 Jan 2001 00:00:00 GMT")]), Some(MOST_GUESSED_S));
}

#[test]
fn requests_and_responses_say_when_an_old_answer_will_do() {
    for (control, asked, after_s, then) in [
        ("max-age=10", "", 9, Use::Fresh),
        ("max-age=10", "", 10, Use::Validate),
        ("MAX-AGE=10", "", 9, Use::Fresh),
        ("max-age=10, no-cache", "", 0, Use::Validate),
        ("max-age=10", "no-cache", 0, Use::Validate),
        ("max-age=10", "max-age=3", 3, Use::Fresh),
        ("max-age=10", "max-age=3", 4, Use::Validate),
        ("max-age=10", "min-fresh=5", 4, Use::Fresh),
        ("max-age=10", "min-fresh=5", 5, Use::Validate),
        ("max-age=10", "max-stale", 9999, Use::Accepted),
        ("max-age=10", "max-stale=5", 14, Use::Accepted),
        ("max-age=10", "max-stale=5", 15, Use::Validate),
        ("max-age=10, must-revalidate", "max-stale", 10, Use::Validate),
        ("max-age=10, stale-while-revalidate=5", "", 14, Use::Meanwhile),
        ("max-age=10, stale-while-revalidate=5", "", 15, Use::Validate),
        ("max-age=10, stale-while-revalidate=5", "no-cache", 11, Use::Validate),
        ("max-age=10, max-age=1", "", 5, Use::Validate),
    ] {
        assert_eq!(usable(control, asked, after_s), then, "{control}; {asked}; {after_s}");
    }
    let old = stored(&[("pragma", "no-cache"), ("expires", "Fri, 02 Jan 2026 00:00:00 GMT")]);
    assert_eq!(old.unwrap().usable(&[], NOW), Use::Validate);
    let fresh = stored(&[("cache-control", "max-age=9")]).unwrap();
    assert_eq!(fresh.usable(&request(&[("Pragma", "no-cache")]), NOW), Use::Validate);
}

#[test]
fn an_old_answer_stands_in_where_that_is_allowed() {
    let stands_in = |control: &str, asked: &str, usual_s, after_s| {
        let asked = request(&[("cache-control", asked)]);
        let fields = [("cache-control", control), ("etag", "\"a\"")];
        stored(&fields).unwrap().stands_in(&asked, usual_s, NOW + after_s)
    };
    for (control, asked, usual_s, after_s, then) in [
        ("max-age=10", "", 0, 11, false),
        ("max-age=10", "", 60, 11, true),
        ("max-age=10", "", 60, 70, false),
        ("max-age=10, stale-if-error=5", "", 60, 14, true),
        ("max-age=10, stale-if-error=5", "", 60, 15, false),
        ("max-age=10", "stale-if-error=5", 0, 14, true),
        ("max-age=10, must-revalidate", "stale-if-error=5", 60, 11, false),
        ("max-age=10, no-cache", "", 60, 0, false),
        ("max-age=10", "no-cache", 60, 0, false),
    ] {
        assert_eq!(stands_in(control, asked, usual_s, after_s), then, "{control}; {asked}");
    }
}

#[test]
fn a_304_refreshes_what_it_speaks_of() {
    let fields = [
        ("cache-control", "max-age=10"),
        ("etag", "\"a\""),
        ("age", "7"),
        ("x-own", "1"),
        ("content-length", "5"),
    ];
    let stored = stored(&fields).unwrap();
    let condition = ("if-none-match".to_owned(), "\"a\"".to_owned());
    assert_eq!(stored.conditions(), [condition]);
    let said = [("etag", "W/\"a\""), ("x-own", "2"), ("x-own", "3"), ("content-length", "0")];
    let new = stored.refreshed(&response(304, &said), NOW + 20, NOW + 20).unwrap();
    assert_eq!(new.usable(&[], NOW + 29), Use::Fresh);
    let head = new.head(NOW + 29);
    assert_eq!((head.get_bytes(b"age"), head.status()), (Some(&b"9"[..]), 200));
    assert_eq!(head.get_bytes(b"content-length"), Some(&b"5"[..]));
    let own = head.iter().filter(|field| field.name_bytes == b"x-own").count();
    assert_eq!(own, 2, "all of that name are replaced");
    assert_eq!(stored.refreshed(&response(304, &[("etag", "\"b\"")]), NOW, NOW), None);
}

#[test]
fn a_response_fits_what_it_was_chosen_by_and_keeps_nothing_of_its_connection() {
    let said = request(&[("Accept-Language", "de"), ("accept", "a"), ("Accept", "b")]);
    let head = response(
        200,
        &[
            ("cache-control", "max-age=1"),
            ("vary", "Accept, accept-language, x-none"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("set-cookie", "a=b"),
        ],
    );
    let stored = Stored::of(&said, &head, NOW, NOW).unwrap();
    assert!(stored.fits(&request(&[("accept", "a, b"), ("ACCEPT-LANGUAGE", "de")])));
    for other in [
        &[("accept", "a, b")][..],
        &[("accept", "a, b"), ("accept-language", "en")],
        &[("accept", "a, b"), ("accept-language", "de"), ("x-none", "")],
    ] {
        assert!(!stored.fits(&request(other)), "{other:?}");
    }
    for name in ["connection", "x-hop", "set-cookie"] {
        assert!(!stored.has(name), "{name}");
    }
}

#[test]
fn what_the_cache_does_not_understand_passes_it() {
    for (method, has_body, fields, is_passed) in [
        ("GET", false, &[("accept", "a")][..], false),
        ("HEAD", false, &[], true),
        ("POST", false, &[], true),
        ("GET", true, &[], true),
        ("GET", false, &[("Range", "bytes=0-1")], true),
        ("GET", false, &[("If-None-Match", "\"a\"")], true),
        ("GET", false, &[("Host", "other")], true),
    ] {
        assert_eq!(super::is_passed(method, has_body, &request(fields)), is_passed, "{fields:?}");
    }
}
