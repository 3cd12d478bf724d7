//! HTTP filters of the first listener, and servers that they ask.

use std::sync::Arc;

use towpath_engine::filter::{ChainFilter, FilterConfig};
use towpath_engine::snapshot::Snapshot;
use towpath_engine::snapshot::listener::Terminal;

use super::{cluster, endpoint, origin_address};

/// Puts a filter behind those that are there.
pub fn add_filter(snapshot: &mut Snapshot, name: &str, config: impl FilterConfig + 'static) {
    let listener = Arc::get_mut(&mut snapshot.listeners[0]).expect("not shared yet");
    let chain = Arc::get_mut(&mut listener.chains[0]).expect("not shared yet");
    let Terminal::Http(http) = &mut chain.terminal else { panic!("it speaks HTTP") };
    let filter = ChainFilter { name: name.into(), disabled: false, config: Arc::new(config) };
    Arc::get_mut(http).expect("not shared yet").chain.filters.push(filter);
}

/// Adds a cluster with the server at `origin_address(9)`, which filters ask.
pub fn add_asked_cluster(snapshot: &mut Snapshot, name: &str) {
    let id = snapshot.intern(name);
    let mut asked = cluster(name, 0);
    asked.endpoints = vec![endpoint(origin_address(9))].into();
    snapshot.clusters[id.0 as usize] = Some(Arc::new(asked));
}
