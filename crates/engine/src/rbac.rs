//! Envoy `config.rbac.v3.RBAC`: rules that say who may do what.
//!
//! Arrives: what is known of a connection, and of a request on it. Leaves: whether it is allowed, and by which policy.

use std::ops::Range;

use memchr::memchr2;
use towpath_proto::Address;

use crate::cidr::Prefix;
use crate::format::cel::Expression;
use crate::matcher::tree::Tree;
use crate::matcher::{
    FilterStateMatcher, HeaderMatcher, MetadataMatcher, PathTemplate, StringMatcher,
};
pub use crate::matcher::{Subject, Whose};
use crate::record::DownstreamTls;
use crate::record::details;
use crate::stream_info::{Struct, Value};

/// An `RBAC`, or a matcher in its place.
#[derive(Clone, Debug)]
pub struct Rules(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Policies {
        action: Action,
        policies: Vec<Policy>,
    },
    /// `logs`: one of its actions is `LOG`.
    Tree {
        tree: Tree<MatchedAction>,
        logs: bool,
    },
}

/// Where a matcher leads: an `envoy.config.rbac.v3.Action`.
#[derive(Clone, Debug)]
pub struct MatchedAction {
    name: Box<str>,
    action: Action,
    details: &'static str,
}

impl MatchedAction {
    /// An action with its name.
    #[must_use]
    pub fn new(name: &str, action: Action) -> Self {
        Self { name: name.into(), action, details: details_of(name) }
    }
}

/// What becomes of what a policy takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is allowed, and nothing else is.
    Allow,
    /// It is refused, and nothing else is.
    Deny,
    /// Everything is allowed.
    Log,
}

/// A `Policy`: it takes what one of its permissions and one of its principals take.
#[derive(Clone, Debug)]
pub struct Policy {
    name: Box<str>,
    details: &'static str,
    permissions: Vec<Rule>,
    principals: Vec<Rule>,
    /// What must be true besides.
    condition: Option<Expression>,
}

/// A `Permission` or a `Principal`.
#[derive(Clone, Debug)]
pub enum Rule {
    /// `any`.
    Any,
    /// `and_rules`, `and_ids`.
    All(Vec<Self>),
    /// `or_rules`, `or_ids`.
    AnyOf(Vec<Self>),
    /// `not_rule`, `not_id`.
    Not(Box<Self>),
    /// `header`.
    Header(HeaderMatcher),
    /// `url_path`: without the query.
    Path(StringMatcher),
    /// `uri_template`: the same.
    Template(PathTemplate),
    /// `destination_ip`, `source_ip`, `direct_remote_ip`, `remote_ip`.
    Address(Whose, Prefix),
    /// `destination_port`, `destination_port_range`.
    Port(Range<u32>),
    /// `requested_server_name`.
    ServerName(StringMatcher),
    /// `authenticated`: what is spoken is TLS; where a name is wanted, a URI, a domain or the subject of the client's
    /// certificate has it.
    Authenticated(Option<StringMatcher>),
    /// `metadata`, `sourced_metadata`: the stream's dynamic metadata.
    Metadata(MetadataMatcher),
    /// `sourced_metadata` with `ROUTE`: where there is a route, its metadata.
    RouteMetadata(MetadataMatcher),
    /// `filter_state`.
    FilterState(FilterStateMatcher),
}

/// What rules say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement<'a> {
    /// Whether it goes on.
    pub is_allowed: bool,
    /// The name of the policy that took it; it may be empty.
    pub policy: &'a str,
    /// Of rules that only log: whether it is to be logged.
    pub logs: Option<bool>,
    /// The details of a refusal: `rbac_access_denied_matched_policy[<name>]`.
    pub details: &'static str,
}

impl Rules {
    /// The policies are asked in the order of their names, as Envoy asks them.
    #[must_use]
    pub fn new(action: Action, mut policies: Vec<Policy>) -> Self {
        policies.sort_by(|one, other| one.name.cmp(&other.name));
        Self(Kind::Policies { action, policies })
    }

    /// A matcher decides. What it leads nowhere is refused.
    #[must_use]
    pub const fn matching(tree: Tree<MatchedAction>, logs: bool) -> Self {
        Self(Kind::Tree { tree, logs })
    }

    /// Whether it asks for more than a request's head.
    #[must_use]
    pub fn reads_record(&self) -> bool {
        match &self.0 {
            Kind::Policies { policies, .. } => policies.iter().any(Policy::reads_record),
            Kind::Tree { tree, .. } => tree.reads_record(),
        }
    }

    /// Whether it has conditions, which ask for more than a connection has.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        match &self.0 {
            Kind::Policies { policies, .. } => policies.iter().any(|it| it.condition.is_some()),
            Kind::Tree { .. } => false,
        }
    }

    /// Asks the policies, until one takes the subject; or the matcher.
    #[must_use]
    pub fn judge(&self, subject: &Subject<'_>) -> Judgement<'_> {
        let (action, policies) = match &self.0 {
            Kind::Policies { action, policies } => (*action, policies),
            Kind::Tree { tree, logs } => {
                let Some(found) = tree.find(subject) else { return Judgement::REFUSED };
                return Judgement {
                    is_allowed: found.action != Action::Deny,
                    policy: &found.name,
                    logs: logs.then_some(found.action == Action::Log),
                    details: found.details,
                };
            }
        };
        let found = policies.iter().find(|policy| policy.takes(subject));
        let is_allowed = match action {
            Action::Allow => found.is_some(),
            Action::Deny => found.is_none(),
            Action::Log => true,
        };
        Judgement {
            is_allowed,
            policy: found.map_or("", |policy| &policy.name),
            logs: (action == Action::Log).then_some(found.is_some()),
            details: found.map_or(NO_POLICY, |policy| policy.details),
        }
    }
}

impl Judgement<'_> {
    /// What nothing takes.
    const REFUSED: Self = Self { is_allowed: false, policy: "", logs: None, details: NO_POLICY };

    /// Adds what was said to a filter's dynamic metadata.
    pub(crate) fn note(&self, entries: &mut Struct, prefix: &str, (result, policy): Keys) {
        let key = |name: &str| -> Box<str> {
            if prefix.is_empty() { name.into() } else { [prefix, name].concat().into() }
        };
        let said = if self.is_allowed { "allowed" } else { "denied" };
        entries.insert(key(result), Value::String(said.into()));
        if !self.policy.is_empty() {
            entries.insert(key(policy), Value::String(self.policy.into()));
        }
    }

    /// What is told to logs of the stream or connection, under [`COMMON`].
    pub(crate) fn hint(&self) -> Option<Struct> {
        self.logs.map(|logs| Struct::from([("access_log_hint".into(), Value::Bool(logs))]))
    }
}

/// The keys of the result, and of the policy that took the request.
pub(crate) type Keys = (&'static str, &'static str);
pub(crate) const SHADOW: Keys = ("shadow_engine_result", "shadow_effective_policy_id");
pub(crate) const ENFORCED: Keys = ("enforced_engine_result", "enforced_effective_policy_id");
/// The namespace of what several filters say.
pub(crate) const COMMON: &str = "envoy.common";

impl Policy {
    /// A policy with its name.
    #[must_use]
    pub fn new(name: &str, permissions: Vec<Rule>, principals: Vec<Rule>) -> Self {
        let details = details_of(name);
        Self { name: name.into(), details, permissions, principals, condition: None }
    }

    /// The same where this is true besides. Envoy `condition`.
    #[must_use]
    pub fn under(self, condition: Option<Expression>) -> Self {
        Self { condition, ..self }
    }

    fn reads_record(&self) -> bool {
        let mut rules = self.permissions.iter().chain(&self.principals);
        self.condition.is_some() || rules.any(Rule::reads_record)
    }

    fn takes(&self, subject: &Subject<'_>) -> bool {
        let one_takes = |rules: &[Rule]| rules.iter().any(|rule| rule.takes(subject));
        one_takes(&self.permissions)
            && one_takes(&self.principals)
            && self.condition.as_ref().is_none_or(|condition| subject.has(condition))
    }
}

impl Rule {
    fn reads_record(&self) -> bool {
        match self {
            Self::Any | Self::Header(_) | Self::Path(_) | Self::Template(_) => false,
            Self::All(rules) | Self::AnyOf(rules) => rules.iter().any(Self::reads_record),
            Self::Not(rule) => rule.reads_record(),
            // The route is known without it.
            Self::RouteMetadata(_) => false,
            Self::Address(..)
            | Self::Port(_)
            | Self::ServerName(_)
            | Self::Authenticated(_)
            | Self::Metadata(_)
            | Self::FilterState(_) => true,
        }
    }

    fn takes(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::All(rules) => rules.iter().all(|rule| rule.takes(subject)),
            Self::AnyOf(rules) => rules.iter().any(|rule| rule.takes(subject)),
            Self::Not(rule) => !rule.takes(subject),
            Self::Header(matcher) => match subject.request {
                Some(head) => matcher.matches(head),
                None => matcher.matches_no_head(),
            },
            Self::Path(matcher) => {
                // A CONNECT has none.
                let path = subject.request.map(|head| without_query(head.path()));
                path.is_some_and(|path| !path.is_empty() && matcher.matches(path))
            }
            Self::Template(template) => {
                let path = subject.request.map(|head| without_query(head.path()));
                path.is_some_and(|path| template.regex.is_match(path))
            }
            Self::Address(whose, range) => {
                let address = subject.address(*whose).and_then(Address::ip);
                address.is_some_and(|address| range.contains(address.ip()))
            }
            Self::Port(range) => {
                let local = subject.local.and_then(Address::ip);
                local.is_some_and(|local| range.contains(&local.port().into()))
            }
            Self::ServerName(matcher) => matcher.matches(subject.server_name.as_bytes()),
            Self::Authenticated(None) => subject.tls.is_some(),
            Self::Authenticated(Some(name)) => subject.tls.is_some_and(|tls| is_called(tls, name)),
            Self::Metadata(matcher) => matcher.matches(subject.info),
            Self::RouteMetadata(matcher) => subject.facts.is_some_and(|facts| {
                !facts.virtual_host.is_empty()
                    && matcher.matches_told(facts.told.route.map(AsRef::as_ref))
            }),
            Self::FilterState(matcher) => matcher.matches(subject.info),
        }
    }
}

/// Whether a client that has said who it is, or has not, is called so. One without a certificate has an empty subject.
fn is_called(tls: &DownstreamTls, name: &StringMatcher) -> bool {
    let Some(peer) = &tls.peer else { return name.matches(b"") };
    peer.uris.iter().chain(&peer.domains).any(|it| name.matches(it))
        || name.matches(peer.subject.as_bytes())
}

/// The details of what is refused by this name.
fn details_of(name: &str) -> &'static str {
    let is_space = |it: char| it.is_ascii_whitespace() || it == '\x0b';
    let details = format!("rbac_access_denied_matched_policy[{}]", name.replace(is_space, "_"));
    details::worded(&details)
}

/// A path without its query and its fragment.
fn without_query(path: &[u8]) -> &[u8] {
    &path[..memchr2(b'?', b'#', path).unwrap_or(path.len())]
}

/// The details of what is refused because no policy takes it.
const NO_POLICY: &str = "rbac_access_denied_matched_policy[none]";

#[cfg(test)]
mod tests {
    use towpath_proto::Head;

    use super::*;
    use crate::record::ShownCertificate;

    fn text(text: &str) -> StringMatcher {
        StringMatcher::exact(text, false)
    }

    fn range(address: &str, length: u8) -> Prefix {
        Prefix::new(address.parse().unwrap(), length)
    }

    fn address(text: &str) -> Address {
        Address::Ip(text.parse().unwrap())
    }

    #[test]
    fn each_rule_looks_at_one_thing() {
        let addresses = [address("10.0.0.1:80"), address("10.0.0.2:1"), address("10.0.0.3:2")];
        let mut head = Head::request(b"GET", b"http", b"h", b"/a?b");
        head.append_bytes(b"x", b"1");
        let with_head = Subject {
            local: Some(&addresses[0]),
            direct: Some(&addresses[1]),
            remote: Some(&addresses[2]),
            server_name: "a.test",
            request: Some(&head),
            ..Subject::default()
        };
        let without_head = Subject { request: None, ..with_head };
        let header = |test| Rule::Header(HeaderMatcher::new("x", test).unwrap());
        use crate::matcher::HeaderTest::{Present, Text};
        for (rule, with, without) in [
            (Rule::Any, true, true),
            (Rule::All(Vec::new()), true, true),
            (Rule::AnyOf(Vec::new()), false, false),
            (Rule::AnyOf(vec![Rule::Path(text("/a")), Rule::Port(1..2)]), true, false),
            (Rule::All(vec![Rule::Path(text("/a")), Rule::Port(1..2)]), false, false),
            (Rule::Not(Box::new(Rule::Path(text("/a")))), false, true),
            (Rule::Path(text("/a?b")), false, false),
            (header(Present(true)), true, false),
            (header(Present(false)), false, true),
            (header(Text(text("1"))), true, false),
            (Rule::Address(Whose::Local, range("10.0.0.1", 32)), true, true),
            (Rule::Address(Whose::Direct, range("10.0.0.1", 32)), false, false),
            (Rule::Address(Whose::Direct, range("10.0.0.2", 32)), true, true),
            (Rule::Address(Whose::Remote, range("10.0.0.3", 32)), true, true),
            (Rule::Port(80..81), true, true),
            (Rule::Port(79..80), false, false),
            (Rule::ServerName(text("a.test")), true, true),
            (Rule::Authenticated(None), false, false),
        ] {
            assert_eq!(rule.takes(&with_head), with, "{rule:?}");
            assert_eq!(rule.takes(&without_head), without, "{rule:?}");
        }
        let socket = Address::Unix(std::path::Path::new("/a").into());
        let local = Subject { local: Some(&socket), direct: Some(&socket), ..Subject::default() };
        assert!(!Rule::Port(0..65536).takes(&local));
        assert!(!Rule::Address(Whose::Direct, range("0.0.0.0", 0)).takes(&local));
    }

    #[test]
    fn a_client_is_called_by_what_its_certificate_says() {
        let peer = ShownCertificate {
            subject: "CN=me".into(),
            uris: vec![b"spiffe://a"[..].into()],
            domains: vec![b"a.test"[..].into()],
            ..ShownCertificate::default()
        };
        let shown = DownstreamTls { peer: Some(peer), ..DownstreamTls::default() };
        let hidden = DownstreamTls::default();
        let takes = |tls: &DownstreamTls, name: &str| {
            let rule = Rule::Authenticated(Some(text(name)));
            rule.takes(&Subject { tls: Some(tls), ..Subject::default() })
        };
        for name in ["CN=me", "spiffe://a", "a.test"] {
            assert!(takes(&shown, name) && !takes(&hidden, name), "{name}");
        }
        assert!(!takes(&shown, "me") && !takes(&shown, "") && takes(&hidden, ""));
        assert!(!Rule::Authenticated(Some(text(""))).takes(&Subject::default()));
    }

    #[test]
    fn the_first_policy_by_name_decides() {
        let policy = |name: &str, rule: Rule| Policy::new(name, vec![rule], vec![Rule::Any]);
        let rules = |action| {
            let (z, a) = (policy("z", Rule::Any), policy("a b\tc", Rule::Any));
            Rules::new(action, vec![policy("0", Rule::AnyOf(Vec::new())), z, a])
        };
        let details = "rbac_access_denied_matched_policy[a_b_c]";
        for (action, is_allowed) in
            [(Action::Allow, true), (Action::Deny, false), (Action::Log, true)]
        {
            let rules = rules(action);
            let judgement = rules.judge(&Subject::default());
            let logs = (action == Action::Log).then_some(true);
            let wanted = Judgement { is_allowed, policy: "a b\tc", logs, details };
            assert_eq!(judgement, wanted, "{action:?}");
            let nothing = Rules::new(action, Vec::new());
            let (is_allowed, logs) = (action != Action::Allow, logs.map(|_| false));
            let wanted = Judgement { is_allowed, logs, ..Judgement::REFUSED };
            assert_eq!(nothing.judge(&Subject::default()), wanted, "{action:?}");
        }
    }
}
