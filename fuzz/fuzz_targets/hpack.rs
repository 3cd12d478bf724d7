//! Header blocks to a decoder, with changes of its table's size between them. What comes out is written by our
//! encoder and read again. A block is what a length in one octet says; a length of 255 is a change of size instead.
#![no_main]

use bytes::BytesMut;
use towpath_proto::http2::hpack::{Decoder, Encoder, Error, FieldName, Limits};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&[own, most], mut data)) = data.split_first_chunk() else { return };
    let limits = Limits { max_list_size: 64 * usize::from(most), max_fields: 1 + usize::from(most) / 4 };
    let mut ends = Ends {
        decoder: Decoder::new(4096),
        encoder: Encoder::new(16 * u32::from(own)),
        reader: Decoder::new(4096),
        limits,
    };
    while let Some((&length, behind)) = data.split_first() {
        data = behind;
        if length == u8::MAX {
            let Some((&size, behind)) = data.split_first() else { return };
            data = behind;
            let size = 32 * u32::from(size);
            ends.decoder.set_max_size(size);
            ends.encoder.set_max_size(size);
            ends.reader.set_max_size(size);
            continue;
        }
        let (block, behind) = data.split_at(usize::from(length).min(data.len()));
        data = behind;
        if ends.exchange(block).is_err_and(Error::is_fatal) {
            return;
        }
    }
});

struct Ends {
    decoder: Decoder,
    encoder: Encoder,
    reader: Decoder,
    limits: Limits,
}

type Fields = Vec<(Vec<u8>, Vec<u8>, bool)>;

impl Ends {
    fn exchange(&mut self, block: &[u8]) -> Result<(), Error> {
        let (fields, answer) = fields(&mut self.decoder, block, &self.limits);
        let size: usize = fields.iter().map(|(name, value, _)| name.len() + value.len() + 32).sum();
        assert!(fields.len() <= self.limits.max_fields && size <= self.limits.max_list_size);
        assert!(self.decoder.capacity() <= 64 * 1024, "what is held has a limit");

        let mut again = BytesMut::new();
        self.encoder.begin(&mut again);
        for (name, value, never_indexed) in &fields {
            self.encoder.field(FieldName::resolve(name), value, *never_indexed, &mut again);
        }
        let (read, outcome) = self::fields(&mut self.reader, &again, &self.limits);
        assert_eq!(outcome, Ok(()));
        assert_eq!(read.len(), fields.len());
        for (read, sent) in read.iter().zip(&fields) {
            assert_eq!((read.0.to_ascii_lowercase(), &read.1), (sent.0.to_ascii_lowercase(), &sent.1));
            assert!(read.2 || !sent.2, "what must not be indexed stays so");
        }
        answer
    }
}

fn fields(decoder: &mut Decoder, block: &[u8], limits: &Limits) -> (Fields, Result<(), Error>) {
    let mut fields = Fields::new();
    let answer = decoder.decode(block, limits, &mut |field| {
        assert_eq!(FieldName::resolve(field.name.as_bytes()), field.name);
        fields.push((field.name.as_bytes().to_vec(), field.value.to_vec(), field.never_indexed));
    });
    (fields, answer)
}
