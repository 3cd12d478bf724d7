//! Requests must show JSON Web Tokens.

mod provider;

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_engine::filter::RouteConfig;
use towpath_engine::filter::jwt_authn::{
    Audiences, JwtAuthn, Lenience, Provider, Requirement, RouteJwtAuthn, Rule, SharedJwtAuthn,
    StateRules,
};

use super::Known;
use crate::convert::Converter;
use crate::message::{At, Item, Message, Value};
use crate::support::Entry;

const FILTER_TYPE: &str = "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication";
const ROUTE_TYPE: &str = "envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig";

pub(super) const FILTER: Known = Known {
    config_type: FILTER_TYPE,
    convert: |converter, config| Some(Arc::new(SharedJwtAuthn::new(converter.jwt_authn(config)?))),
    by_route: Some((ROUTE_TYPE, by_route)),
    support: SUPPORT,
};

fn by_route(_converter: &mut Converter<'_>, config: &Message) -> Option<Arc<dyn RouteConfig>> {
    Some(Arc::new(match config.text("requirement_name") {
        "" if config.flag("disabled") => RouteJwtAuthn::Disabled,
        "" => return None,
        name => RouteJwtAuthn::Required(name.into()),
    }))
}

/// What requirements speak of.
struct Providers {
    all: Vec<Provider>,
    /// The names of `all`; of a provider that cannot be read there is the name alone.
    numbers: BTreeMap<String, Option<usize>>,
}

impl Converter<'_> {
    fn jwt_authn(&mut self, config: &Message) -> Option<JwtAuthn> {
        let mut providers = Providers { all: Vec::new(), numbers: BTreeMap::new() };
        let stat_prefix = Arc::from(config.text("stat_prefix"));
        for (name, item) in config.entries("providers") {
            let Value::Message(provider) = &item.value else { continue };
            let provider = self.jwt_provider(name, provider, &stat_prefix);
            let number = provider.is_some().then_some(providers.all.len());
            providers.all.extend(provider);
            providers.numbers.insert(name.clone(), number);
        }
        let named: BTreeMap<_, _> =
            self.requirements(config.entries("requirement_map"), &providers).collect();
        let rules: Vec<_> = config.messages("rules").collect();
        let rules: Vec<_> =
            rules.into_iter().filter_map(|rule| self.jwt_rule(rule, &providers, &named)).collect();
        let state_rules = config.message("filter_state_rules").map(|rules| StateRules {
            name: rules.text("name").into(),
            requires: self.requirements(rules.entries("requires"), &providers).collect(),
        });
        let is_whole = providers.numbers.values().all(Option::is_some);
        is_whole.then(|| JwtAuthn {
            providers: providers.all,
            rules,
            state_rules,
            named: named.into_iter().collect(),
            bypasses_preflight: config.flag("bypass_cors_preflight"),
            silent: config.flag("strip_failure_response"),
            stat_prefix,
        })
    }

    /// Requirements by their names.
    fn requirements(
        &mut self,
        entries: &[(String, Item)],
        providers: &Providers,
    ) -> impl Iterator<Item = (Box<str>, Arc<Requirement>)> + use<> {
        let mut all = Vec::new();
        for (name, item) in entries {
            let Value::Message(requirement) = &item.value else { continue };
            let requirement = self.requirement(requirement, providers);
            all.extend(requirement.map(|it| (name.as_str().into(), Arc::new(it))));
        }
        all.into_iter()
    }

    fn jwt_rule(
        &mut self,
        rule: &Message,
        providers: &Providers,
        named: &BTreeMap<Box<str>, Arc<Requirement>>,
    ) -> Option<Rule> {
        let matches = rule.message("match")?;
        const ELSEWHERE: [&str; 6] = [
            "runtime_fraction",
            "grpc",
            "tls_context",
            "dynamic_metadata",
            "filter_state",
            "cookies",
        ];
        for name in ELSEWHERE {
            if matches.has(name) {
                let text = "a rule of jwt_authn looks at path, headers and query alone";
                self.report.unsupported(matches.at(name), text);
            }
        }
        let requirement = match rule.oneof("requirement_type") {
            None => None,
            Some(field) => match &field.value {
                Value::Message(requirement) => {
                    Some(Arc::new(self.requirement(requirement, providers)?))
                }
                Value::String(name) => Some(self.named_requirement(name, named, &field.at)?),
                _ => return None,
            },
        };
        Some(Rule {
            path: self.path_match(matches)?,
            headers: self.header_matchers(matches, "headers"),
            query: self.query_matchers(matches, "query_parameters"),
            requirement,
        })
    }

    fn named_requirement(
        &mut self,
        name: &str,
        named: &BTreeMap<Box<str>, Arc<Requirement>>,
        at: &At,
    ) -> Option<Arc<Requirement>> {
        if let Some(requirement) = named.get(name) {
            return Some(Arc::clone(requirement));
        }
        let names: Vec<&str> = named.keys().map(|name| &**name).collect();
        let names = names.join(",");
        let text = format!("Wrong requirement_name: {name}. It should be one of [{names}]");
        self.report.problem(at, text);
        None
    }

    /// A `JwtRequirement`; how deep it nests the reader of messages limits.
    fn requirement(&mut self, message: &Message, providers: &Providers) -> Option<Requirement> {
        let Some(field) = message.oneof("requires_type") else { return Some(Requirement::Nothing) };
        Some(match (field.descriptor.name(), &field.value) {
            ("provider_name", Value::String(name)) => {
                let number = self.provider_number(name, providers, &field.at)?;
                Requirement::of_provider(&providers.all, number, None)
            }
            ("provider_and_audiences", Value::Message(with)) => {
                let name = with.text("provider_name");
                let number = self.provider_number(name, providers, &with.at)?;
                let audiences: Vec<_> = with.texts("audiences").map(|(text, _)| text).collect();
                let audiences = (!audiences.is_empty()).then(|| Audiences::new(audiences));
                Requirement::of_provider(&providers.all, number, audiences)
            }
            ("requires_any", Value::Message(list)) => self.any_of(list, providers)?,
            ("requires_all", Value::Message(list)) => {
                let parts: Vec<_> = list.messages("requirements").collect();
                let parts = parts.into_iter().map(|part| self.requirement(part, providers));
                Requirement::All(parts.collect::<Option<_>>()?)
            }
            _ => Requirement::lenient(&providers.all, self.lenience(message)?),
        })
    }

    /// What is lenient comes last, and once: what overlooks more counts. It looks where the others do.
    fn any_of(&mut self, list: &Message, providers: &Providers) -> Option<Requirement> {
        let (mut parts, mut used, mut lenient) = (Vec::new(), Vec::new(), None);
        for part in list.messages("requirements") {
            match self.lenience(part) {
                Some(lenience) if matches!(lenient, None | Some(Lenience::Missing)) => {
                    lenient = Some(lenience);
                }
                Some(_) => {}
                None => parts.push(self.requirement(part, providers)?),
            }
            let with = part.message("provider_and_audiences");
            let name =
                with.map_or_else(|| part.text("provider_name"), |it| it.text("provider_name"));
            let number = providers.numbers.get(name).copied().flatten();
            used.extend(number.and_then(|number| providers.all.get(number)));
        }
        parts.extend(lenient.map(|lenience| match lenience {
            Lenience::Missing | Lenience::Failed if !used.is_empty() => {
                Requirement::lenient(used, lenience)
            }
            _ => Requirement::lenient(&providers.all, lenience),
        }));
        Some(Requirement::Any(parts))
    }

    fn lenience(&mut self, message: &Message) -> Option<Lenience> {
        let field = message.oneof("requires_type")?;
        match (field.descriptor.name(), &field.value) {
            ("allow_missing", _) => Some(Lenience::Missing),
            ("allow_missing_or_failed", _) => Some(Lenience::Failed),
            ("extract_only_without_validation", Value::Message(only)) => {
                let name = match only.text("verification_status_header") {
                    "" => "x-jwt-signature-verified",
                    name => name,
                };
                let at = only.at("verification_status_header");
                Some(Lenience::Told(self.header_name(name, at)?))
            }
            _ => None,
        }
    }

    fn provider_number(&mut self, name: &str, providers: &Providers, at: &At) -> Option<usize> {
        let number = providers.numbers.get(name);
        if number.is_none() {
            let text = format!("Required provider ['{name}'] is not configured.");
            self.report.problem(at, text);
        }
        number.copied().flatten()
    }
}

const SUPPORT: &[Entry] = &[
    Entry {
        message: FILTER_TYPE,
        honoured: &[
            "providers",
            "rules",
            "filter_state_rules",
            "bypass_cors_preflight",
            "requirement_map",
            "strip_failure_response",
            "stat_prefix",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: ROUTE_TYPE,
        honoured: &["disabled", "requirement_name"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.jwt_authn.v3.RequirementRule",
        honoured: &["match", "requires", "requirement_name"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.jwt_authn.v3.FilterStateRule",
        honoured: &["name", "requires"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.jwt_authn.v3.JwtRequirement",
        honoured: &[
            "provider_name",
            "provider_and_audiences",
            "requires_any",
            "requires_all",
            "allow_missing_or_failed",
            "allow_missing",
            "extract_only_without_validation",
        ],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.jwt_authn.v3.ExtractOnlyWithoutValidation",
        honoured: &["verification_status_header"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.jwt_authn.v3.ProviderWithAudiences",
        honoured: &["provider_name", "audiences"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.jwt_authn.v3.JwtRequirementOrList",
        honoured: &["requirements"],
        harmless: &[],
        changes: &[],
    },
    Entry {
        message: "envoy.extensions.filters.http.jwt_authn.v3.JwtRequirementAndList",
        honoured: &["requirements"],
        harmless: &[],
        changes: &[],
    },
    provider::PROVIDER,
    provider::NORMALIZE,
    provider::CACHE,
    provider::REMOTE,
    provider::AHEAD,
    provider::HEADER,
    provider::CLAIM,
    provider::SEGMENT,
];
