//! What a control plane sends, written down.

use serde_json::Value;
use tokio::sync::mpsc;
use towpath_config::Kind;
use towpath_xds::{Rejected, Update};

use super::Server;

/// The reader that is told. What is not read yet waits in memory.
pub(crate) type Recorder = mpsc::UnboundedSender<Step>;

/// One update, and what became of it. Nothing in it is secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Step {
    /// The full name of the kind's message.
    pub(crate) kind: String,
    pub(crate) version: String,
    /// Each with its name and version.
    pub(crate) resources: Vec<(String, String, Value)>,
    pub(crate) removed: Vec<String>,
    /// Names and reasons.
    pub(crate) rejected: Vec<(String, String)>,
}

impl Server {
    pub(super) fn step(&mut self, of: Kind, update: &Update) -> Step {
        let mut rejected = Vec::new();
        let mut resources = Vec::new();
        for resource in &update.resources {
            match self.resources.describe(of, &resource.body) {
                Ok(json) => resources.push((resource.name.clone(), resource.version.clone(), json)),
                Err(why) => rejected.push((resource.name.clone(), why)),
            }
        }
        Step {
            kind: of.message().to_owned(),
            version: update.version.clone(),
            resources,
            removed: update.removed.clone(),
            rejected,
        }
    }

    pub(super) fn record(&self, step: Option<Step>, rejected: &[Rejected]) {
        let (Some(mut step), Some(recorder)) = (step, &self.recorder) else { return };
        for Rejected { name, reason } in rejected {
            if step.rejected.iter().all(|(known, _)| known != name) {
                step.rejected.push((name.clone(), reason.clone()));
            }
        }
        // Who was to be told has seen enough.
        let _ = recorder.send(step);
    }
}
