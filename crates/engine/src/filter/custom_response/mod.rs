//! `envoy.filters.http.custom_response`: answers of servers that are replaced by others.

use std::rc::Rc;
use std::sync::Arc;

use towpath_proto::Head;

use super::{
    FilterConfig, FilterScope, HttpFilter, OnRequest, Release, Reply, RequestView, ResponseFilter,
    ResponseView, RouteConfig, StreamFilter,
};
use crate::format::{Facts, Format};
use crate::header_ops::{HeaderOps, Subject as Whose};
use crate::matcher::Subject;
use crate::matcher::tree::Tree;

/// Envoy `CustomResponse`, of a chain or of a route: where its matcher leads a response, that is replaced. What the
/// most specific level says counts.
#[derive(Clone, Debug)]
pub struct CustomResponse(pub Option<Arc<Tree<LocalResponse>>>);

/// Envoy `LocalResponsePolicy`.
#[derive(Clone, Debug)]
pub struct LocalResponse {
    /// `status_code`; without it that of the response.
    pub status: Option<u16>,
    /// `body`: the content, or what the format has as `%LOCAL_REPLY_BODY%`; without it that has what is replaced, if
    /// it is an answer of this proxy's own.
    pub body: Option<Arc<str>>,
    /// `body_format`.
    pub format: Option<Format>,
    /// `response_headers_to_add`.
    pub headers: HeaderOps,
}

impl RouteConfig for CustomResponse {}

impl FilterConfig for CustomResponse {
    fn start(&self, _scope: &FilterScope) -> Rc<dyn HttpFilter> {
        Rc::new(Instance { config: self.clone() })
    }

    fn reads_record(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Instance {
    config: CustomResponse,
}

impl HttpFilter for Instance {
    fn on_request(&self, _request: &mut RequestView<'_>) -> OnRequest {
        OnRequest::Watch(Box::new(Watched { config: self.config.clone() }))
    }

    fn response_filter(&self) -> Option<&dyn ResponseFilter> {
        Some(self)
    }
}

impl ResponseFilter for Instance {
    fn on_response(&self, response: &mut ResponseView<'_>) {
        self.config.replace(response);
    }
}

#[derive(Debug)]
struct Watched {
    config: CustomResponse,
}

impl StreamFilter for Watched {
    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        self.config.replace(response);
        Release::Now
    }
}

impl CustomResponse {
    fn replace(&self, response: &mut ResponseView<'_>) {
        let record = response.facts.record;
        let subject = Subject {
            local: record.downstream_local.as_ref(),
            direct: record.downstream_direct_remote.as_ref(),
            remote: record.downstream_remote.as_ref(),
            server_name: record.server_name.as_deref().unwrap_or_default(),
            tls: record.downstream_tls.as_deref(),
            response: Some(response.head),
            is_local_reply: response.facts.is_local_reply,
            info: response.facts.info,
            ..Subject::default()
        };
        let of_level =
            |level: &Self| level.0.as_ref().and_then(|tree| tree.find(&subject).cloned());
        let found = response.route.all().find_map(of_level).or_else(|| of_level(self));
        if let Some(policy) = found {
            response.reply = Some(Box::new(policy.reply(response)));
        }
    }
}

impl LocalResponse {
    fn reply(&self, response: &mut ResponseView<'_>) -> Reply {
        let status = self.status.unwrap_or_else(|| response.head.status());
        let own = self.body.as_deref().map(str::as_bytes);
        let facts = Facts {
            response: Some(&*response.head),
            local_reply_body: own.unwrap_or(response.facts.local_reply_body),
            ..*response.facts
        };
        let body = match &self.format {
            None => own.unwrap_or_default().to_vec(),
            Some(format) => {
                let mut body = Vec::new();
                format.write(&mut body, &facts);
                body
            }
        };
        let mut head = Head::response(status);
        self.headers.apply(&mut head, Whose::Response, response.facts, response.scratch);
        Reply { head, ..Reply::new(status, &body, "") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Stream, scope};
    use super::*;
    use crate::matcher::Input;
    use crate::matcher::tree::{Branches, Outcome};

    /// Responses of 503 are replaced by this.
    fn config(policy: LocalResponse) -> CustomResponse {
        let found = [(b"503"[..].into(), Outcome::Act(policy))].into_iter().collect();
        CustomResponse(Some(Arc::new(Tree::new(Branches::Exact(Input::Status, found), None))))
    }

    fn policy(status: Option<u16>, body: &str, format: Option<&str>) -> LocalResponse {
        let format = format.map(|format| Format::parse(format).unwrap());
        LocalResponse { status, body: Some(body.into()), format, headers: HeaderOps::default() }
    }

    /// What takes the place of a response with this status.
    fn replaced(config: &CustomResponse, stream: &Stream, status: u16) -> Option<(u16, String)> {
        let filter = config.start(&scope());
        let (_, reply) = stream.respond(status, |view| {
            filter.response_filter().unwrap().on_response(view);
            view.reply.take()
        });
        let reply = reply?;
        Some((reply.head.status(), String::from_utf8(reply.body).unwrap()))
    }

    #[test]
    fn only_what_the_matcher_leads_to_is_replaced() {
        let stream = Stream::new(b"GET", &[]);
        let own = config(policy(Some(404), "gone", None));
        assert_eq!(replaced(&own, &stream, 503), Some((404, "gone".into())));
        assert_eq!(replaced(&own, &stream, 200), None);
        assert_eq!(replaced(&CustomResponse(None), &stream, 503), None);
        let kept = config(policy(None, "x", Some("%LOCAL_REPLY_BODY% of %RESPONSE_CODE%")));
        let (status, text) = replaced(&kept, &stream, 503).unwrap();
        assert!(status == 503 && text.starts_with("x of"), "{status} {text}");
    }

    #[test]
    fn what_the_route_says_counts_where_it_leads_somewhere() {
        let own = config(policy(None, "chain", None));
        let by_route = Stream::new(b"GET", &[]).on_route(config(policy(None, "route", None)));
        assert_eq!(replaced(&own, &by_route, 503), Some((503, "route".into())));
        let silent = Stream::new(b"GET", &[]).on_route(CustomResponse(None));
        assert_eq!(replaced(&own, &silent, 503), Some((503, "chain".into())));
    }
}
