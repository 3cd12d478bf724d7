//! What our encoder writes, our decoder reads, at every size of the tables and with changes of it.

use super::*;

#[test]
fn fields_come_back_and_the_tables_stay_alike() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let sizes = [0, 31, 33, 40, 64, 100, 256, 1000, 4096, 10_000];
        let own = sizes[random.below(sizes.len())];
        let offered = sizes[random.below(sizes.len())];
        // What the decoder offers is the encoder's at once, as with an acknowledgement between two blocks.
        let (mut encoder, mut decoder) = (Encoder::new(own), Decoder::new(4096));
        encoder.set_max_size(offered);
        decoder.set_max_size(offered);
        for _ in 0..60 {
            for _ in 0..random.below(4).saturating_sub(1) {
                let size = sizes[random.below(sizes.len())];
                encoder.set_max_size(size);
                decoder.set_max_size(size);
            }
            exchange(&mut encoder, &mut decoder, &mut random, seed);
        }
    }
}

fn exchange(encoder: &mut Encoder, decoder: &mut Decoder, random: &mut Random, seed: u64) {
    let fields: Vec<_> = (0..random.below(12)).map(|_| random.field()).collect();
    let mut block = BytesMut::new();
    encoder.begin(&mut block);
    for (name, value, sensitive) in &fields {
        encoder.field(FieldName::resolve(name), value, *sensitive, &mut block);
    }
    let mut seen = Vec::new();
    let answer = decoder.decode(&block, &PLENTY, &mut |field| {
        seen.push((field.name.as_bytes().to_vec(), field.value.to_vec(), field.never_indexed));
        assert_eq!(FieldName::resolve(field.name.as_bytes()), field.name);
    });
    assert_eq!(answer, Ok(()), "seed {seed}");
    for (sent, (name, value, never_indexed)) in fields.iter().zip(&seen) {
        assert_eq!((&sent.0, &sent.1), (name, value), "seed {seed}");
        assert!(*never_indexed || !sent.2, "seed {seed}");
    }
    assert_eq!(fields.len(), seen.len(), "seed {seed}");
    assert_eq!(kept(&encoder.table), kept(&decoder.table), "seed {seed}");
    let (written, read) = (encoder.table.size(), decoder.table.size());
    assert!(written == read && read <= decoder.table.max(), "seed {seed}");
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as usize % limit
    }

    /// From few names and few values, so that many come again, and seldom a long or wild one.
    fn field(&mut self) -> (Vec<u8>, Vec<u8>, bool) {
        let names = [
            ":method",
            ":path",
            ":status",
            "host",
            "accept-encoding",
            "cookie",
            "authorization",
            "age",
            "x-request-id",
            "x-a",
            "x-b",
            "x-c",
            "a-name-that-is-longer-than-most-names-are",
        ];
        let name = names[self.below(names.len())].as_bytes().to_vec();
        let value = match self.below(20) {
            0 => (0..self.below(3000)).map(|_| self.below(256) as u8).collect(),
            1 => vec![b'0'; self.below(200)],
            2..8 => format!("{}", self.below(100_000)).into_bytes(),
            8 => Vec::new(),
            9 => b"gzip, deflate".to_vec(),
            _ => format!("/value/{}", self.below(6)).into_bytes(),
        };
        (name, value, self.below(20) == 0)
    }
}
