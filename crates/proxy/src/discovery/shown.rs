//! What `/config_dump` shows of resources: the version that serves, the one that waits, and the last that was not
//! taken.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use towpath_config::{Given, Kind, Printer};
use towpath_xds::Rejected;

use super::{Ask, Server};
use crate::logger::format::Civil;

/// What is shown of a resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) active: Option<State>,
    pub(crate) warming: Option<State>,
    failure: Option<Failure>,
}

/// A version of a resource.
#[derive(Clone, Debug)]
pub(crate) struct State {
    version: Arc<str>,
    content: Content,
    updated: SystemTime,
}

/// What a version of a resource says.
#[derive(Clone, Debug)]
enum Content {
    /// As it came, which takes a fraction of what a text takes.
    Body(Kind, Bytes),
    /// Nothing came of this name.
    Name(Arc<str>),
}

#[derive(Clone, Debug)]
struct Failure {
    at: SystemTime,
    details: String,
    version: String,
}

/// What is shown of all resources.
#[derive(Debug, Default)]
pub(crate) struct Dump {
    resources: BTreeMap<(Kind, String), Arc<Shown>>,
    /// The last version of all that was taken.
    versions: HashMap<Kind, String>,
    /// What makes JSON of them.
    printer: Option<Printer>,
}

impl Dump {
    pub(super) fn set(&mut self, key: (Kind, String), shown: Option<Arc<Shown>>) {
        match shown {
            Some(shown) => drop(self.resources.insert(key, shown)),
            None => drop(self.resources.remove(&key)),
        }
    }

    pub(super) fn set_printer(&mut self, printer: Printer) {
        self.printer = Some(printer);
    }

    pub(super) fn set_version(&mut self, kind: Kind, version: String) {
        self.versions.insert(kind, version);
    }

    /// The last version of all resources of a kind.
    pub(crate) fn version(&self, kind: Kind) -> Option<&str> {
        self.versions.get(&kind).map(String::as_str)
    }

    /// The clusters that serve, as JSON.
    pub(crate) fn clusters(&self) -> impl Iterator<Item = Value> {
        let active = self.of(Kind::Cluster).filter_map(|(_, shown)| shown.active.as_ref());
        active.filter_map(|state| state.json(self))
    }

    /// The resources of a kind, by name.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = (&str, &Shown)> {
        let all = self.resources.iter().filter(move |((of, _), _)| *of == kind);
        all.map(|((_, name), shown)| (name.as_str(), &**shown))
    }
}

impl Shown {
    /// Envoy's `UpdateFailureState`, if the last update was not taken.
    pub(crate) fn error_state(&self) -> Option<Value> {
        let Failure { at, details, version } = self.failure.as_ref()?;
        Some(json!({
            "last_update_attempt": Civil::of(*at).rfc3339_millis(),
            "details": details,
            "version_info": version,
        }))
    }
}

impl State {
    /// The resource with its version and time, as `field` of what the dump lists.
    pub(crate) fn dump(&self, field: &str, type_name: &str, of: &Dump) -> Map<String, Value> {
        let mut resource = Map::from_iter([(
            "@type".to_owned(),
            json!(format!("type.googleapis.com/{type_name}")),
        )]);
        if let Some(Value::Object(body)) = self.json(of) {
            resource.extend(body);
        }
        // Only secrets come without one.
        let version = Some(("version_info".to_owned(), json!(&*self.version)));
        let version = version.filter(|_| field != "secret" || !self.version.is_empty());
        Map::from_iter(version.into_iter().chain([
            (field.to_owned(), resource.into()),
            ("last_updated".to_owned(), json!(Civil::of(self.updated).rfc3339_millis())),
        ]))
    }

    fn json(&self, of: &Dump) -> Option<Value> {
        match &self.content {
            Content::Body(kind, body) => of.printer.as_ref()?.json(*kind, body),
            Content::Name(name) => Some(json!({ "name": &**name })),
        }
    }
}

impl Server {
    /// Shows what became of an update.
    pub(super) fn show(
        &mut self,
        kind: Kind,
        versions: &HashMap<String, String>,
        removed: &[String],
        rejected: &[Rejected],
        version: &str,
    ) {
        if matches!(kind, Kind::Cluster | Kind::Listener | Kind::Extension) {
            for name in removed {
                self.unshow((kind, name.clone()));
            }
        }
        if rejected.is_empty() && !version.is_empty() {
            self.ask(Ask::Version(kind, version.to_owned()));
        }
        if matches!(kind, Kind::Cluster | Kind::Listener) {
            self.unshow_failures(kind, versions);
        }
        let bad: HashMap<&str, &Rejected> =
            rejected.iter().rev().map(|it| (it.name.as_str(), it)).collect();
        for (name, version) in versions {
            let key = (kind, name.clone());
            let mut shown = self.shown.get(&key).map(|it| Shown::clone(it)).unwrap_or_default();
            if let Some(bad) = bad.get(name.as_str()) {
                let (details, version) = (bad.reason.clone(), version.clone());
                shown.failure = Some(Failure { at: SystemTime::now(), details, version });
            } else if let Some(Given { body, .. }) = self.resources.given(kind, name) {
                let (version, content) = (Arc::from(&**version), Content::Body(kind, body));
                let state = State { version, content, updated: SystemTime::now() };
                // Settled below.
                shown.warming = Some(state);
                shown.failure = None;
            } else {
                continue;
            }
            self.put(key, shown);
        }
        self.settle();
    }

    /// A listener could not be opened.
    pub(super) fn show_failure(&mut self, listener: &str, reason: &str) {
        let key = (Kind::Listener, listener.to_owned());
        let mut shown = self.shown.get(&key).map(|it| Shown::clone(it)).unwrap_or_default();
        let failed = shown.active.take().or_else(|| shown.warming.take());
        let version = failed.map(|state| state.version.to_string()).unwrap_or_default();
        shown.failure =
            Some(Failure { at: SystemTime::now(), details: reason.to_owned(), version });
        self.put(key, shown);
    }

    /// Secrets that are asked for and not there are shown as Envoy shows them.
    pub(super) fn show_awaited(&mut self) {
        let secrets = self.needs.iter().filter(|need| need.kind == Kind::Secret);
        let keys = secrets.map(|need| (Kind::Secret, need.name.to_string()));
        let new: Vec<_> = keys.filter(|key| !self.shown.contains_key(key)).collect();
        for key in new {
            let (version, content) =
                (Arc::from("uninitialized"), Content::Name(Arc::from(&*key.1)));
            let state = State { version, content, updated: SystemTime::now() };
            self.put(key, Shown { warming: Some(state), ..Shown::default() });
        }
    }

    /// What waits for nothing is active.
    pub(super) fn settle(&mut self) {
        let warm = self
            .unsettled
            .iter()
            .filter(|key| !self.warming.contains(*key))
            .filter(|(kind, name)| *kind != Kind::Secret || self.resources.has(*kind, name));
        let warm = warm.filter_map(|key| Some((key.clone(), Shown::clone(self.shown.get(key)?))));
        let warm: Vec<_> = warm.collect();
        for (key, mut shown) in warm {
            shown.active = shown.warming.take();
            self.put(key, shown);
        }
    }

    /// What never was anything but a failure is shown until the next update, as Envoy does.
    fn unshow_failures(&mut self, kind: Kind, versions: &HashMap<String, String>) {
        let is_nothing = |shown: &Shown| shown.active.is_none() && shown.warming.is_none();
        let gone = self.shown.iter().filter(|((of, name), shown)| {
            *of == kind && is_nothing(shown) && !versions.contains_key(name)
        });
        let gone: Vec<_> = gone.map(|(key, _)| key.clone()).collect();
        gone.into_iter().for_each(|key| self.unshow(key));
    }

    /// What was asked for by name and is not any longer is not shown, whether it ever came or not.
    pub(super) fn unshow_unneeded(&mut self) {
        let needed: HashSet<(Kind, &str)> =
            self.needs.iter().map(|need| (need.kind, &*need.name)).collect();
        let is_gone = |(kind, name): &&(Kind, String)| {
            kind.is_asked_for_by_name() && !needed.contains(&(*kind, name.as_str()))
        };
        let gone: Vec<_> = self.shown.keys().filter(is_gone).cloned().collect();
        gone.into_iter().for_each(|key| self.unshow(key));
    }

    pub(super) fn unshow(&mut self, key: (Kind, String)) {
        self.shown.remove(&key);
        self.unsettled.remove(&key);
        self.ask(Ask::Shown(key, None));
    }

    fn put(&mut self, key: (Kind, String), shown: Shown) {
        if shown.warming.is_some() {
            self.unsettled.insert(key.clone());
        } else {
            self.unsettled.remove(&key);
        }
        let shown = Arc::new(shown);
        self.shown.insert(key.clone(), Arc::clone(&shown));
        self.ask(Ask::Shown(key, Some(shown)));
    }
}
