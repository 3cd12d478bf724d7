//! The client library for Python: the native half of the package `towpath`, whose Python half is in `python/towpath`.
//!
//! | Module | What it holds |
//! |---|---|
//! | `engine` | `Engine`: one thread for all requests of a process |
//! | `options` | `Options`: how requests are treated |
//! | `exchange` | `Exchange`: one request and its response, blocking or for an event loop |
//! | `socket` | `Socket`: a WebSocket, `Sockets`: one that is opened again whenever it breaks |
//! | `wake` | how a thread or an event loop hears that an exchange goes on |
//! | `failure` | errors, as Python's half sorts them |
//!
//! The engine's thread never holds Python's lock and never waits for it: it wakes a thread by a futex, or an event
//! loop by one byte in a pipe for all exchanges that have something. A thread of Python that waits holds no lock of
//! Python's.
//!
//! Cost of a request that comes in one piece: four calls into this library, the body copied once each way, one object
//! of 0.5 KiB.

mod engine;
mod exchange;
mod failure;
mod options;
mod socket;
mod wake;

use pyo3::prelude::*;

#[pymodule]
mod _towpath {
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::exchange::Exchange;
    #[pymodule_export]
    use crate::failure::Failure;
    #[pymodule_export]
    use crate::options::{Options, Through};
    #[pymodule_export]
    use crate::socket::{Outgoing, Ping, Socket, Sockets};
    #[pymodule_export]
    use crate::wake::Hub;
}
