//! What every driver must do. `driver_suite!(Runner)` runs all of it against one.

pub mod connecting;
pub mod ending;
pub mod forward;
pub mod listening;
pub mod puppet;
pub mod scene;
pub mod time;
pub mod traffic;

use std::thread::JoinHandle;
use std::time::Duration;

use towpath_io::{Handle, Listeners};
use towpath_proto::Machine;

/// A driver under test.
pub trait Runner {
    /// Starts a driver on a thread of its own.
    fn start<M>(
        make: impl FnOnce() -> M + Send + 'static,
        settings: Settings,
        mailbox: impl FnMut(M::Message) + Send + 'static,
    ) -> Running<M::Message>
    where
        M: Machine + 'static,
        M::Message: Send + 'static;
}

/// What the tests vary.
#[derive(Clone, Default)]
pub struct Settings {
    pub shard: usize,
    pub shards: usize,
    pub listeners: Listeners,
    pub max_messages: Option<usize>,
    pub linger: Option<Duration>,
}

/// A running driver; stopped when dropped.
pub struct Running<T> {
    pub handle: Handle<T>,
    pub thread: Option<JoinHandle<()>>,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("joined once").expect("the driver did not panic");
        }
    }
}

/// One `#[test]` for each story of the suite.
macro_rules! driver_suite {
    ($runner:ty: $($module:ident :: { $($story:ident),* $(,)? })*) => {
        $($(
            #[test]
            fn $story() {
                suite::$module::$story::<$runner>();
            }
        )*)*
    };
}
