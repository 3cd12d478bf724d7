//! Load balancing policies, in both their forms.

use std::sync::Arc;
use std::time::Duration;

use towpath_engine::load_report::LoadReports;
use towpath_engine::snapshot::cluster::{
    Balancer, Balancing, Discovery, DropOverload, HashFunction, HealthStatuses, SlowStart, Zones,
};
use towpath_engine::snapshot::override_host::OverrideHosts;
use towpath_engine::snapshot::subset::Subsets;

use super::Converter;
use super::endpoint::HEALTH_STATUSES;
use super::extension::LOAD_BALANCER;
use super::runtime::fraction;
use crate::message::{Any, Message, Value};

const ROUND_ROBIN: &str = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin";
const LEAST_REQUEST: &str =
    "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest";
const RING_HASH: &str = "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash";
const MAGLEV: &str = "envoy.extensions.load_balancing_policies.maglev.v3.Maglev";
const SUBSET: &str = "envoy.extensions.load_balancing_policies.subset.v3.Subset";
const CLIENT_SIDE: &str = concat!(
    "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.",
    "ClientSideWeightedRoundRobin"
);
const WRR_LOCALITY: &str = "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality";
const OVERRIDE_HOST: &str =
    "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost";
const CLUSTER_PROVIDED: &str =
    "envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided";
/// A message of Envoy's API that no release of it implements.
const RANDOM_SUBSETTING: &str =
    "envoy.extensions.load_balancing_policies.random_subsetting.v3.RandomSubsetting";
const RANDOM: &str = "envoy.extensions.load_balancing_policies.random.v3.Random";

impl Converter<'_> {
    /// How hosts are chosen; `None` without a report where the cluster's type, which is to know, is not there.
    pub(super) fn balancing(
        &mut self,
        bootstrap: &Message,
        cluster: &Message,
        assignment: Option<&Message>,
        discovery: Option<&Discovery>,
    ) -> Option<Balanced> {
        let provides = match discovery? {
            Discovery::OriginalDestination(_)
            | Discovery::Aggregate(_)
            | Discovery::Named(_)
            | Discovery::SubClusters(_) => true,
            Discovery::Static | Discovery::Dns(_) => false,
        };
        let provided = self.is_provided(cluster, discovery);
        match (provides, provided) {
            (true, true) => {
                let panic_threshold = self.panic_threshold(cluster);
                if let Some(config) = cluster.message("lb_subset_config")
                    && config.messages("subset_selectors").next().is_some()
                {
                    let text = match cluster.has("load_balancing_policy") {
                        true => NOT_BESIDE,
                        false => "LB policy CLUSTER_PROVIDED cannot be combined with lb_subset_config",
                    };
                    self.report.problem(&config.at, text);
                }
                let balancing = Balancing {
                    panic_threshold,
                    overridable: overridable(cluster),
                    ..Balancing::new(Balancer::RoundRobin)
                };
                return Some(Balanced::new(balancing));
            }
            (true, false) => self.report.problem(
                cluster.at("lb_policy"),
                "a cluster of this type needs `lb_policy: CLUSTER_PROVIDED`",
            ),
            (false, true) => self.report.problem(
                cluster.at("lb_policy"),
                "CLUSTER_PROVIDED is for ORIGINAL_DST clusters, aggregates and dynamic forward proxies",
            ),
            (false, false) => {}
        }
        if provides || provided {
            return None;
        }
        let common = cluster.message("common_lb_config");
        let Chosen {
            policy,
            localities,
            weighs,
            slow_start,
            subsets,
            override_hosts,
            load_reports,
        } = match cluster.message("load_balancing_policy") {
            Some(policy) => {
                for field in ["zone_aware_lb_config", "locality_weighted_lb_config"] {
                    if let Some(common) = common.filter(|common| common.has(field)) {
                        self.report.problem(common.at(field), TWO_PLACES);
                    }
                }
                if let Some(config) = cluster.message("lb_subset_config") {
                    self.report.problem(&config.at, NOT_BESIDE);
                }
                self.typed_balancer(policy, &[SUBSET, OVERRIDE_HOST, CLIENT_SIDE, WRR_LOCALITY])?
            }
            None => {
                let policy = self.named_balancer(cluster, cluster)?;
                let slow_start = self.named_slow_start(cluster, policy);
                let subsets = self.lb_subsets(cluster);
                Chosen { localities: common, slow_start, subsets, ..Chosen::new(policy) }
            }
        };
        let health = assignment.and_then(|assignment| assignment.message("policy"));
        let factor = health.and_then(|policy| policy.number32("overprovisioning_factor"));
        if policy.is_by_hostname() && matches!(discovery, Some(Discovery::Static)) {
            let text = "cannot use hostname for consistent hashing in a cluster of type STATIC";
            self.report.problem(cluster.at("lb_policy"), text);
        }
        let aware = localities.and_then(|config| config.message("zone_aware_lb_config"));
        let zones = self.zones(bootstrap, cluster, policy, localities).map(Arc::new);
        let balancing = Balancing {
            policy,
            panic_threshold: self.panic_threshold(cluster),
            fails_in_panic: aware.is_some_and(|aware| aware.flag("fail_traffic_on_panic")),
            overprovisioning: factor.unwrap_or(140),
            weighs_health: health.is_some_and(|policy| policy.flag("weighted_priority_health")),
            weighs_localities: weighs
                || localities.is_some_and(|config| config.has("locality_weighted_lb_config")),
            overridable: overridable(cluster),
            slow_start,
        };
        let (subsets, override_hosts) = (subsets.map(Arc::new), override_hosts.map(Arc::new));
        let load_reports = load_reports.map(Arc::new);
        Some(Balanced { balancing, subsets, override_hosts, load_reports, zones })
    }

    /// How hosts of one name each are chosen, by the policy that `by` says.
    pub(super) fn balancing_of_names(
        &mut self,
        cluster: &Message,
        by: &Message,
    ) -> Option<Balancing> {
        let policy = self.named_balancer(cluster, by)?;
        let slow_start = self.named_slow_start(cluster, policy);
        let common = cluster.message("common_lb_config");
        Some(Balancing {
            panic_threshold: self.panic_threshold(cluster),
            weighs_localities: common.is_some_and(|it| it.has("locality_weighted_lb_config")),
            overridable: overridable(cluster),
            slow_start,
            ..Balancing::new(policy)
        })
    }

    fn named_slow_start(&mut self, cluster: &Message, policy: Balancer) -> Option<SlowStart> {
        let config = match policy {
            Balancer::RoundRobin => cluster.message("round_robin_lb_config"),
            Balancer::LeastRequest { .. } => cluster.message("least_request_lb_config"),
            Balancer::Random | Balancer::RingHash { .. } | Balancer::Maglev { .. } => None,
        };
        config.and_then(|config| self.slow_start(config))
    }

    /// Whether the cluster itself is to choose its hosts: as its `load_balancing_policy` says, else its `lb_policy`. Of
    /// clusters that go where clients were going Envoy asks for the older field in any case.
    fn is_provided(&mut self, cluster: &Message, discovery: Option<&Discovery>) -> bool {
        let named = cluster.choice("lb_policy") == "CLUSTER_PROVIDED";
        let Some(policy) = cluster.message("load_balancing_policy") else { return named };
        let first = policy.messages("policies").next();
        let Some(extension) = first.and_then(|it| it.message("typed_extension_config")) else {
            return false;
        };
        let is_typed = |any: &Any| any.name == CLUSTER_PROVIDED;
        if !extension.any("typed_config").is_some_and(|(any, _)| is_typed(any)) {
            return false;
        }
        let goes_on = matches!(discovery, Some(Discovery::OriginalDestination(_)));
        self.extension(extension, LOAD_BALANCER, &[CLUSTER_PROVIDED]).is_some()
            && (named || !goes_on)
    }

    /// Which share of its requests a cluster drops. Envoy knows one category.
    pub(super) fn drops(&mut self, assignment: &Message) -> Option<Box<DropOverload>> {
        let policy = assignment.message("policy")?;
        let drops: Vec<_> = policy.messages("drop_overloads").collect();
        let first = drops.first()?;
        if drops.len() > 1 {
            let text = format!("has {} categories; there may be one", drops.len());
            self.report.problem(policy.at("drop_overloads"), text);
        }
        let share = first.message("drop_percentage").map(fraction);
        let (share, whole) = share.map_or((0, 100), |it| (it.numerator, it.denominator));
        if share > whole {
            let text = format!("{share} of {whole} are more than all");
            self.report.problem(first.at("drop_percentage"), text);
        }
        let most = self.runtime.number("load_balancing_policy.drop_overload_limit").unwrap_or(100);
        let most = u32::try_from(most.min(100)).unwrap_or(100) * (DropOverload::ALL / 100);
        let parts = share.min(whole) * (DropOverload::ALL / whole);
        Some(Box::new(DropOverload {
            parts: parts.min(most),
            category: Arc::from(first.text("category")),
        }))
    }

    /// How hosts begin, where round robin's or least request's configuration says so.
    fn slow_start(&mut self, config: &Message) -> Option<SlowStart> {
        let config = config.message("slow_start_config")?;
        let window = config.duration("slow_start_window").unwrap_or_default();
        let window = Duration::from_millis(u64::try_from(window.as_millis()).unwrap_or(u64::MAX));
        let aggression = config.message("aggression").map_or(1.0, |it| self.runtime_float(it));
        let least = config.message("min_weight_percent");
        let least = least.map_or(10.0, |percent| percent.float("value").unwrap_or(0.0));
        // Envoy goes by 1 where the runtime has what cannot be.
        let aggression = if aggression > 0.0 { aggression } else { 1.0 };
        let slow_start = SlowStart { window, aggression, least: least / 100.0 };
        (!window.is_zero()).then_some(slow_start)
    }

    fn panic_threshold(&mut self, message: &Message) -> u8 {
        let common = message.message("common_lb_config");
        let threshold = common.and_then(|common| common.message("healthy_panic_threshold"));
        let percent = threshold
            .map_or(50.0, |percent| percent.float("value").unwrap_or(0.0))
            .clamp(0.0, 100.0);
        let percent = percent.round() as u8;
        let key = self.runtime.number("upstream.healthy_panic_threshold");
        key.and_then(|key| u8::try_from(key.min(100)).ok()).unwrap_or(percent)
    }

    /// The policy that `by` names, as the cluster configures it.
    fn named_balancer(&mut self, cluster: &Message, by: &Message) -> Option<Balancer> {
        let at = by.at("lb_policy");
        match by.choice("lb_policy").as_str() {
            "ROUND_ROBIN" => Some(Balancer::RoundRobin),
            "LEAST_REQUEST" => Some(match cluster.message("least_request_lb_config") {
                Some(config) => self.least_request(config),
                None => DEFAULT_LEAST_REQUEST,
            }),
            "RANDOM" => Some(Balancer::Random),
            "RING_HASH" => self.ring_hash(cluster.message("ring_hash_lb_config"), hashing(cluster)),
            "MAGLEV" => self.maglev(cluster.message("maglev_lb_config"), hashing(cluster)),
            "LOAD_BALANCING_POLICY_CONFIG" => {
                self.report
                    .problem(at, "LOAD_BALANCING_POLICY_CONFIG needs a `load_balancing_policy`");
                None
            }
            other => {
                self.report.unsupported(
                    at,
                    format!(
                        "{other} is not there, only ROUND_ROBIN, LEAST_REQUEST, RANDOM, RING_HASH and MAGLEV"
                    ),
                );
                None
            }
        }
    }

    /// The first policy of the list, as Envoy knows all that can be written in it, and what it says of localities.
    ///
    /// `also` are those that are known beside the plain ones.
    fn typed_balancer<'m>(&mut self, policy: &'m Message, also: &[&str]) -> Option<Chosen<'m>> {
        let Some(first) = policy.messages("policies").next() else {
            self.report.problem(&policy.at, "needs at least one policy");
            return None;
        };
        let extension = first.message("typed_extension_config")?;
        if let Some((any, at)) = extension.any("typed_config")
            && any.name == RANDOM_SUBSETTING
        {
            let name = extension.text("name");
            let text = format!("load balancing policy `{name}` is not there: {NOT_IN_ENVOY}");
            self.report.problem(at, text);
            return None;
        }
        let known = [&[ROUND_ROBIN, LEAST_REQUEST, RANDOM, RING_HASH, MAGLEV], also].concat();
        let (config, _) = self.extension(extension, LOAD_BALANCER, &known)?;
        if config.descriptor.full_name() == SUBSET {
            let allows_more_keys = config.flag("allow_redundant_keys");
            let subsets = Some(Subsets { allows_more_keys, ..self.subsets(config) });
            let chosen = self.typed_balancer(config.message("subset_lb_policy")?, &[])?;
            return Some(Chosen { subsets, ..chosen });
        }
        if config.descriptor.full_name() == WRR_LOCALITY {
            let policy = config.message("endpoint_picking_policy")?;
            let chosen = self.typed_balancer(policy, &[SUBSET, OVERRIDE_HOST, CLIENT_SIDE])?;
            if chosen.load_reports.is_none() || chosen.override_hosts.is_some() {
                let text =
                    "only supports ClientSideWeightedRoundRobin as its endpoint picking policy";
                self.report.problem(&policy.at, text);
                return None;
            }
            return Some(Chosen { weighs: true, ..chosen });
        }
        if config.descriptor.full_name() == CLIENT_SIDE {
            let slow_start = self.slow_start(config);
            let load_reports = Some(self.reported_loads(config));
            return Some(Chosen { slow_start, load_reports, ..Chosen::new(Balancer::RoundRobin) });
        }
        if config.descriptor.full_name() == OVERRIDE_HOST {
            let override_hosts = Some(self.override_hosts(config));
            let chosen = self.typed_balancer(
                config.message("fallback_policy")?,
                &[SUBSET, CLIENT_SIDE, WRR_LOCALITY],
            )?;
            return Some(Chosen { override_hosts, ..chosen });
        }
        let hashing = |config: &'m Message| config.message("consistent_hashing_lb_config");
        let policy = match config.descriptor.full_name() {
            RING_HASH => self.ring_hash(Some(config), hashing(config))?,
            MAGLEV => self.maglev(Some(config), hashing(config))?,
            LEAST_REQUEST => self.least_request(config),
            RANDOM => Balancer::Random,
            _ => Balancer::RoundRobin,
        };
        let slow_start = match policy {
            Balancer::RoundRobin | Balancer::LeastRequest { .. } => self.slow_start(config),
            Balancer::Random | Balancer::RingHash { .. } | Balancer::Maglev { .. } => None,
        };
        Some(match policy.is_hashed() {
            true => {
                let weighs = config.has("locality_weighted_lb_config");
                Chosen { weighs, slow_start, ..Chosen::new(policy) }
            }
            false => {
                let localities = config.message("locality_lb_config");
                Chosen { localities, slow_start, ..Chosen::new(policy) }
            }
        })
    }

    fn ring_hash(
        &mut self,
        config: Option<&Message>,
        hashing: Option<&Message>,
    ) -> Option<Balancer> {
        let size = |name| config.and_then(|config| config.number(name));
        let least = size("minimum_ring_size").unwrap_or(DEFAULT_RING);
        let most = size("maximum_ring_size").unwrap_or(MOST_RING);
        if let Some(config) = config
            && least > most
        {
            let text =
                format!("ring hash: minimum_ring_size ({least}) > maximum_ring_size ({most})");
            self.report.problem(config.at("minimum_ring_size"), text);
            return None;
        }
        let function = match config.map(|config| config.choice("hash_function")).as_deref() {
            Some("MURMUR_HASH_2") => HashFunction::MurmurHash2,
            _ => HashFunction::XxHash,
        };
        // The older of the two places, which only the policy's own message has.
        let is_old = |config: &Message| {
            config.descriptor.full_name() == RING_HASH && config.flag("use_hostname_for_hashing")
        };
        let by_hostname = config.is_some_and(is_old) || by_hostname(hashing);
        let bound_percent = match hashing {
            Some(hashing) => bound_percent(hashing),
            // The older of the two places again, which Envoy reads only without the newer one.
            None => {
                config.filter(|it| it.descriptor.full_name() == RING_HASH).map_or(0, bound_percent)
            }
        };
        Some(Balancer::RingHash { least, most, function, by_hostname, bound_percent })
    }

    fn maglev(&mut self, config: Option<&Message>, hashing: Option<&Message>) -> Option<Balancer> {
        let size = config.and_then(|config| config.number("table_size")).unwrap_or(DEFAULT_TABLE);
        if let Some(config) = config
            && !is_prime(size)
        {
            let text = "The table size of maglev must be prime number";
            self.report.problem(config.at("table_size"), text);
            return None;
        }
        let bound_percent = hashing.map_or(0, bound_percent);
        Some(Balancer::Maglev { size, by_hostname: by_hostname(hashing), bound_percent })
    }

    fn least_request(&mut self, config: &Message) -> Balancer {
        let bias =
            config.message("active_request_bias").map_or(1.0, |bias| self.runtime_float(bias));
        let is_typed = config.descriptor.full_name() == LEAST_REQUEST;
        let scans = is_typed && config.choice("selection_method") == "FULL_SCAN";
        let choices = config.number32("choice_count").unwrap_or(2).max(2);
        Balancer::LeastRequest {
            choices: if scans { 0 } else { choices },
            bias_milli: (bias.max(0.0) * 1000.0).round() as u32,
        }
    }
}

/// The hosts that a request may have which asks for one.
fn overridable(cluster: &Message) -> HealthStatuses {
    let common = cluster.message("common_lb_config");
    let Some(statuses) = common.and_then(|common| common.message("override_host_status")) else {
        return HealthStatuses::USABLE;
    };
    let numbers = statuses.items("statuses").iter().filter_map(|item| match item.value {
        Value::Enum(number) => usize::try_from(number).ok(),
        _ => None,
    });
    numbers.filter_map(|number| HEALTH_STATUSES.get(number)).map(|(_, status)| *status).collect()
}

/// How a cluster's hosts are chosen.
pub(super) struct Balanced {
    pub(super) balancing: Balancing,
    pub(super) subsets: Option<Arc<Subsets>>,
    pub(super) override_hosts: Option<Arc<OverrideHosts>>,
    pub(super) load_reports: Option<Arc<LoadReports>>,
    pub(super) zones: Option<Arc<Zones>>,
}

impl Balanced {
    fn new(balancing: Balancing) -> Self {
        Self { balancing, subsets: None, override_hosts: None, load_reports: None, zones: None }
    }
}

/// A policy, and what its configuration says of localities.
struct Chosen<'m> {
    policy: Balancer,
    localities: Option<&'m Message>,
    weighs: bool,
    slow_start: Option<SlowStart>,
    subsets: Option<Subsets>,
    override_hosts: Option<OverrideHosts>,
    load_reports: Option<LoadReports>,
}

impl Chosen<'_> {
    fn new(policy: Balancer) -> Self {
        Self {
            policy,
            localities: None,
            weighs: false,
            slow_start: None,
            subsets: None,
            override_hosts: None,
            load_reports: None,
        }
    }
}

/// What the older fields say of hashing.
fn hashing(cluster: &Message) -> Option<&Message> {
    cluster.message("common_lb_config")?.message("consistent_hashing_lb_config")
}

fn bound_percent(hashing: &Message) -> u32 {
    hashing.number32("hash_balance_factor").unwrap_or(0)
}

fn by_hostname(hashing: Option<&Message>) -> bool {
    hashing.is_some_and(|hashing| hashing.flag("use_hostname_for_hashing"))
}

fn is_prime(number: u64) -> bool {
    number > 1 && (2..).take_while(|it| it * it <= number).all(|it| !number.is_multiple_of(it))
}

const DEFAULT_RING: u64 = 1024;
const MOST_RING: u64 = 8 * 1024 * 1024;
const DEFAULT_TABLE: u64 = 65537;
const NOT_IN_ENVOY: &str = "Envoy 1.40 has its message alone, and refuses it too";
const NOT_BESIDE: &str = "load_balancing_policy cannot be combined with lb_subset_config";
const TWO_PLACES: &str =
    "cannot stand beside `load_balancing_policy`; write it in the policy's `locality_lb_config`";
const DEFAULT_LEAST_REQUEST: Balancer = Balancer::LeastRequest { choices: 2, bias_milli: 1000 };
