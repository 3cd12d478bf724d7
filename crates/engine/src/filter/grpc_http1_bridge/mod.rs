//! `envoy.filters.http.grpc_http1_bridge`: a client over HTTP/1.1 that makes a call of gRPC reads its end in the head.
//!
//! The response is collected, up to a limit: its status follows from the trailers.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use towpath_proto::head::Version;
use towpath_proto::{Head, Name};

use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, Release, Reply, RequestView, ResponseView,
    StreamFilter,
};
use crate::format::Facts;
use crate::grpc;
use crate::record::details;

/// Envoy `grpc_http1_bridge.v3.Config`.
#[derive(Clone, Copy, Debug)]
pub struct GrpcHttp1Bridge {
    /// `ignore_query_parameters`: the path goes on without its query.
    pub without_query: bool,
}

impl FilterConfig for GrpcHttp1Bridge {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(*self)
    }
}

impl HttpFilter for GrpcHttp1Bridge {
    fn on_request(&self, request: &mut RequestView<'_>) -> OnRequest {
        if !grpc::is_grpc(request.head) || request.head.version() == Version::Http2 {
            return OnRequest::Pass;
        }
        if self.without_query
            && let Some(end) = request.head.path().iter().position(|&byte| byte == b'?')
        {
            let path = request.head.path()[..end].to_vec();
            request.head.set_path(&path);
        }
        OnRequest::Watch(Box::new(Bridged::default()))
    }
}

/// A call whose end is told in the head.
#[derive(Debug, Default)]
struct Bridged {
    content: BytesMut,
}

impl StreamFilter for Bridged {
    fn on_response_head(&mut self, _response: &mut ResponseView<'_>) -> Release {
        self.content.clear();
        Release::AtEnd
    }

    fn on_response_data(&mut self, data: &mut Bytes, _facts: &Facts<'_>) -> Result<(), Reply> {
        if self.content.len() + data.len() > MOST_CONTENT {
            return Err(too_large());
        }
        self.content.extend_from_slice(&std::mem::take(data));
        Ok(())
    }

    fn release(
        &mut self,
        head: &mut Head,
        trailers: Option<&mut Head>,
        _facts: &Facts<'_>,
    ) -> Bytes {
        let content = self.content.split().freeze();
        if let Some(trailers) = trailers {
            if grpc::status_of(trailers).is_some_and(|said| said != 0) {
                head.set_status(503);
            }
            head.set_number(Name::ContentLength, content.len() as u64);
            for name in [Name::GrpcStatus, Name::GrpcMessage] {
                if let Some(value) = trailers.get(name) {
                    head.set(name, value);
                }
            }
            trailers.reset();
        }
        content
    }
}

fn too_large() -> Reply {
    Reply::new(500, b"Internal Server Error", details::RESPONSE_PAYLOAD_TOO_LARGE)
}

/// How much of a response is collected.
const MOST_CONTENT: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use towpath_proto::Instant;

    use super::*;
    use crate::record::Record;

    #[test]
    fn no_more_is_collected_than_the_limit() {
        let (record, mut bridged) = (Record::default(), Bridged::default());
        let facts = Facts::new(&record, Instant::ZERO);
        let mut whole = Bytes::from(vec![0; MOST_CONTENT]);
        assert!(bridged.on_response_data(&mut whole, &facts).is_ok());
        assert!(whole.is_empty(), "it is held back");
        let refused = bridged.on_response_data(&mut Bytes::from_static(b"x"), &facts);
        assert_eq!(refused.unwrap_err().head.status(), 500);
        let content = bridged.release(&mut Head::response(200), None, &facts);
        assert_eq!(content.len(), MOST_CONTENT);
    }
}
