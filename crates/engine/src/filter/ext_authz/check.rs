//! One request that is asked about.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::head::HeaderName;
use towpath_proto::{Head, Instant, Name};

use super::{
    Body, Change, CheckStatus, Decision, ExtAuthz, How, MutationRules, ResponseAction,
    RouteExtAuthz, Server, Service, Shared, grpc, http, is_value, shadow,
};
use crate::filter::mutation_rules::{self, Operation, is_name};
use crate::filter::{
    Answer, Callout, OnAnswer, Release, Reply, RequestView, ResponseView, StreamFilter,
};
use crate::record::Flags;
use crate::stream_info::Value;
use crate::uri::query::Parameters;

#[derive(Debug)]
pub(super) struct Check {
    shared: Rc<Shared>,
    server: Arc<Server>,
    body: Option<Body>,
    response: Vec<(ResponseAction, HeaderName, Vec<u8>)>,
    /// When the server was asked.
    asked: Instant,
}

impl Check {
    pub(super) fn new(shared: Rc<Shared>, request: &RequestView<'_>, body: Option<Body>) -> Self {
        let config = &shared.config;
        let of_route = match request.route.first() {
            Some(RouteExtAuthz::Check { server, .. }) => server.as_ref(),
            Some(RouteExtAuthz::Disabled) | None => None,
        };
        let server = Arc::clone(of_route.unwrap_or(&config.server));
        Self { shared, server, body, response: Vec::new(), asked: request.facts.now }
    }

    /// The question, with what there is of the content.
    pub(super) fn ask(&mut self, request: &mut RequestView<'_>) -> Box<Callout> {
        self.asked = request.facts.now;
        let content = self.body.map(|body| Content::of(request.content, body));
        let (config, Server { service, timeout }) = (&self.shared.config, &*self.server);
        Box::new(match service {
            Service::Http(service) => http::question(config, service, *timeout, request, content),
            Service::Grpc(service) => {
                grpc::question(config, service, *timeout, request, content.as_ref())
            }
        })
    }

    fn allow(&mut self, decision: Decision, request: &mut RequestView<'_>) {
        let Decision { changes, response, set_query, remove_query, .. } = decision;
        let changes_query = !(set_query.is_empty() && remove_query.is_empty());
        let has_changes = changes_query || !changes.is_empty();
        request.reroutes |= self.shared.config.clears_route && has_changes;
        let head = &mut *request.head;
        changes.iter().for_each(|change| change.make(head));
        if changes_query {
            let mut parameters = Parameters::of(head.path(), <[u8]>::to_vec);
            parameters.0.extend(set_query.into_iter().map(|(name, value)| (name, vec![value])));
            remove_query.iter().for_each(|name| {
                parameters.0.remove(name);
            });
            let path = parameters.in_path(head.path());
            head.set_path(&path);
        }
        self.response = response;
    }

    /// An answer in the server's words.
    fn reply(&self, decision: &Decision, status: u16, body: &[u8], details: &'static str) -> Reply {
        let body = match self.shared.config.most_refusal {
            0 => body,
            most => body.get(..most).unwrap_or(body),
        };
        let mut reply = Reply::new(status, body, details);
        reply.flags.set(Flags::UNAUTHORIZED_EXTERNAL_SERVICE);
        for (name, _) in &decision.set {
            reply.head.remove_named(name);
        }
        for (name, value) in decision.set.iter().chain(&decision.append) {
            reply.head.append_named(name, value);
        }
        reply
    }

    /// What would have ended the request is written down and counted (`shadow_mode`).
    fn note(&self, kind: &CheckStatus, shown: &[shadow::Shown], request: &RequestView<'_>) {
        let Shared { config, stats, .. } = &*self.shared;
        let cluster = request.facts.cluster;
        match kind {
            CheckStatus::Denied { status, .. } => {
                self.shared.count(cluster, |stats| stats.denied.inc());
                stats.shadow_denied.inc();
                if config.charges_cluster {
                    self.shared.charge(cluster, *status);
                }
                shadow::note(request, shadow::DENIED, *status, shown);
            }
            CheckStatus::Failed { status, .. } if *status != 0 => {
                self.note_error(*status, request);
            }
            CheckStatus::Failed { .. } | CheckStatus::Error => {
                self.note_error(config.status_on_error, request);
            }
            CheckStatus::Allowed => {}
        }
    }

    fn note_error(&self, status: u16, request: &RequestView<'_>) {
        self.shared.count(request.facts.cluster, |stats| stats.error.inc());
        self.shared.stats.shadow_error.inc();
        shadow::note(request, shadow::ERROR, status, &[]);
    }

    /// What the server has said beside its decision.
    fn keep_metadata(&self, decision: &mut Decision, request: &RequestView<'_>) {
        let Shared { config, stats, .. } = &*self.shared;
        let mut metadata = std::mem::take(&mut decision.metadata);
        if metadata.is_empty() {
            return;
        }
        if !config.keeps_metadata {
            stats.ignored_dynamic_metadata.inc();
            return;
        }
        if let CheckStatus::Allowed = decision.kind {
            let ms = request.facts.now.millis_since(self.asked);
            metadata.insert("ext_authz_duration".into(), Value::Number(ms as f64));
        }
        if let Some(info) = request.facts.info {
            // What is too much for one stream is left out, as a whole.
            let _ = info.add_metadata(NAMESPACE, metadata);
        }
    }
}

impl StreamFilter for Check {
    fn on_collected(&mut self, request: &mut RequestView<'_>) -> OnAnswer {
        OnAnswer::Ask(self.ask(request))
    }

    fn on_answer(&mut self, answer: &Answer, request: &mut RequestView<'_>) -> OnAnswer {
        let shared = Rc::clone(&self.shared);
        let config = &shared.config;
        let of_http = match &self.server.service {
            Service::Http(service) if config.shadow => Some(http::shown(service, answer)),
            Service::Http(_) | Service::Grpc(_) => None,
        };
        let mut decision = match &self.server.service {
            Service::Http(service) => http::decision(service, answer),
            Service::Grpc(_) => grpc::decision(answer),
        };
        let cluster = request.facts.cluster;
        self.keep_metadata(&mut decision, request);
        let is_invalid =
            (decision.is_invalid && config.validates) || !sift(&mut decision.changes, config);
        let kind = std::mem::take(&mut decision.kind);
        if config.shadow && !matches!(kind, CheckStatus::Allowed) {
            let of_grpc = || {
                let fields = decision.set.iter().chain(&decision.append);
                fields.map(|(name, value)| (name.as_bytes().to_vec(), value.clone())).collect()
            };
            self.note(&kind, &of_http.unwrap_or_else(of_grpc), request);
            return OnAnswer::Done;
        }
        match kind {
            CheckStatus::Allowed if is_invalid => OnAnswer::Reply(shared.refuse_answer(cluster)),
            CheckStatus::Allowed => {
                self.allow(decision, request);
                if !shared.scope.limits.allow(request.head) {
                    return OnAnswer::Reply(shared.refuse_answer(cluster));
                }
                shared.count(cluster, |stats| stats.ok.inc());
                if config.shadow {
                    shadow::note(request, shadow::OK, 200, &[]);
                }
                if self.response.is_empty() { OnAnswer::Done } else { OnAnswer::GoOn }
            }
            CheckStatus::Denied { status, body } => {
                shared.count(cluster, |stats| stats.denied.inc());
                if is_invalid {
                    return OnAnswer::Reply(shared.refuse_answer(cluster));
                }
                let mut reply = self.reply(&decision, status, &body, "ext_authz_denied");
                reply.charges_cluster = config.charges_cluster;
                OnAnswer::Reply(reply)
            }
            kind @ (CheckStatus::Error | CheckStatus::Failed { .. }) => {
                shared.count(cluster, |stats| stats.error.inc());
                if config.failure_mode_allow {
                    shared.count(cluster, |stats| stats.failure_mode_allowed.inc());
                    if config.tells_failure {
                        request.head.set_bytes(FAILURE_ALLOWED, b"true");
                    }
                    return OnAnswer::Done;
                }
                let (status, body) = match kind {
                    CheckStatus::Failed { status, body } if !is_invalid => (status, body),
                    CheckStatus::Failed { .. }
                    | CheckStatus::Error
                    | CheckStatus::Allowed
                    | CheckStatus::Denied { .. } => {
                        decision = Decision::default();
                        (0, Vec::new())
                    }
                };
                let status = if status == 0 { config.status_on_error } else { status };
                OnAnswer::Reply(self.reply(&decision, status, &body, "ext_authz_error"))
            }
        }
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        for (action, name, value) in std::mem::take(&mut self.response) {
            let present = response.head.get_named(&name).is_some();
            match (action, present) {
                (ResponseAction::Add, _) | (ResponseAction::AddIfAbsent, false) => {
                    response.head.append_named(&name, &value);
                }
                (ResponseAction::Set, _) | (ResponseAction::SetIfPresent, true) => {
                    response.head.set_named(&name, &value);
                }
                (ResponseAction::AddIfAbsent, true) | (ResponseAction::SetIfPresent, false) => {}
            }
        }
        Release::Now
    }
}

/// Leaves out what may not be changed; false if that makes the whole answer invalid.
fn sift(changes: &mut Vec<Change>, config: &ExtAuthz) -> bool {
    let mut is_valid = true;
    changes.retain(|change| {
        let verdict = change.judge(config.rules.as_ref(), config.validates);
        is_valid &= verdict != Verdict::Invalid;
        verdict == Verdict::Made
    });
    is_valid
}

/// What becomes of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Made,
    LeftOut,
    /// The whole answer is one of an error.
    Invalid,
}

impl Change {
    pub(super) fn judge(&self, rules: Option<&MutationRules>, validates: bool) -> Verdict {
        let Self { how, name, value } = self;
        let fits = name != ":status" && is_name(name) && is_value(value);
        if validates && !fits {
            // A field that cannot be is none to remove.
            return if *how == How::Remove { Verdict::LeftOut } else { Verdict::Invalid };
        }
        let operation = match how {
            How::Set | How::Add => Operation::Set,
            How::Append => Operation::Append,
            How::Remove => Operation::Remove,
        };
        match rules.filter(|rules| !rules.allows(operation, name, value)) {
            Some(rules) if rules.is_error => Verdict::Invalid,
            Some(_) => Verdict::LeftOut,
            None if fits => Verdict::Made,
            None => Verdict::LeftOut,
        }
    }

    /// What a head cannot have or be without is left as it is.
    fn make(&self, head: &mut Head) {
        let Ok(name) = HeaderName::new(&self.name) else {
            if self.how == How::Set {
                mutation_rules::change(head, &self.name, &self.value, false);
            }
            return;
        };
        match self.how {
            How::Set => set_field(head, &name, &self.value),
            How::Add => head.append_named(&name, &self.value),
            How::Append => {
                let before: Vec<&[u8]> = head.get_all(&name).collect();
                if !before.is_empty() {
                    let joined = [&before.join(&b","[..])[..], &self.value].join(&b","[..]);
                    set_field(head, &name, &joined);
                }
            }
            How::Remove if name.name() == Name::Host => {}
            How::Remove => {
                head.remove_named(&name);
            }
        }
    }
}

fn set_field(head: &mut Head, name: &HeaderName, value: &[u8]) {
    if name.name() == Name::Host {
        head.set_authority(value);
    } else {
        head.set_named(name, value);
    }
}

/// What the server sees of the content.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    /// There may be more.
    pub(super) is_partial: bool,
    pub(super) as_bytes: bool,
}

impl Content {
    fn of(chunks: &[Bytes], body: Body) -> Self {
        let mut bytes = chunks.concat();
        let is_partial = body.partial && bytes.len() >= body.limit;
        bytes.truncate(body.limit);
        Self { bytes, is_partial, as_bytes: body.as_bytes }
    }

    /// What the field [`PARTIAL`] says of it.
    pub(super) const fn flag(&self) -> &'static [u8] {
        if self.is_partial { b"true" } else { b"false" }
    }
}

/// Whether the server sees only a part of the content.
pub(super) const PARTIAL: &[u8] = b"x-envoy-auth-partial-body";
const FAILURE_ALLOWED: &[u8] = b"x-envoy-auth-failure-mode-allowed";
/// Of the dynamic metadata.
const NAMESPACE: &str = "envoy.filters.http.ext_authz";
