//! HPACK (RFC 7541): the fields of a message in few bytes, by two tables that both ends keep alike.
//!
//! A whole header block comes into [`Decoder`], fields leave it one by one; [`Encoder`] takes fields and writes a
//! block. A name is resolved once, when it enters a table: a field that is sent by its index comes out with the
//! crate's number for its name, already judged, and goes in by that number.
//!
//! What the fields mean (which pseudo-fields a request has, in what order) is not looked at here. What each
//! connection holds: the table's own bytes, at most [`Decoder::new`]'s size and half as much for its entries, and
//! nothing before the first field enters it.

mod decode;
mod encode;
mod error;
mod field;
mod huffman;
mod integer;
mod places;
mod statics;
mod table;

pub use decode::{Decoder, Limits};
pub use encode::Encoder;
pub use error::Error;
pub use field::{Field, FieldName, Pseudo};

#[cfg(test)]
mod tests;
