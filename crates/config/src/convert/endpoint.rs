//! Endpoints of a cluster, from its `load_assignment`.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_engine::snapshot::cluster::{Discovery, DnsName, Endpoint, Health, HealthStatus};
use towpath_engine::snapshot::happy_eyeballs::{AddressKind, HappyEyeballs};
use towpath_engine::snapshot::health::EndpointCheck;
use towpath_engine::snapshot::socket_choice::SocketChoice;
use towpath_proto::Address;

use super::Converter;
use super::address::Written;
use super::istio::workload;
use super::metadata::filter_metadata;
use crate::error::Rank;
use crate::message::Message;

/// What a load assignment comes to.
#[derive(Default)]
pub(super) struct Endpoints {
    /// Endpoints with an address.
    pub(super) addresses: Vec<Endpoint>,
    /// Names to resolve.
    pub(super) names: Vec<DnsName>,
}

impl<'a> Converter<'a> {
    pub(super) fn endpoints(
        &mut self,
        cluster: &Message,
        assignment: Option<&Message>,
        discovery: Option<&Discovery>,
        choice: Option<&SocketChoice>,
    ) -> Option<Endpoints> {
        let mut endpoints = Endpoints::default();
        let Some(assignment) = assignment else {
            if let Some(Discovery::Dns(dns)) = discovery
                && dns.logical
            {
                self.report.problem(&cluster.at, SINGLE);
            }
            return Some(endpoints);
        };
        let localities: Vec<_> = assignment.messages("endpoints").collect();
        let count: usize =
            localities.iter().map(|locality| locality.items("lb_endpoints").len()).sum();
        if let Some(Discovery::Dns(dns)) = discovery
            && dns.logical
            && (localities.len() != 1 || count != 1)
        {
            self.report.problem(&assignment.at, SINGLE);
        }
        let locality_weights = locality_weights(&localities);
        let mut weights: HashMap<u32, u64> = HashMap::new();
        for locality in localities {
            let priority = locality.number32("priority").unwrap_or(0);
            let name = name_of(locality.message("locality"));
            let template = Endpoint {
                priority,
                locality: Arc::from(&*name),
                locality_weight: locality_weights.get(&(priority, name)).copied().unwrap_or(0),
                locality_metadata: match choice.is_some_and(SocketChoice::reads_state) {
                    true => filter_metadata(locality),
                    false => None,
                },
                ..Endpoint::new(Address::unspecified())
            };
            let messages: Vec<_> = locality.messages("lb_endpoints").collect();
            for message in messages {
                let socket = self.socket_of(cluster, choice, message, locality);
                let asked_by = self.check_socket_of(cluster, choice, locality);
                let template = Endpoint { socket, ..template.clone() };
                let before = endpoints.addresses.len();
                let template = self.with_check(message, asked_by, template);
                self.endpoint(message, &template, discovery?, &mut endpoints);
                if let Some(made) = endpoints.addresses.get_mut(before) {
                    made.addresses = self.all_addresses(cluster, message, &made.address);
                }
                *weights.entry(priority).or_default() +=
                    message.number("load_balancing_weight").unwrap_or(1);
            }
        }
        for (priority, weight) in weights {
            if weight > u64::from(u32::MAX) {
                self.report.problem(
                    &assignment.at,
                    format!("the sum of the weights of priority {priority} exceeds {}", u32::MAX),
                );
            }
        }
        Some(endpoints)
    }

    /// The endpoints of the cluster itself, or those that it asks for.
    pub(super) fn assignment<'m>(&mut self, cluster: &'m Message) -> Option<&'m Message>
    where
        'a: 'm,
    {
        let own = cluster.message("load_assignment");
        if cluster.has("cluster_type") || cluster.choice("type") != "EDS" {
            if let Some(config) = cluster.message("eds_cluster_config") {
                let text = "cannot be set in a cluster that is not EDS";
                self.report.problem(&config.at, text);
            }
            return own;
        }
        if let Some(own) = own {
            self.report.problem(&own.at, "cannot be set in an EDS cluster");
        }
        let stat_name = match cluster.text("alt_stat_name") {
            "" => cluster.text("name"),
            name => name,
        };
        let found = self.discovered_endpoints(cluster, stat_name)?;
        self.accept(found);
        Some(found)
    }

    /// How an endpoint is checked, if otherwise than others.
    fn with_check(
        &mut self,
        message: &Message,
        socket: Option<Option<u16>>,
        template: Endpoint,
    ) -> Endpoint {
        let config = message.message("endpoint").and_then(|it| it.message("health_check_config"));
        let mut check = EndpointCheck { socket, ..EndpointCheck::default() };
        if let Some(config) = config {
            // Above 65,535 the rules have refused it.
            let port = config.number("port_value").and_then(|port| u16::try_from(port).ok());
            check.disabled = config.flag("disable_active_health_check");
            check.port = port.filter(|port| *port != 0);
            check.hostname = Arc::from(config.text("hostname"));
            check.address = config.message("address").and_then(|address| self.address(address));
        }
        let differs = check != EndpointCheck::default();
        Endpoint { check: differs.then(|| Arc::new(check)), ..template }
    }

    /// The address of an endpoint and its `additional_addresses`, if it has some, in the order of their use.
    fn all_addresses(
        &mut self,
        cluster: &Message,
        message: &Message,
        first: &Address,
    ) -> Option<Arc<[Address]>> {
        let more: Vec<_> = message.message("endpoint")?.messages("additional_addresses").collect();
        let mut addresses = vec![first.clone()];
        for one in &more {
            let Some(address) = one.message("address") else {
                self.report.problem(&one.at, "needs an `address`");
                continue;
            };
            match self.written(address) {
                Some(Written::Address(address)) => addresses.push(address),
                Some(Written::Name(name, _)) => {
                    self.report.problem(&address.at, format!("malformed IP address: {name}"));
                }
                None => {}
            }
        }
        (addresses.len() > 1).then(|| happy_eyeballs(cluster).order(&addresses).into())
    }

    fn endpoint(
        &mut self,
        message: &Message,
        template: &Endpoint,
        discovery: &Discovery,
        endpoints: &mut Endpoints,
    ) {
        let (endpoint, address) = match message.message("endpoint") {
            Some(endpoint) => (endpoint, endpoint.message("address")),
            None => (message, None),
        };
        let Some(address) = address else {
            match discovery {
                // As in Envoy, which asks for an empty name.
                Discovery::Dns(_) => {
                    let text = "is no host without an `address`";
                    self.report.finding(&endpoint.at, Rank::Harmless, text.to_owned());
                }
                Discovery::Static
                | Discovery::OriginalDestination(_)
                | Discovery::Aggregate(_)
                | Discovery::Named(_)
                | Discovery::SubClusters(_) => {
                    self.report.problem(&endpoint.at, "an endpoint needs an `address`");
                }
            }
            return;
        };
        let hostname = endpoint.text("hostname");
        let mut template = template.clone();
        template.weight = message.number32("load_balancing_weight").unwrap_or(1);
        template.workload = workload(message);
        template.filter_metadata = filter_metadata(message);
        template.tlvs = self.host_tlvs(message);
        let status = message.choice("health_status");
        let known = HEALTH_STATUSES.iter().find(|(name, _)| *name == status);
        template.status = known.map(|(_, status)| *status).unwrap_or_default();
        template.health = match template.status {
            HealthStatus::Unhealthy | HealthStatus::Draining | HealthStatus::Timeout => {
                Health::Unhealthy
            }
            HealthStatus::Degraded => Health::Degraded,
            HealthStatus::Unknown | HealthStatus::Healthy => Health::Healthy,
        };
        match (self.written(address), discovery) {
            (Some(Written::Address(address)), Discovery::Static) => {
                endpoints.addresses.push(Endpoint {
                    address,
                    hostname: Arc::from(hostname),
                    ..template
                });
            }
            (Some(Written::Name(name, _)), Discovery::Static) => {
                self.report.problem(
                    &address.at,
                    format!(
                        "malformed IP address: {name}; names need a STRICT_DNS or \
                    LOGICAL_DNS cluster"
                    ),
                );
            }
            (Some(Written::Address(ip)), Discovery::Dns(_)) => match ip.ip() {
                // An address resolves to itself.
                Some(ip) => {
                    let shown =
                        if hostname.is_empty() { ip.ip().to_string() } else { hostname.to_owned() };
                    let template = Endpoint { hostname: Arc::from(shown), ..template };
                    endpoints.names.push(DnsName {
                        name: Arc::from(ip.ip().to_string()),
                        port: ip.port(),
                        template,
                    });
                }
                None => self.report.problem(&address.at, "a DNS cluster cannot have a unix socket"),
            },
            (Some(Written::Name(name, port)), Discovery::Dns(_)) => {
                let shown = if hostname.is_empty() { &name } else { hostname };
                let template = Endpoint { hostname: Arc::from(shown), ..template };
                endpoints.names.push(DnsName { name: Arc::from(name.as_str()), port, template });
            }
            // Reported: it has none.
            (
                Some(_),
                Discovery::OriginalDestination(_)
                | Discovery::Aggregate(_)
                | Discovery::Named(_)
                | Discovery::SubClusters(_),
            )
            | (None, _) => {}
        }
    }
}

/// In which order the addresses of a cluster's hosts are connected to.
pub(super) fn happy_eyeballs(cluster: &Message) -> HappyEyeballs {
    let options = cluster.message("upstream_connection_options");
    let Some(config) = options.and_then(|options| options.message("happy_eyeballs_config")) else {
        return HappyEyeballs::default();
    };
    HappyEyeballs {
        first: match config.choice("first_address_family_version").as_str() {
            "V4" => Some(AddressKind::V4),
            "V6" => Some(AddressKind::V6),
            "PIPE" => Some(AddressKind::Pipe),
            "INTERNAL" => Some(AddressKind::Internal),
            _ => None,
        },
        count: config.number32("first_address_family_count").unwrap_or(1),
    }
}

/// The weight of each locality that has one, by priority and name. Envoy takes the last that is written for it, and
/// none for endpoints without a `locality`.
fn locality_weights(localities: &[&Message]) -> HashMap<(u32, String), u32> {
    let weighted = localities.iter().filter_map(|message| {
        let name = name_of(Some(message.message("locality")?));
        let weight = message.number32("load_balancing_weight")?;
        Some(((message.number32("priority").unwrap_or(0), name), weight))
    });
    weighted.collect()
}

fn name_of(locality: Option<&Message>) -> String {
    let part = |name| locality.map_or("", |locality| locality.text(name));
    locality_name([part("region"), part("zone"), part("sub_zone")])
}

/// A locality as one text, of its region, zone and sub-zone.
pub(super) fn locality_name(parts: [&str; 3]) -> String {
    if parts.iter().all(|part| part.is_empty()) { String::new() } else { parts.join("/") }
}

const SINGLE: &str =
    "a LOGICAL_DNS cluster needs a single locality_lb_endpoint with a single lb_endpoint";

/// Envoy's `HealthStatus`, by its numbers.
pub(super) const HEALTH_STATUSES: [(&str, HealthStatus); 6] = [
    ("UNKNOWN", HealthStatus::Unknown),
    ("HEALTHY", HealthStatus::Healthy),
    ("UNHEALTHY", HealthStatus::Unhealthy),
    ("DRAINING", HealthStatus::Draining),
    ("TIMEOUT", HealthStatus::Timeout),
    ("DEGRADED", HealthStatus::Degraded),
];
