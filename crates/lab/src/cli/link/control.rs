//! Changes to a link that is in use: lines on a Unix socket, a line of answer to each.
//!
//! ```text
//! set delay=50ms loss=2/0 rate=1mbit      these of both directions' conditions, the others stay
//! profile edge                            all of them
//! outage 3s                               no link from now on
//! show                                    the conditions
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use towpath_sim::link::{Aqm, Conditions, Loss, Rate};

use super::account::Happening;
use super::{
    conditions_words, parse_aqm, parse_both_delay, parse_both_percent, parse_both_rate,
    parse_gilbert_elliott, parse_profile, parse_queue,
};
use crate::cli::units::parse_seconds;
use crate::link::Link;

/// The socket, which is removed in the end.
pub(super) struct Control {
    listener: UnixListener,
    path: PathBuf,
    down: Conditions,
    up: Conditions,
    taken: Vec<Happening>,
}

impl Control {
    pub(super) fn open(path: &Path, down: &Conditions, up: &Conditions) -> io::Result<Self> {
        let told =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let listener = UnixListener::bind(path).map_err(told)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            down: down.clone(),
            up: up.clone(),
            taken: Vec::new(),
        })
    }

    /// Serves one peer after the other until it is told to stop; answers what was changed, by time since `started`.
    pub(super) fn serve(
        mut self,
        link: &Link,
        started: Instant,
        is_over: &AtomicBool,
    ) -> Vec<Happening> {
        while !is_over.load(Ordering::Relaxed) {
            match self.listener.accept() {
                // A peer that goes away is no concern of the link's.
                Ok((stream, _)) => drop(self.talk(stream, link, started, is_over)),
                Err(_) => std::thread::sleep(TICK),
            }
        }
        std::mem::take(&mut self.taken)
    }

    fn talk(
        &mut self,
        stream: UnixStream,
        link: &Link,
        started: Instant,
        is_over: &AtomicBool,
    ) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TICK))?;
        let mut answers = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while !is_over.load(Ordering::Relaxed) {
            let left = LINE_LIMIT.saturating_sub(line.len()) as u64;
            match reader.by_ref().take(left).read_line(&mut line) {
                Ok(0) if left > 0 => return Ok(()),
                Ok(_) if line.ends_with('\n') => {
                    let answer = self
                        .obey(line.trim(), link, started)
                        .unwrap_or_else(|error| format!("error: {error}"));
                    writeln!(answers, "{answer}")?;
                    line.clear();
                }
                Ok(_) => return writeln!(answers, "error: the line is too long"),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn obey(&mut self, line: &str, link: &Link, started: Instant) -> Result<String, String> {
        let at = started.elapsed();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "show" => {}
            "outage" => {
                let lasts = parse_seconds(rest.trim())?;
                link.break_off(lasts);
                self.note(Happening { at, lasts, what: "outage".to_owned() });
                return Ok("ok".to_owned());
            }
            "profile" => {
                let profile = parse_profile(rest.trim())?;
                (self.down, self.up) = (profile.down(), profile.up());
                link.change(&self.down, &self.up);
            }
            "set" => {
                let (mut down, mut up) = (self.down.clone(), self.up.clone());
                for word in rest.split_whitespace() {
                    let (name, value) = word
                        .split_once('=')
                        .ok_or_else(|| format!("'{word}' is not NAME=VALUE"))?;
                    set(&mut down, &mut up, name, value)?;
                }
                (self.down, self.up) = (down, up);
                link.change(&self.down, &self.up);
            }
            _ => return Err(format!("'{verb}' is none of set, profile, outage and show")),
        }
        let words =
            format!("down: {}; up: {}", conditions_words(&self.down), conditions_words(&self.up));
        if verb != "show" {
            self.note(Happening { at, lasts: Duration::ZERO, what: words.clone() });
        }
        Ok(words)
    }

    /// Keeps what was changed, of more than can be kept the first.
    fn note(&mut self, happening: Happening) {
        match self.taken.len() {
            ..MOST => self.taken.push(happening),
            MOST => self.taken.push(Happening { what: "more changes".to_owned(), ..happening }),
            _ => {}
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Sets one condition of both directions.
fn set(down: &mut Conditions, up: &mut Conditions, name: &str, value: &str) -> Result<(), String> {
    for (conditions, is_down) in [(down, true), (up, false)] {
        match name {
            "loss" => {
                let share = parse_both_percent(value)?.pick(is_down);
                conditions.loss = if share == 0.0 { Loss::None } else { Loss::Bernoulli(share) };
            }
            "gilbert-elliott" => conditions.loss = parse_gilbert_elliott(value)?,
            "delay" => conditions.delay = parse_both_delay(value)?.pick(is_down),
            "jitter" => conditions.jitter = parse_both_delay(value)?.pick(is_down),
            "rate" if value == "any" => conditions.rate = Rate::Unlimited,
            "rate" => conditions.rate = Rate::BitsPerSecond(parse_both_rate(value)?.pick(is_down)),
            "queue" => conditions.queue_bytes = Some(parse_queue(value)?),
            "aqm" if value == "none" => conditions.aqm = Aqm::TailDrop,
            "aqm" => conditions.aqm = parse_aqm(value)?,
            "reorder" => conditions.reorder = parse_both_percent(value)?.pick(is_down),
            "duplicate" => conditions.duplicate = parse_both_percent(value)?.pick(is_down),
            _ => {
                return Err(format!(
                    "'{name}' is none of loss, gilbert-elliott, delay, jitter, rate, queue, aqm, reorder and duplicate"
                ));
            }
        }
    }
    Ok(())
}

/// Changes that are kept for the report.
const MOST: usize = 1000;
const TICK: Duration = Duration::from_millis(50);
const LINE_LIMIT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_set_what_they_name_and_leave_the_rest() {
        let (mut down, mut up) = (Conditions::default(), Conditions::default());
        for (name, value) in [
            ("delay", "50ms/10ms"),
            ("loss", "2/0"),
            ("rate", "1mbit"),
            ("aqm", "codel"),
            ("queue", "10"),
        ] {
            set(&mut down, &mut up, name, value).unwrap();
        }
        assert_eq!((down.delay, up.delay), (Duration::from_millis(50), Duration::from_millis(10)));
        assert_eq!((down.loss, up.loss), (Loss::Bernoulli(0.02), Loss::None));
        assert_eq!(
            (&down.rate, down.aqm, up.queue_bytes),
            (&Rate::BitsPerSecond(1e6), Aqm::CODEL, Some(15_000))
        );
        set(&mut down, &mut up, "gilbert-elliott", "1/25").unwrap();
        let bursts =
            Loss::GilbertElliott { to_bad: 0.01, to_good: 0.25, bad_loss: 1.0, good_loss: 0.0 };
        assert_eq!((down.loss, up.loss), (bursts, bursts));
        set(&mut down, &mut up, "rate", "any").unwrap();
        set(&mut down, &mut up, "aqm", "none").unwrap();
        assert_eq!(
            (down.rate, down.aqm, down.delay),
            (Rate::Unlimited, Aqm::TailDrop, Duration::from_millis(50))
        );
        for (name, value) in [("joy", "1"), ("loss", "101"), ("rate", "0"), ("aqm", "red")] {
            assert!(
                set(&mut Conditions::default(), &mut Conditions::default(), name, value).is_err(),
                "{name}"
            );
        }
    }
}
