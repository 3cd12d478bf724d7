//! The cases of `conformance/bootstrap`: what is said of each, and whether a real Envoy agrees.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::base::Base;
use crate::error::{Error, Location};
use crate::load::{Options, converted, load, reload};
use crate::message::{Message, Value};
use crate::source::{Source, Sources};
use crate::support::{self, Support};

#[test]
fn every_case_is_reported_as_it_says() {
    let cases = cases();
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    let wrong: Vec<String> = cases.iter().filter_map(|case| case.wrong()).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

#[test]
fn envoy_agrees_on_every_case() {
    let Some(envoy) = envoy() else {
        assert!(std::env::var_os("CI").is_none(), "no Envoy at hand");
        println!("skipped: no Envoy at hand; set TOWPATH_ENVOY or run `cargo xtask peers`");
        return;
    };
    let directory = std::env::temp_dir().join(format!("towpath-bootstrap-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let cases = cases();
    let disagreements = |part: &[Case]| -> Vec<String> {
        part.iter().filter_map(|case| case.disagreement(&envoy, &directory)).collect()
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let parts: Vec<_> = cases.chunks(cases.len().div_ceil(4)).collect();
        let parts: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(|| disagreements(part))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    fs::remove_dir_all(&directory).unwrap();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

/// The table of support says what conversion does: conversion reads no field that is called ignored, and each field
/// that is called honoured is set by a case in which conversion reads it.
#[test]
fn the_field_table_and_the_conversion_agree() {
    let mut read = BTreeSet::new();
    for case in cases() {
        let source = Source::yaml("case.yaml", &case.text);
        if let Some(message) = converted(&Sources::file(source), &Options::default()) {
            collect(&message, &mut read);
        }
    }
    let told = |(message, field): &(String, String)| {
        !matches!(support::of(message, field), Support::Harmless(_))
    };
    let untold: Vec<_> = read.iter().filter(|field| !told(field)).collect();
    assert!(untold.is_empty(), "read, but ignored by the table of support: {untold:#?}");
    let honoured = support::entries().flat_map(|entry| {
        entry.honoured.iter().map(|field| (entry.message.to_owned(), (*field).to_owned()))
    });
    // No bootstrap holds what control planes alone send.
    let unread: Vec<_> = honoured
        .filter(|field| !field.0.starts_with("envoy.service."))
        .filter(|field| !read.contains(field) && !NOTHING_TO_READ.contains(&field.1.as_str()))
        .collect();
    assert!(
        unread.is_empty(),
        "honoured in the table of support, but read in no case: {unread:#?}"
    );
}

#[test]
fn what_is_secret_is_not_shown() {
    for name in ["cluster-tls-everything", "chain-tls-everything"] {
        let case = Case::read(&root().join(format!("cases/{name}.yaml")));
        assert!(case.text.contains("PRIVATE KEY"));
        let source = Source::yaml("case.yaml", &case.text);
        let loaded = load(&Sources::file(source), &Options::default()).unwrap();
        let dump = loaded.config_dump("now").to_string();
        for secret in ["PRIVATE KEY", "1234567890123456", "MTIzNDU2Nzg5MDEyMzQ1"] {
            assert!(!dump.contains(secret), "{name}: {secret}");
        }
        assert!(dump.contains(r#""private_key":{"inline_string":"[redacted]"}"#), "{dump}");
        assert!(dump.contains("BEGIN CERTIFICATE"), "certificates are no secret");
    }
}

/// Honoured by doing nothing: a name that Envoy reads for EDS only, numbers of the parts of an expression, a version of
/// which there is one, and holders of nothing that is honoured.
const NOTHING_TO_READ: [&str; 6] = [
    "id",
    "cluster_name",
    "resource_api_version",
    "round_robin_lb_config",
    "dns_resolver_options",
    "json_format_options",
];

/// The fields that were read, as pairs of message and field.
/// A key is not shown, and yet it is part of what a listener is.
#[test]
fn another_key_in_the_file_itself_makes_another_listener() {
    let secrets = root().join("cases/secrets.yaml");
    let text = certificates(&fs::read_to_string(secrets).unwrap());
    let (mut base, mut listeners) = (Base::default(), Vec::new());
    for digits in ["1234567890", "1234567890", "1234567891"] {
        let text = text.replace("1234567890", digits);
        let sources = Sources::file(Source::yaml("t", &text));
        let loaded = reload(&sources, &Options::default(), &base).unwrap();
        listeners.push(Arc::clone(&loaded.snapshot.listeners[0]));
        base = Base { snapshot: loaded.snapshot.into(), prints: loaded.prints, free: Vec::new() };
    }
    assert!(Arc::ptr_eq(&listeners[0], &listeners[1]));
    assert!(!Arc::ptr_eq(&listeners[1], &listeners[2]));
}

fn collect(message: &Message, read: &mut BTreeSet<(String, String)>) {
    for field in &message.fields {
        if field.read.get() {
            read.insert((
                message.descriptor.full_name().to_owned(),
                field.descriptor.name().to_owned(),
            ));
        }
        inside(&field.value, read);
    }
}

fn inside(value: &Value, read: &mut BTreeSet<(String, String)>) {
    match value {
        Value::Message(message) => collect(message, read),
        Value::List(items) => items.iter().for_each(|item| inside(&item.value, read)),
        Value::Map(entries) => entries.iter().for_each(|(_, item)| inside(&item.value, read)),
        Value::Any(any) => any.message.iter().for_each(|message| collect(message, read)),
        _ => {}
    }
}

/// A case file.
struct Case {
    name: String,
    /// The whole bootstrap.
    text: String,
    /// Which lines of it are the case's, from 1, and the first of them in the case file.
    first_line: u32,
    shift: u32,
    /// What must be said: kind, line in the case file, parts of the message.
    expected: BTreeSet<(char, u32, String)>,
    envoy_takes: bool,
}

impl Case {
    fn read(path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let file = certificates(&fs::read_to_string(path).unwrap());
        let base = file.strip_prefix("#: base ").and_then(|rest| rest.split_whitespace().next());
        let base = base.unwrap_or_else(|| panic!("{name}: no base"));
        let expected = expectations(&file);
        let mut envoy_takes = expected.iter().all(|(kind, ..)| *kind != '!');
        for line in file.lines() {
            if line.starts_with("#: envoy refuses it, because ") {
                envoy_takes = false;
            } else if line.starts_with("#: envoy takes it, because ") {
                envoy_takes = true;
            }
        }
        let (text, first_line) = match base {
            "none" => (file.clone(), 1),
            base => compose(
                &fs::read_to_string(root().join("bases").join(format!("{base}.yaml"))).unwrap(),
                &file,
            ),
        };
        Self { name, text, first_line, shift: first_line - 1, expected, envoy_takes }
    }

    /// What was said that should not be, and what was not.
    fn wrong(&self) -> Option<String> {
        let said = self.said();
        let mut missing = self.expected.clone();
        let mut extra = Vec::new();
        for (kind, line, message) in said {
            let found = missing
                .iter()
                .find(|(k, l, part)| *k == kind && *l == line && message.contains(part.as_str()))
                .cloned();
            match found {
                Some(found) => drop(missing.remove(&found)),
                None => extra.push(format!("  said     #{kind} line {line}: {message}")),
            }
        }
        let missing = missing
            .iter()
            .map(|(kind, line, part)| format!("  not said #{kind} line {line}: {part}"));
        let all: Vec<_> = extra.into_iter().chain(missing).collect();
        (!all.is_empty()).then(|| format!("{}:\n{}", self.name, all.join("\n")))
    }

    fn said(&self) -> Vec<(char, u32, String)> {
        let line = |location: &Location| {
            if location.line <= self.first_line { 1 } else { location.line - self.shift }
        };
        let source = Source::yaml("case.yaml", &self.text);
        match load(&Sources::file(source), &Options::default()) {
            Ok(loaded) => {
                let notes =
                    loaded.notes.iter().map(|note| ('=', line(&note.location), note.to_string()));
                let ignored = loaded
                    .ignored
                    .iter()
                    .map(|finding| ('~', line(&finding.location), finding.to_string()));
                notes.chain(ignored).collect()
            }
            Err(Error::Invalid(problems)) => problems
                .iter()
                .map(|problem| ('!', line(&problem.location), problem.to_string()))
                .collect(),
            Err(Error::Unsupported(findings)) => findings
                .iter()
                .map(|finding| ('?', line(&finding.location), finding.to_string()))
                .collect(),
            Err(error) => vec![('!', 0, error.to_string())],
        }
    }

    /// What Envoy thinks, where that is not what the case says.
    fn disagreement(&self, envoy: &Path, directory: &Path) -> Option<String> {
        let file = directory.join(format!("{}.yaml", self.name));
        fs::write(&file, &self.text).unwrap();
        let output = Command::new(envoy)
            .args(["--mode", "validate", "-l", "error", "-c"])
            .arg(&file)
            .output()
            .unwrap();
        if output.status.success() == self.envoy_takes {
            return None;
        }
        let answer = if output.status.success() {
            "takes it".to_owned()
        } else {
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        Some(format!("{}: Envoy {answer}", self.name))
    }
}

/// Writes certificates where a case names them: `${root}` and `${leaf}`, and the leaf's `${key}`; `${crl}` is the
/// root's list of revoked ones.
fn certificates(text: &str) -> String {
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
        KeyIdMethod, KeyPair, SerialNumber,
    };
    static MADE: OnceLock<[(&str, String); 4]> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let crl = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(2040, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let crl = crl.signed_by(&issuer).unwrap().pem().unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap().pem();
        [("${root}", root), ("${leaf}", leaf), ("${key}", key.serialize_pem()), ("${crl}", crl)]
    });
    made.iter().fold(text.to_owned(), |text, (name, pem)| {
        text.replace(name, &serde_json::Value::from(pem.as_str()).to_string())
    })
}

/// Puts a case where its base says, with the indentation of that line. Also returns where its first line is.
fn compose(base: &str, case: &str) -> (String, u32) {
    let (mut text, mut first) = (String::new(), 0);
    for (line, number) in base.lines().zip(1..) {
        let Some(indentation) = line.strip_suffix("#: here") else {
            text += line;
            text.push('\n');
            continue;
        };
        first = number;
        for line in case.lines() {
            text += &format!("{indentation}{line}\n");
        }
    }
    (text, first)
}

fn expectations(file: &str) -> BTreeSet<(char, u32, String)> {
    let mut all = BTreeSet::new();
    for (line, number) in file.lines().zip(1..) {
        for kind in ['!', '?', '~', '='] {
            let Some((_, texts)) = line.split_once(&format!("#{kind} ")) else { continue };
            let texts = texts.split(" #").next().unwrap_or_default();
            all.extend(texts.split(" && ").map(|text| (kind, number, text.trim().to_owned())));
        }
    }
    all
}

fn cases() -> Vec<Case> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(root().join("cases")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| Case::read(path)).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/bootstrap")
}

fn envoy() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let installed = variable("TOWPATH_PEERS")
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/bin"));
    let installed = Some(installed.join("envoy")).filter(|path| path.exists());
    variable("TOWPATH_ENVOY").or(installed)
}
