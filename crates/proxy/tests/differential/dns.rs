//! A name server for each of both: what it says is in the name. One that both asked would tell the second how long ago
//! the first began.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Its port.
pub(crate) fn start() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || serve(&socket));
    port
}

/// `nx…` does not exist, `empty…` has no address, `fail…` is a failure of the server, `silent…` is not answered; all
/// others are at 127.0.0.1, for 300 s. `growing…` is there for a second, and then at 127.0.0.2 as well. `several…` is
/// at 127.0.0.2 first, and then at 127.0.0.1.
fn serve(socket: &UdpSocket) {
    let mut buffer = [0; 1500];
    let mut growing = HashMap::new();
    while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
        if let Some(answer) = answer(&buffer[..length], &mut growing) {
            let _ = socket.send_to(&answer, peer);
        }
    }
}

fn answer(query: &[u8], growing: &mut HashMap<String, Instant>) -> Option<Vec<u8>> {
    let labels = query.get(12..)?;
    let end = labels.iter().position(|byte| *byte == 0)?;
    let question = labels.get(..end + 5)?;
    let name = String::from_utf8_lossy(labels.get(1..end)?).to_ascii_lowercase();
    let wants_v4 = question[end + 1..end + 3] == [0, 1];
    if name.starts_with("silent") {
        return None;
    }
    let code = match () {
        () if name.starts_with("nx") => 3,
        () if name.starts_with("fail") => 2,
        () => 0,
    };
    let found = code == 0 && wants_v4 && !name.starts_with("empty");
    let is_several = name.starts_with("several");
    let is_growing = name.starts_with("growing");
    let has_grown = is_growing
        && growing.entry(name).or_insert_with(Instant::now).elapsed() > Duration::from_millis(500);
    let hosts: &[u8] = match () {
        () if !found => &[],
        () if is_several => &[2, 1],
        () if has_grown => &[1, 2],
        () => &[1],
    };
    let count = u8::try_from(hosts.len()).unwrap();
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
    answer.extend(question);
    let ttl: u16 = if is_growing && !has_grown { 1 } else { 300 };
    for &host in hosts {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0]);
        answer.extend(ttl.to_be_bytes());
        answer.extend([0, 4, 127, 0, 0, host]);
    }
    Some(answer)
}
