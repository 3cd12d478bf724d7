//! What keeps an engine running, and what an app's mistakes on its thread do to it.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use towpath::error::Cause;
use towpath::request::Handler;
use towpath::{Chunk, Engine, Error, Failed, Report, Response};
use towpath_proto::Failure;

use crate::server::{Server, answer, read_request};

fn greeter() -> Server {
    Server::new(|stream, _| {
        while read_request(stream).is_some() {
            answer(stream, "200 OK", "", b"hello");
        }
    })
}

#[test]
fn what_an_engine_made_keeps_it_running() {
    let server = greeter();
    let client = Engine::new().unwrap().client();
    assert_eq!(client.get(&server.url("/")).send().unwrap().body().bytes(9).unwrap(), "hello");
    let request = Engine::new().unwrap().client().get(&server.url("/"));
    let mut response = request.send().unwrap();
    assert_eq!(response.body().bytes(9).unwrap(), "hello");
    let upload = Engine::new().unwrap().client().request("PUT", &server.url("/")).upload(Some(0));
    assert_eq!(upload.unwrap().finish().unwrap().into_body().bytes(9).unwrap(), "hello");
}

/// Panics where it is told to, and tells its end.
struct Clumsy {
    at: &'static str,
    ended: mpsc::Sender<Result<(), Error>>,
}

impl Clumsy {
    fn reach(&self, place: &str) {
        assert_ne!(self.at, place, "a mistake of the app");
    }
}

impl Handler for Clumsy {
    fn on_head(&mut self, _: Response) {
        self.reach("head");
    }

    fn on_data(&mut self, _: Chunk) {
        assert_ne!(self.at, "head", "nothing comes after a panic but the end");
        self.reach("data");
    }

    fn on_end(&mut self, outcome: Result<(), Error>, _: Option<&Report>) {
        self.ended.send(outcome).unwrap();
        self.reach("end");
    }
}

#[test]
fn a_handler_that_panics_hears_its_end_and_harms_no_other_request() {
    let server = greeter();
    let engine = Engine::new().unwrap();
    for (at, outcome) in
        [("head", Err(Error::Handler)), ("data", Err(Error::Handler)), ("end", Ok(()))]
    {
        let (ended, told) = mpsc::channel();
        let request = engine.client().get(&server.url("/"));
        request.send_with(Clumsy { at, ended }).unwrap();
        assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap(), outcome, "{at}");
        assert!(told.recv_timeout(Duration::from_secs(10)).is_err(), "once: {at}");
        let mut after = engine.client().get(&server.url("/")).send().unwrap();
        assert_eq!(after.body().bytes(9).unwrap(), "hello");
    }
}

#[test]
fn a_resolver_that_panics_has_not_answered() {
    let server = greeter();
    let mut asked = 0;
    let engine = Engine::builder().questions(move |question| {
        asked += 1;
        assert!(asked > 1, "a mistake of the app");
        question.answer(Ok(vec![[127, 0, 0, 1].into()]));
    });
    let url = format!("http://name.test:{}/", server.address.port());
    let mut response = engine.start().unwrap().client().get(&url).send().unwrap();
    assert_eq!(response.body().bytes(9).unwrap(), "hello");
}

#[test]
fn the_engine_s_own_thread_is_not_blocked() {
    struct Impatient {
        again: towpath::Request,
        engine: Engine,
        told: mpsc::Sender<[Option<Error>; 2]>,
    }
    impl Handler for Impatient {
        fn on_head(&mut self, _: Response) {
            let sent = self.again.clone().send().err();
            let path = std::env::temp_dir().join("never-written");
            self.told.send([sent, self.engine.save_memory(&path).err()]).unwrap();
        }
        fn on_data(&mut self, _: Chunk) {}
        fn on_end(&mut self, _: Result<(), Error>, _: Option<&Report>) {}
    }
    let server = greeter();
    let engine = Engine::new().unwrap();
    let again = engine.client().get(&server.url("/"));
    let (told, errors) = mpsc::channel();
    again.clone().send_with(Impatient { again, engine, told }).unwrap();
    let both = errors.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(both, [Some(Error::EngineThread), Some(Error::EngineThread)]);
}

#[test]
fn a_limit_on_time_names_what_went_wrong_before() {
    let unknown = Engine::builder().resolver(|_| Err(Failure::Unreachable)).start().unwrap();
    let limit = Duration::from_millis(700);
    let began = Instant::now();
    let error = unknown.client().get("http://name.test/").timeout(limit).send().unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10));
    let Error::Failed(failed) = &error else { panic!("{error}") };
    assert!(matches!(failed.why(), Failed::TimedOut(_)), "{error}");
    assert_eq!(failed.cause(), Some(Cause::Resolve(Failure::Unreachable)));
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "no addresses: network unreachable");
}
