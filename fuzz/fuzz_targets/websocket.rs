//! Frames of one side: what is understood does not depend on how they are cut, texts are judged as a whole is, and
//! nothing is longer than what came.
#![no_main]

use towpath_fuzz::cut;
use towpath_proto::websocket::{Close, Frames, Item, Opcode, Sender, Utf8, Violation};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let sender = if choice & 1 == 0 { Sender::Client } else { Sender::Server };
    let frames = || Frames::of(sender).compressed(choice & 2 != 0);
    let whole = told(frames(), [bytes]);
    let pieces = cut(bytes, u64::from(choice));
    assert_eq!(told(frames(), pieces.iter().map(|piece| &piece[..])), whole);
    let held: usize = whole.0.iter().map(|(_, payload)| payload.len()).sum();
    assert!(held <= bytes.len());
});

/// Messages and control frames, and what ended them.
fn told<'b>(
    mut frames: Frames,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> (Vec<(Opcode, Vec<u8>)>, Option<Violation>) {
    let (mut told, mut message, mut utf8) = (Vec::new(), Vec::new(), Utf8::default());
    let mut fits = true;
    for mut piece in pieces {
        loop {
            match frames.next(&mut piece) {
                Ok(None) => break,
                Ok(Some(Item::Begin(..))) => {
                    message.clear();
                    (utf8, fits) = (Utf8::default(), true);
                }
                Ok(Some(Item::Piece(bytes))) => {
                    assert!(!bytes.is_empty());
                    fits = fits && utf8.take(bytes);
                    message.extend_from_slice(bytes);
                }
                Ok(Some(Item::End(opcode))) => {
                    assert_eq!(fits && utf8.is_whole(), std::str::from_utf8(&message).is_ok());
                    told.push((opcode, message.clone()));
                }
                Ok(Some(Item::Control(opcode, payload))) => {
                    assert!(payload.len() <= 125);
                    if let (Opcode::Close, Ok(Some(close))) = (opcode, Close::parse(payload)) {
                        assert_eq!(close.payload(), payload);
                    }
                    told.push((opcode, payload.to_vec()));
                }
                Err(violation) => return (told, Some(violation)),
            }
        }
    }
    (told, None)
}
