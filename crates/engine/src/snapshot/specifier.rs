//! What finds the name of a request's cluster: Envoy's `ClusterSpecifierPlugin`.

use std::sync::Arc;

#[cfg(feature = "lua")]
use crate::filter::lua::LuaSpecifier;
use crate::matcher::tree::Tree;

/// Envoy `envoy.router.cluster_specifier_plugin.…`.
#[derive(Debug)]
pub enum Specifier {
    /// `MatcherClusterSpecifier`: where the tree leads nowhere, there is no cluster.
    Matcher(Tree<Arc<str>>),
    /// `LuaConfig`.
    #[cfg(feature = "lua")]
    Lua(LuaSpecifier),
    /// One that is not there and `is_optional`: requests that come to it have no route.
    Missing,
}

impl Specifier {
    /// Whether it looks at what is only known of recorded streams.
    pub(crate) fn reads_record(&self) -> bool {
        match self {
            Self::Matcher(tree) => tree.reads_record(),
            #[cfg(feature = "lua")]
            Self::Lua(_) => false,
            Self::Missing => false,
        }
    }
}
