//! The types of the `http` crate, both ways.
//!
//! Arrives: a request of theirs, whose body is here as a whole; leaves: a response of theirs, whose body is read as
//! that of any [`Response`]. What has its body in pieces goes by `Service` (feature `tower`).

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::{Body, Client, Error, Request, Response, Version};

impl Client {
    /// A request of the `http` crate, as [`Client::request`] makes one: with this client's defaults, and what is said
    /// of it then (limits on time, repetitions). Its URI has to be absolute; its version and extensions do not count:
    /// see [`Request::http_versions`]. An empty body is none. Feature `http`.
    ///
    /// ```
    /// # use std::io::{Read, Write};
    /// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let origin = format!("http://{}", listener.local_addr()?);
    /// # std::thread::spawn(move || {
    /// #     let (mut stream, _) = listener.accept().unwrap();
    /// #     let (mut head, mut byte) = (Vec::new(), [0]);
    /// #     while !head.ends_with(b"hello") && stream.read(&mut byte).unwrap() == 1 {
    /// #         head.push(byte[0]);
    /// #     }
    /// #     stream.write_all(b"HTTP/1.1 201 Created\r\nLocation: /1\r\nContent-Length: 2\r\n\r\nok").unwrap();
    /// # });
    /// let client = towpath::Engine::new()?.client();
    /// let request = http::Request::post(format!("{origin}/notes"))
    ///     .header(http::header::CONTENT_TYPE, "text/plain")
    ///     .body("hello")?;
    /// let mut response: http::Response<towpath::Body> = client.http_request(request)?.send()?.into();
    /// assert_eq!(response.status(), http::StatusCode::CREATED);
    /// assert_eq!(response.headers()[http::header::LOCATION], "/1");
    /// assert_eq!(response.body_mut().bytes(1024)?, "ok");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Url`] where the URI cannot be asked, [`Error::NotAToken`] where a field's value is not UTF-8.
    pub fn http_request<B: Into<Bytes>>(
        &self,
        request: http::Request<B>,
    ) -> Result<Request, Error> {
        let (parts, body) = request.into_parts();
        let wanted = self.request(parts.method.as_str(), &parts.uri.to_string());
        let wanted = with_fields(wanted, &parts.headers)?;
        wanted.check()?;
        let body = body.into();
        Ok(if body.is_empty() { wanted } else { wanted.body(body) })
    }
}

/// What a body of this crate knows stays with it: trailers, the report. What the response alone knows (where redirects
/// led, its history) is asked before.
impl From<Response> for http::Response<Body> {
    fn from(ours: Response) -> Self {
        head(&ours).map(|()| ours.into_body())
    }
}

/// The request with these fields too.
pub(crate) fn with_fields(mut request: Request, fields: &HeaderMap) -> Result<Request, Error> {
    for (name, value) in fields {
        let value = std::str::from_utf8(value.as_bytes())
            .map_err(|_| Error::NotAToken(name.as_str().to_owned()))?;
        request = request.header(name.as_str(), value);
    }
    Ok(request)
}

/// A response's head.
pub(crate) fn head(ours: &Response) -> http::Response<()> {
    let mut theirs = http::Response::new(());
    *theirs.status_mut() = StatusCode::from_u16(ours.status()).unwrap_or_default();
    *theirs.version_mut() = match ours.version() {
        Version::Http10 => http::Version::HTTP_10,
        Version::Http11 => http::Version::HTTP_11,
        Version::Http2 => http::Version::HTTP_2,
        Version::Http3 | _ => http::Version::HTTP_3,
    };
    *theirs.headers_mut() = map(ours.headers());
    theirs
}

/// Fields that the `http` crate does not take are left out; there are none among those that were received.
pub(crate) fn map<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> HeaderMap {
    fields
        .filter_map(|(name, value)| {
            HeaderName::from_bytes(name).ok().zip(HeaderValue::from_bytes(value).ok())
        })
        .collect()
}
