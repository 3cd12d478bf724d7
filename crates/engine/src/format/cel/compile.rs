//! Takes the syntax tree of an expression apart, into what is evaluated for each stream.

use std::fmt;

use cel::common::ast::{CallExpr, Expr, LiteralValue, SelectExpr, operators};

use super::attribute::Attribute;
use super::function::Function;
use super::{MAX_LENGTH, Value};

/// A part of an expression.
#[derive(Debug)]
pub(super) enum Node {
    Literal(Value<'static>),
    List(Vec<Self>),
    Attribute(Attribute),
    /// An attribute that no stream has, as Envoy treats names that it does not know.
    Unknown,
    /// An object of the filter state.
    State(Box<Self>),
    Not(Box<Self>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    /// `condition ? then : else`.
    Choice(Box<[Self; 3]>),
    /// `map.field` or `value[key]`.
    At(Box<[Self; 2]>),
    /// `has(map.field)`.
    Has(Box<[Self; 2]>),
    /// `has(request.field)`.
    HasAttribute(Attribute),
    Call(Function, Vec<Self>),
}

/// Why an expression is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CelError {
    pub(super) text: String,
    /// Envoy knows what is asked for, and it is not there.
    pub is_unsupported: bool,
}

impl fmt::Display for CelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CelError {}

pub(super) fn error<T>(text: impl Into<String>) -> Result<T, CelError> {
    Err(wrong(text))
}

pub(super) fn wrong(text: impl Into<String>) -> CelError {
    CelError { text: text.into(), is_unsupported: false }
}

pub(super) fn parse(text: &str) -> Result<Node, CelError> {
    if text.len() > MAX_LENGTH {
        return error(format!("an expression has at most {MAX_LENGTH} bytes"));
    }
    // The parser calls itself for each level, and takes much of the stack for each.
    std::thread::scope(|scope| {
        let read = || {
            let parsed = cel::parser::Parser::new().parse(text);
            let root = parsed.or_else(|errors| {
                let said = errors.errors.first().and_then(|first| first.msg.lines().next());
                error(format!("not an expression: {}", said.unwrap_or_default()))
            })?;
            node(&root.expr, 0)
        };
        let reader = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read);
        let reader = reader.or_else(|_| error("there is no thread to read it on"))?;
        reader.join().unwrap_or_else(|_| error("not an expression"))
    })
}

/// Bytes of stack for the parser, which are taken as they are used.
const STACK: usize = 64 << 20;

/// How deep expressions nest, at most.
const MAX_DEPTH: usize = 64;

fn node(expression: &Expr, depth: usize) -> Result<Node, CelError> {
    if depth == MAX_DEPTH {
        return error(format!("an expression nests at most {MAX_DEPTH} deep"));
    }
    let inner = |it: &Expr| node(it, depth + 1);
    match expression {
        Expr::Literal(value) => Ok(Node::Literal(literal(value))),
        Expr::List(list) => {
            let elements = list.elements.iter().map(|it| inner(&it.expr));
            Ok(Node::List(elements.collect::<Result<_, _>>()?))
        }
        Expr::Ident(name) => root(name),
        Expr::Select(select) => selected(select, inner),
        Expr::Call(call) => called(call, inner),
        Expr::Comprehension(_) => error("there are no comprehensions (all, exists, map, filter)"),
        Expr::Map(_) | Expr::Struct(_) => error("maps and messages cannot be made"),
        Expr::Unspecified => error("not an expression"),
    }
}

fn literal(value: &LiteralValue) -> Value<'static> {
    match value {
        LiteralValue::Boolean(flag) => Value::Bool(*flag.inner()),
        LiteralValue::Bytes(bytes) => Value::Bytes(bytes.inner().to_vec().into()),
        LiteralValue::Double(number) => Value::Double(*number.inner()),
        LiteralValue::Int(number) => Value::Int(*number.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(text) => Value::Text(text.inner().as_bytes().to_vec().into()),
        LiteralValue::UInt(number) => Value::Uint(*number.inner()),
    }
}

/// A name by itself.
fn root(name: &str) -> Result<Node, CelError> {
    match Attribute::of(name) {
        Some(Attribute::FilterState) => error("filter_state is asked for one of its objects"),
        Some(attribute) => Ok(Node::Attribute(attribute)),
        None if is_group(name) => error(format!("{name} is asked for one of its attributes")),
        None => Ok(Node::Unknown),
    }
}

fn is_group(name: &str) -> bool {
    let prefix = format!("{name}.");
    Attribute::names().any(|known| known.starts_with(&prefix)) || name == "upstream_filter_state"
}

/// `operand.field`, or whether there is one.
fn selected(
    select: &SelectExpr,
    inner: impl Fn(&Expr) -> Result<Node, CelError>,
) -> Result<Node, CelError> {
    let SelectExpr { operand, field, test } = select;
    if let Expr::Ident(group) = &operand.expr {
        if group == "filter_state" && !test {
            return Ok(Node::State(Box::new(key(field))));
        }
        if is_group(group) {
            let name = format!("{group}.{field}");
            return match (Attribute::of(&name), test) {
                (Some(attribute), false) => Ok(Node::Attribute(attribute)),
                (Some(attribute), true) => Ok(Node::HasAttribute(attribute)),
                (None, _) if UNSUPPORTED.contains(&&*name) => {
                    Err(CelError { text: format!("{name} is not known"), is_unsupported: true })
                }
                (None, false) => Ok(Node::Unknown),
                (None, true) => Ok(Node::Literal(Value::Bool(false))),
            };
        }
    }
    let both = Box::new([inner(&operand.expr)?, key(field)]);
    Ok(if *test { Node::Has(both) } else { Node::At(both) })
}

fn key(field: &str) -> Node {
    Node::Literal(Value::Text(field.as_bytes().to_vec().into()))
}

fn called(
    call: &CallExpr,
    inner: impl Fn(&Expr) -> Result<Node, CelError>,
) -> Result<Node, CelError> {
    let CallExpr { func_name: name, target, args } = call;
    let target = target.as_deref();
    // `request["path"]` is `request.path`.
    if let (operators::INDEX, [operand, index]) = (&**name, &**args) {
        if let (Expr::Ident(group), Expr::Literal(LiteralValue::String(field))) =
            (&operand.expr, &index.expr)
            && is_group(group)
        {
            let select = SelectExpr {
                operand: Box::new(operand.clone()),
                field: field.inner().to_owned(),
                test: false,
            };
            return selected(&select, inner);
        }
        if matches!(&operand.expr, Expr::Ident(name) if name == "filter_state") {
            return Ok(Node::State(Box::new(inner(&index.expr)?)));
        }
        return Ok(Node::At(Box::new([inner(&operand.expr)?, inner(&index.expr)?])));
    }
    // `re.extract(…)` is a call of a member of an unknown name.
    let (name, target) = match target.map(|target| &target.expr) {
        Some(Expr::Ident(space)) if space == "re" => (format!("re.{name}"), None),
        _ => (name.clone(), target),
    };
    let all = target.into_iter().chain(args).map(|it| inner(&it.expr));
    let all: Vec<Node> = all.collect::<Result<_, _>>()?;
    let wrong = |_| wrong(format!("{name} has other arguments"));
    Ok(match &*name {
        operators::LOGICAL_AND => Node::And(Box::new(all.try_into().map_err(wrong)?)),
        operators::LOGICAL_OR => Node::Or(Box::new(all.try_into().map_err(wrong)?)),
        operators::CONDITIONAL => Node::Choice(Box::new(all.try_into().map_err(wrong)?)),
        operators::LOGICAL_NOT => {
            let [only] = all.try_into().map_err(wrong)?;
            Node::Not(Box::new(only))
        }
        name => {
            let function = Function::of(name, target.is_some(), &all)?;
            Node::Call(function, all)
        }
    })
}

/// Envoy's attributes that are not known here.
const UNSUPPORTED: &[&str] = &[
    "connection.peer_certificate_valid",
    "connection.transport_failure_reason",
    "upstream.dns_san_local_certificate",
    "upstream.dns_san_peer_certificate",
    "upstream.locality",
    "upstream.num_endpoints",
    "upstream.server_name",
    "upstream.sha256_peer_certificate_digest",
    "upstream.subject_local_certificate",
    "upstream.subject_peer_certificate",
    "upstream.uri_san_local_certificate",
    "upstream.uri_san_peer_certificate",
    "xds.listener_direction",
    "xds.node",
    "xds.upstream_host_locality_metadata",
];
