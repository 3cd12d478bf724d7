//! A name server for both: what it says is in the name.

use std::net::UdpSocket;
use std::sync::OnceLock;

/// The port of the one that all suites share.
pub(crate) fn port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        std::thread::spawn(move || serve(&socket));
        port
    })
}

/// `nx…` does not exist, `empty…` has no address, `fail…` is a failure of the server, `silent…` is not answered; all
/// others are at 127.0.0.1, for 300 s.
fn serve(socket: &UdpSocket) {
    let mut buffer = [0; 1500];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
        if let Some(answer) = answer(&buffer[..length]) {
            let _ = socket.send_to(&answer, peer);
        }
    }
}

fn answer(query: &[u8]) -> Option<Vec<u8>> {
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
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, u8::from(found), 0, 0, 0, 0]);
    answer.extend(question);
    if found {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}
