//! What a recording keeps, said in one line: categories, levels and, for `tracing`'s events, targets.
//!
//! ```text
//! network,request          these categories, at level info and above
//! network,request@debug    the same at level debug
//! debug                    all categories at this level
//! info,network=trace       all at info, one category at another level
//! info,hyper=debug,h2=off  events of `tracing` by their target: the longest that fits decides, as in `EnvFilter`
//! ```

use std::fmt;

use crate::category::{Category, Level};

/// What is kept, by level and category; and by target, for those that name one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Directives {
    /// For each level, the categories.
    pub(crate) masks: [u64; 5],
    /// Targets with the level that is kept of them, the longest first.
    pub(crate) targets: Vec<(Box<str>, Option<Level>)>,
}

impl Directives {
    /// These categories at `level` and above, whatever the target.
    pub(crate) fn of(categories: Category, level: Level) -> Self {
        let mut directives = Self::default();
        directives.set(categories, Some(level));
        directives
    }

    /// The same levels, of these categories alone.
    pub(crate) fn of_categories(mut self, categories: Category) -> Self {
        for mask in &mut self.masks {
            *mask = if *mask == 0 { 0 } else { categories.bits() };
        }
        self
    }

    /// The same categories, at this level.
    pub(crate) fn at_level(self, level: Level) -> Self {
        let all = self.masks.iter().fold(0, |all, mask| all | mask);
        Self { targets: self.targets, ..Self::of(Category::from_bits(all), level) }
    }

    /// Reads a line of them.
    pub(crate) fn parse(text: &str) -> Result<Self, UnknownDirective> {
        let (text, level) = match text.rsplit_once('@') {
            Some((text, level)) => (text, level_or_off(level).ok_or_else(|| unknown(level))?),
            None => (text, Some(Level::Info)),
        };
        let words = || text.split([',', ' ']).filter(|word| !word.is_empty());
        let mut directives = Self::default();
        for word in words().filter(|word| !word.contains('=')) {
            if let Some(level) = level_or_off(word) {
                directives.set(Category::ALL, level);
            } else if word.contains("::") {
                directives.target(word, Some(Level::Trace));
            } else {
                directives.set(Category::parse(word).map_err(|_| unknown(word))?, level);
            }
        }
        for word in words() {
            let Some((what, level)) = word.split_once('=') else { continue };
            let level = level_or_off(level).ok_or_else(|| unknown(word))?;
            if what.is_empty() || what.contains(['[', ']', '{', '}', '=']) {
                return Err(unknown(word));
            }
            match Category::parse(what) {
                Ok(category) => directives.set(category, level),
                Err(_) => directives.target(what, level),
            }
        }
        Ok(directives)
    }

    /// Whether events of this target and level are kept; `None` when no directive names the target.
    #[cfg(feature = "tracing")]
    pub(crate) fn of_target(&self, target: &str, level: Level) -> Option<bool> {
        let named = self.targets.iter().find(|(prefix, _)| target.starts_with(&**prefix))?;
        Some(named.1.is_some_and(|most| level <= most))
    }

    fn set(&mut self, categories: Category, most: Option<Level>) {
        for (level, mask) in Level::ALL.into_iter().zip(&mut self.masks) {
            let wanted = most.is_some_and(|most| level <= most);
            *mask = *mask & !categories.bits() | if wanted { categories.bits() } else { 0 };
        }
    }

    fn target(&mut self, target: &str, level: Option<Level>) {
        self.targets.retain(|(known, _)| **known != *target);
        self.targets.push((target.into(), level));
        self.targets.sort_by_key(|(target, _)| std::cmp::Reverse(target.len()));
    }
}

/// A level, or `off`; `None` for what is neither.
fn level_or_off(word: &str) -> Option<Option<Level>> {
    let word = word.to_ascii_lowercase();
    if word == "off" { Some(None) } else { word.parse().ok().map(Some) }
}

fn unknown(word: &str) -> UnknownDirective {
    UnknownDirective(word.chars().take(64).collect())
}

/// A word that is no category, level, `target=level` or `category=level`. Fields and spans (`[span{field}]`) are not
/// understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDirective(String);

impl fmt::Display for UnknownDirective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no category, level or target=level", self.0)
    }
}

impl std::error::Error for UnknownDirective {}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str, category: Category) -> Option<Level> {
        let directives = Directives::parse(text).unwrap();
        let wanted = |level: &Level| directives.masks[*level as usize] & category.bits() != 0;
        Level::ALL.into_iter().rev().find(wanted)
    }

    #[test]
    fn categories_and_levels() {
        let (network, app) = (Category::NETWORK, Category::APP);
        for (text, of_network, of_app) in [
            ("all", Some(Level::Info), Some(Level::Info)),
            ("network", Some(Level::Info), None),
            ("network@debug", Some(Level::Debug), None),
            ("all@TRACE", Some(Level::Trace), Some(Level::Trace)),
            ("debug", Some(Level::Debug), Some(Level::Debug)),
            ("network=trace,info", Some(Level::Trace), Some(Level::Info)),
            ("info,network=off", None, Some(Level::Info)),
            ("off", None, None),
            ("", None, None),
            ("hyper=debug", None, None),
            ("app network=warn", Some(Level::Warn), Some(Level::Info)),
        ] {
            assert_eq!((kept(text, network), kept(text, app)), (of_network, of_app), "{text}");
        }
    }

    #[test]
    #[cfg(feature = "tracing")]
    fn the_longest_target_decides() {
        let directives = Directives::parse("info,hyper=debug,hyper::proto=off,my::own").unwrap();
        for (target, level, kept) in [
            ("hyper", Level::Debug, Some(true)),
            ("hyper::client", Level::Trace, Some(false)),
            ("hyper::proto::h1", Level::Error, Some(false)),
            ("my::own::part", Level::Trace, Some(true)),
            ("other", Level::Error, None),
        ] {
            assert_eq!(directives.of_target(target, level), kept, "{target} {level:?}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, word) in [
            ("app,nosuch", "nosuch"),
            ("info,hyper=loud", "hyper=loud"),
            ("[span{field=1}]=debug", "[span{field=1}]=debug"),
            ("=debug", "=debug"),
            ("app@loud", "loud"),
        ] {
            assert_eq!(Directives::parse(text), Err(UnknownDirective(word.to_owned())), "{text}");
        }
    }
}
