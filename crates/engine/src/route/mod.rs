//! Picks the virtual host and the route of a request, and says what the route does to path and authority.

mod hash;
pub(crate) mod head;
pub mod path;
mod pick;
mod redirect;
pub(crate) mod rewrite;

pub use hash::{Hashed, request_hash};
pub(crate) use hash::{address_hash, cookie_value, state_hash};
pub use path::{PathRules, Sanitized};
pub use pick::Picked;
