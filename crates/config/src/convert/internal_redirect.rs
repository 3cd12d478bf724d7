//! Which redirects of servers a route follows.

use towpath_engine::snapshot::route::{InternalRedirects, RedirectPredicate};

use super::Converter;
use super::extension::REDIRECT_PREDICATE;
use crate::message::Message;

impl Converter<'_> {
    /// `internal_redirect_policy` of a `RouteAction`, else what the older fields say.
    pub(super) fn internal_redirects(
        &mut self,
        action: &Message,
    ) -> Option<Box<InternalRedirects>> {
        let old = action.choice("internal_redirect_action") == "HANDLE_INTERNAL_REDIRECT";
        let most = |from: &Message| from.number32("max_internal_redirects").unwrap_or(1);
        let Some(policy) = action.message("internal_redirect_policy") else {
            return old.then(|| {
                Box::new(InternalRedirects {
                    most: most(action),
                    statuses: vec![FOUND],
                    predicates: Vec::new(),
                    crosses_schemes: false,
                    copied: Vec::new(),
                })
            });
        };
        let named: Vec<_> = policy.numbers("redirect_response_codes").collect();
        let statuses = named.iter().filter_map(|(status, _)| u16::try_from(*status).ok());
        // Envoy leaves out what is no redirect, too.
        let statuses = statuses.filter(|status| matches!(status, 301..=303 | 307 | 308));
        let statuses = if named.is_empty() { vec![FOUND] } else { statuses.collect() };
        let copied: Vec<_> = policy.texts("response_headers_to_copy").collect();
        let copied = copied.into_iter().filter_map(|(name, at)| self.header_name(name, at));
        let copied = copied.collect();
        let predicates: Vec<_> = policy.messages("predicates").collect();
        let predicates = predicates.into_iter().filter_map(|it| self.redirect_predicate(it));
        Some(Box::new(InternalRedirects {
            most: most(policy),
            statuses,
            predicates: predicates.collect(),
            crosses_schemes: policy.flag("allow_cross_scheme_redirect"),
            copied,
        }))
    }

    fn redirect_predicate(&mut self, holder: &Message) -> Option<RedirectPredicate> {
        let known = [ALLOW_LISTED, PREVIOUS, SAFE];
        let (config, _) = self.extension(holder, REDIRECT_PREDICATE, &known)?;
        let (any, _) = holder.any("typed_config")?;
        Some(match any.name.as_str() {
            ALLOW_LISTED => {
                let names = config.texts("allowed_route_names").map(|(name, _)| name.into());
                RedirectPredicate::Routes(names.collect())
            }
            PREVIOUS => RedirectPredicate::NewRoute,
            _ => RedirectPredicate::Safe,
        })
    }
}

const FOUND: u16 = 302;
const ALLOW_LISTED: &str =
    "envoy.extensions.internal_redirect.allow_listed_routes.v3.AllowListedRoutesConfig";
const PREVIOUS: &str = "envoy.extensions.internal_redirect.previous_routes.v3.PreviousRoutesConfig";
const SAFE: &str = "envoy.extensions.internal_redirect.safe_cross_scheme.v3.SafeCrossSchemeConfig";
