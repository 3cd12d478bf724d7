//! What outlives the engine, in a file that may be damaged.

use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc;
use std::time::UNIX_EPOCH;

use towpath::{Engine, Error, Failed, Failure, NetworkKind};

use crate::server::{Server, answer, read_request};

/// A file that was saved now, with these lines.
pub(crate) fn write_memory(path: &Path, lines: &str) {
    let now_s = UNIX_EPOCH.elapsed().unwrap().as_secs();
    let sum = crc32fast::hash(lines.as_bytes());
    std::fs::write(path, format!("towpath-memory 4 {now_s} {sum:08x}\n{lines}")).unwrap();
}

#[test]
fn what_is_known_of_addresses_outlives_the_engine() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        answer(stream, "200 OK", "", b"hello");
    });
    let path = std::env::temp_dir().join(format!("towpath-memory-{}", std::process::id()));
    let engine = Engine::new().unwrap();
    engine.client().get(&server.url("/")).send().unwrap();
    engine.save_memory(&path).unwrap();
    drop(engine);
    let engine = Engine::builder().memory(&path).start().unwrap();
    let mut response = engine.client().get(&server.url("/")).send().unwrap();
    response.body().bytes(10).unwrap();
    let report = response.body().report().unwrap();
    assert!(report.attempts[0].known.starts_with("1.0 of 1.0 attempts worked"), "{report:?}");
    assert_eq!(engine.memory_failure(), None);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_memory_that_cannot_be_used_is_begun_anew() {
    let server = Server::new(|stream, _| {
        read_request(stream);
        answer(stream, "200 OK", "", b"hello");
    });
    let path = std::env::temp_dir().join(format!("towpath-damaged-{}", std::process::id()));
    let engine = Engine::new().unwrap();
    engine.client().get(&server.url("/")).send().unwrap();
    engine.save_memory(&path).unwrap();
    let good = std::fs::read(&path).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() = 0xff;
    let newer = String::from_utf8(good.clone()).unwrap().replacen(" 4 ", " 99 ", 1).into_bytes();
    for damaged in [vec![], good[..good.len() - 1].to_vec(), flipped, vec![0; 4096], newer] {
        std::fs::write(&path, &damaged).unwrap();
        let engine = Engine::builder().memory(&path).start().unwrap();
        let why = engine.memory_failure().unwrap();
        assert!(why.ends_with("damaged, or of another version"), "{why}");
        assert_eq!(engine.client().get(&server.url("/")).send().unwrap().status(), 200);
        engine.save_memory(&path).unwrap();
        assert_eq!(Engine::builder().memory(&path).start().unwrap().memory_failure(), None);
    }
    std::fs::remove_file(&path).unwrap();
    // What cannot be read at all, because it is a folder.
    std::fs::create_dir(&path).unwrap();
    let engine = Engine::builder().memory(&path).start().unwrap();
    assert!(engine.memory_failure().is_some());
    std::fs::remove_dir(&path).unwrap();
}

#[test]
fn what_names_were_answered_with_outlives_the_engine_and_is_raced_against_a_new_answer() {
    let server = Server::new(|stream, _| {
        while read_request(stream).is_some() {
            answer(stream, "200 OK", "", b"hello");
        }
    });
    let path = std::env::temp_dir().join(format!("towpath-names-{}", std::process::id()));
    let url = format!("http://app.test:{}/", server.address.port());
    let good: IpAddr = [127, 0, 0, 1].into();
    let start = |builder: towpath::Builder, label: &str| {
        let engine = builder.memory(&path).start().unwrap();
        engine.network_changed(label, NetworkKind::Fixed, true).unwrap();
        engine
    };
    let engine = start(Engine::builder().resolver(move |_| Ok(vec![good])), "home");
    assert_eq!(engine.client().get(&url).send().unwrap().status(), 200);
    engine.save_memory(&path).unwrap();
    drop(engine);
    // A resolver that fails, one that denies, one that never answers.
    for failure in [Some(Failure::TimedOut), Some(Failure::NoSuchName), None] {
        let (keep, kept) = mpsc::channel();
        let builder = Engine::builder().questions(move |question| match failure {
            Some(failure) => question.answer(Err(failure)),
            None => keep.send(question).unwrap(),
        });
        let engine = start(builder, "home");
        let mut response = engine.client().get(&url).send().unwrap();
        response.body().bytes(10).unwrap();
        let report = response.body().report().unwrap();
        assert_eq!((report.attempts.len(), report.lookups.len()), (1, 1), "it is asked as well");
        assert_eq!(kept.try_iter().count(), usize::from(failure.is_none()));
        engine.save_memory(&path).unwrap();
    }
    // On another network it is not known.
    let engine = start(Engine::builder().resolver(|_| Err(Failure::NoSuchName)), "train");
    let unknown = engine.client().get(&url).send().unwrap_err();
    assert_eq!(unknown, Error::from(Failed::Resolve(Failure::NoSuchName)));
    // An old answer that leads nowhere any more costs nothing when the new one comes.
    let text = std::fs::read_to_string(&path).unwrap();
    let known = text.lines().find(|line| line.starts_with("name ")).unwrap();
    assert!(known.ends_with(" app.test 127.0.0.1 home"), "{known}");
    write_memory(&path, "name 60 app.test 127.0.0.2 home\n");
    let engine = start(Engine::builder().resolver(move |_| Ok(vec![good])), "home");
    assert_eq!(engine.client().get(&url).send().unwrap().status(), 200);
    // One that is too old is not used at all.
    let days = 4 * 24 * 3600;
    write_memory(&path, &format!("name {days} app.test 127.0.0.1 home\n"));
    let engine = start(Engine::builder().resolver(|_| Err(Failure::NoSuchName)), "home");
    assert_eq!(engine.client().get(&url).send().unwrap_err(), unknown);
    std::fs::remove_file(&path).unwrap();
}
