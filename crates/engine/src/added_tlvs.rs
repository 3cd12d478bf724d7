//! TLVs that a configuration adds to headers of the PROXY protocol.
//!
//! Arrives: what was said of a client, and what is known of its connection. Leaves: TLVs that go on to clusters.

use crate::format::{Facts, Format};
use crate::proxied::{Tlv, tlvs, write_tlv};

/// The TLVs that a configuration adds. Envoy's lists of `TlvEntry`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedTlvs {
    /// Those with a `value`.
    pub list: Vec<Tlv>,
    /// Those with a `format_string`, by their types: it makes the value for each connection.
    pub made: Vec<(u8, Format)>,
}

impl AddedTlvs {
    /// Those whose values are made, without those that come to nothing.
    pub(crate) fn make(&self, facts: &Facts<'_>) -> Box<[Tlv]> {
        let make = |(kind, format): &(u8, Format)| {
            let mut value = Vec::new();
            format.write(&mut value, facts);
            (!value.is_empty()).then(|| Tlv { kind: *kind, value: value.into() })
        };
        self.made.iter().filter_map(make).collect()
    }
}

/// What the TCP proxy adds. Envoy `proxy_protocol_tlvs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTlvs {
    /// The TLVs.
    pub added: AddedTlvs,
    /// `proxy_protocol_tlv_merge_policy`.
    pub policy: TlvPolicy,
}

/// Envoy `ProxyProtocolTlvMergePolicy`: what becomes of TLVs where the client's connection had a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlvPolicy {
    /// `ADD_IF_ABSENT`: the client's alone.
    #[default]
    Absent,
    /// `OVERWRITE_BY_TYPE_IF_EXISTS_OR_ADD`: our own, and the client's of other types.
    Overwrite,
    /// `APPEND_IF_EXISTS_OR_ADD`: the client's, and our own.
    Append,
}

impl OwnTlvs {
    /// These, with those that were `made`, and what was said of a client, if its connection `had_header`.
    #[must_use]
    pub fn joined(&self, made: &[Tlv], client: &[u8], had_header: bool) -> Box<[u8]> {
        let own = || self.added.list.iter().chain(made);
        let write = |out: &mut Vec<u8>| {
            own().for_each(|tlv| write_tlv(out, tlv.kind, &tlv.value));
        };
        let mut out = Vec::new();
        match self.policy {
            _ if !had_header => write(&mut out),
            TlvPolicy::Absent => return client.into(),
            TlvPolicy::Append => {
                out.extend_from_slice(client);
                write(&mut out);
            }
            TlvPolicy::Overwrite => {
                write(&mut out);
                for (kind, value) in tlvs(client).flatten() {
                    if !own().any(|own| own.kind == kind) {
                        write_tlv(&mut out, kind, value);
                    }
                }
            }
        }
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_are_joined_with_the_clients() {
        let list = vec![Tlv { kind: 1, value: b"o".as_slice().into() }];
        let join = |policy, had_header| {
            let added = AddedTlvs { list: list.clone(), made: Vec::new() };
            let own = OwnTlvs { added, policy };
            own.joined(&[], b"\x01\0\0\x02\0\0", had_header).to_vec()
        };
        for policy in [TlvPolicy::Absent, TlvPolicy::Overwrite, TlvPolicy::Append] {
            assert_eq!(join(policy, false), b"\x01\0\x01o");
        }
        assert_eq!(join(TlvPolicy::Absent, true), b"\x01\0\0\x02\0\0");
        assert_eq!(join(TlvPolicy::Overwrite, true), b"\x01\0\x01o\x02\0\0");
        assert_eq!(join(TlvPolicy::Append, true), b"\x01\0\0\x02\0\0\x01\0\x01o");
    }
}
