use towpath_proto::head::Head;

use super::*;

fn stored(selecting: &str) -> Stored {
    let mut head = Head::response(200);
    head.append_bytes(b"cache-control", b"max-age=60");
    head.append_bytes(b"vary", b"x");
    let request = [("x".to_owned(), selecting.to_owned())];
    Stored::of(&request, &head, 1, 1).unwrap()
}

fn put(cache: &Cache, url: &str, selecting: &str, bytes: usize) {
    cache.inner.put(url.to_owned(), stored(selecting), vec![b'x'; bytes].into());
}

fn has(cache: &Cache, url: &str, selecting: &str) -> bool {
    cache.inner.find(url, &[("x".to_owned(), selecting.to_owned())]).is_some()
}

#[test]
fn what_was_not_used_for_longest_goes_when_there_is_no_room() {
    let cache = Cache::in_memory(10_000);
    for number in 0..9 {
        put(&cache, &format!("{number}"), "", 900);
        assert!(cache.bytes() <= 10_000);
        assert!(has(&cache, "0", ""), "{number}");
    }
    assert!(!has(&cache, "1", "") && has(&cache, "8", ""));
    put(&cache, "large", "", 20_000);
    assert!(cache.is_empty() && cache.bytes() == 0, "nothing fits beside it, nor does it");
}

#[test]
fn one_response_for_what_selects_it_and_a_limit_for_each_url() {
    let cache = Cache::in_memory(1 << 20);
    put(&cache, "a", "1", 10);
    put(&cache, "a", "1", 20);
    assert_eq!(cache.len(), 1);
    for number in 2..20 {
        put(&cache, "a", &number.to_string(), 10);
    }
    assert_eq!(cache.len(), MOST_OF_URL);
    assert!(has(&cache, "a", "19") && !has(&cache, "a", "2"));
    cache.inner.remove("a");
    assert_eq!((cache.len(), cache.bytes()), (0, 0));
}

#[test]
fn accounts_hold_through_refreshes_and_many_entries_have_an_end() {
    let cache = Cache::in_memory(64 << 20);
    for number in 0..=MOST {
        put(&cache, &number.to_string(), "", 1);
    }
    assert_eq!(cache.len(), MOST);
    let number = cache.inner.find("5", &[("x".to_owned(), String::new())]).unwrap().number;
    let mut longer = stored("");
    longer.fields.push((b"x-more".to_vec(), vec![b'y'; 1000]));
    cache.inner.refresh("5", number, &longer);
    cache.clear();
    assert_eq!((cache.len(), cache.bytes()), (0, 0));
}

#[test]
fn a_folder_has_what_was_put_in_the_next_life() {
    let path = std::env::temp_dir().join(format!("towpath-cache-life-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let cache = Cache::open(&path, 100_000).unwrap();
    for number in 0..5 {
        put(&cache, &format!("{number}"), "", 1000);
    }
    cache.inner.remove("3");
    cache.flush();
    let (count, bytes) = (cache.len(), cache.bytes());
    drop(cache);
    let cache = Cache::open(&path, 100_000).unwrap();
    assert_eq!((cache.len(), cache.bytes(), count), (4, bytes, 4));
    let entry = cache.inner.find("4", &[("x".to_owned(), String::new())]).unwrap();
    assert_eq!(cache.inner.body("4", &entry).unwrap().len(), 1000);
    // What the disk damages is forgotten when it is looked at.
    std::fs::write(path.join(format!("{}.body", entry.number)), "nonsense").unwrap();
    assert_eq!(cache.inner.body("4", &entry), None);
    assert!(!has(&cache, "4", ""));
    drop(cache);
    // A smaller one keeps the newest.
    let cache = Cache::open(&path, 3000).unwrap();
    assert_eq!(cache.len(), 2);
    assert!(!has(&cache, "0", "") && has(&cache, "2", ""));
    drop(cache);
    std::fs::remove_dir_all(&path).unwrap();
}
