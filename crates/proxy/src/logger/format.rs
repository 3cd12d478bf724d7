//! `--log-format`: the part of spdlog's pattern syntax that says something here.
//!
//! A pattern arrives once, lines leave for each entry. Times are UTC. A flag that is not known is an error at
//! start, not a hole in every line.

use std::fmt::Write;
use std::time::SystemTime;

use time::UtcDateTime;

use super::{Component, Level};

/// A parsed pattern.
#[derive(Clone, Debug)]
pub struct Format {
    parts: Vec<Part>,
}

/// What a line is made of.
pub(super) struct Entry<'a> {
    pub(super) component: Component,
    pub(super) level: Level,
    pub(super) file: &'a str,
    pub(super) line: u32,
    pub(super) message: &'a str,
    pub(super) at: SystemTime,
}

impl Format {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Names the flag that is not known.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut characters = pattern.chars().peekable();
        while let Some(character) = characters.next() {
            if character != '%' {
                push_text(&mut parts, character);
                continue;
            }
            let flag =
                characters.next().ok_or_else(|| "log format ends in a single %".to_owned())?;
            match flag {
                '%' => push_text(&mut parts, '%'),
                // Envoy's own: `%_` and `%j` are the message with line breaks escaped, for plain text and for JSON.
                'v' | '_' | 'j' | 'n' | 'l' | 'L' | 't' | 'P' | 'Y' | 'C' | 'm' | 'd' | 'H'
                | 'M' | 'S' | 'e' | 'f' | 'F' | 'T' | 'D' | 'E' | 'g' | 's' | '#' | '@' | 'z' => {
                    parts.push(Part::Flag(flag))
                }
                unknown => return Err(format!("log format flag %{unknown} is not supported")),
            }
        }
        Ok(Self { parts })
    }

    pub(super) fn render(&self, entry: &Entry<'_>, escape: bool) -> String {
        let mut line = String::with_capacity(entry.message.len() + 80);
        let time = Civil::of(entry.at);
        for part in &self.parts {
            match part {
                Part::Text(text) => line.push_str(text),
                Part::Flag('v') if escape => escaped(&mut line, entry.message),
                Part::Flag('v') => line.push_str(entry.message),
                Part::Flag('_' | 'j') => escaped(&mut line, entry.message),
                Part::Flag(flag) => render_flag(&mut line, *flag, entry, &time),
            }
        }
        line.push('\n');
        line
    }
}

impl Default for Format {
    fn default() -> Self {
        Self::parse(super::DEFAULT_FORMAT).unwrap_or_else(|_| Self { parts: vec![Part::Flag('v')] })
    }
}

/// A UTC date and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil(UtcDateTime);

impl Civil {
    pub(crate) fn of(at: SystemTime) -> Self {
        Self(at.max(SystemTime::UNIX_EPOCH).into())
    }

    /// `2026-11-20T11:38:09.072Z`.
    pub(crate) fn rfc3339_millis(&self) -> String {
        let (year, month, day) = self.date();
        let (hour, minute, second, milli) = self.0.as_hms_milli();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }

    /// `2026-11-20T11:38:09Z`.
    pub(crate) fn rfc3339(&self) -> String {
        let (year, month, day) = self.date();
        let (hour, minute, second) = self.0.as_hms();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    fn date(&self) -> (i32, u8, u8) {
        (self.0.year(), self.0.month().into(), self.0.day())
    }
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Flag(char),
}

fn push_text(parts: &mut Vec<Part>, character: char) {
    if let Some(Part::Text(text)) = parts.last_mut() {
        text.push(character);
    } else {
        parts.push(Part::Text(character.into()));
    }
}

fn render_flag(line: &mut String, flag: char, entry: &Entry<'_>, time: &Civil) {
    let (year, month, day) = time.date();
    let (hour, minute, second, nanos) = time.0.as_hms_nano();
    let unix = time.0.unix_timestamp();
    let base = entry.file.rsplit('/').next().unwrap_or(entry.file);
    let written = match flag {
        'n' => line.write_str(entry.component.name()),
        'l' => line.write_str(entry.level.name()),
        'L' => line.write_str(&entry.level.name()[..1].to_ascii_uppercase()),
        't' => write!(line, "{}", rustix::thread::gettid().as_raw_nonzero()),
        'P' => write!(line, "{}", std::process::id()),
        'Y' => write!(line, "{year:04}"),
        'C' => write!(line, "{:02}", year % 100),
        'm' => write!(line, "{month:02}"),
        'd' => write!(line, "{day:02}"),
        'H' => write!(line, "{hour:02}"),
        'M' => write!(line, "{minute:02}"),
        'S' => write!(line, "{second:02}"),
        'e' => write!(line, "{:03}", nanos / 1_000_000),
        'f' => write!(line, "{:06}", nanos / 1_000),
        'F' => write!(line, "{nanos:09}"),
        'T' => write!(line, "{hour:02}:{minute:02}:{second:02}"),
        'D' => write!(line, "{month:02}/{day:02}/{:02}", year % 100),
        'E' => write!(line, "{unix}"),
        'g' => line.write_str(entry.file),
        's' => line.write_str(base),
        '#' => write!(line, "{}", entry.line),
        '@' => write!(line, "{base}:{}", entry.line),
        'z' => line.write_str("+00:00"),
        other => write!(line, "%{other}"),
    };
    debug_assert!(written.is_ok(), "writing to a string does not fail");
}

/// Escapes control characters, backslashes and quotes, and leaves all other text as it is.
fn escaped(line: &mut String, message: &str) {
    for character in message.chars() {
        if character.is_control() || character == '\\' || character == '"' {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn line(pattern: &str, message: &str) -> String {
        let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_795_174_689_072_345_678);
        let entry = Entry {
            component: Component::Main,
            level: Level::Info,
            file: "crates/proxy/src/a.rs",
            line: 7,
            message,
            at,
        };
        Format::parse(pattern).unwrap().render(&entry, false)
    }

    #[test]
    fn envoys_default_shape() {
        let tid = rustix::thread::gettid().as_raw_nonzero();
        assert_eq!(
            line(super::super::DEFAULT_FORMAT, "hello"),
            format!(
                "[2026-11-20 11:38:09.072][{tid}][info][main] [crates/proxy/src/a.rs:7] hello\n"
            )
        );
    }

    #[test]
    fn every_flag_says_something() {
        assert_eq!(
            line("%Y/%C-%m-%d %H:%M:%S %e %f %F %T %D %E", ""),
            "2026/26-11-20 11:38:09 072 072345 072345678 11:38:09 11/20/26 1795174689\n"
        );
        assert_eq!(
            line("%n %l %L %g %s %# %@ %z %% %v", "m"),
            "main info I crates/proxy/src/a.rs a.rs 7 a.rs:7 +00:00 % m\n"
        );
        assert_eq!(line("%P", ""), format!("{}\n", std::process::id()));
    }

    #[test]
    fn line_breaks_can_be_escaped() {
        assert_eq!(line("%v", "a\nb"), "a\nb\n");
        assert_eq!(line("%_", "a\nb\"é"), "a\\nb\\\"é\n");
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert!(Format::parse("%v %q").is_err());
        assert!(Format::parse("%").is_err());
        assert!(Format::parse("").is_ok());
    }

    #[test]
    fn dates_follow_the_calendar() {
        let date = |seconds| {
            Civil::of(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).rfc3339_millis()
        };
        assert_eq!(date(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(date(951_868_800), "2000-03-01T00:00:00.000Z");
        assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00.000Z");
        assert_eq!(date(253_402_300_799), "9999-12-31T23:59:59.000Z");
    }
}
