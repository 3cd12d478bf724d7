//! Header blocks in, fields out.

use super::error::Error;
use super::field::Field;
use super::integer::Reader;
use super::statics;
use super::table::{OVERHEAD, Table, Text};

/// Reads the header blocks of one connection, in the order in which they come.
#[derive(Debug)]
pub struct Decoder {
    pub(super) table: Table,
    /// The largest size that the peer was offered.
    offered: usize,
    /// The size that the next block must begin with, or a smaller one.
    owed: Option<usize>,
    decoded: usize,
}

/// What one header block may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, as `SETTINGS_MAX_HEADER_LIST_SIZE` counts them: names, values, and 32 for each field (RFC 9113 §6.5.2).
    pub max_list_size: usize,
    /// Fields, pseudo-fields included.
    pub max_fields: usize,
}

impl Decoder {
    /// One whose table may have `max_table_size` bytes: what our SETTINGS say, 4,096 where they say nothing.
    #[must_use]
    pub const fn new(max_table_size: u32) -> Self {
        let offered = max_table_size as usize;
        Self { table: Table::new(offered), offered, owed: None, decoded: 0 }
    }

    /// Tells it the size in our SETTINGS, once the peer has acknowledged them.
    pub fn set_max_size(&mut self, size: u32) {
        self.offered = size as usize;
        // RFC 7541 §4.2: a peer that used more has to say that it uses less.
        if self.offered < self.table.max() {
            self.owed = Some(self.offered.min(self.owed.unwrap_or(self.offered)));
        }
    }

    /// Decodes one whole block: that of HEADERS or PUSH_PROMISE and of the CONTINUATION frames behind it.
    ///
    /// Each field goes to `sink`, in order, until the block ends or a limit is reached.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] or [`Error::TooManyFields`] after a block that is beyond `limits`; the connection can go on,
    /// because it was read to its end (RFC 9113 §10.5.1). All others are fatal for the connection, and the decoder is
    /// not to be used again.
    pub fn decode(
        &mut self,
        block: &[u8],
        limits: &Limits,
        sink: &mut impl FnMut(Field<'_>),
    ) -> Result<(), Error> {
        let mut reader = Reader(block);
        let mut tally = Tally { limits, size: 0, fields: 0 };
        self.size_updates(&mut reader)?;
        while let Some(first) = reader.peek() {
            let field = if first >= 0x80 {
                self.indexed(reader.integer::<7>()?)?
            } else {
                self.literal(first, &mut reader)?
            };
            if tally.admits(&field)? {
                sink(field);
            }
        }
        self.table.trim();
        self.decoded = tally.size - tally.fields * OVERHEAD;
        if tally.size > limits.max_list_size {
            return Err(Error::TooLarge);
        }
        if tally.is_exceeded() { Err(Error::TooManyFields) } else { Ok(()) }
    }

    /// How long the names and values of the last block were together.
    #[must_use]
    pub const fn decoded_bytes(&self) -> usize {
        self.decoded
    }

    /// How often its table has changed.
    #[must_use]
    pub(crate) const fn changes(&self) -> u64 {
        self.table.changes()
    }

    /// Whether a block is what it was when the table had changed so often.
    #[must_use]
    pub(crate) const fn is_as_after(&self, changes: u64) -> bool {
        self.table.changes() == changes && self.owed.is_none()
    }

    /// Gives back room that its fields do not need.
    pub fn shrink(&mut self) {
        self.table.shrink();
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// RFC 7541 §4.2: at the beginning of a block, at most two.
    fn size_updates(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        let mut smallest = None;
        for _ in 0..2 {
            if !matches!(reader.peek(), Some(0x20..0x40)) {
                break;
            }
            let size = reader.integer::<5>()?;
            if size as usize > self.offered {
                return Err(Error::SizeNotOffered(size));
            }
            self.table.set_max(size as usize);
            smallest = Some((size as usize).min(smallest.unwrap_or(usize::MAX)));
        }
        match (self.owed.take(), smallest) {
            (Some(owed), smallest) if smallest.is_none_or(|smallest| smallest > owed) => {
                Err(Error::MissingSizeUpdate)
            }
            _ => Ok(()),
        }
    }

    /// RFC 7541 §6.1.
    #[inline(always)]
    fn indexed(&self, index: u32) -> Result<Field<'_>, Error> {
        match statics::field(index) {
            Some((name, value)) => {
                Ok(Field { name, value, never_indexed: false, well_formed: true })
            }
            None => Ok(self.table.field(self.table.get(index)?, false)),
        }
    }

    /// RFC 7541 §6.2: a value behind the index of a name, or behind a name where that is zero.
    fn literal(&mut self, first: u8, reader: &mut Reader<'_>) -> Result<Field<'_>, Error> {
        let (index, indexing) = match first {
            0x40.. => (reader.integer::<6>()?, Indexing::Incremental),
            0x20.. => return Err(Error::MisplacedSizeUpdate),
            0x10.. => (reader.integer::<4>()?, Indexing::Never),
            _ => (reader.integer::<4>()?, Indexing::Without),
        };
        let mut entry;
        let value;
        if index == 0 {
            let name = text(reader)?;
            value = text(reader)?;
            entry = self.table.begin(name, value.bound())?;
        } else {
            value = text(reader)?;
            entry = self.table.begin_like(index, value.bound())?;
        }
        self.table.set_value(&mut entry, value)?;
        if indexing == Indexing::Incremental {
            self.table.insert(entry);
        }
        Ok(self.table.field(&entry, indexing == Indexing::Never))
    }
}

/// What becomes of a literal field (RFC 7541 §6.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Indexing {
    Incremental,
    Without,
    Never,
}

/// What a block held so far.
struct Tally<'a> {
    limits: &'a Limits,
    size: usize,
    fields: usize,
}

impl Tally<'_> {
    /// Counts a field; answers whether it is within the limits.
    ///
    /// A field of two octets can stand for one of thousands, which costs as much to enter into the table as to pass on:
    /// a block that holds many times what is allowed is not read to its end.
    #[inline]
    fn admits(&mut self, field: &Field<'_>) -> Result<bool, Error> {
        self.fields += 1;
        self.size += field.name.as_bytes().len() + field.value.len() + OVERHEAD;
        if !self.is_exceeded() {
            return Ok(true);
        }
        let most = self.limits.max_list_size.saturating_mul(EXCESS).max(LEAST_EXCESS);
        if self.size > most { Err(Error::FarTooLarge) } else { Ok(false) }
    }

    #[inline]
    fn is_exceeded(&self) -> bool {
        self.size > self.limits.max_list_size || self.fields > self.limits.max_fields
    }
}

/// RFC 7541 §5.2.
#[inline]
fn text<'a>(reader: &mut Reader<'a>) -> Result<Text<'a>, Error> {
    let huffman = reader.peek().ok_or(Error::Truncated)? >= 0x80;
    let length = reader.integer::<7>()?;
    Ok(Text { bytes: reader.take(length)?, huffman })
}

/// By how many times a block may exceed the limit and still be read to its end.
const EXCESS: usize = 8;
/// Bytes that are read in any case.
const LEAST_EXCESS: usize = 1 << 20;
