//! What really goes over a connection: bytes are passed on as they are, and the frames in them counted.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use towpath_proto::bolt::{Command, Decoder, Kind, Options, Version};

type Tally = Arc<Mutex<HashMap<(Version, Kind, Command), u64>>>;

/// Stands before a server.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    tally: Tally,
}

impl Tap {
    pub(crate) fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, tally) = (listener.local_addr().unwrap(), Tally::default());
        let seen = Arc::clone(&tally);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let seen = Arc::clone(&seen);
                    std::thread::spawn(move || pass(from, to, &seen));
                }
            }
        });
        Self { address, tally }
    }

    /// How many frames of this kind went by, in this version; a checksum belongs to the version.
    pub(crate) fn count(&self, version: Version, kind: Kind, command: Command) -> u64 {
        self.tally.lock().unwrap().get(&(version, kind, command)).copied().unwrap_or(0)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, tally: &Tally) {
    let (mut decoder, mut buffer) = (Decoder::new(Options::default()), vec![0; 64 * 1024]);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        decoder.receive(buffer[..count].to_vec().into());
        while let Some(frame) = decoder.poll().expect("both sides speak Bolt") {
            let checksums = frame.has_checksum();
            let version = match frame.version() {
                Version::V1 => Version::V1,
                Version::V2 { .. } => Version::V2 { checksums },
            };
            let key = (version, frame.kind(), frame.command());
            *tally.lock().unwrap().entry(key).or_default() += 1;
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // The other direction may have ended it already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
