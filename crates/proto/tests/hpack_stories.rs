//! The published stories of HPACK (hpack-test-case of http2jp): 32 conversations of browsers, each as several encoders
//! wrote it, with tables of several sizes and changes of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::BytesMut;
use serde_json::Value;
use towpath_proto::http2::hpack::{Decoder, Encoder, Field, FieldName, Limits};

#[test]
#[ignore = "needs the stories: cargo xtask peers hpack-stories, then TOWPATH_PEERS=target/peers/bin"]
fn every_story_is_read_and_told_again() {
    let encoders = within(&stories());
    let names: Vec<_> =
        encoders.iter().map(|it| it.file_name().unwrap().to_str().unwrap()).collect();
    for wanted in [
        "go-hpack",
        "nghttp2",
        "nghttp2-change-table-size",
        "nghttp2-16384-4096",
        "node-http2-hpack",
    ] {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }
    for encoder in &encoders {
        let files = within(encoder);
        assert!(files.len() >= 31, "{}: {} stories", encoder.display(), files.len());
        let mut told = Told::default();
        files.iter().for_each(|file| told.add(file));
        assert!(told.blocks > 3000, "{}: {} blocks", encoder.display(), told.blocks);
        // Those that index most, nghttp2 and Node, write a sixth less than we do; some write every field in full.
        let share = told.ours as f64 / told.theirs as f64;
        assert!(share < 1.25, "{}: we write {share} times as much", encoder.display());
    }
}

/// What the stories of one encoder came to.
#[derive(Default)]
struct Told {
    blocks: usize,
    theirs: usize,
    ours: usize,
}

impl Told {
    /// Reads a story, writes it anew and reads that.
    fn add(&mut self, file: &Path) {
        let story: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let (mut decoder, mut reader) = (Decoder::new(4096), Decoder::new(4096));
        let mut encoder = Encoder::new(4096);
        for case in story["cases"].as_array().unwrap() {
            let place = format!("{}, {}", file.display(), case["seqno"]);
            if let Some(size) = case["header_table_size"].as_u64() {
                let size = u32::try_from(size).unwrap();
                decoder.set_max_size(size);
                encoder.set_max_size(size);
                reader.set_max_size(size);
            }
            let wanted = fields_of(case);
            let wire = unhex(case["wire"].as_str().unwrap());
            assert_eq!(read(&mut decoder, &wire, &place), wanted, "{place}");
            let mut block = BytesMut::new();
            encoder.begin(&mut block);
            for (name, value) in &wanted {
                encoder.field(FieldName::resolve(name), value, false, &mut block);
            }
            assert_eq!(read(&mut reader, &block, &place), wanted, "{place}: what we wrote");
            self.blocks += 1;
            self.theirs += wire.len();
            self.ours += block.len();
        }
    }
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Each field is an object of one member.
fn fields_of(case: &Value) -> Fields {
    let octets = |text: &str| text.as_bytes().to_vec();
    let members = case["headers"].as_array().unwrap().iter().flat_map(|it| it.as_object().unwrap());
    members.map(|(name, value)| (octets(name), octets(value.as_str().unwrap()))).collect()
}

fn read(decoder: &mut Decoder, block: &[u8], place: &str) -> Fields {
    let limits = Limits { max_list_size: 1 << 20, max_fields: 1000 };
    let mut fields = Fields::new();
    let sink = &mut |field: Field<'_>| {
        fields.push((field.name.as_bytes().to_vec(), field.value.to_vec()));
    };
    decoder.decode(block, &limits, sink).unwrap_or_else(|error| panic!("{place}: {error:?}"));
    fields
}

/// The peer says where they are.
fn stories() -> PathBuf {
    let peers = std::env::var_os("TOWPATH_PEERS").expect("cargo xtask peers says where");
    let said = Command::new(Path::new(&peers).join("hpack-stories")).output().unwrap();
    assert!(said.status.success(), "the peer failed");
    PathBuf::from(String::from_utf8(said.stdout).unwrap().trim())
}

/// What is in a folder, in order.
fn within(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn unhex(text: &str) -> Vec<u8> {
    let octet = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks(2).map(octet).collect()
}
