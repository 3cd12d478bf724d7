//! Content codings (RFC 9110 §8.4.1): what filters that compress and decompress have in common.

use std::borrow::Cow;

use towpath_proto::{Head, Name};

/// A coding that is there both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// As `content-encoding` and `accept-encoding` have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// As names of statistics have it.
    #[must_use]
    pub const fn stat_name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "brotli",
            Self::Zstd => "zstd",
        }
    }
}

/// The values of a field with commas between them (RFC 9110 §5.3).
pub(super) fn list(head: &Head, name: Name) -> Option<Cow<'_, [u8]>> {
    let mut values = head.values(name);
    let first = values.next()?;
    let Some(second) = values.next() else { return Some(Cow::Borrowed(first)) };
    let mut all = first.to_vec();
    for value in std::iter::once(second).chain(values) {
        all.push(b',');
        all.extend_from_slice(value);
    }
    Some(Cow::Owned(all))
}

/// Whether `cache-control` has `no-transform` (RFC 9111 §5.2.2.6).
pub(super) fn forbids_transform(head: &Head) -> bool {
    let members = head.values(Name::CacheControl).flat_map(|value| value.split(|&it| it == b','));
    members.into_iter().any(|member| member.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}
