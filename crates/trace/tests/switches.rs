//! Switching on by environment, across a fork, and by attaching to a probe. Each in a process of its own.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the run")]
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "forks")]

mod support;

use std::path::Path;
use std::process::{Command, Output};

use support::{Judge, scratch, text};
use towpath_trace::file::stat;
use towpath_trace::{Category, Options, StartError, mark, span};

/// Runs one ignored test of this program with an environment.
fn in_child(test: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.envs(environment.iter().copied()).env("TOWPATH_CHILD", "1").output().unwrap()
}

fn passed(output: &Output) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn the_environment_asks_for_a_file() {
    let path = scratch("env.pftrace");
    let value = format!("network,request:{}", path.display());
    passed(&in_child("child_records_from_env", &[("TOWPATH_TRACE", &value)]));
    let stat = stat(&[&path]).unwrap();
    let names: Vec<&str> = stat.spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["of the network"]);
    if let Some(judge) = Judge::of(&path) {
        judge.clean(&[]);
    }
    let path = scratch("env-debug.pftrace");
    let value = format!("all@debug:{}", path.display());
    passed(&in_child("child_records_from_env", &[("TOWPATH_TRACE", &value)]));
    assert_eq!(towpath_trace::file::stat(&[&path]).unwrap().spans.len(), 2);
}

#[test]
fn an_environment_that_makes_no_sense_is_refused() {
    for value in ["network", "network:", "nosuch:x", "all@loud:x"] {
        passed(&in_child("child_refuses_env", &[("TOWPATH_TRACE", value)]));
    }
}

#[test]
#[ignore = "run by another test, with an environment"]
fn child_records_from_env() {
    if std::env::var_os("TOWPATH_CHILD").is_none() {
        return;
    }
    let recording = towpath_trace::from_env().unwrap().expect("the environment asks for one");
    drop(span!(Category::NETWORK, "of the network"));
    drop(span!(level = towpath_trace::Level::Debug, Category::APP, "of the app"));
    drop(recording);
    drop(span!(Category::NETWORK, "after"));
}

#[test]
#[ignore = "run by another test, with an environment"]
fn child_refuses_env() {
    if std::env::var_os("TOWPATH_CHILD").is_some() {
        let error = towpath_trace::from_env().unwrap_err();
        assert!(matches!(error, StartError::Environment(_) | StartError::Directive(_)), "{error}");
    }
}

#[test]
fn without_tags_atrace_is_off_and_with_the_monotonic_clock_files_are_right() {
    passed(&in_child("child_times_a_sleep", &[("TOWPATH_TRACE_CLOCK", "monotonic")]));
}

#[test]
fn the_counter_is_taken_where_it_is_asked_for() {
    passed(&in_child("child_times_a_sleep", &[("TOWPATH_TRACE_CLOCK", "counter")]));
}

#[test]
#[ignore = "run by another test, with an environment"]
fn child_times_a_sleep() {
    if std::env::var_os("TOWPATH_CHILD").is_none() {
        return;
    }
    let recording = Options::new().start().unwrap();
    let begun = std::time::Instant::now();
    let span = span!(Category::APP, "slept");
    std::thread::sleep(std::time::Duration::from_millis(20));
    drop(span);
    let at_most = begun.elapsed().as_nanos() as u64;
    let capture = recording.stop();
    let slept = &capture.spans()[0];
    let duration = slept.end_ns - slept.begin_ns;
    assert!((20_000_000..=at_most).contains(&duration), "{duration} {at_most}");
}

#[test]
fn a_forked_child_records_nothing_of_its_parents_and_may_begin_anew() {
    passed(&in_child("child_forks", &[]));
}

#[test]
#[ignore = "run by another test"]
fn child_forks() {
    if std::env::var_os("TOWPATH_CHILD").is_none() {
        return;
    }
    let (parents, childs) = (scratch("parent.pftrace"), scratch("child.pftrace"));
    let recording = Options::new().start_file(&parents).unwrap();
    let outer = span!(Category::APP, "around the fork");
    drop(span!(Category::APP, "before"));
    // SAFETY: the child uses nothing that another thread may have held but what this crate promises to leave usable.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(span!(Category::APP, "child, nothing is on"));
        let own = Options::new().start().expect("the parent's recording is not the child's");
        drop(outer);
        drop(span!(Category::APP, "in the child"));
        let capture = own.stop();
        let names: Vec<&str> = capture.spans().iter().map(|span| span.name).collect();
        let right = names == ["in the child"] && capture.account().beginless == 0;
        let written = capture.write_perfetto(std::fs::File::create(&childs).unwrap()).is_ok();
        // The parent's recording is dropped here too, and must leave its file alone.
        drop(recording);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!(right && written))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "the child found what it should not");
    drop(outer);
    let account = recording.finish().unwrap();
    assert_eq!((account.events, account.unfinished, account.beginless), (4, 0, 0));
    let both = scratch("forked.pftrace");
    towpath_trace::file::merge(&[&parents, &childs], &both).unwrap();
    let Some(judge) = Judge::of(&both) else { return };
    let answers = judge.clean(&["select slice.name, process.pid from slice join thread_track t on slice.track_id = t.id
         join thread using (utid) join process using (upid) where category = 'app' order by slice.name"]);
    let (parent, child) = (std::process::id().to_string(), pid.to_string());
    let expected = [["around the fork", &parent], ["before", &parent], ["in the child", &child]];
    assert_eq!(text(&answers[0]), expected);
}

#[test]
fn a_probe_is_on_while_a_tool_is_attached() {
    let root = Path::new("/sys/kernel/tracing");
    if std::fs::read_dir(root).is_err() || !root.join("uprobe_events").exists() {
        return eprintln!("SKIPPED: no tracefs with uprobes here, or not root");
    }
    let program = std::env::current_exe().unwrap();
    let note =
        probes::find(&std::fs::read(&program).unwrap(), "mark").expect("the program has the probe");
    assert!(!towpath_trace::enabled(Category::APP, towpath_trace::Level::Info));
    let group = format!("towpath{}", std::process::id());
    let line =
        format!("p:{group}/mark {}:{:#x}({:#x})", program.display(), note.location, note.semaphore);
    let uprobes = root.join("uprobe_events");
    let append = |line: &str| {
        use std::io::Write;
        std::fs::OpenOptions::new()
            .append(true)
            .open(&uprobes)
            .and_then(|mut file| file.write_all(line.as_bytes()))
    };
    if let Err(error) = append(&line) {
        return eprintln!("SKIPPED: {line}: {error}");
    }
    let enable = root.join(format!("events/{group}/mark/enable"));
    std::fs::write(&enable, "1").unwrap();
    let attached = towpath_trace::enabled(Category::APP, towpath_trace::Level::Info);
    for _ in 0..5 {
        mark!(Category::APP, "probed", a = 1u64, b = 2u64);
    }
    std::fs::write(&enable, "0").unwrap();
    let hits = std::fs::read_to_string(root.join("uprobe_profile")).unwrap_or_default();
    append(&format!("-:{group}/mark")).unwrap();
    assert!(attached, "the kernel raised the semaphore");
    assert!(
        !towpath_trace::enabled(Category::APP, towpath_trace::Level::Info),
        "and lowered it again"
    );
    // The profile file prints program, event and hits; kernels without it print nothing.
    let hits = hits.lines().find(|line| line.contains("mark"));
    assert!(hits.is_none_or(|line| line.split_whitespace().any(|word| word == "5")), "{hits:?}");
}

/// Finds SystemTap notes in an ELF file.
mod probes {
    pub(super) struct Note {
        pub(super) location: u64,
        pub(super) semaphore: u64,
    }

    pub(super) fn find(elf: &[u8], wanted: &str) -> Option<Note> {
        let word = |at: usize, width: usize| {
            elf[at..at + width].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte))
        };
        let (table, size, count, names) =
            (word(0x28, 8), word(0x3a, 2), word(0x3c, 2), word(0x3e, 2));
        let section = |index: u64| {
            let at = (table + index * size) as usize;
            // Name, address, offset in the file, size.
            (word(at, 4), word(at + 16, 8), word(at + 24, 8), word(at + 32, 8))
        };
        let (_, _, strings, _) = section(names);
        let name = |at: u64| {
            let bytes = &elf[(strings + at) as usize..];
            std::str::from_utf8(&bytes[..bytes.iter().position(|&byte| byte == 0).unwrap()])
                .unwrap()
        };
        let of = |wanted: &str| (0..count).map(section).find(|section| name(section.0) == wanted);
        let to_file = |address: u64| {
            let within =
                (0..count).map(section).find(|s| s.1 != 0 && (s.1..s.1 + s.3).contains(&address));
            within.map(|(_, start, offset, _)| address - start + offset)
        };
        let (_, _, start, length) = of(".note.stapsdt")?;
        let base = of(".stapsdt.base").map(|section| section.1);
        let mut at = start as usize;
        while at < (start + length) as usize {
            let (name_size, size) = (word(at, 4) as usize, word(at + 4, 4) as usize);
            let body = at + 12 + name_size.next_multiple_of(4);
            // The base, where the linker kept it, tells how far addresses moved since it ran.
            let moved = base.map_or(0, |base| base.wrapping_sub(word(body + 8, 8)));
            let (location, semaphore) =
                (word(body, 8).wrapping_add(moved), word(body + 16, 8).wrapping_add(moved));
            let text = &elf[body + 24..body + size];
            let mut words = text.split(|&byte| byte == 0);
            if words.next() == Some(b"towpath") && words.next() == Some(wanted.as_bytes()) {
                return Some(Note { location: to_file(location)?, semaphore: to_file(semaphore)? });
            }
            at = body + size.next_multiple_of(4);
        }
        None
    }
}
