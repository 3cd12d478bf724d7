//! Fields in, header blocks out.

use bytes::{BufMut as _, BytesMut};

use super::field::{FieldName, Pseudo};
use super::huffman;
use super::integer::{self, MOST_WRITTEN};
use super::statics;
use super::table::{Table, Text};
use crate::name::Name;

/// Writes the header blocks of one connection.
#[derive(Debug)]
pub struct Encoder {
    pub(super) table: Table,
    /// The largest size that we use, whatever the peer allows.
    limit: usize,
    /// Sizes to begin the next block with: the smallest since the last one, then the last.
    updates: Option<(usize, usize)>,
}

impl Encoder {
    /// One whose table never has more than `max_table_size` bytes; until the peer says otherwise, no more than 4,096.
    #[must_use]
    pub fn new(max_table_size: u32) -> Self {
        let limit = max_table_size as usize;
        let mut new = Self { table: Table::new(DEFAULT_SIZE), limit, updates: None };
        new.set_max_size(DEFAULT_SIZE as u32);
        new
    }

    /// Tells it the peer's `SETTINGS_HEADER_TABLE_SIZE`; the next block begins with the size that follows from it.
    pub fn set_max_size(&mut self, size: u32) {
        let size = self.limit.min(size as usize);
        if self.updates.is_none() && size == self.table.max() {
            return;
        }
        self.table.set_max(size);
        let smallest = self.updates.map_or(size, |(smallest, _)| smallest.min(size));
        self.updates = Some((smallest, size));
    }

    /// Begins a block.
    pub fn begin(&mut self, out: &mut BytesMut) {
        let Some((smallest, last)) = self.updates.take() else { return };
        // RFC 7541 §4.2: a peer must hear that the table was smaller for a while, because that emptied it.
        if smallest < last {
            put_integer::<5>(smallest, 0x20, out);
        }
        put_integer::<5>(last, 0x20, out);
    }

    /// Adds a field. One that is `sensitive` is marked so that it enters no table on its way.
    pub fn field(
        &mut self,
        name: FieldName<'_>,
        value: &[u8],
        sensitive: bool,
        out: &mut BytesMut,
    ) {
        let small;
        let name = match name {
            FieldName::Other(bytes) if bytes.iter().any(u8::is_ascii_uppercase) => {
                small = bytes.to_ascii_lowercase();
                FieldName::resolve(&small)
            }
            FieldName::Other(bytes) => FieldName::resolve(bytes),
            resolved @ (FieldName::Known(_) | FieldName::Pseudo(_)) => resolved,
        };
        let indexing = if sensitive { Indexing::Never } else { Indexing::of(name, value) };
        self.write(name, value, indexing, out);
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    pub(super) fn write(
        &mut self,
        name: FieldName<'_>,
        value: &[u8],
        indexing: Indexing,
        out: &mut BytesMut,
    ) {
        let index = match (indexing, self.find(name, value)) {
            (Indexing::Incremental | Indexing::Without, Found::Field(index)) => {
                return put_integer::<7>(index, 0x80, out);
            }
            (_, Found::Field(index) | Found::Name(index)) => index,
            (_, Found::Nothing) => 0,
        };
        match indexing {
            Indexing::Incremental => put_integer::<6>(index, 0x40, out),
            Indexing::Without => put_integer::<4>(index, 0x00, out),
            Indexing::Never => put_integer::<4>(index, 0x10, out),
        }
        if index == 0 {
            put_text(name.as_bytes(), out);
        }
        put_text(value, out);
        if indexing == Indexing::Incremental {
            self.insert(name, value);
        }
    }

    fn find(&self, name: FieldName<'_>, value: &[u8]) -> Found {
        let fields = (1..).zip(statics::FIELDS.iter().copied());
        let dynamic = self.table.iter().map(|(index, field)| (index, (field.name, field.value)));
        let mut found = Found::Nothing;
        for (index, (_, its_value)) in fields.chain(dynamic).filter(|(_, field)| field.0 == name) {
            if its_value == value {
                return Found::Field(index as usize);
            }
            if matches!(found, Found::Nothing) {
                found = Found::Name(index as usize);
            }
        }
        found
    }

    fn insert(&mut self, name: FieldName<'_>, value: &[u8]) {
        let text = |bytes| Text { bytes, huffman: false };
        let Ok(mut entry) = self.table.begin(text(name.as_bytes()), value.len()) else { return };
        if self.table.set_value(&mut entry, text(value)).is_ok() {
            self.table.insert(entry);
        }
    }
}

/// What the tables have of a field.
#[derive(Clone, Copy)]
enum Found {
    Field(usize),
    Name(usize),
    Nothing,
}

/// How a field is written that neither table has (RFC 7541 §6.2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Indexing {
    Incremental,
    Without,
    Never,
}

impl Indexing {
    /// As nghttp2 has it: secrets, and cookies so short that they could be guessed, never enter a table; what most often
    /// differs from message to message does not enter ours.
    fn of(name: FieldName<'_>, value: &[u8]) -> Self {
        let known = match name {
            FieldName::Known(known) => known,
            FieldName::Pseudo(Pseudo::Path) => return Self::Without,
            FieldName::Pseudo(_) | FieldName::Other(_) => return Self::Incremental,
        };
        let cookie = matches!(known, Name::Cookie | Name::SetCookie);
        if matches!(known, Name::Authorization | Name::ProxyAuthorization)
            || cookie && value.len() < SHORT_COOKIE
        {
            Self::Never
        } else if CHANGING.contains(&known) {
            Self::Without
        } else {
            Self::Incremental
        }
    }
}

/// What most often differs from message to message.
const CHANGING: [Name; 8] = [
    Name::ContentLength,
    Name::Etag,
    Name::IfModifiedSince,
    Name::IfNoneMatch,
    Name::Location,
    Name::SetCookie,
    Name::Traceparent,
    Name::XRequestId,
];

fn put_integer<const PREFIX: u32>(value: usize, pattern: u8, out: &mut BytesMut) {
    let mut room = [0; MOST_WRITTEN];
    // Tables and strings of 4 GiB are beyond every limit.
    let value = u32::try_from(value).unwrap_or(u32::MAX);
    let length = integer::write::<PREFIX>(value, pattern, &mut room);
    out.put_slice(&room[..length]);
}

/// RFC 7541 §5.2: Huffman-coded where that is shorter.
fn put_text(bytes: &[u8], out: &mut BytesMut) {
    let mut room = vec![0; bytes.len()];
    if let Some(length) = huffman::encode(bytes, &mut room) {
        put_integer::<7>(length, 0x80, out);
        out.put_slice(&room[..length]);
    } else {
        put_integer::<7>(bytes.len(), 0, out);
        out.put_slice(bytes);
    }
}

/// RFC 9113 §6.5.2: what a table has until SETTINGS say otherwise.
const DEFAULT_SIZE: usize = 4096;
/// As nghttp2's.
const SHORT_COOKIE: usize = 20;
