//! What the thread of discovery asks of the control thread, and how that answers.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use towpath_config::{Base, Kind, Patch, Printer, Prints, Runtime};
use towpath_engine::snapshot::cluster::Endpoint;
use towpath_engine::snapshot::{Cluster, Listener, Snapshot};

use super::shown::Shown;
use crate::control::{Control, Phase};
use crate::dns::DnsCluster;
use crate::serve::WARM_BOUND;
use crate::{log, reload};

/// What is asked.
pub(crate) enum Ask {
    /// Where a cluster's hosts are.
    Reach { cluster: Arc<str>, teller: oneshot::Sender<Reach> },
    /// What serves.
    Base(oneshot::Sender<Base>),
    /// The same, without what it was made from.
    Snapshot(oneshot::Sender<Arc<Snapshot>>),
    /// To let these clusters serve in place of those of their names.
    Patch { patch: Patch, teller: oneshot::Sender<()> },
    /// To follow the names of these clusters, and to say when they were looked up.
    Follow { clusters: Vec<DnsCluster>, teller: oneshot::Sender<()> },
    /// Whether these can be opened; answered with those that cannot.
    TryToOpen { listeners: Vec<Arc<Listener>>, teller: oneshot::Sender<Vec<Refused>> },
    /// To let this serve; answered with the listeners that cannot be opened, in which case nothing was done.
    Serve { built: Box<Built>, teller: oneshot::Sender<Vec<Refused>> },
    /// How far the start is.
    State(Phase),
    /// What is shown of a resource; nothing when it is gone.
    Shown((Kind, String), Option<Arc<Shown>>),
    /// The version of all resources of a kind.
    Version(Kind, String),
    /// What makes JSON of what is shown.
    Printer(Printer),
}

/// Where a cluster's hosts are.
#[derive(Default)]
pub(crate) struct Reach {
    /// The cluster; without it there are no endpoints.
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) endpoints: Arc<[Endpoint]>,
}

/// A configuration that is to serve.
pub(crate) struct Built {
    pub(crate) snapshot: Snapshot,
    pub(crate) prints: Prints,
    pub(crate) runtime: Runtime,
    /// Of the first configuration: the listeners of the bootstrap, without which the program does not start.
    pub(crate) statics: Option<HashSet<String>>,
}

/// A listener that cannot be opened.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) listener: String,
    pub(crate) reason: String,
}

/// Answers until the process ends. The first configuration goes to `starts`.
pub(crate) async fn answer(
    control: Rc<Control>,
    mut asks: mpsc::UnboundedReceiver<Ask>,
    starts: mpsc::UnboundedSender<Snapshot>,
) {
    // Where an answer is not waited for any longer, the process ends.
    while let Some(ask) = asks.recv().await {
        match ask {
            Ask::Reach { cluster, teller } => drop(teller.send(reach(&control, &cluster))),
            Ask::Base(teller) => {
                control.is_live().await;
                let _ = teller.send(control.base());
            }
            Ask::Snapshot(teller) => {
                control.is_live().await;
                let _ = teller.send(control.snapshot.borrow().clone());
            }
            Ask::Patch { patch, teller } => {
                if !control.is_ending() {
                    reload::replace_clusters(&control, patch);
                }
                let _ = teller.send(());
            }
            Ask::Follow { clusters, teller } => {
                control.follow_names(clusters);
                let control = control.clone();
                tokio::task::spawn_local(async move {
                    if !control.dns.warmed(WARM_BOUND).await {
                        log!(
                            Upstream,
                            Warning,
                            "not all names were resolved in {WARM_BOUND:?}; going on all the same"
                        );
                    }
                    let _ = teller.send(());
                });
            }
            Ask::TryToOpen { listeners, teller } => {
                let _ = teller.send(reload::try_to_open(&control, &listeners));
            }
            Ask::Serve { built, teller } => {
                let refused = match built.statics {
                    Some(_) => reload::start_discovered(&control, *built, &starts),
                    None => {
                        control.is_live().await;
                        // What ends serves to its end as it is.
                        if control.is_ending() {
                            Vec::new()
                        } else {
                            reload::replace_discovered(&control, *built)
                        }
                    }
                };
                let _ = teller.send(refused);
            }
            Ask::State(phase) => control.reached(phase),
            Ask::Shown(key, shown) => control.shown.borrow_mut().set(key, shown),
            Ask::Printer(printer) => control.shown.borrow_mut().set_printer(printer),
            Ask::Version(kind, version) => control.shown.borrow_mut().set_version(kind, version),
        }
    }
}

/// The hosts of a cluster of the bootstrap, with what its names resolve to.
pub(super) fn reach(control: &Control, cluster: &str) -> Reach {
    let planned = control.planned.borrow();
    let snapshot = planned.as_ref();
    let serving = control.snapshot.borrow();
    let snapshot = snapshot.unwrap_or(&serving);
    let found = snapshot.cluster_id(cluster).and_then(|id| Some((id, snapshot.cluster(id)?)));
    let Some((id, cluster)) = found else { return Reach::default() };
    let endpoints = control.dns.endpoints(id).unwrap_or_else(|| Arc::clone(&cluster.endpoints));
    Reach { cluster: Some(Arc::clone(cluster)), endpoints }
}
