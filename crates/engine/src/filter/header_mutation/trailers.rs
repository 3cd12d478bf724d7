//! Trailers that are changed, of a stream whose head has been.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use towpath_proto::Head;

use super::{HeaderMutation, TrailerMutations};
use crate::filter::{Direction, Release, ResponseView, StreamFilter};
use crate::format::Facts;
use crate::header_ops::Scratch;

/// A stream whose trailers are changed, where some come.
#[derive(Debug)]
pub(super) struct Trailing {
    config: Rc<HeaderMutation>,
    /// In their order.
    mutations: Vec<Arc<TrailerMutations>>,
    /// The response's head, which what is written into its trailers may ask for.
    response: Option<Box<Head>>,
}

impl Trailing {
    pub(super) fn new(config: &Rc<HeaderMutation>, mutations: Vec<Arc<TrailerMutations>>) -> Self {
        Self { config: Rc::clone(config), mutations, response: None }
    }
}

impl StreamFilter for Trailing {
    fn keeps_request_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> bool {
        let Some(trailers) = trailers else { return false };
        let mut scratch = Scratch::default();
        for mutations in &self.mutations {
            mutations.apply(trailers, Direction::Request, facts, &mut scratch);
        }
        false
    }

    fn on_response_head(&mut self, response: &mut ResponseView<'_>) -> Release {
        self.config.change_response(response);
        if self.mutations.iter().any(|mutations| !mutations.response.is_empty()) {
            self.response = Some(Box::new(response.head.clone()));
        }
        Release::Now
    }

    fn on_response_end(&mut self, trailers: Option<&mut Head>, facts: &Facts<'_>) -> Bytes {
        let Some(trailers) = trailers else { return Bytes::new() };
        let facts = Facts { response: self.response.as_deref().or(facts.response), ..*facts };
        let mut scratch = Scratch::default();
        for mutations in &self.mutations {
            mutations.apply(trailers, Direction::Response, &facts, &mut scratch);
        }
        Bytes::new()
    }
}
