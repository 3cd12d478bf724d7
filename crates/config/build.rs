//! Takes Envoy's descriptor set out of the `envoy-types` package and leaves out its comments (four fifths of it).
//!
//! The package also holds 8 MB of generated Rust over `tonic`, which costs 50 CPU seconds to compile and which nothing
//! here calls. So it is an optional dependency that stays off: Cargo pins and verifies it, and this script asks Cargo
//! where its sources lie.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=Cargo.toml");
    println!("cargo:rerun-if-env-changed={OVERRIDE}");
    let set = env::var_os(OVERRIDE).map_or_else(packaged, PathBuf::from);
    let bytes = fs::read(&set).unwrap_or_else(|error| panic!("{}: {error}", set.display()));
    let stripped =
        strip(&bytes).unwrap_or_else(|| panic!("{}: not a descriptor set", set.display()));
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
    for field in fields(set) {
        let (number, _, file) = field?;
        if number != 1 {
            continue;
        }
        let mut kept = Vec::new();
        for field in fields(file) {
            let (number, whole, _) = field?;
            if number != SOURCE_CODE_INFO {
                kept.extend_from_slice(whole);
            }
        }
        out.push(0x0a);
        write_varint(&mut out, kept.len());
        out.extend_from_slice(&kept);
    }
    Some(out)
}

const SOURCE_CODE_INFO: u64 = 9;

/// The fields of a message: number, the field with its tag, and its payload when it is length-delimited.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = Option<(u64, &[u8], &[u8])>> {
    std::iter::from_fn(move || {
        let whole = rest;
        (!rest.is_empty()).then(|| {
            let tag = read_varint(&mut rest)?;
            let length = match tag & 7 {
                0 => {
                    read_varint(&mut rest)?;
                    0
                }
                1 => 8,
                2 => usize::try_from(read_varint(&mut rest)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let payload = rest.get(..length)?;
            rest = &rest[length..];
            Some((tag >> 3, &whole[..whole.len() - rest.len()], payload))
        })
    })
}

fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn write_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
