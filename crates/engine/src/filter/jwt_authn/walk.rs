//! One request: its tokens are looked for and verified, as far as its requirement asks for them.

use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use towpath_proto::{Head, Name};

use super::locations::Found;
use super::requirement::{Lenience, Requirement, Tokens};
use super::state::{Fetch, Shared};
use super::status::Status;
use super::token::Token;
use super::{ClaimHeader, Keys, Lifetime, Provider};
use crate::filter::realm::realm;
use crate::filter::{Answer, Callout, OnAnswer, OnRequest, Reply, RequestView, StreamFilter};
use crate::record::Flags;
use crate::stream_info::{JsonStyle, Struct, Value, value_at, write_struct};

/// A request on its way through its requirement.
#[derive(Debug)]
pub(super) struct Walk {
    shared: Rc<Shared>,
    requirement: Arc<Requirement>,
    /// By the numbers of the requirement's [`Tokens`].
    leaves: Vec<Option<Leaf>>,
    /// What has come of questions for keys, by the numbers of providers.
    fetched: Vec<(usize, Option<Arc<Keys>>)>,
    fetch: Option<Rc<Fetch>>,
    metadata: Struct,
    reroutes: bool,
    /// A claim that no header can say.
    unsayable: Option<Box<str>>,
    /// What is protected, as a refusal says it.
    realm: Vec<u8>,
}

type Outcome = Result<(), Status>;

/// Tokens that are verified together.
#[derive(Debug, Default)]
struct Leaf {
    /// The last one is the next.
    found: Vec<Found>,
    /// One whose keys are asked for, and its provider.
    waiting: Option<(Found, Rc<Token>, usize)>,
    outcome: Option<Outcome>,
}

/// How far a walk has come.
enum Step {
    Done(Outcome),
    Ask(Box<Callout>),
}

/// A token of a request as far as its keys.
enum Checked {
    Verified(Rc<Token>, usize),
    Waits(Rc<Token>, usize),
}

impl Walk {
    pub(super) fn new(
        shared: Rc<Shared>,
        requirement: Arc<Requirement>,
        request: &RequestView<'_>,
    ) -> Self {
        Self {
            shared,
            leaves: std::iter::repeat_with(|| None).take(requirement.leaves()).collect(),
            requirement,
            fetched: Vec::new(),
            fetch: None,
            metadata: Struct::new(),
            reroutes: false,
            unsayable: None,
            realm: realm(request.head),
        }
    }

    pub(super) fn begin(mut self, request: &mut RequestView<'_>) -> OnRequest {
        match self.step(request) {
            Step::Ask(callout) => OnRequest::Ask(Box::new(self), callout),
            Step::Done(outcome) => match self.conclude(outcome, request) {
                Some(reply) => OnRequest::Answer(reply),
                None => OnRequest::Pass,
            },
        }
    }

    fn step(&mut self, request: &mut RequestView<'_>) -> Step {
        let requirement = Arc::clone(&self.requirement);
        if let Some(outcome) = self.judge(&requirement, 0, request) {
            return Step::Done(outcome);
        }
        let mut waiting = self.leaves.iter().flatten().filter_map(|leaf| leaf.waiting.as_ref());
        let provider = waiting.next().map(|(_, _, provider)| *provider);
        match provider.and_then(|provider| self.shared.fetch(provider)) {
            Some((fetch, callout)) => {
                self.fetch = Some(fetch);
                Step::Ask(callout)
            }
            None => Step::Done(Err(Status::FetchFailed)),
        }
    }

    /// Whether a requirement is met; `None` while it waits for keys. `first` is the number of its first leaf.
    fn judge(
        &mut self,
        requirement: &Requirement,
        mut first: usize,
        request: &mut RequestView<'_>,
    ) -> Option<Outcome> {
        match requirement {
            Requirement::Nothing => Some(Ok(())),
            Requirement::Tokens(tokens) => self.judge_tokens(tokens, first, request),
            Requirement::Any(parts) => {
                let (mut why, mut waits) = (Status::Missing, false);
                for part in parts {
                    match self.judge(part, first, request) {
                        Some(Ok(())) => return Some(Ok(())),
                        Some(Err(status)) if status.weight() >= why.weight() => why = status,
                        Some(Err(_)) => {}
                        None => waits = true,
                    }
                    first += part.leaves();
                }
                (!waits).then_some(Err(why))
            }
            Requirement::All(parts) => {
                let mut waits = false;
                for part in parts {
                    match self.judge(part, first, request) {
                        Some(Ok(())) => {}
                        Some(Err(status)) => return Some(Err(status)),
                        None => waits = true,
                    }
                    first += part.leaves();
                }
                (!waits).then_some(Ok(()))
            }
        }
    }

    fn judge_tokens(
        &mut self,
        tokens: &Tokens,
        number: usize,
        request: &mut RequestView<'_>,
    ) -> Option<Outcome> {
        let mut leaf = match self.leaves.get_mut(number)?.take() {
            Some(leaf) => leaf,
            None => Leaf { found: tokens.begin(request.head), ..Leaf::default() },
        };
        while leaf.outcome.is_none() && !self.judge_next(tokens, &mut leaf, request) {}
        let outcome = leaf.outcome;
        *self.leaves.get_mut(number)? = Some(leaf);
        outcome
    }

    /// Verifies the next token; says whether keys are waited for.
    fn judge_next(
        &mut self,
        tokens: &Tokens,
        leaf: &mut Leaf,
        request: &mut RequestView<'_>,
    ) -> bool {
        let (found, checked, provider) = match leaf.waiting.take() {
            Some((found, token, provider)) => {
                let verified = match self.verify(&token, provider, request) {
                    None => {
                        leaf.waiting = Some((found, token, provider));
                        return true;
                    }
                    Some(Ok(())) => Ok(Checked::Verified(token, provider)),
                    Some(Err(status)) => Err(status),
                };
                (found, verified, Some(provider))
            }
            None => {
                let Some(found) = leaf.found.pop() else {
                    leaf.outcome = Some(tokens.lenience.of_end(Err(Status::Missing)));
                    return false;
                };
                let mut provider = tokens.provider;
                let checked = self.check(tokens, &found, &mut provider, request);
                (found, checked, provider)
            }
        };
        let outcome = match checked {
            Ok(Checked::Waits(token, provider)) => {
                leaf.waiting = Some((found, token, provider));
                return true;
            }
            Ok(Checked::Verified(token, provider)) => {
                self.take(tokens, &found, &token, provider, request);
                Ok(())
            }
            Err(status) => {
                self.note_failure(status, provider);
                if let Lenience::Told(header) = &tokens.lenience {
                    request.head.set_named(header, b"false");
                }
                Err(status)
            }
        };
        let goes_on = outcome.is_ok() || tokens.lenience != Lenience::None;
        if !goes_on || leaf.found.is_empty() {
            leaf.outcome = Some(tokens.lenience.of_end(outcome));
        }
        false
    }

    /// All that can be said of a token, and what its signature is worth if the keys are there.
    fn check(
        &self,
        tokens: &Tokens,
        found: &Found,
        provider: &mut Option<usize>,
        request: &RequestView<'_>,
    ) -> Result<Checked, Status> {
        let now = unix_seconds(request);
        let known = provider.and_then(|number| self.shared.good_token(number, &found.text, now));
        let token = match &known {
            Some(token) => Rc::clone(token),
            None => Rc::new(Token::parse(&found.text)?),
        };
        if !tokens.locations.allows(found.at, &token.issuer) {
            return Err(Status::UnknownIssuer);
        }
        *provider = provider.or_else(|| self.provider_of(&token.issuer));
        let number = provider.ok_or(Status::UnknownIssuer)?;
        let config = self.shared.config.providers.get(number).ok_or(Status::UnknownIssuer)?;
        config.check(tokens, &token, now)?;
        match known {
            Some(token) => Ok(Checked::Verified(token, number)),
            None => match self.verify(&token, number, request) {
                Some(Ok(())) => Ok(Checked::Verified(token, number)),
                Some(Err(status)) => Err(status),
                None => Ok(Checked::Waits(token, number)),
            },
        }
    }

    /// The provider of an issuer, or the first one of any issuer.
    fn provider_of(&self, issuer: &str) -> Option<usize> {
        let with = |wanted: &str| {
            self.shared.config.providers.iter().position(|provider| *provider.issuer == *wanted)
        };
        with(issuer).or_else(|| with(""))
    }

    /// Whether a provider's keys have signed a token; `None` while they are not there.
    fn verify(&self, token: &Token, provider: usize, request: &RequestView<'_>) -> Option<Outcome> {
        let fetched = self.fetched.iter().find(|(number, _)| *number == provider);
        let keys = match fetched {
            Some((_, None)) => return Some(Err(Status::FetchFailed)),
            Some((_, Some(keys))) => Arc::clone(keys),
            None => self.shared.keys(provider, request.facts.now)?,
        };
        Some(keys.verify(token))
    }

    /// Passes on what a good token says, and takes the token away.
    fn take(
        &mut self,
        tokens: &Tokens,
        found: &Found,
        token: &Rc<Token>,
        number: usize,
        request: &mut RequestView<'_>,
    ) {
        let shared = Rc::clone(&self.shared);
        let Some(provider) = shared.config.providers.get(number) else { return };
        if let Some(name) = &provider.payload_header {
            let mut payload = token.encoded_payload.clone().into_string();
            if provider.pads_payload {
                let padding = (4 - payload.len() % 4) % 4;
                payload.extend(std::iter::repeat_n('=', padding));
            }
            request.head.append_named(name, payload.as_bytes());
        }
        let mut has_claims = false;
        for claim in &provider.claims {
            has_claims |= self.take_claim(claim, token, request.head);
        }
        if !provider.forwards {
            tokens.locations.remove(found.at, request.head);
        }
        if !provider.header_key.is_empty() {
            let header = Value::Struct(token.header.clone());
            self.metadata.insert(provider.header_key.clone(), header);
        }
        if !provider.payload_key.is_empty() {
            let payload = Value::Struct(provider.divided(token.payload.clone()));
            self.metadata.insert(provider.payload_key.clone(), payload);
        }
        let changes = has_claims || !provider.payload_key.is_empty();
        self.reroutes |= provider.clears_route && changes;
        if tokens.provider.is_some() {
            shared.keep_token(number, &found.text, token);
        }
    }

    fn take_claim(&mut self, claim: &ClaimHeader, token: &Token, head: &mut Head) -> bool {
        let value = value_at(&token.payload, &claim.path);
        let Some(text) = value.and_then(claim_text).filter(|text| !text.is_empty()) else {
            return false;
        };
        if text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            self.unsayable = Some(claim.header.as_str().into());
            return false;
        }
        head.append_named(&claim.header, text.as_bytes());
        true
    }

    fn note_failure(&mut self, status: Status, provider: Option<usize>) {
        let provider = provider.and_then(|number| self.shared.config.providers.get(number));
        let Some(key) = provider.map(|it| &it.failure_key).filter(|key| !key.is_empty()) else {
            return;
        };
        let code = ("code".into(), Value::Number(status.code().into()));
        let message = ("message".into(), Value::text(status.text().as_bytes()));
        let entries = [code, message].into_iter().collect();
        self.metadata.insert(key.clone(), Value::Struct(entries));
    }

    /// Leaves behind what there is to say, and the refusal of a request that is not let through.
    fn conclude(&mut self, outcome: Outcome, request: &mut RequestView<'_>) -> Option<Reply> {
        let shared = Rc::clone(&self.shared);
        let metadata = std::mem::take(&mut self.metadata);
        if let (Some(info), false) = (request.facts.info, metadata.is_empty()) {
            // What is too much for one stream is left out, as a whole.
            let _ = info.add_metadata(NAMESPACE, metadata);
        }
        let Err(status) = outcome else {
            shared.stats.allowed.inc();
            request.reroutes |= self.reroutes;
            return self.unsayable.take().map(|header| refuse_header(&header));
        };
        shared.stats.denied.inc();
        if shared.config.silent {
            return Some(Reply::new(status.response(), b"", status.details()));
        }
        let body = status.text().as_bytes();
        let mut reply = Reply::new(status.response(), body, status.details());
        let mut challenge = [b"Bearer realm=\"", &self.realm[..], b"\""].concat();
        if status != Status::Missing {
            challenge.extend_from_slice(b", error=\"invalid_token\"");
        }
        reply.head.set(Name::WwwAuthenticate, &challenge);
        Some(reply)
    }
}

impl StreamFilter for Walk {
    fn on_answer(&mut self, answer: &Answer, request: &mut RequestView<'_>) -> OnAnswer {
        if let Some(fetch) = self.fetch.take() {
            let keys = self.shared.outcome(&fetch, answer, request.facts.now);
            self.fetched.push((fetch.provider, keys));
        }
        match self.step(request) {
            Step::Ask(callout) => OnAnswer::Ask(callout),
            Step::Done(outcome) => match self.conclude(outcome, request) {
                Some(reply) => OnAnswer::Reply(reply),
                None => OnAnswer::GoOn,
            },
        }
    }
}

impl Tokens {
    /// Finds the tokens of a request, that have not failed yet.
    fn begin(&self, head: &mut Head) -> Vec<Found> {
        if let Lenience::Told(header) = &self.lenience {
            head.remove_named(header);
        }
        self.locations.find(head)
    }
}

impl Lenience {
    /// What the last outcome of several tokens is worth.
    fn of_end(&self, outcome: Outcome) -> Outcome {
        match (self, outcome) {
            (Self::Failed | Self::Told(_), _) | (Self::Missing, Err(Status::Missing)) => Ok(()),
            (Self::None | Self::Missing, outcome) => outcome,
        }
    }
}

impl Provider {
    /// Whether a token's claims are allowed at this second since 1970.
    fn check(&self, tokens: &Tokens, token: &Token, now: u64) -> Outcome {
        token.check_time(now, self.clock_skew_seconds)?;
        if !tokens.audiences.as_ref().unwrap_or(&self.audiences).allow(&token.audiences) {
            return Err(Status::AudienceNotAllowed);
        }
        let subject = token.subject.as_bytes();
        let is_subject = self.subjects.as_ref().is_none_or(|subjects| subjects.matches(subject));
        let ends = match (self.lifetime, token.expires()) {
            (Lifetime::Any, _) | (Lifetime::Ends, Some(_)) => true,
            (Lifetime::Below(most), Some(end)) => {
                u128::from(end.saturating_sub(now)) * 1_000_000_000 < most.as_nanos()
            }
            (Lifetime::Ends | Lifetime::Below(_), None) => false,
        };
        if is_subject && ends { Ok(()) } else { Err(Status::VerificationFails) }
    }

    /// A payload in which some claims are lists of words.
    fn divided(&self, mut payload: Struct) -> Struct {
        for claim in &self.divided_claims {
            if let Some(value) = payload.get_mut(claim)
                && let Value::String(text) = value
            {
                let words = text.split(' ').filter(|word| !word.is_empty());
                *value = Value::List(words.map(|word| Value::String(word.into())).collect());
            }
        }
        payload
    }
}

/// A claim as a header says it, as Envoy does.
fn claim_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(value) => Some(value.to_string()),
        Value::String(text) => Some(text.to_string()),
        Value::Number(number) if is_counted(*number) => Some((*number as u64).to_string()),
        Value::Number(number) => Some(format!("{number:.6}")),
        Value::List(_) => {
            let mut json = Vec::new();
            value.write_json(&mut json, JsonStyle::Protobuf);
            Some(STANDARD.encode(json))
        }
        Value::Struct(entries) => {
            let mut json = Vec::new();
            write_struct(&mut json, entries, JsonStyle::Protobuf);
            Some(STANDARD.encode(json))
        }
    }
}

fn is_counted(number: f64) -> bool {
    number >= 0.0 && number < u64::MAX as f64 && number.fract() == 0.0
}

fn refuse_header(name: &str) -> Reply {
    let text = format!("invalid header value for: {name}");
    let details = format!("filter_removed_required_request_headers{{{}}}", text.replace(' ', "_"));
    let mut reply = Reply::new(503, text.as_bytes(), crate::record::details::worded(&details));
    reply.flags.set(Flags::DOWNSTREAM_PROTOCOL_ERROR);
    reply
}

fn unix_seconds(request: &RequestView<'_>) -> u64 {
    let ns = request.facts.epoch_unix_ns.saturating_add(request.facts.now.as_nanos());
    ns / 1_000_000_000
}

/// Of the dynamic metadata.
const NAMESPACE: &str = "envoy.filters.http.jwt_authn";
