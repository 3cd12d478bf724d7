//! Fields in, header blocks out.

use bytes::BytesMut;

use super::field::{FieldName, Pseudo};
use super::huffman;
use super::integer::{self, MOST_WRITTEN};
use super::places::Places;
use super::statics;
use super::table::{OVERHEAD, Table};
use crate::name::Name;

/// Writes the header blocks of one connection.
#[derive(Debug)]
pub struct Encoder {
    pub(super) table: Table,
    places: Option<Box<Places>>,
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
        let table = Table::new(DEFAULT_SIZE);
        let mut new = Self { table, places: None, limit, updates: None };
        new.set_max_size(DEFAULT_SIZE as u32);
        new
    }

    /// Tells it the peer's `SETTINGS_HEADER_TABLE_SIZE`; the next block begins with the size that follows from it.
    pub fn set_max_size(&mut self, size: u32) {
        let size = self.limit.min(size as usize);
        if size == self.table.max() {
            return;
        }
        self.table.set_max(size);
        let smallest = self.updates.map_or(size, |(smallest, _)| smallest.min(size));
        self.updates = Some((smallest, size));
    }

    /// Forgets all fields, so that it holds next to nothing. The next block tells the peer.
    pub fn forget(&mut self) {
        if self.places.take().is_some() {
            let size = self.table.max();
            self.table = Table::new(size);
            self.updates = Some((0, size));
        }
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
    #[inline]
    pub fn field(
        &mut self,
        name: FieldName<'_>,
        value: &[u8],
        sensitive: bool,
        out: &mut BytesMut,
    ) {
        if let FieldName::Other(bytes) = name {
            return self.other_field(bytes, value, sensitive, out);
        }
        // What entered our table may be referred to, and is in no other.
        if !sensitive
            && let Some(places) = &mut self.places
            && let Some(index) = places.last(name, value, &self.table)
        {
            return put_integer::<7>(index as usize, 0x80, out);
        }
        let indexing = if sensitive { Indexing::Never } else { Indexing::of(name, value) };
        self.write(name, value, indexing, out);
    }

    /// Adds the field of the static table with this index, which is below 62.
    #[inline]
    pub(in crate::http2) fn indexed(index: u8, out: &mut BytesMut) {
        out.extend_from_slice(&[0x80 | index]);
    }

    /// Adds `:path`, which enters no table: most are new.
    #[inline]
    pub(in crate::http2) fn path(path: &[u8], out: &mut BytesMut) {
        match path {
            b"/" => Self::indexed(4, out),
            b"/index.html" => Self::indexed(5, out),
            _ => {
                out.extend_from_slice(&[4]);
                put_plain_text(path, out);
            }
        }
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let places = if self.places.is_some() { size_of::<Places>() } else { 0 };
        self.table.capacity() + places
    }

    /// Adds a field whose name may have capitals.
    fn other_field(&mut self, name: &[u8], value: &[u8], sensitive: bool, out: &mut BytesMut) {
        if name.iter().any(u8::is_ascii_uppercase) {
            return self.other_field(&name.to_ascii_lowercase(), value, sensitive, out);
        }
        let name = FieldName::resolve(name);
        let indexing = if sensitive { Indexing::Never } else { Indexing::of(name, value) };
        self.write(name, value, indexing, out);
    }

    pub(super) fn write(
        &mut self,
        name: FieldName<'_>,
        value: &[u8],
        indexing: Indexing,
        out: &mut BytesMut,
    ) {
        let (field, named) = statics::find(name, value);
        if let Some(index) = field
            && indexing != Indexing::Never
        {
            return put_integer::<7>(index as usize, 0x80, out);
        }
        if indexing == Indexing::Incremental
            && let Some(places) = &mut self.places
            && let Some(index) = places.field(name, value, &self.table)
        {
            return put_integer::<7>(index as usize, 0x80, out);
        }
        self.literal(named, name, value, indexing, out);
    }

    /// Writes a field that neither table has, behind the index of its name if one of them has that.
    #[inline(never)]
    fn literal(
        &mut self,
        named: Option<u32>,
        name: FieldName<'_>,
        value: &[u8],
        mut indexing: Indexing,
        out: &mut BytesMut,
    ) {
        let (table, places) = (&mut self.table, self.places.get_or_insert_default());
        let named = named.or_else(|| places.name(name, table));
        if indexing == Indexing::Incremental {
            // A name that has no index gets one.
            let enters = places.is_worth(name) || named.is_none();
            if !enters || !fits(name, value, table.max()) {
                indexing = Indexing::Without;
            }
        }
        let index = named.unwrap_or(0) as usize;
        match indexing {
            Indexing::Incremental => put_integer::<6>(index, 0x40, out),
            Indexing::Without => put_integer::<4>(index, 0x00, out),
            Indexing::Never => put_integer::<4>(index, 0x10, out),
        }
        if index == 0 {
            put_text(name.as_bytes(), out);
        }
        if indexing == Indexing::Incremental {
            put_text(value, out);
        } else {
            put_plain_text(value, out);
        }
        if indexing == Indexing::Incremental {
            places.enter(name, value, table);
            table.enter(name, value);
        }
    }
}

/// How a field is written that neither table has (RFC 7541 §6.2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Indexing {
    Incremental,
    Without,
    Never,
}

impl Indexing {
    /// As nghttp2 has it: secrets, and cookies so short that they could be guessed, never enter a table; what most
    /// often differs from message to message does not enter ours.
    #[inline]
    fn of(name: FieldName<'_>, value: &[u8]) -> Self {
        let known = match name {
            FieldName::Known(known) => known,
            FieldName::Pseudo(Pseudo::Path) => return Self::Without,
            FieldName::Pseudo(_) | FieldName::Other(_) => return Self::Incremental,
        };
        let secret = matches!(known, Name::Authorization | Name::ProxyAuthorization);
        let cookie = matches!(known, Name::Cookie | Name::SetCookie);
        if secret || cookie && value.len() < SHORT_COOKIE {
            Self::Never
        } else if is_changing(known) {
            Self::Without
        } else {
            Self::Incremental
        }
    }
}

/// Whether the value most often differs from message to message. All these names are in the static table.
const fn is_changing(name: Name) -> bool {
    matches!(
        name,
        Name::Age
            | Name::ContentLength
            | Name::Etag
            | Name::IfModifiedSince
            | Name::IfNoneMatch
            | Name::Location
            | Name::SetCookie
    )
}

/// Whether a field leaves room for others in a table of that size.
fn fits(name: FieldName<'_>, value: &[u8], max: usize) -> bool {
    name.as_bytes().len() + value.len() + OVERHEAD <= max / 4 * 3
}

#[inline(always)]
fn put_integer<const PREFIX: u32>(value: usize, pattern: u8, out: &mut BytesMut) {
    if value < (1 << PREFIX) - 1 {
        return out.extend_from_slice(&[pattern | value as u8]);
    }
    let mut room = [0; MOST_WRITTEN];
    let length = integer::write::<PREFIX>(limited(value), pattern, &mut room);
    out.extend_from_slice(&room[..length]);
}

/// RFC 7541 §5.2: as it is. What comes once is not worth the time that a code takes at both ends, for a quarter of its
/// bytes at best.
fn put_plain_text(bytes: &[u8], out: &mut BytesMut) {
    put_integer::<7>(bytes.len(), 0, out);
    out.extend_from_slice(bytes);
}

/// RFC 7541 §5.2: Huffman-coded where that is shorter.
fn put_text(bytes: &[u8], out: &mut BytesMut) {
    let start = out.len();
    // Most lengths take one octet.
    out.resize(start + 1 + huffman::encoded_room(bytes.len()), 0);
    let Some(length) = huffman::encode(bytes, &mut out[start + 1..]) else {
        out.truncate(start);
        return put_plain_text(bytes, out);
    };
    if length < 0x7f {
        out[start] = 0x80 | length as u8;
        return out.truncate(start + 1 + length);
    }
    let mut prefix = [0; MOST_WRITTEN];
    let octets = integer::write::<7>(limited(length), 0x80, &mut prefix);
    out.copy_within(start + 1..start + 1 + length, start + octets);
    out[start..start + octets].copy_from_slice(&prefix[..octets]);
    out.truncate(start + octets + length);
}

/// Strings of 4 GiB are beyond every limit.
fn limited(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// RFC 9113 §6.5.2: what a table has until SETTINGS say otherwise.
const DEFAULT_SIZE: usize = 4096;
/// As nghttp2's.
const SHORT_COOKIE: usize = 20;
