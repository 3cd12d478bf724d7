//! Endpoints of clusters that serve: of all updates they come most often, and cost follows what changed.

use std::collections::HashMap;

use tokio::sync::oneshot;
use towpath_config::{Given, Kind};
use towpath_xds::Update;

use super::{Ask, Server, Stage};
use crate::log;

impl Server {
    /// Takes an update of endpoints, if they are good and nothing else depends on them. Otherwise nothing is done.
    pub(super) async fn take_endpoints(&mut self, of: Kind, update: &Update) -> bool {
        let Update { kind, version, resources, removed, rejected } = update;
        let is_plain = of == Kind::Endpoints && removed.is_empty() && rejected.is_empty();
        if !is_plain || !matches!(self.stage, Stage::Serving) {
            return false;
        }
        let (teller, told) = oneshot::channel();
        self.ask(Ask::Snapshot(teller));
        // The process is ending when there is no answer.
        let Ok(serving) = told.await else { return false };
        let given: Vec<Given> = resources
            .iter()
            .map(|it| Given { name: it.name.clone(), body: it.body.clone() })
            .collect();
        let Some(patch) = self.resources.offer_endpoints(&given, &serving) else { return false };
        drop(serving);
        for line in &patch.ignored {
            log!(Config, Info, "{line}");
        }
        if !patch.clusters.is_empty() {
            let (teller, told) = oneshot::channel();
            self.ask(Ask::Patch { patch, teller });
            let _ = told.await;
        }
        let names: Vec<&str> = resources.iter().map(|it| &*it.name).collect();
        self.stats.update(of, &names, &[], &self.needs, version);
        self.report(*kind, version, &[]);
        let versions: HashMap<String, String> =
            resources.iter().map(|it| (it.name.clone(), it.version.clone())).collect();
        self.show(of, &versions, &[], &[], version);
        true
    }
}
