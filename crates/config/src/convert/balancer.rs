//! Load balancing policies, in both their forms.

use towpath_engine::snapshot::cluster::Balancer;

use super::Converter;
use super::extension::LOAD_BALANCER;
use crate::message::Message;

const ROUND_ROBIN: &str = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin";
const LEAST_REQUEST: &str =
    "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest";
const RANDOM: &str = "envoy.extensions.load_balancing_policies.random.v3.Random";

impl Converter<'_> {
    pub(super) fn balancer(&mut self, cluster: &Message) -> Option<Balancer> {
        if let Some(policy) = cluster.message("load_balancing_policy") {
            return self.typed_balancer(policy);
        }
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

    /// The first policy of the list, as Envoy knows all that can be written in it.
    fn typed_balancer(&mut self, policy: &Message) -> Option<Balancer> {
        let Some(first) = policy.messages("policies").next() else {
            self.report.problem(&policy.at, "needs at least one policy");
            return None;
        };
        let extension = first.message("typed_extension_config")?;
        let known = [ROUND_ROBIN, LEAST_REQUEST, RANDOM];
        let (config, _) = self.extension(extension, LOAD_BALANCER, &known)?;
        Some(match config.descriptor.full_name() {
            LEAST_REQUEST => self.least_request(config),
            RANDOM => Balancer::Random,
            _ => Balancer::RoundRobin,
        })
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

const DEFAULT_LEAST_REQUEST: Balancer = Balancer::LeastRequest { choices: 2, bias_milli: 1000 };
