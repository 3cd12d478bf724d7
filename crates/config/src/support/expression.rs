//! Expressions in CEL that have been taken apart: `google.api.expr.v1alpha1`, and `cel.expr` with the same fields.

use super::Entry;

const fn whole(message: &'static str, honoured: &'static [&'static str]) -> Entry {
    Entry { message, honoured, harmless: &[], changes: &[] }
}

macro_rules! expressions {
    ($package:literal) => {
        [
            Entry {
                message: concat!($package, ".ParsedExpr"),
                honoured: &["expr"],
                harmless: SOURCE,
                changes: &[],
            },
            Entry {
                message: concat!($package, ".CheckedExpr"),
                honoured: &["expr"],
                harmless: &[
                    ("reference_map", TYPES),
                    ("type_map", TYPES),
                    ("source_info", POSITIONS),
                    ("expr_version", POSITIONS),
                ],
                changes: &[],
            },
            whole(
                concat!($package, ".Expr"),
                &[
                    "id",
                    "const_expr",
                    "ident_expr",
                    "select_expr",
                    "call_expr",
                    "list_expr",
                    "struct_expr",
                    "comprehension_expr",
                ],
            ),
            whole(concat!($package, ".Expr.Ident"), &["name"]),
            whole(concat!($package, ".Expr.Select"), &["operand", "field", "test_only"]),
            whole(concat!($package, ".Expr.Call"), &["target", "function", "args"]),
            Entry {
                message: concat!($package, ".Expr.CreateList"),
                honoured: &["elements"],
                harmless: &[],
                changes: &[("optional_indices", "elements are not optional")],
            },
            Entry {
                message: concat!($package, ".Constant"),
                honoured: &[
                    "null_value",
                    "bool_value",
                    "int64_value",
                    "uint64_value",
                    "double_value",
                    "string_value",
                    "bytes_value",
                ],
                harmless: &[],
                changes: &[
                    ("duration_value", "no parser makes it; write duration(...)"),
                    ("timestamp_value", "no parser makes it; write timestamp(...)"),
                ],
            },
        ]
    };
}

pub(super) const ENTRIES: &[Entry] = &expressions!("google.api.expr.v1alpha1");
pub(super) const NEW: &[Entry] = &expressions!("cel.expr");
pub(super) const MATCHED: &[Entry] = &[
    whole("xds.type.matcher.v3.HttpAttributesCelMatchInput", &[]),
    Entry {
        message: "xds.type.matcher.v3.CelMatcher",
        honoured: &["expr_match"],
        harmless: &[("description", "it is a comment")],
        changes: &[],
    },
    whole(
        "xds.type.v3.CelExpression",
        &["parsed_expr", "checked_expr", "cel_expr_parsed", "cel_expr_checked"],
    ),
];

const SOURCE: &[(&str, &str)] = &[("source_info", POSITIONS)];
const POSITIONS: &str = "it says from where the expression is";
const TYPES: &str = "types are looked at when it is evaluated";
