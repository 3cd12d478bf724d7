//! How large heads may be that filters have changed.

use towpath_proto::{Head, http1};

/// Limits of a connection manager on requests. The defaults are Envoy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Names and values together. Envoy `max_request_headers_kb`.
    pub bytes: usize,
    /// Fields, pseudo-fields included. Envoy `max_headers_count`.
    pub fields: usize,
}

impl HeadLimits {
    /// Those of requests that are received so.
    #[must_use]
    pub fn of(options: &http1::Options) -> Self {
        Self { bytes: options.max_head_bytes as usize, fields: options.max_fields as usize }
    }

    /// Whether a head is within them.
    #[must_use]
    pub fn allow(self, head: &Head) -> bool {
        field_count(head) <= self.fields && head.byte_size() <= self.bytes
    }
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { bytes: 60 * 1024, fields: MOST_FIELDS }
    }
}

/// Fields of a head that nothing else limits.
pub(crate) const MOST_FIELDS: usize = 100;

/// The fields of a head as Envoy counts them, pseudo-fields included.
fn field_count(head: &Head) -> usize {
    let pseudo = if head.status() == 0 {
        let parts = [head.method_bytes(), head.scheme(), head.authority(), head.path()];
        parts.iter().filter(|part| !part.is_empty()).count()
    } else {
        1
    };
    head.len() + pseudo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudo_fields_count() {
        let limits = HeadLimits { fields: 6, ..HeadLimits::default() };
        let mut head = Head::request(b"GET", b"http", b"h", b"/");
        for allows in [true, true, false] {
            head.append_bytes(b"a", b"");
            assert_eq!(limits.allow(&head), allows);
        }
        let mut response = Head::response(200);
        response.append_bytes(b"a", b"");
        assert_eq!(field_count(&response), 2);
        let bytes = |bytes| HeadLimits { bytes, ..HeadLimits::default() };
        let size = response.byte_size();
        assert!(bytes(size).allow(&response) && !bytes(size - 1).allow(&response));
    }
}
