//! Where fields are in a table, for the encoder.

use super::field::FieldName;
use super::table::Table;

/// The numbers that fields have in a table ([`Table::numbered`]), by hashes. Fields that share a place displace each
/// other, which costs a few octets and no more: the field itself is looked at as well.
#[derive(Debug)]
pub(super) struct Places {
    /// The last two of each place.
    fields: [[u16; 2]; FIELDS],
    names: [u16; NAMES],
    /// How often in a row a field of that name was not there.
    misses: [u8; NAMES],
}

impl Places {
    /// The index of a field that is the last of its name to have entered the table: most names come with one value
    /// again and again.
    #[inline(always)]
    pub(super) fn last(&mut self, name: FieldName<'_>, value: &[u8], table: &Table) -> Option<u32> {
        let place = name_place(name);
        let (entry, index) = table.numbered(self.names[place])?;
        table.is(entry, name, value).then(|| {
            self.misses[place] = 0;
            index
        })
    }

    /// The index of a field that the table has.
    #[inline]
    pub(super) fn field(
        &mut self,
        name: FieldName<'_>,
        value: &[u8],
        table: &Table,
    ) -> Option<u32> {
        self.last(name, value, table).or_else(|| self.other_field(name, value, table))
    }

    /// As [`Places::field`], of a field that is not the last of its name.
    #[inline(never)]
    fn other_field(&mut self, name: FieldName<'_>, value: &[u8], table: &Table) -> Option<u32> {
        let index = self.fields[field_place(name, value)].into_iter().find_map(|number| {
            let (entry, index) = table.numbered(number)?;
            table.is(entry, name, value).then_some(index)
        })?;
        self.misses[name_place(name)] = 0;
        Some(index)
    }

    /// The index of a field with that name.
    pub(super) fn name(&self, name: FieldName<'_>, table: &Table) -> Option<u32> {
        let (entry, index) = table.numbered(self.names[name_place(name)])?;
        table.has_name(entry, name).then_some(index)
    }

    /// Whether a field that is not there is worth its place: one of a name whose values are new every time would
    /// drive out those that come again.
    pub(super) fn is_worth(&mut self, name: FieldName<'_>) -> bool {
        let misses = &mut self.misses[name_place(name)];
        *misses += 1;
        if *misses == PATIENCE + INTERVAL {
            *misses = PATIENCE;
        }
        *misses <= PATIENCE
    }

    /// Notes the field that enters the table next.
    pub(super) fn enter(&mut self, name: FieldName<'_>, value: &[u8], table: &Table) {
        let numbers = &mut self.fields[field_place(name, value)];
        *numbers = [table.inserted(), numbers[0]];
        self.names[name_place(name)] = table.inserted();
    }
}

impl Default for Places {
    fn default() -> Self {
        Self { fields: [[0; 2]; FIELDS], names: [0; NAMES], misses: [0; NAMES] }
    }
}

#[inline]
fn name_place(name: FieldName<'_>) -> usize {
    top(hash(name), NAMES)
}

#[inline]
fn field_place(name: FieldName<'_>, value: &[u8]) -> usize {
    top((hash(name).rotate_left(32) ^ sample(value)).wrapping_mul(ODD), FIELDS)
}

#[inline]
fn hash(name: FieldName<'_>) -> u64 {
    let number = match name {
        FieldName::Known(name) => name as u64,
        FieldName::Pseudo(pseudo) => u64::MAX - pseudo as u64,
        FieldName::Other(bytes) => sample(bytes),
    };
    number.wrapping_mul(ODD)
}

/// The length of some bytes, and of those themselves the first and the last few.
#[inline]
fn sample(bytes: &[u8]) -> u64 {
    let ends = if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32
    } else {
        bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    ends ^ (bytes.len() as u64) << 40
}

/// The top bits of a hash, as an index below a power of two.
const fn top(hash: u64, count: usize) -> usize {
    (hash >> (64 - count.ilog2())) as usize
}

/// Any odd number with bits all over.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Twice as many are as many as a table of 4,096 bytes has at most.
const FIELDS: usize = 64;
const NAMES: usize = 64;
/// So many new values in a row enter the table, and then one of so many.
const PATIENCE: u8 = 4;
const INTERVAL: u8 = 16;
