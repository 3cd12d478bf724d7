//! Arbitrary bytes to a decoder of Bolt. The first eight choose the cuts.
#![no_main]

use bytes::Bytes;
use towpath_proto::bolt::{Decoder, Error, Options};
use towpath_proto::Out;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((seed, bytes)) = data.split_first_chunk::<8>() else { return };
    let whole = frames(&[Bytes::copy_from_slice(bytes)]);
    let cut = frames(&towpath_fuzz::cut(bytes, u64::from_le_bytes(*seed)));
    assert_eq!(whole, cut, "the answer depends on the cuts");
    let taken = whole.0.concat();
    assert!(bytes.starts_with(&taken), "frames are written as they came");
});

/// Each frame, written again under its own number, and what ended them.
fn frames(pieces: &[Bytes]) -> (Vec<Vec<u8>>, Option<Error>) {
    let mut decoder = Decoder::new(Options { max_frame: 2048 });
    let mut out = Out::new();
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.receive(piece.clone());
        loop {
            match decoder.poll() {
                Ok(Some(frame)) => {
                    // Everything that can be read is, for what it might do.
                    let _ = (
                        frame.codec(),
                        frame.timeout(),
                        frame.status(),
                        frame.class(),
                        frame.content(),
                    );
                    if let Ok(headers) = frame.headers() {
                        let _ = headers.count();
                    }
                    frame.write_as(frame.id(), &mut out);
                    frames.push(out.drain().collect::<Vec<_>>().concat());
                }
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(decoder.buffered() <= 2048 + piece.len(), "what is held has a limit");
    }
    (frames, None)
}
