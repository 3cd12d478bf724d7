//! What our encoder writes others read, and the other way round, with tables of every size and changes of them:
//! Python's `hpack`, Go's, and nghttp2's.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bytes::BytesMut;
use towpath_proto::http2::hpack::{Decoder, Encoder, FieldName, Limits};

#[test]
#[ignore = "needs Python's hpack: cargo xtask peers python, then TOWPATH_PEERS=target/peers/bin"]
fn pythons_hpack_and_ours_read_each_other() {
    exchange(Command::new(peer("python")).args(["-c", PYTHON]));
}

#[test]
#[ignore = "needs Go's peers: cargo xtask peers go-peers, then TOWPATH_PEERS=target/peers/bin"]
fn gos_hpack_and_ours_read_each_other() {
    exchange(Command::new(peer("go-peers")).arg("hpack"));
}

#[test]
#[ignore = "needs Python, and nghttp2's library"]
fn nghttp2_and_we_read_each_other() {
    exchange(Command::new(peer("python")).args(["-c", NGHTTP2]));
}

/// Lines to a peer: a size, or a block and its fields. Lines from it: blocks of its own with the same fields.
fn exchange(peer: &mut Command) {
    let (mut told, mut sent) = (String::new(), Vec::new());
    let begin = |told: &mut String, sent: &mut Vec<Sent>| {
        told.push_str("new\n");
        sent.push(Sent::New);
        Encoder::new(4096)
    };
    for seed in 0..60 {
        let (mut random, mut encoder) = (Random(seed), begin(&mut told, &mut sent));
        for _ in 0..40 {
            if random.below(5) == 0 {
                let sizes = [0, 40, 100, 300, 1000, 4096, 8192];
                let size = sizes[random.below(sizes.len())];
                resize(size, &mut encoder, &mut told, &mut sent);
            }
            block(&mut random, &mut encoder, &mut told, &mut sent);
        }
    }
    // At every size up to that of some fields, and around the usual one.
    for size in (0..400).chain(4090..4100) {
        let (mut random, mut encoder) = (Random(size.into()), begin(&mut told, &mut sent));
        resize(size, &mut encoder, &mut told, &mut sent);
        (0..8).for_each(|_| block(&mut random, &mut encoder, &mut told, &mut sent));
    }
    let said = ask(peer, &told);
    let mut blocks = said.lines();
    let mut decoder = Decoder::new(4096);
    for sent in sent {
        match sent {
            Sent::New => decoder = Decoder::new(4096),
            Sent::Size(size) => decoder.set_max_size(size),
            Sent::Block(fields) => {
                let block = unhex(blocks.next().expect("a block of the peer's"));
                let read = read(&mut decoder, &block);
                assert_eq!(read.len(), fields.len());
                for (read, sent) in read.iter().zip(&fields) {
                    assert_eq!((&read.0, &read.1), (&sent.0, &sent.1));
                    // What is in its table a peer may send by its index, secret or not.
                    assert!(sent.2 || !read.2);
                }
            }
        }
    }
    assert_eq!(blocks.next(), None);
}

fn resize(size: u32, encoder: &mut Encoder, told: &mut String, sent: &mut Vec<Sent>) {
    encoder.set_max_size(size);
    let _ = writeln!(told, "size {size}");
    sent.push(Sent::Size(size));
}

fn block(random: &mut Random, encoder: &mut Encoder, told: &mut String, sent: &mut Vec<Sent>) {
    // One at least: Go writes no change of size into a block of none.
    let fields: Vec<_> = (0..=random.below(9)).map(|_| random.field()).collect();
    let mut block = BytesMut::new();
    encoder.begin(&mut block);
    for (name, value, sensitive) in &fields {
        encoder.field(FieldName::resolve(name), value, *sensitive, &mut block);
    }
    let _ = writeln!(told, "block {} {}", hex(&block), written(&fields));
    sent.push(Sent::Block(fields));
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

fn peer(name: &str) -> PathBuf {
    let folder = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
    PathBuf::from(folder).join(name)
}

fn ask(peer: &mut Command, told: &str) -> String {
    let mut child = peer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let told = told.to_owned();
    let writer = std::thread::spawn(move || input.write_all(told.as_bytes()));
    let output = child.wait_with_output().unwrap();
    // A peer says itself what it did not expect; it may not have read to the end then.
    assert!(output.status.success(), "the peer failed");
    writer.join().unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A size is both ends' at once: Python's decoder allows it, its encoder uses it.
const PYTHON: &str = "
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

/// The same with nghttp2's coder, which curl and Node have.
const NGHTTP2: &str = "
import ctypes, sys
from ctypes import Structure, byref, c_int, c_size_t, c_ssize_t, c_ubyte, c_void_p, string_at
library = ctypes.CDLL('libnghttp2.so.14')
class Field(Structure):
    _fields_ = [('name', c_void_p), ('value', c_void_p), ('name_length', c_size_t), ('value_length', c_size_t),
                ('flags', c_ubyte)]
for name in ('nghttp2_hd_deflate_hd', 'nghttp2_hd_inflate_hd2'):
    getattr(library, name).restype = c_ssize_t
NEVER, FINAL, EMIT = 1, 1, 2
def check(code):
    assert code >= 0, code
    return code
def decode(block):
    fields, at = [], 0
    octets = ctypes.create_string_buffer(block, len(block))
    while True:
        field, flags = Field(), c_int()
        place = ctypes.cast(ctypes.addressof(octets) + at, c_void_p)
        at += check(library.nghttp2_hd_inflate_hd2(
            decoder, byref(field), byref(flags), place, c_size_t(len(block) - at), c_int(1)))
        if flags.value & EMIT:
            name, value = string_at(field.name, field.name_length), string_at(field.value, field.value_length)
            fields.append((name, value, bool(field.flags & NEVER)))
        if flags.value & FINAL:
            check(library.nghttp2_hd_inflate_end_headers(decoder))
            return fields
def encode(fields):
    kept, list_ = [], (Field * max(len(fields), 1))()
    for at, (name, value, never) in enumerate(fields):
        kept += [ctypes.create_string_buffer(name, len(name) + 1), ctypes.create_string_buffer(value, len(value) + 1)]
        places = [ctypes.addressof(one) for one in kept[-2:]]
        list_[at] = Field(*places, len(name), len(value), NEVER if never else 0)
    out = ctypes.create_string_buffer(1 << 16)
    length = check(library.nghttp2_hd_deflate_hd(encoder, out, c_size_t(1 << 16), list_, c_size_t(len(fields))))
    return out.raw[:length]
encoder, decoder = c_void_p(), c_void_p()
for line in sys.stdin.read().splitlines():
    kind, *words = line.split(' ')
    if kind == 'new':
        check(library.nghttp2_hd_deflate_new(byref(encoder), c_size_t(8192)))
        check(library.nghttp2_hd_deflate_change_table_size(encoder, c_size_t(4096)))
        check(library.nghttp2_hd_inflate_new(byref(decoder)))
    elif kind == 'size':
        check(library.nghttp2_hd_deflate_change_table_size(encoder, c_size_t(int(words[0]))))
        check(library.nghttp2_hd_inflate_change_table_size(decoder, c_size_t(int(words[0]))))
    else:
        fields = []
        for field in words[1].split(',')[:-1]:
            name, value, never = field.split(':')
            fields.append((bytes.fromhex(name), bytes.fromhex(value), never == '1'))
        read = decode(bytes.fromhex(words[0]))
        assert [field[:2] for field in read] == [field[:2] for field in fields], (read, fields)
        assert all(is_never or not never for (_, _, is_never), (_, _, never) in zip(read, fields))
        print(encode(fields).hex())
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
