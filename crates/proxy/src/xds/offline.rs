//! `towpath check --xds`: what of a recording would not be taken, and what would serve.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use towpath_config::{Base, Encoder, Given, Kind, Options, Rejected, Resources, Source, Sources};

use super::recording::{self, Recording, Timed, short};

/// What became of one update.
struct Judged {
    title: String,
    kind: String,
    version: String,
    refused: Vec<Rejected>,
}

/// What a recording comes to.
pub(crate) struct Outcome {
    steps: Vec<Judged>,
    /// What waits for more: kind and name.
    waits: Vec<(String, String)>,
    listeners: Vec<String>,
    clusters: usize,
    /// What is secret of these is not in the recording: kind and name.
    unseen: BTreeSet<(Kind, String)>,
    encoder: Encoder,
}

/// Offers each update to a proxy with this bootstrap; without one to that which the recording has.
pub(crate) fn judge(
    file: Option<&Path>,
    recording: &Path,
    options: Options,
) -> Result<Outcome, String> {
    let recording = Recording::read(recording)?;
    let source = match (file, &recording.bootstrap) {
        (Some(file), _) => Source::read(file).map_err(|error| error.to_string())?,
        (None, Some(bootstrap)) => {
            Source::json("the recording's bootstrap", &bootstrap.to_string())
        }
        (None, None) => return Err("the recording has no bootstrap: name one".to_owned()),
    };
    let mut resources =
        Resources::new(Sources::file(source), options).map_err(|error| error.to_string())?;
    let mut base = Base::default();
    let mut outcome = Outcome {
        steps: Vec::new(),
        waits: Vec::new(),
        listeners: Vec::new(),
        clusters: 0,
        unseen: BTreeSet::new(),
        encoder: Encoder::default(),
    };
    for (timed, number) in recording.steps.iter().zip(1_u64..) {
        let judged = outcome.step(timed, number, &mut resources, &mut base)?;
        outcome.steps.push(judged);
    }
    let build = resources.rebuild(&base);
    outcome.waits = build
        .warming
        .iter()
        .map(|(kind, name)| (kind.message().to_owned(), name.clone()))
        .collect();
    outcome.listeners =
        build.snapshot.listeners.iter().map(|listener| listener.name.to_string()).collect();
    outcome.clusters = build.snapshot.shown_clusters().count();
    Ok(outcome)
}

impl Outcome {
    fn step(
        &mut self,
        timed: &Timed,
        number: u64,
        resources: &mut Resources,
        base: &mut Base,
    ) -> Result<Judged, String> {
        let step = &timed.step;
        let kind = Kind::of_message(&step.kind);
        let kind = kind.ok_or_else(|| format!("step {number}: there are no {}", step.kind))?;
        let (mut given, mut refused) = (Vec::new(), Vec::new());
        for (name, _, resource) in &step.resources {
            if recording::is_redacted(resource) {
                if kind.is_asked_for_by_name() {
                    resources.give_up(kind, name);
                }
                self.unseen.insert((kind, name.clone()));
                continue;
            }
            let name = name.clone();
            match self.encoder.encoded(&Source::json(&name, &resource.to_string()), kind.message())
            {
                Ok(body) => given.push(Given { name, body }),
                Err(error) => refused.push(Rejected { name, reason: error.to_string() }),
            }
        }
        let removed = if kind.is_asked_for_by_name() && kind != Kind::Extension {
            step.removed.iter().for_each(|name| resources.give_up(kind, name));
            &[]
        } else {
            &step.removed[..]
        };
        let (build, bad) = resources.offer(kind, given, removed, base);
        *base = Base { snapshot: Arc::new(build.snapshot), prints: build.prints, free: Vec::new() };
        for Rejected { name, .. } in &bad {
            if !resources.has(kind, name) {
                // It is not waited for, as in a proxy.
                resources.give_up(kind, name);
            }
        }
        refused.extend(bad);
        Ok(Judged {
            title: timed.title(number),
            kind: step.kind.clone(),
            version: step.version.clone(),
            refused,
        })
    }

    /// Whether anything was refused.
    pub(crate) fn is_bad(&self) -> bool {
        self.steps.iter().any(|step| !step.refused.is_empty())
    }

    pub(crate) fn as_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for step in self.steps.iter().filter(|step| !step.refused.is_empty()) {
            let _ = writeln!(text, "{}", step.title);
            for Rejected { name, reason } in &step.refused {
                for line in reason.lines() {
                    let _ = writeln!(text, "  refused `{name}`: {line}");
                }
            }
        }
        for (kind, name) in &self.waits {
            let _ = writeln!(text, "{} `{name}` waits for what it asks for", short(kind));
        }
        for (kind, name) in &self.unseen {
            let _ = writeln!(
                text,
                "{} `{name}` was not looked at: what is secret of it is not in the recording",
                short(kind.message())
            );
        }
        let refused: usize = self.steps.iter().map(|step| step.refused.len()).sum();
        let _ = writeln!(
            text,
            "{} updates, {refused} resources refused; {} clusters and these listeners would serve: {}",
            self.steps.len(),
            self.clusters,
            if self.listeners.is_empty() { "none".to_owned() } else { self.listeners.join(", ") }
        );
        recording::printable(&text)
    }

    pub(crate) fn as_json(&self) -> Value {
        let refused = |step: &Judged| -> Value {
            let one = |it: &Rejected| json!({"name": it.name, "reason": it.reason});
            step.refused.iter().map(one).collect()
        };
        let step = |(step, number): (&Judged, u64)| {
            json!({
                "step": number, "type": step.kind, "version": step.version, "refused": refused(step),
            })
        };
        let waits = |(kind, name): &(String, String)| json!({"type": kind, "name": name});
        let unseen = |is_secret: bool| -> Vec<&str> {
            let unseen =
                self.unseen.iter().filter(|(kind, _)| (*kind == Kind::Secret) == is_secret);
            unseen.map(|(_, name)| name.as_str()).collect()
        };
        json!({
            "schema": 1,
            "steps": self.steps.iter().zip(1..).map(step).collect::<Vec<_>>(),
            "waits": self.waits.iter().map(waits).collect::<Vec<_>>(),
            "listeners": self.listeners,
            "clusters": self.clusters,
            "secrets_not_looked_at": unseen(true),
            "others_not_looked_at": unseen(false),
        })
    }
}
