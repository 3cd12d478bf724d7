//! Routes by regular expressions: the first whose expression a path matches, found in one look for all of them.

use std::sync::Arc;

use regex_automata::{Anchored, Input, meta, util::syntax};

use super::route::{PathMatch, Route};

/// The expressions of a virtual host's routes as one.
#[derive(Debug, Default)]
pub struct Expressions(Option<All>);

#[derive(Debug)]
struct All {
    regex: meta::Regex,
    /// The place of the route of each expression.
    routes: Box<[usize]>,
}

/// What one path matches: looked for when the first route asks.
#[derive(Debug)]
pub(crate) struct Looked<'a> {
    all: &'a All,
    found: Option<Option<usize>>,
}

impl Expressions {
    /// Puts the expressions of routes together, unless they are few, or too large as one.
    #[must_use]
    pub fn of(routes: &[Arc<Route>]) -> Self {
        Self(together(routes))
    }

    #[inline]
    pub(crate) fn look(&self) -> Option<Looked<'_>> {
        Some(Looked { all: self.0.as_ref()?, found: None })
    }
}

fn together(routes: &[Arc<Route>]) -> Option<All> {
    let expression = |(place, route): (usize, &Arc<Route>)| match &route.path {
        PathMatch::Regex(regex) => Some((place, regex.as_str().to_owned())),
        PathMatch::Prefix(_)
        | PathMatch::Exact(_)
        | PathMatch::SeparatedPrefix(_)
        | PathMatch::Template(_)
        | PathMatch::Connect => None,
    };
    let all = routes.iter().enumerate().filter_map(expression).take(MOST);
    let (routes, patterns): (Vec<_>, Vec<_>) = all.unzip();
    if patterns.len() < LEAST {
        return None;
    }
    // As `regex::bytes` makes them one by one.
    let limit = meta::Config::new().utf8_empty(false).nfa_size_limit(Some(MOST_BYTES));
    let regex = meta::Builder::new()
        .configure(limit)
        .syntax(syntax::Config::new().utf8(false))
        .build_many(&patterns)
        .ok()?;
    Some(All { regex, routes: routes.into() })
}

impl Looked<'_> {
    /// Whether the route at this place may match the path by its expression; `None` where only its own one tells.
    #[inline]
    pub(crate) fn matches(&mut self, place: usize, path: &[u8]) -> Option<bool> {
        let All { regex, routes } = self.all;
        if routes.last().is_none_or(|last| place > *last) {
            return None;
        }
        let found = *self.found.get_or_insert_with(|| {
            let found = regex.search_half(&Input::new(path).anchored(Anchored::Yes))?;
            routes.get(found.pattern().as_usize()).copied()
        });
        match found {
            None => Some(false),
            Some(first) if place <= first => Some(place == first),
            Some(_) => None,
        }
    }
}

/// Of fewer each is asked by itself.
const LEAST: usize = 3;
/// What making them as one takes grows faster than their number.
const MOST: usize = 256;
const MOST_BYTES: usize = 1 << 20;
