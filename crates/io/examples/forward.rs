//! A TCP forwarder: the smallest useful machine on the readiness driver.
//!
//! `cargo run --release -p towpath-io --example forward -- LISTEN UPSTREAM`
#![expect(unreachable_pub, reason = "shared with the tests")]

#[path = "../tests/suite/forward.rs"]
mod forward;

use std::net::SocketAddr;

use towpath_io::readiness::{Driver, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (words.next(), words.next()) else {
        return Err("usage: forward LISTEN UPSTREAM".into());
    };
    let (listen, upstream): (SocketAddr, SocketAddr) = (listen.parse()?, upstream.parse()?);
    let machine = forward::Forward::new(listen.into(), upstream.into());
    let mut driver = Driver::new(machine, Options::default(), |bound| {
        eprintln!("forwarding {bound}");
    })?;
    Ok(driver.run()?)
}
