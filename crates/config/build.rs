//! Takes Envoy's descriptor set out of the `envoy-types` package, leaves out its comments (four fifths of it), and adds
//! Towpath's own messages.
//!
//! The package also holds 8 MB of generated Rust over `tonic`, which costs 50 CPU seconds to compile and which nothing
//! here calls. So it is an optional dependency that stays off: Cargo pins and verifies it, and this script asks Cargo
//! where its sources lie.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "src/schema/own.rs"]
mod own;
#[expect(dead_code, reason = "only the crate itself reads texts")]
#[path = "src/wire.rs"]
mod wire;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/wire.rs");
    println!("cargo:rerun-if-changed=src/schema/own.rs");
    println!("cargo:rerun-if-changed=Cargo.toml");
    println!("cargo:rerun-if-env-changed={OVERRIDE}");
    let set = env::var_os(OVERRIDE).map_or_else(packaged, PathBuf::from);
    let bytes = fs::read(&set).unwrap_or_else(|error| panic!("{}: {error}", set.display()));
    let mut stripped =
        strip(&bytes).unwrap_or_else(|| panic!("{}: not a descriptor set", set.display()));
    stripped.extend(own::files());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("envoy.bin"), stripped).expect("OUT_DIR is writable");
}

/// Names a descriptor set to use in place of the packaged one.
const OVERRIDE: &str = "TOWPATH_ENVOY_DESCRIPTORS";

/// The descriptor set in the sources of `envoy-types`.
fn packaged() -> PathBuf {
    let root = [&["--offline"][..], &[]].into_iter().find_map(package_root);
    let root =
        root.expect("`cargo metadata` does not know envoy-types; set TOWPATH_ENVOY_DESCRIPTORS");
    root.join("src/generated/types.bin")
}

/// Asks Cargo where `envoy-types` is, which downloads it if need be and allowed.
fn package_root(flags: &[&str]) -> Option<PathBuf> {
    let output = Command::new(env::var_os("CARGO")?)
        .args(["metadata", "--format-version=1", "--features=descriptor-source"])
        .arg(format!("--filter-platform={}", env::var("TARGET").ok()?))
        .arg("--manifest-path")
        .arg(Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join("Cargo.toml"))
        .args(flags)
        .output()
        .ok()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let packages = metadata["packages"].as_array()?;
    let package = packages.iter().find(|package| package["name"] == "envoy-types")?;
    Some(Path::new(package["manifest_path"].as_str()?).parent()?.to_path_buf())
}

/// A `FileDescriptorSet` without each file's `source_code_info`. Works on the wire format, because options that are
/// extensions (the validation rules) must survive.
fn strip(set: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for file in whole_fields(set)?.iter().filter(|field| field.number == FILE) {
        let fields = whole_fields(file.payload)?;
        let kept: Vec<&[u8]> = fields
            .iter()
            .filter(|field| field.number != SOURCE_CODE_INFO)
            .map(|field| field.whole)
            .collect();
        out.push(0x0a);
        write_varint(&mut out, kept.iter().map(|field| field.len()).sum());
        out.extend(kept.concat());
    }
    Some(out)
}

const FILE: u64 = 1;
const SOURCE_CODE_INFO: u64 = 9;

/// The fields of a message, none of which is malformed.
fn whole_fields(message: &[u8]) -> Option<Vec<wire::Field<'_>>> {
    let fields: Vec<wire::Field<'_>> = wire::fields(message).collect();
    let read: usize = fields.iter().map(|field| field.whole.len()).sum();
    (read == message.len()).then_some(fields)
}

fn write_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
