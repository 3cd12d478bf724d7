//! `/logging`: which levels are set, and setting them.

use std::fmt::Write;

use hyper::StatusCode;

use super::query::Query;
use super::reply::Reply;
use crate::log;
use crate::logger::{self, Component, Level};

/// Obeys the parameters and lists all levels.
pub(super) fn logging(query: &Query) -> Reply {
    match apply(query) {
        Ok(()) => Reply::text(active()),
        Err(why) => {
            Reply::refused(StatusCode::BAD_REQUEST, format!("error: {why}\n\n{USAGE}{}", active()))
        }
    }
}

fn apply(query: &Query) -> Result<(), String> {
    let mut pairs = query.pairs();
    let (Some((key, value)), more) = (pairs.next(), pairs.next()) else { return Ok(()) };
    if more.is_some() {
        return Err("invalid number of parameters".into());
    }
    match key {
        "level" if value.is_empty() => Ok(()),
        "level" => {
            let level = parse_level(value)?;
            logger::set_all(level);
            log!(Misc, Info, "change all log levels: level='{value}'");
            Ok(())
        }
        "paths" | "group" if value.is_empty() => Ok(()),
        "paths" => set(value.split(',')),
        "group" => set(std::iter::once(value)),
        name => set_pairs(&[(name, value)]),
    }
}

fn set<'a>(pairs: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let pairs = pairs
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            pair.split_once(':').ok_or_else(|| "empty logger name or empty logger level".to_owned())
        })
        .collect::<Result<Vec<_>, _>>()?;
    set_pairs(&pairs)
}

/// All or none.
fn set_pairs(pairs: &[(&str, &str)]) -> Result<(), String> {
    let mut levels = Vec::new();
    for (name, level) in pairs {
        let level = parse_level(level)?;
        let component = Component::parse(name).ok_or_else(|| "unknown logger name".to_owned())?;
        levels.push((component, level));
    }
    for (component, level) in levels {
        logger::set_level(component, level);
        log!(Admin, Info, "change log level: name='{}' level='{}'", component.name(), level.name());
    }
    Ok(())
}

fn parse_level(name: &str) -> Result<Level, String> {
    Level::parse(name).map_err(|_| "unknown logger level".to_owned())
}

fn active() -> String {
    let mut text = String::from("active loggers:\n");
    for component in Component::all() {
        let _ = writeln!(text, "  {}: {}", component.name(), logger::level(component).name());
    }
    text.push('\n');
    text
}

const USAGE: &str = "\
usage: /logging?<name>=<level> (change single level)
usage: /logging?paths=name1:level1,name2:level2,... (change multiple levels)
usage: /logging?level=<level> (change all levels)
usage: /logging?group=<group_name>:<level> (change group of loggers)
levels: trace debug info warning error critical off 
";
