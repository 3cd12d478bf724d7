//! The types of a set of descriptors, as the engine has them.

use std::collections::HashMap;

use prost_reflect::{Cardinality, DescriptorPool, FieldDescriptor, Kind as Described, Syntax};
use towpath_engine::filter::grpc_json_transcoder::{
    EnumId, EnumType, Field, Kind, Known, MessageId, MessageType, Schema,
};

/// All types of a pool. Groups (of proto2) are left out.
pub(super) fn schema(pool: &DescriptorPool) -> Schema {
    let mut schema = Schema::default();
    let mut enums = HashMap::new();
    for kind in pool.all_enums() {
        let values = kind.values().map(|value| (value.name().into(), value.number())).collect();
        let id = schema.add_enum(EnumType { name: kind.full_name().into(), values });
        enums.insert(kind.full_name().to_owned(), id);
    }
    // They have their ids before they have their fields.
    let numbers = pool.all_messages().zip(0..);
    let messages: HashMap<String, MessageId> =
        numbers.map(|(kind, number)| (kind.full_name().to_owned(), MessageId(number))).collect();
    for kind in pool.all_messages() {
        let oneofs: Vec<_> = kind.oneofs().filter(|oneof| !oneof.is_synthetic()).collect();
        let place = |field: &FieldDescriptor| {
            let oneof = field.containing_oneof()?;
            let at = oneofs.iter().position(|it| it.name() == oneof.name())?;
            u32::try_from(at).ok()
        };
        let fields = kind.fields().filter(|field| !field.is_group()).map(|field| Field {
            name: field.name().into(),
            json_name: field.json_name().into(),
            number: field.number(),
            kind: kind_of(&field, &messages, &enums),
            is_repeated: field.cardinality() == Cardinality::Repeated,
            is_required: field.is_required(),
            is_map: field.is_map(),
            has_presence: field.supports_presence(),
            oneof: place(&field),
        });
        let fields = fields.collect();
        schema.add_message(MessageType {
            name: kind.full_name().into(),
            fields,
            oneofs: oneofs.iter().map(|oneof| oneof.name().into()).collect(),
            is_proto3: kind.parent_file().syntax() == Syntax::Proto3,
            known: Known::No,
        });
    }
    schema
}

fn kind_of(
    field: &FieldDescriptor,
    messages: &HashMap<String, MessageId>,
    enums: &HashMap<String, EnumId>,
) -> Kind {
    match field.kind() {
        Described::Double => Kind::Double,
        Described::Float => Kind::Float,
        Described::Int64 => Kind::Int64,
        Described::Uint64 => Kind::Uint64,
        Described::Int32 => Kind::Int32,
        Described::Fixed64 => Kind::Fixed64,
        Described::Fixed32 => Kind::Fixed32,
        Described::Bool => Kind::Bool,
        Described::String => Kind::String,
        Described::Bytes => Kind::Bytes,
        Described::Uint32 => Kind::Uint32,
        Described::Sfixed32 => Kind::Sfixed32,
        Described::Sfixed64 => Kind::Sfixed64,
        Described::Sint32 => Kind::Sint32,
        Described::Sint64 => Kind::Sint64,
        // A pool is whole: it has all types that its fields name.
        Described::Message(kind) => {
            messages.get(kind.full_name()).map_or(Kind::Bytes, |id| Kind::Message(*id))
        }
        Described::Enum(kind) => {
            enums.get(kind.full_name()).map_or(Kind::Int32, |id| Kind::Enum(*id))
        }
    }
}

/// `google.rpc.Status`, which is there even where the descriptors do not have it.
pub(super) fn status(schema: &mut Schema) -> MessageId {
    const STATUS: &str = "google.rpc.Status";
    const ANY: &str = "google.protobuf.Any";
    if let Some(id) = schema.find(STATUS) {
        return id;
    }
    let any = schema.find(ANY).unwrap_or_else(|| {
        add(schema, ANY, vec![field("type_url", 1, Kind::String), field("value", 2, Kind::Bytes)])
    });
    let details = Field { is_repeated: true, ..field("details", 3, Kind::Message(any)) };
    let fields = vec![field("code", 1, Kind::Int32), field("message", 2, Kind::String), details];
    add(schema, STATUS, fields)
}

fn add(schema: &mut Schema, name: &str, fields: Vec<Field>) -> MessageId {
    schema.add_message(MessageType {
        name: name.into(),
        fields,
        oneofs: Vec::new(),
        is_proto3: true,
        known: Known::No,
    })
}

fn field(name: &str, number: u32, kind: Kind) -> Field {
    Field {
        name: name.into(),
        json_name: if name == "type_url" { "typeUrl" } else { name }.into(),
        number,
        kind,
        is_repeated: false,
        is_required: false,
        is_map: false,
        has_presence: false,
        oneof: None,
    }
}
