//! Files outlive what happens to processes: signals, `exit`, a child with the same environment, a full disk, no
//! `/proc`.
//!
//! Not under libtest: a program's first thread must be its own, since signals go to the threads that do not block them.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the run")]
#![allow(clippy::print_stdout, reason = "children tell the test what they did")]

#[cfg(target_os = "linux")]
mod support;

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("SKIPPED: processes are tried on Linux");
}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{Read, Write};
    use std::os::unix::process::ExitStatusExt;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output, Stdio};
    use std::time::{Duration, Instant};

    use towpath_trace::file::{Stat, merge, stat};
    use towpath_trace::{Category, Options, mark, span};

    use super::support::{Judge, scratch};

    /// Name, what the test does, and what its child does.
    type Test = (&'static str, fn(&str), fn());

    const TESTS: &[Test] = &[
        ("a child with the same environment", same_environment, records_and_starts_itself),
        ("names with the process", names_with_the_process, records_from_the_environment),
        ("a signal that is read", a_signal_that_is_read, reads_a_signal),
        ("killed while writing", killed_while_writing, writes_for_ever),
        ("the end by exit", the_end_by_exit, exits_at_once),
        ("a full disk", a_full_disk, writes_for_ever),
        ("threads without proc", threads_without_proc, records_many_threads),
        ("a limit of size", a_limit_of_size, writes_more_than_the_limit),
        ("memory of stat", memory_of_stat, says_what_stat_takes),
    ];

    pub(super) fn main() {
        if let Ok(child) = std::env::var("TOWPATH_CHILD") {
            let (_, _, work) = TESTS.iter().find(|(name, ..)| *name == child).unwrap();
            return work();
        }
        let words: Vec<String> = std::env::args().skip(1).collect();
        if words.iter().any(|word| word == "--list" || word == "--ignored") {
            return;
        }
        let wanted = words.iter().find(|word| !word.starts_with('-'));
        let wanted = |name: &str| wanted.is_none_or(|wanted| name.contains(wanted.as_str()));
        for (name, test, _) in TESTS.iter().filter(|(name, ..)| wanted(name)) {
            test(name);
            println!("{name}: ok");
        }
    }

    fn child(name: &str, environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("TOWPATH_CHILD", name).envs(environment.iter().copied());
        command
    }

    fn succeeded(output: &Output) -> String {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}\n{}", output.status, text(&output.stderr));
        text(&output.stdout)
    }

    fn names(stat: &Stat) -> Vec<(&str, u64)> {
        let mut names: Vec<_> =
            stat.spans.iter().map(|span| (span.name.as_str(), span.count)).collect();
        names.sort_unstable();
        names
    }

    /// What Perfetto's importer counts of a file that our reader has read.
    fn importer_agrees(path: &Path, stat: &Stat) {
        let Some(judge) = Judge::of(path) else { return };
        let spans: u64 = stat.spans.iter().map(|span| span.count).sum();
        let counted = judge
            .number("select count(*) from slice where dur > 0 and category is not 'towpath.trace'");
        assert!(counted.unsigned_abs().abs_diff(spans) <= spans / 100, "{counted} {spans}");
    }

    fn same_environment(name: &str) {
        let path = scratch("same.pftrace");
        let _ = std::fs::remove_file(&path);
        let value = format!("all:{}", path.display());
        let output = child(name, &[("TOWPATH_TRACE", &value)]).output().unwrap();
        let grandchild = succeeded(&output).trim().to_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let theirs = path.with_file_name(format!("same.{grandchild}.pftrace"));
        assert!(said.contains(&theirs.display().to_string()), "{said}");
        assert_eq!(names(&stat(&[&path]).unwrap()), [("parent", 200)]);
        assert_eq!(names(&stat(&[&theirs]).unwrap()), [("child", 200)]);
    }

    fn records_and_starts_itself() {
        let recording = towpath_trace::from_env().unwrap().unwrap();
        if std::env::var_os("TOWPATH_GRANDCHILD").is_some() {
            (0..200).for_each(|_| drop(span!(Category::APP, "child")));
            drop(recording);
            return println!("{}", std::process::id());
        }
        (0..100).for_each(|_| drop(span!(Category::APP, "parent")));
        let name = std::env::var("TOWPATH_CHILD").unwrap();
        let status = child(&name, &[("TOWPATH_GRANDCHILD", "1")]).status().unwrap();
        assert!(status.success());
        (0..100).for_each(|_| drop(span!(Category::APP, "parent")));
        recording.finish().unwrap();
    }

    fn names_with_the_process(name: &str) {
        let pattern = scratch("own-%p-100%%.pftrace");
        let value = format!("info,a::b=debug:{}", pattern.display());
        let pid = succeeded(&child(name, &[("TOWPATH_TRACE", &value)]).output().unwrap());
        let path = scratch(&format!("own-{}-100%.pftrace", pid.trim()));
        assert_eq!(names(&stat(&[&path]).unwrap()), [("span", 1)]);
    }

    fn records_from_the_environment() {
        let recording = towpath_trace::from_env().unwrap().unwrap();
        drop(span!(Category::APP, "span"));
        assert!(recording.path().unwrap().exists());
        println!("{}", std::process::id());
    }

    fn a_signal_that_is_read(name: &str) {
        let path = scratch("signal.pftrace");
        let _ = std::fs::remove_file(&path);
        let value = format!("all:{}", path.display());
        let mut running =
            child(name, &[("TOWPATH_TRACE", &value)]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        let mut out = running.stdout.take().unwrap();
        out.read_exact(&mut ready).unwrap();
        let kill = Command::new("kill").args(["-TERM", &running.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let status = running.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{status}");
        assert_eq!(names(&stat(&[&path]).unwrap()), [("until the signal", 1)]);
    }

    /// Records first and blocks the signal then, as a program does that calls `from_env` first in `main`.
    fn reads_a_signal() {
        let recording = towpath_trace::from_env().unwrap().unwrap();
        let waiting = span!(Category::APP, "until the signal");
        let masked = blocked_signals();
        println!("ready");
        std::io::stdout().flush().unwrap();
        masked.wait();
        drop(waiting);
        drop(recording);
    }

    /// `SIGTERM`, blocked for the calling thread and read.
    struct Blocked(libc::sigset_t);

    #[allow(unsafe_code, reason = "there is no safe way to block a signal")]
    fn blocked_signals() -> Blocked {
        // SAFETY: the set is plain numbers; the pointers are to live ones.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            Blocked(set)
        }
    }

    impl Blocked {
        #[allow(unsafe_code, reason = "there is no safe way to wait for a signal")]
        fn wait(&self) {
            let mut signal = 0;
            // SAFETY: the pointers are to live values.
            let failed = unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
            assert_eq!((failed, signal), (0, libc::SIGTERM));
        }
    }

    fn killed_while_writing(name: &str) {
        let path = scratch("killed.pftrace");
        let mut cut = 0;
        for round in 0..20u64 {
            let mut running = child(name, &[("TOWPATH_FILE", path.to_str().unwrap())])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            wait_for_bytes(&path, &mut running, 100_000);
            std::thread::sleep(Duration::from_micros(round * 700));
            running.kill().unwrap();
            let status = running.wait().unwrap();
            assert_eq!(status.signal(), Some(9), "{status}");
            let stat = stat(&[&path]).unwrap();
            assert!(stat.spans[0].count > 1000, "{stat}");
            assert!(stat.to_string().contains("without an account: 1 of 1 recordings"), "{stat}");
            cut += u64::from(stat.cut > 0);
            if round % 10 == 0 {
                importer_agrees(&path, &stat);
            }
            std::fs::remove_file(&path).unwrap();
        }
        println!("{cut} of 20 files end inside a packet");
        // Whether a kill cuts a packet is chance: the same by hand, at every byte of the last packets.
        let whole = scratch("cut.pftrace");
        let recording = Options::new().start_file(&whole).unwrap();
        (0..50).for_each(|_| drop(span!(Category::APP, "span")));
        recording.finish().unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        for length in bytes.len() - 300..bytes.len() {
            std::fs::write(&whole, &bytes[..length]).unwrap();
            let read = stat(&[&whole]).unwrap();
            assert!(read.bytes == length as u64 && read.packets > 50, "{length}: {read}");
            let merged = merge(&[&whole], scratch("cut-merged.pftrace")).unwrap();
            assert_eq!((merged.packets, merged.cut[0]), (read.packets, read.cut));
        }
    }

    fn wait_for_bytes(path: &Path, running: &mut std::process::Child, bytes: u64) {
        let begun = Instant::now();
        while path.metadata().map_or(0, |file| file.len()) < bytes {
            assert!(running.try_wait().unwrap().is_none(), "the child ended by itself");
            assert!(begun.elapsed() < Duration::from_secs(60), "the child writes nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn writes_for_ever() {
        let recording = towpath_trace::from_env().unwrap().unwrap_or_else(|| {
            let path = PathBuf::from(std::env::var_os("TOWPATH_FILE").unwrap());
            Options::new().drain_every(Duration::from_millis(1)).start_file(path).unwrap()
        });
        let begun = Instant::now();
        let once = std::env::var_os("TOWPATH_ONCE").is_some();
        let limit = Duration::from_secs(if once { 3 } else { 60 });
        while begun.elapsed() < limit
            && towpath_trace::enabled(Category::APP, towpath_trace::Level::Info)
        {
            (0..1000).for_each(|index: u64| drop(span!(Category::APP, "span", index)));
        }
        println!("{}", recording.finish().is_err());
    }

    fn the_end_by_exit(name: &str) {
        let path = scratch("exit.pftrace");
        for code in ["0", "3"] {
            let environment = [("TOWPATH_FILE", path.to_str().unwrap()), ("TOWPATH_CODE", code)];
            let status = child(name, &environment).status().unwrap();
            assert_eq!(status.code(), code.parse().ok());
            let stat = stat(&[&path]).unwrap();
            assert_eq!((names(&stat), stat.unfinished), (vec![("done", 1), ("open", 1)], 1));
            assert_eq!(stat.accounts.len(), 1, "the file is complete");
        }
    }

    fn exits_at_once() {
        let recording = Options::new()
            .drain_every(Duration::from_secs(3600))
            .start_file(std::env::var_os("TOWPATH_FILE").unwrap())
            .unwrap();
        drop(span!(Category::APP, "done"));
        let _open = span!(Category::APP, "open");
        std::mem::forget(recording);
        std::process::exit(std::env::var("TOWPATH_CODE").unwrap().parse().unwrap());
    }

    /// In a mount namespace of its own; `None`, with a message, where there is none to be had.
    fn in_own_mounts(script: &str, name: &str, environment: &[(&str, &str)]) -> Option<Output> {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
        command.env("TOWPATH_CHILD", name).envs(environment.iter().copied());
        let output = command.output().unwrap();
        let refused = String::from_utf8_lossy(&output.stderr).contains("not permitted");
        if refused {
            assert!(std::env::var_os("CI").is_none(), "CI promises root, for mount namespaces");
            println!("SKIPPED: {name}: no mount namespace without root");
        }
        (!refused).then_some(output)
    }

    fn a_full_disk(name: &str) {
        let (folder, kept) = (scratch("full"), scratch("full.pftrace"));
        std::fs::create_dir_all(&folder).unwrap();
        // A user who asked by the environment has no code that looks at what `finish` says.
        for (variable, what) in [("TOWPATH_FILE", ""), ("TOWPATH_TRACE", "all:")] {
            fill_a_disk(name, &folder, &kept, (variable, what));
        }
    }

    fn fill_a_disk(name: &str, folder: &Path, kept: &Path, (variable, what): (&str, &str)) {
        let file = folder.join("full.pftrace");
        let script = format!(
            "mount -t tmpfs -o size=2m none {0} && \"$0\" && cp {1} {2}",
            folder.display(),
            file.display(),
            kept.display()
        );
        let value = format!("{what}{}", file.display());
        let environment = [(variable, value.as_str()), ("TOWPATH_ONCE", "1")];
        let Some(output) = in_own_mounts(&script, name, &environment) else { return };
        assert_eq!(succeeded(&output).trim(), "true", "finish tells of the full disk");
        let said = String::from_utf8_lossy(&output.stderr);
        let is_told = said.contains("nothing more is recorded") && said.contains("full.pftrace: ");
        assert_eq!(is_told, variable == "TOWPATH_TRACE", "{said}");
        let stat = stat(&[kept]).unwrap();
        assert!(stat.spans[0].count > 10_000 && stat.cut == 0, "{stat}");
        importer_agrees(kept, &stat);
    }

    fn threads_without_proc(name: &str) {
        let path = scratch("threads.pftrace");
        let script = "umount -l /proc && exec \"$0\"";
        let environment = [("TOWPATH_FILE", path.to_str().unwrap())];
        let Some(output) = in_own_mounts(script, name, &environment) else { return };
        succeeded(&output);
        let Some(judge) = Judge::of(&path) else { return };
        let answers = judge.clean(&[
            "select count(distinct tid) from thread join thread_track using (utid)
             join slice on slice.track_id = thread_track.id where slice.name = 'inner'",
            "select count(*) from slice c join slice p on c.parent_id = p.id
             where c.name = 'inner' and p.name = 'outer' and c.track_id = p.track_id",
        ]);
        assert_eq!(super::support::text(&answers[0]), [["100"]]);
        assert_eq!(super::support::text(&answers[1]), [["1000"]]);
    }

    fn records_many_threads() {
        assert!(!Path::new("/proc/self").exists());
        let path = std::env::var_os("TOWPATH_FILE").unwrap();
        let recording = Options::new().ring_bytes(64 << 10).start_file(path).unwrap();
        let gate = std::sync::Barrier::new(100);
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    gate.wait();
                    for _ in 0..10 {
                        let _outer = span!(Category::APP, "outer");
                        drop(span!(Category::APP, "inner"));
                    }
                    gate.wait();
                });
            }
        });
        recording.finish().unwrap();
    }

    fn a_limit_of_size(name: &str) {
        let path = scratch("limited.pftrace");
        let before = scratch("limited.1.pftrace");
        let environment = [("TOWPATH_FILE", path.to_str().unwrap())];
        succeeded(&child(name, &environment).output().unwrap());
        let sizes = [&before, &path].map(|file| file.metadata().unwrap().len());
        assert!(
            sizes[0] >= 1 << 20 && sizes.iter().sum::<u64>() <= (2 << 20) + LITTLE,
            "{sizes:?}"
        );
        for file in [&before, &path] {
            let stat = stat(&[file]).unwrap();
            assert_eq!((stat.beginless, stat.cut), (0, 0), "{stat}");
            let outer = stat.spans.iter().find(|span| span.name == "all the time").unwrap();
            assert_eq!(outer.count, 1, "what is open is in both files");
            if let Some(judge) = Judge::of(file) {
                judge.clean(&[]);
            }
        }
        let merged = scratch("limited-merged.pftrace");
        merge(&[&before, &path], &merged).unwrap();
        assert_eq!(stat(&[&merged]).unwrap().beginless, 0);
        if let Some(judge) = Judge::of(&merged) {
            let sql = "select count(distinct track_id) from slice where name = 'all the time'";
            assert_eq!(super::support::text(&judge.clean(&[sql])[0]), [["1"]]);
        }
    }

    /// What is written at a time.
    const LITTLE: u64 = 256 << 10;

    fn writes_more_than_the_limit() {
        let options = Options::new().file_limit(2 << 20).drain_every(Duration::from_millis(1));
        let recording = options.start_file(std::env::var_os("TOWPATH_FILE").unwrap()).unwrap();
        let _outer = span!(Category::APP, "all the time");
        for _ in 0..100 {
            for index in 0..2_000u64 {
                let _span = span!(Category::APP, "span", index);
                mark!(Category::APP, "mark");
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        drop(_outer);
        recording.finish().unwrap();
    }

    /// Three gigabytes through a pipe, most of them in large packets, so that a slow build reads them in time.
    fn memory_of_stat(name: &str) {
        let path = scratch("large.pipe");
        let _ = std::fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let environment = [("TOWPATH_FILE", path.to_str().unwrap())];
        let running = child(name, &environment)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let recording = Options::new().start().unwrap();
        for index in 0..3_000u64 {
            let _outer = span!(Category::APP, "outer", index);
            drop(span!(Category::APP, "inner"));
        }
        let mut some = Vec::new();
        recording.stop().write_perfetto(&mut some).unwrap();
        // A packet with one field of 4 MiB.
        let mut large = vec![0x0a, 0x85, 0x80, 0x80, 0x02, 0x7a, 0x80, 0x80, 0x80, 0x02];
        large.resize(large.len() + (4 << 20), 0);
        let mut pipe = std::fs::File::options().write(true).open(&path).unwrap();
        let mut written = 0;
        for _ in 0..30 {
            pipe.write_all(&some).unwrap();
            (0..26).for_each(|_| pipe.write_all(&large).unwrap());
            written += some.len() + 26 * large.len();
        }
        drop(pipe);
        let said = succeeded(&running.wait_with_output().unwrap());
        let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [bytes, spans, kilobytes] = numbers[..] else { panic!("{said}") };
        assert_eq!((bytes, spans), (written as u64, 30 * 6_000));
        assert!(written > 3 << 30, "{written}");
        println!("{written} bytes in {kilobytes} KB");
        assert!(kilobytes < 64 << 10, "{kilobytes} KB");
    }

    fn says_what_stat_takes() {
        let stat = stat(&[std::env::var_os("TOWPATH_FILE").unwrap()]).unwrap();
        let spans: u64 = stat.spans.iter().map(|span| span.count).sum();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        println!("{} {spans} {}", stat.bytes, peak.trim().trim_end_matches(" kB"));
    }
}
