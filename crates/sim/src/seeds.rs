//! Runs a property over many seeds, and says how to run the one that failed.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// Runs `property` with `count` seeds, `0..count`.
///
/// `TOWPATH_SIM_SEEDS` in the environment replaces `count`; `TOWPATH_SIM_SEED` runs that one alone.
/// When a property panics, the command that repeats it is printed, and the panic goes on.
///
/// # Panics
/// As the property does; and when one of the variables is not a number.
pub fn for_each_seed(count: u64, mut property: impl FnMut(u64)) {
    if let Some(seed) = variable(ONE_SEED) {
        return property(seed);
    }
    for seed in 0..variable(SEEDS).unwrap_or(count) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| property(seed))) {
            eprintln!("\nseed {seed} failed; to repeat it:\n  {}\n", reproduction(seed));
            resume_unwind(panic);
        }
    }
}

const ONE_SEED: &str = "TOWPATH_SIM_SEED";
const SEEDS: &str = "TOWPATH_SIM_SEEDS";

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    match text.trim().parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={text} is not a number"),
    }
}

/// The test harness names each thread after its test, and cargo says which package it runs.
pub(crate) fn reproduction(seed: u64) -> String {
    let package = env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "PACKAGE".to_owned());
    let thread = thread::current();
    let test = thread.name().unwrap_or("TEST");
    format!("{ONE_SEED}={seed} cargo test -p {package} {test} -- --nocapture")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_comes_once_and_a_failure_goes_on() {
        let mut seen = Vec::new();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for_each_seed(10, |seed| {
                seen.push(seed);
                assert!(seed < 7, "seven is too much");
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(seen, (0..=7).collect::<Vec<_>>());
    }

    #[test]
    fn the_reproduction_names_seed_package_and_test() {
        let line = reproduction(42);
        assert!(line.starts_with("TOWPATH_SIM_SEED=42 cargo test -p towpath-sim "), "{line}");
        assert!(line.contains("the_reproduction_names_seed_package_and_test"), "{line}");
    }
}
