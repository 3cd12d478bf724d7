//! Applies the header operations of routes, virtual hosts, tables and weighted clusters, as Envoy does: what is
//! to be removed goes first; then every value is made from the head as it is by then; then what overwrites is
//! set, and last what is appended is added.

use towpath_proto::head::HeaderName;
use towpath_proto::{Head, Name, PreparedFields};

use crate::format::{Facts, Format};
use crate::matcher::StringMatcher;

/// Headers to add and to remove, compiled.
#[derive(Clone, Debug, Default)]
pub struct HeaderOps {
    /// Taken away first.
    pub remove: Vec<HeaderName>,
    /// Then these, in order.
    pub add: Vec<HeaderOp>,
}

impl HeaderOps {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }
}

/// The fields that operations add, if that is all they do whatever the stream.
pub(crate) fn prepared(levels: &[&HeaderOps]) -> Option<PreparedFields> {
    let mut fields = Vec::new();
    for ops in levels {
        if !ops.remove.is_empty() {
            return None;
        }
        for op in &ops.add {
            let value = op.value.constant().filter(|_| op.action == HeaderAction::Append)?;
            if (!value.is_empty() || op.keep_empty) && op.name.name() != Name::Host {
                fields.push((&op.name, value));
            }
        }
    }
    Some(PreparedFields::new(fields.iter().map(|(name, value)| (*name, &**value))))
}

/// Envoy `HeaderValueOption`.
#[derive(Clone, Debug)]
pub struct HeaderOp {
    /// Which header.
    pub name: HeaderName,
    /// Its value, with `%…%` already compiled.
    pub value: Format,
    /// What happens when it is there already.
    pub action: HeaderAction,
    /// `keep_empty_value`: an empty result is set instead of skipped.
    pub keep_empty: bool,
}

/// Envoy `HeaderAppendAction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderAction {
    /// `APPEND_IF_EXISTS_OR_ADD`.
    #[default]
    Append,
    /// `ADD_IF_ABSENT`.
    AddIfAbsent,
    /// `OVERWRITE_IF_EXISTS_OR_ADD`.
    Overwrite,
    /// `OVERWRITE_IF_EXISTS`.
    OverwriteIfExists,
}

/// Which head is changed: formats see it as it is by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The request's.
    Request,
    /// The response's.
    Response,
    /// The request's trailers, which no format sees.
    RequestTrailers,
    /// The response's trailers.
    ResponseTrailers,
    /// A request of our own about the stream: formats see the stream's.
    Call,
}

/// Memory that [`HeaderOps::apply`] borrows, kept by a worker so that nothing is allocated.
#[derive(Debug, Default)]
pub struct Scratch {
    values: Vec<u8>,
    /// Which operation, and where its value ends.
    ends: Vec<(usize, usize)>,
}

impl HeaderOps {
    /// Changes `head`, which is `subject` of the stream that `facts` are about; `facts` themselves cannot have it.
    pub fn apply(
        &self,
        head: &mut Head,
        subject: Subject,
        facts: &Facts<'_>,
        scratch: &mut Scratch,
    ) {
        for name in self.remove.iter().filter(|name| name.name() != Name::Host) {
            head.remove_named(name);
        }
        if self.add.is_empty() {
            return;
        }
        self.evaluate(head, subject, facts, scratch);
        let values = |overwriting: bool| {
            let mut start = 0;
            scratch.ends.iter().filter_map(move |(op, end)| {
                let value = start..std::mem::replace(&mut start, *end).max(*end);
                let op = &self.add[*op];
                (op.overwrites() == overwriting).then_some((op, value))
            })
        };
        for (op, value) in values(true) {
            head.set_named(&op.name, &scratch.values[value]);
        }
        for (op, value) in values(false) {
            head.append_named(&op.name, &scratch.values[value]);
        }
    }

    /// Makes the values of all operations that take effect.
    fn evaluate(&self, head: &Head, subject: Subject, facts: &Facts<'_>, scratch: &mut Scratch) {
        let facts = with_head(facts, subject, head);
        scratch.values.clear();
        scratch.ends.clear();
        for (index, op) in self.add.iter().enumerate() {
            let start = scratch.values.len();
            if !op.applies(head) {
                continue;
            }
            op.value.write(&mut scratch.values, &facts);
            if scratch.values.len() > start || op.keep_empty {
                scratch.ends.push((index, scratch.values.len()));
            }
        }
    }
}

/// Changes of a head that are made one after the other, each of the head as the one before has left it. Envoy
/// `HeaderMutations`.
#[derive(Clone, Debug, Default)]
pub struct HeaderMutations(pub Vec<HeaderMutation>);

/// Envoy `config.common.mutation_rules.v3.HeaderMutation`.
#[derive(Clone, Debug)]
pub enum HeaderMutation {
    /// `remove`.
    Remove(HeaderName),
    /// `remove_on_match`: every header whose name, in small letters, matches.
    RemoveOnMatch(StringMatcher),
    /// `append`.
    Add(HeaderOp),
}

impl HeaderMutations {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes `head`, which is `subject` of the stream that `facts` are about; `facts` themselves cannot have it.
    pub fn apply(
        &self,
        head: &mut Head,
        subject: Subject,
        facts: &Facts<'_>,
        scratch: &mut Scratch,
    ) {
        for mutation in &self.0 {
            match mutation {
                HeaderMutation::Remove(name) => {
                    head.remove_named(name);
                }
                HeaderMutation::RemoveOnMatch(matcher) => {
                    head.retain(|field| !matcher.matches(&field.name_bytes.to_ascii_lowercase()))
                }
                HeaderMutation::Add(op) => op.apply(head, subject, facts, &mut scratch.values),
            }
        }
    }
}

impl HeaderOp {
    /// Changes a head by this alone.
    fn apply(&self, head: &mut Head, subject: Subject, facts: &Facts<'_>, value: &mut Vec<u8>) {
        if !self.applies(head) {
            return;
        }
        let facts = with_head(facts, subject, head);
        value.clear();
        self.value.write(value, &facts);
        match (value.is_empty() && !self.keep_empty, self.overwrites()) {
            (true, _) => {}
            (false, true) => head.set_named(&self.name, value),
            (false, false) => head.append_named(&self.name, value),
        }
    }

    fn applies(&self, head: &Head) -> bool {
        let present = || head.get_named(&self.name).is_some();
        self.name.name() != Name::Host
            && match self.action {
                HeaderAction::Append | HeaderAction::Overwrite => true,
                HeaderAction::AddIfAbsent => !present(),
                HeaderAction::OverwriteIfExists => present(),
            }
    }

    fn overwrites(&self) -> bool {
        match self.action {
            HeaderAction::Overwrite | HeaderAction::OverwriteIfExists => true,
            HeaderAction::Append | HeaderAction::AddIfAbsent => false,
        }
    }
}

/// What is known of a stream, with its head as it is by now.
fn with_head<'a>(facts: &Facts<'a>, subject: Subject, head: &'a Head) -> Facts<'a> {
    match subject {
        Subject::Request => Facts { request: Some(head), ..*facts },
        Subject::Response => Facts { response: Some(head), ..*facts },
        Subject::RequestTrailers | Subject::Call => *facts,
        Subject::ResponseTrailers => Facts { trailers: Some(head), ..*facts },
    }
}

#[cfg(test)]
mod tests {
    use towpath_proto::{HeaderName, Instant};

    use super::*;
    use crate::format::{Format, FormatOptions};
    use crate::record::Record;

    fn op(name: &str, value: &str, action: HeaderAction, keep_empty: bool) -> HeaderOp {
        let value = Format::header(value, &FormatOptions::default()).unwrap();
        HeaderOp { name: HeaderName::new(name).unwrap(), value, action, keep_empty }
    }

    fn changed(ops: &HeaderOps) -> Vec<String> {
        let mut head = Head::request(b"GET", b"http", b"h", b"/");
        for (name, value) in [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")] {
            head.append_bytes(name.as_bytes(), value.as_bytes());
        }
        let record = Record::default();
        let facts = Facts::new(&record, Instant::ZERO);
        ops.apply(&mut head, Subject::Request, &facts, &mut Scratch::default());
        let text = |field: towpath_proto::FieldRef<'_>| {
            let name = String::from_utf8_lossy(field.name_bytes).into_owned();
            format!("{name}={}", String::from_utf8_lossy(field.value))
        };
        let mut all: Vec<_> = head.iter().map(text).collect();
        all.push(String::from_utf8_lossy(head.authority()).into_owned());
        all
    }

    #[test]
    fn actions_do_what_envoy_says() {
        use HeaderAction::{AddIfAbsent, Append, Overwrite, OverwriteIfExists};
        let one = |op: HeaderOp| changed(&HeaderOps { remove: Vec::new(), add: vec![op] });
        assert_eq!(one(op("a", "x", Append, false)), ["a=1", "b=2", "a=3", "c=4", "a=x", "h"]);
        assert_eq!(one(op("a", "x", Overwrite, false)), ["a=x", "b=2", "c=4", "h"]);
        assert_eq!(one(op("a", "x", AddIfAbsent, false)), ["a=1", "b=2", "a=3", "c=4", "h"]);
        assert_eq!(
            one(op("d", "x", AddIfAbsent, false)).last_chunk(),
            Some(&["d=x".into(), "h".into()])
        );
        assert_eq!(one(op("d", "x", OverwriteIfExists, false)).len(), 5);
        assert_eq!(one(op("c", "x", OverwriteIfExists, false))[3], "c=x");
        assert_eq!(one(op("d", "%REQ(no)%", Append, false)).len(), 5);
        assert_eq!(one(op("d", "%REQ(no)%", Append, true))[4], "d=");
        assert_eq!(one(op("host", "x", Overwrite, false)).last().unwrap(), "h");
    }

    #[test]
    fn what_is_the_same_for_all_streams_is_prepared() {
        use HeaderAction::{AddIfAbsent, Append, Overwrite};
        let levels = [
            vec![op("a", " x ", Append, false), op("server", "100%%", Append, false)],
            vec![op("empty", "", Append, false), op("kept", "", Append, true)],
            vec![op("host", "x", Append, false), op("a", "y", Append, false)],
        ];
        let levels = levels.map(|add| HeaderOps { remove: Vec::new(), add });
        let (mut ours, mut theirs) = (Head::response(200), Head::response(200));
        ours.append_bytes(b"a", b"before");
        theirs.append_bytes(b"a", b"before");
        ours.append_prepared(&prepared(&levels.each_ref()).unwrap());
        let record = Record::default();
        for ops in &levels {
            let facts = Facts::new(&record, Instant::ZERO);
            ops.apply(&mut theirs, Subject::Response, &facts, &mut Scratch::default());
        }
        let fields = |head: &Head| -> Vec<_> {
            head.iter().map(|field| (field.name_bytes.to_vec(), field.value.to_vec())).collect()
        };
        assert_eq!(fields(&ours), fields(&theirs));
        assert_eq!(fields(&ours).len(), 5);
        assert_eq!(ours.get(Name::Server), Some(&b"100%"[..]));

        let one = |op: HeaderOp| prepared(&[&HeaderOps { remove: Vec::new(), add: vec![op] }]);
        assert!(one(op("a", "%PROTOCOL%", Append, false)).is_none());
        assert!(one(op("a", "x", Overwrite, false)).is_none());
        assert!(one(op("a", "x", AddIfAbsent, false)).is_none());
        let removing = HeaderOps { remove: vec![HeaderName::new("c").unwrap()], add: Vec::new() };
        assert!(prepared(&[&removing]).is_none());
        assert!(prepared(&[&HeaderOps::default()]).unwrap().is_empty());
    }

    #[test]
    fn values_see_the_head_after_removals_and_before_additions() {
        let ops = HeaderOps {
            remove: vec![HeaderName::new("c").unwrap()],
            add: vec![
                op("x", "%REQ(a)%%REQ(c)%", HeaderAction::Append, false),
                op("a", "9", HeaderAction::Overwrite, false),
                op("y", "%REQ(a)%%REQ(x)%", HeaderAction::Append, false),
            ],
        };
        assert_eq!(changed(&ops), ["a=9", "b=2", "x=1", "y=1", "h"]);
    }
}
