//! A frame as the head of a message, for what routes, logs or bridges it.

use super::frame::{Frame, Kind};
use super::headers::Malformed;
use super::status::Status;
use crate::chars::{is_token, trim};
use crate::head::{Field, Head, HeadPool, Span};
use crate::name::Name;

impl Frame {
    /// The frame's service, where its block of headers says one: `service`, else `sofa_head_target_service`.
    #[must_use]
    pub fn service(&self) -> Option<&[u8]> {
        let headers = self.headers().ok()?;
        headers.get(SERVICE).or_else(|| headers.get(TARGET_SERVICE))
    }

    /// The method, where the block says one: `sofa_head_method_name`, else `method`.
    #[must_use]
    pub fn method(&self) -> Option<&[u8]> {
        let headers = self.headers().ok()?;
        headers.get(METHOD_NAME).or_else(|| headers.get(METHOD))
    }

    /// The same as a [`Head`]: a request is `POST /<service>/<method>`, a response has the HTTP status that stands for
    /// its own; the block's pairs are the fields.
    ///
    /// Pairs whose key cannot be a field's name are left out, and what could end a line is replaced in values, as by
    /// the head's own setters. No pair is taken for a well-known field: `connection` means nothing here. By a
    /// [`HeaderName`](crate::head::HeaderName) each is found.
    ///
    /// # Errors
    /// [`Malformed`] when the block is not made of whole pairs.
    pub fn head(&self, pool: &mut HeadPool) -> Result<Head, Malformed> {
        let headers = self.headers()?;
        let mut head = pool.take();
        head.attach(self.bytes().clone());
        head.set_foreign();
        let (mut service, mut target, mut name, mut method) = (None, None, None, None);
        for (key, value) in headers {
            match key {
                SERVICE => service = service.or(Some(value)),
                TARGET_SERVICE => target = target.or(Some(value)),
                METHOD_NAME => name = name.or(Some(value)),
                METHOD => method = method.or(Some(value)),
                _ => {}
            }
            if !is_token(key) {
                continue;
            }
            if trim(value).len() == value.len() && !value.iter().any(u8::is_ascii_control) {
                head.push(Field::line(Name::Custom, self.span(key), self.span(value), false));
            } else {
                head.append_custom(key, value);
            }
        }
        match self.kind() {
            Kind::Response => {
                head.set_status(self.status().unwrap_or(Status::UNKNOWN).to_http());
            }
            Kind::Request | Kind::Oneway => {
                head.set_method(b"POST");
                let service = service.or(target).unwrap_or_default();
                head.set_path_parts(service, name.or(method).unwrap_or_default());
            }
        }
        Ok(head)
    }

    /// Where a part of the frame stands in it.
    fn span(&self, part: &[u8]) -> Span {
        let start = part.as_ptr() as usize - self.bytes().as_ptr() as usize;
        Span::raw(start, start + part.len())
    }
}

const SERVICE: &[u8] = b"service";
const TARGET_SERVICE: &[u8] = b"sofa_head_target_service";
const METHOD_NAME: &[u8] = b"sofa_head_method_name";
const METHOD: &[u8] = b"method";
