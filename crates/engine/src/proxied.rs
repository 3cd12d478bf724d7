//! What the PROXY protocol says of a connection beside its addresses: TLVs of version 2, and what rules keep of them.
//!
//! Arrives: the bytes behind a header's addresses. Leaves: dynamic metadata and filter state, as Envoy's listener
//! filter makes them of it, and TLVs that go on to clusters. A header is of 64 KiB at most, and of each rule at most
//! two values are kept, so no connection holds more than three times that.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::stream_info::{
    JsonStyle, Refused, StateObject, StreamInfo, Struct, Value, write_struct,
};

/// What is kept of a header of the PROXY protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxied {
    /// What rules have kept, in the order in which it came.
    kept: Vec<Kept>,
    /// Whether that is filter state; otherwise it is dynamic metadata.
    in_state: bool,
    /// TLVs that go on to clusters.
    passed: Box<[u8]>,
}

/// What listener filters do with TLVs. Envoy `ProxyProtocol`.
#[derive(Clone, Debug, Default)]
pub struct TlvRules {
    /// `rules`: what is kept. Of several for one type the last counts.
    pub kept: Vec<Arc<TlvRule>>,
    /// `tlv_location: FILTER_STATE`; otherwise it is kept as dynamic metadata.
    pub in_state: bool,
    /// `pass_through_tlvs`: what clusters may pass on.
    pub passes: Passes,
}

/// Which TLVs go on. Envoy `ProxyProtocolPassThroughTLVs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Passes {
    /// None.
    #[default]
    Nothing,
    /// `INCLUDE_ALL`.
    All,
    /// `INCLUDE`: those of these types.
    These(Box<[u8]>),
}

/// A TLV that a configuration adds. Envoy `TlvEntry`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tlv {
    /// Its type.
    pub kind: u8,
    /// Its value, of at most 65,535 bytes.
    pub value: Box<[u8]>,
}

/// For whom a connection to a cluster is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Where its connection comes from.
    pub source: SocketAddr,
    /// Where that went to.
    pub destination: SocketAddr,
    /// What was said of it beside that, as TLVs.
    pub tlvs: Box<[u8]>,
}

/// A value that a rule has kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    rule: Arc<TlvRule>,
    first: Box<[u8]>,
    /// The last one, where there were more.
    last: Option<Box<[u8]>>,
}

/// Envoy `ProxyProtocol.Rule`: where the value of a TLV is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlvRule {
    /// `tlv_type`.
    pub kind: u8,
    /// `metadata_namespace`, or that of the filter.
    pub namespace: Box<str>,
    /// `key`.
    pub key: Box<str>,
    /// `value_string_encoding: BASE64`; otherwise what is not UTF-8 becomes `!`.
    pub base64: bool,
}

/// The type, length and value of a TLV; `Err` if it goes beyond the end.
type Found<'a> = Result<(u8, &'a [u8]), Cut>;

/// TLVs that end in the middle of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut;

impl Proxied {
    /// Keeps what `rules` say of the TLVs in `bytes`.
    ///
    /// # Errors
    /// When the bytes end within a TLV.
    pub fn read(bytes: &[u8], rules: &TlvRules) -> Result<Self, Cut> {
        let (mut kept, mut passed): (Vec<Kept>, _) = (Vec::new(), Vec::new());
        for tlv in tlvs(bytes) {
            let (kind, value) = tlv?;
            if rules.passes.takes(kind) {
                write_tlv(&mut passed, kind, value);
            }
            let Some(rule) = rules.kept.iter().rev().find(|rule| rule.kind == kind) else {
                continue;
            };
            match kept.iter_mut().find(|kept| kept.rule.kind == kind) {
                Some(kept) => kept.last = Some(value.into()),
                None => {
                    kept.push(Kept { rule: Arc::clone(rule), first: value.into(), last: None });
                }
            }
        }
        Ok(Self { kept, in_state: rules.in_state, passed: passed.into() })
    }

    /// The TLVs that go on.
    #[must_use]
    pub fn passed(&self) -> &[u8] {
        &self.passed
    }

    /// The dynamic metadata of the connection, by namespace. Of values with one key the first stays, as in Envoy.
    #[must_use]
    pub fn metadata(&self) -> Struct {
        let mut all = Struct::new();
        for Kept { rule, first, .. } in self.of_metadata() {
            let namespace = all.entry(rule.namespace.clone());
            let Value::Struct(entries) = namespace.or_insert_with(|| Value::Struct(Struct::new()))
            else {
                continue;
            };
            entries.entry(rule.key.clone()).or_insert_with(|| Value::String(rule.text(first)));
        }
        all
    }

    /// The same as Envoy has it beside them in `typed_filter_metadata`: by namespace and key, the bytes as they came,
    /// in order; what comes later takes the place of what was there.
    pub(crate) fn typed(&self) -> impl Iterator<Item = (&str, &str, &[u8])> {
        self.of_metadata().map(|Kept { rule, first, last }| {
            (&*rule.namespace, &*rule.key, &**last.as_ref().unwrap_or(first))
        })
    }

    fn of_metadata(&self) -> impl Iterator<Item = &Kept> {
        self.kept.iter().filter(|_| !self.in_state)
    }

    /// What the record of a stream of this connection begins with. A request has its connection's filter state and
    /// dynamic metadata of its own; a stream of opaque bytes is its connection.
    pub(crate) fn note(&self, info: &StreamInfo, is_connection: bool) {
        // Never too much: three times a header.
        let _ = self.add_state(info);
        if is_connection {
            let _ = info.add_all(&self.metadata());
        }
    }

    /// All of it, for what is asked of a connection and not of a stream.
    pub(crate) fn info(&self) -> StreamInfo {
        let info = StreamInfo::default();
        self.note(&info, true);
        info
    }

    fn add_state(&self, info: &StreamInfo) -> Result<(), Refused> {
        if !self.in_state || self.kept.is_empty() {
            return Ok(());
        }
        let fields = self.kept.iter().map(|Kept { rule, first, last }| {
            (rule.key.clone(), Value::String(rule.text(last.as_ref().unwrap_or(first))))
        });
        let fields: Struct = fields.collect();
        let mut value = Vec::new();
        write_struct(&mut value, &fields, JsonStyle::Protobuf);
        let object =
            StateObject { value: value.into(), fields: Some(fields), ..StateObject::default() };
        info.set_state(STATE, object)
    }
}

impl Passes {
    /// Whether TLVs of a type go on.
    #[must_use]
    pub fn takes(&self, kind: u8) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::These(kinds) => kinds.contains(&kind),
        }
    }
}

/// Appends a TLV; its value is no longer than its length can tell.
pub(crate) fn write_tlv(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len()) else { return };
    out.push(kind);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
}

impl TlvRule {
    fn text(&self, value: &[u8]) -> Box<str> {
        if self.base64 {
            return BASE64_STANDARD.encode(value).into();
        }
        let mut text = String::with_capacity(value.len());
        for chunk in value.utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|_| '!'));
        }
        text.into()
    }
}

/// The TLVs in what stands behind a header's addresses (PROXY protocol §2.2.7).
pub(crate) fn tlvs(mut bytes: &[u8]) -> impl Iterator<Item = Found<'_>> {
    std::iter::from_fn(move || {
        let (&kind, rest) = bytes.split_first()?;
        let value = split_value(rest);
        bytes = value.map_or(&[], |(_, rest)| rest);
        Some(value.map(|(value, _)| (kind, value)).ok_or(Cut))
    })
}

/// A value behind its length, and what stands behind it.
fn split_value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

/// The namespace of rules that name none.
pub const NAMESPACE: &str = "envoy.filters.listener.proxy_protocol";
/// The name of the object in filter state.
pub(crate) const STATE: &str = "envoy.network.proxy_protocol.tlv";

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: u8, key: &str, base64: bool) -> Arc<TlvRule> {
        Arc::new(TlvRule { kind, namespace: "n".into(), key: key.into(), base64 })
    }

    fn read(bytes: &[u8], in_state: bool) -> Result<Proxied, Cut> {
        let kept = vec![rule(1, "never", false), rule(1, "a", false), rule(2, "b", true)];
        Proxied::read(bytes, &TlvRules { kept, in_state, passes: Passes::These([2].into()) })
    }

    #[test]
    fn a_value_is_kept_by_the_last_rule_for_its_type() {
        let said = read(b"\x01\0\x03a\xffz\x02\0\x02\0\xff\x03\0\x01x\x01\0\0", false).unwrap();
        let text = |text: &str| Value::String(text.into());
        let entries: Struct =
            [("a".into(), text("a!z")), ("b".into(), text("AP8="))].into_iter().collect();
        assert_eq!(said.metadata(), [("n".into(), Value::Struct(entries))].into_iter().collect());
        let typed: Vec<_> = said.typed().collect();
        assert_eq!(typed, [("n", "a", &b""[..]), ("n", "b", b"\0\xff")]);
        said.info().read_state(STATE, |state| assert_eq!(state, None));
    }

    #[test]
    fn state_is_one_object_of_the_last_values() {
        let said = read(b"\x01\0\x01x\x01\0\x01y", true).unwrap();
        assert_eq!(said.metadata(), Struct::new());
        assert_eq!(said.typed().count(), 0);
        said.info().read_state(STATE, |state| {
            let state = state.unwrap();
            assert_eq!(&*state.value, br#"{"a":"y"}"#);
            assert_eq!(state.fields.as_ref().unwrap()["a"], Value::String("y".into()));
        });
        // Without a value there is no object.
        read(b"", true).unwrap().info().read_state(STATE, |state| assert_eq!(state, None));
    }

    #[test]
    fn what_is_cut_anywhere_is_refused() {
        let whole = b"\x01\0\x02ab";
        for length in 1..whole.len() {
            assert_eq!(read(&whole[..length], false), Err(Cut), "{length}");
        }
        assert_eq!(read(&[], false).unwrap(), Proxied::default());
    }

    #[test]
    fn some_go_on_as_they_came() {
        let said = read(b"\x02\0\x01a\x01\0\x01b\x02\0\0", false).unwrap();
        assert_eq!(said.passed(), b"\x02\0\x01a\x02\0\0");
    }

    #[test]
    fn many_of_one_type_are_two() {
        let said = read(&b"\x01\0\0".repeat(20_000), false).unwrap();
        assert_eq!(said.kept.len(), 1);
    }
}
