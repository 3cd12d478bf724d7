//! h2specd: a server for each case, which breaks a rule and looks at what the client makes of it.

use std::path::Path;
use std::process::Command;

/// Runs all, each with this command and its URL behind it; panics unless all pass.
pub(crate) fn meet(h2specd: &Path, command: &str) {
    let process = std::process::id();
    for attempt in 0..5 {
        // A range of ports below those that the system gives out, which is free unless others run the same.
        let first = 10_000 + (process + 31 * attempt) % 200 * 100;
        let output = Command::new(h2specd)
            .args(["--from-port", &first.to_string(), "--timeout", "10", "--exec", command])
            .output()
            .expect("h2specd starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match said.lines().rev().find(|line| line.contains(" passed, ")) {
            Some(count) => {
                let left =
                    said.lines().filter(|line| line.contains("Actual: ")).collect::<Vec<_>>();
                // What ends with something unread resets its connections: to h2specd that is no end.
                assert!(left.iter().all(|actual| actual.contains(RESET)), "{said}");
                assert!(left.len() <= 6, "{said}");
                assert!(
                    count.starts_with("57 tests, ") && count.contains(" 0 skipped, "),
                    "{said}"
                );
                return;
            }
            // It gives up where a command takes three seconds, and where a port is taken.
            None => eprintln!("h2specd gave up: {}", said.lines().last().unwrap_or_default()),
        }
    }
    panic!("h2specd gave up each time");
}

const RESET: &str = "connection reset by peer";
