//! A client that says what it is told, byte by byte.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use towpath_engine::message::Message;
use towpath_proto::Input;
use towpath_sim::{Orders, Script, World};

use crate::scene::{HTTP, address};

/// A client that sends these bytes at these times; answers what it got, and when it was left.
pub fn sends(world: &mut World<Message>, pieces: Vec<(u64, Vec<u8>)>) -> Rc<RefCell<Vec<u8>>> {
    let (got, mut pieces) = (Rc::new(RefCell::new(Vec::new())), pieces.into_iter().peekable());
    let (received, mut open) = (Rc::clone(&got), None);
    world.add(Script::new(
        |orders: &mut Orders<Message>| orders.connect(address(HTTP)),
        move |input, orders: &mut Orders<Message>, now| {
            match input {
                Input::Connected { connection, .. } => open = Some((connection, now)),
                Input::Received { chunk, .. } => received.borrow_mut().extend_from_slice(&chunk),
                Input::Ended { connection } => {
                    orders.close(connection, towpath_proto::Close::Flush);
                    open = None;
                }
                _ => {}
            }
            let Some((connection, since)) = open else { return };
            while let Some((at, bytes)) =
                pieces.next_if(|(at, _)| since + Duration::from_millis(*at) <= now)
            {
                assert!(at < u64::MAX);
                orders.send(connection, bytes);
            }
            if let Some((at, _)) = pieces.peek() {
                orders.wake_at(since + Duration::from_millis(*at));
            }
        },
    ));
    got
}

/// The preface, SETTINGS with this initial window, and the whole request of a GET, with no Huffman code in it.
pub fn opening(window: u32) -> (Vec<u8>, Vec<u8>) {
    let mut opening = towpath_proto::http2::PREFACE.to_vec();
    opening.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4]);
    opening.extend(window.to_be_bytes());
    let mut block = vec![0x82, 0x86, 0x84, 0x41, 8];
    block.extend(b"app.test");
    let mut frame = vec![0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1];
    frame.extend(block);
    (opening, frame)
}

/// The frame of a whole GET with one more field.
pub fn request_with(id: u8, name: &str, value: &str) -> Vec<u8> {
    request_of(id, &[(name, value)])
}

/// The same with these fields.
pub fn request_of(id: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let (_, mut frame) = opening(65_535);
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    for (name, value) in fields {
        frame.extend([0, length(name)]);
        frame.extend(name.as_bytes());
        frame.push(length(value));
        frame.extend(value.as_bytes());
    }
    (frame[2], frame[8]) = (u8::try_from(frame.len() - 9).unwrap(), id);
    frame
}
