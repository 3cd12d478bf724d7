//! The time zone of this machine, for `%START_TIME_LOCAL%`: what `TZ` names, else `/etc/localtime` (RFC 9636).

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use time::{Date, Month};
use towpath_engine::format::{Shift, Zone};

/// The zone as it was when it was asked for first, as in Envoy; UTC where it is not to be read.
pub(crate) fn local() -> &'static Arc<Zone> {
    static LOCAL: LazyLock<Arc<Zone>> = LazyLock::new(|| {
        let named = std::env::var("TZ").ok();
        let file = std::fs::read(path(named.as_deref())).ok().filter(|it| it.len() <= MOST_BYTES);
        let zone = file.and_then(|file| read(&file));
        Arc::new(zone.unwrap_or_else(Zone::utc))
    });
    &LOCAL
}

/// Where a zone is: `TZ` may begin with a colon, and names a file or one of the system's zones.
fn path(named: Option<&str>) -> PathBuf {
    match named.map(|name| name.strip_prefix(':').unwrap_or(name)) {
        None | Some("localtime") => PathBuf::from("/etc/localtime"),
        Some(name) => Path::new("/usr/share/zoneinfo").join(name),
    }
}

/// Reads a file of a zone. Of one in two versions the second counts.
fn read(file: &[u8]) -> Option<Zone> {
    let first = Header::read(file)?;
    if first.version == 0 {
        return Some(data(file.get(HEADER..)?, &first, 4)?.0);
    }
    let second = file.get(HEADER + first.length(4)..)?;
    let header = Header::read(second)?;
    let (zone, behind) = data(second.get(HEADER..)?, &header, 8)?;
    // From the last change on the rule behind it holds.
    let rule = std::str::from_utf8(behind).ok()?.strip_prefix('\n')?.split('\n').next()?;
    match Rule::read(rule) {
        Some(rule) => Some(rule.extend(zone, last_change(second, &header))),
        None => Some(zone),
    }
}

struct Header {
    version: u8,
    utc_marks: usize,
    standard_marks: usize,
    leaps: usize,
    changes: usize,
    types: usize,
    names: usize,
}

impl Header {
    fn read(file: &[u8]) -> Option<Self> {
        let head = file.get(..HEADER)?.strip_prefix(b"TZif")?;
        let number = |at: usize| {
            let bytes = head.get(16 + at * 4..)?.first_chunk()?;
            usize::try_from(u32::from_be_bytes(*bytes)).ok().filter(|it| *it <= MOST_BYTES)
        };
        Some(Self {
            version: *head.first()?,
            utc_marks: number(0)?,
            standard_marks: number(1)?,
            leaps: number(2)?,
            changes: number(3)?,
            types: number(4)?,
            names: number(5)?,
        })
    }

    /// How long the data behind it are where a time has so many bytes.
    fn length(&self, time: usize) -> usize {
        self.changes * (time + 1)
            + self.types * 6
            + self.names
            + self.leaps * (time + 4)
            + self.standard_marks
            + self.utc_marks
    }
}

/// A zone, and what stands behind its data.
fn data<'a>(bytes: &'a [u8], header: &Header, time: usize) -> Option<(Zone, &'a [u8])> {
    let (times, rest) = bytes.split_at_checked(header.changes * time)?;
    let (which, rest) = rest.split_at_checked(header.changes)?;
    let (types, rest) = rest.split_at_checked(header.types * 6)?;
    let names = rest.get(..header.names)?;
    let shift = |at: usize| {
        let of = types.get(at * 6..)?.first_chunk::<6>()?;
        let offset = i32::from_be_bytes(*of.first_chunk()?);
        let name = names.get(usize::from(of[5])..)?.split(|byte| *byte == 0).next()?;
        Some(Shift { offset, name: String::from_utf8_lossy(name).into() })
    };
    let changes = times.chunks_exact(time).zip(which);
    let changes: Option<Vec<_>> =
        changes.map(|(at, which)| Some((moment(at)?, shift(usize::from(*which))?))).collect();
    Some((Zone::new(shift(0)?, changes?), bytes.get(header.length(time)..)?))
}

fn moment(bytes: &[u8]) -> Option<i64> {
    match bytes.len() {
        4 => Some(i32::from_be_bytes(*bytes.first_chunk()?).into()),
        _ => Some(i64::from_be_bytes(*bytes.first_chunk()?)),
    }
}

/// The time of the last change of a file in the second version.
fn last_change(file: &[u8], header: &Header) -> Option<i64> {
    let at = HEADER + header.changes.checked_sub(1)? * 8;
    moment(file.get(at..at + 8)?)
}

const HEADER: usize = 44;
/// Files of zones have a few thousand.
const MOST_BYTES: usize = 1 << 20;

/// What holds from the last change on, as POSIX writes `TZ`: `CET-1CEST,M3.5.0,M10.5.0/3`.
struct Rule {
    standard: Shift,
    /// Summer time, when it begins, and when standard time does.
    summer: Option<(Shift, Day, Day)>,
}

/// A day of each year, and the second of it in the time that holds until then.
#[derive(Clone, Copy)]
struct Day {
    which: Which,
    second: i64,
}

#[derive(Clone, Copy)]
enum Which {
    /// `M3.2.0`: of a month the so-many-th (5: the last) Sunday.
    Weekday { month: u8, week: u8, weekday: u8 },
    /// `J60`: counted from 1, without 29 February.
    WithoutLeapDay(u16),
    /// `59`: counted from 0.
    OfYear(u16),
}

impl Rule {
    fn read(text: &str) -> Option<Self> {
        let (name, rest) = zone_name(text)?;
        let (west, rest) = duration(rest)?;
        let standard = shift(name, -west)?;
        if rest.is_empty() {
            return Some(Self { standard, summer: None });
        }
        let (name, rest) = zone_name(rest)?;
        let (offset, rest) = match duration(rest) {
            Some((west, rest)) => (-west, rest),
            None => (i64::from(standard.offset) + 3600, rest),
        };
        let (begins, ends) = rest.strip_prefix(',')?.split_once(',')?;
        let summer = (shift(name, offset)?, Day::read(begins)?, Day::read(ends)?);
        Some(Self { standard, summer: Some(summer) })
    }

    /// Adds its changes to a zone whose own end with the `last`.
    fn extend(&self, mut zone: Zone, last: Option<i64>) -> Zone {
        let Some((summer, begins, ends)) = &self.summer else { return zone };
        let [before_summer, before_standard] = [self.standard.offset, summer.offset].map(i64::from);
        let changes = (1970..=LAST_YEAR).flat_map(|year| {
            let of =
                |day: &Day, offset: i64, to: &Shift| Some((day.at(year)? - offset, to.clone()));
            let both =
                [of(begins, before_summer, summer), of(ends, before_standard, &self.standard)];
            both.into_iter().flatten()
        });
        zone.extend(changes.filter(|(at, _)| last.is_none_or(|last| *at > last)));
        zone
    }
}

impl Day {
    fn read(text: &str) -> Option<Self> {
        let (day, time) = match text.split_once('/') {
            Some((day, time)) => (day, duration(time).filter(|(_, rest)| rest.is_empty())?.0),
            None => (text, 2 * 3600),
        };
        let which = match (day.strip_prefix('M'), day.strip_prefix('J')) {
            (Some(day), _) => {
                let mut numbers = day.splitn(3, '.').map(str::parse);
                let mut number = || numbers.next()?.ok();
                Which::Weekday { month: number()?, week: number()?, weekday: number()? }
            }
            (None, Some(day)) => Which::WithoutLeapDay(day.parse().ok()?),
            (None, None) => Which::OfYear(day.parse().ok()?),
        };
        Some(Self { which, second: time })
    }

    /// Its second since 1970 in a year, as if its time were UTC.
    fn at(&self, year: i32) -> Option<i64> {
        let date = match self.which {
            Which::OfYear(day) => Date::from_ordinal_date(year, day + 1).ok()?,
            Which::WithoutLeapDay(day) => {
                let leaps = day >= 60 && time::util::is_leap_year(year);
                Date::from_ordinal_date(year, day + u16::from(leaps)).ok()?
            }
            Which::Weekday { month, week, weekday } => {
                let month = Month::try_from(month).ok()?;
                let first = Date::from_calendar_date(year, month, 1).ok()?;
                let after = (7 + weekday - first.weekday().number_days_from_sunday()) % 7;
                let mut day = 1 + after + 7 * week.checked_sub(1)?;
                while day > month.length(year) {
                    day -= 7;
                }
                first.replace_day(day).ok()?
            }
        };
        Some(date.midnight().assume_utc().unix_timestamp() + self.second)
    }
}

/// `CET` or `<+03>`, and what follows.
fn zone_name(text: &str) -> Option<(&str, &str)> {
    if let Some(quoted) = text.strip_prefix('<') {
        return quoted.split_once('>');
    }
    let end = text.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(text.len());
    (end >= 3).then(|| text.split_at(end))
}

/// `-3`, `5:30` or `2:00:00` in seconds, and what follows.
fn duration(text: &str) -> Option<(i64, &str)> {
    let end = text.find(|it: char| !it.is_ascii_digit() && !"+-:".contains(it));
    let (number, rest) = text.split_at(end.unwrap_or(text.len()));
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let mut seconds = 0;
    for (part, unit) in number.splitn(3, ':').zip([3600, 60, 1]) {
        // RFC 9636 §3.3.2: up to 167 hours.
        seconds += part.parse::<u8>().ok().map(i64::from)? * unit;
    }
    Some((sign * seconds, rest))
}

fn shift(name: &str, offset: i64) -> Option<Shift> {
    Some(Shift { offset: i32::try_from(offset).ok()?, name: name.into() })
}

/// Rules are followed until then.
const LAST_YEAR: i32 = 2105;

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(rule: &str) -> Zone {
        let utc = Zone::utc();
        Rule::read(rule).unwrap().extend(utc, None)
    }

    fn at(zone: &Zone, second: i64) -> (i32, &str) {
        let shift = zone.at(second);
        (shift.offset, &*shift.name)
    }

    #[test]
    fn rules_are_followed() {
        let berlin = zone("CET-1CEST,M3.5.0,M10.5.0/3");
        // 2026-03-29T01:00:00Z and 2026-10-25T01:00:00Z.
        assert_eq!(at(&berlin, 1_774_745_999), (3600, "CET"));
        assert_eq!(at(&berlin, 1_774_746_000), (7200, "CEST"));
        assert_eq!(at(&berlin, 1_792_889_999), (7200, "CEST"));
        assert_eq!(at(&berlin, 1_792_890_000), (3600, "CET"));
        let new_york = zone("EST5EDT,M3.2.0,M11.1.0");
        // 2026-03-08T07:00:00Z.
        assert_eq!(at(&new_york, 1_772_953_199), (-18_000, "EST"));
        assert_eq!(at(&new_york, 1_772_953_200), (-14_400, "EDT"));
        let lord_howe = zone("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0");
        assert_eq!(at(&lord_howe, 1_767_225_600), (39_600, "+11"));
        // 29 February does not count: 1 March in both years.
        let odd = zone("AAA0BBB,J60/0,300/0");
        assert_eq!((at(&odd, 1_772_323_199).1, at(&odd, 1_772_323_200).1), ("AAA", "BBB"));
        assert_eq!((at(&odd, 1_709_251_199).1, at(&odd, 1_709_251_200).1), ("AAA", "BBB"));
        for wrong in ["", "A", "CET", "CET-1CEST", "CET-1CEST,M3.5.0", "CET-1CEST,M3,M4", "<a5"] {
            assert!(Rule::read(wrong).is_none(), "{wrong}");
        }
    }

    /// A file of two versions, with one change each and a rule behind.
    fn file(rule: &str) -> Vec<u8> {
        let mut file = Vec::new();
        for (time, change) in [(4, vec![0, 0, 0, 50]), (8, vec![0, 0, 0, 0, 0, 0, 0, 100])] {
            file.extend_from_slice(b"TZif2");
            file.extend_from_slice(&[0; 15]);
            for number in [0, 0, 0, 1, 2, 8_u32] {
                file.extend_from_slice(&number.to_be_bytes());
            }
            assert_eq!(change.len(), time);
            file.extend_from_slice(&change);
            file.push(1);
            for (offset, name) in [(0_i32, 0_u8), (3600, 4)] {
                file.extend_from_slice(&offset.to_be_bytes());
                file.extend_from_slice(&[0, name]);
            }
            file.extend_from_slice(b"LMT\0CET\0");
        }
        file.extend_from_slice(format!("\n{rule}\n").as_bytes());
        file
    }

    #[test]
    fn files_are_read_and_what_is_none_is_not() {
        let zone = read(&file("CET-1CEST,M3.5.0,M10.5.0/3")).unwrap();
        assert_eq!((at(&zone, 99), at(&zone, 100)), ((0, "LMT"), (3600, "CET")));
        assert_eq!(at(&zone, 1_774_746_000), (7200, "CEST"));
        assert_eq!(at(&read(&file("CET-1")).unwrap(), 1_774_746_000), (3600, "CET"));
        let whole = file("CET-1");
        let end = whole.len() - "\nCET-1\n".len();
        for cut in 0..end {
            assert!(read(&whole[..cut]).is_none(), "{cut}");
        }
        assert!(read(b"not a zone").is_none());
    }
}
