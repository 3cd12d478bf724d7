//! The rate at which connections begin, of a filter chain and of a listener.

use std::any::Any;
use std::sync::Arc;

use towpath_engine::network_filter::local_ratelimit::ConnectionRate;

use super::{Known, Read};
use crate::convert::Converter;
use crate::message::Message;
use crate::support::Entry;

const CONFIG: &str = "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit";

pub(super) const FILTER: Known = Known {
    config_type: CONFIG,
    read: Read::Before(|converter, config, before| {
        if let Some(mut rate) = converter.connection_rate(config) {
            let key = config.text("share_key");
            if !key.is_empty() {
                rate.share_key = Some(Arc::from(key));
                converter.share(&mut rate);
            }
            before.list.push(Arc::new(rate));
        }
        Some(())
    }),
    support: SUPPORT,
};

impl Converter<'_> {
    /// A bucket for connections, of a listener or of a filter chain.
    pub(in crate::convert) fn connection_rate(
        &mut self,
        config: &Message,
    ) -> Option<ConnectionRate> {
        let tokens = self.tokens(config.message("token_bucket")?)?;
        let switch = config.message("runtime_enabled");
        let is_on = switch.is_none_or(|switch| self.runtime_flag(switch));
        let prefix = Arc::from(config.text("stat_prefix"));
        Some(ConnectionRate::new(prefix, is_on.then_some(tokens)))
    }

    /// Has a rate take from the bucket of its key: one of this configuration, or of the one that is served.
    fn share(&mut self, rate: &mut ConnectionRate) {
        let serving = self.base.snapshot.listeners.iter();
        let chains = serving.flat_map(|it| it.chains.iter().chain(&it.default_chain));
        let filters = chains.flat_map(|chain| &chain.filters.list);
        let served = filters.filter_map(|filter| {
            let filter: &dyn Any = &**filter;
            filter.downcast_ref::<ConnectionRate>()
        });
        if !self.shared_rates.iter().chain(served).any(|other| rate.join(other)) {
            self.shared_rates.push(rate.clone());
        }
    }
}

const SUPPORT: &[Entry] = &[Entry {
    message: CONFIG,
    honoured: &["stat_prefix", "token_bucket", "runtime_enabled", "share_key"],
    harmless: &[],
    changes: &[],
}];
