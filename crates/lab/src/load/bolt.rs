//! Load in Bolt.
//!
//! Every request carries its connection and its number in the first sixteen bytes of its content, and the server gives
//! the content back: an answer counts only when it has the number *and* the content of a request that waits for it.

mod line;

use serde::{Deserialize, Serialize};
use towpath_proto::bolt::Version;

pub(super) use self::line::{Line, Template};

/// What is particular to Bolt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bolt {
    /// The version of the frames.
    #[serde(with = "VersionName")]
    pub version: Version,
    /// The name of the content's class.
    pub class: String,
    /// The codec's number: 1 is Hessian 2, which this generator does not write.
    pub codec: u8,
}

/// How [`Version`] is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Version")]
enum VersionName {
    V1,
    V2 { checksums: bool },
}

impl Default for Bolt {
    fn default() -> Self {
        Self { version: Version::V1, class: CLASS.to_owned(), codec: CODEC }
    }
}

/// The class and codec of contents that are bytes and nothing else; a Java server registers a serializer for them.
const CLASS: &str = "towpath.Bytes";
const CODEC: u8 = 11;
