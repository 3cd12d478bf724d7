//! Load balancing policies, in both their forms.

use towpath_engine::snapshot::cluster::{Balancer, Balancing, Discovery};

use super::Converter;
use super::extension::LOAD_BALANCER;
use crate::message::Message;

const ROUND_ROBIN: &str = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin";
const LEAST_REQUEST: &str =
    "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest";
const RANDOM: &str = "envoy.extensions.load_balancing_policies.random.v3.Random";

impl Converter<'_> {
    /// How hosts are chosen; `None` without a report where the cluster's type, which is to know, is not there.
    pub(super) fn balancing(
        &mut self,
        cluster: &Message,
        discovery: Option<&Discovery>,
    ) -> Option<Balancing> {
        let provides = match discovery? {
            Discovery::OriginalDestination(_) | Discovery::Aggregate(_) => true,
            Discovery::Static | Discovery::Dns(_) => false,
        };
        let provided = cluster.choice("lb_policy") == "CLUSTER_PROVIDED";
        match (provides, provided) {
            (true, true) => {
                let panic_threshold = self.panic_threshold(cluster);
                return Some(Balancing { panic_threshold, ..Balancing::new(Balancer::RoundRobin) });
            }
            (true, false) => self.report.problem(
                cluster.at("lb_policy"),
                "a cluster of this type needs `lb_policy: CLUSTER_PROVIDED`",
            ),
            (false, true) => self.report.problem(
                cluster.at("lb_policy"),
                "CLUSTER_PROVIDED is for ORIGINAL_DST clusters and aggregates",
            ),
            (false, false) => {}
        }
        if provides || provided {
            return None;
        }
        let common = cluster.message("common_lb_config");
        let (policy, localities) = match cluster.message("load_balancing_policy") {
            Some(policy) => {
                for field in ["zone_aware_lb_config", "locality_weighted_lb_config"] {
                    if let Some(common) = common.filter(|common| common.has(field)) {
                        self.report.problem(common.at(field), TWO_PLACES);
                    }
                }
                self.typed_balancer(policy)?
            }
            None => (self.named_balancer(cluster)?, common),
        };
        let zones = localities.and_then(|config| config.message("zone_aware_lb_config"));
        Some(Balancing {
            policy,
            panic_threshold: self.panic_threshold(cluster),
            fails_in_panic: zones.is_some_and(|zones| zones.flag("fail_traffic_on_panic")),
            weighs_localities: localities
                .is_some_and(|config| config.has("locality_weighted_lb_config")),
        })
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

    fn named_balancer(&mut self, cluster: &Message) -> Option<Balancer> {
        let at = cluster.at("lb_policy");
        match cluster.choice("lb_policy").as_str() {
            "ROUND_ROBIN" => Some(Balancer::RoundRobin),
            "LEAST_REQUEST" => Some(match cluster.message("least_request_lb_config") {
                Some(config) => self.least_request(config),
                None => DEFAULT_LEAST_REQUEST,
            }),
            "RANDOM" => Some(Balancer::Random),
            "LOAD_BALANCING_POLICY_CONFIG" => {
                self.report
                    .problem(at, "LOAD_BALANCING_POLICY_CONFIG needs a `load_balancing_policy`");
                None
            }
            other => {
                self.report.unsupported(
                    at,
                    format!("{other} is not there, only ROUND_ROBIN, LEAST_REQUEST and RANDOM"),
                );
                None
            }
        }
    }

    /// The first policy of the list, as Envoy knows all that can be written in it, and what it says of localities.
    fn typed_balancer<'m>(
        &mut self,
        policy: &'m Message,
    ) -> Option<(Balancer, Option<&'m Message>)> {
        let Some(first) = policy.messages("policies").next() else {
            self.report.problem(&policy.at, "needs at least one policy");
            return None;
        };
        let extension = first.message("typed_extension_config")?;
        let known = [ROUND_ROBIN, LEAST_REQUEST, RANDOM];
        let (config, _) = self.extension(extension, LOAD_BALANCER, &known)?;
        let balancer = match config.descriptor.full_name() {
            LEAST_REQUEST => self.least_request(config),
            RANDOM => Balancer::Random,
            _ => Balancer::RoundRobin,
        };
        Some((balancer, config.message("locality_lb_config")))
    }

    fn least_request(&mut self, config: &Message) -> Balancer {
        let bias =
            config.message("active_request_bias").map_or(1.0, |bias| self.runtime_float(bias));
        Balancer::LeastRequest {
            choices: config.number32("choice_count").unwrap_or(2).max(2),
            bias_milli: (bias.max(0.0) * 1000.0).round() as u32,
        }
    }
}

const TWO_PLACES: &str =
    "cannot stand beside `load_balancing_policy`; write it in the policy's `locality_lb_config`";
const DEFAULT_LEAST_REQUEST: Balancer = Balancer::LeastRequest { choices: 2, bias_milli: 1000 };
