//! The client library in other languages: built, installed beside what it is used with, and tested there.
//! For the JVM that is OkHttp with its MockWebServer, under the JVM's own checks of native code, from Java and Kotlin.
//!
//! Everything is under `target/bindings`. Python's own tests run in development mode, and the suites of httpx and
//! requests with this library in the place of what these connect by: `bindings/python/suites` has what they find
//! different, and why.

mod outage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peers;
use crate::shell::{Result, cargo, has, output, root, run as run_command, target};

/// `[python|jvm]`: the tests; behind one of them `bench`: the comparison with what it replaces. `outage`: both beside
/// the library on a link that goes.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            python()?;
            jvm()
        }
        ["python"] => python(),
        ["jvm"] => jvm(),
        ["jvm", "bench", options @ ..] => jvm_bench(options),
        ["python", "bench", options @ ..] => python_bench(options),
        ["outage", options @ ..] => outage::run(options),
        _ => {
            Err("usage: cargo xtask bindings [python [bench [--quick]] | jvm [bench [--quick]] | \
                 outage [--quick]]"
                .into())
        }
    }
}

/// Installs what the tests need, so that they do not wait for the network.
pub(crate) fn fetch() -> Result<()> {
    peers::run(&[DEBUG_PYTHON.to_owned()])?;
    environment()?;
    SUITES.iter().try_for_each(|suite| source(suite).map(drop))
}

/// Python's tests, and those of what it is used with.
pub(crate) fn python() -> Result<()> {
    fetch()?;
    install("dev")?;
    let tool = |name: &str| {
        let mut command = Command::new(program(name));
        command.current_dir(folder());
        command
    };
    run_command(tool("ruff").args(["format", "--check", "--quiet", "."]))?;
    run_command(tool("ruff").args(["check", "--quiet", "."]))?;
    run_command(&mut tool("mypy"))?;
    run_command(tool("python").args(["-X", "dev", "-m", "pytest"]))?;
    debug_build()?;
    SUITES.iter().try_for_each(suite)
}

/// Requests that are given up at any moment, under a debug build of Python, which checks references and memory.
fn debug_build() -> Result<()> {
    println!("bindings: under a debug build of Python");
    let home = peers::debian_root(DEBUG_PYTHON).join("usr");
    let library = home.join("lib/python3.11");
    let packages = fs::read_dir(environment_folder().join("lib"))?
        .next()
        .ok_or("the environment has no library")??
        .path()
        .join("site-packages");
    let paths = [library.clone(), library.join("lib-dynload"), packages];
    run_command(
        Command::new(peers::folder().join("bin").join(DEBUG_PYTHON))
            .args(["-X", "dev", "-m", "pytest", "-p", "no:cacheprovider", "tests/test_stress.py"])
            .env("PYTHONHOME", home)
            .env("PYTHONPATH", std::env::join_paths(paths)?)
            .current_dir(folder()),
    )
}

const DEBUG_PYTHON: &str = "python-debug";

/// Builds the artifact with the native library in it, and the one for Kotlin, and tests both.
fn jvm() -> Result<()> {
    native("dev", "debug")?;
    let log = jvm_folder().join("maven.log");
    let mut package = maven(&["package"])?;
    match newer_jdk() {
        Some(home) => drop(package.arg(format!("-Dtowpath.jdk22={}", home.display()))),
        None => println!("bindings: the JVM by FFM NOT CHECKED: {JDKS} has no JDK 22 or later"),
    }
    let tested = run_command(package.stdout(fs::File::create(&log)?));
    let printed = fs::read_to_string(&log)?;
    print!("{printed}");
    tested?;
    // The JVM's checks of native code complain, and go on.
    match printed.lines().find(|line| line.contains("in native method")) {
        Some(complaint) => Err(format!("-Xcheck:jni: {complaint}").into()),
        None => Ok(()),
    }
}

/// The home of a JDK that has the Foreign Function & Memory API.
fn newer_jdk() -> Option<PathBuf> {
    let homes = fs::read_dir(JDKS).ok()?.flatten().map(|entry| entry.path());
    let mut homes: Vec<PathBuf> = homes
        .filter(|home| home.join("bin/javac").is_file())
        .filter(|home| fs::read_to_string(home.join("release")).is_ok_and(|said| is_newer(&said)))
        .collect();
    homes.sort_unstable();
    homes.pop()
}

/// Whether a JDK's own words on its release are of 22 or later.
fn is_newer(release: &str) -> bool {
    let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""));
    let major =
        version.and_then(|version| version.split(['.', '"', '-']).next()?.parse::<u32>().ok());
    major.is_some_and(|major| major >= 22)
}

/// Where Debian's JDKs are, and Temurin's of Debian's packages.
const JDKS: &str = "/usr/lib/jvm";

/// CPU, memory and time beside OkHttp alone.
fn jvm_bench(options: &[&str]) -> Result<()> {
    let class_path = java("small", "small")?;
    run_command(
        Command::new("java").arg("-cp").arg(class_path).arg("io.towpath.Compare").args(options),
    )
}

/// Builds the artifact and its tests around the native library of this profile, and answers their class path.
fn java(profile: &str, folder: &str) -> Result<String> {
    native(profile, folder)?;
    let classpath = jvm_folder().join("classpath");
    let written = format!("-Dmdep.outputFile={}", classpath.display());
    let goals = ["--projects", "java", "test-compile", "dependency:build-classpath", &written];
    run_command(&mut maven(&goals)?)?;
    let made = jvm_folder().join("java");
    let ours = ["classes", "test-classes"].map(|classes| made.join(classes).display().to_string());
    Ok(format!("{}:{}", ours.join(":"), fs::read_to_string(classpath)?.trim()))
}

/// The native library of this profile, where the artifact takes it from.
fn native(profile: &str, folder: &str) -> Result<()> {
    run_command(cargo().args([
        "build",
        "--quiet",
        "--profile",
        profile,
        "--package",
        "towpath-jvm",
    ]))?;
    let platform = format!("linux-{}", std::env::consts::ARCH.replace("x86_64", "amd64"));
    let library = jvm_folder().join("native").join(platform);
    fs::create_dir_all(&library)?;
    let name = "libtowpath_jvm.so";
    fs::copy(target().join(folder).join(name), library.join(name))?;
    Ok(())
}

/// Maven in the artifacts' folder, with everything that it makes and fetches under `target`.
fn maven(goals: &[&str]) -> Result<Command> {
    if !has("mvn") {
        return Err(
            "the binding for the JVM is built and tested by Maven, and there is no mvn".into()
        );
    }
    let property =
        |name: &str, inside: &str| format!("-D{name}={}", jvm_folder().join(inside).display());
    let mut command = Command::new("mvn");
    command
        .args(["--batch-mode", "--quiet"])
        .arg(property("towpath.target", "java"))
        .arg(property("towpath.native", "native"))
        .arg(property("maven.repo.local", "repository"))
        .args(goals)
        .current_dir(root().join("bindings/jvm"));
    Ok(command)
}

fn jvm_folder() -> PathBuf {
    target().join("bindings/jvm")
}

/// CPU, memory and time beside httpx and requests.
fn python_bench(options: &[&str]) -> Result<()> {
    fetch()?;
    install("small")?;
    run_command(
        Command::new(program("python")).arg(folder().join("bench/compare.py")).args(options),
    )
}

/// A package of PyPI whose own tests are run with this library inside.
struct Suite {
    name: &'static str,
    version: &'static str,
    /// What its tests are run with.
    options: &'static [&'static str],
}

const SUITES: [Suite; 2] = [
    Suite { name: "httpx", version: "0.28.1", options: &[] },
    // Without its own settings, which want the documentation's examples run.
    Suite {
        name: "requests",
        version: "2.34.2",
        options: &["-c", "/dev/null", "--rootdir", ".", "-W", "ignore"],
    },
];

fn suite(suite: &Suite) -> Result<()> {
    println!("bindings: {}'s own tests through towpath", suite.name);
    run_command(
        Command::new(program("python"))
            .args(["-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider"])
            .args(["-p", "through_towpath"])
            .args(suite.options)
            .arg("tests")
            .env("PYTHONPATH", folder().join("suites"))
            .env("TOWPATH_SUITE", suite.name)
            .current_dir(source(suite)?),
    )
}

/// Where the package's source is, its tests included.
fn source(suite: &Suite) -> Result<PathBuf> {
    let whole = format!("{}-{}", suite.name, suite.version);
    let sources = cache().join("sources");
    let place = sources.join(&whole);
    if place.is_dir() {
        return Ok(place);
    }
    fs::create_dir_all(&sources)?;
    let wanted = format!("{}=={}", suite.name, suite.version);
    output(
        Command::new(program("python"))
            .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--no-binary", ":all:", "--dest"])
            .arg(&sources)
            .arg(&wanted),
    )
    .map_err(|error| format!("cannot have the source of {wanted} from PyPI: {error}"))?;
    output(Command::new("tar").arg("xf").arg(format!("{whole}.tar.gz")).current_dir(&sources))?;
    Ok(place)
}

/// A Python of its own, with what `requirements.txt` names.
fn environment() -> Result<()> {
    let wanted = fs::read_to_string(folder().join("suites/requirements.txt"))?;
    let stamp = environment_folder().join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    if !has("python3") {
        return Err("the binding for Python is tested with python3 (3.10 or later)".into());
    }
    output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment_folder()))?;
    output(
        Command::new(program("python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(folder().join("suites/requirements.txt")),
    )
    .map_err(|error| format!("cannot have what Python's tests need from PyPI: {error}"))?;
    fs::write(stamp, wanted)?;
    Ok(())
}

/// Builds the wheel with this profile, and installs it.
fn install(profile: &str) -> Result<()> {
    let wheels = cache().join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    run_command(
        Command::new(program("maturin"))
            .args(["build", "--quiet", "--profile", profile, "--interpreter", "python3", "--out"])
            .arg(&wheels)
            .env("VIRTUAL_ENV", environment_folder())
            .current_dir(folder()),
    )?;
    let wheel = fs::read_dir(&wheels)?.next().ok_or("maturin made no wheel")??.path();
    output(
        Command::new(program("python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--force-reinstall"])
            .arg(&wheel),
    )?;
    Ok(())
}

fn folder() -> PathBuf {
    root().join("bindings/python")
}

fn cache() -> PathBuf {
    target().join("bindings/python")
}

fn environment_folder() -> PathBuf {
    cache().join("environment")
}

fn program(name: &str) -> PathBuf {
    Path::new(&environment_folder()).join("bin").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jdk_says_which_it_is() {
        for (release, newer) in [
            ("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"25.0.1\"\n", true),
            ("JAVA_VERSION=\"22\"", true),
            ("JAVA_VERSION=\"23-ea\"", true),
            ("JAVA_VERSION=\"21.0.2\"", false),
            ("JAVA_VERSION=\"1.8.0_402\"", false),
            ("", false),
        ] {
            assert_eq!(is_newer(release), newer, "{release}");
        }
    }
}
