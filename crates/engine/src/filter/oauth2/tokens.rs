//! The question for tokens, and what the server has answered (RFC 6749 §4.1.3, §5.1 and §6).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use towpath_proto::{Head, Name};

use super::url::form_encoded;
use super::{AuthType, OAuth2};
use crate::filter::{Answer, Callout, Failed};
use crate::stream_info::{Value, read_json};

/// What tokens are asked for with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Grant<'a> {
    /// A code that the authorization server has sent the client with.
    Code { code: &'a [u8], verifier: &'a [u8], redirect_uri: &'a [u8] },
    /// A token that says who the client is.
    Refresh(&'a [u8]),
}

/// What the server gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) access: Vec<u8>,
    /// Empty means none.
    pub(super) id: Vec<u8>,
    /// Empty means none.
    pub(super) refresh: Vec<u8>,
    /// In seconds, at least 1.
    pub(super) expires_in: u64,
}

/// Why there are no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTokens {
    NoCluster,
    /// The request broke off, took too long, or its answer is too long.
    Failed,
    /// The answer is no 200.
    Status,
    /// The answer is no JSON, or holds something else in its place.
    Unread,
    /// The answer has none.
    Missing,
    /// Nothing says how long they hold.
    Endless,
}

impl NoTokens {
    /// In Envoy's words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::NoCluster => "Token endpoint cluster not found",
            Self::Failed => "Failed to get access token due to HTTP request failure",
            Self::Status => "Failed to get access token",
            Self::Unread => "Failed to parse oauth response body",
            Self::Missing => "No access token found in the token exchange response",
            Self::Endless => {
                "No default or explicit access token expiration found in the token exchange response"
            }
        }
    }

    /// The same as details.
    pub(super) const fn details(self) -> &'static str {
        match self {
            Self::NoCluster => "Token_endpoint_cluster_not_found",
            Self::Failed => "Failed_to_get_access_token_due_to_HTTP_request_failure",
            Self::Status => "Failed_to_get_access_token",
            Self::Unread => "Failed_to_parse_oauth_response_body",
            Self::Missing => "No_access_token_found_in_the_token_exchange_response",
            Self::Endless => {
                "No_default_or_explicit_access_token_expiration_found_in_the_token_exchange_response"
            }
        }
    }
}

/// The question.
pub(super) fn question(config: &OAuth2, grant: Grant<'_>) -> Box<Callout> {
    let endpoint = &config.token;
    let (authority, path) = (endpoint.authority.as_bytes(), endpoint.path.as_bytes());
    let mut head = Head::request(b"POST", b"http", authority, path);
    head.set_bytes(b"content-type", b"application/x-www-form-urlencoded");
    head.set_bytes(b"accept", b"application/json");
    head.set(Name::ContentLength, b"0");
    let id = form_encoded(config.client_id.as_bytes());
    let client = match config.auth {
        AuthType::UrlEncodedBody => {
            let secret = form_encoded(&config.client_secret);
            format!("&client_id={id}&client_secret={secret}")
        }
        AuthType::TlsClientAuth => format!("&client_id={id}"),
        AuthType::BasicAuth => {
            let both = [config.client_id.as_bytes(), b":", &config.client_secret].concat();
            let value = format!("Basic {}", STANDARD.encode(both));
            head.set(Name::Authorization, value.as_bytes());
            String::new()
        }
    };
    let client = client.as_bytes();
    let body = match grant {
        Grant::Code { code, verifier, redirect_uri } => [
            b"grant_type=authorization_code&code=",
            code,
            client,
            b"&redirect_uri=",
            form_encoded(redirect_uri).as_bytes(),
            b"&code_verifier=",
            verifier,
        ]
        .concat(),
        Grant::Refresh(token) => {
            let token = form_encoded(token);
            [b"grant_type=refresh_token&refresh_token=", token.as_bytes(), client].concat()
        }
    };
    crate::filter::callout::mark(&mut head, endpoint.timeout);
    Box::new(Callout {
        cluster: Arc::clone(&endpoint.cluster),
        head,
        body: Bytes::from(body),
        timeout: endpoint.timeout,
        max_bytes: MOST_BYTES,
        joint: None,
        retry: endpoint.retry.clone(),
        span: None,
    })
}

/// Reads an answer; `default` is how long tokens hold, in seconds, where it does not say so.
pub(super) fn read(answer: &Answer, default: u64) -> Result<Tokens, NoTokens> {
    let (head, body) = match answer {
        Answer::Failed(Failed::NoCluster) => return Err(NoTokens::NoCluster),
        Answer::Failed(Failed::TimedOut | Failed::Reset | Failed::TooLong) => {
            return Err(NoTokens::Failed);
        }
        Answer::Response { head, body, .. } => (head, body),
    };
    if head.status() != 200 {
        return Err(NoTokens::Status);
    }
    let fields = read_json(body).ok_or(NoTokens::Unread)?;
    // Each has two names, as all fields of messages.
    let field = |names: [&str; 2]| {
        let found = names.iter().find_map(|name| fields.get(*name));
        found.filter(|value| !matches!(value, Value::Null))
    };
    let text = |names| match field(names) {
        None => Ok(None),
        // What could not stand in a head is no token.
        Some(Value::String(text)) if text.bytes().all(is_plain) => {
            Ok(Some(text.as_bytes().to_vec()))
        }
        Some(
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::List(_)
            | Value::Struct(_),
        ) => Err(NoTokens::Unread),
    };
    let access = text(["access_token", "accessToken"])?;
    let id = text(["id_token", "idToken"])?.unwrap_or_default();
    let refresh = text(["refresh_token", "refreshToken"])?.unwrap_or_default();
    let expires_in = match field(["expires_in", "expiresIn"]) {
        None => None,
        Some(value) => Some(seconds(value).ok_or(NoTokens::Unread)?),
    };
    let access = access.ok_or(NoTokens::Missing)?;
    let expires_in = expires_in.unwrap_or(default);
    // Envoy counts with a sign.
    if expires_in == 0 || i64::try_from(expires_in).is_err() {
        return Err(NoTokens::Endless);
    }
    Ok(Tokens { access, id, refresh, expires_in })
}

/// A whole number, which may be written as a text.
fn seconds(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => {
            let is_whole = *number >= 0.0 && number.fract() == 0.0 && *number < u64::MAX as f64;
            is_whole.then_some(*number as u64)
        }
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::List(_) | Value::Struct(_) => None,
    }
}

/// What can stand in the value of a field.
pub(super) const fn is_plain(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Of an answer: browsers keep cookies of 4 KiB.
const MOST_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let body = Bytes::copy_from_slice(body.as_bytes());
        Answer::Response { head: Head::response(status), body, trailers: None }
    }

    #[test]
    fn an_answer_is_read_as_envoy_reads_it() {
        let whole =
            r#"{"access_token":"a","id_token":"i","refreshToken":"r","expires_in":"7","more":[1]}"#;
        let wanted = Tokens {
            access: b"a".to_vec(),
            id: b"i".to_vec(),
            refresh: b"r".to_vec(),
            expires_in: 7,
        };
        assert_eq!(read(&answer(200, whole), 0), Ok(wanted));
        for (status, body, default, wanted) in [
            (201, whole, 0, NoTokens::Status),
            (200, "", 5, NoTokens::Unread),
            (200, "[]", 5, NoTokens::Unread),
            (200, r#"{"access_token":1}"#, 5, NoTokens::Unread),
            (200, r#"{"access_token":"a\n"}"#, 5, NoTokens::Unread),
            (200, r#"{"access_token":"a","expires_in":-1}"#, 5, NoTokens::Unread),
            (200, r#"{"access_token":"a","expires_in":1.5}"#, 5, NoTokens::Unread),
            (200, r#"{"access_token":"a","expires_in":true}"#, 5, NoTokens::Unread),
            (200, r#"{"access_token":"a","expires_in":"+5"}"#, 5, NoTokens::Unread),
            (200, r#"{"access_token":null}"#, 5, NoTokens::Missing),
            (200, r#"{"access_token":"a"}"#, 0, NoTokens::Endless),
            (200, r#"{"access_token":"a","expires_in":0}"#, 5, NoTokens::Endless),
            (
                200,
                r#"{"access_token":"a","expires_in":"9223372036854775808"}"#,
                5,
                NoTokens::Endless,
            ),
        ] {
            assert_eq!(read(&answer(status, body), default), Err(wanted), "{body}");
        }
        for (failed, wanted) in [
            (Failed::NoCluster, NoTokens::NoCluster),
            (Failed::TooLong, NoTokens::Failed),
            (Failed::TimedOut, NoTokens::Failed),
            (Failed::Reset, NoTokens::Failed),
        ] {
            assert_eq!(read(&Answer::Failed(failed), 5), Err(wanted));
        }
    }

    #[test]
    fn details_are_the_words_without_blanks() {
        use NoTokens::{Endless, Failed, Missing, NoCluster, Status, Unread};
        for reason in [NoCluster, Failed, Status, Unread, Missing, Endless] {
            assert_eq!(reason.words().replace(' ', "_"), reason.details());
        }
    }
}
