//! What our encoder writes Python's `hpack` reads, and the other way round, with tables of many sizes and changes of
//! them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bytes::BytesMut;
use towpath_proto::http2::hpack::{Decoder, Encoder, FieldName, Limits};

#[test]
#[ignore = "needs Python's hpack: cargo xtask peers python, then TOWPATH_PEERS=target/peers/bin"]
fn blocks_are_read_by_another_implementation_and_its_blocks_by_us() {
    // Lines to Python: a size, or a block and its fields. Lines from it: blocks of its own with the same fields.
    let (mut told, mut sent) = (String::new(), Vec::new());
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut encoder = Encoder::new(4096);
        told.push_str("new\n");
        sent.push(Sent::New);
        for _ in 0..40 {
            if random.below(5) == 0 {
                let size = [0, 40, 100, 300, 1000, 4096, 8192][random.below(7)];
                encoder.set_max_size(size);
                let _ = writeln!(told, "size {size}");
                sent.push(Sent::Size(size));
            }
            let fields: Vec<_> = (0..random.below(10)).map(|_| random.field()).collect();
            let mut block = BytesMut::new();
            encoder.begin(&mut block);
            for (name, value, sensitive) in &fields {
                encoder.field(FieldName::resolve(name), value, *sensitive, &mut block);
            }
            let _ = writeln!(told, "block {} {}", hex(&block), written(&fields));
            sent.push(Sent::Block(fields));
        }
    }
    let said = python(&told);
    let mut blocks = said.lines();
    let mut decoder = Decoder::new(4096);
    for sent in sent {
        match sent {
            Sent::New => decoder = Decoder::new(4096),
            Sent::Size(size) => decoder.set_max_size(size),
            Sent::Block(fields) => {
                let block = unhex(blocks.next().expect("a block of Python's"));
                let read = read(&mut decoder, &block);
                assert_eq!(read.len(), fields.len());
                for (read, sent) in read.iter().zip(&fields) {
                    assert_eq!((&read.0, &read.1), (&sent.0, &sent.1));
                    // Python sends by its index what is in its table, secret or not.
                    assert!(sent.2 || !read.2);
                }
            }
        }
    }
    assert_eq!(blocks.next(), None);
}

enum Sent {
    New,
    Size(u32),
    Block(Vec<Field>),
}

/// Name, value, and whether it must not be indexed.
type Field = (Vec<u8>, Vec<u8>, bool);

fn read(decoder: &mut Decoder, block: &[u8]) -> Vec<Field> {
    let limits = Limits { max_list_size: 1 << 20, max_fields: 100 };
    let mut fields = Vec::new();
    let sink = &mut |field: towpath_proto::http2::hpack::Field<'_>| {
        fields.push((field.name.as_bytes().to_vec(), field.value.to_vec(), field.never_indexed));
    };
    decoder.decode(block, &limits, sink).unwrap();
    fields
}

fn python(told: &str) -> String {
    let folder = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
    let mut child = Command::new(PathBuf::from(folder).join("python"))
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let told = told.to_owned();
    let writer = std::thread::spawn(move || input.write_all(told.as_bytes()));
    let output = child.wait_with_output().unwrap();
    // Python says itself what it did not expect; it may not have read to the end then.
    assert!(output.status.success(), "Python failed");
    writer.join().unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A size is both ends' at once: Python's decoder allows it, its encoder uses it.
const SCRIPT: &str = "
import sys
from hpack import Decoder, Encoder, HeaderTuple, NeverIndexedHeaderTuple
for line in sys.stdin.read().splitlines():
    kind, *words = line.split(' ')
    if kind == 'new':
        decoder, encoder = Decoder(max_header_list_size=1 << 20), Encoder()
    elif kind == 'size':
        decoder.max_allowed_table_size = max(4096, int(words[0]))
        encoder.header_table_size = int(words[0])
    else:
        fields = []
        for field in words[1].split(',')[:-1]:
            name, value, never = field.split(':')
            fields.append((bytes.fromhex(name), bytes.fromhex(value), never == '1'))
        read = decoder.decode(bytes.fromhex(words[0]), raw=True)
        assert [tuple(field) for field in read] == [field[:2] for field in fields], (read, fields)
        for field, (_, _, never) in zip(read, fields):
            assert not never or isinstance(field, NeverIndexedHeaderTuple), field
        out = [(NeverIndexedHeaderTuple if never else HeaderTuple)(*field) for *field, never in fields]
        print(encoder.encode(out, huffman=len(fields) % 2 == 0).hex())
";

fn written(fields: &[Field]) -> String {
    let field = |(name, value, never): &Field| {
        format!("{}:{}:{},", hex(name), hex(value), u8::from(*never))
    };
    fields.iter().map(field).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn unhex(text: &str) -> Vec<u8> {
    let octet = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks(2).map(octet).collect()
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

    /// Names that neither end takes for secrets, so that both mark the same fields.
    fn field(&mut self) -> Field {
        let names =
            [":method", ":path", ":status", "host", "accept-encoding", "age", "x-a", "x-b", "x-c"];
        let name = names[self.below(names.len())].as_bytes().to_vec();
        let value = match self.below(10) {
            0 => (0..self.below(300)).map(|_| self.below(256) as u8).collect(),
            1..4 => format!("{}", self.below(100_000)).into_bytes(),
            4 => Vec::new(),
            _ => format!("/value/{}", self.below(6)).into_bytes(),
        };
        (name, value, self.below(10) == 0)
    }
}
