//! What a line of the log says, and its bytes.
//!
//! A frame is a marker, the payload's length and its checksum (CRC-32, begun with the file's own salt and the length),
//! each in four bytes, little-endian; then the payload: a kind, the entry's number, and what the kind has. The marker
//! is a part of the salt, which is random for each file: what a body has in it is never taken for a frame where a file
//! was damaged.

use bytes::Bytes;
use crc32fast::Hasher;

use super::Outcome;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A request is to be sent.
    Put { id: u64, message: Message },
    /// What became of it. It is told before it is forgotten.
    Ended { id: u64, outcome: Outcome },
    /// Nothing is left to do for it.
    Done { id: u64 },
    /// Numbers below this one were given away.
    Next { id: u64 },
}

/// A request, as far as it outlives the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) put_unix_ms: u64,
    /// When it is given up.
    pub(super) expires_unix_ms: Option<u64>,
    pub(super) limits: Limits,
    /// Those with one ordering key go one after the other.
    pub(super) ordering_key: Option<String>,
    pub(super) key: String,
    pub(super) method: String,
    pub(super) url: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Bytes,
}

/// A request's limits on time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) total: Option<u64>,
    pub(super) first_byte: Option<u64>,
    pub(super) gap: Option<u64>,
}

impl Record {
    /// The frame.
    pub(super) fn frame(&self, salt: u64) -> Vec<u8> {
        let mut payload = Vec::with_capacity(64);
        match self {
            Self::Put { id, message } => {
                begin(&mut payload, PUT, *id);
                message.write(&mut payload);
            }
            Self::Ended { id, outcome: Outcome::Answered { status, body, whole } } => {
                begin(&mut payload, ANSWERED, *id);
                payload.extend_from_slice(&status.to_le_bytes());
                payload.push((*whole).into());
                long(&mut payload, body);
            }
            Self::Ended { id, outcome: Outcome::Expired } => begin(&mut payload, EXPIRED, *id),
            Self::Done { id } => begin(&mut payload, DONE, *id),
            Self::Next { id } => begin(&mut payload, NEXT, *id),
        }
        Self::frame_of(&payload, salt)
    }

    /// Any payload in a frame.
    pub(super) fn frame_of(payload: &[u8], salt: u64) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut frame = Vec::with_capacity(HEAD_BYTES + payload.len());
        frame.extend_from_slice(&marker(salt));
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&checksum(salt, length, payload).to_le_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    /// The frame that `bytes` begin with, and how long it is; `None` when they begin with none that is whole.
    pub(super) fn parse(bytes: &[u8], salt: u64) -> Option<(Self, usize)> {
        let mut reader = Reader(bytes);
        if reader.take(MARKER_BYTES)? != marker(salt) {
            return None;
        }
        let (length, sum) = (reader.u32()?, reader.u32()?);
        let payload = reader.take(length as usize)?;
        if checksum(salt, length, payload) != sum {
            return None;
        }
        Some((Self::read(payload)?, HEAD_BYTES + payload.len()))
    }

    fn read(payload: &[u8]) -> Option<Self> {
        let mut reader = Reader(payload);
        let (kind, id) = (reader.u8()?, reader.u64()?);
        let record = match kind {
            PUT => Self::Put { id, message: Message::read(&mut reader)? },
            ANSWERED => {
                let (status, whole) = (reader.u16()?, reader.u8()? != 0);
                let body = Bytes::copy_from_slice(reader.long()?);
                Self::Ended { id, outcome: Outcome::Answered { status, body, whole } }
            }
            EXPIRED => Self::Ended { id, outcome: Outcome::Expired },
            DONE => Self::Done { id },
            NEXT => Self::Next { id },
            _ => return None,
        };
        reader.0.is_empty().then_some(record)
    }
}

impl Message {
    /// About how many bytes it takes in the file.
    pub(super) fn weight(&self) -> u64 {
        let pair = |(name, value): &(String, String)| name.len() + value.len() + 8;
        let fields: usize = self.fields.iter().map(pair).sum();
        let texts = self.key.len() + self.method.len() + self.url.len() + self.body.len();
        (fields + texts + self.ordering_key.as_ref().map_or(0, String::len) + 100) as u64
    }

    fn write(&self, to: &mut Vec<u8>) {
        let Limits { total, first_byte, gap } = self.limits;
        to.extend_from_slice(&self.put_unix_ms.to_le_bytes());
        for optional in [self.expires_unix_ms, total, first_byte, gap] {
            to.extend_from_slice(&optional.unwrap_or(NEVER).to_le_bytes());
        }
        to.push(self.ordering_key.is_some().into());
        let ordering_key = self.ordering_key.as_deref().unwrap_or_default();
        for text in [ordering_key, &self.key, &self.method, &self.url] {
            long(to, text.as_bytes());
        }
        let count = u32::try_from(self.fields.len()).unwrap_or(u32::MAX);
        to.extend_from_slice(&count.to_le_bytes());
        for (name, value) in &self.fields {
            long(to, name.as_bytes());
            long(to, value.as_bytes());
        }
        long(to, &self.body);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let put_unix_ms = reader.u64()?;
        let expires_unix_ms = reader.optional()?;
        let limits = Limits {
            total: reader.optional()?,
            first_byte: reader.optional()?,
            gap: reader.optional()?,
        };
        let has_key = reader.u8()? != 0;
        let ordering_key = reader.text()?;
        let (key, method, url) = (reader.text()?, reader.text()?, reader.text()?);
        let count = reader.u32()?;
        let fields =
            (0..count).map(|_| Some((reader.text()?, reader.text()?))).collect::<Option<_>>()?;
        let body = Bytes::copy_from_slice(reader.long()?);
        Some(Self {
            put_unix_ms,
            expires_unix_ms,
            limits,
            ordering_key: has_key.then_some(ordering_key),
            key,
            method,
            url,
            fields,
            body,
        })
    }
}

fn begin(payload: &mut Vec<u8>, kind: u8, id: u64) {
    payload.push(kind);
    payload.extend_from_slice(&id.to_le_bytes());
}

/// Bytes behind their length.
fn long(to: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(bytes);
}

fn checksum(salt: u64, length: u32, payload: &[u8]) -> u32 {
    let mut sum = Hasher::new();
    sum.update(&salt.to_le_bytes());
    sum.update(&length.to_le_bytes());
    sum.update(payload);
    sum.finalize()
}

/// Takes from the front of what is left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn optional(&mut self) -> Option<Option<u64>> {
        self.u64().map(|value| (value != NEVER).then_some(value))
    }

    fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.long()?.to_vec()).ok()
    }
}

/// What a frame begins with: a damaged file is searched for it.
pub(super) fn marker(salt: u64) -> [u8; MARKER_BYTES] {
    let [a, b, c, d, ..] = salt.to_le_bytes();
    [a, b, c, d]
}

pub(super) const MARKER_BYTES: usize = 4;
const HEAD_BYTES: usize = MARKER_BYTES + 8;
const NEVER: u64 = u64::MAX;
const PUT: u8 = 1;
const ANSWERED: u8 = 2;
const EXPIRED: u8 = 3;
const DONE: u8 = 4;
const NEXT: u8 = 5;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::outbox) fn message(body: &str) -> Message {
        Message {
            put_unix_ms: 7,
            expires_unix_ms: Some(9),
            limits: Limits { total: Some(60_000), first_byte: None, gap: Some(1) },
            ordering_key: Some(String::new()),
            key: "\"k\"".to_owned(),
            method: "POST".to_owned(),
            url: "http://host/".to_owned(),
            fields: vec![("a".to_owned(), "b".to_owned()), ("c".to_owned(), String::new())],
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    fn all() -> Vec<Record> {
        let body = Bytes::from_static(b"made");
        vec![
            Record::Put { id: 1, message: message("hello") },
            Record::Put { id: u64::MAX, message: Message::default() },
            Record::Ended { id: 1, outcome: Outcome::Answered { status: 201, body, whole: false } },
            Record::Ended { id: 2, outcome: Outcome::Expired },
            Record::Done { id: 3 },
            Record::Next { id: 4 },
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for record in all() {
            let mut frame = record.frame(5);
            let length = frame.len();
            assert_eq!(Record::parse(&frame, 5), Some((record.clone(), length)));
            assert_eq!(Record::parse(&frame, 6), None, "another file's");
            frame.extend_from_slice(b"more");
            assert_eq!(Record::parse(&frame, 5), Some((record, length)));
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_none() {
        for record in all() {
            let frame = record.frame(5);
            for place in 0..frame.len() {
                assert_eq!(Record::parse(&frame[..place], 5), None);
                for bit in 0..8 {
                    let mut changed = frame.clone();
                    changed[place] ^= 1 << bit;
                    assert_eq!(Record::parse(&changed, 5), None, "{place} {bit}");
                }
            }
        }
    }

    #[test]
    fn a_payload_that_lies_about_its_parts_is_none() {
        let mut payload = vec![PUT];
        payload.extend_from_slice(&[0; 8 + 8 + 32 + 1]);
        payload.extend_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Record::read(&payload), None, "a text longer than all");
        assert_eq!(Record::read(&[9; 9]), None, "an unknown kind");
        assert_eq!(Record::read(&[DONE, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None, "more than a record");
        assert_eq!(Record::read(&[]), None);
    }
}
