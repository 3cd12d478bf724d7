//! Envoy `xds.type.matcher.v3.Matcher`: a tree that leads from what is known of a connection or a request to an action.

use std::collections::HashMap;

use super::{Input, MetadataMatcher, StringMatcher, Subject};
use crate::cidr::Prefix;
use crate::format::cel::Expression;

/// A tree whose leaves are actions.
#[derive(Clone, Debug)]
pub struct Tree<A> {
    branches: Branches<A>,
    /// `on_no_match`.
    otherwise: Option<Outcome<A>>,
}

/// How a tree branches.
#[derive(Clone, Debug)]
pub enum Branches<A> {
    /// `matcher_list`: the first that matches and leads somewhere.
    List(Vec<(Predicate, Outcome<A>)>),
    /// `matcher_tree.exact_match_map`.
    Exact(Input, HashMap<Box<[u8]>, Outcome<A>>),
    /// `matcher_tree.prefix_match_map`: the longest that leads somewhere.
    Prefix(Input, Vec<(Box<[u8]>, Outcome<A>)>),
    /// `matcher_tree.custom_match` with `IPMatcher`: the longest that leads somewhere.
    Ranges(Input, Vec<Ranges<A>>),
}

/// Envoy `IPMatcher.IPRangeMatcher`.
#[derive(Clone, Debug)]
pub struct Ranges<A> {
    /// `ranges`.
    pub ranges: Vec<Prefix>,
    /// `on_match`.
    pub outcome: Outcome<A>,
    /// `exclusive`: it counts only where no longer range has the address.
    pub is_exclusive: bool,
}

/// `OnMatch`: where a branch leads.
#[derive(Clone, Debug)]
pub enum Outcome<A> {
    /// `action`.
    Act(A),
    /// `matcher`.
    Ask(Box<Tree<A>>),
}

/// `Predicate`.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// `single_predicate` with `value_match`.
    Text(Input, StringMatcher),
    /// `single_predicate` with a `custom_match` that looks at addresses.
    Address(Input, Vec<Prefix>),
    /// `single_predicate` with a `custom_match` that looks at a value of dynamic metadata.
    Metadata(MetadataMatcher),
    /// `single_predicate` with a `custom_match` that is an expression.
    Expression(Expression),
    /// `or_matcher`.
    AnyOf(Vec<Self>),
    /// `and_matcher`.
    All(Vec<Self>),
    /// `not_matcher`.
    Not(Box<Self>),
}

impl<A> Tree<A> {
    /// A tree. Prefixes and ranges are put in the order in which they are asked.
    #[must_use]
    pub fn new(mut branches: Branches<A>, otherwise: Option<Outcome<A>>) -> Self {
        if let Branches::Prefix(_, prefixes) = &mut branches {
            prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        }
        Self { branches, otherwise }
    }

    /// The action for a subject, if the tree leads to one.
    #[must_use]
    pub fn find(&self, subject: &Subject<'_>) -> Option<&A> {
        self.branches
            .find(subject)
            .or_else(|| self.otherwise.as_ref().and_then(|otherwise| otherwise.find(subject)))
    }

    /// Whether it looks at more than heads.
    #[must_use]
    pub fn reads_record(&self) -> bool {
        let mut reads = false;
        self.inputs(&mut |input| reads |= input.is_of_record());
        reads
    }

    /// Calls `visit` with all that the tree looks at.
    pub fn inputs(&self, visit: &mut impl FnMut(&Input)) {
        let outcomes: Vec<&Outcome<A>> = match &self.branches {
            Branches::List(list) => {
                list.iter().for_each(|(predicate, _)| predicate.inputs(visit));
                list.iter().map(|(_, outcome)| outcome).collect()
            }
            Branches::Exact(input, map) => {
                visit(input);
                map.values().collect()
            }
            Branches::Prefix(input, list) => {
                visit(input);
                list.iter().map(|(_, outcome)| outcome).collect()
            }
            Branches::Ranges(input, list) => {
                visit(input);
                list.iter().map(|ranges| &ranges.outcome).collect()
            }
        };
        for outcome in outcomes.into_iter().chain(&self.otherwise) {
            if let Outcome::Ask(tree) = outcome {
                tree.inputs(visit);
            }
        }
    }
}

impl<A> Branches<A> {
    fn find(&self, subject: &Subject<'_>) -> Option<&A> {
        match self {
            Self::List(list) => list
                .iter()
                .filter(|(predicate, _)| predicate.takes(subject))
                .find_map(|(_, outcome)| outcome.find(subject)),
            Self::Exact(input, map) => input.read(subject, |text| map.get(text?))?.find(subject),
            Self::Prefix(input, list) => input.read(subject, |text| {
                let text = text?;
                let fitting = list.iter().filter(|(prefix, _)| text.starts_with(prefix));
                fitting.into_iter().find_map(|(_, outcome)| outcome.find(subject))
            }),
            Self::Ranges(input, list) => {
                let ip = input.ip(subject)?;
                let mut fitting: Vec<(u8, &Ranges<A>)> = list
                    .iter()
                    .filter_map(|ranges| {
                        let holding = ranges.ranges.iter().filter(|range| range.contains(ip));
                        Some((holding.map(|range| range.length).max()?, ranges))
                    })
                    .collect();
                // The sort is stable: equal ranges stay in the order of the file.
                fitting.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
                fitting
                    .into_iter()
                    .enumerate()
                    .filter(|(place, (_, ranges))| *place == 0 || !ranges.is_exclusive)
                    .find_map(|(_, (_, ranges))| ranges.outcome.find(subject))
            }
        }
    }
}

impl<A> Outcome<A> {
    fn find(&self, subject: &Subject<'_>) -> Option<&A> {
        match self {
            Self::Act(action) => Some(action),
            Self::Ask(tree) => tree.find(subject),
        }
    }
}

impl Predicate {
    fn takes(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::Text(input, matcher) => {
                input.read(subject, |text| text.is_some_and(|text| matcher.matches(text)))
            }
            Self::Address(input, ranges) => {
                let ip = input.ip(subject);
                ip.is_some_and(|ip| ranges.iter().any(|range| range.contains(ip)))
            }
            Self::Metadata(matcher) => matcher.matches(subject.info),
            Self::Expression(expression) => subject.has(expression),
            Self::AnyOf(predicates) => predicates.iter().any(|it| it.takes(subject)),
            Self::All(predicates) => predicates.iter().all(|it| it.takes(subject)),
            Self::Not(predicate) => !predicate.takes(subject),
        }
    }

    fn inputs(&self, visit: &mut impl FnMut(&Input)) {
        match self {
            Self::Text(input, _) | Self::Address(input, _) => visit(input),
            Self::Metadata(_) => visit(&Input::Metadata),
            Self::Expression(_) => visit(&Input::Attributes),
            Self::AnyOf(predicates) | Self::All(predicates) => {
                predicates.iter().for_each(|predicate| predicate.inputs(visit));
            }
            Self::Not(predicate) => predicate.inputs(visit),
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_proto::{Address, Head};

    use super::*;
    use crate::field::Field;
    use crate::matcher::Whose;

    fn act(action: u8) -> Outcome<u8> {
        Outcome::Act(action)
    }

    fn ask(tree: Tree<u8>) -> Outcome<u8> {
        Outcome::Ask(Box::new(tree))
    }

    fn header(name: &str) -> Input {
        Input::RequestHeader(Field::parse(name).unwrap())
    }

    fn is(name: &str, value: &str) -> Predicate {
        Predicate::Text(header(name), StringMatcher::exact(value, false))
    }

    fn found(tree: &Tree<u8>, values: &[&str]) -> Option<u8> {
        let mut head = Head::request(b"GET", b"http", b"h", b"/x?q=1&q=2");
        for value in values {
            assert!(head.append_bytes(b"a", value.as_bytes()));
        }
        tree.find(&Subject { request: Some(&head), ..Subject::default() }).copied()
    }

    #[test]
    fn the_first_of_a_list_that_leads_somewhere_counts() {
        let nothing = Tree::new(Branches::List(vec![(is("a", "no"), act(9))]), None);
        let list = vec![
            (is("a", "1"), ask(nothing)),
            (Predicate::All(vec![is("a", "1"), is(":path", "/x?q=1&q=2")]), act(1)),
            (Predicate::AnyOf(vec![is("a", "2"), is("a", "3,4")]), act(2)),
            (Predicate::Not(Box::new(is("a", "5"))), act(3)),
        ];
        let tree = Tree::new(Branches::List(list), Some(act(4)));
        for (values, action) in
            [(&["1"][..], 1), (&["2"], 2), (&["3", "4"], 2), (&["3"], 3), (&[], 3), (&["5"], 4)]
        {
            assert_eq!(found(&tree, values), Some(action), "{values:?}");
        }
    }

    #[test]
    fn maps_are_asked_by_the_whole_text_or_by_its_longest_start() {
        let map = HashMap::from([(Box::from(&b"1"[..]), act(1)), (Box::from(&b""[..]), act(2))]);
        let exact = Tree::new(Branches::Exact(header("a"), map), Some(act(0)));
        for (values, action) in [(&["1"][..], 1), (&[""], 2), (&["11"], 0), (&[], 0)] {
            assert_eq!(found(&exact, values), Some(action), "{values:?}");
        }
        let nothing = Tree::new(Branches::List(Vec::new()), None);
        let list = vec![
            (Box::from(&b"a"[..]), act(1)),
            (Box::from(&b"ab"[..]), act(2)),
            (Box::from(&b"abc"[..]), ask(nothing)),
        ];
        let prefix = Tree::new(Branches::Prefix(header("a"), list), None);
        for (values, action) in
            [(&["abx"][..], Some(2)), (&["abc"], Some(2)), (&["ac"], Some(1)), (&["b"], None)]
        {
            assert_eq!(found(&prefix, values), action, "{values:?}");
        }
        let query = Input::QueryParameter(b"q"[..].into());
        let map = HashMap::from([(Box::from(&b"1"[..]), act(1))]);
        assert_eq!(found(&Tree::new(Branches::Exact(query, map), None), &[]), Some(1));
    }

    #[test]
    fn the_longest_range_counts_and_exclusive_ones_stand_back() {
        let range = |text: &str, length| vec![Prefix::new(text.parse().unwrap(), length)];
        let ranges = |ranges, outcome, is_exclusive| Ranges { ranges, outcome, is_exclusive };
        let nothing = || ask(Tree::new(Branches::List(Vec::new()), None));
        let list = vec![
            ranges(range("10.0.0.0", 8), act(1), false),
            ranges(range("10.1.0.0", 16), act(2), true),
            ranges(range("10.1.1.0", 24), nothing(), false),
            ranges(range("10.2.0.0", 16), act(3), true),
        ];
        let tree = Tree::new(Branches::Ranges(Input::Ip(Whose::Remote), list), Some(act(0)));
        for (ip, action) in [("10.1.1.1", 1), ("10.1.2.1", 2), ("10.2.0.1", 3), ("11.0.0.1", 0)] {
            let remote = Address::Ip(format!("{ip}:80").parse().unwrap());
            let subject = Subject { remote: Some(&remote), ..Subject::default() };
            assert_eq!(tree.find(&subject), Some(&action), "{ip}");
        }
        assert_eq!(tree.find(&Subject::default()), Some(&0));
    }

    #[test]
    fn what_a_connection_has_is_text() {
        use crate::matcher::Transport;
        let (local, remote) = ("10.0.0.1:443", "10.0.0.2:5");
        let address = |text: &str| Address::Ip(text.parse().unwrap());
        let (local, remote) = (address(local), address(remote));
        let protocols = [Box::from(&b"h2"[..]), Box::from(&b"http/1.1"[..])];
        let subject = Subject {
            local: Some(&local),
            remote: Some(&remote),
            server_name: "a.test",
            transport: Some(Transport::Tls),
            protocols: &protocols,
            ..Subject::default()
        };
        let text = |input: Input, subject: &Subject<'_>| {
            input.read(subject, |text| text.map(|text| String::from_utf8_lossy(text).into_owned()))
        };
        for (input, wanted) in [
            (Input::Ip(Whose::Local), Some("10.0.0.1")),
            (Input::Port(Whose::Local), Some("443")),
            (Input::Port(Whose::Remote), Some("5")),
            (Input::Ip(Whose::Direct), None),
            (Input::SourceType, None),
            (Input::ServerName, Some("a.test")),
            (Input::Transport, Some("tls")),
            (Input::Protocols, Some("'h2','http/1.1'")),
            (Input::Uris, None),
        ] {
            assert_eq!(text(input.clone(), &subject).as_deref(), wanted, "{input:?}");
            let nothing = text(input.clone(), &Subject::default());
            assert_eq!(nothing, None, "{input:?}");
        }
        let same = Subject { remote: Some(&local), ..subject };
        assert_eq!(text(Input::SourceType, &same).as_deref(), Some("local"));
    }
}
