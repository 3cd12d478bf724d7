//! The question as a call of `envoy.service.auth.v3.Authorization/Check`, and its answer.

mod question;

pub(super) use self::question::question;
use super::wire::{Allowed, CheckResponse, QueryParameter};
use super::{Change, CheckStatus, Decision, How, ResponseAction, changeable, is_value};
use crate::filter::Answer;
use crate::filter::grpc_service::message_of;
use crate::protobuf::{self, BoolValue, HeaderValue, HeaderValueOption};

/// What the span of a question says of its answer.
fn tags(answer: &Answer) -> Vec<(&'static str, &'static str)> {
    let Some(response) = message_of::<CheckResponse>(answer) else { return Vec::new() };
    let allows = response.status.is_none_or(|status| status.code == 0);
    let status = match (allows, response.error) {
        (true, _) => "ext_authz_ok",
        (false, None) => "ext_authz_unauthorized",
        (false, Some(_)) => "ext_authz_error",
    };
    vec![("ext_authz_status", status)]
}

pub(super) fn decision(answer: &Answer) -> Decision {
    message_of::<CheckResponse>(answer).map(of_response).unwrap_or_default()
}

fn of_response(response: CheckResponse) -> Decision {
    let CheckResponse { status, denied, ok, dynamic_metadata, error } = response;
    let of_ok = ok.as_ref().and_then(|ok| ok.dynamic_metadata.clone());
    let mut decision = Decision {
        metadata: of_ok.or(dynamic_metadata).map(protobuf::Struct::into_values).unwrap_or_default(),
        ..Decision::default()
    };
    if status.is_none_or(|status| status.code == 0) {
        decision.kind = CheckStatus::Allowed;
        decision.change(ok.unwrap_or_default());
        return decision;
    }
    let is_error = error.is_some();
    let denied = error.or(denied).unwrap_or_default();
    let code = denied.status.map(|status| status.code).and_then(|code| u16::try_from(code).ok());
    let status = code.filter(|code| (200..600).contains(code));
    for option in &denied.headers {
        let appends = is_error && option.append == Some(BoolValue { value: true });
        decision.add_field(option, appends);
    }
    let body = denied.body.into_bytes();
    decision.kind = match is_error {
        true => CheckStatus::Failed { status: status.unwrap_or_default(), body },
        false => CheckStatus::Denied { status: status.unwrap_or(403), body },
    };
    decision
}

impl Decision {
    fn add_field(&mut self, option: &HeaderValueOption, appends: bool) {
        let to = if appends { &mut self.append } else { &mut self.set };
        match field(option) {
            Some(field) => to.push(field),
            None => self.is_invalid = true,
        }
    }

    /// What becomes of a request that goes on.
    fn change(&mut self, ok: Allowed) {
        for option in &ok.headers {
            let appends = option.append == Some(BoolValue { value: true });
            let how = if appends { How::Append } else { How::Set };
            if let Some(header) = &option.header {
                self.changes.push(Change::new(how, header.key.as_bytes(), value(header)));
            }
        }
        let removed = ok.headers_to_remove.iter();
        self.changes.extend(removed.map(|name| Change::new(How::Remove, name.as_bytes(), b"")));
        self.changes.sort_by_key(|change| change.how);
        for option in &ok.response_headers_to_add {
            match field(option) {
                Some((name, value)) => {
                    self.response.push((response_action(option), name, value));
                }
                None => self.is_invalid = true,
            }
        }
        for parameter in ok.query_parameters_to_set {
            let QueryParameter { key, value } = parameter;
            match is_written(&key) && is_written(&value) {
                true => self.set_query.push((key.into_bytes(), value.into_bytes())),
                false => self.is_invalid = true,
            }
        }
        self.remove_query =
            ok.query_parameters_to_remove.into_iter().map(String::into_bytes).collect();
    }
}

/// Whether such a text can stand in a query as a name or a value.
fn is_written(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'&' | b'#'))
}

fn response_action(option: &HeaderValueOption) -> ResponseAction {
    match (option.append, option.append_action) {
        (Some(BoolValue { value: true }), _) => ResponseAction::Add,
        (Some(BoolValue { value: false }), _) => ResponseAction::Set,
        (None, 1) => ResponseAction::AddIfAbsent,
        (None, 2) => ResponseAction::Set,
        (None, 3) => ResponseAction::SetIfPresent,
        (None, _) => ResponseAction::Add,
    }
}

/// A field as a head can carry it.
fn field(option: &HeaderValueOption) -> Option<(towpath_proto::head::HeaderName, Vec<u8>)> {
    let header = option.header.as_ref()?;
    let name = changeable(header.key.as_bytes())?;
    let value = value(header);
    is_value(value).then(|| (name, value.to_vec()))
}

fn value(header: &HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() { header.value.as_bytes() } else { &header.raw_value }
}

#[cfg(test)]
mod tests;
