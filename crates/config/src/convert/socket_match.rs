//! `transport_socket_matches`: endpoints that are spoken to in another way than their cluster's others, chosen by their
//! metadata, or by `transport_socket_matcher`.

use std::collections::HashSet;
use std::sync::Arc;

use towpath_engine::matcher::{HostSubject, Input};
use towpath_engine::snapshot::socket_choice::SocketChoice;
use towpath_engine::snapshot::{Http2, UpstreamTls};
use towpath_engine::stream_info::{FilterMetadata, Struct, Value as Held};

use super::Converter;
use super::matcher_tree::{About, Place};
use super::metadata::{filter_metadata, structure};
use crate::error::Rank;
use crate::message::{Message, Value};
use crate::tree::{Node, Value as Tree};

/// The metadata that matches ask for.
const LABELS: &str = "envoy.transport_socket_match";
const NAME_ACTION: &str =
    "envoy.extensions.matching.common_inputs.transport_socket.v3.TransportSocketNameAction";

impl Converter<'_> {
    /// The sockets of a cluster's matches, in order; `None` is plain text.
    pub(super) fn sockets(
        &mut self,
        cluster: &Message,
        http2: Option<&Http2>,
    ) -> Vec<Option<UpstreamTls>> {
        let matches: Vec<_> = cluster.messages("transport_socket_matches").collect();
        if matches.len() > usize::from(u16::MAX) {
            let text = format!("at most {} sockets can be told apart", u16::MAX);
            self.report.problem(cluster.at("transport_socket_matches"), text);
        }
        matches.into_iter().map(|one| self.socket(one, http2)).collect()
    }

    fn socket(&mut self, one: &Message, http2: Option<&Http2>) -> Option<UpstreamTls> {
        let Some(socket) = one.message("transport_socket") else {
            self.report.problem(&one.at, "needs a `transport_socket`");
            return None;
        };
        self.upstream_socket(socket, http2)
    }

    /// What chooses among a cluster's sockets by their names.
    pub(super) fn socket_choice(&mut self, cluster: &Message) -> Option<SocketChoice> {
        let matcher = cluster.message("transport_socket_matcher")?;
        let matches: Vec<_> = cluster.messages("transport_socket_matches").collect();
        let mut names = HashSet::new();
        for one in &matches {
            let name = one.text("name");
            if !names.insert(name) {
                let text = format!("duplicate transport socket name '{name}'");
                self.report.problem(one.at("name"), text);
            }
        }
        let place = Place {
            name: "a matcher of transport sockets",
            allows: Input::is_of_host,
            about: About::Host,
        };
        let tree = self.matcher_tree(matcher, place, &[NAME_ACTION], &mut |converter, action| {
            let name = action.text("name");
            let found = matches.iter().position(|one| one.text("name") == name);
            if found.is_none() {
                let text = format!("there is no transport socket '{name}': the cluster's own is taken, as in Envoy");
                converter.report.finding(action.at("name"), Rank::Harmless, text);
            }
            Some(found.and_then(|at| u16::try_from(at).ok()))
        })?;
        Some(SocketChoice::new(tree))
    }

    /// Which of a cluster's sockets is for a host of which nothing is said.
    pub(super) fn bare_socket(cluster: &Message, choice: Option<&SocketChoice>) -> Option<u16> {
        match choice {
            Some(choice) => choice.find(HostSubject::default()),
            None => first_fit(cluster, [None, None]),
        }
    }

    /// Which of a cluster's sockets is for an endpoint: the first that its own metadata fit, else its locality's.
    pub(super) fn socket_of(
        &mut self,
        cluster: &Message,
        choice: Option<&SocketChoice>,
        endpoint: &Message,
        locality: &Message,
    ) -> Option<u16> {
        if let Some(choice) = choice {
            return chosen(choice, &filter_metadata(endpoint), locality);
        }
        let has_matches = cluster.has("transport_socket_matches");
        let labels = [endpoint, locality].map(|holder| holder.message("metadata").and_then(labels));
        if locality.has("metadata") && !(labels[1].is_some() && has_matches) {
            let text = "of a locality's metadata only transport_socket_matches are chosen";
            self.report.finding(locality.at("metadata"), Rank::Harmless, text);
        }
        first_fit(cluster, labels)
    }

    /// By which of them an endpoint is checked, where the check has criteria of its own: these stand in the place of
    /// its metadata.
    pub(super) fn check_socket_of(
        &mut self,
        cluster: &Message,
        choice: Option<&SocketChoice>,
        locality: &Message,
    ) -> Option<Option<u16>> {
        let check = cluster.messages("health_checks").next()?;
        let written = check.get("transport_socket_match_criteria").map(|it| &it.value);
        let Some(Value::Json(criteria)) = written else { return None };
        if let Some(choice) = choice {
            let criteria = Held::Struct(structure(check, "transport_socket_match_criteria"));
            let metadata = Struct::from([(LABELS.into(), criteria)]);
            return Some(chosen(choice, &Some(Arc::new(metadata)), locality));
        }
        let of_locality = locality.message("metadata").and_then(labels);
        Some(first_fit(cluster, [Some(criteria), of_locality]))
    }
}

/// What a matcher chooses for an endpoint.
fn chosen(choice: &SocketChoice, endpoint: &FilterMetadata, locality: &Message) -> Option<u16> {
    choice.find(HostSubject {
        endpoint: endpoint.as_deref(),
        locality: filter_metadata(locality).as_deref(),
        shared: &[],
    })
}

/// The first of a cluster's sockets that the first labels fit, else that which the others fit.
fn first_fit(cluster: &Message, labels: [Option<&Node>; 2]) -> Option<u16> {
    let matches: Vec<_> = cluster.messages("transport_socket_matches").collect();
    let found = labels.into_iter().find_map(|labels| {
        matches.iter().position(|one| match one.get("match").map(|field| &field.value) {
            Some(Value::Json(wanted)) => fit(wanted, labels),
            _ => true,
        })
    });
    found.and_then(|at| u16::try_from(at).ok())
}

fn labels(metadata: &Message) -> Option<&Node> {
    let entries = metadata.entries("filter_metadata");
    let (_, labels) = entries.iter().find(|(name, _)| name == LABELS)?;
    match &labels.value {
        Value::Json(labels) => Some(labels),
        _ => None,
    }
}

/// Whether labels have all that is wanted of them; nothing is wanted by an empty match.
fn fit(wanted: &Node, labels: Option<&Node>) -> bool {
    let Tree::Map(wanted) = &wanted.value else { return true };
    wanted.iter().all(|(key, wanted)| {
        labels.and_then(|labels| labels.get(&key.name)).is_some_and(|label| equal(label, wanted))
    })
}

fn equal(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Tree::Number(one), Tree::Number(other)) => one.parse::<f64>() == other.parse::<f64>(),
        (Tree::List(these), Tree::List(those)) => {
            these.len() == those.len()
                && these.iter().zip(those).all(|(this, that)| equal(this, that))
        }
        (Tree::Map(these), Tree::Map(those)) => {
            these.len() == those.len()
                && these
                    .iter()
                    .all(|(key, this)| other.get(&key.name).is_some_and(|that| equal(this, that)))
        }
        (one, other) => one == other,
    }
}
