//! Bodies and queries made of names and values: `application/x-www-form-urlencoded` (WHATWG URL §5) and
//! `multipart/form-data` (RFC 7578).

use std::fmt::Write as _;

use bytes::Bytes;

use crate::engine::random_seed;

/// The fields of a `multipart/form-data` body, in their order; for [`Request::multipart`](crate::Request::multipart).
#[derive(Clone, Debug, Default)]
#[must_use = "it is sent by a request"]
pub struct Form {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    /// Its fields, each with its line's end.
    head: String,
    content: Bytes,
}

impl Form {
    /// One without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// A field with a text.
    pub fn text(mut self, name: &str, text: &str) -> Self {
        let head = format!("content-disposition: form-data; name=\"{}\"\r\n", quoted(name));
        self.parts.push(Part { head, content: Bytes::copy_from_slice(text.as_bytes()) });
        self
    }

    /// A field with a file's content: `name` is the field's, `file_name` what the server is told that the file is
    /// called, `content_type` its media type, as `image/png`.
    pub fn file(
        mut self,
        name: &str,
        file_name: &str,
        content_type: &str,
        content: impl Into<Bytes>,
    ) -> Self {
        let (name, file_name) = (quoted(name), quoted(file_name));
        let content_type: String =
            content_type.chars().filter(|character| !character.is_control()).collect();
        let head = format!(
            "content-disposition: form-data; name=\"{name}\"; filename=\"{file_name}\"\r\n\
             content-type: {content_type}\r\n"
        );
        self.parts.push(Part { head, content: content.into() });
        self
    }

    /// Its media type, which has the boundary in it, and the body.
    pub(crate) fn encode(&self) -> (String, Bytes) {
        // That a content has 128 random bits in it by chance will not happen.
        let boundary = format!("towpath-{:016x}{:016x}", random_seed(), random_seed());
        let mut body = Vec::new();
        for Part { head, content } in &self.parts {
            body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n").as_bytes());
            body.extend_from_slice(content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        (format!("multipart/form-data; boundary={boundary}"), body.into())
    }
}

/// A name as browsers write it between quotes (WHATWG HTML, multipart/form-data encoding algorithm).
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

/// Names and values as `name=value&…`.
pub(crate) fn urlencoded<N: AsRef<str>, V: AsRef<str>>(
    pairs: impl IntoIterator<Item = (N, V)>,
) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push('&');
        }
        encode(name.as_ref(), &mut text);
        text.push('=');
        encode(value.as_ref(), &mut text);
    }
    text
}

fn encode(plain: &str, text: &mut String) {
    for byte in plain.bytes() {
        match byte {
            b' ' => text.push('+'),
            b'*' | b'-' | b'.' | b'_' => text.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => text.push(byte.into()),
            byte => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
}

/// Base64 with padding (RFC 4648 §4).
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for place in 0..4 {
            let six = bits >> (18 - 6 * place) & 63;
            let digit = if place <= three.len() { ALPHABET[six as usize] } else { b'=' };
            text.push(digit.into());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_encoded_as_browsers_do() {
        let pairs = [("a b", "c&d=e"), ("\u{fc}*-._~", ""), ("", "+%")];
        assert_eq!(urlencoded(pairs), "a+b=c%26d%3De&%C3%BC*-._%7E=&=%2B%25");
        assert_eq!(urlencoded::<&str, &str>([]), "");
    }

    #[test]
    fn a_form_has_its_parts_between_boundaries_and_no_name_gets_out_of_its_quotes() {
        let form =
            Form::new().text("to", "all").file("f\"\r\nx: y", "a.png", "image/\r\npng", "PNG");
        let (kind, body) = form.encode();
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(
            body,
            format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"to\"\r\n\r\nall\r\n\
                 --{boundary}\r\ncontent-disposition: form-data; name=\"f%22%0D%0Ax: y\"; \
                 filename=\"a.png\"\r\ncontent-type: image/png\r\n\r\nPNG\r\n--{boundary}--\r\n"
            )
        );
        assert!(boundary.len() <= 70, "RFC 2046 §5.1.1");
        assert_ne!(form.encode().0, kind);
        assert_eq!(Form::new().encode().1.iter().filter(|byte| **byte == b'-').count(), 5);
    }

    #[test]
    fn base64_has_the_vectors_of_rfc_4648() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }
}
