//! One request, encoded once.

use serde::{Deserialize, Serialize};

use super::{Entry, Plan, Protocol, websocket};

/// What each request is. For TCP only the body counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// `GET`, or `POST` when there is a body, unless given.
    pub method: Option<String>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The body; for TCP, the bytes sent and expected back.
    pub body: Vec<u8>,
}

impl Request {
    /// A body of `size` printable bytes.
    pub fn with_body(size: usize) -> Self {
        Self { body: crate::origin::filler(size).to_vec(), ..Self::default() }
    }

    /// Makes it a call of gRPC: the body becomes one message.
    pub fn make_grpc(&mut self) {
        self.method = Some("POST".to_owned());
        self.body = super::http2::grpc_message(&self.body);
        let fields = [("content-type", "application/grpc"), ("te", "trailers")];
        self.headers.extend(fields.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    /// Whether it is a call of gRPC.
    pub(crate) fn is_grpc(&self) -> bool {
        let is_said = |(name, value): &(String, String)| {
            name.eq_ignore_ascii_case("content-type") && value.starts_with("application/grpc")
        };
        self.headers.iter().any(is_said)
    }

    pub(super) fn is_head(&self) -> bool {
        self.method.as_deref() == Some("HEAD")
    }
}

/// The bytes that a request of `plan` consists of.
pub(super) fn encode(plan: &Plan, entry: &Entry) -> Vec<u8> {
    let request = &entry.request;
    match plan.protocol {
        Protocol::Tcp => return request.body.clone(),
        Protocol::WebSocket => return websocket::message(plan),
        Protocol::Http1 | Protocol::Http2 | Protocol::Bolt => {}
    }
    let path = entry.path.as_deref().unwrap_or(&plan.target.path);
    let has =
        |wanted: &str| request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let method =
        request.method.as_deref().unwrap_or(if request.body.is_empty() { "GET" } else { "POST" });
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !has("host") {
        text += &format!("Host: {}\r\n", plan.target.authority);
    }
    if !has("content-length") && (!request.body.is_empty() || method == "POST" || method == "PUT") {
        text += &format!("Content-Length: {}\r\n", request.body.len());
    }
    if !plan.keep_alive && !has("connection") {
        text += "Connection: close\r\n";
    }
    for (name, value) in &request.headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(&request.body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_what_was_asked_and_no_header_twice() {
        let mut plan = Plan::new("http://127.0.0.1:1/x".parse().unwrap());
        let mut entry = Entry::default();
        assert_eq!(encode(&plan, &entry), b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
        entry.request.body = b"hi".to_vec();
        entry.request.headers.push(("host".to_owned(), "a".to_owned()));
        entry.path = Some("/y".to_owned());
        plan.keep_alive = false;
        assert_eq!(
            encode(&plan, &entry),
            b"POST /y HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\nhost: a\r\n\r\nhi"
        );
        plan.protocol = Protocol::Tcp;
        assert_eq!(encode(&plan, &entry), b"hi");
    }
}
