//! Questions for addresses and their answers on the wire (RFC 1035 §4, RFC 3596, RFC 6891), whatever carries them.

use std::net::IpAddr;
use std::time::Duration;

/// Which family's addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4.
    A,
    /// IPv6.
    Aaaa,
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Addresses, which may be none (RFC 2308 §2.2), and how long they may be kept, where that is said.
    Addresses(Vec<IpAddr>, Option<Duration>),
    /// The name does not exist (`NXDOMAIN`), and how long that may be kept.
    NoSuchName(Option<Duration>),
    /// The answer is longer than a datagram: it is to be had over TCP.
    Truncated,
    /// The server does not understand the question; perhaps it does without EDNS (RFC 6891 §7).
    Malformed,
    /// The server cannot answer (`SERVFAIL`, `REFUSED`, …).
    Failed,
}

/// A name as it stands in a message; none where it cannot stand in one (RFC 1035 §2.3.4).
#[must_use]
pub fn encode_name(name: &str) -> Option<Vec<u8>> {
    let mut wire = Vec::with_capacity(name.len() + 2);
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        wire.push(length);
        wire.extend_from_slice(label.as_bytes());
    }
    wire.push(0);
    (wire.len() <= 255).then_some(wire)
}

/// Whether DNS is to be asked for a name, and no other source may know it: it has a dot, stands below none of `local`,
/// `localhost` and `onion` (RFC 6761, RFC 6762, RFC 7686), and is no spelling of an address.
#[must_use]
pub fn is_of_dns(name: &str) -> bool {
    let ends_with = |domain: &str| {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        name.strip_suffix(domain).is_some_and(|left| left.is_empty() || left.ends_with('.'))
    };
    name.contains('.')
        && encode_name(name).is_some()
        && !LOCAL.iter().any(|domain| ends_with(domain))
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && name.parse::<IpAddr>().is_err()
        // inet_aton(3) takes many more spellings of an address.
        && !name.ends_with(|last: char| last.is_ascii_digit())
}

/// A question, that servers are to answer with the help of others. With EDNS the answer may have 1232 bytes, which
/// fit through every IPv6 path.
#[must_use]
pub fn question(id: u16, name: &[u8], kind: Kind, edns: bool) -> Vec<u8> {
    let mut message = Vec::with_capacity(name.len() + 27);
    message.extend_from_slice(&id.to_be_bytes());
    message.extend_from_slice(&[RECURSION_DESIRED, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns)]);
    message.extend_from_slice(name);
    message.extend_from_slice(&kind.number().to_be_bytes());
    message.extend_from_slice(&INTERNET.to_be_bytes());
    if edns {
        message.push(0);
        for field in [OPT, DATAGRAM_BYTES, 0, 0, 0] {
            message.extend_from_slice(&field.to_be_bytes());
        }
    }
    message
}

/// What a message says to a question; none where it answers another, or is no message.
#[must_use]
pub fn parse(message: &[u8], id: u16, name: &[u8], kind: Kind) -> Option<Reply> {
    let mut reader = Reader { message, at: 0 };
    let (theirs, flags) = (reader.u16()?, reader.u16()?);
    if theirs != id || flags & RESPONSE == 0 {
        return None;
    }
    let [questions, answers, authorities, _] =
        [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
    let code = flags & CODE;
    if questions == 0 && code != 0 {
        // Some that do not understand a question do not repeat it.
        return Some(if code == 1 { Reply::Malformed } else { Reply::Failed });
    }
    let asked = reader.take(name.len())?;
    let same = asked.eq_ignore_ascii_case(name);
    if questions != 1 || !same || reader.u16()? != kind.number() || reader.u16()? != INTERNET {
        return None;
    }
    match code {
        0 => {}
        1 => return Some(Reply::Malformed),
        3 => {
            // Behind the aliases that it has (RFC 2308 §2.1); one that is damaged denies all the same.
            let aliases = reader.addresses(answers, kind).map(|(_, lifetime)| lifetime);
            let denied = aliases.and_then(|aliases| reader.denied_for(authorities, aliases));
            return Some(Reply::NoSuchName(denied));
        }
        _ => return Some(Reply::Failed),
    }
    if flags & TRUNCATED != 0 {
        return Some(Reply::Truncated);
    }
    let (found, lifetime) = reader.addresses(answers, kind)?;
    let lifetime =
        if found.is_empty() { reader.denied_for(authorities, lifetime) } else { lifetime };
    Some(Reply::Addresses(found, lifetime))
}

struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.message.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// Those of the asked kind, and the least time to live of all records. Whose they are in a chain of aliases does
    /// not matter: the server was asked for the end of the chain, and one that lies can as well lie about the name
    /// itself.
    fn addresses(&mut self, records: u16, kind: Kind) -> Option<(Vec<IpAddr>, Option<Duration>)> {
        let (mut addresses, mut lifetime) = (Vec::new(), None);
        for _ in 0..records {
            let (number, ttl, data) = self.record()?;
            lifetime = [lifetime, Some(ttl)].into_iter().flatten().min();
            if number == kind.number() && addresses.len() < MOST_ADDRESSES {
                let address = match kind {
                    Kind::A => <[u8; 4]>::try_from(data).ok()?.into(),
                    Kind::Aaaa => <[u8; 16]>::try_from(data).ok()?.into(),
                };
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        Some((addresses, lifetime))
    }

    /// How long a denial may be kept: as the zone says (RFC 2308 §5), and no longer than the aliases that lead to it;
    /// not at all where the zone says nothing.
    fn denied_for(&mut self, records: u16, aliases: Option<Duration>) -> Option<Duration> {
        for _ in 0..records {
            let (number, ttl, data) = self.record()?;
            if number == START_OF_AUTHORITY {
                let minimum = lifetime(*data.last_chunk()?);
                return [Some(ttl), Some(minimum), aliases].into_iter().flatten().min();
            }
        }
        None
    }

    /// What kind of record comes next, its time to live, and its data. One of another class is of no kind.
    fn record(&mut self) -> Option<(u16, Duration, &'a [u8])> {
        self.skip_name()?;
        let (number, class) = (self.u16()?, self.u16()?);
        let ttl = lifetime(self.take(4)?.try_into().ok()?);
        let length = usize::from(self.u16()?);
        let number = if class == INTERNET { number } else { 0 };
        Some((number, ttl, self.take(length)?))
    }

    /// Past a name, whose end may be a pointer to another (RFC 1035 §4.1.4), which is not followed.
    fn skip_name(&mut self) -> Option<()> {
        loop {
            match self.take(1)?[0] {
                0 => return Some(()),
                length @ 1..=63 => drop(self.take(length.into())?),
                192..=255 => return self.take(1).map(drop),
                64..=191 => return None,
            }
        }
    }
}

/// Seconds; those with the highest bit are none (RFC 2181 §8).
fn lifetime(bytes: [u8; 4]) -> Duration {
    let seconds = i32::from_be_bytes(bytes);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

impl Kind {
    const fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }
}

/// Domains that others than DNS know.
const LOCAL: [&str; 3] = ["localhost", "local", "onion"];
const INTERNET: u16 = 1;
const START_OF_AUTHORITY: u16 = 6;
const OPT: u16 = 41;
/// What a server may send in one datagram.
pub(super) const DATAGRAM_BYTES: u16 = 1232;
const RECURSION_DESIRED: u8 = 1;
const RESPONSE: u16 = 1 << 15;
const TRUNCATED: u16 = 1 << 9;
const CODE: u16 = 15;
/// Of one family.
const MOST_ADDRESSES: usize = 32;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An answer to a question, with these records behind an alias.
    pub(in super::super) fn answer(question: &[u8], flags: u16, records: &[IpAddr]) -> Vec<u8> {
        let end = question[12..].iter().position(|byte| *byte == 0).unwrap() + 12 + 5;
        let mut message = question[..end].to_vec();
        message[2..4].copy_from_slice(&(RESPONSE | flags).to_be_bytes());
        let count = u16::try_from(records.len() + 1).unwrap();
        message[6..8].copy_from_slice(&count.to_be_bytes());
        message[10..12].copy_from_slice(&[0, 0]);
        // An alias: the name, `CNAME`, and where it leads to.
        message.extend_from_slice(&[0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 4, 1, b'x', 0xc0, 12]);
        for record in records {
            message.extend_from_slice(&[1, b'x', 0xc0, 12, 0]);
            let (number, bytes) = match record {
                IpAddr::V4(ip) => (1, ip.octets().to_vec()),
                IpAddr::V6(ip) => (28, ip.octets().to_vec()),
            };
            message.extend_from_slice(&[number, 0, 1, 0, 0, 0, 60, 0]);
            message.push(u8::try_from(bytes.len()).unwrap());
            message.extend_from_slice(&bytes);
        }
        message
    }

    /// With the start of its zone, which has this time to live and this minimum, behind another record.
    pub(in super::super) fn deny(answer: &[u8], zone: Option<(u32, u32)>) -> Vec<u8> {
        let mut message = answer.to_vec();
        message[8..10].copy_from_slice(&[0, 1 + u8::from(zone.is_some())]);
        message.extend_from_slice(&[0xc0, 12, 0, 46, 0, 1, 0, 0, 0, 1, 0, 0]);
        if let Some((ttl, minimum)) = zone {
            message.extend_from_slice(&[0xc0, 12, 0, 6, 0, 1]);
            message.extend_from_slice(&ttl.to_be_bytes());
            message.extend_from_slice(&[0, 24, 0xc0, 12, 0xc0, 12]);
            message.extend_from_slice(&[0; 16]);
            message.extend_from_slice(&minimum.to_be_bytes());
        }
        message
    }

    #[test]
    fn a_question_is_as_rfc_1035_has_it() {
        let name = encode_name("Ab.test").unwrap();
        assert_eq!(name, b"\x02Ab\x04test\0");
        let plain = question(0x1234, &name, Kind::Aaaa, false);
        assert_eq!(plain, b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x02Ab\x04test\0\0\x1c\0\x01");
        let extended = question(0x1234, &name, Kind::A, true);
        let tail = b"\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";
        assert!(extended.ends_with(tail), "{extended:?}");
        assert_eq!(extended[11], 1);
        assert_eq!(encode_name("ab.test."), encode_name("ab.test"));
        for name in ["", ".", "a..b", &"a".repeat(64), &"a.".repeat(128)] {
            assert_eq!(encode_name(name), None, "{name}");
        }
    }

    #[test]
    fn answers_are_understood_and_those_of_others_are_not() {
        let name = encode_name("ab.test").unwrap();
        let asked = question(7, &name, Kind::A, true);
        let addresses: Vec<IpAddr> = vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let good = answer(&asked, 0, &addresses);
        let read = |message: &[u8]| parse(message, 7, &name, Kind::A);
        let minute = Some(Duration::from_secs(60));
        assert_eq!(read(&good), Some(Reply::Addresses(addresses.clone(), minute)));
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(read(&answer(&asked, 0, &[six])), Some(Reply::Addresses(Vec::new(), None)));
        for (flags, reply) in [
            (TRUNCATED, Reply::Truncated),
            (1, Reply::Malformed),
            (2, Reply::Failed),
            (3, Reply::NoSuchName(None)),
            (5, Reply::Failed),
        ] {
            assert_eq!(read(&answer(&asked, flags, &addresses)), Some(reply));
        }
        assert_eq!(parse(&good, 8, &name, Kind::A), None, "another number");
        assert_eq!(parse(&good, 7, &name, Kind::Aaaa), None, "another kind");
        assert_eq!(parse(&good, 7, &encode_name("ac.test").unwrap(), Kind::A), None);
        assert_eq!(parse(&asked, 7, &name, Kind::A), None, "a question is no answer");
        let other_case = encode_name("AB.test").unwrap();
        assert!(parse(&good, 7, &other_case, Kind::A).is_some());
    }

    #[test]
    fn answers_hold_for_the_least_time_of_their_records() {
        let name = encode_name("ab.test").unwrap();
        let asked = question(7, &name, Kind::A, true);
        let good = answer(&asked, 0, &[[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]);
        // Where the times of the alias and of both addresses stand.
        let alias = name.len() + 12 + 4 + 6;
        let (first, second) = (alias + 18, alias + 36);
        let seconds = |at: usize, seconds: u32| {
            let mut message = good.clone();
            assert_eq!(message[at..at + 4], [0, 0, 0, 60]);
            message[at..at + 4].copy_from_slice(&seconds.to_be_bytes());
            match parse(&message, 7, &name, Kind::A) {
                Some(Reply::Addresses(_, Some(lifetime))) => lifetime.as_secs(),
                other => panic!("{other:?}"),
            }
        };
        for at in [alias, first, second] {
            assert_eq!([5, 0, 90, 1 << 31].map(|value| seconds(at, value)), [5, 0, 60, 0]);
        }
    }

    #[test]
    fn denials_hold_for_as_long_as_their_zone_says() {
        let name = encode_name("ab.test").unwrap();
        let asked = question(7, &name, Kind::A, true);
        let read = |code: u16, records: &[IpAddr], zone: Option<(u32, u32)>| {
            let message = deny(&answer(&asked, code, records), zone);
            match parse(&message, 7, &name, Kind::A) {
                Some(Reply::NoSuchName(lifetime)) if code == 3 => lifetime,
                Some(Reply::Addresses(_, lifetime)) if code == 0 => lifetime,
                other => panic!("{other:?}"),
            }
            .map(|lifetime| lifetime.as_secs())
        };
        for code in [0, 3] {
            assert_eq!(read(code, &[], Some((30, 50))), Some(30));
            assert_eq!(read(code, &[], Some((50, 20))), Some(20));
            assert_eq!(read(code, &[], Some((u32::MAX, 20))), Some(0));
            assert_eq!(read(code, &[], Some((900, 900))), Some(60), "the alias's own");
            assert_eq!(read(code, &[], None), None);
        }
        assert_eq!(read(0, &[[192, 0, 2, 1].into()], Some((5, 5))), Some(60));
        // One that is cut off denies, and for no time.
        let whole = deny(&answer(&asked, 3, &[]), Some((30, 30)));
        for end in name.len() + 16..whole.len() {
            let cut = parse(&whole[..end], 7, &name, Kind::A);
            assert_eq!(cut, Some(Reply::NoSuchName(None)), "{end}");
        }
    }

    #[test]
    fn a_damaged_message_is_none_or_another_and_never_a_panic() {
        let name = encode_name("ab.test").unwrap();
        let asked = question(7, &name, Kind::A, true);
        let good = answer(&asked, 0, &[[192, 0, 2, 1].into()]);
        for end in 0..good.len() {
            assert_eq!(parse(&good[..end], 7, &name, Kind::A), None, "{end}");
        }
        for at in 0..good.len() {
            for value in [0, 1, 63, 64, 128, 192, 255] {
                let mut damaged = good.clone();
                damaged[at] = value;
                let _ = parse(&damaged, 7, &name, Kind::A);
            }
        }
    }
}
