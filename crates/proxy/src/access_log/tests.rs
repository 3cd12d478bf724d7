use super::*;

const NEVER: Flush = Flush { interval: Duration::from_secs(3600), size: usize::MAX };

#[test]
fn lines_are_written_at_the_latest_when_the_writer_ends() {
    let directory = Scratch::new("end");
    let logs = AccessLogs::start(&[directory.target("a"), directory.target("b")], NEVER).unwrap();
    logs.sender().write(0, Bytes::from_static(b"one\n"));
    logs.sender().write(1, Bytes::from_static(b"two\n"));
    logs.sender().write(0, Bytes::from_static(b"three\n"));
    logs.sender().write(2, Bytes::from_static(b"to nowhere\n"));
    let sender = logs.sender();
    drop(logs);
    assert_eq!(directory.read("a"), "one\nthree\n");
    assert_eq!(directory.read("b"), "two\n");
    assert_eq!(sender.counts().waiting(), 0);
    assert_eq!(sender.counts().completed.load(Ordering::Relaxed), 2);
}

#[test]
fn size_and_time_flush() {
    let directory = Scratch::new("flush");
    let flush = Flush { interval: Duration::from_millis(30), size: 10 };
    let logs = AccessLogs::start(&[directory.target("a")], flush).unwrap();
    logs.sender().write(0, Bytes::from_static(b"0123456789"));
    eventually(|| directory.read("a") == "0123456789");
    assert_eq!(logs.sender().counts().flushed_by_timer.load(Ordering::Relaxed), 0);
    logs.sender().write(0, Bytes::from_static(b"x"));
    eventually(|| directory.read("a") == "0123456789x");
    assert_eq!(logs.sender().counts().flushed_by_timer.load(Ordering::Relaxed), 1);
}

#[test]
fn a_renamed_file_is_opened_anew() {
    let directory = Scratch::new("reopen");
    let logs = AccessLogs::start(&[directory.target("a")], NEVER).unwrap();
    logs.sender().write(0, Bytes::from_static(b"old\n"));
    std::fs::rename(directory.path("a"), directory.path("a.1")).unwrap();
    logs.sender().reopen();
    logs.sender().write(0, Bytes::from_static(b"new\n"));
    drop(logs);
    assert_eq!(directory.read("a.1"), "old\n");
    assert_eq!(directory.read("a"), "new\n");
}

#[test]
fn a_failed_reopen_keeps_the_old_file() {
    let directory = Scratch::new("keep");
    std::fs::create_dir(directory.path("d")).unwrap();
    let logs = AccessLogs::start(&[directory.target("d/a")], NEVER).unwrap();
    std::fs::rename(directory.path("d"), directory.path("e")).unwrap();
    logs.sender().reopen();
    logs.sender().write(0, Bytes::from_static(b"kept\n"));
    let sender = logs.sender();
    drop(logs);
    assert_eq!(directory.read("e/a"), "kept\n");
    assert_eq!(sender.counts().reopen_failed.load(Ordering::Relaxed), 1);
}

#[test]
fn what_waits_is_bounded() {
    let (sender, commands) = channel();
    let sender = LogSender { sender, counts: Arc::default() };
    let half = Bytes::from(vec![b'x'; MAX_WAITING / 2]);
    sender.write(0, half.clone());
    sender.write(0, half);
    assert_eq!(sender.counts().dropped.load(Ordering::Relaxed), 0);
    sender.write(0, Bytes::from_static(b"y"));
    assert_eq!(sender.counts().dropped.load(Ordering::Relaxed), 1);
    assert_eq!(sender.counts().waiting(), MAX_WAITING);
    assert_eq!(commands.try_iter().count(), 2);
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let directory = Scratch::new("missing");
    let error = AccessLogs::start(&[directory.target("no/such/file")], NEVER).unwrap_err();
    assert!(error.to_string().contains("no/such/file"), "{error}");
}

fn eventually(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("towpath-access-log-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn target(&self, name: &str) -> Target {
        Target::File(self.path(name))
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
