//! What is remembered of addresses, names and silences, in a file that a crash leaves whole.
//!
//! Text, one address, name or network a line:
//!
//! ```text
//! towpath-memory 4 1763769600 4b1e3f02
//! 10.0.0.1:443 4.5 0.25 0 18.250 120 home
//! name 120 example.org 10.0.0.1,10.0.0.2 home
//! silence 290 315 86400 home
//! ```
//!
//! The first line has the format's version, the time (seconds since 1970) and the CRC-32 of all that follows it; each
//! other one the address, successes, failures, failures in a row, milliseconds of a connect, how many seconds ago it
//! was used, and the network's label; or that it is a name, how many seconds ago it was answered, the name, its
//! addresses, and the network's label; or that it is how long a network bears silence: the seconds of the longest that
//! was survived, of the shortest that was not, how many seconds ago the search ended (`-` where it is not known), and
//! the label.
//!
//! It is a cache: a file of another version, or one that the disk damaged, is not used at all, and written anew.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use towpath_engine::client::answers::{
    MOST_ADDRESSES as MOST_OF_A_NAME, MOST_ANSWERS, SavedAnswer,
};
use towpath_engine::client::heartbeat::{MOST_NETWORKS, Saved as Silence};
use towpath_engine::client::memory::{Facts, MOST_ADDRESSES, Saved};
use towpath_engine::local::message::Remembered;
use towpath_proto::Instant;

use crate::file::replace;

/// All that a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stored {
    pub(crate) remembered: Remembered,
    pub(crate) silences: Vec<Silence>,
}

/// Writes what is remembered. `unix_s` is the time in seconds since 1970.
pub(crate) fn write(path: &Path, saved: &Stored, unix_s: u64) -> io::Result<()> {
    replace(path, text(saved, unix_s).as_bytes()).map(drop)
}

fn text(saved: &Stored, unix_s: u64) -> String {
    let mut text = String::new();
    let Stored { remembered, silences } = saved;
    for one in &remembered.addresses {
        let Facts { successes, failures, in_row, connect, .. } = one.facts;
        let connect_ms = connect.as_secs_f64() * 1e3;
        let label = label(&one.network);
        let _ = writeln!(
            text,
            "{} {successes} {failures} {in_row} {connect_ms} {} {label}",
            one.address,
            one.age.as_secs()
        );
    }
    for one in &remembered.answers {
        let addresses: Vec<String> = one.addresses.iter().map(ToString::to_string).collect();
        let (age_s, label) = (one.age.as_secs(), label(&one.network));
        let _ = writeln!(text, "{NAME}{age_s} {} {} {label}", one.name, addresses.join(","));
    }
    for one in silences {
        let seconds = |time: Option<Duration>| {
            time.map_or_else(|| "-".to_owned(), |time| time.as_secs_f64().to_string())
        };
        let (failed, settled) = (seconds(one.failed), seconds(one.settled));
        let (survived, label) = (one.survived.as_secs_f64(), label(&one.network));
        let _ = writeln!(text, "{SILENCE} {survived} {failed} {settled} {label}");
    }
    let sum = crc32fast::hash(text.as_bytes());
    format!("{MAGIC} {VERSION} {unix_s} {sum:08x}\n{text}")
}

/// As much of a label as fits in a line.
fn label(network: &str) -> String {
    network.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Reads what was remembered; nothing, where there is no such file.
pub(crate) fn read(path: &Path, unix_s: u64) -> io::Result<Stored> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Stored::default()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    parse(&bytes, unix_s)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "damaged, or of another version"))
}

fn parse(bytes: &[u8], unix_s: u64) -> Option<Stored> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (first, lines) = text.split_once('\n')?;
    let words: Vec<&str> = first.split(' ').collect();
    let [MAGIC, VERSION, then, sum] = words[..] else { return None };
    if u32::from_str_radix(sum, 16) != Ok(crc32fast::hash(lines.as_bytes())) {
        return None;
    }
    parse_lines(lines, then.parse().ok()?, unix_s)
}

fn parse_lines(lines: &str, then: u64, unix_s: u64) -> Option<Stored> {
    // A clock that was set back makes nothing younger than it was.
    let since = Duration::from_secs(unix_s.saturating_sub(then));
    let mut found = Stored::default();
    let Stored { remembered, silences } = &mut found;
    for line in lines.lines().take(MOST_ADDRESSES + MOST_ANSWERS + MOST_NETWORKS) {
        if let Some(line) = line.strip_prefix(NAME) {
            remembered.answers.push(parse_name(line, since)?);
        } else if let Some(line) = line.strip_prefix(SILENCE) {
            silences.push(parse_silence(line, since)?);
        } else {
            remembered.addresses.push(parse_line(line, since)?);
        }
    }
    Some(found)
}

fn parse_silence(line: &str, since: Duration) -> Option<Silence> {
    let mut words = line.strip_prefix(' ')?.splitn(4, ' ');
    let seconds = |word: &str, most: f64| {
        let number: Option<f64> = word.parse().ok();
        number.filter(|s| (0.0..=most).contains(s)).map(Duration::from_secs_f64)
    };
    let survived = seconds(words.next()?, LONGEST_SILENCE_S)?;
    let mut perhaps = |most| match words.next()? {
        "-" => Some(None),
        word => seconds(word, most).map(Some),
    };
    let (failed, settled) = (perhaps(LONGEST_SILENCE_S)?, perhaps(1e9)?);
    let network = words.next()?.into();
    Some(Silence { network, survived, failed, settled: settled.map(|then| age(then, since)) })
}

fn parse_name(line: &str, since: Duration) -> Option<SavedAnswer> {
    let mut words = line.splitn(4, ' ');
    let age_s = words.next()?.parse().ok().filter(|s: &u64| *s < 1_000_000_000)?;
    let name = words.next()?.into();
    let addresses = words.next()?.split(',').take(MOST_OF_A_NAME);
    let addresses = addresses.map(|ip| ip.parse().ok()).collect::<Option<_>>()?;
    let network = words.next()?.into();
    let age = age(Duration::from_secs(age_s), since);
    Some(SavedAnswer { network, name, addresses, age })
}

fn parse_line(line: &str, since: Duration) -> Option<Saved> {
    let mut words = line.splitn(7, ' ');
    let address = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse().ok().filter(|n: &f64| (0.0..1e9).contains(n));
    let (successes, failures, in_row) = (number()?, number()?, number()?);
    let (connect_ms, age_s) = (number()?, number()?);
    let network = words.next()?.into();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and 10⁹"
    )]
    let in_row = in_row as u32;
    let connect = Duration::from_secs_f64(connect_ms / 1e3);
    let facts = Facts { successes, failures, in_row, connect, updated: Instant::ZERO };
    Some(Saved { network, address, facts, age: age(Duration::from_secs_f64(age_s), since) })
}

/// What was so old when the file was written. A clock that was wrong then makes nothing so old that it would not be
/// read again.
fn age(then: Duration, since: Duration) -> Duration {
    (then + since).min(OLDEST)
}

const MAGIC: &str = "towpath-memory";
const VERSION: &str = "4";
/// What a line of a name begins with.
const NAME: &str = "name ";
/// What a line of a network's silences begins with.
const SILENCE: &str = "silence";
/// One day: no link waits longer for a heartbeat.
const LONGEST_SILENCE_S: f64 = 86_400.0;
/// Thirty years: older than anything that is of use.
const OLDEST: Duration = Duration::from_secs(999_999_999);
const MOST_BYTES: u64 = 1 << 20;

#[cfg(fuzzing)]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn one(number: u8, network: &str) -> Saved {
        Saved {
            network: network.into(),
            address: ([10, 0, 0, number], 443).into(),
            facts: Facts {
                successes: 1.5,
                failures: 0.25,
                in_row: 2,
                connect: Duration::from_micros(18_250),
                updated: Instant::ZERO,
            },
            age: Duration::from_secs(60),
        }
    }

    #[test]
    fn what_is_written_is_read_and_has_grown_older() {
        let folder = std::env::temp_dir().join(format!("towpath-store-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("memory");
        assert_eq!(read(&path, 0).unwrap(), Stored::default());
        let name = SavedAnswer {
            network: "home of us".into(),
            name: "example.org".into(),
            addresses: vec![[10, 0, 0, 1].into(), "fd00::1".parse().unwrap()],
            age: Duration::from_secs(5),
        };
        let addresses = vec![one(1, "home of us"), one(2, "")];
        let remembered = Remembered { addresses, answers: vec![name.clone()] };
        let silence = |network: &str, failed, settled| Silence {
            network: network.into(),
            survived: Duration::from_millis(290_500),
            failed,
            settled,
        };
        let found = silence("home of us", Some(SECOND * 315), Some(SECOND * 60));
        let silences = vec![found.clone(), silence("", None, None)];
        let saved = Stored { remembered, silences };
        write(&path, &Stored::default(), 900).unwrap();
        write(&path, &saved, 1000).unwrap();
        let read_again = read(&path, 1300).unwrap();
        let settled = Some(SECOND * 360);
        let grown = [Silence { settled, ..found }, silence("", None, None)];
        assert_eq!(read_again.silences, grown);
        let Remembered { addresses: found, answers } = read_again.remembered;
        assert_eq!(answers, [SavedAnswer { age: Duration::from_secs(305), ..name }]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].age, Duration::from_secs(360));
        assert_eq!((&*found[0].network, &*found[1].network), ("home of us", ""));
        assert_eq!(found[1].facts, saved.remembered.addresses[1].facts);
        // What a crash left of a later write is not looked at.
        fs::write(folder.join("memory.new"), "half a li").unwrap();
        assert_eq!(read(&path, 1300).unwrap().remembered.addresses.len(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }

    fn parsed(version: &str, lines: &str, unix_s: u64) -> Option<Stored> {
        let sum = crc32fast::hash(lines.as_bytes());
        parse(format!("{MAGIC} {version} 1 {sum:08x}\n{lines}").as_bytes(), unix_s)
    }

    #[test]
    fn a_clock_that_began_in_1970_makes_nothing_unreadable() {
        let lines = "10.0.0.1:1 1 1 1 1 9 x\nname 9 host 10.0.0.1 x\nsilence 60 90 9 x\n";
        let found = parsed(VERSION, lines, 2_000_000_000).unwrap();
        assert_eq!(found.silences[0].settled, Some(OLDEST));
        let again = parse(text(&found, 2_000_000_000).as_bytes(), 2_000_000_000).unwrap();
        assert_eq!(again, found);
    }

    #[test]
    fn what_is_no_memory_is_refused() {
        for lines in [
            "nonsense\n",
            "10.0.0.1:1 1 1 1 1 nan x\n",
            "10.0.0.1:1 -1 1 1 1 1 x\n",
            "name 1 host 10.0.0.1\n",
            "name 1 host 10.0.0 x\n",
            "name -1 host 10.0.0.1 x\n",
            "silence\n",
            "silence 1 2 3\n",
            "silence nan - - x\n",
            "silence -1 - - x\n",
            "silence 1e99 - - x\n",
            "silence 60 inf - x\n",
            "silence 60 - 1e10 x\n",
        ] {
            assert_eq!(parsed(VERSION, lines, 0), None, "{lines:?}");
        }
        let good = "10.0.0.1:1 1 1 1 1 1 x\nsilence 60 90 - y\n";
        assert!(parsed(VERSION, good, 0).is_some());
        assert_eq!(parsed("3", good, 0), None);
        assert_eq!(parsed("5", good, 0), None);
    }

    #[test]
    fn damage_of_any_byte_and_any_cut_are_seen() {
        let lines = "10.0.0.1:1 1 1 1 1 9 x\nname 9 host 10.0.0.1 x\nsilence 60 90 9 x\n";
        let whole = text(&parsed(VERSION, lines, 9).unwrap(), 9).into_bytes();
        for at in 0..whole.len() {
            assert_eq!(parse(&whole[..at], 9), None, "cut at {at}");
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            assert_eq!(parse(&damaged, 9), None, "byte {at}");
        }
        assert_eq!(parse(&vec![0; whole.len()], 9), None);
    }

    const SECOND: Duration = Duration::from_secs(1);
}
