//! How the socket of a host is chosen by a tree: Envoy's `Cluster.transport_socket_matcher`.

use crate::matcher::tree::Tree;
use crate::matcher::{HostSubject, Input, Subject};

/// A tree that leads to a cluster's sockets.
#[derive(Debug)]
pub struct SocketChoice {
    /// Each action is the place of a socket; none where nothing has the name that it says.
    tree: Tree<Option<u16>>,
    /// The objects of the filter state that it looks at.
    state: Vec<Box<str>>,
}

impl SocketChoice {
    /// A choice by a tree.
    #[must_use]
    pub fn new(tree: Tree<Option<u16>>) -> Self {
        let mut state = Vec::new();
        tree.inputs(&mut |input| {
            if let Input::SharedState(name) = input {
                state.push(name.clone());
            }
        });
        Self { tree, state }
    }

    /// The socket of a host; none where it is the cluster's own.
    #[must_use]
    pub fn find(&self, host: HostSubject<'_>) -> Option<u16> {
        self.tree.find(&Subject { host: Some(host), ..Subject::default() }).copied().flatten()
    }

    /// Whether it looks at the filter state: then it chooses for each connection that something goes along with.
    #[must_use]
    pub fn reads_state(&self) -> bool {
        !self.state.is_empty()
    }

    /// Whether it looks at an object of the filter state.
    pub(crate) fn reads(&self, name: &str) -> bool {
        self.state.iter().any(|known| **known == *name)
    }
}
