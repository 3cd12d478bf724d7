use super::*;

fn jar(url: &str, sets: &[&str]) -> Jar {
    let jar = Jar::new();
    for set in sets {
        assert!(jar.set(url, set), "{set}");
    }
    jar
}

fn refused(url: &str, set: &str) {
    let jar = Jar::new();
    assert!(!jar.set(url, set) && jar.is_empty(), "{url} {set}");
}

#[test]
fn a_cookie_goes_where_it_belongs() {
    let jar = jar("https://www.example.org/a/b", &["host=1", "all=2; Domain=.Example.org; Path=/"]);
    let get = |url: &str| jar.get(url).unwrap_or_default();
    assert_eq!(get("https://www.example.org/a/b"), "host=1; all=2", "longer paths first");
    assert_eq!(get("https://www.example.org/a"), "host=1; all=2");
    assert_eq!(get("http://WWW.example.org:8080/a/c?d"), "host=1; all=2", "ports do not count");
    assert_eq!(get("https://www.example.org/ab"), "all=2");
    assert_eq!(get("https://other.example.org/"), "all=2");
    assert_eq!(get("https://example.org/"), "all=2");
    for other in ["https://badexample.org/", "https://example.com/", "https://org/"] {
        assert_eq!(get(other), "");
    }
}

#[test]
fn a_server_sets_none_for_others_or_for_a_public_suffix() {
    for domain in ["example.com", "com", "org", "a.www.example.org", "127.0.0.1"] {
        refused("https://www.example.org/", &format!("a=b; Domain={domain}"));
    }
    refused("https://shop.co.uk/", "a=b; Domain=co.uk");
    refused("https://me.github.io/", "a=b; Domain=github.io");
    let own = jar("https://github.io/", &["a=b; Domain=github.io"]);
    assert_eq!(own.get("https://me.github.io/"), None, "it is for that host alone");
    assert!(own.get("https://github.io/").is_some());
    let address = jar("http://127.0.0.1/", &["a=b; Domain=127.0.0.1"]);
    assert!(address.get("http://127.0.0.1:81/").is_some());
    refused("http://10.127.0.0.1/", "a=b; Domain=127.0.0.1");
}

#[test]
fn what_is_secure_stays_so() {
    refused("http://a.test/", "a=b; Secure");
    let jar = jar("https://a.test/", &["a=b; Secure; Path=/x"]);
    assert_eq!(jar.get("http://a.test/x"), None);
    assert!(!jar.set("http://a.test/x", "a=forged; Path=/x"));
    assert!(!jar.set("http://a.test/x", "a=forged; Path=/x/y"));
    assert!(jar.set("http://a.test/x", "a=other; Path=/z"), "another path hides nothing");
    assert_eq!(jar.get("https://a.test/x").unwrap(), "a=b");
    for (set, taken) in [
        ("__Secure-a=b; Secure", true),
        ("__secure-a=b", false),
        ("__Host-a=b; Secure; Path=/", true),
        ("__Host-a=b; Secure", false),
        ("__Host-a=b; Secure; Path=/x", false),
        ("__HOST-a=b; Secure; Path=/; Domain=a.test", false),
        ("=__Host-a=b; Secure; Path=/", false),
    ] {
        assert_eq!(Jar::new().set("https://a.test/", set), taken, "{set}");
    }
}

#[test]
fn cookies_end() {
    let url = "http://a.test/";
    let jar = jar(url, &["a=1; Max-Age=100", "b=2; Expires=Wed, 09 Jun 2100 10:18:14 GMT", "c=3"]);
    assert_eq!(jar.get(url).unwrap(), "a=1; b=2; c=3");
    for gone in [
        "a=; Max-Age=0",
        "b=; Max-Age=-1; Expires=Wed, 09 Jun 2100 10:18:14 GMT",
        "c=x; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
    ] {
        jar.set(url, gone);
    }
    assert!(jar.is_empty());
    jar.set(url, "d=4; Max-Age=99999999999999999999");
    let days = (jar.store().cookies[0].expires.unwrap() - now()) / 86400;
    assert!((399..=400).contains(&days), "{days}");
    jar.store().cookies[0].expires = Some(now() - 1);
    assert_eq!((jar.get(url), jar.len()), (None, 0));
}

#[test]
fn a_new_value_keeps_its_place() {
    let url = "http://a.test/";
    let jar = jar(url, &["a=1", "b=2", "a=3"]);
    assert_eq!(jar.get(url).unwrap(), "a=3; b=2");
    jar.clear();
    assert!(jar.is_empty());
}

#[test]
fn what_is_no_cookie_is_passed_over() {
    let long = "x".repeat(4097);
    for set in [
        "",
        ";",
        "=",
        "  ; Path=/",
        "a=b\u{1}",
        "a\tb=c",
        &format!("{long}="),
        &format!("=_{long}"),
    ] {
        refused("http://a.test/", set);
    }
    let jar = jar("http://a.test/", &["nameless", "a = b c ; Unknown=1;;Path=x"]);
    assert_eq!(jar.get("http://a.test/").unwrap(), "nameless; a=b c");
    assert!(jar.set("http://a.test/", &format!("b={}; Path=/{long}", "y".repeat(4095))));
}

#[test]
fn a_jar_has_limits_and_forgets_what_was_not_used_for_longest() {
    let jar = Jar::new();
    for number in 0..=MOST_OF_DOMAIN {
        jar.set("http://a.test/", &format!("{number}=x"));
        let _ = jar.get("http://a.test/first");
    }
    assert_eq!(jar.len(), MOST_OF_DOMAIN);
    for number in 0..MOST + 10 {
        jar.set(&format!("http://host{number}.test/"), "a=b");
    }
    assert_eq!(jar.len(), MOST);
    assert!(jar.get("http://a.test/").is_none_or(|field| field.matches(';').count() < 50));
    assert!(jar.get(&format!("http://host{}.test/", MOST + 9)).is_some());
}

#[test]
fn a_file_keeps_what_outlives_the_app() {
    let path = std::env::temp_dir().join(format!("towpath-jar-{}", std::process::id()));
    let url = "https://www.example.org/";
    let old = jar(
        url,
        &[
            "a=1; Max-Age=100; Secure; HttpOnly",
            "b=2; Max-Age=100; Domain=example.org; Path=/x",
            "session=3",
        ],
    );
    old.save(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("#HttpOnly_www.example.org\tFALSE\t/\tTRUE\t"), "{text}");
    assert!(text.contains("\n.example.org\tTRUE\t/x\tFALSE\t"), "{text}");
    let new = Jar::load(&path).unwrap();
    assert_eq!(new.get(url).unwrap(), "a=1");
    assert_eq!(new.get("http://example.org/x").unwrap(), "b=2");
    std::fs::write(&path, format!("{text}\nnonsense\n# remark\n\t\t\t\t\t\t\n\u{1}")).unwrap();
    assert_eq!(Jar::load(&path).unwrap().len(), 2);
    std::fs::remove_file(&path).unwrap();
    assert!(Jar::load(&path).unwrap().is_empty(), "without a file it is empty");
}
